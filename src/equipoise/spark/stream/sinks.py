"""Ready sinks. A sink may be given the last batch again after a crash or a stop; each says what then happens.

A committed batch never changes, so ``parquet`` and ``table`` never replace anything. They copy the committed files to
names that follow from the batch and the place of the file in it. A copy that is there already is left alone if its
bytes are the same, and is an error otherwise. A driver that was taken over, paused inside the sink and wakes up,
therefore changes nothing.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StructField, StructType

from equipoise.errors import AlreadyExistsError, DamagedError, InvalidArgumentError, MismatchError
from equipoise.spark.stream.delivery import Delivery, FileSink, Sink
from equipoise.state.commit import OutputFile
from equipoise.storage import Storage, StoredFile, canonical

BATCH = "batch"
"""Column of a table that says which batch a row came with."""

_PART = "part-"
_COPIES = 4  # files that are copied at a time
_COMPRESSION = "zstd"


def parquet(path: str, **options: Any) -> FileSink:
    """Parquet files directly below ``path``, for ``spark.read.parquet(path)``; exactly once.

    A batch is one or more files, which appear one after the other.

    Parameters
    ----------
    path
        A folder of this query alone, a local path or a URI.
    **options
        Of Spark's writer. The files are copies, compressed with zstd; an option that asks for anything else is refused.
    """
    _require_no_options("parquet", options)
    return ParquetFiles(Storage(path))


def table(name: str, *, format: str = "parquet", path: str | None = None, **options: Any) -> FileSink:  # noqa: A002 - Spark's own name
    """A Parquet table of the catalog, partitioned by ``batch``; exactly once.

    Parameters
    ----------
    name
        A table of this query alone; it is created if it does not exist. One that exists must have the output's
        columns, and ``batch`` as its last column and only partition.
    format
        ``parquet``; other formats keep a log of their own, to which files cannot be copied.
    path
        Where a new table keeps its files; default: where the catalog puts them. A table that exists must be there.
    **options
        As for ``parquet``.
    """
    if str(format).lower() != "parquet":
        raise InvalidArgumentError(
            f"sinks.table copies Parquet files and cannot write a table of format {format!r}; give start() a function "
            "of (DataFrame, batch) that appends with the format's own transaction number, for example Delta's "
            "txnAppId and txnVersion"
        )
    _require_no_options("table", options)
    return ParquetTable(name, path)


def console(rows: int = 20, *, truncate: bool = True) -> Sink:
    """Print each batch; a batch that comes again is printed again."""

    def write(df: DataFrame, batch: int) -> None:
        print(f"-------- batch {batch} --------")  # noqa: T201 - printing is what it is for
        df.show(rows, truncate=truncate)

    return write


def kafka(
    servers: str, topic: str, *, value: str = "to_json(struct(*))", key: str | None = None, **options: Any
) -> Sink:
    """A Kafka topic, through Spark's own connector; a batch that comes again is sent again.

    Parameters
    ----------
    servers
        ``kafka.bootstrap.servers``.
    topic
        Where to send.
    value, key
        SQL expressions of a message's value and key.
    **options
        Further options of the connector.
    """
    if not servers or not topic:
        raise InvalidArgumentError("the Kafka sink needs servers and a topic")

    def write(df: DataFrame, batch: int) -> None:  # noqa: ARG001 - the name belongs to the protocol
        columns = [f"CAST({value} AS STRING) AS value", *([f"CAST({key} AS STRING) AS key"] if key else [])]
        sent = df.selectExpr(*columns).write.format("kafka").option("kafka.bootstrap.servers", servers)
        sent.option("topic", topic).options(**options).save()

    return write


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
        if not self._is_clean:  # a driver that was killed may have left half a copy
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
        Where a new table keeps its files; ``None``: where the catalog puts them.
    """

    def __init__(self, name: str, path: str | None) -> None:
        self._name, self._path = name, path
        self._target: Storage | None = None

    def prepare(self, empty: DataFrame) -> None:
        """Create the table if it does not exist, and refuse one that cannot take the batches."""
        self._target = Storage(self._location(empty))

    def deliver(self, delivery: Delivery) -> None:
        """Copy the files of a batch and tell the catalog of its partition."""
        empty: DataFrame = delivery.empty()
        if self._target is None:
            self.prepare(empty)
        assert self._target is not None  # noqa: S101 - this tells the type checker
        if delivery.files:
            folder = f"{BATCH}={delivery.batch}"
            self._target.clean(folder, delivery.check, _PART)  # half a copy of a driver that was killed
            copy_files(delivery, self._target, f"{folder}/")
            add = f"ALTER TABLE {self._name} ADD IF NOT EXISTS PARTITION ({BATCH} = {delivery.batch})"
            empty.sparkSession.sql(add)

    def _location(self, empty: DataFrame) -> str:
        """Folder of the table, which is created if it does not exist."""
        spark = empty.sparkSession
        if BATCH in empty.columns:
            raise InvalidArgumentError(
                f"the output has a column {BATCH!r}, which sinks.table adds to its table; give that column another name"
            )
        expected = StructType([*empty.schema.fields, StructField(BATCH, LongType())])
        create = f"CREATE TABLE IF NOT EXISTS {self._name} ({expected.toDDL()}) USING parquet PARTITIONED BY ({BATCH})"
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
                f"the table {self._name} is partitioned by {', '.join(partitions) or 'nothing'}, and sinks.table "
                f"copies each batch into a partition of its own; give a table partitioned by {BATCH}, or a new name"
            )
        described = {
            row.col_name: row.data_type for row in spark.sql(f"DESCRIBE TABLE EXTENDED {self._name}").collect()
        }
        provider = described.get("Provider", "").lower()
        if provider != "parquet" or "Location" not in described:
            raise MismatchError(
                f"the table {self._name} has the format {provider or 'unknown'!r}, and sinks.table copies Parquet "
                "files; give start() a function of (DataFrame, batch) that writes to it"
            )
        location = str(described["Location"])
        if self._path is not None and canonical(location) != canonical(self._path):
            raise MismatchError(
                f"the table {self._name} keeps its files in {location}, and path is {self._path}; leave path out, or "
                "give a new name"
            )
        return location


