"""What a task made of some rows of a split key, on its way to the owner of the key."""

import msgspec

from equipoise.spark.columns import PART
from equipoise.spark.stream.rows import Runs


class Part(msgspec.Struct, array_like=True, frozen=True):
    """What a task made of some rows of a key, and what that took.

    Parameters
    ----------
    buffer
        The encoded buffer.
    rows, seconds
        Rows that were reduced, and the time.
    latest_event_ms
        Latest event time among the rows that the task had at hand; ``None`` without one.
    """

    buffer: bytes
    rows: int
    seconds: float
    latest_event_ms: int | None = None


def parts_of(runs: Runs) -> list[Part] | None:
    """The parts that a run of rows holds; ``None`` where it holds rows of the user's."""
    if PART not in runs.rows.schema.names:
        return None
    return [msgspec.msgpack.decode(each, type=Part) for each in runs.rows.column(PART).to_pylist()]
