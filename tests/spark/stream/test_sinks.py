"""Ready sinks, and what they do with a batch that comes again."""

from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from equipoise import DamagedError, FencedError, InvalidArgumentError, MismatchError, MissingPackageError
from equipoise.spark.stream import sinks
from equipoise.spark.stream.delivery import Delivery, deliver
from equipoise.spark.stream.outputs import FileOutputs
from equipoise.storage import Storage
from equipoise.storage.local_disk import LocalDisk

SCHEMA = pa.schema({"n": pa.int64(), "text": pa.string()})


def rows(spark, *values):
    return spark.createDataFrame([(value, f"text {value}") for value in values], "n long, text string")


def no_rows():
    raise AssertionError("the files are copied, without Spark")


class Checkpoint:
    """Makes deliveries of batches whose files are committed below a folder."""

    def __init__(self, folder, spark=None):
        self.storage, self.spark = Storage(str(folder)), spark

    def batch(self, number, *files):
        """A batch with a file for each list of values."""
        made = []
        for values in files:
            with FileOutputs(self.storage, number + 1, SCHEMA, "UTC") as output:
                output.add_table(pa.table([list(values), [f"text {value}" for value in values]], schema=SCHEMA))
                made += output.finish()
        empty = no_rows if self.spark is None else lambda: rows(self.spark)
        return Delivery(number, 1, self.storage, made, no_rows, empty, check=lambda: None)


@pytest.fixture
def checkpoint(tmp_path):
    """Without a session: whatever asks for rows fails."""
    return Checkpoint(tmp_path / "cp")


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_parquet_files_lie_directly_below_the_path_and_no_spark_job_runs(checkpoint, spark, tmp_path):
    sink = sinks.parquet(f"{tmp_path}/out/", compression="ZSTD")
    for delivery in (checkpoint.batch(0, [1, 2], [3]), checkpoint.batch(1), checkpoint.batch(2, [4])):
        deliver(sink, delivery)
    names = [f"part-{0:020d}-00000.parquet", f"part-{0:020d}-00001.parquet", f"part-{2:020d}-00000.parquet"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    found = spark.read.parquet(f"{tmp_path}/out")
    assert found.schema == rows(spark).schema
    assert sorted(map(tuple, found.collect())) == [(value, f"text {value}") for value in (1, 2, 3, 4)]


def test_a_batch_that_comes_again_changes_nothing(checkpoint, tmp_path):
    batches = [checkpoint.batch(0, [1, 2], [3]), checkpoint.batch(1, [4], [5], [6], [7], [8], [9])]
    for batch in batches:
        deliver(sinks.parquet(f"{tmp_path}/out"), batch)
    before = contents(tmp_path / "out")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    for batch in [*batches, *batches]:
        deliver(sinks.parquet(f"{tmp_path}/out"), batch)
    assert contents(tmp_path / "out") == before
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == times


def test_a_copy_that_exists_is_synced_since_its_writer_may_have_died_before_it_did(checkpoint, tmp_path, monkeypatch):
    batch = checkpoint.batch(0, [1], [2])
    deliver(sinks.parquet(f"{tmp_path}/out"), batch)
    synced = []
    monkeypatch.setattr(LocalDisk, "sync", lambda _, path: synced.append(path))
    deliver(sinks.parquet(f"{tmp_path}/out"), batch)
    assert sorted(synced) == sorted(str(path) for path in (tmp_path / "out").iterdir())


def test_half_a_batch_is_completed(checkpoint, tmp_path):
    batch = checkpoint.batch(0, [1], [2], [3])
    deliver(sinks.parquet(f"{tmp_path}/out"), batch)
    before = contents(tmp_path / "out")
    (tmp_path / "out" / f"part-{0:020d}-00001.parquet").unlink()
    (tmp_path / "out" / f".part-{0:020d}-00001.parquet.half.tmp").write_bytes(b"of a driver that was killed")
    (tmp_path / "out" / ".another.tmp").write_bytes(b"of somebody else")
    deliver(sinks.parquet(f"{tmp_path}/out"), batch)
    assert contents(tmp_path / "out") == before | {".another.tmp": b"of somebody else"}


def test_a_driver_that_was_taken_over_does_not_delete_the_half_copy_of_its_successor(
    checkpoint, spark, tmp_path, table
):
    def taken_over():
        raise FencedError("another query has taken over")

    half = [tmp_path / "out" / f".part-{0:020d}-00000.parquet.half.tmp", tmp_path / "table/batch=0/.part-0.half.tmp"]
    for path in half:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"of the successor")
    late = replace(checkpoint.batch(0, [1]), check=taken_over, empty=lambda: rows(spark))
    into_table = sinks.table(table, path=f"{tmp_path}/table")
    for sink in (sinks.parquet(f"{tmp_path}/out"), into_table):
        with pytest.raises(FencedError):
            deliver(sink, late)
    assert all(path.read_bytes() == b"of the successor" for path in half)
    deliver(into_table, replace(late, check=lambda: None))
    assert not half[1].exists()


