"""Spark's part of a query: it plans a batch, calls the engine, and notes that the batch is finished.

Spark creates its files atomically and does not sync them. The offsets of a batch are a range of row numbers and the
time at which it was planned, so a batch that is planned again has other bytes.
"""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from equipoise.hashing import fingerprint
from equipoise.state.halves import COMMITS, OFFSETS, SparkHalf
from equipoise.storage import Storage
from equipoise_lab.bench.protocol.store import SimulatedStore

KEYS = ("hot", "warm", "a", "b", "c", "d", "e")
_SHARES = (6, 3, 1, 1, 1, 1, 1)


class ConcurrentUpdateError(Exception):
    """Another query has written the same file of Spark's half."""


@cache
def key_of(row: int) -> str:
    """The key of a row, by its number."""
    return random.Random(f"row {row}").choices(KEYS, _SHARES)[0]  # noqa: S311 - the same row has the same key


@cache
def fingerprint_of(key: str) -> int:
    """The fingerprint of a key; there are few keys, and a simulation asks for each thousands of times."""
    return fingerprint(key)


def later_key_of(row: int) -> str:
    """The key under which the second operator sees an output row of the first, by its last row number."""
    return KEYS[row * 5 % len(KEYS)]


@dataclass(frozen=True)
class Rows:
    """Rows of a batch, by number, and the session that they belong to."""

    numbers: range
    sparkSession: object = None  # noqa: N815 - Spark's own name

    def pairs(self) -> list[tuple[str, int]]:
        """Key and number of each row."""
        return [(key_of(number), number) for number in self.numbers]


class SimulatedSpark:
    """Runs the batches of one driver.

    Parameters
    ----------
    store, root
        Where the checkpoint is.
    clock
        Milliseconds.
    draw
        Draws the sizes of batches.
    """

    def __init__(self, store: SimulatedStore, root: str, clock: Callable[[], int], draw: random.Random) -> None:
        self._store, self._root, self._clock, self._draw = store, root, clock, draw
        self._storage = Storage(root, store=store)
        self._half = SparkHalf(self._storage)

    def run(self, engine: Callable[[Rows, int], None], session: object, upto: int, done: Callable[[int], None]) -> None:
        """Run batches until ``upto`` of them are finished."""
        finished, planned = self._half.last_finished(), self._half.last_planned()
        finished = max(finished, planned - 1)  # Spark goes by the last offsets, whatever became of its commits
        while finished + 1 < upto or planned > finished:
            batch = finished + 1
            if planned < batch:
                first = self._range(planned).stop if planned >= 0 else 0
                self._plan(batch, range(first, first + self._draw.choice((0, 1, 2, 4, 7))))
                planned = batch
            engine(Rows(self._range(batch), session), batch)
            done(batch)
            self._create(f"{COMMITS}/{batch}", b"v1\n{}")
            finished = batch

    def _plan(self, batch: int, rows: range) -> None:
        facts = {"batchWatermarkMs": 0, "batchTimestampMs": self._clock()}
        offsets = {"first": rows.start, "end": rows.stop}
        text = f"v1\n{json.dumps(facts)}\n{json.dumps(offsets)}"
        self._create(f"{OFFSETS}/{batch}", text.encode())

    def _range(self, batch: int) -> range:
        return range_of(self._storage.read(f"{OFFSETS}/{batch}"))

    def _create(self, path: str, data: bytes) -> None:
        try:
            self._store.write_unsynced(f"{self._root}/{path}", data)
        except FileExistsError as error:
            raise ConcurrentUpdateError(path) from error


def range_of(offsets: bytes) -> range:
    """Rows that the offsets of a batch stand for."""
    found = json.loads(offsets.splitlines()[2])
    return range(found["first"], found["end"])