def copy_files(delivery: Delivery, target: Storage, folder: str) -> None:
    """Copy the files of a batch below ``folder``, each under a name that follows from the batch and its place."""

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
    """Copy a file to a name that it must be the first to have, or have already."""
    if not target.exists(name):
        try:
            with target.writing(name, replace=False) as copy:
                for data in source.pieces(file.path):
                    copy.write(data)
                if (copy.size, copy.sha256) != (file.size, file.sha256):
                    raise DamagedError(
                        f"{source.at(file.path)} does not match the SHA-256 in its commit and was not delivered; "
                        "restore the file from a copy"
                    )
        except AlreadyExistsError:
            pass  # another driver has delivered it meanwhile
        else:
            return
    try:
        target.verify(StoredFile(name, file.size, file.sha256))
    except DamagedError as error:
        raise MismatchError(
            f"{target.at(name)} is there with other bytes than the query committed under this name: another query "
            "wrote it, or the checkpoint was taken back to an earlier time; give the query a folder of its own, or "
            "move away the files of the batches that it will deliver again"
        ) from error


def _require_no_options(sink: str, options: dict[str, Any]) -> None:
    asked = {(name, str(value).lower()): value for name, value in options.items()}
    refused = {name: value for (name, text), value in asked.items() if (name, text) != ("compression", _COMPRESSION)}
    if refused:
        raise InvalidArgumentError(
            f"sinks.{sink} copies the committed files, zstd-compressed Parquet, and cannot honour the option "
            f"{', '.join(f'{name}={value!r}' for name, value in refused.items())}; leave it out, or give start() a "
            "function of (DataFrame, batch) that writes"
        )
