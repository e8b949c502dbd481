"""The file that describes a streaming job: what it may say, and how mistakes in it are told."""

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from equipoise.errors import InvalidArgument

Value = str | bool | int | float
"""What an option may be."""


class _Table(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A table of the file; names are those of Spark and of the functions that take them."""


class Watermark(_Table):
    """Event time: a column, and how late its rows may come."""

    column: str
    delay: str


class Source(_Table):
    """``[source]``: where rows come from.

    Parameters
    ----------
    format
        As for ``spark.readStream.format``; ``equipoise`` for micro-batches that are planned before they run.
    path, schema, options
        As for ``spark.readStream``.
    select, where
        SQL expressions of the columns to take, and of the rows; default all.
    watermark
        As for ``withWatermark``.
    feeds
        For ``equipoise``: functions by the name of their feed, each as ``module:function``.
    """

    format: str
    path: str | None = None
    schema: str | None = None
    options: dict[str, Value] = {}
    select: list[str] = []
    where: str | None = None
    watermark: Watermark | None = None
    feeds: dict[str, str] = {}


class _Query(_Table, tag_field="kind"):
    """``[query]``: what both kinds have."""

    key: str | list[str]
    checkpoint: str
    output_schema: str | None = None
    aggregator: str | None = None
    aggregate: list[str] | None = None
    trigger: str | None = None
    name: str | None = None
    retain: int | None = None
    cache: str | None = None


class Stateful(_Query, tag="stateful"):
    """``kind = "stateful"``: the parameters of ``equipoise.spark.stateful``."""

    processor: str | None = None
    num_partitions: int | str | None = None
    time_mode: str | None = None
    order_by: str | list[str] | None = None
    bounds: tuple[int, int] | None = None
    target_seconds: float | None = None
    tail_groups: int | None = None
    hash: bool | None = None
    split: bool | None = None


class Microbatch(_Query, tag="microbatch"):
    """``kind = "microbatch"``: the parameters of ``equipoise.spark.microbatch``."""

    num_partitions: int | None = None
    map: str | None = None
    interval: str | float | None = None
    window: str | float | None = None
    slide: str | float | None = None
    buckets: int | None = None
    combine: bool | None = None
    allocation: str | None = None


class _Sink(_Table, tag_field="format"):
    """``[sink]``: where results go."""


class ParquetSink(_Sink, tag="parquet"):
    """Parquet files, a folder for each batch."""

    path: str
    options: dict[str, Value] = {}


class TableSink(_Sink, tag="table"):
    """A table of the catalog, a partition for each batch."""

    name: str
    options: dict[str, Value] = {}


class ConsoleSink(_Sink, tag="console"):
    """The standard output."""

    rows: int = 20
    truncate: bool = True


class KafkaSink(_Sink, tag="kafka"):
    """A Kafka topic."""

    servers: str
    topic: str
    value: str = "to_json(struct(*))"
    key: str | None = None
    options: dict[str, Value] = {}


class PythonSink(_Sink, tag="python"):
    """A function of a DataFrame and the number of its batch, as ``module:function``."""

    function: str


class Job(_Table):
    """The whole file."""

    source: Source
    query: Stateful | Microbatch
    sink: ParquetSink | TableSink | ConsoleSink | KafkaSink | PythonSink
    policy: dict[str, Value] = {}
    conf: dict[str, Value] = {}


def load_job(path: Path) -> Job:
    """Read a job file; every mistake is told with the name of the file and of the entry."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the job file {path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"{path} is not TOML: {error}") from error
    try:
        return msgspec.convert(content, Job)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"{path}: {_explained(str(error), content)}") from error


def _explained(message: str, content: dict[str, Any]) -> str:
    """A message of msgspec in the words of the file."""
    text, _, place = message.partition(" - at ")
    where = [part for part in place.strip("`").removeprefix("$").split(".") if part]
    table = f"[{'.'.join(where)}]" if where else "the file"
    unknown = re.search(r"unknown field `(.*)`", text)
    if unknown:
        return f"{table} has no entry {unknown[1]!r}; it may have {', '.join(_known(where, content))}"
    missing = re.search(r"missing required field `(.*)`", text)
    if missing:
        return f"{table} lacks the entry {missing[1]!r}"
    entry = f"{where[-1]!r} in [{'.'.join(where[:-1])}]" if len(where) > 1 else table
    return f"{entry}: {text[0].lower()}{text[1:]}{_choices(where)}"


def _known(where: list[str], content: dict[str, Any]) -> list[str]:
    """Names that a table may have."""
    tables = {"source": Source, "source.watermark": Watermark, "": Job}
    name = ".".join(where)
    if name in tables:
        return list(tables[name].__struct_encode_fields__)
    tag = {"query": "kind", "sink": "format"}[name]
    kinds = _KINDS[name]
    return [tag, *kinds[content[name][tag]].__struct_encode_fields__]


def _choices(where: list[str]) -> str:
    """The kinds that there are, where one was asked for that is not there."""
    kinds = _KINDS.get(where[0]) if len(where) == 2 and where[1] in {"kind", "format"} else None
    return f"; choose one of {', '.join(kinds)}" if kinds else ""


_KINDS: dict[str, dict[str, type[_Table]]] = {
    "query": {"stateful": Stateful, "microbatch": Microbatch},
    "sink": {
        "parquet": ParquetSink,
        "table": TableSink,
        "console": ConsoleSink,
        "kafka": KafkaSink,
        "python": PythonSink,
    },
}
