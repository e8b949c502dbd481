# ruff: noqa: ARG002, N802, N803, N815 - the names belong to Spark's protocol
"""``init`` runs anew in each task, on a copy of the processor that nothing else has changed."""

import sys
import threading

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import StructType

from equipoise import InvalidArgumentError
from equipoise.spark import Aggregator, LocalQuery, VectorProcessor

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules

INPUT = StructType().add("k", "string").add("v", "long")
OUTPUT = StructType().add("k", "string").add("n", "long")
NUMBER = StructType().add("n", "long")


class FillsInInit(StatefulProcessor):
    """Fills a list of its own in ``init``, and makes a lock there, which cannot be pickled."""

    def __init__(self, form="pandas"):
        self.form = form
        self.calls = []
        self.nested = {"calls": []}

    def init(self, handle):
        self.calls.append("init")
        self.nested["calls"].append("init")
        self.lock = threading.Lock()
        handle.getValueState("unused", NUMBER)

    def handleInputRows(self, key, rows, timerValues):
        with self.lock:
            n = 10 * len(self.calls) + len(self.nested["calls"])
        yield Row(k=key[0], n=n) if self.form == "rows" else pd.DataFrame({"k": [key[0]], "n": [n]})

    def close(self):
        self.calls.append("close")


@pytest.mark.parametrize("form", ["pandas", "rows"])
def test_what_init_does_on_the_driver_and_in_other_tasks_does_not_reach_a_task(feed, ours, sparks, form):
    source = feed("k string, v long", [(key, 1) for key in "abcd"], [("a", 1)])
    processor = FillsInInit(form)
    mine = ours(source.stream(), "k", processor, "k string, n long", form=form)
    assert {row.n for row in mine.rows} == {11}
    assert mine.batches == sparks(source.stream(), "k", processor, "k string, n long", form=form).batches
    assert processor.calls == []
    assert not hasattr(processor, "lock")


def test_each_task_of_a_local_query_has_a_copy_of_its_own():
    processor = FillsInInit()
    with LocalQuery(processor, "k", INPUT, OUTPUT, numPartitions=3) as query:
        for _ in range(2):
            assert set(query.process(pd.DataFrame({"k": list("abcd"), "v": 1}))["n"]) == {11}
    assert processor.calls == []


class Remembers(Aggregator):
    """Counts its calls in a list."""

    bufferSchema = NUMBER

    def __init__(self):
        self.calls = []

    def zero(self):
        return (0,)

    def reduce(self, buffer, rows):
        self.calls.append("reduce")
        return (buffer[0] + len(rows),)

    def merge(self, one, other):
        return (one[0] + other[0],)

    def finish(self, key, buffer):
        return (key[0], len(self.calls))


class RemembersBatches(VectorProcessor):
    """Counts its calls in a list."""

    stateSchema = NUMBER

    def __init__(self):
        self.calls = []

    def process(self, batch):
        self.calls.append("process")
        return pa.table({"k": batch.keys.column("k"), "n": [len(self.calls)] * len(batch)})


@pytest.mark.parametrize("make", [Remembers, RemembersBatches], ids=lambda each: each.__name__)
def test_a_query_keeps_the_object_as_it_was_when_the_query_was_defined(make):
    processor = make()
    with LocalQuery(processor, "k", INPUT, OUTPUT, numPartitions=1) as query:
        processor.calls += ["too", "late"]
        for _ in range(2):
            assert query.process(pd.DataFrame({"k": ["a"], "v": [1]}))["n"].tolist() == [1]


@pytest.mark.parametrize("make", [FillsInInit, Remembers, RemembersBatches], ids=lambda each: each.__name__)
def test_an_object_that_cannot_be_pickled_is_refused_when_the_query_is_defined(make):
    processor = make()
    processor.lock = threading.Lock()
    with pytest.raises(
        InvalidArgumentError, match=rf"^{make.__name__} cannot be pickled, .*lock.*; create locks, clients .* in init"
    ):
        LocalQuery(processor, "k", INPUT, OUTPUT)
