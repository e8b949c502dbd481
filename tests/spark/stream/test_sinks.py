"""Ready sinks, and what they do with a batch that comes again."""

from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from equipoise import DamagedError, FencedError, InvalidArgumentError, MismatchError
from equipoise.spark.stream.delivery import Delivery, deliver
from equipoise.spark.stream.formats import SinkRequest, make_sink
from equipoise.spark.stream.outputs import Outputs
from equipoise.spark.stream.sinks import console_sink, kafka_sink, parquet_sink, table_sink
from equipoise.storage import Storage

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
            with Outputs(self.storage, number + 1, SCHEMA, "UTC") as output:
                output.add_table(pa.table([list(values), [f"text {value}" for value in values]], schema=SCHEMA))
                made += output.finish()
        empty = no_rows if self.spark is None else lambda: rows(self.spark)
        return Delivery(number, self.storage, made, no_rows, empty, check=lambda: None)


@pytest.fixture
def checkpoint(tmp_path):
    """Without a session: whatever asks for rows fails."""
    return Checkpoint(tmp_path / "cp")


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_parquet_files_lie_directly_below_the_path_and_no_spark_job_runs(checkpoint, spark, tmp_path):
    sink = parquet_sink(f"{tmp_path}/out/", {"compression": "ZSTD"})
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
        deliver(parquet_sink(f"{tmp_path}/out", {}), batch)
    before = contents(tmp_path / "out")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    for batch in [*batches, *batches]:
        deliver(parquet_sink(f"{tmp_path}/out", {}), batch)
    assert contents(tmp_path / "out") == before
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()} == times


def test_half_a_batch_is_completed(checkpoint, tmp_path):
    batch = checkpoint.batch(0, [1], [2], [3])
    deliver(parquet_sink(f"{tmp_path}/out", {}), batch)
    before = contents(tmp_path / "out")
    (tmp_path / "out" / f"part-{0:020d}-00001.parquet").unlink()
    (tmp_path / "out" / f".part-{0:020d}-00001.parquet.half.tmp").write_bytes(b"of a driver that was killed")
    (tmp_path / "out" / ".another.tmp").write_bytes(b"of somebody else")
    deliver(parquet_sink(f"{tmp_path}/out", {}), batch)
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
    into_table = table_sink(table, {"path": f"{tmp_path}/table"})
    for sink in (parquet_sink(f"{tmp_path}/out", {}), into_table):
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
    with pytest.raises(MismatchError, match=rf"{taken} is there with other bytes .*give the query a folder of its own"):
        deliver(parquet_sink(f"{tmp_path}/out", {}), batch)
    assert contents(tmp_path / "out") == {taken.name: data}


def test_a_damaged_output_is_not_delivered(checkpoint, tmp_path):
    batch = checkpoint.batch(0, [1, 2, 3])
    path = tmp_path / "cp" / batch.files[0].path
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(DamagedError, match=rf"{path.name} does not match the SHA-256 in its commit .*restore the file"):
        deliver(parquet_sink(f"{tmp_path}/out", {}), batch)
    assert contents(tmp_path / "out") == {}


@pytest.mark.parametrize("make", [parquet_sink, table_sink])
@pytest.mark.parametrize(
    "options", [{"compression": "snappy"}, {"maxRecordsPerFile": "10"}, {"compression": "zstd", "partitionBy": "k"}]
)
def test_an_option_that_a_copy_cannot_honour_is_refused_by_name(make, options):
    name, value = list(options.items())[-1]
    with pytest.raises(
        InvalidArgumentError, match=rf"cannot honour the option {name}={value!r}; leave it out, or write"
    ):
        make("target", options)


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
        deliver(table_sink(table, path), batch)
    expected = [(1, "text 1", 0), (2, "text 2", 0), (3, "text 3", 0), (4, "text 4", 2)]
    assert sorted(map(tuple, spark.table(table).collect())) == expected
    assert [row[0] for row in spark.sql(f"SHOW PARTITIONS {table}").collect()] == ["batch=0", "batch=2"]


