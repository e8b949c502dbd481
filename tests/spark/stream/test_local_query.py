"""A query without Spark gives what the same query gives on Spark, and its tasks may run as often as they like."""

import datetime as dt
import gc
import math
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import LongType, StringType, StructField, StructType

from equipoise import (
    FencedError,
    InvalidArgumentError,
    MismatchError,
    Plan,
    StorageError,
    UserFunctionError,
    failpoints,
)
from equipoise.adapt import Policy
from equipoise.spark import Aggregator, LocalQuery, VectorProcessor
from equipoise.spark.rows.routing import group_column
from equipoise.spark.stream import engine
from equipoise.spark.stream.local import LocalSchemas
from equipoise.spark.stream.local_jobs import LocalJobs, group_numbers, key_fingerprints
from equipoise.state.catch_up import Recent
from equipoise.state.entries import parse_entry
from equipoise.state.fencing import Epoch, claim
from equipoise.state.log import CommitLog
from equipoise.state.section_reader import SectionReader
from equipoise.state.state_dump import group_entries, local_states

ROWS = pa.schema({"k": pa.string(), "v": pa.int64()})
COUNTS = pa.schema({"k": pa.string(), "n": pa.int64(), "total": pa.int64()})
TIMED = pa.schema({"k": pa.string(), "ts": pa.timestamp("us", "UTC")})
BUFFER = StructType([StructField("n", LongType()), StructField("total", LongType())])
TEXT = StructType([StructField("text", StringType())])


class Sum(Aggregator):
    bufferSchema = BUFFER  # noqa: N815 - as Spark names schemas

    def zero(self):
        return 0, 0

    def reduce(self, buffer, rows):
        return buffer[0] + len(rows), buffer[1] + int(rows["v"].sum())

    def merge(self, one, other):
        return one[0] + other[0], one[1] + other[1]

    def finish(self, key, buffer):
        return *key, *buffer


class SumOfMany(VectorProcessor):
    stateSchema = BUFFER  # noqa: N815 - as Spark names schemas

    def process(self, batch):
        n = np.diff(batch.offsets) + pc.fill_null(batch.state["n"], 0).to_numpy()
        sums = np.add.reduceat(batch.rows["v"].to_numpy(), batch.offsets[:-1])
        total = sums + pc.fill_null(batch.state["total"], 0).to_numpy()
        batch.update(pa.table({"n": n, "total": total}))
        return pa.table({"k": batch.keys["k"], "n": n, "total": total})


class BatchSpec(StatefulProcessor):
    """Yields how many frames a key came in, and its values in the order they came."""

    def init(self, handle):
        self.text = handle.getValueState("text", TEXT)

    def handleInputRows(self, key, rows, timerValues):  # noqa: ARG002, N802, N803 - Spark's own name
        frames = [frame["v"].tolist() for frame in rows]
        text = (self.text.get() or ("",))[0] + "".join(str(v) for frame in frames for v in frame)
        self.text.update((text,))
        yield pd.DataFrame({"k": [key[0]], "text": [text], "frames": [len(frames)]})

    def close(self):
        pass


class Noting(BatchSpec):
    """Yields the name of its second variable, as often as its key had rows."""

    def __init__(self, variable):
        self.name = variable

    def init(self, handle):
        super().init(handle)
        self.notes = handle.getValueState(self.name, TEXT)

    def handleInputRows(self, key, rows, timerValues):  # noqa: ARG002, N802, N803 - Spark's own name
        list(rows)
        text = (self.notes.get() or ("",))[0] + self.name
        self.notes.update((text,))
        yield pd.DataFrame({"k": [key[0]], "text": [text], "frames": [1]})


class Alarm(StatefulProcessor):
    """An alarm for each row, an hour after its event or its processing."""

    def init(self, handle):
        self.handle = handle
        self.seen = handle.getValueState("seen", StructType([StructField("n", LongType())]))

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803 - Spark's own name
        n = sum(len(frame) for frame in rows)
        self.seen.update(((self.seen.get() or (0,))[0] + n,))
        now = max(timerValues.getCurrentWatermarkInMs(), timerValues.getCurrentProcessingTimeInMs() % 10**9)
        self.handle.registerTimer(now + 1000)
        yield pd.DataFrame({"k": [key[0]], "what": ["rows"], "at": [n]})

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):  # noqa: ARG002, N802, N803 - Spark's own name
        yield pd.DataFrame({"k": [key[0]], "what": ["alarm"], "at": [expiredTimerInfo.getExpiryTimeInMs()]})

    def close(self):
        pass


