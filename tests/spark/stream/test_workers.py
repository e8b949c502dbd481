"""What a task does to the Python process that it runs in."""

import gc

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from equipoise.spark import LocalQuery

IN, OUT = "key string", "key string, frozen long"


class Frozen(StatefulProcessor):
    """Yields the number of objects that garbage collection leaves out."""

    def init(self, handle):
        pass

    def handleInputRows(self, key, rows, timerValues):  # noqa: ARG002, N802, N803 - Spark's own name
        yield pd.DataFrame({"key": [key[0]], "frozen": [gc.get_freeze_count()]})

    def close(self):
        pass


def test_a_worker_of_spark_leaves_what_it_has_loaded_out_of_garbage_collection(feed, collected, keyed, begin, tmp_path):
    stream = feed(IN, [("a",), ("b",)]).stream()
    made = keyed(stream, "key", Frozen(), OUT, 2)
    begin(made, collected, tmp_path / "at", {"availableNow": True}).awaitTermination()
    assert [row.key for row in collected.rows] == ["a", "b"]
    assert all(row.frozen > 10_000 for row in collected.rows)  # pandas and pyarrow alone


def test_a_local_query_leaves_the_garbage_collection_of_its_process_alone():
    before = gc.get_freeze_count()
    with LocalQuery(Frozen(), "key", IN, OUT) as query:
        found = query.process(pd.DataFrame({"key": ["a"]}))
    assert found["frozen"].tolist() == [before]
    assert gc.get_freeze_count() == before
