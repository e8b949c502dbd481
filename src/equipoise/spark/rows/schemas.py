"""Schemas as users give them, and the types that output columns may have."""

import re
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from equipoise.errors import InvalidArgumentError
from equipoise.spark.rows.analysis import refusing

_SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"
_STATE_ENCODING = "spark.sql.streaming.stateStore.encodingFormat"
_STORABLE = (
    r"byte|short|integer|long|float|double|decimal\(.*\)|boolean|string( collate \w+)?|binary|date|timestamp|"
    r"timestamp_ntz|interval (day|hour|minute|second).*|void"
)


class Schemas(Protocol):
    """Parses schemas as users give them."""

    @property
    def nullable_state(self) -> bool:
        """Whether the fields of state values must be nullable."""

    def parsed(self, schema: StructType | str) -> dict[str, Any]:
        """Return the JSON form of a schema."""

    def arrow(self, schema: StructType | str) -> pa.Schema:
        """Return the Arrow form of a schema."""


class SparkSchemas:
    """Parses schemas with a Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    @property
    def nullable_state(self) -> bool:
        """Whether the fields of state values must be nullable, as Spark requires it if it stores them as Avro."""
        return (self._spark.conf.get(_STATE_ENCODING, None) or "").lower() == "avro"

    def parsed(self, schema: StructType | str) -> dict[str, Any]:
        """Return the JSON form of a schema."""
        return dict(as_struct(schema).jsonValue())

    def arrow(self, schema: StructType | str) -> pa.Schema:
        """Return the Arrow form of a schema."""
        return self._spark.createDataFrame([], schema).toArrow().schema


def as_struct(schema: StructType | str) -> StructType:
    """Return a schema as Spark's type; a DDL string of one type becomes the column ``value``, as in Spark."""
    if isinstance(schema, StructType):
        return schema
    with refusing(f"the schema {schema!r} is neither a StructType nor a DDL string such as 'host string, n long'"):
        parsed = StructType.fromDDL(schema)
    return parsed if isinstance(parsed, StructType) else StructType().add("value", parsed)


def require_storable(schema: dict[str, Any]) -> None:
    """Refuse an output schema that cannot be converted to pandas and Parquet.

    Parameters
    ----------
    schema
        ``StructType.jsonValue()`` of the outputs.
    """
    if not schema["fields"]:
        raise InvalidArgumentError("the output schema has no columns; name at least one")
    for field in schema["fields"]:
        for kind in _simple_types(field["type"]):
            if re.fullmatch(_STORABLE, kind) is None:
                raise InvalidArgumentError(
                    f"outputStructType: column {field['name']!r} has the type {kind}, which outputs cannot have; "
                    "give it as string or binary, and cast it in the sink"
                )


def as_spark_reads_it(arrow: pa.Schema, schema: dict[str, Any]) -> pa.Schema:
    """Return a schema whose Parquet files keep Spark's own types, as files written by Spark do.

    Without it Spark would read an interval, which Parquet does not have, as a number.

    Parameters
    ----------
    arrow, schema
        Arrow form and ``StructType.jsonValue()`` of the outputs.
    """
    return arrow.with_metadata({_SPARK_SCHEMA: msgspec.json.encode(schema)})


def _simple_types(kind: Any) -> Iterator[str]:
    if isinstance(kind, str):
        yield kind
        return
    parts = [field["type"] for field in kind.get("fields", ())]
    for part in [*parts, *(kind[name] for name in ("elementType", "keyType", "valueType") if name in kind)]:
        yield from _simple_types(part)
