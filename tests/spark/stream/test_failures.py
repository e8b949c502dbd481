# ruff: noqa: ARG002, N802, N803 - the names belong to Spark's protocol
"""A query that failed raises the error of equipoise that ended it, and shows Spark's trace below."""

import sys
import traceback
from pathlib import Path

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StatefulProcessor

from equipoise import FencedError, UserFunctionError
from equipoise.spark.stream.failures import translated, translating
from equipoise.state.fencing import claim
from equipoise.storage import Storage

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules

RECORDED = Path(__file__).with_name("recorded")
"""What Spark 4.3 said when queries failed, by ``awaitTermination`` and ``exception``; the JVM's traces are cut."""
KINDS = ["classic", "connect"]
FENCED = (
    f"another query has taken over /data/fenced (epoch 0000000002-other, this one is 0000000001-{'0' * 32}); "
    "this query stops and has delivered nothing of the batch"
)
CALLED = (
    "It was called for key d02c1c8507b86b5a in batch 0, of which nothing was committed. Mend the function and start "
    "the query again on the same checkpoint.\n"
)


def recorded(name):
    return StreamingQueryException((RECORDED / f"{name}.txt").read_text())


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_of_several_lines_is_whole_and_ends_before_spark_goes_on(kind):
    error = translated(recorded(f"{kind}-processor"))
    assert type(error) is UserFunctionError
    said = "this row is poison\nsecond line of it\n\nlast line"
    assert str(error) == (
        f"ValueError in handleInputRows (/opt/jobs/job.py, line 23): {said}\n{CALLED}"
        'Traceback (most recent call last):\n  File "/opt/jobs/job.py", line 23, in handleInputRows\n'
        f'    raise ValueError("this row is poison\\nsecond line of it\\n\\nlast line")\nValueError: {said}'
    )


@pytest.mark.parametrize("kind", KINDS)
def test_causes_within_the_user_s_code_stay_in_its_message(kind):
    error = translated(recorded(f"{kind}-chained"))
    assert type(error) is UserFunctionError
    first = f"ValueError in handleInputRows (/opt/jobs/job.py, line 33): poison in two steps\n{CALLED}Traceback"
    assert str(error).startswith(first)
    assert "KeyError: 'user'\n\nThe above exception was the direct cause of the following" in str(error)
    assert str(error).endswith("\nValueError: poison in two steps")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["", "-exception"], ids=["awaitTermination", "exception"])
def test_the_error_that_ended_the_query_goes_before_the_one_that_was_being_handled(kind, method):
    failure = recorded(f"{kind}-fenced{method}")
    assert "equipoise.errors.UserFunctionError: ValueError" in str(failure)
    error = translated(failure)
    assert type(error) is FencedError
    assert str(error) == FENCED


@pytest.mark.parametrize("kind", KINDS)
def test_spark_s_whole_text_is_shown_below(kind):
    failure = recorded(f"{kind}-fenced")
    with pytest.raises(FencedError) as caught, translating():
        raise failure
    shown = "".join(traceback.format_exception(caught.value))
    assert shown.endswith(f"equipoise.errors.FencedError: {FENCED}\n\nSpark's trace:\n{failure}\n")
    assert shown.count("[STREAM_FAILED]") == str(failure).count("[STREAM_FAILED]")


OTHERS = [
    *(recorded(f"{kind}-sink") for kind in KINDS),
    StreamingQueryException("[STREAM_FAILED] Query terminated with exception: no space left"),
    StreamingQueryException("Traceback (most recent call last):\nequipoise.errors.NoSuchError: it is not there"),
    StreamingQueryException("Traceback (most recent call last):\nequipoise.errors.ClassVar: an import of the module"),
    StreamingQueryException(
        'Traceback (most recent call last):\n  File "job.py", line 1, in sink\n'
        "equipoise.errors.DamagedError: a file\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "/py4j/clientserver.py", line 644, in _call_proxy\n'
        "OSError: the user's own error\n"
    ),
]


@pytest.mark.parametrize("failure", OTHERS, ids=["classic", "connect", "spark's", "unknown", "no error", "handled"])
def test_another_error_stays_spark_s_own(failure):
    assert translated(failure) is failure
    with pytest.raises(StreamingQueryException) as caught, translating():
        raise failure
    assert caught.value is failure


class Failing(StatefulProcessor):
    """Counts; fails at a row."""

    def __init__(self, poison=None):
        self.poison = poison

    def init(self, handle):
        self.n = handle.getValueState("n", "n long")

    def handleInputRows(self, key, rows, timerValues):
        for frame in rows:
            if (frame["v"] == self.poison).any():
                raise ValueError("this row is poison")
        yield pd.DataFrame({"k": [key[0]]})

    def close(self):
        pass


@pytest.fixture
def started(feed, keyed, begin, tmp_path):
    def start(processor, sink):
        source = feed("k string, v int", [("a", 1)], [("a", 2)])
        made = keyed(source.stream(), "k", processor, "k string", 1, tailGroups=8)
        return begin(made, sink, tmp_path / "checkpoint")

    return start


def test_a_processor_that_raises_is_named_first(started, collected):
    query = started(Failing(poison=2), collected)
    line = Failing.handleInputRows.__code__.co_firstlineno + 3
    where = rf"Failing.handleInputRows \(.*test_failures.py, line {line}\)"
    said = rf"^ValueError in {where}: this row is poison\nIt was called for"
    with pytest.raises(UserFunctionError, match=said):
        query.processAllAvailable()
    with pytest.raises(UserFunctionError, match=said) as caught:
        query.awaitTermination()
    assert "FOREACH_BATCH_USER_FUNCTION_ERROR" in "".join(traceback.format_exception(caught.value))
    assert str(query.exception()) == str(caught.value)
    assert not query.isActive
    query.stop()


class FailingAtOnce(Failing):
    """Fails with the initial state."""

    def handleInitialState(self, key, initialState, timerValues):
        raise KeyError("start")


def test_an_initial_state_that_fails_is_named_first(feed, keyed, begin, spark, collected, tmp_path):
    source = feed("k string, v int", [("a", 1)])
    initial = spark.createDataFrame([("a",)], "k string")
    made = keyed(source.stream(), "k", FailingAtOnce(), "k string", 1, tailGroups=8, initialState=initial)
    with pytest.raises(
        UserFunctionError, match=r"^KeyError in FailingAtOnce.handleInitialState \(.*, line \d+\): 'start'\n"
    ):
        begin(made, collected, tmp_path / "checkpoint")


def test_a_sink_that_raises_is_named_first_and_the_batch_is_said_to_be_due(started):
    def full(df, batch):  # noqa: ARG001 - as Spark calls it
        raise OSError("the sink is full")

    query = started(Failing(), full)
    line = full.__code__.co_firstlineno + 1
    said = (
        rf"^OSError in the sink \(.*test_failures.py, line {line}, in full\): the sink is full\n"
        r"Batch 0 is committed and not delivered\. Correct the sink and start the query again"
    )
    with pytest.raises(UserFunctionError, match=said):
        query.awaitTermination()
    assert type(query.exception()) is UserFunctionError


def test_a_query_that_was_taken_over_says_so(started, tmp_path):
    def overtaken(df, batch):  # noqa: ARG001 - as Spark calls it
        claim(Storage(str(tmp_path / "checkpoint")), lambda _: False)

    query = started(Failing(), overtaken)
    with pytest.raises(FencedError, match=r"^another query has taken over .*; this query stops"):
        query.awaitTermination()
    assert type(query.exception()) is FencedError
    assert query.exception().code == "FENCED"
