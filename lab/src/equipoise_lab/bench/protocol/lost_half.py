"""Checkpoints whose two halves belong to different points in time, as after restoring only one of them."""

import json
import random
from collections.abc import Callable

from equipoise.state.halves import COMMITS, OFFSETS, SPARK
from equipoise.state.stages import FOLDER as STAGES
from equipoise_lab.bench.protocol.spark_half import range_of

Halves = dict[str, bytes]
"""All files of a checkpoint, by their paths below it."""


def _older(now: Halves, copy: Halves, head: int, copied: int) -> Halves | None:
    """Spark's half of an older copy: Spark would plan committed batches again."""
    return _log_of(now) | _spark_of(copy) if copied < head else None


def _newer(now: Halves, copy: Halves, _head: int, copied: int) -> Halves | None:
    """The log of an older copy: it lacks batches that Spark has finished, or at least two that it has planned."""
    planned, finished = _last(now, OFFSETS), _last(now, COMMITS)
    return _log_of(copy) | _spark_of(now) if planned > copied or finished >= copied else None


def _missing(now: Halves, _copy: Halves, _head: int, _copied: int) -> Halves | None:
    """No half of Spark's."""
    return _log_of(now)


def _foreign(now: Halves, _copy: Halves, head: int, _copied: int) -> Halves | None:
    """The last committed batch was planned at another time, with other rows."""
    path = f"{OFFSETS}/{head - 1}"
    rows = range_of(now[path])
    facts = {"batchWatermarkMs": 0, "batchTimestampMs": 1}
    text = f"v1\n{json.dumps(facts)}\n{json.dumps({'first': rows.start, 'end': rows.stop + 1})}"
    return {each: data for each, data in now.items() if each != f"{OFFSETS}/{head}"} | {path: text.encode()}


def _older_stage(now: Halves, copy: Halves, head: int, copied: int) -> Halves | None:
    """The later operators of an older copy: batches that the first one has handed over are missing there."""
    if not 0 <= copied < (head if _last(now, COMMITS) >= head - 1 else head - 1) or not _stages_of(now):
        return None
    return {path: data for path, data in now.items() if path not in _stages_of(now)} | _stages_of(copy)


LOSSES: dict[str, Callable[[Halves, Halves, int, int], Halves | None]] = {
    "older": _older,
    "newer": _newer,
    "missing": _missing,
    "foreign": _foreign,
    "older stage": _older_stage,
}
"""By name: from a checkpoint, an older copy and the last versions of both, the files; ``None`` if halves would fit."""


def lose_half(now: Halves, head: int, copy: Halves, copied: int, draw: random.Random) -> tuple[str, Halves] | None:
    """A way in which halves do not fit, and the files then; ``None`` where they would."""
    how = draw.choice(list(LOSSES))
    found = LOSSES[how](now, copy, head, copied) if head > 0 else None
    return None if found is None else (how, found)


def _spark_of(files: Halves) -> Halves:
    return {path: data for path, data in files.items() if path.startswith(f"{SPARK}/")}


def _stages_of(files: Halves) -> Halves:
    return {path: data for path, data in files.items() if path.startswith(f"{STAGES}/")}


def _log_of(files: Halves) -> Halves:
    return {path: data for path, data in files.items() if not path.startswith(f"{SPARK}/")}


def _last(files: Halves, folder: str) -> int:
    return max((int(path.rpartition("/")[2]) for path in files if path.startswith(f"{folder}/")), default=-1)
