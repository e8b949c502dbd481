"""Decimals that do not fit are errors; Arrow alone makes other numbers of some."""

from decimal import Decimal

import pyarrow as pa
import pytest

from equipoise.decimals import cast
from equipoise.errors import InvalidArgumentError
from equipoise.microbatch.arrow_messages import Bounds
from equipoise.microbatch.arrow_rows import ArrowRows
from equipoise.microbatch.json_lines import parse_lines
from equipoise.spark import LocalQuery
from equipoise.spark.batch.reduction import FunctionReduction, PartialFunction
from equipoise.spark.rows.column_aggregator import Aggregate, ColumnAggregator
from equipoise.spark.stream.local import LocalSchemas

KIND = pa.decimal128(38, 18)
SCHEMA = pa.schema({"p": KIND})
GOOD, BAD = "12345678901234567890.5", "400000000000000000000.5"  # 20 digits before the point fit, and 21 do not


def rows_of(table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    source = pa.BufferReader(sink.getvalue())
    rows = ArrowRows(source.read, lambda: None, SCHEMA, Bounds(100, 1 << 20))
    found = [each for batch in rows.batches() for each in rows.fitted(batch)]
    values = [row["p"] for _, given, _ in found for row in given.to_pylist()]
    return values, [letter for *_, letters in found for letter in letters]


@pytest.mark.parametrize("others", [[], [b"{"]], ids=["all at once", "line by line"])
def test_a_line_with_a_decimal_that_does_not_fit_is_a_dead_letter(others):
    table, letters = parse_lines([b'{"p": "%s"}' % text.encode() for text in (GOOD, BAD)] + others, SCHEMA)
    assert table.schema == SCHEMA
    assert table["p"].to_pylist() == [Decimal(GOOD)]
    assert any(BAD in letter.text for letter in letters)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([GOOD, BAD]),
        pa.array([GOOD, BAD]).dictionary_encode(),
        pa.array([Decimal(GOOD), Decimal(BAD)]),
        pa.array([Decimal(GOOD), Decimal(BAD)], pa.decimal256(60, 1)),
    ],
    ids=lambda column: str(column.type),
)
def test_a_row_with_a_decimal_that_does_not_fit_is_a_dead_letter(column):
    given, letters = rows_of(pa.table({"p": column}))
    assert given == [Decimal(GOOD)]
    assert len(letters) == 1
    assert BAD in letters[0].text


@pytest.mark.parametrize("wrap", [pa.list_, lambda k: pa.struct({"x": k}), lambda k: pa.map_(pa.string(), k)])
def test_nested_decimals_are_looked_at_too(wrap):
    inner = {"list": [Decimal(BAD)], "struct": {"x": Decimal(BAD)}, "map": [("a", Decimal(BAD))]}
    kind = wrap(pa.decimal128(22, 1))
    table = pa.table({"p": pa.array([inner[str(kind).partition("<")[0]]], kind)})
    with pytest.raises(pa.ArrowInvalid, match="does not fit in precision 38"):
        cast(table, pa.schema({"p": wrap(KIND)}))


@pytest.mark.parametrize("column", [[1.25, 0.1], [1, 2], ["1.25", None], [Decimal("1.5"), Decimal("-2.25")]])
def test_decimals_that_fit_are_those_of_arrow(column):
    table, schema = pa.table({"p": pa.array(column)}), pa.schema({"p": pa.decimal128(38, 4)})
    assert cast(table, schema).equals(table.cast(schema))
    assert cast(table, table.schema).equals(table)


def wide(text):
    return pa.table({"p": pa.array([Decimal(text)], pa.decimal128(22, 1))})


def test_tables_of_user_functions_are_converted_without_overflow():
    def converted(given):
        function = PartialFunction(lambda _: given, lambda rows: rows, SCHEMA, arrow=True)
        reduction = FunctionReduction(function, LocalSchemas("UTC"), SCHEMA, "UTC")
        return reduction.table([reduction.whole((), [reduction.partial((), iter([given]))])])

    assert converted(wide(GOOD))["p"][0].as_py() == Decimal(GOOD)
    with pytest.raises(pa.ArrowInvalid, match="does not fit"):
        converted(wide(BAD))


def test_tables_of_a_local_query_are_converted_without_overflow():
    rows = pa.schema({"k": pa.int64(), "p": KIND})
    largest = ColumnAggregator([Aggregate("max", "p", "most")], LocalSchemas("UTC").struct(rows))
    query = LocalQuery(largest, "k", rows, largest.output_schema(["k"]))
    assert query.process_arrow(wide(GOOD).append_column("k", [[1]])).to_pylist() == [{"k": 1, "most": Decimal(GOOD)}]
    with pytest.raises(InvalidArgumentError, match="do not fit inputSchema: Decimal value does not fit in"):
        query.process_arrow(wide(BAD).append_column("k", [[1]]))
