"""Small feeds, and the two ways to run a processor over them: ours and Spark's own."""

import os
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from equipoise.spark import Aggregator, VectorAggregator, VectorProcessor, balance
from equipoise.spark.stream.delivery import FileSink
from equipoise.spark.stream.starting import start_query

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


class Feed:
    """A folder of Parquet files; each file is a micro-batch."""

    def __init__(self, spark, folder, schema):
        self.spark = spark
        self.folder = folder
        self.schema = schema
        self.files = 0
        folder.mkdir(parents=True)

    def add(self, *batches):
        for rows in batches:
            name = self.folder / f"{self.files:05d}.parquet"
            table = self.spark.createDataFrame(list(rows), self.schema).toArrow()
            pq.write_table(table, name.with_suffix(".writing"))
            os.utime(name.with_suffix(".writing"), (1_700_000_000 + self.files,) * 2)  # Spark goes by these times
            name.with_suffix(".writing").rename(name)
            self.files += 1
        return self

    def stream(self):
        reader = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return reader.option("pathGlobFilter", "*.parquet").parquet(str(self.folder))

    def table(self):
        return self.spark.read.schema(self.schema).parquet(str(self.folder))


class Collected:
    """A sink that remembers what it was given."""

    def __init__(self):
        self.batches = {}
        self.calls = []

    def __call__(self, df, batch):
        self.calls.append(batch)
        self.batches[batch] = in_order(df.collect())

    @property
    def rows(self):
        return [row for batch in sorted(self.batches) for row in self.batches[batch]]


def operated(
    stream,
    key,
    processor,
    schema,
    partitions=None,
    *,
    timeMode="none",  # noqa: N803 - Spark's own name
    initialState=None,  # noqa: N803 - Spark's own name
    form="pandas",
    **options,
):
    """``balance`` with the operator that fits the processor."""
    names = [key] if isinstance(key, str) else key
    groups = balance(stream, *names, numPartitions=partitions, **options)
    if isinstance(processor, Aggregator | VectorAggregator):
        return groups.aggregate(processor, schema, initialState)
    if isinstance(processor, VectorProcessor):
        return groups.process(processor, schema, initialState)
    operator = groups.transformWithState if form == "rows" else groups.transformWithStateInPandas
    return operator(processor, schema, "update", timeMode, initialState)


def begun(made, sink, checkpoint, trigger=None, name=None):
    """Start a query with a function or a sink for files."""
    if isinstance(sink, FileSink):
        return start_query(made._pipeline, sink, str(checkpoint), trigger or {}, name)
    writer = made.writeStream.outputMode("update").foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    writer = writer.trigger(**trigger) if trigger else writer
    return (writer.queryName(name) if name else writer).start()


def in_order(rows):
    return sorted(rows, key=repr)


@contextmanager
def set_conf(spark, **settings):
    """Settings of the session, for a while; ``__`` stands for a dot."""
    names = {name.replace("__", "."): value for name, value in settings.items()}
    before = {name: spark.conf.get(name, None) for name in names}
    try:
        for name, value in names.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


@pytest.fixture
def conf(spark):
    return lambda **settings: set_conf(spark, **settings)


@pytest.fixture
def feed(spark, tmp_path):
    def make(schema, *batches, name="in"):
        return Feed(spark, tmp_path / name, schema).add(*batches)

    return make


@pytest.fixture
def collected():
    return Collected()


@pytest.fixture(scope="session")
def keyed():
    return operated


@pytest.fixture(scope="session")
def begin():
    return begun


@pytest.fixture
def ours(tmp_path):
    """Run a processor to the end of a feed; gives what the sink got, by batch."""

    def run(stream, key, processor, schema, partitions=2, *, checkpoint="checkpoint", sink=None, **options):
        sink = sink or Collected()
        made = operated(stream, key, processor, schema, partitions, tailGroups=8, **options)
        begun(made, sink, tmp_path / checkpoint, {"availableNow": True}).awaitTermination()
        return sink

    run.checkpoint = str(Path(tmp_path) / "checkpoint")
    return run


@pytest.fixture
def sparks(spark, tmp_path):
    """The same by ``transformWithStateInPandas``, or by ``transformWithState`` for a processor of ``form`` rows."""

    def run(
        stream,
        key,
        processor,
        schema,
        *,
        timeMode="none",  # noqa: N803 - Spark's own name
        initialState=None,  # noqa: N803 - Spark's own name
        checkpoint="sparks",
        partitions=2,
        form="pandas",
    ):
        sink = Collected()
        names = [key] if isinstance(key, str) else key
        initial = None if initialState is None else initialState.groupBy(*names)
        with set_conf(spark, **{PROVIDER: ROCKSDB, "spark.sql.shuffle.partitions": str(partitions)}):
            operator = "transformWithState" if form == "rows" else "transformWithStateInPandas"
            made = getattr(stream.groupBy(*names), operator)(
                processor, outputStructType=schema, outputMode="Update", timeMode=timeMode, initialState=initial
            )
            writer = made.writeStream.foreachBatch(sink).outputMode("update").trigger(availableNow=True)
            writer.option("checkpointLocation", str(tmp_path / checkpoint)).start().awaitTermination()
        return sink

    return run
