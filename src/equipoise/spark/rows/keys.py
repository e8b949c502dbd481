"""The key of a DataFrame: one or more columns, checked before any work is done."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType, VariantType

from equipoise.errors import InvalidArgumentError
from equipoise.requirements import require_spark_version
from equipoise.spark.rows.analysis import analysed, without_query_log
from equipoise.spark.rows.columns import FINGERPRINT, RESERVED

KeyLike = str | Column | Sequence[str | Column]
"""A key as users give it: a column or its name, or several of them."""

_BINARY = "UTF8_BINARY"  # the collation under which strings are equal only if their bytes are


@dataclass(frozen=True)
class Key:
    """The columns of a key, with their names and types."""

    columns: tuple[Column, ...]
    names: tuple[str, ...]
    types: tuple[str, ...]

    @classmethod
    def of(cls, df: DataFrame, names: Sequence[str]) -> "Key":
        """Return the key that consists of these columns of ``df``, which ``resolve_key`` has checked before."""
        types = tuple(df.schema[name].dataType.simpleString() for name in names)
        return cls(tuple(as_column(df, name) for name in names), tuple(names), types)

    @property
    def fingerprint(self) -> Column:
        """Fingerprint of the key, a BIGINT equal to ``equipoise.fingerprints`` of the same values."""
        return F.xxhash64(*self.columns)

    @property
    def spark_hash(self) -> Column:
        """Hash that Spark's own hash partitioning uses."""
        return F.hash(*self.columns)

    @property
    def has_null(self) -> Column:
        """Whether any column of the key is NULL."""
        return reduce(Column.__or__, (column.isNull() for column in self.columns))

    def __str__(self) -> str:
        return ", ".join(self.names)


def grouping_columns(given: Sequence[Any]) -> list[str | Column]:
    """Return the columns given as ``*key``: one by one, or all in one list, as for ``df.groupBy``.

    Examples
    --------
    >>> grouping_columns(("country", "host")) == grouping_columns((["country", "host"],))
    True
    """
    found: list[str | Column] = []
    for each in given:
        found += each if isinstance(each, list | tuple) and len(given) == 1 else [each]
    return found


def resolve_key(df: DataFrame, key: KeyLike, *, streaming: bool = False) -> Key:
    """Return the key of a DataFrame, after checking the DataFrame and that Spark can hash and group by the key.

    Runs no Spark job.

    Parameters
    ----------
    df
        The DataFrame.
    key
        Key column or columns, by name or as Columns.
    streaming
        Whether a streaming DataFrame is expected; else a batch one.
    """
    _check_frame(df, streaming=streaming)
    given = [key] if isinstance(key, str | Column) else list(key)
    _check_kinds(given)
    columns = tuple(as_column(df, each) for each in given)
    schema = analysed(df, columns, "key")
    for field in schema.fields:
        for part in _parts(field.dataType):
            if isinstance(part, MapType | VariantType):
                raise InvalidArgumentError(
                    f"key column {field.name!r} holds a {part.typeName()}, which Spark can neither hash nor group by; "
                    "use a part of it, or to_json of it"
                )
            if isinstance(part, StringType) and part.collation != _BINARY:
                raise InvalidArgumentError(
                    f"key column {field.name!r} has collation {part.collation}, under which strings that hash "
                    "differently can be equal; use what they have in common, such as "
                    "F.collate(F.lower(column), 'UTF8_BINARY')"
                )
    names = tuple(field.name for field in schema.fields)
    found = Key(columns, names, tuple(field.dataType.simpleString() for field in schema.fields))
    if any(isinstance(each, Column) for each in given):
        _require_deterministic(df, found)
    return found


def named_key(df: DataFrame, key: Key, purpose: str) -> Key:
    """Return ``key`` if all its columns are columns of ``df``; refuse one that is computed.

    Parameters
    ----------
    df
        The DataFrame.
    key
        Its key.
    purpose
        What needs the columns, for the message.
    """
    for given, name in zip(key.columns, key.names, strict=True):
        if name not in df.columns or not df.select(given).sameSemantics(df.select(as_column(df, name))):
            raise InvalidArgumentError(
                f"{purpose} needs key columns that the DataFrame has, and {name!r} is computed; add it with "
                "withColumn first"
            )
    return resolve_key(df, list(key.names), streaming=df.isStreaming)


def as_column(df: DataFrame, given: str | Column) -> Column:
    """Return a column by name or as given; a name that is a column's whole name need not be quoted."""
    if isinstance(given, Column):
        return given
    return F.col("`" + given.replace("`", "``") + "`") if given in df.columns else F.col(given)


def _check_kinds(given: Sequence[object]) -> None:
    if not given:
        raise InvalidArgumentError("the key has no column; name at least one")
    for each in given:
        if isinstance(each, int | float) and not isinstance(each, bool):
            raise InvalidArgumentError(
                f"{each} is a number, not a key column; for the number of partitions write numPartitions={each}"
            )
        if not isinstance(each, str | Column):
            raise InvalidArgumentError(f"a key column is a name or a Column, got {type(each).__name__} {each!r}")


def _require_deterministic(df: DataFrame, key: Key) -> None:
    """Refuse a key that Spark knows to be non-deterministic, such as ``rand()`` or a UDF declared so.

    Spark's analyser decides: it refuses a non-deterministic join condition. The key is computed when it is measured, to
    place the rows and to group them, and must be the same each time. A UDF that is random without saying so
    (``asNondeterministic``) is not noticed, nor is a column of ``df`` that was computed from one.
    """
    empty = df.sparkSession.range(0).withColumnRenamed("id", FINGERPRINT)
    with without_query_log():
        try:
            df.join(empty, key.fingerprint == F.lit(0), "leftsemi").schema  # noqa: B018 - under Connect this analyses it
        except AnalysisException as error:
            if error.getCondition() != "INVALID_NON_DETERMINISTIC_EXPRESSIONS":
                return
            raise InvalidArgumentError(
                f"the key {key} is not deterministic, so it would have another value each time it is computed; add it "
                "with withColumn, write or persist the DataFrame, and give the column's name"
            ) from None


def _check_frame(df: DataFrame, *, streaming: bool) -> None:
    if not isinstance(df, DataFrame):
        raise InvalidArgumentError(
            f"expected a Spark DataFrame, got {type(df).__name__}; pass the DataFrame before it is grouped"
        )
    require_spark_version(df.sparkSession.version)
    if streaming and not df.isStreaming:
        raise InvalidArgumentError("this is a batch DataFrame, and a stream is needed; read it with spark.readStream")
    if df.isStreaming and not streaming:
        raise InvalidArgumentError(
            "this is a streaming DataFrame, and this works on batches; use balance, which takes both, or the DataFrame "
            "of each micro-batch inside foreachBatch"
        )
    taken = sorted(RESERVED & set(df.columns))
    if taken:
        raise InvalidArgumentError(f"the DataFrame has a column {taken[0]!r}, a name that equipoise uses; rename it")


def _parts(data_type: DataType) -> Iterable[DataType]:
    """Yield a type and all types nested in it."""
    yield data_type
    if isinstance(data_type, ArrayType):
        yield from _parts(data_type.elementType)
    elif isinstance(data_type, StructType):
        for field in data_type.fields:
            yield from _parts(field.dataType)
