# ruff: noqa: ARG002, N802, N803, N815 - the names belong to Spark's protocol
"""Wrong results and exceptions of user code are described: what was found, what was expected, what to do."""

import re

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import StructType

from equipoise import InvalidArgumentError, UserFunctionError
from equipoise.spark import Aggregator, LocalQuery, VectorProcessor

INPUT = StructType().add("k", "string").add("v", "long")
OUTPUT = StructType().add("k", "string").add("t", "timestamp")


class Gives(StatefulProcessor):
    """Yields a frame whatever it sees."""

    def __init__(self, frame):
        self.frame = frame

    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):
        yield pd.DataFrame(self.frame)

    def close(self):
        pass


class Parses(Gives):
    """Fails in a helper of its own."""

    def handleInputRows(self, key, rows, timerValues):
        yield self.parsed("seven")

    def parsed(self, text):
        return int(text)


class GivesAtOnce(VectorProcessor):
    """Gives anything for many keys."""

    stateSchema = StructType().add("n", "long")

    def __init__(self, output):
        self.output = output

    def process(self, batch):
        return self.output


class Finishes(Aggregator):
    """Finishes with too many values."""

    bufferSchema = StructType().add("n", "long")

    def zero(self):
        return (0,)

    def reduce(self, buffer, rows):
        return (buffer[0] + len(rows),)

    def finish(self, key, buffer):
        return (*key, None, *buffer)


class Returns(Gives):
    """Returns what it was made with, from each method that should return an iterator."""

    def __init__(self, given, *, on_timer=False):
        self.given = given
        self.on_timer = on_timer

    def init(self, handle):
        self.handle = handle

    def handleInputRows(self, key, rows, timerValues):
        if not self.on_timer:
            return self.given
        self.handle.registerTimer(1)
        return []

    def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):
        return self.given


FOUND = (
    r"\nIt was called for the key with the fingerprint \w+ in batch 0, of which nothing was committed. Correct the "
    r'function .* To see the key, filter .* with where\("xxhash64\(k\) = -?\d+"\)\.'
)
ITERATOR = "expected an iterator; yield the results, or return a list of them"


@pytest.mark.parametrize(
    ("processor", "said"),
    [
        (
            Gives({"k": ["a"], "t": ["not a date"]}),
            (
                "Gives.handleInputRows gave a wrong result: column 't' that the function yielded does not fit "
                r"the output schema \(timestamp.*\): .*not a date(.|\n)*; convert it in the function, or change the "
                "schema" + FOUND
            ),
        ),
        (
            Gives({"k": ["a"]}),
            (
                r"Gives.handleInputRows gave a wrong result: the function yielded columns \['k'\], but "
                r"the output schema has \['k', 't'\]; yield one column for each: t is missing or double" + FOUND
            ),
        ),
        (
            Returns(None),
            f"Returns.handleInputRows gave a wrong result: it returned None, {ITERATOR}, such as \\[\\]{FOUND}",
        ),
        (
            Returns(pd.DataFrame()),
            f"Returns.handleInputRows gave .*: it returned an object of type DataFrame, {ITERATOR}",
        ),
        (Returns(7), f"Returns.handleInputRows gave .*: it returned an object of type int, {ITERATOR}"),
        (
            Returns([("a", None)]),
            "Returns.handleInputRows gave a wrong result: it must yield pandas Data.*, got a tuple",
        ),
        (
            Returns(None, on_timer=True),
            f"Returns.handleExpiredTimer gave a wrong result: it returned None, {ITERATOR}, such as \\[\\]{FOUND}",
        ),
        (
            Parses({}),
            (
                r"ValueError in Parses.handleInputRows \(.*test_user_code_messages.py, line \d+, in parsed\): invalid "
                r"literal for int\(\) with base 10: 'seven'" + FOUND
            ),
        ),
        (
            GivesAtOnce(pd.DataFrame({"k": ["a"]})),
            "InvalidArgumentError in GivesAtOnce.process: process must return a pyarrow.Table or None, got a DataFrame",
        ),
        (
            GivesAtOnce(pa.table({"k": ["a"], "t": ["not a date"]})),
            (
                r"InvalidArgumentError in GivesAtOnce.process: process gave k string, t string, which does not fit "
                r"the output schema, k string, t timestamp(.|\n)*; cast it in process, or change the schema"
            ),
        ),
        (
            Finishes(),
            r"InvalidArgumentError in Finishes: finish gave 3 values, but the output schema has \['k', 't'\]",
        ),
    ],
    ids=[
        *("wrong type", "missing column", "None", "frame", "number", "tuple", "None of a timer", "helper", "no table"),
        *("wrong type at once", "too many values"),
    ],
)
def test_user_code_that_goes_wrong_is_described(tmp_path, processor, said):
    query = LocalQuery(processor, "k", INPUT, OUTPUT, str(tmp_path), numPartitions=1, timeMode="processingTime")
    with query, pytest.raises(UserFunctionError, match=f"^{said}"):
        query.process(pd.DataFrame({"k": ["a"], "v": [1]}))


class GivesByKey(Gives):
    """Yields a value of the wrong type for one key of many."""

    def handleInputRows(self, key, rows, timerValues):
        yield pd.DataFrame({"k": [key[0]], "t": [pd.Timestamp("2024-01-01") if key[0] != "poison" else "not a date"]})


def test_a_wrong_result_among_many_names_the_key_that_gave_it(spark):
    rows = pd.DataFrame({"k": ["a", "poison", "b", "c"], "v": 1})
    with (
        LocalQuery(GivesByKey({}), "k", INPUT, OUTPUT, numPartitions=1) as query,
        pytest.raises(UserFunctionError, match="not a date") as caught,
    ):
        query.process(rows)
    condition = re.search(r'where\("(.*)"\)', str(caught.value))[1]
    assert [row.k for row in spark.createDataFrame(rows).where(condition).collect()] == ["poison"]


class FailsToDeclare(Gives):
    """Fails in ``init``, which the driver calls first."""

    def __init__(self, declare):
        self.declare = declare

    def init(self, handle):
        self.declare(handle)


def declared_twice(handle):
    handle.getValueState("n", "n long")
    handle.getListState("n", "n long")


@pytest.mark.parametrize(
    ("declare", "kind", "said"),
    [
        (
            lambda handle: handle.getValueState([].pop(), "n long"),
            UserFunctionError,
            (
                r"IndexError in FailsToDeclare.init \(.*test_user_code_messages.py, line \d+, in <lambda>\): pop "
                r"from empty list\nThe driver called it to learn the state variables, before any row. Correct it "
                r"and run again.\nTraceback"
            ),
        ),
        (
            declared_twice,
            InvalidArgumentError,
            "FailsToDeclare.init: init declares the state variable 'n' twice; give each its own name",
        ),
    ],
)
def test_an_error_of_init_on_the_driver_names_the_class(declare, kind, said):
    with pytest.raises(kind, match=f"^{said}"):
        LocalQuery(FailsToDeclare(declare), "k", INPUT, OUTPUT, numPartitions=1)
