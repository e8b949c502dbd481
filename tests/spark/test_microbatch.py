# ruff: noqa: N815 - as Spark names schemas
"""Planned micro-batches on Spark: every tuple counts once, in totals and in windows, what cannot work is reported."""

import shutil
import sys
import threading
import time
from collections import Counter

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from equipoise import InvalidArgumentError, MismatchError
from equipoise.microbatch.spool import BUCKET, SPLIT, Spool, Tasks
from equipoise.spark import Aggregator, microbatch, read_batches, register
from equipoise.spark.prompt.map_reduce import ALLOCATIONS, MapReduce
from equipoise.spark.prompt.source import PlannedReader
from equipoise.spark.prompt.spool_client import SpoolClient
from equipoise.spark.rows.columns import FINGERPRINT, GROUP, PARTIAL_BUFFER
from equipoise.spark.rows.keyed_frames import PartialBuffer
from equipoise.spark.stream.starting import _Reporting
from equipoise_lab.bench.prompt import _batch_spec

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules

INTERVAL, ROWS = 0.5, 3000


class Count(Aggregator):
    bufferSchema = "n bigint"

    def zero(self):
        return (0,)

    def reduce(self, buffer, rows):
        assert list(rows.columns) in (["word", "n"], ["word", "n", "twice"])  # no column of ours
        return (buffer[0] + len(rows),)

    def merge(self, one, other):
        return (one[0] + other[0],)

    def finish(self, key, buffer):
        return (*key, buffer[0])


class Invertible(Count):
    def inverse(self, whole, part):
        return (whole[0] - part[0],)


class NoMerge(Count):
    merge = Aggregator.merge


@pytest.fixture
def words(tmp_path):
    keys = [f"w{k}" for k in np.random.default_rng(0).zipf(1.4, ROWS) % 300]
    keys[5] = None
    pq.write_table(pa.table({"word": keys, "n": list(range(ROWS))}), tmp_path / "words.parquet")
    return keys


def source(spark, folder, **options):
    register(spark)
    given = {
        "schema": "word string, n bigint", "key": "word", "spool": str(folder / "spool"), "feed": "replay",
        "path": str(folder / "words.parquet"), "rate": 4000, "interval": INTERVAL, "blocks": 3, "buckets": 2,
    }  # fmt: skip
    reader = spark.readStream.format("equipoise")
    for name, value in (given | options).items():
        reader = reader.option(name, value)
    return reader.load()


def outputs(folder):
    return (
        [tuple(row.values()) for row in pq.read_table(folder / "out").to_pylist()] if (folder / "out").exists() else []
    )


def sink_to(folder):
    def sink(df, batch):
        rows = df.collect()
        (folder / "out").mkdir(exist_ok=True)
        if rows:
            table = pa.table({"word": [r[0] for r in rows], "n": [r[1] for r in rows], "batch": [batch] * len(rows)})
            pq.write_table(table, folder / f"{batch:06d}.tmp")
            (folder / f"{batch:06d}.tmp").rename(folder / "out" / f"{batch:06d}.parquet")

    return sink


