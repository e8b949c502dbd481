"""Tuples from an untrusted Arrow stream: a record batch is validated in full before it is used."""

from collections.abc import Callable, Iterator

import pyarrow as pa

from equipoise.decimals import cast
from equipoise.microbatch.arrow_messages import Bounds, Messages
from equipoise.microbatch.arrow_sizes import written_out
from equipoise.microbatch.dead_letters import DeadLetter, RefusedError, shown_row
from equipoise.microbatch.salvage import Tries, salvaged

_SLICE = 10_000  # rows that are converted at once
_OPTIONS = pa.ipc.IpcReadOptions(ensure_native_endian=False, use_threads=False)
_BYTES = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}


class ArrowRows:
    """Record batches of a stream, each valid in full.

    Parameters
    ----------
    receive
        Returns the given number of bytes of the stream, fewer where it ends.
    completed
        Called when a message has arrived in full.
    schema
        Schema of the tuples.
    bounds
        Largest sizes of a message.
    """

    def __init__(
        self, receive: Callable[[int], bytes], completed: Callable[[], None], schema: pa.Schema, bounds: Bounds
    ) -> None:
        self._messages = Messages(receive, completed, bounds)
        self._schema, self._bounds = schema, bounds

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Columns of the schema of every record batch; raises ``RefusedError`` if the stream does not fit or is broken.

        Other columns are neither looked at nor validated.
        """
        try:
            reader = self._decoded(lambda: pa.ipc.open_stream(self._messages, options=_OPTIONS))
        except RefusedError:
            if self._messages.is_empty:  # a sender that connected and sent nothing
                return
            raise
        self._require(reader.schema)
        while (batch := self._decoded(lambda: next(reader, None))) is not None:
            valid = self._valid(batch.select(self._schema.names))
            self._require_size(valid)
            yield valid

    def fitted(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.Table, list[DeadLetter]]]:
        """Convert a valid batch in slices; yield the rows, the tuples and the dead letters of each slice."""
        tries = Tries()
        for start in range(0, len(batch), _SLICE):
            some = batch.slice(start, _SLICE)
            tables, dead_letters = salvaged(some, self._cast, lambda rows: shown_row(rows.slice(0, 1)), tries)
            yield len(some), pa.concat_tables([self._schema.empty_table(), *tables]), dead_letters

    def _decoded(self, decode: Callable[[], pa.RecordBatch]) -> pa.RecordBatch:
        try:
            return decode()
        except RefusedError:
            raise
        except Exception as error:
            raise RefusedError(
                f"message {self._messages.count} cannot be decoded ({_first(error)}), and an Arrow IPC stream was "
                "expected; send it again"
            ) from error

    def _require(self, found: pa.Schema) -> None:
        """Refuse a stream whose columns are not those of the schema, or cannot be converted to them."""
        wanted = self._schema
        try:
            fields = _fields(found, wanted.names)
            for field in fields:
                _require_scale(field.name, field.type)
                _require_plain(field.name, field.type)
            pa.schema(fields).empty_table().select(wanted.names).cast(wanted)
        except RefusedError:
            raise
        except Exception as error:
            columns = ", ".join(f"{field.name} {field.type}" for field in wanted)
            raise RefusedError(
                f"the schema of the stream does not match: {_first(error)}; the columns {columns} were expected, or "
                "such as can be converted to them: send those"
            ) from error

    def _valid(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Validate a batch in full; columns with text that is not UTF-8 become bytes, to be checked row by row."""
        try:
            batch.validate(full=True)
        except pa.ArrowException as error:
            try:
                columns = [column.view(_BYTES.get(column.type, column.type)) for column in batch.columns]
                fields = [field.with_type(column.type) for field, column in zip(batch.schema, columns, strict=True)]
                batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
                batch.validate(full=True)
            except pa.ArrowException:
                raise RefusedError(
                    f"message {self._messages.count} is damaged ({_first(error)}), and {batch.num_rows:,} valid rows "
                    "were expected; send it again"
                ) from error
        return batch

    def _require_size(self, batch: pa.RecordBatch) -> None:
        """Refuse columns that exceed the limit when converted, for example because rows share one long value."""
        sizes = {field.name: written_out(batch.column(field.name), field.type) for field in self._schema}
        total = sum(sizes.values())
        if total > self._bounds.bytes:
            largest = max(sizes, key=sizes.__getitem__)
            raise RefusedError(
                f"message {self._messages.count} has {total:,} bytes when it is written out, most of them in column "
                f"{largest} ({sizes[largest]:,}), and at most {self._bounds.bytes:,} were expected; send smaller "
                "record batches, or raise messageBytes"
            )

    def _cast(self, batch: pa.RecordBatch) -> pa.Table | str:
        """Tuples of a batch, or the reason why some rows cannot be converted."""
        try:
            table = pa.Table.from_batches([batch])
            for place, field in enumerate(self._schema):
                if table.schema.types[place] in _BYTES.values() and not _is_bytes(field.type):
                    table = table.set_column(place, field.name, table.column(place).cast(pa.large_string()))
            table = cast(table, self._schema)
            table.validate(full=True)
        except (pa.ArrowException, ValueError) as error:
            return f"{_first(error)}; send values that fit the schema"
        return table


def _fields(found: pa.Schema, names: list[str]) -> list[pa.Field]:
    """Fields of these names, each of which must occur once."""
    fields = [field for field in found if field.name in names]
    if sorted(field.name for field in fields) != sorted(names):
        raise ValueError(f"it has the columns {', '.join(found.names)}"[:500])
    return fields


def _first(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:500]


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return any(is_kind(kind) for is_kind in (types.is_binary, types.is_large_binary, types.is_binary_view))


def _require_plain(name: str, kind: pa.DataType) -> None:
    """Refuse types in which a few bytes may represent any number of values."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        is_plain = not pa.types.is_nested(kind) and _holds_itself(kind)
    else:
        is_plain = _is_view(kind) or _holds_itself(kind)
    if not is_plain:
        raise RefusedError(
            f"column {name} is {kind}; a type whose values are not shared or run-length encoded was expected: convert "
            "it to one"
        )


def _require_scale(name: str, kind: pa.DataType) -> None:
    """Refuse decimals with an invalid scale: Arrow uses the scale as an index without checking it."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_decimal(kind) and not 0 <= kind.scale <= kind.precision:
        raise RefusedError(
            f"column {name} has the type {kind}, and a scale from 0 to {kind.precision} was expected; send "
            "such decimals"
        )
    for child in range(kind.num_fields):
        _require_scale(name, kind.field(child).type)


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _holds_itself(kind: pa.DataType) -> bool:
    types = pa.types
    if types.is_nested(kind) and not (types.is_list_view(kind) or types.is_large_list_view(kind)):
        is_known = not (types.is_union(kind) or types.is_run_end_encoded(kind))
        return is_known and all(_holds_itself(kind.field(child).type) for child in range(kind.num_fields))
    shared = (types.is_list_view, types.is_large_list_view, types.is_run_end_encoded, types.is_dictionary, _is_view)
    return not (any(is_shared(kind) for is_shared in shared) or isinstance(kind, pa.BaseExtensionType))
