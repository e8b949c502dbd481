"""Timers, watermarks and the last batch of a query."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise_lab.conformance.case import Case, Step, batches
from equipoise_lab.conformance.processors import BothForms, text

_EVENTS = "id string, second int"


def at(df: DataFrame) -> DataFrame:
    """Event time of the seconds, with a watermark of 10 seconds."""
    return _timed(df).withWatermark("at", "10 seconds")


def at_two_watermarks(df: DataFrame) -> DataFrame:
    """Union of two streams with watermarks of 2 and 20 seconds; the slower one rules."""
    fast, slow = _timed(df).where("second % 2 = 0"), _timed(df).where("second % 2 = 1")
    return fast.withWatermark("at", "2 seconds").unionByName(slow.withWatermark("at", "20 seconds"))


def _timed(df: DataFrame) -> DataFrame:
    return df.withColumn("at", F.timestamp_seconds("second"))


class ClockTimer(BothForms):
    """A timer of the next millisecond for one key; it clears the count."""

    def declare(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n int")

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        count = (self.count.get() or (0,))[0] + sum(1 for _ in rows)
        self.count.update((count,))
        if key[0] == "a":
            self.handle.registerTimer(times.getCurrentProcessingTimeInMs() + 1)
        yield key[0], f"{count} {times.getCurrentWatermarkInMs() <= 0}"

    def expired(self, key: Any, times: Any, timer: Any) -> Iterator[tuple[Any, ...]]:
        due = timer.getExpiryTimeInMs()
        once, twice = list(self.handle.listTimers()), list(self.handle.listTimers())
        self.count.clear()
        self.handle.deleteTimer(due)
        early = due < times.getCurrentProcessingTimeInMs()
        yield key[0], f"expired {early} {once == twice} {len(once)} {due in once} {len(list(self.handle.listTimers()))}"


class EventTimer(BothForms):
    """A timer at the watermark, and the latest second of a key."""

    def declare(self, handle: Any) -> None:
        self.latest = handle.getValueState("latest", "second int")

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        latest = max((self.latest.get() or (0,))[0], *(int(row.second) for row in rows), 0)
        self.latest.update((latest,))
        self.handle.registerTimer(times.getCurrentWatermarkInMs())
        yield key[0], f"{latest} at {times.getCurrentWatermarkInMs()}"

    def expired(self, key: Any, times: Any, timer: Any) -> Iterator[tuple[Any, ...]]:
        self.latest.clear()
        yield key[0], f"expired {timer.getExpiryTimeInMs()} at {times.getCurrentWatermarkInMs()}"


class Earliest(BothForms):
    """The earliest second of a key; no timer."""

    def declare(self, handle: Any) -> None:
        self.earliest = handle.getValueState("earliest", "second int")

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        earliest = min((self.earliest.get() or (10**6,))[0], *(int(row.second) for row in rows), 10**6)
        self.earliest.update((earliest,))
        yield key[0], str(earliest)


class ManyTimers(BothForms):
    """A timer for each row, a second after it; each handler reports what is left."""

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        for row in rows:
            self.handle.registerTimer(1000 * (int(row.second) + 1))
        yield key[0], text([times.getCurrentWatermarkInMs(), sorted(self.handle.listTimers())])

    def expired(self, key: Any, times: Any, timer: Any) -> Iterator[tuple[Any, ...]]:
        yield key[0], text([timer.getExpiryTimeInMs(), sorted(self.handle.listTimers())])


class DeletesOthers(ManyTimers):
    """Each handler deletes all other timers of the key, which still fire if they expired in the same batch."""

    def expired(self, key: Any, times: Any, timer: Any) -> Iterator[tuple[Any, ...]]:
        for other in list(self.handle.listTimers()):
            self.handle.deleteTimer(other)
        yield from super().expired(key, times, timer)


class Registers(ManyTimers):
    """A handler registers a timer that has expired already."""

    def expired(self, key: Any, times: Any, timer: Any) -> Iterator[tuple[Any, ...]]:
        due = timer.getExpiryTimeInMs()
        if due % 1000 == 0:
            self.handle.registerTimer(due + 1)
        yield from super().expired(key, times, timer)


class TimerWithoutClock(BothForms):
    """A timer in a query without one."""

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        self.handle.registerTimer(1)
        yield key[0], ""


class EventOut(BothForms):
    """Yields the event time of its first row, and counts its batches."""

    columns = ("id", "at")

    def declare(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n int")

    def rows(self, key: Any, rows: Iterator[Any], times: Any) -> Iterator[tuple[Any, ...]]:
        self.count.update(((self.count.get() or (0,))[0] + 1,))
        yield key[0], next(iter(sorted(row.at for row in rows)))


_CLOCKS = (("a", 1), ("b", 1)), (("a", 2), ("a", 3), ("b", 2)), (("a", 4), ("b", 4))
_LATES = (("a", 20),), (("a", 4),), (("a", 2), ("a", 11), ("a", 15))
_CLOCK, _LATE = batches(*_CLOCKS), batches(*_LATES)
_NO_EMPTY = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
_CHAIN = batches((("a", 10), ("b", 15)), (("a", 11), ("c", 25)), (("a", 5), ("d", 60)))

CASES = {
    "processing-timer": Case("A processing-time timer that clears a count", ClockTimer, _CLOCK,
                             time_mode="ProcessingTime"),
    "processing-timer-one-partition": Case("The same with one partition", ClockTimer, batches(*_CLOCKS, partitions=1),
                                           time_mode="processingtime"),
    "event-timer": Case("A timer at the watermark; late rows are dropped", EventTimer, _LATE, schema=_EVENTS,
                        source=at, time_mode="eventTime"),
    "event-timer-one-partition": Case("The same with one partition", EventTimer, batches(*_LATES, partitions=1),
                                      schema=_EVENTS, source=at, time_mode="eventtime"),
    "late-rows-time-mode-none": Case("A watermark with the time mode none: late rows are kept", Earliest, _LATE,
                                     schema=_EVENTS, source=at),
    "last-rows-time-mode-none": Case("A watermark that the last rows move, with the time mode none", Earliest,
                                     batches((("a", 20),), (("a", 60),)), schema=_EVENTS, source=at,
                                     differs="no timer could fire, so that no batch without rows follows"),
    "late-rows-processing-time": Case("A watermark with processing time: late rows are kept", Earliest, _LATE,
                                      schema=_EVENTS, source=at, time_mode="processingTime"),
    "many-timers": Case("Timers fire by age, the last in a batch without rows", ManyTimers,
                        batches((("a", 1), ("a", 2), ("b", 3)), (("b", 30),), (("c", 90),)), schema=_EVENTS,
                        source=at, time_mode="eventTime"),
    "timer-deleted-earlier": Case("A timer that an earlier handler of the batch deleted fires", DeletesOthers,
                                  batches((("a", 1), ("a", 2), ("a", 200)), (("b", 30),)), schema=_EVENTS,
                                  source=at, time_mode="eventTime"),
    "timer-registered-late": Case("A handler registers a timer that has expired", Registers,
                                  batches((("a", 1), ("a", 2)), (("b", 30),)), schema=_EVENTS, source=at,
                                  time_mode="eventTime"),
    "no-empty-batches": Case("noDataMicroBatches off: no batch without rows fires timers", ManyTimers,
                             (Step(((("a", 1),), (("b", 30),))), Step(((("c", 31),),))), schema=_EVENTS, source=at,
                             time_mode="eventTime", settings=_NO_EMPTY),
    "two-watermarks": Case("Two watermarks: the slower one fires timers", ManyTimers,
                           batches((("a", 1), ("a", 2), ("b", 30), ("b", 31)), (("c", 61), ("c", 90))),
                           schema=_EVENTS, source=at_two_watermarks, time_mode="eventTime"),
    "timer-without-clock": Case("A timer with the time mode none is an error", TimerWithoutClock, _LATE,
                                refusal="INVALID_TIME_MODE", schema=_EVENTS),
    "process-all-available-event-time": Case("processAllAvailable with event-time timers", ManyTimers, (
        Step(((("a", 1), ("a", 2), ("b", 3)), (("b", 30),))), Step(((("c", 90),),))), schema=_EVENTS, source=at,
                                             time_mode="eventTime", process_all=True),
    "process-all-available-processing-time": Case("processAllAvailable with processing-time timers", ClockTimer,
                                                  (Step(_CLOCKS[:2]), Step(_CLOCKS[2:])), time_mode="processingTime",
                                                  process_all=True),
    "chained": Case("A second operator counts by the event time of the output", EventOut, _CHAIN, schema=_EVENTS,
                    output="id string, at timestamp", source=at, time_mode="eventTime", output_mode="append",
                    event_time="at", counted_by=("at",)),
    "chained-by-two-columns": Case("The same by two columns", EventOut, _CHAIN, schema=_EVENTS,
                                   output="id string, at timestamp", source=at, time_mode="eventTime",
                                   output_mode="append", event_time="at", counted_by=("at", "id")),
}  # fmt: skip
