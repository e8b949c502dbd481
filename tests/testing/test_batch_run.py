"""A processor gives the same output and state whatever happens to its query; what happens is part of the input."""

import itertools

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from equipoise import CheckError, InvalidArgumentError, UserFunctionError, failpoints
from equipoise.spark import Aggregator
from equipoise.spark.stream.local_jobs import LocalJobs
from equipoise.testing import Advance, Crash, Pause, Rescale, run_batches

SMALL = {"numPartitions": 2, "tailGroups": 4, "form": "rows"}
IN_EVERY_BATCH = [
    "storage.before-name",
    "task.start",
    "task.before-files",
    "task.after-files",
    "task.end",
    "driver.before-plan",
    "driver.after-plan",
    "driver.before-commit",
    "driver.in-commit",
    "driver.after-commit",
    "driver.before-sink",
    "driver.after-sink",
    "driver.before-garbage",
    "driver.after-garbage",
]


class Visits(StatefulProcessor):
    """Counts the visits of a host and keeps their times."""

    def init(self, handle):
        self.count = handle.getValueState("count", "n long")
        self.times = handle.getListState("times", "ms long")

    def handleInputRows(self, key, rows, timerValues):  # noqa: ARG002, N802, N803 - Spark's own names
        given = [(row.ms,) for row in rows]
        (n,) = self.count.get() or (0,)
        self.count.update((n + len(given),))
        self.times.appendList(given)
        yield Row(host=key[0], n=n + len(given))


class Reminder(Visits):
    """Forgets a host a minute after each visit."""

    def init(self, handle):
        self.handle = handle
        super().init(handle)

    def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803 - Spark's own names
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 60_000)
        return super().handleInputRows(key, rows, timerValues)

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):  # noqa: ARG002, N802, N803 - Spark's own names
        self.count.clear()
        self.times.clear()
        yield Row(host=key[0], n=-expiredTimerInfo.getExpiryTimeInMs())


def visits(hosts, ms=0):
    return [Row(host=host, ms=ms) for host in hosts]


def run(steps, processor=None, **options):
    arguments = processor or Visits(), "host", "host string, ms long", "host string, n long"
    return run_batches(*arguments, steps, **(SMALL | options))


def test_outputs_come_batch_by_batch_and_the_state_at_the_end():
    found = run([visits("abca", 1), visits("b", 2), []])
    assert found.outputs == [
        [Row(host="a", n=2), Row(host="b", n=1), Row(host="c", n=1)],
        [Row(host="b", n=2)],
        [],
    ]
    assert found.state == {
        ("a",): {"count": (2,), "times": [(1,), (1,)]},
        ("b",): {"count": (2,), "times": [(1,), (2,)]},
        ("c",): {"count": (1,), "times": [(1,)]},
    }
    assert (found.restarts, found.fenced) == (0, 0)


def test_a_crash_at_any_point_of_a_batch_changes_nothing():
    batches = [visits("ab" + "cdefgh"[number % 6], number) for number in range(len(IN_EVERY_BATCH))]
    crashes = [Crash(point) for point in IN_EVERY_BATCH]
    found = run(list(itertools.chain.from_iterable(zip(crashes, batches, strict=True))))
    assert found == run(batches)
    assert found.restarts == len(crashes)


@pytest.mark.parametrize("point", ["task.start", "driver.before-commit", "driver.before-sink"])
def test_a_driver_that_wakes_up_after_another_took_over_is_fenced_and_changes_nothing(point):
    batches = [visits("ab"), visits("bc"), visits("ca")]
    found = run([batches[0], Pause(point), *batches[1:]])
    assert found == run(batches)
    assert (found.restarts, found.fenced) == (1, 1)


def test_faults_in_a_row_happen_one_after_the_other_in_the_next_batch():
    batches = [visits("ab"), visits("bc"), visits("ca")]
    faults = [Crash("task.end", count=2), Pause("driver.in-commit"), Crash("driver.in-claim"), Pause()]
    found = run([batches[0], *faults, *batches[1:]])
    assert found == run(batches)
    assert found.fenced == 2


def test_a_fault_that_does_not_happen_in_the_query_that_takes_over_is_refused_too():
    committed = [Pause("driver.before-sink"), Crash("task.start")]
    with pytest.raises(InvalidArgumentError, match=r"Crash\(at='task.start', count=1\) reached this failpoint 0 times"):
        run([*committed, visits("a")])


def test_partitions_change_with_the_next_batch():
    batches = [visits("abcdefgh", number) for number in range(5)]
    found = run([batches[0], Rescale(4), *batches[1:3], Crash("task.start", count=4), *batches[3:]])
    assert found.partitions == [2, 4, 4, 4, 4]
    assert found.outputs == run(batches).outputs
    assert run([Rescale(3), *batches[:2]], look="never").partitions == [3, 3], "also with the first one"


def test_the_clock_is_part_of_the_input():
    calm = [visits("a"), Advance(59.999), visits("b"), Advance(0.001), [], Advance(100), []]
    found = run(calm, Reminder(), timeMode="processingTime")
    assert found.outputs[1:] == [[Row(host="b", n=1)], [Row(host="a", n=-60_000)], [Row(host="b", n=-119_999)]]
    assert found.state == {}
    assert run([*calm[:4], Crash("driver.after-plan"), *calm[4:]], Reminder(), timeMode="processingTime") == found


def test_an_initial_state_and_the_other_options_are_those_of_a_local_query():
    class Beginning(Visits):
        def handleInitialState(self, key, initialState, timerValues):  # noqa: ARG002, N802, N803 - Spark's own names
            self.count.update((initialState.n,))

    found = run([visits("a")], Beginning(), initialState=pd.DataFrame({"host": ["a"], "n": [41]}))
    assert found.outputs == [[Row(host="a", n=42)]]
    with pytest.raises(TypeError, match="partitions"):
        run([], partitions=3)