def summing(folder, processor=None, **options):
    return LocalQuery(processor or Sum(), "k", ROWS, COUNTS, str(folder), **options)


def frame(*rows):
    return pd.DataFrame(rows, columns=["k", "v"])


def found(output):
    return sorted(map(tuple, output.astype(object).where(output.notna(), None).to_numpy().tolist()), key=repr)


@pytest.mark.parametrize("processor", [Sum(), SumOfMany()])
@pytest.mark.parametrize("rows", [1, 2, 1000])
def test_keys_are_kept_from_batch_to_batch(tmp_path, processor, rows):
    query = summing(tmp_path, processor, batchRows=rows)
    first = query.process(frame(("a", 1), ("b", 2), ("a", 3), (None, 4)))
    if isinstance(processor, Sum):
        assert found(first) == [("a", 2, 4), ("b", 1, 2), (None, 1, 4)]
    query.process(frame(("a", 10), ("ü", 0)))
    name = "buffer" if isinstance(processor, Sum) else "state"
    assert query.state() == {
        ("a",): {name: (3, 14)},
        ("b",): {name: (1, 2)},
        (None,): {name: (1, 4)},
        ("ü",): {name: (1, 0)},
    }
    assert query.state(version=0) == {}
    assert query.batch == 2


def test_tasks_decode_the_latest_changes_of_the_key_groups_that_they_open_alone(tmp_path, monkeypatch):
    decoded, from_bytes = [], Recent.from_bytes
    query = summing(tmp_path, numPartitions=4, tailGroups=64, look="never")
    rows = frame(*((f"k{key}", 1) for key in range(500)))
    query.process(rows)
    groups = query._engine._progress.table.chains
    monkeypatch.setattr(Recent, "from_bytes", lambda data: decoded.append(data) or from_bytes(data))
    query.process(frame(("k1", 1), ("k1", 2)))
    assert (len(groups), len(decoded)) == (64, 1), "four tasks, of which one has rows"
    decoded.clear()
    query.process(rows)
    assert len(set(decoded)) == len(decoded) == 64, "each by its owner"


def test_a_batch_may_have_no_rows(tmp_path):
    query = summing(tmp_path)
    assert len(query.process(frame())) == 0
    assert query.process(frame()).columns.tolist() == ["k", "n", "total"]
    assert found(query.process(ROWS.empty_table())) == []


def test_rows_of_a_key_come_in_their_order_and_in_frames(tmp_path):
    output = pa.schema({"k": pa.string(), "text": pa.string(), "frames": pa.int64()})
    query = LocalQuery(BatchSpec(), "k", ROWS, output, str(tmp_path), orderBy="v", batchRows=3, numPartitions=1)
    assert found(query.process(frame(*(("a", 9 - v) for v in range(10))))) == [("a", "0123456789", 4)]
    assert found(query.process(frame(("a", 2), ("a", 1)))) == [("a", "012345678912", 1)]


def test_a_new_query_goes_on_where_the_last_ended(tmp_path):
    with summing(tmp_path) as query:
        query.process(frame(("a", 1)))
    query = summing(tmp_path, numPartitions=7)
    assert query.batch == 1
    assert found(query.process(frame(("a", 1)))) == [("a", 2, 2)]
    assert found(query.process(frame(("a", 1)))) == [("a", 3, 3)]
    assert query.plan.partitions == 7


def test_overrides_are_followed(tmp_path):
    query = summing(tmp_path, numPartitions=4)
    query.process(frame(("a", 1)))
    query.rescale(2)
    query.process(frame(("a", 1)))
    assert query.plan.partitions == 2
    query.rollback(0)
    query.process(frame(("a", 1)))
    assert (query.plan.partitions, query.plan.version, query.plan.reason) == (4, 2, "plan 0 was asked for")
    assert query.pin().version == 2
    query.plain_hash()
    query.unpin()
    assert found(query.process(frame(("a", 1)))) == [("a", 4, 4)]
    with pytest.raises(InvalidArgumentError, match="there is no plan 9; there are 0, 1, 2"):
        query.rollback(9)
    with pytest.raises(InvalidArgumentError, match="exceeds the 256 tail groups"):
        query.rescale(1000)