def begin(made, folder, checkpoint="cp", **trigger):
    writer = made.writeStream.foreachBatch(sink_to(folder)).option("checkpointLocation", str(folder / checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


def run(query, folder, done, restart=None):
    """Run until ``done`` says so; with ``restart``, the query is stopped once on the way."""
    running = begin(query(), folder)
    until = time.monotonic() + 120
    while not done():
        if running.exception() is not None:
            raise running.exception()
        assert time.monotonic() < until
        if restart is not None and len(outputs(folder)) > 0:
            running.stop()
            restart = None
            running = begin(query(), folder)
        time.sleep(0.1)
    return running


def drained(folder, rows=ROWS):
    def done():
        found = Counter()
        for word, n, _ in sorted(outputs(folder), key=lambda row: row[2]):
            found[word] = n
        return sum(found.values()) == rows

    return done


@pytest.mark.parametrize("combine", [True, pytest.param(False, marks=pytest.mark.long)])
def test_running_totals_count_every_tuple_once_also_after_a_restart(spark, tmp_path, words, combine):
    def query():
        stream = source(spark, tmp_path)
        options = {"spool": str(tmp_path / "spool"), "interval": INTERVAL, "combine": combine}
        return microbatch(
            stream, "word", reduce=Count(), outputStructType="word string, n bigint", numPartitions=3, **options
        )

    running = run(query, tmp_path, drained(tmp_path), restart=True)
    state = {row.word: row.buffer.n if "buffer" in row else row.n for row in running.state().collect()}
    running.stop()
    assert state == Counter(words)
    batches = read_batches(str(tmp_path / "spool"), spark=spark).orderBy("batch").collect()
    assert sum(row.rows for row in batches) == ROWS
    assert {row.buckets for row in batches} == {2}
    assert any(row.split_keys for row in batches)
    assert any(row.load is not None for row in batches)


@pytest.mark.parametrize(
    "aggregator",
    [pytest.param(Count(), id="merged anew", marks=pytest.mark.long), pytest.param(Invertible(), id="by the inverse")],
)
def test_a_sliding_window_counts_every_tuple_in_as_many_results_as_it_is_long(spark, tmp_path, words, aggregator):
    length = 3

    def query():
        stream = source(spark, tmp_path)
        windows = {"window": length * INTERVAL, "slide": INTERVAL}
        options = {"spool": str(tmp_path / "spool"), "interval": INTERVAL}
        return microbatch(
            stream,
            "word",
            reduce=aggregator,
            outputStructType="word string, n bigint",
            numPartitions=3,
            **options,
            **windows,
        )

    running = run(query, tmp_path, lambda: sum(n for _, n, _ in outputs(tmp_path)) == length * ROWS)
    until = time.monotonic() + 120
    while running.state().count():  # what fell out of the window is gone with the next batch
        assert time.monotonic() < until
    running.stop()
    found = Counter()
    for word, n, _ in outputs(tmp_path):
        found[word] += n
    assert found == Counter({word: length * n for word, n in Counter(words).items()})


@pytest.mark.parametrize(("length", "slide"), [(2, 2), pytest.param(4, 2, marks=pytest.mark.long)])
def test_a_result_is_of_the_batches_of_its_window(spark, tmp_path, words, length, slide):
    def query():
        stream = source(spark, tmp_path, rate=1500)
        windows = {"window": length * INTERVAL, "slide": slide * INTERVAL}
        options = {"spool": str(tmp_path / "spool"), "interval": INTERVAL}
        return microbatch(
            stream,
            "word",
            reduce=Invertible(),
            outputStructType="word string, n bigint",
            numPartitions=3,
            **options,
            **windows,
        )

    run(query, tmp_path, lambda: sum(n for _, n, _ in outputs(tmp_path)) == ROWS * length // slide).stop()
    found = {}
    for word, n, batch in outputs(tmp_path):
        found.setdefault(batch, Counter())[word] += n
    sizes = [row.rows for row in read_batches(str(tmp_path / "spool"), spark=spark).orderBy("batch").collect()]
    starts = np.cumsum([0, *sizes])
    expected = [Counter(words[starts[max(0, end - length)] : starts[end]]) for end in range(slide, len(starts), slide)]
    assert [each for _, each in sorted(found.items())] == [each for each in expected if each]


@pytest.mark.usefixtures("words")
def test_a_map_keeps_or_drops_our_columns_and_the_result_is_the_same(spark, tmp_path):
    def query():
        stream = source(spark, tmp_path, method="prompt")

        def twice(rows):
            assert {BUCKET, SPLIT} <= set(rows.columns)
            return rows.select("word", "n", F.explode(F.array(F.lit(1), F.lit(2))).alias("twice"))

        return microbatch(
            stream,
            "word",
            reduce=Count(),
            outputStructType="word string, n bigint",
            numPartitions=2,
            map=twice,
            interval=INTERVAL,
            buckets=2,
        )

    run(query, tmp_path, drained(tmp_path, 2 * ROWS)).stop()


def test_the_source_alone_gives_the_tuples(spark, tmp_path, words):
    writer = source(spark, tmp_path).drop(BUCKET, SPLIT).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(processingTime="500 milliseconds")
    query = writer.start(str(tmp_path / "plain"))
    until = time.monotonic() + 120
    (tmp_path / "plain").mkdir(exist_ok=True)  # the query makes it with its first batch
    while spark.read.schema("word string, n bigint").parquet(str(tmp_path / "plain")).count() < ROWS:
        assert query.exception() is None
        assert time.monotonic() < until
        time.sleep(0.3)
    query.stop()
    rows = spark.read.parquet(str(tmp_path / "plain")).orderBy("n").collect()
    assert [(row.word, row.n) for row in rows] == list(zip(words, range(ROWS), strict=True))


@pytest.mark.long
def test_a_function_is_a_feed(spark, tmp_path):
    def numbers(position):
        at = position or 0
        return None if at >= 500 else ([{"word": str(at % 7), "n": at + i} for i in range(50)], at + 50)

    register(spark, numbers=numbers)

    def query():
        stream = spark.readStream.format("equipoise").options(
            schema="word string, n bigint", key="word", spool=str(tmp_path / "spool"), feed="numbers", interval=INTERVAL
        )
        return microbatch(
            stream.load(),
            "word",
            reduce=Count(),
            outputStructType="word string, n bigint",
            numPartitions=2,
            interval=INTERVAL,
        )

    run(query, tmp_path, drained(tmp_path, 500)).stop()


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"key": "no"}, "no key column 'no'"),
        ({"feed": "pigeon"}, "feed must be one of socket"),
        ({"blocks": "many"}, "option blocks must be a number"),
        ({"nonsense": "1"}, "has no option nonsense"),
        ({"interval": "soon"}, "interval must be"),
        ({"spool": "s3://bucket/spool"}, "can append and sync"),
    ],
)
@pytest.mark.usefixtures("words")
def test_options_that_cannot_be_are_reported(spark, tmp_path, options, reported):
    def start():
        source(spark, tmp_path, **options).writeStream.format("noop").start().awaitTermination(240)

    with pytest.raises(Exception, match=reported):  # Spark wraps it in one of several
        start()