@pytest.mark.parametrize("data", [b"", b"other bytes"])
def test_another_file_in_the_place_of_a_part_is_an_error_and_stays(checkpoint, tmp_path, data):
    batch = checkpoint.batch(0, [1])
    taken = tmp_path / "out" / f"part-{0:020d}-00000.parquet"
    taken.parent.mkdir()
    taken.write_bytes(data)
    with pytest.raises(
        MismatchError, match=rf"{taken} exists with other bytes .*added or removed .*give the query a folder of its own"
    ):
        deliver(sinks.parquet(f"{tmp_path}/out"), batch)
    assert contents(tmp_path / "out") == {taken.name: data}


def test_a_damaged_output_is_not_delivered(checkpoint, tmp_path):
    batch = checkpoint.batch(0, [1, 2, 3])
    path = tmp_path / "cp" / batch.files[0].path
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(DamagedError, match=rf"{path.name} does not match the SHA-256 in its commit .*restore the file"):
        deliver(sinks.parquet(f"{tmp_path}/out"), batch)
    assert contents(tmp_path / "out") == {}


@pytest.mark.parametrize("make", [sinks.parquet, sinks.table])
@pytest.mark.parametrize(
    "options", [{"compression": "snappy"}, {"maxRecordsPerFile": 10}, {"compression": "zstd", "partitionBy": "k"}]
)
def test_an_option_that_a_copy_cannot_honour_is_refused_by_name(make, options):
    name, value = list(options.items())[-1]
    with pytest.raises(InvalidArgumentError, match=rf"cannot honour the option {name}={value!r}; leave it out, or use"):
        make("target", **options)


@pytest.fixture
def table(spark, tmp_path):
    name = f"table_{tmp_path.name}".lower()
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.parametrize("at", ["a path of its own", "the catalog's"])
def test_a_table_is_created_and_replays_are_harmless(spark, tmp_path, table, at):
    checkpoint = Checkpoint(tmp_path / "cp", spark)
    path = {"path": f"{tmp_path}/table"} if at == "a path of its own" else {}
    first, empty, second = checkpoint.batch(0, [1, 2], [3]), checkpoint.batch(1), checkpoint.batch(2, [4])
    for batch in (first, empty, second, second, first):
        deliver(sinks.table(table, **path), batch)
    expected = [(1, "text 1", 0), (2, "text 2", 0), (3, "text 3", 0), (4, "text 4", 2)]
    assert sorted(map(tuple, spark.table(table).collect())) == expected
    assert [row[0] for row in spark.sql(f"SHOW PARTITIONS {table}").collect()] == ["batch=0", "batch=2"]


def test_a_table_with_other_columns_is_refused(spark, tmp_path, table):
    spark.sql(f"CREATE TABLE {table} (n int, text string, batch bigint) USING parquet PARTITIONED BY (batch)")
    with pytest.raises(
        MismatchError, match=rf"{table} has the columns struct<n:int.*output with the batch is struct<n:big"
    ):
        deliver(sinks.table(table), Checkpoint(tmp_path / "cp", spark).batch(0, [1]))
    assert spark.table(table).count() == 0


def test_a_table_may_lie_below_any_path_and_is_checked_before_anything_is_committed(spark, tmp_path, table):
    checkpoint = Checkpoint(tmp_path / "cp", spark)
    place = f"{tmp_path}/it's a place"
    sink = sinks.table(table, path=place)
    sink.prepare(rows(spark))
    deliver(sink, checkpoint.batch(0, [1]))
    deliver(sinks.table(table), checkpoint.batch(1, [2]))
    assert sorted(map(tuple, spark.table(table).collect())) == [(1, "text 1", 0), (2, "text 2", 1)]
    with pytest.raises(
        MismatchError, match=rf"keeps its files in .*it's a place, and path is {tmp_path}/other; leave path"
    ):
        sinks.table(table, path=f"{tmp_path}/other").prepare(rows(spark))


