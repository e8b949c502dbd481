"""Formats that a stream can be written to. After a crash or a stop a sink may receive the last batch again.

==============  ===================================================================================================
format          a batch that is delivered again
==============  ===================================================================================================
parquet, table  changes nothing: exactly once
memory          appears once; rows are kept in the driver's memory, for tests
console         is printed again
kafka           is sent again: at least once
==============  ===================================================================================================

A committed batch never changes, so ``parquet`` and ``table`` never replace anything. They copy the committed files to
names made of the batch and the position of the file in it. An existing copy is left alone if its bytes are the same,
and is an error otherwise. A driver that pauses inside the sink, is taken over and continues therefore changes nothing.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from equipoise.arguments import whole
from equipoise.errors import (
    AlreadyExistsError,
    DamagedError,
    InvalidArgumentError,
    MismatchError,
    MissingPackageError,
)
from equipoise.spark.rows.analysis import refusing, without_query_log
from equipoise.spark.rows.cluster import is_connect
from equipoise.spark.stream.delivery import Delivery, FileSink, Sink
from equipoise.state.commit import OutputFile
from equipoise.storage import Storage, StoredFile, canonical

BATCH = "batch"
"""Column of a table with the number of the batch of a row."""

_PART = "part-"
_COPIES = 4  # files that are copied at the same time
_COMPRESSION = "zstd"
_AT_LEAST_ONCE = "at-least-once"
_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True)
class SinkRequest:
    """Format, target and options given to ``writeStream``.

    Parameters
    ----------
    spark
        The user's session.
    schema
        Schema of the rows.
    format
        Name of the format.
    target
        Path, or name of a table; ``None`` if none was given.
    options
        Options of the writer, without ``checkpointLocation``.
    query_name
        ``queryName``, if any.
    """

    spark: SparkSession
    schema: StructType
    format: str
    target: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    query_name: str | None = None


def sink_of(request: SinkRequest) -> Sink:
    """Return the sink of a format; refuse a request that the format cannot serve."""
    make = FORMATS.get(str(request.format).lower())
    if make is None:
        raise InvalidArgumentError(
            f"equipoise cannot write the format {request.format!r}; it writes {', '.join(FORMATS)}; write others with "
            "foreachBatch"
        )
    lowered = [name.lower() for name in request.schema.names]
    twice = next((name for name in request.schema.names if lowered.count(name.lower()) > 1), None)
    if twice is not None and make in {_parquet, _table}:
        raise InvalidArgumentError(
            f"the output has the column {twice!r} twice, and Spark cannot read such files; rename one with select or "
            "withColumn"
        )
    return make(request)


def parquet(path: str, **options: Any) -> FileSink:
    """Return a sink of Parquet files directly below ``path``, for ``spark.read.parquet(path)``; exactly once.

    A batch is one or more files, which appear one after the other.

    Parameters
    ----------
    path
        A folder of this query alone, a local path or a URI.
    **options
        Options of Spark's writer. The files are copies, compressed with zstd; other options are refused.
    """
    _require_no_options("parquet", options)
    return ParquetFiles(Storage(path))


def table(name: str, *, format: str = "parquet", path: str | None = None, **options: Any) -> FileSink:  # noqa: A002 - Spark's own name
    """Return a sink that is a Parquet table of the catalog, partitioned by ``batch``; exactly once.

    Parameters
    ----------
    name
        A table of this query alone; it is created if it does not exist. One that exists must have the output's
        columns, and ``batch`` as its last column and only partition.
    format
        ``parquet``; other formats keep a log of their own, to which files cannot be copied.
    path
        Location of a new table; default: chosen by the catalog. An existing table must be there.
    **options
        As for ``parquet``.
    """
    if str(format).lower() != "parquet":
        raise InvalidArgumentError(
            f"toTable copies Parquet files and cannot write a table of format {format!r}; use foreachBatch with a "
            "function of (DataFrame, batch) that appends with the format's own transaction number, for example "
            "Delta's txnAppId and txnVersion"
        )
    _require_no_options("table", options)
    return ParquetTable(name, path)


def _parquet(request: SinkRequest) -> Sink:
    options = dict(request.options)
    path = options.pop("path", None)
    if not (request.target or path):
        raise InvalidArgumentError("the format parquet needs a path; give start(path)")
    return parquet(request.target or path, **options)


def _table(request: SinkRequest) -> Sink:
    if not request.target:
        raise InvalidArgumentError("a table needs a name; use toTable(name)")
    return table(request.target, **request.options)


def _console(request: SinkRequest) -> Sink:
    """Print each batch as Spark's console does; a batch that is delivered again is printed again."""
    options = _known_options(request, "numRows", "truncate")
    rows = _number("numRows", options.get("numrows", 20))
    truncate = _flag("truncate", options.get("truncate", True))

    def write(df: DataFrame, batch: int) -> None:
        line = "-" * 43
        print(f"{line}\nBatch: {batch}\n{line}")  # noqa: T201 - as Spark's console does
        df.show(rows, truncate=truncate)

    return write


