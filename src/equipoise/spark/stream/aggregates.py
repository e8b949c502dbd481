"""``agg`` on a stream: pyspark's dict form, texts and Columns as results of a ``ColumnAggregator``.

Names of results come from Spark. Whether a Column is the function that its text names is checked with Spark too: on
Classic ``sum_distinct(x)`` has the text ``sum(x)``.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import NumericType

from equipoise.errors import InvalidArgumentError
from equipoise.spark.rows.analysis import refusing
from equipoise.spark.rows.column_aggregator import FUNCTIONS, Aggregate, ColumnAggregator

Asked = str | Column | Mapping[str, str]
"""One argument of ``agg``."""

_TEXT = re.compile(r"\s*(\w+)\s*\(\s*(`(?:[^`]|``)+`|[^`()]+?)\s*\)\s*(?:AS\s+(`(?:[^`]|``)+`|\w+)\s*)?", re.IGNORECASE)
_COLUMN = re.compile(r"Column<'(.*)'>", re.DOTALL)
_ROWS = ("*", "1", "unresolvedstar()")  # the last is Connect's
_MEANS = {"mean": "avg"}
_MADE: dict[str, Callable[[Any], Column]] = {name: getattr(F, name) for name in FUNCTIONS}


def aggregates(df: DataFrame, key: Sequence[str], *asked: Asked) -> ColumnAggregator:
    """Return the aggregator of ``groupBy(*key).agg(*asked)``.

    Parameters
    ----------
    df
        The rows, streaming or not; nothing is read.
    key
        Names of the key columns.
    *asked
        One dict as for pyspark's ``agg``, ``{"ms": "max", "*": "count"}``, or any number of texts such as
        ``"sum(ms) AS total"`` and Columns such as ``F.max("ms").alias("slowest")``. The functions are ``count``,
        ``sum``, ``min``, ``max`` and ``avg`` (``mean``), of one column each.

    Returns
    -------
    ColumnAggregator
        Its ``output_schema(key)`` is that of Spark's ``agg``.
    """
    if len(asked) == 1 and isinstance(asked[0], Mapping):
        columns = [_of_pair(df, name, function) for name, function in asked[0].items()]
    else:
        columns = [_of_one(df, each) for each in asked]
    if not columns:
        raise InvalidArgumentError('there is nothing to aggregate; ask for example for agg({"ms": "max"})')
    names = _checked(df, [column for _, _, column in columns])
    taken = [*key, *names]
    twice = next((name for name in taken if taken.count(name) > 1), None)
    if twice is not None:
        raise InvalidArgumentError(f"two columns of the result are called {twice!r}; rename one with alias or AS")
    parsed = [Aggregate(function, of, name) for (function, of, _), name in zip(columns, names, strict=True)]
    return ColumnAggregator(parsed, df.schema)


def count_of(df: DataFrame, key: Sequence[str]) -> ColumnAggregator:
    """Return the aggregator of ``groupBy(*key).count()``."""
    return aggregates(df, key, F.count("*").alias("count"))


def numbers_of(df: DataFrame, key: Sequence[str], function: str, columns: Sequence[str]) -> ColumnAggregator:
    """Return the aggregator of ``sum``, ``avg``, ``min`` or ``max`` of ``groupBy(*key)``.

    Parameters
    ----------
    df, key
        As for ``aggregates``.
    function
        ``"sum"``, ``"avg"``, ``"mean"``, ``"min"`` or ``"max"``.
    columns
        Names of numeric columns; none: all numeric columns, as in Spark.
    """
    numeric = [field.name for field in df.schema.fields if isinstance(field.dataType, NumericType)]
    for name in columns:
        known = _known(df, name)
        if known not in numeric:
            kind = df.schema[known].dataType.simpleString()
            raise InvalidArgumentError(
                f"{function} takes numeric columns, and {name!r} is {kind}; name others, or use "
                f"agg({{{name!r}: {function!r}}}) if the function takes the type"
            )
    if not columns and not numeric:
        raise InvalidArgumentError(f"{function}: there is no numeric column; there are {', '.join(df.columns)}")
    made = _MADE[_MEANS.get(function, function)]
    return aggregates(df, key, *(made(F.col(_quoted(name))) for name in columns or numeric))


def _of_pair(df: DataFrame, name: str, function: str) -> tuple[str, str | None, Column]:
    """Return function, column name and Column of an entry of the dict form."""
    known = _MEANS.get(str(function).lower(), str(function).lower())
    if known not in FUNCTIONS or (name == "*" and known != "count"):
        raise _refusal(f"{function}({name})")
    return _made(df, known, None if name == "*" else _unquoted(name))


def _of_one(df: DataFrame, asked: Asked) -> tuple[str, str | None, Column]:
    if isinstance(asked, Column):
        return _of_column(df, asked)
    found = _TEXT.fullmatch(asked) if isinstance(asked, str) else None
    function = _MEANS.get(found[1].lower(), found[1].lower()) if found else ""
    of_rows = found is not None and found[2] in _ROWS
    if found is None or function not in FUNCTIONS or (of_rows and function != "count"):
        raise _refusal(repr(asked))
    function, name, column = _made(df, function, None if of_rows else _unquoted(found[2]))
    return function, name, column.alias(_unquoted(found[3])) if found[3] else column


def _of_column(df: DataFrame, asked: Column) -> tuple[str, str | None, Column]:
    """Return function and column name from the text of a Column, after Spark has confirmed them."""
    shown = _COLUMN.fullmatch(str(asked))
    text = shown[1] if shown else str(asked)
    function, _, rest = text.partition("(")
    function = _MEANS.get(function.lower(), function.lower())
    if function not in FUNCTIONS:
        raise _refusal(text)
    spelled: list[tuple[str, str | None]] = [(each, name) for name in df.columns for each in (name, _quoted(name))]
    if function == "count":
        spelled += [(each, None) for each in _ROWS]
    found = [each for each in spelled if f"{rest} as ".lower().startswith(f"{each[0]}) as ".lower())]
    for _, name in found:
        _, known, plain = _made(df, function, name)
        with refusing(f"Spark cannot compute {text}"):
            if df.groupBy().agg(asked).sameSemantics(df.groupBy().agg(plain)):
                return function, known, asked
    raise _refusal(f"{text}, because it does not support DISTINCT or literals" if found else text)


def _made(df: DataFrame, function: str, name: str | None) -> tuple[str, str | None, Column]:
    if name is None:
        return function, None, F.count("*")
    return function, _known(df, name), _MADE[function](F.col(_quoted(name)))


def _known(df: DataFrame, name: str) -> str:
    """Return a column name as the schema spells it; as in Spark, the case does not matter."""
    found = [each for each in df.columns if each == name] or [
        each for each in df.columns if each.lower() == name.lower()
    ]
    if len(found) != 1:
        number = "no column" if not found else "more than one column"
        raise InvalidArgumentError(f"there is {number} {name!r}; there are {', '.join(df.columns)}")
    return found[0]


def _checked(df: DataFrame, columns: Sequence[Column]) -> list[str]:
    """Return the names that Spark gives to the results."""
    with refusing("Spark cannot compute the aggregates"):
        return df.groupBy().agg(*columns).columns


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _unquoted(text: str) -> str:
    return text[1:-1].replace("``", "`") if text.startswith("`") else text


def _refusal(what: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"agg of a stream does not take {what}; it takes {', '.join(FUNCTIONS)} of one column, such as "
        "F.sum('ms').alias('total') or 'sum(ms) AS total', and count(*); compute other results with an Aggregator and "
        "aggregate(aggregator)"
    )