def test_the_cache_of_a_key_group_that_ceased_is_deleted(tmp_path):
    query = summing(tmp_path / "query", cache=str(tmp_path / "cache"), numPartitions=2, policy=Policy(load="rows"))
    hot = frame(*[("a", 1)] * 1200, *((f"k{i}", 1) for i in range(800)))

    def cached():
        return [path.name for path in (tmp_path / "cache").glob("*/*/groups/k*")]

    for _ in range(3):
        query.process(hot)
    assert cached()
    query.plain_hash()
    for _ in range(3):
        query.process(hot)
    assert cached() == []
    assert found(query.process(frame(("a", 1)))) == [("a", 7201, 7201)]


def test_event_time_drops_late_rows_and_fires_alarms(tmp_path):
    output = pa.schema({"k": pa.string(), "what": pa.string(), "at": pa.int64()})
    query = LocalQuery(Alarm(), "k", TIMED, output, str(tmp_path), timeMode="eventTime", watermark=("ts", "10 seconds"))

    def run(*seconds):
        at = [pd.Timestamp(second, unit="s") for second in seconds]
        return found(query.process(pd.DataFrame({"k": ["a"] * len(at), "ts": pd.Series(at, dtype="datetime64[us]")})))

    first = run(100, 50)
    assert first == [("a", "rows", 2)]
    alarm = query.state()[("a",)]["timers"]
    run(1000 + alarm[0] // 1000, 95)  # the watermark is 90 s now, but rows are late by the one before
    fired = run()
    assert ("a", "alarm", alarm[0]) in fired
    assert run(20) == []  # late
    assert query.state()[("a",)]["seen"] == (4,)


def test_processing_time_is_the_clock_that_was_given(tmp_path):
    now = [5000]
    output = pa.schema({"k": pa.string(), "what": pa.string(), "at": pa.int64()})
    query = LocalQuery(Alarm(), "k", ROWS, output, str(tmp_path), timeMode="processingTime", clock=lambda: now[0])
    assert found(query.process(frame(("a", 1)))) == [("a", "rows", 1)]
    now[0] = 5999
    assert found(query.process(frame())) == []
    now[0] = 6000
    assert found(query.process(frame())) == [("a", "alarm", 6000)]


def test_initial_state_is_taken_once(tmp_path):
    given = pd.DataFrame({"k": ["a", "b"], "n": [10, 20], "total": [100, 200]})
    query = summing(tmp_path, initialState=given)
    assert query.state() == {("a",): {"buffer": (10, 100)}, ("b",): {"buffer": (20, 200)}}
    assert found(query.process(frame(("a", 1)))) == [("a", 11, 101)]
    query = summing(tmp_path, initialState=given)
    assert query.state()[("a",)] == {"buffer": (11, 101)}
    with pytest.raises(InvalidArgumentError, match="initialState has no column 'k'"):
        summing(tmp_path / "other", initialState=given.drop(columns="k"))
    with pytest.raises(InvalidArgumentError, match="initialState lacks the column 'n' of the state; it has k, total"):
        summing(tmp_path / "other", initialState=given.drop(columns="n"))
    query = summing(tmp_path / "turned", initialState=given[["total", "n", "k"]])
    assert query.state()[("a",)] == {"buffer": (10, 100)}


NESTED = pa.schema(
    {
        "d": pa.float64(),
        "n": pa.int64(),
        "m": pa.map_(pa.string(), pa.int64()),
        "s": pa.struct({"x": pa.int64(), "at": pa.timestamp("us", "UTC")}),
    }
)


class Reminder(Alarm):
    """The initial state sets an alarm that is due at once, and one that is not."""

    def handleInitialState(self, key, initialState, timerValues):  # noqa: ARG002, N802, N803 - Spark's own name
        self.handle.registerTimer(1)
        self.handle.registerTimer(9_000)


def test_alarms_of_the_initial_state_go_off_in_the_first_batch(tmp_path):
    schema = pa.schema({"k": pa.string(), "what": pa.string(), "at": pa.int64()})
    initial = pd.DataFrame({"k": ["a", "b"]})
    options = {"timeMode": "processingTime", "initialState": initial, "clock": lambda: 5_000}
    query = LocalQuery(Reminder(), "k", ROWS, schema, str(tmp_path), **options)
    assert query.state()[("a",)]["timers"] == [1, 9_000]
    assert found(query.process(frame(("c", 1)))) == [("a", "alarm", 1), ("b", "alarm", 1), ("c", "rows", 1)]
    assert query.state()[("a",)]["timers"] == [9_000]


class Nested(Aggregator):
    bufferSchema = from_arrow_schema(NESTED)  # noqa: N815 - as Spark names schemas

    def zero(self):
        return None, 0, {}, (0, None)

    def reduce(self, buffer, rows):  # noqa: ARG002 - the name belongs to the protocol
        return buffer

    def merge(self, one, other):
        return one[0] or other[0], (one[1] or 0) + (other[1] or 0), one[2] | other[2], max(one[3], other[3], key=str)

    def finish(self, key, buffer):
        return *key, buffer[1], 0


class NestedVector(VectorProcessor):
    stateSchema = from_arrow_schema(NESTED)  # noqa: N815 - as Spark names schemas

    def process(self, batch):
        batch.update(batch.state)
        return pa.table({"k": batch.keys["k"], "n": batch.state["n"], "total": pa.array([0] * len(batch))})


@pytest.mark.parametrize("processor", [Nested(), NestedVector()], ids=["aggregator", "vectorised"])
def test_initial_state_of_any_type_is_kept_as_it_is(tmp_path, processor):
    at = dt.datetime(2024, 5, 6, 7, tzinfo=dt.UTC)
    rows = {"k": ["a", "b"], "d": [None, math.nan], "n": [2**60 + 1, None], "m": [[("x", 1)], None]}
    given = pa.table({**rows, "s": [{"x": 1, "at": at}, None]}, pa.schema([pa.field("k", pa.string()), *NESTED]))
    query = summing(tmp_path, processor, initialState=given)
    local = at.astimezone().replace(tzinfo=None)
    [a], [b] = query.state()[("a",)].values(), query.state()[("b",)].values()
    assert a == (None, 2**60 + 1, {"x": 1}, (1, local))
    assert (math.isnan(b[0]), b[1:]) == (True, (None, None, None))
    assert found(query.process(frame(("a", 1)))) == [("a", 2**60 + 1, 0)]
    assert list(query.state()[("a",)].values()) == [a]


def test_a_vectorised_processor_takes_its_initial_state_as_it_is(tmp_path):
    given = pd.DataFrame({"total": [100, 200], "k": ["a", "b"], "n": [10, 20]})
    query = summing(tmp_path, SumOfMany(), initialState=given)
    assert query.state() == {("a",): {"state": (10, 100)}, ("b",): {"state": (20, 200)}}
    assert found(query.process(frame(("a", 1), ("c", 1)))) == [("a", 11, 101), ("c", 1, 1)]
    twice = pd.concat([given, given])
    for rows in (1, 100):  # in one record batch or in several
        with pytest.raises(InvalidArgumentError, match="several rows for one key"):
            summing(tmp_path / f"twice-{rows}", SumOfMany(), initialState=twice, batchRows=rows)


def test_a_vectorised_processor_may_take_over_the_checkpoint_of_another(tmp_path):
    assert found(summing(tmp_path).process(frame(("a", 1)))) == [("a", 1, 1)]
    query = summing(tmp_path, SumOfMany())
    assert found(query.process(frame(("a", 1)))) == [("a", 1, 1)]
    assert query.state() == {("a",): {"buffer": (1, 1), "state": (1, 1)}}


class Failing(Sum):
    def reduce(self, buffer, rows):
        if (rows["v"] < 0).any():
            raise RuntimeError("negative")
        return super().reduce(buffer, rows)


def test_a_batch_that_failed_has_not_happened(tmp_path):
    query = summing(tmp_path, Failing())
    query.process(frame(("a", 1)))
    with pytest.raises(UserFunctionError, match="negative"):
        query.process(frame(("a", 1), ("b", -1)))
    assert query.batch == 1
    assert query.state() == {("a",): {"buffer": (1, 1)}}
    assert found(query.process(frame(("a", 1), ("b", 1)))) == [("a", 2, 2), ("b", 1, 1)]


class Forgetting(BatchSpec):
    """The same after a change of mind: the text goes, and a count comes."""

    def init(self, handle):
        handle.deleteIfExists("text")
        self.text = handle.getValueState("other", TEXT)


def test_a_removed_variable_is_deleted_once_and_not_at_every_start(tmp_path, monkeypatch):
    asked, run = [], LocalJobs.run

    def watching(self, rows, plan, batch_spec, **more):
        asked.append(set(batch_spec.removed_tags))
        return run(self, rows, plan, batch_spec, **more)

    monkeypatch.setattr(LocalJobs, "run", watching)
    schema = pa.schema({"k": pa.string(), "text": pa.string(), "frames": pa.int64()})
    for processor in (BatchSpec(), Forgetting(), Forgetting()):
        with LocalQuery(processor, "k", ROWS, schema, str(tmp_path)) as query:
            for _ in range(2):
                query.process(frame(("a", 1), ("b", 2)))
    assert asked == [set(), set(), {1}, set(), set(), set()]
    chains = CommitLog(query._epoch.storage).table(6).chains.values()
    entries = [key for chain in chains for key in group_entries(chain, SectionReader(query._epoch.storage))]
    assert {parse_entry(key).tag for key in entries} == {2}


def test_states_of_a_version_that_the_query_leaves_behind_are_reported(tmp_path):
    query = summing(tmp_path)
    rows = frame(*((f"key-{number}", 1) for number in range(20)))
    query.process(rows)
    states = local_states(str(tmp_path))
    next(states)
    query.process(rows)
    query._epoch.storage.delete_folder(f"changes/{1:020d}")  # as it goes some batches after a snapshot
    with pytest.raises(StorageError, match=r"version 1 of .* is no longer kept: the query has gone on to version 2 "):
        list(states)


def test_a_query_that_is_taken_over_after_its_commit_delivers_nothing(tmp_path, monkeypatch):
    query, real = summing(tmp_path), LocalJobs.outputs

    def meanwhile(*args):
        claim(query._epoch.storage, lambda _: False)
        return real(*args)

    monkeypatch.setattr(LocalJobs, "outputs", meanwhile)
    with pytest.raises(FencedError, match="another query has taken over"):
        query.process(frame(("a", 1)))
    assert CommitLog(query._epoch.storage).head() == 1
    assert query._delivered == []


def process_late(query, rows):
    """Run a batch as a query does that is taken over between its check and its record, and finds out after it."""
    real, checks = Epoch.check, []

    def check(epoch):
        checks.append(epoch)
        if len(checks) > 1:
            real(epoch)

    with mock.patch.object(Epoch, "check", check), pytest.raises(FencedError, match="another query has taken over"):
        query.process(rows)


def test_a_record_that_a_query_which_was_taken_over_wrote_first_is_gone_on_from(tmp_path, monkeypatch):
    """Both run the same batch from the same state; the version has one record, whoever wrote it."""
    reached = []
    monkeypatch.setattr(failpoints, "watchers", [reached.append])
    first = summing(tmp_path)
    first.process(frame(("a", 1)))
    second = summing(tmp_path)

    def meanwhile(point):
        if point == "driver.before-commit":
            failpoints.watchers.remove(meanwhile)
            process_late(first, frame(("a", 2), ("b", 3)))

    failpoints.watchers.append(meanwhile)
    output = second.process(frame(("a", 2), ("b", 3)))
    assert "driver.late-commit" in reached
    assert CommitLog(second._epoch.storage).read(2).epoch == first._epoch.number
    files = [file.path for file in CommitLog(second._epoch.storage).read(2).outputs]
    kept = pa.concat_tables(pq.read_table(tmp_path / path, partitioning=None) for path in files)
    assert found(kept.to_pandas()) == found(output)
    plain = summing(tmp_path / "plain")
    for batch in (frame(("a", 1)), frame(("a", 2), ("b", 3))):
        plain.process(batch)
    assert second.state() == plain.state()
    assert found(second.process(frame(("a", 4)))) == found(plain.process(frame(("a", 4))))


def test_a_record_of_other_state_variables_that_came_first_is_not_gone_on_from(tmp_path, monkeypatch):
    """Two releases of a processor that each add a variable would give both the same place in the entries."""
    schema, rows = pa.schema({"k": pa.string(), "text": pa.string(), "frames": pa.int64()}), frame(("a", 1), ("b", 2))

    def started(variable):
        return LocalQuery(Noting(variable), "k", ROWS, schema, str(tmp_path))

    with LocalQuery(BatchSpec(), "k", ROWS, schema, str(tmp_path)) as query:
        query.process(rows)
    first, second = started("old"), started("new")

    def meanwhile(point):
        if point == "driver.before-commit":
            failpoints.watchers.remove(meanwhile)
            process_late(first, rows)

    monkeypatch.setattr(failpoints, "watchers", [meanwhile])
    with pytest.raises(MismatchError, match=r"with the state variables old, text, .* start this query again"):
        second.process(rows)
    with pytest.raises(MismatchError, match="start this query again"):
        second.process(rows)
    third = started("new")
    assert [sorted(third.process(rows)["text"]) for _ in range(3)] == [["old"] * 2, ["new"] * 2, ["newnew"] * 2]


def test_a_query_that_is_taken_over_before_it_delivers_again_does_not(tmp_path, monkeypatch):
    query = summing(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(query._jobs, "outputs", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            query.process(frame(("a", 1)))
    assert CommitLog(query._epoch.storage).head() == 1
    claim(query._epoch.storage, lambda _: False)
    with pytest.raises(FencedError, match="another query has taken over"):
        query.process(frame(("a", 1)))
    assert query._delivered == []


def test_wrong_arguments_are_reported(tmp_path):
    with pytest.raises(InvalidArgumentError, match="'z' is not a column of inputSchema"):
        LocalQuery(Sum(), "z", ROWS, COUNTS, str(tmp_path))
    with pytest.raises(TypeError, match="unexpected keyword argument 'trigr'"):
        summing(tmp_path, trigr=1)
    with pytest.raises(InvalidArgumentError, match="tailGroups"):
        summing(tmp_path, tailGroups=3)
    query = summing(tmp_path)
    with pytest.raises(InvalidArgumentError, match="the rows have no column 'v'"):
        query.process(pd.DataFrame({"k": ["a"]}))
    with pytest.raises(
        InvalidArgumentError, match=r"the rows do not fit inputSchema: column 'v' is not int64: .*'z'.*; con"
    ):
        query.process(pd.DataFrame({"k": ["a"], "v": ["z"]}))
    with pytest.raises(InvalidArgumentError, match=r"the rows do not fit inputSchema: .*'z'.*; convert the rows"):
        query.process(pa.table({"k": ["a"], "v": ["z"]}))
    with pytest.raises(MismatchError, match="tailGroups is fixed"):
        summing(tmp_path, tailGroups=64)


def test_text_schemas_need_no_session(monkeypatch):
    from pyspark.errors import PySparkRuntimeError

    def without_session(_):
        raise PySparkRuntimeError(errorClass="SESSION_OR_CONTEXT_NOT_EXISTS", messageParameters={})

    monkeypatch.setattr(StructType, "fromDDL", without_session)
    assert LocalSchemas("UTC").arrow("k string, n long") == pa.schema({"k": pa.string(), "n": pa.int64()})
    with pytest.raises(InvalidArgumentError, match=r"'k text' cannot be read without a Spark session: expected a type"):
        LocalSchemas("UTC").struct("k text")


def test_with_a_session_text_is_a_schema_too(spark, tmp_path):
    assert spark.version
    query = LocalQuery(Sum(), "k", "k string, v long", "k string, n long, total long", str(tmp_path))
    assert found(query.process(frame(("a", 1)))) == [("a", 1, 1)]
    assert LocalSchemas("UTC").arrow("bigint").names == ["value"]


@pytest.fixture
def repeated(tmp_path, monkeypatch):
    """A query whose every task runs twice, as by speculation; gives the pairs of manifests."""
    pairs = []
    run = LocalJobs.run

    def twice(self, *args, **more):
        first, second = run(self, *args, **more), run(self, *args, **more)
        pairs.extend(zip(first, second, strict=True))
        return [pair[number % 2] for number, pair in enumerate(zip(first, second, strict=True))]

    monkeypatch.setattr(LocalJobs, "run", twice)
    return summing(tmp_path, retain=2, tailGroups=8), pairs


def test_a_task_that_runs_twice_says_the_same_and_counts_once(repeated):
    query, pairs = repeated
    for batch in range(6):
        output = query.process(frame(*((f"key-{number}", 1) for number in range(20))))
        assert [row[1:] for row in found(output)] == [(batch + 1, batch + 1)] * 20
    reader = SectionReader(query._epoch.storage)
    storage = query._epoch.storage
    written = 0
    for one, other in pairs:
        assert one.partition == other.partition
        assert one.sections.keys() == other.sections.keys()
        assert [(file.rows, file.sha256) for file in one.outputs] == [
            (file.rows, file.sha256) for file in other.outputs
        ]
        for group, section in one.sections.items():
            twin = other.sections[group]
            assert section.path != twin.path
            assert (section.checksum, section.length, section.count) == (twin.checksum, twin.length, twin.count)
            if storage.exists(section.path) and storage.exists(twin.path):
                assert list(reader.entries(section)) == list(reader.entries(twin))
                written += 1
    assert written


def test_files_of_attempts_that_do_not_count_are_collected(repeated, tmp_path):
    query, pairs = repeated
    for _ in range(8):
        query.process(frame(*((f"key-{number}", 1) for number in range(20))))
    log = CommitLog(query._epoch.storage)
    needed = set().union(*(log.table(version).files() for version in range(6, 9)))
    there = {str(path.relative_to(tmp_path)) for path in tmp_path.glob("changes/*/*")}
    assert needed <= there
    assert {path for path in there - needed if int(path.split("/")[1]) <= 6} == set()
    lost = {section.path for pair in pairs for manifest in pair for section in manifest.sections.values()} - there
    assert lost


def test_keys_are_hashed_and_placed_as_spark_does(spark):
    day = dt.date(2024, 2, 29)
    at = dt.datetime(2024, 2, 29, 12, 30, 1, 5, tzinfo=dt.UTC)
    rows = [
        ("a", 1, 1, 1.5, True, b"x", day, at),
        (None, None, None, None, None, None, None, None),
        ("", -1, None, -0.0, False, b"", None, at),
        ("日本" * 20, 2**31 - 1, -(2**63), float("nan"), None, bytes(40), day, None),
    ]
    schema = "s string, i int, l long, d double, b boolean, x binary, day date, at timestamp"
    df = spark.createDataFrame(rows, schema)
    table = df.toArrow()
    expected = [row[0] for row in df.select(F.xxhash64(*df.columns)).collect()]
    assert key_fingerprints(table).tolist() == expected
    for name in df.columns:
        hashed = [row[0] for row in df.select(F.xxhash64(name)).collect()]
        assert key_fingerprints(table.select([name])).tolist() == hashed
    plan = Plan(3, [0, 1, 2, 0, 1], {expected[0]: 2, expected[2]: 1, 5: 0})
    groups = [row[0] for row in df.select(group_column(plan, F.xxhash64(*df.columns))).collect()]
    assert group_numbers(plan, np.array(expected)).tolist() == groups


def test_a_key_that_cannot_be_hashed_without_spark_is_reported():
    with pytest.raises(InvalidArgumentError, match="without Spark a key cannot be a list"):
        key_fingerprints(pa.table({"k": [[1], [2]]}))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are looked up in /proc")
@pytest.mark.parametrize("end", [LocalQuery.close, lambda _: None], ids=["closed", "gone"])
def test_a_query_that_has_ended_holds_no_files_open(tmp_path, end):
    def held():
        paths = [str(each.resolve()) for each in Path("/proc/self/fd").iterdir()]
        return [path for path in paths if path.startswith(str(tmp_path))]

    query = summing(tmp_path)
    query.process(frame(*((str(number), 1) for number in range(50))))
    assert held()
    end(query)
    del query
    gc.collect()
    assert held() == []


def test_a_sink_that_does_not_end_is_not_waited_for_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "_PATIENCE", 0.01)
    with summing(tmp_path) as query:
        query.process(frame(("a", 1)))
        assert not query._engine.deliver_last(None)
        with query._engine._running, pytest.raises(UserFunctionError, match=r"sink is still busy .* start the query"):
            query._engine.deliver_last(None)