def test_types_and_names_that_sql_would_need_quoted_are_taken(spark, table):
    odd = "`a b` struct<`c d`: int>, xs array<int>"
    schema = spark.createDataFrame([], odd).schema
    schema["xs"].dataType.containsNull = False
    for _ in range(2):
        sinks.table(table).prepare(spark.createDataFrame([], schema))
    assert spark.table(table).schema.simpleString() == "struct<a b:struct<c d:int>,xs:array<int>,batch:bigint>"


def test_an_output_column_of_the_name_of_the_partition_is_refused(spark, table):
    with pytest.raises(InvalidArgumentError, match=r"the output has a column 'batch', .*give that column another name"):
        sinks.table(table).prepare(spark.createDataFrame([], "n long, batch long"))
    assert not spark.catalog.tableExists(table)


def test_a_table_that_spark_cannot_create_is_refused(spark):
    for name, said in (("two words", "Syntax error"), ("missing_database.t", "`missing_database` cannot be found")):
        with pytest.raises(InvalidArgumentError, match=f"the table {name} cannot be created: .*{said}"):
            sinks.table(name).prepare(spark.createDataFrame([], "n long"))


def test_a_table_of_another_format_or_without_the_partition_is_refused(spark, tmp_path, table):
    checkpoint = Checkpoint(tmp_path / "cp", spark)
    spark.sql(f"CREATE TABLE {table} (n bigint, text string, batch bigint) USING json PARTITIONED BY (batch)")
    with pytest.raises(
        MismatchError, match=r"has the format 'json', .*use foreachBatch with a function of \(DataFrame, batch\)"
    ):
        deliver(sinks.table(table), checkpoint.batch(0, [1]))
    spark.sql(f"DROP TABLE {table}")
    spark.sql(f"CREATE TABLE {table} (n bigint, text string, batch bigint) USING parquet")
    with pytest.raises(MismatchError, match=rf"{table} is partitioned by nothing.*by batch"):
        deliver(sinks.table(table), checkpoint.batch(0, [1]))
    assert spark.table(table).count() == 0
    for name in ("delta", "iceberg", "orc"):
        with pytest.raises(InvalidArgumentError, match=rf"cannot write a table of format '{name}'; use foreachBatch"):
            sinks.table(table, format=name)


SPARK_SCHEMA = StructType.fromJson(
    {
        "type": "struct",
        "fields": [
            {"name": "n", "type": "long", "nullable": True, "metadata": {}},
            {"name": "text", "type": "string", "nullable": True, "metadata": {}},
        ],
    }
)


def request(spark, form, target=None, name=None, schema=SPARK_SCHEMA, **options):
    return sinks.SinkRequest(spark, schema, form, target, options, name)


def test_columns_of_one_name_are_refused_where_files_are_written(spark, tmp_path):
    twice = StructType([StructField("n", LongType()), StructField("N", LongType())])
    for form in ("parquet", "table"):
        with pytest.raises(InvalidArgumentError, match=r"the output has the column 'n' twice, .*; rename one"):
            sinks.sink_of(request(spark, form, str(tmp_path), schema=twice))
    sinks.sink_of(request(spark, "console", schema=twice))


def test_an_unknown_format_is_refused_with_those_that_are_known(spark):
    with pytest.raises(
        InvalidArgumentError, match=r"cannot write the format 'orc'; it writes parquet, table, kafka, console, memory; "
    ):
        sinks.sink_of(request(spark, "orc", "out"))


def test_files_and_tables_are_formats(checkpoint, spark, tmp_path, table):
    deliver(sinks.sink_of(request(spark, "Parquet", f"{tmp_path}/out")), checkpoint.batch(0, [1]))
    deliver(sinks.sink_of(request(spark, "parquet", path=f"{tmp_path}/out")), checkpoint.batch(1, [2]))
    assert spark.read.parquet(f"{tmp_path}/out").count() == 2
    into = sinks.sink_of(request(spark, "table", table, path=f"{tmp_path}/table"))
    deliver(into, replace(checkpoint.batch(0, [1]), empty=lambda: rows(spark)))
    assert spark.table(table).count() == 1
    for wrong, message in [
        (request(spark, "parquet"), "needs a path"),
        (request(spark, "table"), "needs a name"),
        (request(spark, "parquet", "out", maxRecordsPerFile=1), "cannot honour the option maxRecordsPerFile=1"),
        (request(spark, "table", table, format="delta"), "cannot write a table of format 'delta'"),
    ]:
        with pytest.raises(InvalidArgumentError, match=message):
            sinks.sink_of(wrong)