def _memory(request: SinkRequest) -> Sink:
    """Collect all rows in the driver's memory, as a temporary view that has the query's name; for tests."""
    _known_options(request)
    name, spark = request.query_name, request.spark
    if not name:
        raise InvalidArgumentError("the format memory needs a name for its view; give queryName(name)")
    if is_connect(spark):
        raise InvalidArgumentError(
            "the format memory keeps the rows in the process that runs the batches, which on Spark Connect is not "
            "this one; write parquet, or use foreachBatch"
        )
    return MemoryView(spark, request.schema, name)


def _kafka(request: SinkRequest) -> Sink:
    """Send the rows with Spark's Kafka connector, at least once; columns are those of Spark's Kafka sink."""
    options = _known_options(request, "topic", "includeHeaders", "delivery", prefix="kafka.")
    if str(options.pop("delivery", "exactly-once")).lower() != _AT_LEAST_ONCE:
        raise InvalidArgumentError(
            "equipoise does not write to Kafka exactly once yet: a batch that is delivered again after a crash or a "
            f'stop is sent again; accept that with option("delivery", "{_AT_LEAST_ONCE}"), or write parquet'
        )
    if "kafka.bootstrap.servers" not in options:
        raise InvalidArgumentError('the format kafka needs the option "kafka.bootstrap.servers"')
    types = {each.name.lower(): each.dataType for each in request.schema.fields}
    if not isinstance(types.get("value"), StringType | BinaryType):
        raise InvalidArgumentError(
            "the format kafka sends the column value, a string or binary, and the output has "
            f"{request.schema.simpleString()}; select it first, for example "
            '.select(F.to_json(F.struct("*")).alias("value"))'
        )
    if "topic" not in options and "topic" not in types:
        raise InvalidArgumentError('the format kafka needs a topic; give option("topic", name), or a column topic')
    _require_kafka(request.spark, str(options["kafka.bootstrap.servers"]))

    def write(df: DataFrame, batch: int) -> None:  # noqa: ARG001 - the name belongs to the protocol
        df.write.format("kafka").options(**options).save()

    return write


FORMATS: dict[str, Callable[[SinkRequest], Sink]] = {
    "parquet": _parquet,
    "table": _table,
    "kafka": _kafka,
    "console": _console,
    "memory": _memory,
}
"""Function that returns the sink, by format."""


class MemoryView:
    """A temporary view of all rows that were delivered; for tests.

    A batch that is delivered again replaces itself. A restart of the query begins with an empty view.

    Parameters
    ----------
    spark
        The session that sees the view.
    schema
        Schema of the rows.
    name
        Name of the view.
    """

    def __init__(self, spark: SparkSession, schema: StructType, name: str) -> None:
        self._spark, self._schema, self._name = spark, schema, name
        self._batches: dict[int, pa.Table] = {}
        self._show()

    def __call__(self, df: DataFrame, batch: int) -> None:
        """Add a batch to the view."""
        self._batches[batch] = df.toArrow()
        self._show()

    def _show(self) -> None:
        rows = [self._batches[batch] for batch in sorted(self._batches)]
        # one chunk: createDataFrame of Spark 4.3 loses the chunks after an empty one
        found: Any = pa.concat_tables(rows).combine_chunks() if rows else []
        self._spark.createDataFrame(found, self._schema).createOrReplaceTempView(self._name)