def test_a_source_without_schema_or_spool_is_reported(spark):
    register(spark)
    with pytest.raises(AnalysisException, match="needs the option schema"):
        spark.readStream.format("equipoise").load()
    with pytest.raises(InvalidArgumentError, match="name of a built-in feed"):
        register(spark, socket=print)


def test_a_second_session_needs_another_name_for_the_format(spark):
    register(spark)
    second = spark.newSession()
    with pytest.raises(InvalidArgumentError, match=r"another session of this .* register\(spark, 'equipoise_2'\)"):
        register(second)
    register(second, "equipoise_2")
    reader = second.readStream.format("equipoise_2").option("schema", "word string")
    assert reader.load().columns[0] == "word"


@pytest.mark.usefixtures("words")
def test_queries_that_cannot_be_are_reported(spark, tmp_path):
    stream = source(spark, tmp_path)

    def made(reduce=None, **options):
        return microbatch(
            stream,
            "word",
            reduce=reduce or Count(),
            outputStructType="word string, n bigint",
            numPartitions=2,
            interval=INTERVAL,
            **options,
        )

    for options, reported in (
        ({"reduce": NoMerge()}, "Aggregator with a merge"),
        ({"window": 0.7}, "multiple of the interval"),
        ({"slide": 1}, "slide needs a window"),
        ({"window": 0.5, "slide": 1}, "skips rows"),
        ({"allocation": "best"}, "allocation must be one of"),
        ({"retain": 0}, "retain"),
        ({"spool": "s3://bucket/spool"}, "can append and sync"),
    ):
        with pytest.raises(InvalidArgumentError, match=reported):
            made(**options)
    late = stream.withColumn("at", F.timestamp_seconds("n")).withWatermark("at", "1 second")
    with pytest.raises(InvalidArgumentError, match="event time"):
        microbatch(late, "word", reduce=Count(), outputStructType="word string, n bigint", numPartitions=2)


