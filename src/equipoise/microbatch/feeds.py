"""Feeds, the sources of tuples: the interface, and feeds from files, generators and functions."""

import queue
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from equipoise.decimals import cast
from equipoise.errors import FeedError, InvalidArgumentError
from equipoise.microbatch.dead_letters import DeadLetter
from equipoise.microbatch.rates import Rate
from equipoise.microbatch.zipf import sample, zipf_shares

CHUNK_ROWS = 50_000
"""Largest number of tuples that a feed returns at once."""

_PAUSE = 0.02  # seconds until a function that returned nothing is called again
_PATIENCE = 0.5  # seconds to wait for a thread to end
_NOWHERE = msgspec.msgpack.encode(None)


def _nothing() -> None:
    return


@dataclass(frozen=True, eq=False)
class Chunk:
    """Some tuples of a feed.

    Parameters
    ----------
    table
        The tuples, in the feed's schema.
    position
        Position of the feed after them, as plain values; ``None`` for a feed that cannot go back.
    acknowledge
        Called when the tuples are on disk.
    dead_letters
        Lines or rows that could not be read.
    """

    table: pa.Table
    position: Any = None
    acknowledge: Callable[[], None] = _nothing
    dead_letters: Sequence[DeadLetter] = ()


class Feed(ABC):
    """A source of tuples."""

    @abstractmethod
    def open(self, position: Any) -> None:
        """Start after the position that was stored last; ``None`` at first."""

    @abstractmethod
    def read(self, seconds: float) -> Chunk | None:
        """Return tuples that have arrived, waiting at most ``seconds`` for some."""

    def close(self) -> None:  # noqa: B027 - a feed need not clean up
        """Close the feed."""

    @property
    def is_done(self) -> bool:
        """Whether the feed has ended."""
        return False


