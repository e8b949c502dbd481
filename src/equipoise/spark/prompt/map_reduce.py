"""The map and reduce tasks of a micro-batch: blocks become clusters of keys, buckets of clusters become buffers.

The task of a bucket yields one partial buffer for each of its keys. If a key reaches several buckets, its owner
merges the buffers: the result does not depend on how clusters are allocated, only the balance does.

A repeated task sends the same bytes: it sends no times, and it merges buffers in a fixed order. Otherwise Spark would
take a task that is repeated after the loss of an executor for an indeterminate one, and fail the query.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from equipoise.errors import InvalidArgumentError
from equipoise.microbatch import prompt_buckets
from equipoise.microbatch.spool import BUCKET, SPLIT
from equipoise.spark.rows.aggregator import Aggregator
from equipoise.spark.rows.columns import FINGERPRINT, GROUP, PARTIAL_BUFFER
from equipoise.spark.rows.keyed_frames import PartialBuffer
from equipoise.spark.rows.keys import Key, as_column
from equipoise.spark.rows.runs import cut
from equipoise.spark.stream.batch_spec import BatchSpec
from equipoise.spark.stream.partial_buffers import partial_reducer
from equipoise.spark.stream.runners import failed
from equipoise.state.codec import KeyCodec, row_codec

Batches = Iterator[pa.RecordBatch]
_TARGET = "__equipoise_target"
_UNKNOWN = -1  # bucket of a key for which none was planned
_REFERENCE = (BUCKET, SPLIT)


@dataclass(frozen=True)
class MapReduce:
    """Turns the blocks of a batch into partial buffers.

    Parameters
    ----------
    aggregator
        Reduces rows to buffers, and merges buffers.
    schema
        ``StructType.jsonValue()`` of a buffer.
    map
        Function from the rows of a batch to the rows to reduce; ``None``: they are the same.
    combine
        Whether map tasks reduce their own rows and send only partial buffers on.
    allocation
        How clusters are allocated to buckets.
    """

    aggregator: Aggregator
    schema: dict[str, object]
    map: Callable[[DataFrame], DataFrame] | None = None
    combine: bool = True
    allocation: str = "level"

    def __post_init__(self) -> None:
        if self.allocation not in ALLOCATIONS:
            raise InvalidArgumentError(f"allocation must be one of {', '.join(ALLOCATIONS)}, got {self.allocation!r}")

    def reduced(self, rows: DataFrame, key: list[str], buckets: int, batch_spec: BatchSpec) -> DataFrame:
        """Reduce the rows of a batch to one row for each key and bucket: the key, and a partial buffer.

        Parameters
        ----------
        rows
            Rows of the blocks, one block for each partition.
        key
            Names of the key columns.
        buckets
            Number of reduce tasks r.
        batch_spec
            What the tasks of the batch need to know.
        """
        mapped = rows if self.map is None else self.map(rows)
        missing = [name for name in key if name not in mapped.columns]
        if missing:
            raise InvalidArgumentError(
                f"map must keep the key column {missing[0]!r}; it gave {', '.join(mapped.columns)}"
            )
        for name, unknown in ((BUCKET, F.lit(_UNKNOWN)), (SPLIT, F.lit(True))):
            if name not in mapped.columns:
                mapped = mapped.withColumn(name, unknown)
        values = [name for name in mapped.columns if name not in key and name not in _REFERENCE]
        columns = [as_column(mapped, name) for name in (*key, *values, *_REFERENCE)]
        grouped = Key.of(mapped, key)
        marked = mapped.select(*columns, grouped.fingerprint.alias(FINGERPRINT), F.lit(0).alias(GROUP))
        fields = [StructField(field.name, field.dataType) for field in marked.schema.fields]
        in_key_order = [F.col(FINGERPRINT), *grouped.columns]
        stage = replace(batch_spec, key_fields=list(range(len(key))))
        sent = StructType([*fields, StructField(_TARGET, IntegerType())])
        buffer = StructField(PARTIAL_BUFFER, BinaryType())
        if self.combine:
            sent = StructType([*fields, buffer, sent.fields[-1]])
        clusters = marked.mapInArrow(self._map_task(stage, buckets), sent)
        in_one_order = [*in_key_order, F.col(PARTIAL_BUFFER)] if self.combine else in_key_order
        dealt = clusters.repartitionById(buckets, _TARGET).drop(_TARGET).sortWithinPartitions(*in_one_order)
        return dealt.mapInArrow(self._reduce_task(stage), StructType([*fields[: len(key)], buffer]))

    def _map_task(self, batch_spec: BatchSpec, buckets: int) -> Callable[[Batches], Batches]:
        allocate = ALLOCATIONS[self.allocation]
        reduce_rows = self._partial_reducer(batch_spec) if self.combine else None

        def run(batches: Batches) -> Batches:
            found = [batch for batch in (reduce_rows(batches) if reduce_rows else batches) if batch.num_rows]
            if found:
                table = pa.Table.from_batches(found).combine_chunks()
                yield from table.append_column(_TARGET, pa.array(allocate(table, buckets), pa.int32())).to_batches()

        return run

    def _reduce_task(self, batch_spec: BatchSpec) -> Callable[[Batches], Batches]:
        key = len(batch_spec.key_fields)
        make = self._merger(batch_spec) if self.combine else self._partial_reducer(batch_spec)

        def run(batches: Batches) -> Batches:
            for batch in make(batches):
                yield batch.select([*range(key), batch.schema.get_field_index(PARTIAL_BUFFER)])

        return run

    def _partial_reducer(self, batch_spec: BatchSpec) -> Callable[[Batches], Batches]:
        return partial_reducer(batch_spec, self.aggregator, self.schema, kept=_REFERENCE)

    def _merger(self, batch_spec: BatchSpec) -> Callable[[Batches], Batches]:
        aggregator, schema = self.aggregator, self.schema

        def run(batches: Batches) -> Batches:
            keys, buffers = KeyCodec(batch_spec.key_schema), row_codec(schema)
            for batch in batches:
                if not batch.num_rows:
                    continue
                runs = cut(batch, batch_spec.key_fields, keys)
                partial_buffers = _partial_buffers(batch)
                merged = []
                for at in range(len(runs)):
                    first, *others = partial_buffers[int(runs.starts[at]) : int(runs.starts[at + 1])]
                    if others:
                        buffer = buffers.decode(first.buffer)
                        try:
                            for other in others:
                                buffer = aggregator.merge(buffer, buffers.decode(other.buffer))
                        except Exception as error:
                            raise failed(batch_spec, "merge", int(runs.fingerprints[at]), error) from error
                        first = PartialBuffer(buffers.encode(buffer), sum(each.rows for each in (first, *others)))
                    merged.append(first)
                rows = batch.take(pa.array(runs.starts[:-1]))
                encoded = pa.array([msgspec.msgpack.encode(each) for each in merged], pa.binary())
                yield rows.set_column(rows.schema.get_field_index(PARTIAL_BUFFER), PARTIAL_BUFFER, encoded)

        return run


def _partial_buffers(batch: pa.RecordBatch | pa.Table) -> list[PartialBuffer]:
    return [msgspec.msgpack.decode(each, type=PartialBuffer) for each in batch.column(PARTIAL_BUFFER).to_pylist()]


def _level(table: pa.Table, buckets: int) -> NDArray[np.int32]:
    """Return the buckets planned when the batch was sealed; keys without one go by hash."""
    planned = table[BUCKET].fill_null(_UNKNOWN).to_numpy()
    return np.where(planned >= 0, np.mod(planned, buckets), _by_hash(table, buckets)).astype(np.int32)


def _prompt(table: pa.Table, buckets: int) -> NDArray[np.int32]:
    """Allocate by algorithm 3: split keys by hash, then the largest cluster to the bucket with most room.

    A bucket that received a cluster waits for its next turn. The size of a cluster is its number of rows. Keys without
    a plan count as split.
    """
    keys, first, inverse = np.unique(table[FINGERPRINT].to_numpy(), return_index=True, return_inverse=True)
    sizes = np.ones(table.num_rows)
    if PARTIAL_BUFFER in table.column_names:
        sizes = np.array([each.rows for each in _partial_buffers(table)], dtype=np.float64)
    split = table[SPLIT].fill_null(fill_value=True).to_numpy()[first]
    clusters = np.bincount(inverse, sizes, len(keys))
    return np.asarray(prompt_buckets(keys, clusters, split, buckets)[inverse])


def _by_hash(table: pa.Table, buckets: int) -> NDArray[np.int32]:
    return np.asarray(np.mod(table[FINGERPRINT].to_numpy(), buckets), dtype=np.int32)


ALLOCATIONS: dict[str, Callable[[pa.Table, int], NDArray[np.int32]]] = {
    "level": _level,
    "prompt": _prompt,
    "hash": _by_hash,
}
"""How the clusters of a map task may be allocated to buckets."""