def test_the_console_shows_each_batch_as_sparks_does(spark, capsys):
    sinks.sink_of(request(spark, "console", numRows="1", truncate="false"))(rows(spark, 1, 2), 7)
    shown = capsys.readouterr().out
    line = "-" * 43
    assert shown.startswith(f"{line}\nBatch: 7\n{line}\n+---+------+\n|n  |text  |\n")
    assert "|1  |text 1|" in shown
    assert "only showing top 1 row" in shown
    sinks.sink_of(request(spark, "console"))(rows(spark, 10**30 % 97), 0)
    assert "only showing" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("form", "target", "options", "message"),
    [
        ("console", "out", {}, "the format console has no path, got 'out'"),
        ("console", None, {"rows": 3}, "the format console has no option rows; it has numRows, truncate"),
        ("console", None, {"numRows": "many"}, "numRows must be a whole number"),
        ("console", None, {"truncate": 7}, "option truncate must be true or false, got 7"),
        ("memory", None, {"mode": "x"}, "the format memory has no option mode; it has none"),
        ("memory", None, {}, r"needs a name for its view; give queryName\(name\)"),
    ],
)
def test_what_the_console_and_the_memory_cannot_do_is_refused(spark, form, target, options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        sinks.sink_of(request(spark, form, target, **options))


def test_the_memory_is_a_view_in_which_a_batch_appears_once(spark):
    sink = sinks.sink_of(request(spark, "memory", name="delivered"))
    try:
        assert spark.table("delivered").schema == SPARK_SCHEMA
        assert spark.table("delivered").count() == 0
        for batch, values in [(0, [1, 2]), (1, []), (2, [3]), (2, [3])]:
            sink(rows(spark.newSession(), *values), batch)  # as in foreachBatch, which has a session of its own
        expected = [(1, "text 1"), (2, "text 2"), (3, "text 3")]
        assert sorted(map(tuple, spark.sql("SELECT * FROM delivered").collect())) == expected
    finally:
        spark.catalog.dropTempView("delivered")


MESSAGES = StructType.fromJson({"type": "struct", "fields": [
    {"name": "value", "type": "string", "nullable": True, "metadata": {}}]})  # fmt: skip
SERVERS = {"kafka.bootstrap.servers": "localhost:9"}
ONCE_OR_MORE = {"delivery": "at-least-once", "topic": "t", **SERVERS}


def test_kafka_is_written_only_by_those_who_accept_at_least_once(spark):
    for options in ({"topic": "t", **SERVERS}, {**ONCE_OR_MORE, "delivery": "exactly-once"}):
        with pytest.raises(
            InvalidArgumentError,
            match=r'does not write to Kafka exactly once yet: .*option\("delivery", "at-least-once"\), or write',
        ):
            sinks.sink_of(request(spark, "kafka", schema=MESSAGES, **options))


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        (MESSAGES, {"delivery": "at-least-once", "topic": "t"}, 'needs the option "kafka.bootstrap.servers"'),
        (MESSAGES, {"delivery": "at-least-once", **SERVERS}, r'needs a topic; give option\("topic", name\)'),
        (SPARK_SCHEMA, ONCE_OR_MORE, r"sends the column value, .* has struct<n:bigint,text:string>; select it first"),
        (MESSAGES, {**ONCE_OR_MORE, "acks": "all"}, r"has no option acks; it has topic, .*kafka\.\*"),
    ],
)
def test_kafka_needs_to_know_what_to_send_and_where(spark, schema, options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        sinks.sink_of(request(spark, "kafka", schema=schema, **options))


def test_a_missing_kafka_connector_is_named_before_the_query_starts(spark):
    with pytest.raises(MissingPackageError, match=r"no Kafka connector .*spark-sql-kafka-0-10_2.13:4") as raised:
        sinks.sink_of(request(spark, "kafka", schema=MESSAGES, **ONCE_OR_MORE))
    assert "data source" in str(raised.value.__cause__)


def test_rows_go_to_kafka_by_sparks_own_writer_without_our_option(spark, monkeypatch):
    monkeypatch.setattr(sinks, "_require_kafka", lambda *_: None)
    sent = []

    class Writer:
        def format(self, name):
            sent.append(name)
            return self

        def options(self, **options):
            sent.append(options)
            return self

        def save(self):
            sent.append("saved")

    class Rows:
        write = Writer()

    sinks.sink_of(request(spark, "kafka", schema=MESSAGES, **ONCE_OR_MORE))(Rows(), 3)
    assert sent == ["kafka", {"topic": "t", **SERVERS}, "saved"]
