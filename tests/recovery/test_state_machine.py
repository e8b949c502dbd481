"""Any story of batches, crashes, restarts, new plans and lost caches ends in the state and output of a dictionary."""

import shutil
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import LongType, StringType, StructField, StructType

from equipoise import FencedError, failpoints, fingerprint
from equipoise.adapt import Policy
from equipoise.plan import Plan, Planner
from equipoise.plan.planner import Proposal
from equipoise.spark import LocalQuery
from equipoise.spark.stream import engine
from equipoise.state import catch_up, group_table
from equipoise.state.entries import parse_entry
from equipoise.state.fencing import Epoch
from equipoise.state.log import CommitLog
from equipoise.state.ownership import Layout
from equipoise.state.section_reader import SectionReader
from equipoise.storage import Storage

KEYS = [None, "", "hot", "hot", "hot", "ключ", "b" * 40, "c", "日本", "e", "f"]
TAIL_GROUPS = 8
RETAIN = 3
LONG, STRING = LongType(), StringType()
PAIR = StructType([StructField("n", LONG), StructField("sum", LONG)])
ONE = StructType([StructField("v", LONG)])
INPUT = StructType([StructField("k", STRING), StructField("at", LONG), StructField("v", LONG)])
OUTPUT = StructType([StructField("k", STRING), StructField("what", STRING), StructField("n", LONG)])

RESET, REMIND, NOW = 9, 8, 7  # values that make a key forget, and register timers
AT_START = ["driver.in-claim", "driver.in-sweep", "driver.in-commit", "storage.before-name"]
IN_A_BATCH = sorted(failpoints.POINTS.keys() - {"driver.in-claim", "driver.in-sweep"})


class Everything(StatefulProcessor):
    """Uses every kind of state, and timers."""

    def init(self, handle):
        self.handle = handle
        self.total = handle.getValueState("total", PAIR)
        self.last = handle.getListState("last", ONE)
        self.seen = handle.getMapState("seen", ONE, ONE)

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803 - Spark's own name
        now = timerValues.getCurrentProcessingTimeInMs()
        for value in [int(v) for frame in rows for v in frame["v"]]:
            n, total = self.total.get() or (0, 0)
            self.total.update((n + 1, total + value))
            self.last.appendValue((value,))
            self.seen.updateValue((value % 3,), ((self.seen.getValue((value % 3,)) or (0,))[0] + 1,))
            if value == RESET:
                self.total.clear()
                self.last.put([(RESET,)])
                self.seen.removeKey((0,))
            if value in {REMIND, NOW}:
                self.handle.registerTimer(now + (500 if value == REMIND else 0))
        last = [v for (v,) in self.last.get()]
        yield pd.DataFrame({"k": [key[0]], "what": [str(last)], "n": [(self.total.get() or (0, 0))[1]]})

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):  # noqa: ARG002, N802, N803 - Spark's own name
        self.last.clear()
        n, total = self.total.get() or (0, 0)
        self.total.update((n, total + 1000))
        yield pd.DataFrame({"k": [key[0]], "what": ["timer"], "n": [expiredTimerInfo.getExpiryTimeInMs()]})

    def close(self):
        pass


class Model:
    """The same as ``Everything``, with dictionaries."""

    def __init__(self):
        self.total, self.last, self.seen = {}, defaultdict(list), defaultdict(dict)
        self.timers = defaultdict(set)

    def process(self, rows, now):
        output = []
        for key in {key for key, _ in rows}:
            for value in [v for k, v in rows if k == key]:
                n, total = self.total.get(key, (0, 0))
                self.total[key] = (n + 1, total + value)
                self.last[key].append(value)
                self.seen[key][value % 3] = self.seen[key].get(value % 3, 0) + 1
                if value == RESET:
                    del self.total[key]
                    self.last[key] = [RESET]
                    self.seen[key].pop(0, None)
                if value in {REMIND, NOW}:
                    self.timers[key].add(now + (500 if value == REMIND else 0))
            output.append((key, str(self.last[key]), self.total.get(key, (0, 0))[1]))
        for key, times in self.timers.items():
            for time in sorted(time for time in times if time <= now):
                self.last[key] = []
                n, total = self.total.get(key, (0, 0))
                self.total[key] = (n, total + 1000)
                times.remove(time)
                output.append((key, "timer", time))
        return output

    def state(self):
        found = defaultdict(dict)
        for key, value in self.total.items():
            found[(key,)]["total"] = value
        for name, values in (("last", self.last), ("seen", self.seen), ("timers", self.timers)):
            for key, each in values.items():
                if each:
                    found[(key,)][name] = _stored(name, each)
        return dict(found)


