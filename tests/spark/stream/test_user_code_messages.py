# ruff: noqa: ARG002, N802, N803, N815 - the names belong to Spark's protocol
"""Wrong results and exceptions of user code are described: what was found, what was expected, what to do."""

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import StructType

from equipoise import EquipoiseError, InvalidArgumentError, UserFunctionError
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


@pytest.mark.parametrize(
    ("processor", "error", "said"),
    [
        (
            Gives({"k": ["a"], "t": ["not a date"]}),
            InvalidArgumentError,
            (
                r"^column 't' that the function yielded does not fit outputSchema \(timestamp.*\): .*not a date"
                r"(.|\n)*; convert it in the function, or change outputSchema"
            ),
        ),
        (
            Gives({"k": ["a"]}),
            InvalidArgumentError,
            r"^the function yielded columns \['k'\], but outputSchema has \['k', 't'\]; t missing, yield a column for",
        ),
        (
            Parses({}),
            UserFunctionError,
            r"^ValueError in handleInputRows \(.*test_user_code_messages.py, line \d+, in parsed\): invalid literal",
        ),
        (
            GivesAtOnce(pd.DataFrame({"k": ["a"]})),
            InvalidArgumentError,
            r"^process must return a pyarrow.Table or None, got a DataFrame",
        ),
        (
            GivesAtOnce(pa.table({"k": ["a"], "t": ["not a date"]})),
            InvalidArgumentError,
            (
                r"^process gave k string, t string, which does not fit outputSchema, k string, t timestamp(.|\n)*; "
                "cast it in process, or change outputSchema"
            ),
        ),
        (
            Finishes(),
            UserFunctionError,
            r"^InvalidArgumentError in handleInputRows: finish gave 3 values, but outputSchema has \['k', 't'\]",
        ),
    ],
    ids=["wrong type", "missing column", "helper", "no table", "wrong type at once", "too many values"],
)
def test_user_code_that_goes_wrong_is_described(tmp_path, processor, error, said):
    query = LocalQuery(processor, "k", INPUT, OUTPUT, str(tmp_path), numPartitions=1)
    with query, pytest.raises(EquipoiseError, match=said) as caught:
        query.process(pd.DataFrame({"k": ["a"], "v": [1]}))
    assert type(caught.value) is error
