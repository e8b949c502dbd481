"""Receives tuples, keeps them in order of frequency, and seals each batch shortly before Spark reads it.

Batches end at whole multiples of the interval since 1970, which is when Spark triggers. A batch is closed a little
earlier, so that its blocks are planned and written by then (early release); later tuples belong to the next batch. A
batch is sealed for every interval while the receiver runs, even an empty one, so that windows move with time. No batch
is sealed while the spool is full, nor for intervals during which a feed or a disk blocked the receiver.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError, PlanningError
from equipoise.hashing import fingerprints
from equipoise.metrics import block_cardinality_imbalance, block_size_imbalance, key_split_ratio
from equipoise.microbatch import BLOCKS
from equipoise.microbatch.accumulator import Accumulator, Batch
from equipoise.microbatch.blocks import Blocks
from equipoise.microbatch.buckets import level_buckets
from equipoise.microbatch.feeds import Chunk, Feed
from equipoise.microbatch.scaling import AutoScale
from equipoise.microbatch.spool import BUCKET, SPLIT, Spool, Tasks, Tuples

_PAUSE = 0.02  # seconds that the receiver waits for tuples at a time
_LARGEST = 1 << 40  # size of a tuple, so that sums stay whole numbers
_LATE_BATCHES = 3  # consecutive batches that may still be in planning when the next ends, before that is an error
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cutting:
    """How a stream is cut into batches and blocks.

    Parameters
    ----------
    key
        Key columns.
    interval
        Seconds from batch to batch.
    early
        Fraction of the interval by which a batch is closed before Spark reads it.
    method
        How a batch is cut into blocks: ``level``, or ``prompt`` for the paper's algorithm 2.
    blocks, buckets
        p and r, initial numbers of blocks and of reduce buckets.
    least, most
        Bounds within which both follow the load; ``None`` for both keeps the numbers fixed.
    weight
        Column with the size of a tuple, at least 1; ``None`` where all are 1.
    spool_bytes
        Bytes of unprocessed tuples at which the receiver stops reading.
    """

    key: tuple[str, ...]
    interval: float = 1.0
    early: float = 0.05
    method: str = "level"
    blocks: int = 8
    buckets: int = 8
    least: int | None = None
    most: int | None = None
    weight: str | None = None
    spool_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        if not self.key:
            raise InvalidArgumentError("micro-batches need a key; name its columns in the option key")
        if not self.interval > 0:
            raise InvalidArgumentError(f"interval must exceed 0 seconds, got {self.interval}")
        if not 0 <= self.early < 1:
            raise InvalidArgumentError(f"early is a fraction of the interval, from 0 to below 1, got {self.early}")
        if self.method not in BLOCKS:
            raise InvalidArgumentError(f"method must be one of {', '.join(BLOCKS)}, got {self.method!r}")
        whole("blocks", self.blocks, 1)
        whole("buckets", self.buckets, 1)
        at_least("spool_bytes", self.spool_bytes, 1 << 16)

    @property
    def is_elastic(self) -> bool:
        """Whether the numbers of blocks and buckets follow the load."""
        return self.least is not None or self.most is not None


class Receiver:
    """Reads a feed into a spool, in its own thread and one more that seals batches.

    Parameters
    ----------
    spool, feed
        Destination and source of the tuples.
    schema
        Schema of the tuples.
    cutting
        How they are cut into batches and blocks.
    clock
        Returns seconds since 1970.
    """

    def __init__(
        self, spool: Spool, feed: Feed, schema: pa.Schema, cutting: Cutting, clock: Callable[[], float] = time.time
    ) -> None:
        require_cutting(schema, cutting)
        self._spool, self._feed, self._schema, self._cutting, self._clock = spool, feed, schema, cutting, clock
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._sealer = ThreadPoolExecutor(1, "equipoise-seal")
        self._sealing: Future[None] | None = None
        self._late = 0
        self._is_warned = False
        self._sealed = 0
        self._expected = (1000.0, 100.0)
        self._seen = -1  # last batch of the query whose time is known
        self._cut_before = 0  # unprocessed batches that were cut before the numbers of tasks last changed
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Recover the spool of the previous receiver, and start to receive."""
        self._spool.claim(self._schema, self._cutting.key)
        try:
            self._scale = self._new_scale()
            self._spool.forget_times()
            self._recover()
        except BaseException:
            self._spool.close()
            raise
        self._thread = threading.Thread(target=self._run, name="equipoise-receive", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop receiving; tuples that are not sealed stay on disk for the next receiver."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._feed.close()
        self._sealer.shutdown()
        self._spool.close()

    @property
    def sealed(self) -> int:
        """Number of batches that were sealed; raises the error of the receiver if it failed."""
        if self._failure is not None:
            raise self._failure
        return self._sealed

    @property
    def is_done(self) -> bool:
        """Whether the feed has ended and all its tuples are sealed."""
        return self._feed.is_done and self._buffer.size == 0 and (self._sealing is None or self._sealing.done())

    def forget(self, upto: int) -> None:
        """Delete processed batches; the newest stays, since it holds the position of the feed."""
        self._spool.forget(min(upto, self._sealed - 1))

    def _new_scale(self) -> AutoScale | None:
        cutting = self._cutting
        if not cutting.is_elastic:
            self._spool.set_tasks(Tasks(cutting.blocks, cutting.buckets, cutting.interval))
            return None
        known = self._spool.tasks()
        maps, reduces = (cutting.blocks, cutting.buckets) if known is None else (known.blocks, known.buckets)
        least, most = cutting.least or 1, cutting.most or 4 * max(cutting.blocks, cutting.buckets)
        maps, reduces = (min(max(each, least), most) for each in (maps, reduces))
        self._spool.set_tasks(Tasks(maps, reduces, cutting.interval))
        return AutoScale(maps, reduces, stride=most, least=least, most=most)

    def _recover(self) -> None:
        numbers = self._spool.numbers()
        self._sealed = self._spool.sealed()
        position = self._spool.batch(numbers[-1]).position if numbers else None
        open_batches = self._spool.unsealed()
        self._begin(self._sealed)
        for number in range(self._sealed, max(open_batches, default=self._sealed - 1) + 1):
            for tuples in open_batches.get(number, []):
                position = tuples.position if tuples.position is not None else position
                self._add(tuples, *self._planned(tuples))
            if number < max(open_batches):
                self._seal(number, self._buffer, self._tables, position, self._clock())
                self._begin(number + 1)
        self._position = position
        self._feed.open(position)

    def _begin(self, number: int) -> None:
        cutting, now = self._cutting, self._clock()
        ends = (math.floor(now / cutting.interval + cutting.early) + 1) * cutting.interval
        self._number, self._wanted = number, ends
        self._cut = ends - cutting.early * cutting.interval
        self._buffer = Accumulator(
            now, max(self._cut, now + 1e-3), expected=self._expected[0], expected_keys=self._expected[1]
        )
        self._tables: list[pa.Table] = []

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                is_full = self._spool.bytes >= self._cutting.spool_bytes
                if self._clock() >= self._cut:
                    if is_full and self._sealed > self._spool.released():
                        self._cut += self._cutting.interval  # the query is behind: make this batch longer
                    else:
                        self._close()
                pause = min(_PAUSE, max(0.0, self._cut - self._clock()))
                if is_full:  # senders must wait
                    time.sleep(pause)
                    continue
                chunk = self._feed.read(pause)
                if chunk is not None:
                    self._take(chunk)
        except BaseException as error:  # noqa: BLE001 - raised again by ``sealed``
            self._failure = error

    def _take(self, chunk: Chunk) -> None:
        if chunk.dead_letters and not self._spool.add_dead_letters(chunk.dead_letters) and not self._is_warned:
            self._is_warned = True
            _log.warning(
                "dead-letters.jsonl of %s is full: %d dead letters so far, further ones are only counted; delete it",
                self._spool.folder,
                self._spool.dead_letter_count,
            )
        if chunk.table.num_rows:
            tuples = Tuples(chunk.table, self._clock(), chunk.position)
            planned = self._planned(tuples)  # before they are stored: tuples that fail here must not be recovered
            self._spool.append(self._number, tuples)
            self._add(tuples, *planned)
        if chunk.table.num_rows or chunk.position is not None:
            self._position = chunk.position
        chunk.acknowledge()

    def _planned(self, tuples: Tuples) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
        """Keys and sizes of tuples."""
        table = tuples.table
        keys = fingerprints(*(_values(table[name]) for name in self._cutting.key))
        if self._cutting.weight is None:
            return keys, None
        weights = np.nan_to_num(table[self._cutting.weight].cast(pa.float64(), safe=False).to_numpy(), nan=1.0)
        return keys, np.clip(weights, 1, _LARGEST).astype(np.int64)

    def _add(self, tuples: Tuples, keys: NDArray[np.int64], sizes: NDArray[np.int64] | None) -> None:
        self._buffer.add(keys, tuples.time, sizes)
        self._tables.append(tuples.table)

    def _close(self) -> None:
        """End a batch and leave it to the sealer."""
        if self._sealing is not None:
            if not self._sealing.done():
                self._late += 1
                if self._late >= _LATE_BATCHES:
                    raise PlanningError(
                        f"planning a batch takes longer than the interval of {self._cutting.interval:g} seconds, "
                        f"{self._late} times in a row; use a longer interval or fewer tuples"
                    )
            else:
                self._late = 0
            self._sealing.result()
        self._sealing = self._sealer.submit(
            self._seal, self._number, self._buffer, self._tables, self._position, self._wanted
        )
        self._begin(self._number + 1)

    def _seal(self, number: int, buffer: Accumulator, tables: list[pa.Table], position: Any, wanted: float) -> None:
        start = time.perf_counter()
        tasks = self._spool.tasks()
        assert tasks is not None  # noqa: S101 - written at the start; this tells the type checker
        batch = buffer.close()
        table = pa.concat_tables(tables) if tables else self._schema.empty_table()
        count = max(1, min(tasks.blocks, batch.size))
        blocks = self._blocks(batch, count)
        cut = cut_table(table, batch, blocks, tasks.buckets)
        planned = time.perf_counter()
        measures = {
            "rows": len(batch),
            "keys": len(batch.keys),
            "blocks": count,
            "buckets": tasks.buckets,
            "bsi": block_size_imbalance(blocks.block_sizes),
            "bci": block_cardinality_imbalance(blocks.cardinalities),
            "ksr": key_split_ratio(blocks.cardinalities, len(batch.keys)) if len(batch) else 1.0,
            "split_keys": len(blocks.split),
            "plan_seconds": planned - start,
            "time": time.time(),
        }
        self._spool.seal(number, cut, position, measures)
        self._expected = (max(1.0, float(batch.size)), max(1.0, float(len(batch.keys))))
        sealing = time.perf_counter() - start
        waiting = number + 1 - self._spool.released()
        decided = self._scaled(len(batch), len(batch.keys), waiting)
        late = {"seal_seconds": sealing, "ready_before_wanted": wanted - self._clock()}
        backlog = {"waiting": waiting, "dead_letters": self._spool.dead_letter_count}
        try:
            self._spool.add_batch_line({"batch": number} | measures | late | backlog | decided)
        except OSError as error:
            _log.warning("batch %d is missing from batches.jsonl of %s: %s", number, self._spool.folder, error)
        self._sealed = number + 1

    def _blocks(self, batch: Batch, count: int) -> Blocks:
        if not len(batch):
            nothing = np.empty(0, dtype=np.int64)
            return Blocks(count, nothing, nothing, nothing)
        return BLOCKS[self._cutting.method](batch, count)

    def _scaled(self, rows: int, keys: int, waiting: int) -> dict[str, Any]:
        """Adapt the numbers of tasks to the processing times of the query's batches.

        A batch that was cut before the last change is ignored: its time belongs to the earlier numbers.
        """
        times = [each for each in self._spool.times() if each[0] > self._seen]
        if not times:
            reason = "no batch was processed since"
            return {"load": None, "loads": [], "processed": [], "action": "keep", "reason": reason}
        action, loads = "keep", []
        reason = "the numbers of blocks and buckets are fixed"
        if self._scale is not None:
            reason = "the batches that were processed were cut before the last change"
        for number, seconds in times:
            self._seen = number
            loads.append(seconds / self._cutting.interval)
            if self._cut_before:
                self._cut_before -= 1
            elif self._scale is not None:
                scaled = self._scale.next(loads[-1], rows, keys, behind=max(0, waiting - 1))
                if scaled.action != "keep" or action == "keep":
                    action, reason = scaled.action, scaled.reason
                if scaled.action != "keep":
                    self._cut_before = waiting if waiting <= 1 else waiting + 1  # with the one that is processed now
                self._spool.set_tasks(Tasks(scaled.maps, scaled.reduces, self._cutting.interval))
        processed = [number for number, _ in times]
        return {"load": max(loads), "loads": loads, "processed": processed, "action": action, "reason": reason}


def cut_table(table: pa.Table, batch: Batch, blocks: Blocks, buckets: int) -> list[pa.Table]:
    """Return the rows of each block, key by key, with the columns ``BUCKET`` and ``SPLIT``."""
    if not len(batch):
        empty = table.append_column(BUCKET, pa.array([], pa.int32())).append_column(SPLIT, pa.array([], pa.bool_()))
        return [empty] * blocks.count
    is_split = np.zeros(len(batch.sizes), dtype=bool)
    is_split[blocks.split] = True
    of_key, split = (np.repeat(each, np.diff(batch.starts)) for each in (level_buckets(batch.sizes, buckets), is_split))
    targets = blocks.of_tuples(batch)[batch.tuples]
    order = np.argsort(targets, kind="stable")
    rows = table.take(pa.array(batch.tuples[order])).append_column(BUCKET, pa.array(of_key[order], pa.int32()))
    rows = rows.append_column(SPLIT, pa.array(split[order]))
    ends = np.cumsum(np.bincount(targets, minlength=blocks.count))
    return [rows.slice(int(first), int(last - first)) for first, last in zip([0, *ends[:-1]], ends, strict=True)]


def require_cutting(schema: pa.Schema, cutting: Cutting) -> None:
    """Refuse a key that does not exist or cannot be hashed, and a weight that is not a number."""
    if cutting.weight is not None:
        place = schema.get_field_index(cutting.weight)
        if place < 0 or not (pa.types.is_integer(schema.types[place]) or pa.types.is_floating(schema.types[place])):
            raise InvalidArgumentError(f"weight must be a column of numbers, got {cutting.weight!r} of {schema.names}")
    for name in cutting.key:
        if name not in schema.names:
            raise InvalidArgumentError(f"there is no key column {name!r}; there are {', '.join(schema.names)}")
        kind = schema.field(name).type
        known = (pa.types.is_signed_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string)
        if not any(is_kind(kind) for is_kind in (*known, pa.types.is_binary)):
            raise InvalidArgumentError(
                f"key column {name!r} has the type {kind}, by which micro-batches cannot be planned; use an integer, a "
                "float, a boolean, a string or bytes, for example the column cast to string"
            )


def _values(column: pa.ChunkedArray) -> Any:
    """Values to hash; numbers are cast to one width, so that a key has the same hash with and without NULLs."""
    if pa.types.is_integer(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_floating(column.type):
        column = column.cast(pa.float64())
    else:
        return column.to_pylist()
    return column.to_pylist() if column.null_count else column.to_numpy()