@pytest.mark.parametrize(
    ("trigger", "reported"),
    [
        ({"processingTime": "5 seconds"}, "so the query would fall behind"),
        ({"processingTime": "600 milliseconds"}, "so the query would fall behind"),
        ({"availableNow": True}, "processes the available rows and ends"),
        ({"once": True}, "processes the available rows and ends"),
    ],
)
@pytest.mark.usefixtures("words")
def test_triggers_that_do_not_fit_the_interval_are_reported(spark, tmp_path, trigger, reported):
    query = microbatch(
        source(spark, tmp_path),
        "word",
        reduce=Count(),
        outputStructType="word string, n bigint",
        numPartitions=2,
        interval=INTERVAL,
    )
    for _ in range(2):  # the first has claimed nothing
        with pytest.raises(InvalidArgumentError, match=reported):
            begin(query, tmp_path, **trigger)


def test_triggers_that_fit_or_that_only_spark_can_read_are_let_through():
    for trigger in (
        {},
        {"processingTime": "500 milliseconds"},
        {"processingTime": "0 seconds"},
        {"availableNow": False},
    ):
        SpoolClient(INTERVAL).require_trigger(trigger)


@pytest.mark.usefixtures("words")
def test_source_and_query_with_different_intervals_are_reported(spark, tmp_path):
    stream = source(spark, tmp_path)
    for options, reported in (
        ({"interval": 1}, "give both the same interval"),
        ({"spool": str(tmp_path / "other")}, "no source uses the spool"),
    ):
        given = {"spool": str(tmp_path / "spool"), "interval": INTERVAL} | options
        query = microbatch(
            stream, "word", reduce=Count(), outputStructType="word string, n bigint", numPartitions=2, **given
        )
        running = begin(query, tmp_path, reported)
        with pytest.raises(Exception, match=reported):
            running.awaitTermination(240)


@pytest.fixture(autouse=True)
def _patient_receiver(monkeypatch):
    """Let a loaded machine seal batches late; with so short an interval that would be an error."""
    monkeypatch.setattr("equipoise.microbatch.receiver._LATE_BATCHES", 10**9)


def reader(folder, **options):
    given = {"spool": str(folder / "spool"), "key": "key", "feed": "generate", "rate": "1000", "interval": "0.1"}
    return PlannedReader(given | options, StructType([StructField("key", LongType())]), {})


def read_some(folder, batches):
    """Read so many batches more as Spark does; gives where the query is then."""
    source = reader(folder)
    offset = source.initialOffset()
    until = time.monotonic() + 120
    for _ in range(batches):
        while (end := source.latestOffset(offset, None)) == offset:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert source.partitions(offset, end)
        source.commit(end)
        offset = end
    source.stop()
    return offset


def assert_refused(folder, offset):
    """A spool is refused however often the query is started again, and takes nothing in before it is."""
    before = Spool(folder / "spool").sealed()
    for _ in range(3):
        again = reader(folder)
        try:
            for ask in (
                lambda: again.partitions(offset, offset),  # noqa: B023 - called at once
                lambda: again.latestOffset(offset, None),  # noqa: B023 - as above
            ):
                with pytest.raises(MismatchError, match="is another one, or was emptied, or is an older copy"):
                    ask()
            assert "equipoise-receive" not in {thread.name for thread in threading.enumerate()}
        finally:
            again.stop()
    assert Spool(folder / "spool").sealed() == before


def test_a_spool_that_was_emptied_is_reported_before_it_takes_anything(tmp_path):
    offset = read_some(tmp_path, 2)
    shutil.rmtree(tmp_path / "spool")
    assert_refused(tmp_path, offset)
    assert not (tmp_path / "spool").exists()


def test_another_spool_is_reported_also_where_it_has_more_batches(tmp_path):
    offset = read_some(tmp_path, 2)
    shutil.rmtree(tmp_path / "spool")
    read_some(tmp_path, 4)
    assert_refused(tmp_path, offset)