def _stored(name, each):
    if name == "seen":
        return {(k,): (v,) for k, v in each.items()}
    return sorted(each) if name == "timers" else [(v,) for v in each]


class Anywhere(Planner):
    """Makes an arbitrary plan, from nothing but the last plan's version."""

    name = "anywhere"

    def propose(self, problem):
        plan = arbitrary(problem.previous.version, problem.partitions)
        return Proposal(plan.tail, dict(plan.isolated), "arbitrary")


def arbitrary(seed, partitions):
    random = np.random.default_rng(seed)
    keys = sorted({fingerprint(key) for key in KEYS})
    isolated = [key for key in keys if random.random() < 0.3]
    return Plan(
        partitions,
        random.integers(0, partitions, TAIL_GROUPS),
        {key: int(random.integers(0, partitions)) for key in isolated},
        version=1_000_000 + seed,
    )


batches = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 9)), max_size=12)
partitions = st.integers(1, 6)


class Story(RuleBasedStateMachine):
    @initialize(number=partitions, rows=st.sampled_from([1, 3, 1000]))
    def begin(self, number, rows):
        self.folder = Path(tempfile.mkdtemp())
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(engine, "SUMMARY_EVERY", 4)
        self.patch.setattr(group_table, "MOST_VERSIONS", 3)
        self.patch.setattr(catch_up, "RECENT", 2)
        self.patch.setattr(catch_up, "SPARSE_BYTES", rows)
        self.patch.delenv("EQUIPOISE_FAILPOINT", raising=False)
        self.now = 1000
        self.number, self.batch_rows = number, rows
        self.model, self.delivered, self.sequence = Model(), {}, 0
        self.query = self.started()

    def started(self):
        return LocalQuery(
            Everything(),
            key="k",
            inputSchema=INPUT,
            outputStructType=OUTPUT,
            checkpointLocation=str(self.folder / "checkpoint"),
            numPartitions=self.number,
            timeMode="processingTime",
            orderBy="at",
            tailGroups=TAIL_GROUPS,
            clock=lambda: self.now,
            cache=str(self.folder / "cache"),
            retain=RETAIN,
            batchRows=self.batch_rows,
            policy=Policy(planner=Anywhere()),
        )

    def failing(self, point, count):
        failpoints._reached.clear()
        self.patch.setenv("EQUIPOISE_FAILPOINT", f"{point}=raise:{count}")

    def run(self, query, table):
        """Run a batch that may fail; whatever was delivered must be what was delivered before."""
        batch = query.batch
        try:
            query.process_arrow(table)
        finally:
            self.patch.delenv("EQUIPOISE_FAILPOINT", raising=False)
            for number, output in query._delivered:
                assert number == batch
                assert self.delivered.setdefault(batch, output).equals(output)

    def table(self, rows):
        at = range(self.sequence, self.sequence + len(rows))
        self.sequence += len(rows)
        columns = {"k": [key for key, _ in rows], "at": list(at), "v": [value for _, value in rows]}
        shuffled = np.random.default_rng(self.sequence).permutation(len(rows))
        schema = pa.schema({"k": pa.string(), "at": pa.int64(), "v": pa.int64()})
        return pa.table(columns, schema=schema).take(pa.array(shuffled))

    def settle(self, rows, table, now=None):
        """Run a batch to its end and compare."""
        batch = self.query.batch
        self.run(self.query, table)
        expected = self.model.process(rows, self.now if now is None else now)
        found = [tuple(row.values()) for row in self.delivered[batch].to_pylist()]
        assert sorted(found, key=repr) == sorted(expected, key=repr)

    def restart(self):
        self.query = self.started()

    @rule(rows=batches, milliseconds=st.sampled_from([0, 1, 300, 700]))
    def batch(self, rows, milliseconds):
        self.now += milliseconds
        self.settle(rows, self.table(rows))

    @rule(rows=batches, point=st.sampled_from(IN_A_BATCH), count=st.sampled_from([1, 1, 1, 2, 4]), anew=st.booleans())
    def crash(self, rows, point, count, anew):
        table, batch = self.table(rows), self.query.batch
        self.failing(point, count)
        try:
            self.run(self.query, table)
        except failpoints.FailpointError:
            if anew:
                self.restart()
            self.settle(rows, table)
        else:
            self.model.process(rows, self.now)
            assert batch in self.delivered

    @rule(point=st.sampled_from(AT_START), count=st.integers(1, 3))
    def crash_at_start(self, point, count):
        self.failing(point, count)
        try:
            self.restart()
        except failpoints.FailpointError:
            self.patch.delenv("EQUIPOISE_FAILPOINT")
            self.restart()
        self.patch.delenv("EQUIPOISE_FAILPOINT", raising=False)

    @rule(number=partitions, rows=batches)
    def restart_with_other_partitions(self, number, rows):
        self.number = number
        self.query.close()
        self.restart()
        self.settle(rows, self.table(rows))

    def fenced(self, query, table, *, has_checked):
        """Run a batch of a query that was taken over; it notices before its record or, if it had checked, after it."""
        real, checks = Epoch.check, []

        def check(epoch):
            checks.append(epoch)
            if len(checks) > has_checked:
                real(epoch)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Epoch, "check", check)
            with pytest.raises(FencedError):
                self.run(query, table)

    @rule(rows=batches, again=st.booleans(), has_checked=st.booleans())
    def a_query_that_was_taken_over_wakes_up(self, rows, again, has_checked):
        late, table = self.query, self.table(rows)
        self.restart()
        self.fenced(late, table, has_checked=has_checked)
        assert not late._delivered
        if again:
            self.restart()
        self.settle(rows, table)

    @rule(rows=batches, has_checked=st.tuples(st.booleans(), st.booleans()))
    def two_queries_that_were_taken_over_wake_up_in_turn(self, rows, has_checked):
        first, table, now = self.query, self.table(rows), self.now
        self.restart()
        second = self.query
        self.fenced(first, table, has_checked=has_checked[0])
        self.restart()  # this one goes on from what the first has written, if it has
        self.now += 50
        self.fenced(second, table, has_checked=has_checked[1])
        self.settle(rows, table, now if has_checked[0] else self.now)
        self.restart()

    @rule(number=st.none() | partitions, rows=batches)
    def rescale(self, number, rows):
        self.query.rescale(number)
        self.settle(rows, self.table(rows))

    @rule(seed=st.integers(0, 1000), number=partitions, rows=batches)
    def replan(self, seed, number, rows):
        plan = arbitrary(seed, number)
        self.query._checkpoint.keep_plan(plan)
        self.query.rollback(plan.version)
        self.settle(rows, self.table(rows))

    @rule(pick=st.integers(0, 1000), rows=batches)
    def rollback(self, pick, rows):
        versions = sorted(self.query._checkpoint.plan_names())
        self.query.rollback(versions[pick % len(versions)])
        self.settle(rows, self.table(rows))

    @rule(what=st.sampled_from(["pin", "unpin", "plain_hash"]))
    def hold(self, what):
        getattr(self.query, what)()

    @precondition(lambda self: (self.folder / "cache").exists())
    @rule(rows=batches)
    def lose_the_cache(self, rows):
        shutil.rmtree(self.folder / "cache")
        self.settle(rows, self.table(rows))

    @invariant()
    def the_state_is_that_of_the_model(self):
        assert self.query.state() == self.model.state()

    @invariant()
    def every_key_is_where_its_plan_says(self):
        storage = Storage(str(self.folder / "checkpoint"))
        commit = CommitLog(storage).read(CommitLog(storage).head())
        plan, sections = self.query._checkpoint.plan(commit.plan), SectionReader(storage)
        layout = Layout(plan)
        writers = defaultdict(set)
        for group, section in commit.sections.items():
            number = layout.names.index(group)
            writers[section.path].add(int(layout.owners[number]))
            for key, value in sections.entries(section):
                if key[0] == 0 and value is not None:
                    found = parse_entry(key).fingerprint
                    isolated = np.flatnonzero(plan.isolated_keys == found)
                    expected = TAIL_GROUPS + int(isolated[0]) if len(isolated) else found % TAIL_GROUPS
                    assert number == expected
        assert all(len(owners) == 1 for owners in writers.values())

    @invariant()
    def old_files_are_gone_and_needed_ones_are_there(self):
        storage = Storage(str(self.folder / "checkpoint"))
        log = CommitLog(storage)
        head = log.head()
        needed = set()
        for version in range(max(0, head - RETAIN), head + 1):
            needed |= log.table(version).files()
        root = self.folder / "checkpoint"
        found = {str(path.relative_to(root)) for name in ("changes", "snapshots") for path in root.glob(f"{name}/*/*")}
        assert needed <= found
        assert {path for path in found - needed if int(path.split("/")[1]) < head - RETAIN} == set()
        assert len(storage.names("outputs")) <= 4
        assert len(storage.names("epochs")) <= 2

    def teardown(self):
        if hasattr(self, "patch"):
            self.patch.undo()
            shutil.rmtree(self.folder)


class TestStory(Story.TestCase):
    settings = settings(max_examples=15, stateful_step_count=25, suppress_health_check=list(HealthCheck))


@pytest.mark.long
class TestLongStory(Story.TestCase):
    settings = settings(max_examples=100, stateful_step_count=60, suppress_health_check=list(HealthCheck))
