"""The sinks ``parquet`` and ``table``, which copy the committed files of a batch, exactly once.

A sink may receive the last batch again after a crash or a stop. A committed batch never changes, so these sinks never
replace anything. They copy the committed files to names that follow from the batch and the place of the file in it. An
existing copy with the same bytes is left alone; other bytes are an error. A driver that was taken over while it was
paused inside the sink therefore changes nothing when it wakes up.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StructField, StructType

from equipoise.errors import AlreadyExistsError, DamagedError, InvalidArgumentError, MismatchError
from equipoise.spark.stream.delivery import Delivery, FileSink, Sink
from equipoise.state.log import OutputFile
from equipoise.storage import Storage, StoredFile, canonical

BATCH = "batch"
"""Column of a table that says which batch a row came with."""

_PART = "part-"
_COPIES = 4  # files that are copied at a time
_COMPRESSION = "zstd"


def parquet_sink(path: str, options: Mapping[str, str]) -> "ParquetFiles":
    """Write Parquet files directly below ``path``, for ``spark.read.parquet(path)``; exactly once.

    A batch is one or more files, which appear one after the other.

    Parameters
    ----------
    path
        Folder of this query alone, a local path or a URI.
    options
        The files are copies, compressed with zstd; an option that asks for anything else is refused.
    """
    _require_no_options("parquet", options)
    return ParquetFiles(Storage(path))


def table_sink(name: str, options: Mapping[str, str]) -> "ParquetTable":
    """Write a Parquet table of the catalog, partitioned by ``batch``; exactly once.

    Parameters
    ----------
    name
        Table of this query alone; it is created if it does not exist. An existing one must have the columns of the
        output, and ``batch`` as its last column and only partition.
    options
        ``path``: where a new table keeps its files; default where the catalog puts them. An existing table must be
        there. Others as for ``parquet_sink``.
    """
    given = {key.lower(): value for key, value in options.items()}
    path = given.get("path")
    _require_no_options("table", {key: value for key, value in options.items() if key.lower() != "path"})
    return ParquetTable(name, path)


def console_sink(options: Mapping[str, str]) -> Sink:
    """Print each batch; a batch that is delivered again is printed again.

    Parameters
    ----------
    options
        ``numRows``, 20 by default, and ``truncate``, true by default, as Spark's console has them.
    """
    given = {key.lower(): value for key, value in options.items()}
    rows, truncate = int(given.get("numrows", "20")), given.get("truncate", "true") == "true"

    def write(df: DataFrame, batch: int) -> None:
        print(f"-------- batch {batch} --------")  # noqa: T201 - printing is its purpose
        df.show(rows, truncate=truncate)

    return write


def kafka_sink(options: Mapping[str, str]) -> Sink:
    """Write to a Kafka topic with Spark's connector; a batch that is delivered again is sent again.

    Parameters
    ----------
    options
        ``kafka.bootstrap.servers`` and ``topic``; others are handed to the connector. A row without a column ``value``
        is sent as JSON.
    """
    if not options.get("kafka.bootstrap.servers") or not options.get("topic"):
        raise InvalidArgumentError("the format kafka needs the options kafka.bootstrap.servers and topic")

    def write(df: DataFrame, batch: int) -> None:  # noqa: ARG001 - the name belongs to the protocol
        sent = df if "value" in df.columns else df.selectExpr("to_json(struct(*)) AS value")
        sent.write.format("kafka").options(**options).save()

    return write


class ParquetFiles(FileSink):
    """Copies the committed files to a folder.

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
    """Copies the committed files to a table, each batch to its own partition.

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
        """Copy the files of a batch and add its partition to the catalog."""
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
                f"the output has a column {BATCH!r}, which the sink adds to its table; give that column another name"
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
                f"the table {self._name} is partitioned by {', '.join(partitions) or 'nothing'}, and the sink "
                f"copies each batch into a partition of its own; give a table partitioned by {BATCH}, or a new name"
            )
        described = {
            row.col_name: row.data_type for row in spark.sql(f"DESCRIBE TABLE EXTENDED {self._name}").collect()
        }
        provider = described.get("Provider", "").lower()
        if provider != "parquet" or "Location" not in described:
            raise MismatchError(
                f"the table {self._name} has the format {provider or 'unknown'!r}, and the sink copies Parquet "
                "files; write the rows of each batch with foreachBatch(f)"
            )
        location = str(described["Location"])
        if self._path is not None and canonical(location) != canonical(self._path):
            raise MismatchError(
                f"the table {self._name} keeps its files in {location}, and the option path is {self._path}; leave "
                "it out, or give a new name"
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


def _require_no_options(format: str, options: Mapping[str, str]) -> None:  # noqa: A002 - Spark's own name
    known = ("compression", _COMPRESSION)
    refused = {name: value for name, value in options.items() if (name.lower(), value.lower()) != known}
    if refused:
        raise InvalidArgumentError(
            f"the format {format} copies the committed files, zstd-compressed Parquet, and cannot honour the option "
            f"{', '.join(f'{name}={value!r}' for name, value in refused.items())}; leave it out, or write the rows of "
            "each batch with foreachBatch(f)"
        )
