"""A ``StatefulProcessor`` over a batch DataFrame gives the result of Spark, from one exchange."""

from ast import literal_eval

import pandas as pd
import pytest
from pyspark.errors import PythonException
from pyspark.sql import Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.testing.utils import assertDataFrameEqual

from equipoise import InvalidArgumentError
from equipoise.adapt import Policy
from equipoise.spark import balance

OUT = "k string, n long, total long, source string"
ROWS = [("a", 1, 5), ("b", 2, 7), ("a", 3, 9), (None, 4, 1), ("c", 5, 2), ("a", 6, 3), (None, 7, 8)]
BEFORE = [("a", 100), ("z", 200), (None, 300), ("a", 400)]


class Sums(StatefulProcessor):
    """Adds up the rows of a key and its initial state; timers give what the state holds when they fire."""

    def __init__(self, form, timers=()):
        self.form = form
        self.timers = timers

    def init(self, handle):
        self.handle = handle
        self.state = handle.getValueState("sums", "n long, total long")

    def handleInitialState(self, key, initialState, timerValues):  # noqa: ARG002, N802, N803 - Spark's own names
        before = initialState["before"] if self.form == "rows" else int(initialState["before"].sum())
        self.add(1, before)

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803 - Spark's own names
        for each in rows:
            self.add(1, each.v) if self.form == "rows" else self.add(len(each), int(each["v"].sum()))
        for timer in self.timers:
            base = max(timerValues.getCurrentProcessingTimeInMs(), 0)
            self.handle.registerTimer(timer if timer >= 0 else base - timer)
        yield self.row(key, f"rows at {timerValues.getCurrentWatermarkInMs()}")

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):  # noqa: N802, N803 - Spark's own names
        yield self.row(key, f"timer {expiredTimerInfo.getExpiryTimeInMs()} at {timerValues.getCurrentWatermarkInMs()}")

    def close(self):
        pass

    def add(self, rows, total):
        n, before = self.state.get() or (0, 0)
        self.state.update((n + rows, before + total))

    def row(self, key, source):
        made = {"k": key[0], "n": self.state.get()[0], "total": self.state.get()[1], "source": source}
        return Row(**made) if self.form == "rows" else pd.DataFrame([made])


@pytest.fixture(scope="module")
def df(spark):
    return spark.createDataFrame(ROWS, "k string, v long, w int")


def both(df, form, processor, *arguments, **options):
    operator = "transformWithState" if form == "rows" else "transformWithStateInPandas"
    groups = balance(df, "k", numPartitions=3, **options)
    return getattr(groups, operator)(processor, *arguments), getattr(df.groupBy("k"), operator)(processor, *arguments)


@pytest.mark.parametrize("form", ["pandas", "rows"])
@pytest.mark.parametrize("mode", ["None", "ProcessingTime", "EventTime"])
def test_a_processor_gives_the_rows_of_spark(df, form, mode):
    timers = () if mode == "None" else (0, 1000, -1_000_000)
    mine, theirs = both(df, form, Sums(form, timers), OUT, "Update", mode)
    assert mine.count() == (12 if mode == "ProcessingTime" else 4)
    assert mine.schema == theirs.schema
    assertDataFrameEqual(mine, theirs)


@pytest.mark.parametrize("form", ["pandas", "rows"])
def test_initial_state_comes_before_the_rows_as_in_spark(spark, df, form):
    before = spark.createDataFrame(BEFORE, "k string, before long")
    mine, theirs = both(df, form, Sums(form, (0,)), OUT, "append", "ProcessingTime", before.groupBy("k"))
    found = {(row.k, row.total) for row in mine.collect()}
    assert found == {("a", 510), ("b", 2), ("c", 5), (None, 311)}
    assertDataFrameEqual(mine, theirs)


@pytest.mark.parametrize(
    "options", [{"placement": "hash"}, {"policy": Policy(mode="observe")}, {"policy": Policy(mode="advise")}]
)
def test_the_result_is_the_same_under_plain_hash(spark, df, options):
    before = spark.createDataFrame(BEFORE, "k string, before long")
    mine, theirs = both(df, "pandas", Sums("pandas"), OUT, "Update", "None", before.groupBy("k"), **options)
    assertDataFrameEqual(mine, theirs)


def test_a_watermark_drops_no_rows_of_a_batch(df):
    timed = df.withColumn("t", F.timestamp_seconds("v")).withWatermark("t", "0 seconds")
    mine, theirs = both(timed, "pandas", Sums("pandas", (0, 1000)), OUT, "Update", "EventTime")
    assert sorted(row.n for row in mine.collect()) == [1, 1, 2, 3]
    assertDataFrameEqual(mine, theirs)


