"""The base class of aggregators over many keys at once: reduce, merge, finish, on Arrow tables."""

from abc import ABC, abstractmethod

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.types import StructType


class VectorAggregator(ABC):
    """Folds the rows of many keys into buffers, one row of an Arrow table for each key.

    ``merge`` must be associative and commutative. Merging the buffers of two sets of rows must give the buffer of all
    of them. So rows may be reduced in the map tasks, before the exchange.
    """

    bufferSchema: StructType | str  # noqa: N815 - as Spark names schemas
    """Schema of a buffer."""

    @abstractmethod
    def reduce(self, rows: pa.Table, offsets: NDArray[np.int64]) -> pa.Table:
        """Return a buffer for each key.

        Parameters
        ----------
        rows
            The rows, in the order of their keys.
        offsets
            Rows of key i are ``offsets[i]`` to ``offsets[i + 1]``; ready for ``numpy.add.reduceat(values,
            offsets[:-1])``. Every key has rows.
        """

    @abstractmethod
    def merge(self, one: pa.Table, other: pa.Table) -> pa.Table:
        """Merge two tables of buffers row by row."""

    @abstractmethod
    def finish(self, keys: pa.Table, buffers: pa.Table) -> pa.Table | None:
        """Return the output rows of keys whose buffers have changed, or ``None``."""


def merged(aggregator: VectorAggregator, buffers: pa.Table, offsets: NDArray[np.int64]) -> pa.Table:
    """Merge the buffers of each key, given like the rows of ``reduce``, in pairs until each key has one."""
    counts = np.diff(offsets)
    while counts.max(initial=0) > 1:
        starts = np.cumsum(counts) - counts
        place = np.arange(buffers.num_rows) - np.repeat(starts, counts)
        has_pair = (place % 2 == 0) & (place + 1 < np.repeat(counts, counts))
        first = np.flatnonzero(has_pair)
        alone = np.flatnonzero((place % 2 == 0) & ~has_pair)
        together = aggregator.merge(buffers.take(pa.array(first)), buffers.take(pa.array(first + 1)))
        order = np.argsort(np.concatenate([first, alone]), kind="stable")
        buffers = pa.concat_tables([together, buffers.take(pa.array(alone))]).take(pa.array(order))
        counts = (counts + 1) // 2
    return buffers
