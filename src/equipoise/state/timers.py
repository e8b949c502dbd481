"""Timers of grouping keys; due timers and expired entries of a group.

A timer is due once its time is not after the time of the batch: the processing time or the watermark, by time mode.
"""

import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING

from equipoise.errors import InvalidArgumentError
from equipoise.state.entries import (
    DUE_EXPIRIES,
    DUE_TIMERS,
    TIMERS,
    due_timer,
    pack_time,
    parse_due,
    parse_entry,
    split_value,
    unpack_time,
)
from equipoise.state.variables import Scope

if TYPE_CHECKING:
    from equipoise.state.transaction import GroupView

TIME_MODES = {mode.lower(): mode for mode in ("none", "processingTime", "eventTime")}
_TAG = bytes((TIMERS,))


def time_mode(name: str) -> str:
    """The time mode of this name, in Spark's spelling; the case is ignored, as in Spark.

    Examples
    --------
    >>> time_mode("processingtime")
    'processingTime'
    """
    known = TIME_MODES.get(name.lower()) if isinstance(name, str) else None
    if known is None:
        raise InvalidArgumentError(f"timeMode must be one of {', '.join(TIME_MODES.values())}, got {name!r}")
    return known


class Timers:
    """Timers of the current grouping key; a key has at most one timer for each millisecond.

    Parameters
    ----------
    scope
        Holds the current key.
    mode
        Time mode of the query; with ``none`` there are no timers.
    """

    def __init__(self, scope: Scope, mode: str) -> None:
        self._scope = scope
        self._mode = mode

    def registerTimer(self, expiryTimestampMs: int) -> None:  # noqa: N802, N803 - Spark's own name
        """Register a timer; an existing one stays. A time before 1970 is taken as 0."""
        entry, time = self._entry("registerTimer", expiryTimestampMs)
        view = self._scope.view
        if view.get(entry) is None:
            view.put(entry, b"\x00")
            view.put(due_timer(time, entry), b"")

    def deleteTimer(self, expiryTimestampMs: int) -> None:  # noqa: N802, N803 - Spark's own name
        """Delete a timer, if it exists."""
        entry, time = self._entry("deleteTimer", expiryTimestampMs)
        view = self._scope.view
        if view.get(entry) is not None:
            view.delete(entry)
            view.delete(due_timer(time, entry))

    def listTimers(self) -> Iterator[int]:  # noqa: N802 - Spark's own name
        """Times of all timers of the key, ascending, including the one that is being handled."""
        self._allowed("listTimers")
        prefix = self._scope.prefix + _TAG
        return iter([unpack_time(key[len(prefix) :]) for key, _ in self._scope.view.scan(prefix)])

    def _allowed(self, call: str) -> None:
        if self._mode == "none":
            raise InvalidArgumentError(
                f"{call} needs a clock, but this query has timeMode none; "
                "start it with timeMode processingTime or eventTime"
            )

    def _entry(self, call: str, time: int) -> tuple[bytes, int]:
        self._allowed(call)
        try:
            number = operator.index(time)
        except TypeError as error:
            raise InvalidArgumentError(
                f"{call} needs a whole number of milliseconds since 1970, got {time!r}"
            ) from error
        if number >= 2**63:
            raise InvalidArgumentError(f"{call} needs milliseconds since 1970, below 2**63, got {number}")
        return self._scope.prefix + _TAG + pack_time(number), number


def due_timers(view: "GroupView", now_ms: int) -> Iterator[tuple[int, bytes, int]]:
    """Fingerprint, grouping key and time of each due timer of a group, ascending by time.

    These are the timers that were due when the iteration began, as in Spark, which iterates over a snapshot. A timer
    that a handler registers during the iteration waits for the next batch, even if it is already due. A timer that a
    handler deletes during the iteration still fires in this batch. The caller deletes a timer after handling it.
    """
    for index in _until(view, DUE_TIMERS, now_ms):
        time, key = parse_due(index)
        entry = parse_entry(key)
        yield entry.fingerprint, entry.key, time


def purge_expired(view: "GroupView", now_ms: int, limit: int) -> int:
    """Delete expired entries and their index entries, oldest first; return how many, at most ``limit``.

    An index entry whose entry no longer exists, or has another expiry now, is deleted alone and counts as well.
    """
    expired = _until(view, DUE_EXPIRIES, now_ms, limit)
    for index in expired:
        expiry, key = parse_due(index)
        value = view.get(key)
        if value is not None and split_value(value)[0] == expiry:
            view.delete(key)
        view.delete(index)
    return len(expired)


def _until(view: "GroupView", space: bytes, now_ms: int, limit: int | None = None) -> list[bytes]:
    """Keys of an index up to a time; a list, because the caller changes the index."""
    found: list[bytes] = []
    for index, _ in view.scan(space):
        if parse_due(index)[0] > now_ms or len(found) == limit:
            break
        found.append(index)
    return found
