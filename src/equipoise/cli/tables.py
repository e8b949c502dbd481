"""Tables that commands read and write: files by their suffix, or tables of the session's catalog."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.cli.session import is_of_spark, spark_message
from equipoise.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Source = Annotated[
    str, typer.Argument(help="File or folder (Parquet, CSV, JSON, ORC), or table of the session's catalog.")
]
Key = Annotated[str, typer.Option("--key", "-k", help="Key column; several are separated by commas.")]
Format = Annotated[
    str | None, typer.Option(help="Format of SOURCE, for spark.read.format; default by the suffix of its files.")
]
Option = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="NAME=VALUE", help="Option of the reader; may be given several times."),
]
Partitions = Annotated[
    int | None,
    typer.Option("--partitions", "-n", min=1, help="Number of partitions; default spark.sql.shuffle.partitions."),
]
Weight = Annotated[str | None, typer.Option(help="Load of a row, an SQL expression such as length(body); default 1.")]


def _sample(text: str) -> int | str:
    """Return the value of ``--sample``."""
    if text == "full":
        return text
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter(f"give a number of rows from 1, or full, got {text!r}")
    return int(text)


SampleRows = Annotated[
    Any,
    typer.Option(
        "--sample",
        parser=_sample,
        metavar="ROWS|full",
        help="Rows to look at, or full to count the rows of every key; default as many as the partitions need.",
    ),
]
Slots = Annotated[
    int | None,
    typer.Option(min=1, help="Number of tasks that run at the same time; default Spark's default parallelism."),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the sampling.")]

FORMATS = {"parquet": "parquet", "csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json", "orc": "orc"}
"""Formats by the suffix of a file; ``.gz`` and the like may follow."""

_COMPRESSED = {"gz", "bz2", "zst", "lz4", "snappy", "deflate"}
_CSV = {"header": "true", "inferSchema": "true"}


def key_columns(key: str) -> list[str]:
    """Return the names of the key columns.

    Examples
    --------
    >>> key_columns("country, host")
    ['country', 'host']
    """
    names = [name.strip() for name in key.split(",") if name.strip()]
    if not names:
        raise InvalidArgumentError("the key has no column; name at least one, for example --key host")
    return names


def format_of(place: str) -> str | None:
    """Return the format by the suffix of a path or of the files in a local folder; ``None`` if it is unknown.

    Examples
    --------
    >>> format_of("visits.csv.gz"), format_of("s3://bucket/visits.parquet/"), format_of("visits")
    ('csv', 'parquet', None)
    """
    parts = place.rstrip("/").rpartition("/")[2].lower().split(".")[1:]
    if parts and parts[-1] in _COMPRESSED:
        parts.pop()
    if parts and parts[-1] in FORMATS:
        return FORMATS[parts[-1]]
    if Path(place).is_dir():
        files = (path.name for path in sorted(Path(place).rglob("*.*")) if not path.name.startswith(("_", ".")))
        return next((known for known in map(format_of, files) if known is not None), None)
    return None


def require_source(place: str, format: str | None, local: bool) -> None:  # noqa: A002 - Spark's own name
    """Refuse a source that does not exist or whose format is unknown, as far as that is known before Spark starts.

    Parameters
    ----------
    place
        Path or URI, or name of a table.
    format
        Option of the command.
    local
        Whether paths without a scheme are files of this machine.
    """
    chosen = format or format_of(place)
    is_path = "/" in place or Path(place).exists() or (format is None and chosen is not None)
    if not is_path or "://" in place or not local:
        return
    is_pattern = any(sign in place for sign in "*?[{")
    if not Path(place).exists() and not is_pattern:
        raise InvalidArgumentError(
            f"{place} does not exist; give a file, a folder, or a table of the session's catalog"
        )
    if chosen is None:
        raise InvalidArgumentError(f"the format of {place} is unknown; name it with --format")


def read_table(spark: "SparkSession", place: str, format: str | None, options: Mapping[str, str]) -> "DataFrame":  # noqa: A002 - Spark's own name
    """Return a file, a folder or a table as a DataFrame.

    Parameters
    ----------
    spark
        The session.
    place
        Path or URI, or name of a table.
    format
        Option of the command.
    options
        Options of the reader. By default CSV has a header and its types are inferred.
    """
    chosen = format or format_of(place)
    is_path = "/" in place or Path(place).exists()
    if chosen is None and is_path:
        raise InvalidArgumentError(f"the format of {place} is unknown; name it with --format")
    try:
        if chosen is None:
            return spark.table(place)
        settings = {**(_CSV if chosen == "csv" else {}), **options}
        return spark.read.format(chosen).options(**settings).load(place)
    except Exception as error:
        if not is_of_spark(error):  # an unknown format is an error of the bridge
            raise
        known = _tables(spark) if chosen is None else []
        there = f"; there are the tables {', '.join(known)}" if known else ""
        raise InvalidArgumentError(f"cannot read {place}: {spark_message(error).splitlines()[0]}{there}") from error


def exists(spark: "SparkSession", path: str) -> bool:
    """Whether a file or a folder exists where Spark looks for it."""
    from pyspark.errors import AnalysisException

    try:
        spark.read.format("binaryFile").load(path)
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return False
        raise
    return True


def _tables(spark: "SparkSession") -> Sequence[str]:
    return [table.name for table in spark.catalog.listTables()]
