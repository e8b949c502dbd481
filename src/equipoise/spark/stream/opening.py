"""Open a query on a checkpoint: the same steps on Spark Classic, on Connect, without Spark and for planned batches.

1. Identify the checkpoint, or refuse one that belongs to a query with another key or with another number of stages.
2. Claim an epoch, which fences off a query that still runs on the checkpoint. A query with several stages claims one
   for each, first to last: a query that is refused at the first stage has claimed nothing.
3. Merge the state variables on record with those that the user's code declares now.
4. Make the engines, last to first since each is the sink of the one before, and let them commit version 0, the initial
   state, first to last, if the query is new.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic

import msgspec

from equipoise.errors import MismatchError
from equipoise.failpoints import failpoint
from equipoise.readable import count_text
from equipoise.spark.stream.delivery import Sink
from equipoise.spark.stream.engine import Engine, wall_clock
from equipoise.spark.stream.failures import translating
from equipoise.spark.stream.jobs import Jobs, Rows
from equipoise.spark.stream.options import StreamOptions
from equipoise.spark.stream.query import is_active_here
from equipoise.spark.stream.settings import QueryDefinition, Settings
from equipoise.spark.stream.stages import NextStage
from equipoise.state.checkpoint import Checkpoint, Identity, new_name
from equipoise.state.fencing import Epoch, claim
from equipoise.state.handle import VariableSpec, merge_specs, removed_tags
from equipoise.state.log import CommitLog
from equipoise.state.stages import later_stages, stage_folder
from equipoise.storage import Storage


@dataclass(frozen=True)
class Stage(Generic[Rows]):
    """One keyed operator of a query that is to be opened.

    Parameters
    ----------
    query
        What it computes.
    options
        The user's options.
    make_jobs
        Makes the object that runs the tasks of a batch.
    initial
        Rows of the initial state; used only if the query is new.
    """

    query: QueryDefinition
    options: StreamOptions
    make_jobs: Callable[[Settings], Jobs[Rows]]
    initial: Rows | None = None


@dataclass(frozen=True)
class OpenQuery(Generic[Rows]):
    """A query that owns its checkpoint and is ready for its next batch.

    Parameters
    ----------
    settings, jobs, engine
        Those of the first stage, whose engine hands the batches to the later ones.
    later
        Epochs of the later stages.
    """

    settings: Settings
    jobs: Jobs[Rows]
    engine: Engine[Rows]
    later: tuple[Epoch, ...] = ()


def open_query(
    storage: Storage,
    query: QueryDefinition,
    options: StreamOptions,
    sink: Sink,
    make_jobs: Callable[[Settings], Jobs[Rows]],
    *,
    shuffle_partitions: int,
    initial: Rows | None = None,
    clock: Callable[[], int] = wall_clock,
    seconds: Callable[[], float] = time.perf_counter,
    later: Sequence[Stage[Rows]] = (),
) -> OpenQuery[Rows]:
    """Take over the checkpoint of a query, or create it.

    Parameters
    ----------
    storage
        The checkpoint.
    query
        What the query computes, in its first stage.
    options
        The user's options.
    sink
        Where the output goes: that of the last stage.
    make_jobs
        Makes the object that runs the tasks of a batch.
    shuffle_partitions
        Number of partitions if the options name none.
    initial
        Rows of the initial state; used only if the query is new.
    clock
        Returns the processing time in milliseconds since 1970.
    seconds
        Returns the seconds of a clock with any origin, for measuring.
    later
        The stages after the first, in their order.
    """
    stages = [Stage(query, options, make_jobs, initial), *later]
    _require_stages(storage, len(stages))
    folders = [stage_folder(storage, number) for number in range(1, len(stages) + 1)]
    identities = [
        _identified(folder, stage, number, shuffle_partitions)
        for number, (folder, stage) in enumerate(zip(folders, stages, strict=True), 1)
    ]
    epochs: list[Epoch] = []
    try:
        for folder, identity in zip(folders, identities, strict=True):
            if epochs:
                failpoint("driver.between-stages")
            above = CommitLog(folder).last_epoch()
            epochs.append(claim(folder, is_active_here, exclusive=identity.exclusive, above=above))
        opened: list[tuple[Settings, Jobs[Rows], Engine[Rows]]] = []
        for stage, identity, epoch in reversed(list(zip(stages, identities, epochs, strict=True))):
            variables = _variables(CommitLog(epoch.storage), stage.query)
            settings = Settings(
                query=stage.query,
                options=replace(stage.options, numPartitions=stage.options.first_partitions(shuffle_partitions)),
                identity=identity,
                epoch=epoch,
                variables=variables,
                removed=removed_tags(variables),
                sink=NextStage(opened[0][2]) if opened else sink,
            )
            jobs = stage.make_jobs(settings)
            opened.insert(0, (settings, jobs, Engine(settings, jobs, clock, seconds)))
        with translating():
            for stage, (_, _, engine) in zip(stages, opened, strict=True):
                engine.initialise(stage.initial)
    except BaseException:
        release_all(epochs)
        raise
    return OpenQuery(*opened[0], tuple(epochs[1:]))


def release_all(epochs: Sequence[Epoch]) -> None:
    """Release the epochs of the stages of a query, last to first, so that the first is claimed only if all are free."""
    for epoch in reversed(epochs):
        epoch.release()


def _require_stages(storage: Storage, given: int) -> None:
    """Refuse a checkpoint of a query with another number of stages; one that never ran a batch may lack stages."""
    has_run = CommitLog(storage).head() > 0  # before the stages, which another driver may make, and then run a batch
    known = 1 + len(later_stages(storage))
    if known > given or (known < given and has_run):
        raise MismatchError(
            f"the query in {storage.location} has {count_text(known, 'keyed operator')} one after the other, but "
            f"{given} were given; a query keeps its operators: give the same ones, or a new checkpoint"
        )


def _identified(storage: Storage, stage: Stage[Rows], number: int, shuffle_partitions: int) -> Identity:
    """Return the identity of a stage, which must match what is known; a new folder stores it."""
    checkpoint, query = Checkpoint(storage), stage.query
    known = checkpoint.identity()
    return checkpoint.identify(
        Identity(
            name=new_name(),
            key=list(query.key),
            key_schema=msgspec.json.decode(msgspec.json.encode(query.key_schema)),
            tail_groups=stage.options.tail_groups(shuffle_partitions, None if known is None else known.tail_groups),
            time_mode=query.time_mode,
            exclusive=storage.abilities.create_if_absent,
            stage=number,
        )
    )


def _variables(log: CommitLog, query: QueryDefinition) -> dict[str, VariableSpec]:
    """Return the state variables on record, with those that the user's code declares now."""
    last = log.last()
    stored = {} if last is None else last.variables
    known = {name: msgspec.convert(spec, VariableSpec) for name, spec in stored.items()}
    try:
        return merge_specs(known, query.code.variables, query.code.removed)
    except MismatchError as error:
        raise MismatchError(f"{query.code.declared_in}: {error}") from error
