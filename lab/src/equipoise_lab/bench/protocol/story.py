"""Report of a failing schedule: shortened as far as possible, then printed step by step."""

import re
from collections.abc import Iterator

from equipoise_lab.bench.protocol.checker import ViolationError
from equipoise_lab.bench.protocol.schedule import Schedule
from equipoise_lab.bench.protocol.world import Outcome, run

_ROUTINE = re.compile(r"^\s*\d+ world|\s(list|look|read) ")
_LINES = 200


def shrunk(outcome: Outcome) -> Outcome:
    """A violation of the same kind with as few faults as possible: each that is not needed is left out."""
    schedule, kind = outcome.schedule, _kind(outcome)
    while True:
        for fault in schedule.faults:
            shorter = run(schedule.without(fault))
            if _kind(shorter) == kind:
                outcome, schedule = shorter, shorter.schedule
                break
        else:
            return outcome


def _kind(outcome: Outcome) -> str | None:
    """Text of a violation before its first number."""
    return None if outcome.violation is None else re.split(r"\d", outcome.violation, maxsplit=1)[0]


def story(outcome: Outcome) -> str:
    """Description of the events, for people."""
    return "\n".join(_lines(outcome))


def _lines(outcome: Outcome) -> Iterator[str]:
    schedule = outcome.schedule
    yield (
        f"seed {schedule.seed}: store {schedule.model}, sink {schedule.sink}, {schedule.batches} batches, "
        f"{schedule.partitions} partitions at first, {schedule.stages} operator{'s' if schedule.stages > 1 else ''}"
    )
    for fault in schedule.faults:
        yield f"  fault at step {fault.step}: {fault.kind} ({fault.span})"
    shown = [line for line in outcome.trace if _ROUTINE.search(line) is None]
    yield from shown[-_LINES:]
    yield f"violation: {outcome.violation}"


def first_silent(seeds: range) -> tuple[int, Outcome] | None:
    """How many schedules it took to find wrong or missing rows, and the outcome; ``None`` where there are none.

    A query that refuses to go on is a violation too, but not a silent one.
    """
    for count, seed in enumerate(seeds, 1):
        outcome = run(Schedule.of(seed))
        if outcome.violation is not None and outcome.violation.startswith(ViolationError.__name__):
            return count, outcome
    return None