class RatedFeed(Feed):
    """A feed of numbered tuples at a rate; after a crash it continues after the last stored tuple.

    Parameters
    ----------
    rate
        Rate curve.
    count
        Number of tuples; ``None`` for no end.
    clock
        Returns seconds.
    """

    def __init__(self, rate: Rate, count: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._count, self._clock = rate, count, clock
        self._next = 0
        self._origin = 0.0

    @abstractmethod
    def rows(self, first: int, last: int) -> pa.Table:
        """Tuples number ``first`` to ``last - 1``."""

    def open(self, position: Any) -> None:
        """Continue after a tuple, at the point of the curve at which it was sent."""
        self._next = 0 if position is None else int(position)
        self._origin = self._clock() - self._rate.when(self._next)

    def read(self, seconds: float) -> Chunk | None:
        """The tuples that are due."""
        due = self._due()
        if due <= self._next:
            time.sleep(seconds)
            due = self._due()
        last = min(due, self._next + CHUNK_ROWS)
        if last <= self._next:
            return None
        first, self._next = self._next, last
        return Chunk(self.rows(first, last), last)

    @property
    def is_done(self) -> bool:
        """Whether all tuples were sent."""
        return self._count is not None and self._next >= self._count

    def _due(self) -> int:
        due = int(self._rate.sent(self._clock() - self._origin))
        return due if self._count is None else min(due, self._count)


class ReplayFeed(RatedFeed):
    """Rows of a Parquet file or folder, in their order.

    Parameters
    ----------
    path
        A file, or a folder of files.
    schema
        Columns to read, with their types.
    rate
        Rate curve.
    """

    def __init__(self, path: str, schema: pa.Schema, rate: Rate, **options: Any) -> None:
        try:
            table = pq.read_table(path, columns=schema.names)
            self._table = cast(table.select(schema.names), schema).combine_chunks()
        except (OSError, KeyError, pa.ArrowException) as error:
            raise FeedError(
                f"cannot replay {path}: {error}; give a Parquet file with the columns {schema.names}"
            ) from error
        super().__init__(rate, self._table.num_rows, **options)

    def rows(self, first: int, last: int) -> pa.Table:
        """Rows of the file."""
        return self._table.slice(first, last - first)


class GeneratedFeed(RatedFeed):
    """Zipf keys, the same for the same seed: a column ``key`` and, where wanted, a column ``value``.

    Parameters
    ----------
    schema
        Columns ``key`` and ``value`` or either, of any integer type.
    rate
        Rate curve.
    keys, exponent, seed
        Number of keys, their skew, and the seed.
    count
        Number of tuples; ``None`` for no end.
    """

    _PAGE = 1 << 16

    def __init__(
        self,
        schema: pa.Schema,
        rate: Rate,
        *,
        keys: int = 10_000,
        exponent: float = 1.0,
        seed: int = 0,
        count: int | None = None,
        **options: Any,
    ) -> None:
        unknown = set(schema.names) - {"key", "value"}
        if unknown:
            raise InvalidArgumentError(
                f"generated tuples have the columns key and value, got {', '.join(sorted(unknown))}; leave it out"
            )
        self._schema, self._seed = schema, seed
        self._shares = zipf_shares(keys, exponent)
        self._page: tuple[int, Any] = (-1, None)
        super().__init__(rate, count, **options)

    def rows(self, first: int, last: int) -> pa.Table:
        """Tuples by their numbers; every page of numbers has a seed of its own."""
        pages = range(first // self._PAGE, (last - 1) // self._PAGE + 1)
        keys = np.concatenate([self._keys(page) for page in pages])
        keys = keys[first - pages[0] * self._PAGE :][: last - first]
        columns = {"key": keys, "value": keys % 7}
        return pa.table({name: pa.array(columns[name]) for name in self._schema.names}).cast(self._schema)

    def _keys(self, page: int) -> Any:
        if self._page[0] != page:
            self._page = (page, sample(self._shares, self._PAGE, np.random.default_rng([self._seed, page])))
        return self._page[1]


class CallableFeed(Feed):
    """A Python function as feed, called in a thread of its own, so that batches end in time while it waits for data.

    Parameters
    ----------
    function
        Called with the position after its last tuples (``None`` at first); gives ``(rows, position)``, where rows are
        an Arrow table or a list of dicts, or ``None`` when there is nothing now. Called again at once after rows, and
        after a short while otherwise. After a crash it is called with the position that was kept last. A position is
        made of plain values; the function gets a copy that is its own.
    schema
        Schema of its rows.
    """

    def __init__(self, function: Callable[[Any], tuple[Any, Any] | None], schema: pa.Schema) -> None:
        self._function, self._schema = function, schema
        self._position = _NOWHERE
        self._given: queue.Queue[Chunk | FeedError] = queue.Queue(1)
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def open(self, position: Any) -> None:
        """Begin after a position."""
        self._position = msgspec.msgpack.encode(position)
        self._thread = threading.Thread(target=self._ask_on, name="equipoise-feed", daemon=True)
        self._thread.start()

    def read(self, seconds: float) -> Chunk | None:
        """Return the next rows from the function; ``None`` if it has none yet."""
        try:
            given = self._given.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(given, FeedError):
            raise given
        return given

    def close(self) -> None:
        """Stop calling the function, without waiting for a call that blocks."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE)

    def _ask_on(self) -> None:
        while not self._closed.is_set():
            try:
                given: Chunk | FeedError | None = self._asked()
            except FeedError as error:
                given = error
            if given is not None:
                self._give(given)
            if isinstance(given, FeedError):
                return
            if given is None or not given.table.num_rows:
                self._closed.wait(_PAUSE)

    def _asked(self) -> Chunk | None:
        before = msgspec.msgpack.decode(self._position)
        try:
            found = self._function(msgspec.msgpack.decode(self._position))
            if found is None:
                return None
            rows, after = found
            position = msgspec.msgpack.encode(after)
            table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows, schema=self._schema)
            table = cast(table.select(self._schema.names), self._schema)
        except Exception as error:
            raise FeedError(
                f"the feed's function failed after position {before!r}: {type(error).__name__}: {error}; fix it and "
                f"start the query again\n{traceback.format_exc()}"
            ) from error
        self._position = position
        return Chunk(table, msgspec.msgpack.decode(position))

    def _give(self, given: Chunk | FeedError) -> None:
        while not self._closed.is_set():
            try:
                self._given.put(given, timeout=_PATIENCE)
            except queue.Full:
                continue
            return
