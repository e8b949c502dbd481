"""Deliver transformed rows to a sink that copies files, exactly once.

A file sink copies the committed files of a batch. Transformations make other rows, and running them twice may give
other bytes. So the transformed rows are written to files of their own, and one list of them, which names each file with
its SHA-256, is created if it does not exist yet. The sink copies the files of the list.

A driver reads or creates the list and then checks that it was not taken over. If it was not, every later driver finds
this very list as long as the batch may be delivered again. If it was, it stops before the first copy. The files and the
list lie in ``outputs/<version>``, which the garbage collector deletes when the batch can no longer be asked for.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame

from equipoise.errors import AlreadyExistsError, DamagedError
from equipoise.framing import seal, unseal
from equipoise.spark.stream.delivery import Delivery, FileSink
from equipoise.spark.stream.outputs import FOLDER, Outputs
from equipoise.state.commit import OutputFile
from equipoise.storage import Storage

_KIND, _FORMAT = "transformed", 1
_FILE_SCHEMA = "file binary"


class TransformedFiles(FileSink):
    """Hands the files of the transformed rows of a batch to a file sink.

    Parameters
    ----------
    sink
        The file sink.
    schema
        Arrow schema of the transformed rows.
    """

    def __init__(self, sink: FileSink, schema: pa.Schema) -> None:
        self._sink, self._schema = sink, schema

    def prepare(self, empty: DataFrame) -> None:
        """Prepare the file sink."""
        self._sink.prepare(empty)

    def deliver(self, delivery: Delivery) -> None:
        """Write the transformed rows unless a list of their files exists, and deliver the files of the list."""
        path = f"{FOLDER}/{delivery.batch + 1:020d}/{_KIND}"
        if not delivery.storage.exists(path):
            files = self._written(delivery)
            with suppress(AlreadyExistsError):  # another driver came first; its files are delivered
                delivery.storage.create(path, seal(_KIND, _FORMAT, msgspec.to_builtins(files)))
        listed = _listed(delivery.storage, path)
        delivery.check()
        self._sink.deliver(replace(delivery, files=listed))

    def _written(self, delivery: Delivery) -> list[OutputFile]:
        rows: DataFrame = delivery.rows()
        write = _file_writer(delivery.storage.location, delivery.batch + 1, self._schema)
        answers = rows.mapInArrow(write, _FILE_SCHEMA).collect()  # in the order of the partitions
        return [msgspec.msgpack.decode(answer.file, type=OutputFile) for answer in answers]


def _listed(storage: Storage, path: str) -> list[OutputFile]:
    try:
        return msgspec.convert(unseal(_KIND, _FORMAT, storage.read(path)), list[OutputFile])
    except msgspec.ValidationError as error:
        raise DamagedError(f"{storage.at(path)} does not list output files: {error}; restore it from a copy") from error


def _file_writer(
    location: str, version: int, schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``mapInArrow`` that writes a partition to a file and describes the file."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with Outputs(Storage(location), version, schema, "UTC") as outputs:
            for batch in batches:
                outputs.add_table(pa.Table.from_batches([batch]).cast(schema))
            files = outputs.finish()
        described = [msgspec.msgpack.encode(file) for file in files]
        yield pa.RecordBatch.from_arrays([pa.array(described, pa.binary())], names=["file"])

    return write