def test_rows_and_initial_state_cross_one_exchange(spark, df, capsys):
    before = spark.createDataFrame(BEFORE, "k string, before long").select("before", "k")
    made = balance(df, "k", numPartitions=3).transformWithStateInPandas(Sums("pandas"), OUT, "Update", "None", before)
    made.explain()
    assert capsys.readouterr().out.count("Exchange ") == 1
    assert {row.k: row.total for row in made.collect()} == {"a": 510, "b": 2, "c": 5, None: 311}
    assert made.rdd.getNumPartitions() == 3


def test_a_key_of_many_record_batches_is_one_key(spark):
    rows = spark.range(25_000).select(F.lit("hot").alias("k"), F.col("id").alias("v"))
    mine, _ = both(rows, "pandas", Sums("pandas"), OUT, "Update", "None")
    assert [(row.k, row.n, row.total) for row in mine.collect()] == [("hot", 25_000, 25_000 * 24_999 // 2)]


class Frames(Sums):
    """Gives the lengths of the frames of a key."""

    def handleInputRows(self, key, rows, timerValues):  # noqa: ARG002, N802, N803 - Spark's own names
        yield pd.DataFrame({"k": [key[0]], "n": [0], "total": [0], "source": [str([len(each) for each in rows])]})


def test_frames_of_a_batch_have_the_bytes_that_spark_allows(spark, conf):
    """All buckets of a task are slices of one record batch, whose buffers are not those of a frame."""
    rows = spark.range(640).selectExpr("concat('key-', id % 32) AS k", "id AS v", "1 AS w").coalesce(1)
    with conf(spark__sql__execution__arrow__maxBytesPerBatch="800"):
        ours, _ = both(rows, "pandas", Frames("pandas"), OUT, "update", "none")
        lengths = {tuple(literal_eval(row.source)) for row in ours.collect()}
    assert {sum(each) for each in lengths} == {20}
    assert all(min(each[:-1], default=20) >= 8 for each in lengths), lengths


def test_an_empty_batch_has_an_empty_result(df):
    mine, _ = both(df.where("false"), "pandas", Sums("pandas"), OUT, "Update", "None", placement="hash")
    assert mine.collect() == []


class Failing(Sums):
    """Fails for one key."""

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803 - Spark's own names
        if key[0] == "b":
            raise ValueError("no b, please")
        yield from super().handleInputRows(key, rows, timerValues)


def test_an_error_of_the_processor_names_its_method_and_says_what_to_do(df):
    mine, _ = both(df, "pandas", Failing("pandas"), OUT, "Update", "None")
    with pytest.raises(PythonException) as raised:
        mine.collect()
    message = str(raised.value)
    assert "ValueError in Failing.handleInputRows" in message
    assert "no b, please" in message
    assert "Correct the function and run the job again. To see the key, filter the input with where(" in message
    assert "checkpoint" not in message


def test_bad_arguments_are_refused(spark, df):
    groups = balance(df, "k")

    def run(processor=Sums("pandas"), output=OUT, mode="update", times="none", initial=None):  # noqa: B008 - not changed
        return groups.transformWithStateInPandas(processor, output, mode, times, initial)

    with pytest.raises(InvalidArgumentError, match="statefulProcessor must be a StatefulProcessor, got the class Sums"):
        run(processor=Sums)
    with pytest.raises(InvalidArgumentError, match="outputMode 'complete'"):
        run(mode="complete")
    with pytest.raises(InvalidArgumentError, match="timeMode must be one of none, processingTime, eventTime"):
        run(times="sometimes")
    with pytest.raises(InvalidArgumentError, match="initialState lacks the key column 'k'"):
        run(initial=spark.createDataFrame([(1,)], "before long"))
    with pytest.raises(InvalidArgumentError, match=r"initialState has the key 'k' as bigint, .* as string"):
        run(initial=spark.createDataFrame([(1, 1)], "k long, before long"))
    with pytest.raises(InvalidArgumentError, match="'k' is computed"):
        balance(df, F.upper("k").alias("k")).transformWithState(Sums("rows"), OUT, "update", "none")
    with pytest.raises(InvalidArgumentError, match="applyInPandasWithState keeps state between micro-batches"):
        groups.applyInPandasWithState(None, OUT, "n long", "update", "NoTimeout")