class ParquetFiles(FileSink):
    """Copies of the committed files, directly below a folder.

    Parameters
    ----------
    target
        The folder.
    """

    def __init__(self, target: Storage) -> None:
        self._target, self._is_clean = target, False

    def deliver(self, delivery: Delivery) -> None:
        """Copy the files of a batch."""
        if not self._is_clean:  # a killed driver may have left a partial copy
            self._target.clean("", delivery.check, _PART)
            self._is_clean = True
        copy_files(delivery, self._target, "")


class ParquetTable(FileSink):
    """Copies of the committed files, in the partition of their batch.

    Parameters
    ----------
    name
        The table.
    path
        Location of a new table; ``None``: chosen by the catalog.
    """

    def __init__(self, name: str, path: str | None) -> None:
        self._name, self._path = name, path
        self._target: Storage | None = None

    def prepare(self, empty: DataFrame) -> None:
        """Create the table if it does not exist, and refuse one that cannot take the batches."""
        self._target = Storage(self._location(empty))

    def deliver(self, delivery: Delivery) -> None:
        """Copy the files of a batch and add its partition to the catalog."""
        empty: DataFrame = delivery.empty()
        if self._target is None:
            self.prepare(empty)
        assert self._target is not None  # noqa: S101 - this tells the type checker
        if delivery.files:
            folder = f"{BATCH}={delivery.batch}"
            self._target.clean(folder, delivery.check, _PART)  # partial copies of a killed driver
            copy_files(delivery, self._target, f"{folder}/")
            add = f"ALTER TABLE {self._name} ADD IF NOT EXISTS PARTITION ({BATCH} = {delivery.batch})"
            empty.sparkSession.sql(add)

    def _location(self, empty: DataFrame) -> str:
        """Return the folder of the table; create the table if it does not exist."""
        spark = empty.sparkSession
        if BATCH in empty.columns:
            raise InvalidArgumentError(
                f"the output has a column {BATCH!r}, which toTable adds to its table; give that column another name"
            )
        expected = StructType([*empty.schema.fields, StructField(BATCH, LongType())])
        create = f"CREATE TABLE IF NOT EXISTS {self._name} ({expected.toDDL()}) USING parquet PARTITIONED BY ({BATCH})"
        with refusing(f"the table {self._name} cannot be created"):
            if self._path is None:
                spark.sql(create)
            else:
                spark.sql(f"{create} LOCATION :path", args={"path": self._path})
        found = spark.table(self._name).schema
        if found.simpleString() != expected.simpleString():
            raise MismatchError(
                f"the table {self._name} has the columns {found.simpleString()}, and the query's output with the batch "
                f"is {expected.simpleString()}; give a table with these columns, partitioned by {BATCH}, or a new name"
            )
        partitions = [column.name for column in spark.catalog.listColumns(self._name) if column.isPartition]
        if partitions != [BATCH]:
            raise MismatchError(
                f"the table {self._name} is partitioned by {', '.join(partitions) or 'nothing'}, and toTable "
                f"copies each batch into a partition of its own; give a table partitioned by {BATCH}, or a new name"
            )
        described = {
            row.col_name: row.data_type for row in spark.sql(f"DESCRIBE TABLE EXTENDED {self._name}").collect()
        }
        provider = described.get("Provider", "").lower()
        if provider != "parquet" or "Location" not in described:
            raise MismatchError(
                f"the table {self._name} has the format {provider or 'unknown'!r}, and toTable copies Parquet files; "
                "use foreachBatch with a function of (DataFrame, batch) that writes to it"
            )
        location = str(described["Location"])
        if self._path is not None and canonical(location) != canonical(self._path):
            raise MismatchError(
                f"the table {self._name} keeps its files in {location}, and path is {self._path}; leave path out, or "
                "give a new name"
            )
        return location