def test_batches_may_be_frames_and_tables_and_dicts():
    given = {"host": ["a", "b"], "ms": [1, 2]}
    dicts = [{"host": "a", "ms": 1}, {"host": "b", "ms": 2}]
    for batch in (pd.DataFrame(given), pa.table(given), dicts):
        assert run([batch]).outputs == [[Row(host="a", n=1), Row(host="b", n=1)]]


def test_an_aggregator_can_be_tested_too():
    class Count(Aggregator):
        bufferSchema = "n long"  # noqa: N815 - as Spark names schemas

        def zero(self):
            return (0,)

        def reduce(self, buffer, rows):
            return (buffer[0] + len(rows),)

        def merge(self, one, other):
            return (one[0] + other[0],)

        def finish(self, key, buffer):
            return (*key, *buffer)

    batches = [visits("aab"), visits("b")]
    found = run([Crash("task.end"), batches[0], batches[1]], Count(), form="pandas")
    assert found.outputs == [[Row(host="a", n=2), Row(host="b", n=1)], [Row(host="b", n=2)]]


def test_a_processor_whose_output_depends_on_how_often_it_runs_is_found(tmp_path):
    class Careless(Visits):
        def __init__(self, calls):
            self.calls = calls

        def handleInputRows(self, key, rows, timerValues):  # noqa: ARG002, N802, N803 - Spark's own names
            self.calls.mkdir(exist_ok=True)
            (self.calls / str(len(list(self.calls.iterdir())))).touch()
            yield Row(host=key[0], n=len(list(self.calls.iterdir())))

    batches = [visits("a"), visits("a")]
    calm = run(batches, Careless(tmp_path / "calm"))
    assert run(batches, Careless(tmp_path / "again")) == calm
    assert run([batches[0], Crash("driver.before-commit"), batches[1]], Careless(tmp_path / "crash")) != calm


def test_an_error_of_the_processor_is_raised():
    class Failing(Visits):
        def handleInputRows(self, key, rows, timerValues):  # noqa: ARG002, N802, N803 - Spark's own names
            raise LookupError("no such host")

    with pytest.raises(UserFunctionError, match=r"LookupError in Failing.handleInputRows.*no such host"):
        run([visits("a")], Failing())
    assert failpoints.watchers == []


@pytest.mark.parametrize("fault", [Crash("task.in-snapshot"), Crash("task.start", count=3), Pause("task.in-migration")])
def test_a_fault_that_does_not_happen_is_refused_with_the_points_that_were_reached(fault):
    with pytest.raises(InvalidArgumentError, match=r"reached this failpoint [02] times, .* it reached: .*task.start, "):
        run([fault, visits("a")])
    assert failpoints.watchers == []


def test_a_fault_without_a_batch_after_it_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"no batch follows Crash\(at='task.start', count=1\)"):
        run([visits("a"), Crash("task.start")])


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Crash("task.begin"), "there is no failpoint 'task.begin' here; choose one of storage.before-name"),
        (lambda: Crash("spool.after-seal"), "there is no failpoint 'spool.after-seal' here"),
        (lambda: Pause("driver.in-claim"), "there is no failpoint 'driver.in-claim' here"),
        (lambda: Crash("task.start", count=0), "count must be a whole number of at least 1"),
        (lambda: Rescale(0), "numPartitions must be a whole number of at least 1"),
        (lambda: Advance(-1), "seconds must be a finite number of at least 0"),
    ],
)
def test_a_step_that_cannot_be_is_refused_by_name(make, expected):
    with pytest.raises(InvalidArgumentError, match=expected):
        make()


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (Row(host="a"), r"a step is Crash\(.* or a batch, got Row\(host='a'\); a batch is .* a list of rows"),
        ({"host": "a"}, "or a batch, got {'host': 'a'}"),
        ("a", "or a batch, got 'a'"),
        (None, "or a batch, got None"),
        (Crash, "or a batch, got <class"),
        (["a"], "the rows of a batch are dicts or Rows with named fields, got 'a'"),
        ([("a", 1)], r"got \('a', 1\)"),
        ([Row("a")], r"got <Row\('a'\)>"),
    ],
)
def test_a_step_that_is_no_batch_is_refused(step, expected):
    with pytest.raises(InvalidArgumentError, match=expected):
        run([step])


@pytest.mark.parametrize("option", [{"clock": lambda: 0}, {"checkpointLocation": "elsewhere"}])
def test_an_option_that_the_run_sets_itself_is_refused(option):
    with pytest.raises(InvalidArgumentError, match=f"run_batches sets {next(iter(option))} itself"):
        run([visits("a")], **option)


@pytest.mark.parametrize(
    ("row", "expected"),
    [({"host": "a", "sm": 1}, "a row has the column 'sm'"), ({"host": "a", "ms": "x"}, "do not fit inputSchema")],
)
def test_rows_that_do_not_fit_the_input_schema_are_refused(row, expected):
    with pytest.raises(InvalidArgumentError, match=expected):
        run([[row]])


def test_a_batch_that_comes_again_with_other_rows_is_an_error(monkeypatch):
    real, turns = LocalJobs.outputs, itertools.count()
    monkeypatch.setattr(LocalJobs, "outputs", lambda *given: real(*given).slice(next(turns)))
    with pytest.raises(CheckError, match="batch 0 was delivered again with other rows: 1 before, 0 now"):
        run([Crash("driver.after-sink"), visits("a")])
