"""The key of a DataFrame: one or more columns, checked before any work is done."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType, VariantType

from equipoise.errors import InvalidArgumentError
from equipoise.requirements import require_spark_version
from equipoise.spark.rows.columns import RESERVED

KeyLike = str | Column | Sequence[str | Column]
"""A key as users give it: a column or its name, or several of them."""

_BINARY = "UTF8_BINARY"  # the collation under which strings are equal only if their bytes are


@dataclass(frozen=True)
class Key:
    """The columns of a key, as they are grouped by."""

    columns: tuple[Column, ...]
    names: tuple[str, ...]
    types: tuple[str, ...]

    @property
    def fingerprint(self) -> Column:
        """The key's fingerprint: equal to ``equipoise.fingerprints`` of the same values."""
        return F.xxhash64(*self.columns)

    def __str__(self) -> str:
        return ", ".join(self.names)


def resolve_key(df: DataFrame, key: KeyLike, *, streaming: bool = False) -> Key:
    """Check that ``df`` is a DataFrame of the wanted kind and of a usable Spark, and that its key can be grouped by."""
    _check_frame(df, streaming=streaming)
    given = [key] if isinstance(key, str | Column) else list(key)
    if not given:
        raise InvalidArgumentError("the key has no column; name at least one")
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
    return Key(columns, names, tuple(field.dataType.simpleString() for field in schema.fields))


def as_column(df: DataFrame, given: str | Column) -> Column:
    """A column by name or as given; a name that is a column's whole name need not be quoted."""
    if isinstance(given, Column):
        return given
    return F.col("`" + given.replace("`", "``") + "`") if given in df.columns else F.col(given)


def analysed(df: DataFrame, columns: Iterable[Column], role: str) -> StructType:
    """Schema of some columns of ``df``; says in our words if Spark cannot find them."""
    try:
        return df.select(*columns).schema
    except AnalysisException as error:
        condition = error.getCondition() or ""
        available = ", ".join(df.columns)
        if condition.startswith("AMBIGUOUS"):
            message = f"a {role} column is ambiguous: the DataFrame has it twice ({available}); rename one first"
        elif condition.startswith("UNRESOLVED_COLUMN"):
            found = re.search(r"name (`.*?`)[^`]", str(error))
            name = found[1] if found else "of that name"
            message = f"there is no column {name} for the {role}; there are {available}"
        else:
            message = f"the {role} cannot be computed: {error.getMessage() or error}"
        raise InvalidArgumentError(message) from error


def _check_frame(df: DataFrame, *, streaming: bool) -> None:
    if not isinstance(df, DataFrame):
        raise InvalidArgumentError(
            f"a DataFrame of Spark is needed, and this is a {type(df).__name__}; pass it ungrouped"
        )
    require_spark_version(df.sparkSession.version)
    if streaming and not df.isStreaming:
        raise InvalidArgumentError(
            "this is a batch DataFrame, and stateful is for streams; read it with spark.readStream, or use balance"
        )
    if df.isStreaming and not streaming:
        raise InvalidArgumentError(
            "this is a streaming DataFrame, and profile, advise and balance are for batches; use stateful, "
            "or the DataFrame of each micro-batch inside foreachBatch"
        )
    taken = sorted(RESERVED & set(df.columns))
    if taken:
        raise InvalidArgumentError(
            f"the DataFrame has a column {taken[0]!r}, a name that is kept for our own; rename it"
        )


def _parts(data_type: DataType) -> Iterable[DataType]:
    """A type and all types nested in it."""
    yield data_type
    if isinstance(data_type, ArrayType):
        yield from _parts(data_type.elementType)
    elif isinstance(data_type, StructType):
        for field in data_type.fields:
            yield from _parts(field.dataType)