def test_a_table_with_other_columns_is_refused(spark, tmp_path, table):
    spark.sql(f"CREATE TABLE {table} (n int, text string, batch bigint) USING parquet PARTITIONED BY (batch)")
    with pytest.raises(
        MismatchError, match=rf"{table} has the columns struct<n:int.*output with the batch is struct<n:big"
    ):
        deliver(table_sink(table, {}), Checkpoint(tmp_path / "cp", spark).batch(0, [1]))
    assert spark.table(table).count() == 0


def test_a_table_may_lie_below_any_path_and_is_checked_before_anything_is_committed(spark, tmp_path, table):
    checkpoint = Checkpoint(tmp_path / "cp", spark)
    place = f"{tmp_path}/it's a place"
    sink = table_sink(table, {"path": place})
    sink.prepare(rows(spark))
    deliver(sink, checkpoint.batch(0, [1]))
    deliver(table_sink(table, {}), checkpoint.batch(1, [2]))
    assert sorted(map(tuple, spark.table(table).collect())) == [(1, "text 1", 0), (2, "text 2", 1)]
    with pytest.raises(
        MismatchError,
        match=rf"keeps its files in .*it's a place, and the option path is {tmp_path}/other; leave",
    ):
        table_sink(table, {"path": f"{tmp_path}/other"}).prepare(rows(spark))


def test_types_and_names_that_sql_would_need_quoted_are_taken(spark, table):
    odd = "`a b` struct<`c d`: int>, xs array<int>"
    schema = spark.createDataFrame([], odd).schema
    schema["xs"].dataType.containsNull = False
    for _ in range(2):
        table_sink(table, {}).prepare(spark.createDataFrame([], schema))
    assert spark.table(table).schema.simpleString() == "struct<a b:struct<c d:int>,xs:array<int>,batch:bigint>"


def test_an_output_column_of_the_name_of_the_partition_is_refused(spark, table):
    with pytest.raises(InvalidArgumentError, match=r"the output has a column 'batch', .*give that column another name"):
        table_sink(table, {}).prepare(spark.createDataFrame([], "n long, batch long"))
    assert not spark.catalog.tableExists(table)


def test_a_table_of_another_format_or_without_the_partition_is_refused(spark, tmp_path, table):
    checkpoint = Checkpoint(tmp_path / "cp", spark)
    spark.sql(f"CREATE TABLE {table} (n bigint, text string, batch bigint) USING json PARTITIONED BY (batch)")
    with pytest.raises(MismatchError, match=r"has the format 'json', .*write the rows of each batch with foreachBatch"):
        deliver(table_sink(table, {}), checkpoint.batch(0, [1]))
    spark.sql(f"DROP TABLE {table}")
    spark.sql(f"CREATE TABLE {table} (n bigint, text string, batch bigint) USING parquet")
    with pytest.raises(MismatchError, match=rf"{table} is partitioned by nothing.*by batch"):
        deliver(table_sink(table, {}), checkpoint.batch(0, [1]))
    assert spark.table(table).count() == 0


def test_a_format_that_is_not_there_is_refused_by_name():
    for name in ("delta", "iceberg", "orc"):
        with pytest.raises(InvalidArgumentError, match=rf"there is no format '{name}'; there are .*foreachBatch"):
            make_sink(SinkRequest(name, "target"))


def test_a_format_that_needs_a_target_is_refused_without_one():
    for name in ("parquet", "table"):
        with pytest.raises(InvalidArgumentError, match=rf"the format {name} needs a target; give it to start\(path\)"):
            make_sink(SinkRequest(name))


def test_the_console_shows_each_batch(spark, capsys):
    console_sink({"numRows": "1", "truncate": "false"})(rows(spark, 1, 2), 7)
    shown = capsys.readouterr().out
    assert "-------- batch 7 --------" in shown
    assert "|1  |text 1|" in shown
    assert "only showing top 1 row" in shown


def test_kafka_needs_to_know_where(spark):
    for servers, topic in (("", "t"), ("s:9092", "")):
        with pytest.raises(InvalidArgumentError, match=r"needs the options kafka\.bootstrap\.servers and topic"):
            kafka_sink({"kafka.bootstrap.servers": servers, "topic": topic})
    with pytest.raises(AnalysisException, match=r"(?i)failed to find data source: kafka"):
        kafka_sink({"kafka.bootstrap.servers": "localhost:9", "topic": "t"})(rows(spark, 1), 0)
