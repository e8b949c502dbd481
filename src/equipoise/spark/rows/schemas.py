"""Schemas as users give them, and the types that output columns may have."""

import re
from collections.abc import Iterator
from typing import Any, Protocol

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from equipoise.errors import InvalidArgumentError

_SPARK_SCHEMA = "org.apache.spark.sql.parquet.row.metadata"
_STORABLE = (
    r"byte|short|integer|long|float|double|decimal\(.*\)|boolean|string( collate \w+)?|binary|date|timestamp|"
    r"timestamp_ntz|interval (day|hour|minute|second).*|void"
)


class Schemas(Protocol):
    """Understands schemas as users give them."""

    def parsed(self, schema: StructType | str) -> dict[str, Any]:
        """JSON form of a schema."""

    def arrow(self, schema: StructType | str) -> pa.Schema:
        """Arrow form of a schema."""


class SparkSchemas:
    """Understands schemas by the help of a session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def parsed(self, schema: StructType | str) -> dict[str, Any]:
        """JSON form of a schema."""
        known: Any = schema if isinstance(schema, StructType) else StructType.fromDDL(schema)
        return dict(known.jsonValue())

    def arrow(self, schema: StructType | str) -> pa.Schema:
        """Arrow form of a schema."""
        return self._spark.createDataFrame([], schema).toArrow().schema


def require_storable(schema: dict[str, Any]) -> None:
    """Refuse an output schema that cannot go by way of pandas and Parquet.

    Parameters
    ----------
    schema
        ``StructType.jsonValue()`` of the outputs.
    """
    if not schema["fields"]:
        raise InvalidArgumentError("outputSchema has no columns; name at least one")
    for field in schema["fields"]:
        for kind in _simple_types(field["type"]):
            if re.fullmatch(_STORABLE, kind) is None:
                raise InvalidArgumentError(
                    f"outputSchema: column {field['name']!r} has the type {kind}, which outputs cannot have; "
                    "give it as string or binary, and cast it in the sink"
                )


def as_spark_reads_it(arrow: pa.Schema, schema: dict[str, Any]) -> pa.Schema:
    """A schema whose Parquet files keep Spark's own types, as those that Spark writes do.

    Without it Spark infers a number for an interval, which Parquet does not have.

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
