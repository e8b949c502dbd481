"""Aggregate the rows of a key in two steps: rows to partial results in bytes, and partial results to output rows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, cast

import pandas as pd
import pyarrow as pa
from pyspark.sql.types import StructType

from equipoise import decimals
from equipoise.errors import InvalidArgumentError
from equipoise.spark.rows.aggregator import Aggregator
from equipoise.spark.rows.arrow_rows import rows_to_arrow, to_arrow
from equipoise.spark.rows.pandas_rows import to_pandas
from equipoise.spark.rows.schemas import Schemas
from equipoise.spark.rows.user_functions import argument_count
from equipoise.state.codec import RowCodec, row_codec

KeyValues = tuple[Any, ...]


class PartialFunction:
    """Two functions for ``aggregate``: the first reduces some rows of a key to partial rows, the second merges those.

    Each takes a frame, or a key and a frame, as functions for ``applyInPandas`` and ``applyInArrow`` do.

    Parameters
    ----------
    partial
        From rows of a key to rows of ``partialSchema``.
    merge
        From all partial rows of a key, in any order, to output rows.
    partialSchema
        Schema of partial rows; the key need not be in it.
    arrow
        Whether the functions take and give Arrow tables; else pandas frames.
    """

    def __init__(
        self,
        partial: Callable[..., Any],
        merge: Callable[..., Any],
        partialSchema: StructType | str,  # noqa: N803 - as Spark names schemas
        *,
        arrow: bool = False,
    ) -> None:
        self.partial = partial
        self.merge = merge
        self.partialSchema = partialSchema  # as Spark names schemas
        self.arrow = arrow


class Reduction(ABC):
    """The two steps of an aggregate."""

    arrow = False
    """Whether ``partial`` takes Arrow tables; else pandas frames."""
    rebuilt = False
    """Whether frames have the dtypes that a ``StatefulProcessor`` sees; else those of ``applyInPandas``."""

    @abstractmethod
    def partial(self, key: KeyValues, frames: Iterator[Any]) -> bytes:
        """Return the partial result of some rows of a key."""

    @abstractmethod
    def whole(self, key: KeyValues, partials: Sequence[bytes]) -> Any:
        """Return the output of a key from all its partial results; ``None`` for none."""

    @abstractmethod
    def table(self, found: Sequence[Any]) -> pa.Table:
        """Return outputs of ``whole`` as output rows."""


class AggregatorReduction(Reduction):
    """Runs an ``Aggregator``; a partial result is an encoded buffer. Frames are the same in a batch and in a stream."""

    rebuilt = True

    def __init__(self, aggregator: Aggregator, schemas: Schemas, output: pa.Schema, timezone: str) -> None:
        self._aggregator = aggregator
        self._buffer = schemas.parsed(aggregator.bufferSchema)
        self._output = output
        self._timezone = timezone

    @cached_property
    def _codec(self) -> RowCodec:
        return row_codec(self._buffer, "buffer")  # made where it is used: it cannot be pickled

    def partial(self, key: KeyValues, frames: Iterator[pd.DataFrame]) -> bytes:  # noqa: ARG002 - the name belongs to the protocol
        """Return the buffer of the rows."""
        buffer = self._aggregator.zero()
        for frame in frames:
            buffer = self._aggregator.reduce(buffer, frame)
        return self._codec.encode(buffer)

    def whole(self, key: KeyValues, partials: Sequence[bytes]) -> Any:
        """Return the output row of a key, from all its buffers."""
        buffer, *others = self._codec.decode_many(partials)
        for other in others:
            buffer = self._aggregator.merge(buffer, other)
        return self._aggregator.finish(key, buffer)

    def table(self, found: Sequence[Any]) -> pa.Table:
        """Return the output rows as a table."""
        return rows_to_arrow(found, self._output, self._timezone)


class FunctionReduction(Reduction):
    """Runs a ``PartialFunction``; a partial result is its partial rows in Arrow's stream format."""

    def __init__(self, function: PartialFunction, schemas: Schemas, output: pa.Schema, timezone: str) -> None:
        self._partial = _keyed(function.partial)
        self._merge = _keyed(function.merge)
        self.arrow = function.arrow
        self._schema = schemas.arrow(function.partialSchema)
        self._output = output
        self._timezone = timezone

    def partial(self, key: KeyValues, frames: Iterator[Any]) -> bytes:
        """Return the partial rows of the rows."""
        found = list(frames)
        rows = pa.concat_tables(found) if self.arrow else pd.concat(found, ignore_index=True)
        table = self._table(self._partial(key, rows), self._schema)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._schema) as writer:
            writer.write_table(table)
        return cast("bytes", sink.getvalue().to_pybytes())

    def whole(self, key: KeyValues, partials: Sequence[bytes]) -> Any:
        """Return the output rows of a key, from all its partial rows."""
        table = pa.concat_tables([pa.ipc.open_stream(each).read_all() for each in partials])
        return self._merge(key, table if self.arrow else to_pandas(table, self._timezone))

    def table(self, found: Sequence[Any]) -> pa.Table:
        """Return the output rows as a table."""
        return pa.concat_tables([self._table(each, self._output) for each in found])

    def _table(self, given: Any, schema: pa.Schema) -> pa.Table:
        wanted = pa.Table if self.arrow else pd.DataFrame
        if not isinstance(given, wanted):
            raise InvalidArgumentError(f"the function must return a {wanted.__name__}, got {type(given).__name__}")
        if not self.arrow:
            return to_arrow([given], schema, self._timezone)
        missing = [name for name in schema.names if name not in given.column_names]
        if missing:
            raise InvalidArgumentError(
                f"the function returned columns {given.column_names}, but the schema has {schema.names}; "
                f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
            )
        return decimals.cast(given.select(schema.names), schema)


def _keyed(function: Callable[..., Any]) -> Callable[[KeyValues, Any], Any]:
    if argument_count(function) == 2:
        return function
    return lambda key, rows: function(rows)  # noqa: ARG005 - for functions of the rows alone