def test_an_older_copy_of_a_spool_is_reported(tmp_path):
    read_some(tmp_path, 1)
    shutil.copytree(tmp_path / "spool", tmp_path / "copy")
    offset = read_some(tmp_path, 8)
    shutil.rmtree(tmp_path / "spool")
    (tmp_path / "copy").rename(tmp_path / "spool")
    assert_refused(tmp_path, offset)


def test_one_batch_at_a_time_also_where_spark_does_not_say_where_it_is(tmp_path):
    first = reader(tmp_path)
    start = first.initialOffset()
    until = time.monotonic() + 120
    while first.reportLatestOffset()["batch"] < 4:
        assert time.monotonic() < until
        time.sleep(0.05)
    one, two = (start | {"batch": number} for number in (1, 2))
    assert first.latestOffset() == one
    first.partitions(start, one)
    assert first.latestOffset() == two
    first.stop()
    again = reader(tmp_path)  # it crashed before it wrote down that it was given the second
    again.partitions(start, one)
    assert again.latestOffset() == two
    again.stop()


def test_a_source_that_cannot_be_given_how_long_a_batch_took_stops_nothing(tmp_path, caplog):
    spool = Spool(tmp_path)
    spool.release(1)
    (tmp_path / "times").mkdir()
    done = []
    _Reporting(lambda _, batch: done.append(batch), SpoolClient(INTERVAL, str(tmp_path)))(None, 3)
    assert done == [3]
    assert "could not report the time of batch 3 to the source" in caplog.text


BUFFER = {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]}


class CountKeys(Count):
    def reduce(self, buffer, rows):
        return (buffer[0] + len(rows),)


@pytest.mark.parametrize("combine", [True, False])
def test_a_task_that_is_repeated_sends_the_same(combine):
    """Spark takes other rows of a repeated task for a failure."""
    map_reduce, batch_spec = MapReduce(CountKeys(), BUFFER, combine=combine), _batch_spec()
    keys = [1, 1, 1, 2, 3, 3]
    block = pa.record_batch(
        {
            "key": keys,
            BUCKET: pa.array([0] * 6, pa.int32()),
            SPLIT: [False] * 6,
            FINGERPRINT: keys,
            GROUP: pa.array([0] * 6, pa.int32()),
        }
    )

    def sent():
        mapped = list(map_reduce._map_task(batch_spec, 2)(iter([block])))
        both = pa.Table.from_batches(mapped * 2).sort_by("key").combine_chunks().to_batches()
        return mapped, list(map_reduce._reduce_task(batch_spec)(iter(both)))

    first, again = sent(), sent()
    assert first == again
    encoded = [each.as_py() for batch in first[1] for each in batch[PARTIAL_BUFFER]]
    made = [msgspec.msgpack.decode(each, type=PartialBuffer) for each in encoded]
    assert [each.rows for each in made] == [6, 2, 4]


def test_clusters_take_turns_and_are_as_large_as_their_rows():
    made = [PartialBuffer(b"x" * length, rows) for rows, length in ((10, 1), (1, 900), (1, 50), (1, 70))]
    table = pa.table(
        {
            FINGERPRINT: [1, 2, 3, 4],
            BUCKET: pa.array([0] * 4, pa.int32()),
            SPLIT: [False] * 4,
            PARTIAL_BUFFER: [msgspec.msgpack.encode(each) for each in made],
        }
    )
    assert ALLOCATIONS["prompt"](table, 2).tolist() == [0, 1, 1, 0]


def test_a_batch_is_reduced_in_the_buckets_that_it_was_planned_for(tmp_path):
    """Also where the source has changed their number since."""
    spool = Spool(tmp_path)
    spool.seal(0, [pa.table({"word": ["a"]})], None, {"buckets": 12})
    spool.set_tasks(Tasks(11, 11, INTERVAL))
    source = SpoolClient(INTERVAL, str(tmp_path))
    assert source.buckets() == 11, "nothing was handed out yet"
    spool.release(1)
    assert source.buckets() == 12
    spool.seal(1, [pa.table({"word": ["a"]})], None, {"buckets": 11})
    assert source.buckets() == 12, "the next one waits"
    spool.release(2)
    assert source.buckets() == 11
