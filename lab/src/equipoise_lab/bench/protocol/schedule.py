"""The schedule of a seed: a workload, and faults at numbered steps."""

import random
from dataclasses import dataclass, replace
from typing import NamedTuple

MODELS = ("local", "hdfs", "conditional", "plain")
"""Kinds of stores."""

SINKS = ("parquet", "table", "function", "transformed")
"""Kinds of sinks."""

FAULTS = {
    "fail": 3,  # the operation fails and has no effect
    "lost": 4,  # the operation takes effect and its answer is lost
    "crash": 4,  # the process dies before the operation
    "crash after": 4,  # the process dies after the operation
    "pause": 8,  # the process stops for some steps; another takes over
    "stop": 2,  # the query is stopped, as by a user
    "slow": 2,  # the operation takes as many minutes as steps, while others go on
    "power": 3,  # the machine loses power: what was not synced may be lost
    "restore": 1,  # an operator stops everything and restores a copy of the checkpoint
    "swap": 1,  # an operator puts another plan over one that is in force, and starts the query again
    "lose half": 1,  # an operator puts Spark's half of another time, or none, beside the log, or an older log beside it
}
"""Kinds of faults with their weights."""

_FIRST_STEPS = 900  # about as many steps as an undisturbed schedule has


class Fault(NamedTuple):
    """Something that happens at a step; ``span`` is a number of steps, where that matters."""

    step: int
    kind: str
    span: int


@dataclass(frozen=True)
class Schedule:
    """Everything that determines a run.

    Parameters
    ----------
    seed
        Of everything else that is drawn during the run.
    model, sink
        Kinds of the store and of the sink.
    batches, partitions
        Batches to run, and N at first.
    stages
        Number of keyed operators, each on the output of the one before.
    faults
        In the order of their steps.
    """

    seed: int
    model: str
    sink: str
    batches: int
    partitions: int
    faults: tuple[Fault, ...]
    stages: int = 1

    @classmethod
    def of(cls, seed: int) -> "Schedule":
        """The schedule of a seed."""
        draw = random.Random(f"schedule {seed}")  # noqa: S311 - the same seed must give the same schedule
        faults: list[Fault] = []
        step = 0
        mean = draw.choice((30, 90, 250))
        kinds, weights = list(FAULTS), list(FAULTS.values())
        while len(faults) < 14:
            step += 1 + int(draw.expovariate(1 / mean))
            if step > _FIRST_STEPS:
                break
            faults.append(Fault(step, draw.choices(kinds, weights)[0], draw.choice((3, 30, 100, 400, 900))))
        return cls(
            seed=seed,
            model=MODELS[seed % len(MODELS)],
            sink=SINKS[seed // len(MODELS) % len(SINKS)],
            batches=draw.randint(5, 9),
            partitions=draw.randint(1, 3),
            faults=tuple(faults),
            stages=1 + (seed // (len(MODELS) * len(SINKS))) % 2,
        )

    def without(self, fault: Fault) -> "Schedule":
        """The same schedule without one of its faults."""
        return replace(self, faults=tuple(each for each in self.faults if each != fault))
