"""Deliver transformed rows to a sink that copies files, exactly once.

A file sink copies the committed files of a batch. Transformations make other rows, and running them twice may give
other bytes. So the transformed rows are written to files of their own, and a list names each file with its SHA-256. A
driver delivers the files of the list with the highest epoch. It first writes that list again under its own epoch, and
then checks that it was not taken over.

A driver that passes the check copies the files of its list, and every later driver finds this list, or a repetition of
it with a higher epoch. A driver that fails the check copies nothing, and its list, which has a lower epoch than the
driver that took over, does not count once that one has written its own. This needs no file that is created only if it
is absent, which some stores do not have. The files and the lists lie in ``outputs/<version>``, which the garbage
collector deletes when the batch can no longer be asked for.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import msgspec
import pyarrow as pa

from equipoise.errors import DamagedError, FormatError
from equipoise.failpoints import failpoint
from equipoise.framing import seal, unseal
from equipoise.spark.stream.delivery import Delivery, FileSink
from equipoise.spark.stream.outputs import FOLDER, FileOutputs
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
    write
        Writes the transformed rows of a batch to files below ``outputs/<version>`` of the checkpoint.
    """

    def __init__(self, sink: FileSink, write: Callable[[Delivery], list[OutputFile]]) -> None:
        self._sink, self._write = sink, write

    def deliver(self, delivery: Delivery) -> None:
        """Deliver the files of the last list; without one, write the transformed rows first."""
        files = self._listed(delivery)
        delivery.check()
        self._sink.deliver(replace(delivery, files=files))

    def _listed(self, delivery: Delivery) -> list[OutputFile]:
        """Return the files of the last list, after repeating it under the epoch of this driver."""
        storage, folder = delivery.storage, f"{FOLDER}/{delivery.batch + 1:020d}"
        own, last = f"{folder}/{_KIND}-{delivery.epoch:010d}", last_list(storage, folder)
        files = self._write(delivery) if last is None else read_list(storage, last)
        if last == own:
            storage.sync(own)  # this driver may have been stopped before it had synced the name
        else:
            failpoint("driver.before-list")
            storage.write(own, seal(_KIND, _FORMAT, msgspec.to_builtins(files)))
            failpoint("driver.after-list")
        return files


def write_transformed(schema: pa.Schema, delivery: Delivery) -> list[OutputFile]:
    """Write the transformed rows of a batch in one Spark job; return the files in the order of the partitions.

    Parameters
    ----------
    schema
        Arrow schema of the transformed rows.
    delivery
        The batch.
    """
    write = _file_writer(delivery.storage.location, delivery.batch + 1, schema)
    answers = delivery.rows().mapInArrow(write, _FILE_SCHEMA).collect()
    return [msgspec.msgpack.decode(answer.file, type=OutputFile) for answer in answers]


def last_list(storage: Storage, folder: str) -> str | None:
    """Return the path of the list that counts in a folder ``outputs/<version>``; ``None`` if it has none."""
    names = (name for name in storage.names(folder) if name.startswith(f"{_KIND}-"))
    return max((f"{folder}/{name}" for name in names), default=None)


def read_list(storage: Storage, path: str) -> list[OutputFile]:
    """Return the files that a list names."""
    try:
        return msgspec.convert(unseal(_KIND, _FORMAT, storage.read(path)), list[OutputFile])
    except msgspec.ValidationError as error:
        raise DamagedError(f"{storage.at(path)} does not list output files: {error}; restore it from a copy") from error
    except FormatError as error:
        raise type(error)(f"{storage.at(path)}: {error}") from error


def _file_writer(
    location: str, version: int, schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for ``mapInArrow`` that writes a partition to a file and describes the file."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with FileOutputs(Storage(location), version, schema, "UTC") as outputs:
            for batch in batches:
                outputs.add_table(pa.Table.from_batches([batch]).cast(schema))
            files = outputs.finish()
        described = [msgspec.msgpack.encode(file) for file in files]
        yield pa.RecordBatch.from_arrays([pa.array(described, pa.binary())], names=["file"])

    return write