def copy_files(delivery: Delivery, target: Storage, folder: str) -> None:
    """Copy the files of a batch below ``folder``, each under a name made of the batch and its position."""

    def copy(place: int, file: OutputFile) -> None:
        name = f"{folder}{_PART}{delivery.batch:020d}-{place:05d}.parquet"
        copy_once(delivery.storage, file.stored, target, name)

    if min(_COPIES, len(delivery.files)) <= 1:
        for place, file in enumerate(delivery.files):
            copy(place, file)
        return
    with ThreadPoolExecutor(_COPIES) as copies:
        for _ in copies.map(copy, range(len(delivery.files)), delivery.files):
            pass


def copy_once(source: Storage, file: StoredFile, target: Storage, name: str) -> None:
    """Copy a file; a copy with the same bytes is left alone, other bytes under the name are an error."""
    if not target.exists(name):
        try:
            with target.writing(name, replace=False) as copy:
                for data in source.chunks(file.path):
                    copy.write(data)
                if (copy.size, copy.sha256) != (file.size, file.sha256):
                    raise DamagedError(
                        f"{source.at(file.path)} does not match the SHA-256 in its commit and was not delivered; "
                        "restore the file from a copy"
                    )
        except AlreadyExistsError:
            pass  # another driver has delivered it in the meantime
        else:
            return
    try:
        target.verify(StoredFile(name, file.size, file.sha256))
    except DamagedError as error:
        raise MismatchError(
            f"{target.at(name)} exists with other bytes than the query committed under this name: another query "
            "wrote it, or the checkpoint was taken back to an earlier time, or a transformation of the output (select, "
            "where, ...) was added or removed after a part of the batch had been delivered; give the query a folder "
            "of its own and its transformations of before, or move away the files of the batches that it will deliver "
            "again"
        ) from error
    target.sync(name)  # its writer may have died before it had synced the name


def _require_no_options(sink: str, options: dict[str, Any]) -> None:
    asked = {(name, str(value).lower()): value for name, value in options.items()}
    refused = {name: value for (name, text), value in asked.items() if (name, text) != ("compression", _COMPRESSION)}
    if refused:
        raise InvalidArgumentError(
            f"the format {sink} copies the committed files, zstd-compressed Parquet, and cannot honour the option "
            f"{', '.join(f'{name}={value!r}' for name, value in refused.items())}; leave it out, or use foreachBatch "
            "with a function of (DataFrame, batch) that writes"
        )


def _known_options(request: SinkRequest, *known: str, prefix: str | None = None) -> dict[str, Any]:
    """Return the options by lower-case name, as Spark compares them; refuse a path and unknown options."""
    if request.target is not None:
        raise InvalidArgumentError(f"the format {request.format} has no path, got {request.target!r}; leave it out")
    given = {name.lower(): value for name, value in request.options.items()}
    names = {name.lower() for name in known}
    refused = [
        name
        for name in request.options
        if name.lower() not in names and not (prefix and name.lower().startswith(prefix))
    ]
    if refused:
        takes = [*known, *([f"{prefix}*"] if prefix else [])]
        raise InvalidArgumentError(
            f"the format {request.format} has no option {', '.join(refused)}; it has {', '.join(takes) or 'none'}"
        )
    return given


def _number(name: str, value: Any) -> int:
    return whole(name, int(value) if isinstance(value, str) and value.isdigit() else value, 1)


def _flag(name: str, value: Any) -> bool:
    known = _FLAGS.get(str(value).lower())
    if known is None:
        raise InvalidArgumentError(f"option {name} must be true or false, got {value!r}")
    return known


def _require_kafka(spark: SparkSession, servers: str) -> None:
    """Check that Spark has the connector, without a connection."""
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", "any")
    try:
        with without_query_log():
            reader.load().schema  # noqa: B018 - Connect loads the source only now
    except AnalysisException as error:
        if "failed to find data source: kafka" not in str(error).lower():
            raise
        package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}"
        raise MissingPackageError(
            f"Spark has no Kafka connector in this session; start it with the package, for example spark.jars.packages "
            f"{package}"
        ) from error
