# ruff: noqa: ARG002, N802, N803 - the names belong to Spark's protocol
"""A second keyed operator after the first: its input is the output of the first, with a key and a state of its own."""

import re
import sys

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from equipoise.errors import InvalidArgumentError, LogBrokenError, MismatchError
from equipoise.spark import balance, batch_log, read_state

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules

SCHEMA = "k string, v long"
BATCHES = [
    [("a", 1), ("b", 2), ("a", 3)],
    [("b", 4), ("c", 5)],
    [("a", 6), ("a", 7), ("d", 8)],
]


class Running(StatefulProcessor):
    """Sums the values of a key; gives the sum after each batch."""

    def init(self, handle):
        self.total = handle.getValueState("total", "n long")

    def handleInputRows(self, key, rows, timerValues):
        total = (self.total.get() or (0,))[0] + sum(int(frame["v"].sum()) for frame in rows)
        self.total.update((total,))
        yield pd.DataFrame({"k": [key[0]], "total": [total]})

    def close(self):
        pass


class Seen(StatefulProcessor):
    """Collects the keys of the first operator by the parity of their sums."""

    def init(self, handle):
        self.seen = handle.getListState("seen", "k string")

    def handleInputRows(self, key, rows, timerValues):
        self.seen.appendList([(k,) for frame in rows for k in sorted(frame["k"])])
        yield pd.DataFrame({"odd": [key[0]], "seen": ["".join(k for (k,) in self.seen.get())]})

    def close(self):
        pass


EXPECTED = {  # sums: a 4, b 2 | b 6, c 5 | a 17, d 8
    0: [(False, "ab")],
    1: [(False, "abb"), (True, "c")],
    2: [(False, "abbd"), (True, "ca")],
}


def chained(stream, **options):
    first = balance(stream, "k", numPartitions=2).transformWithStateInPandas(
        Running(), "k string, total long", "update", "none"
    )
    by_parity = first.withColumn("odd", F.col("total") % 2 == 1)
    second = balance(by_parity, "odd", numPartitions=3, **options)
    return second.transformWithStateInPandas(Seen(), "odd boolean, seen string", "update", "none")


def plain(sink):
    return {batch: [tuple(row) for row in rows] for batch, rows in sink.batches.items()}


@pytest.fixture
def finished(feed, collected, begin, tmp_path):
    """A query with two operators that has come to the end of its feed."""
    source = feed(SCHEMA, *BATCHES)
    query = begin(chained(source.stream()), collected, tmp_path / "cp", {"availableNow": True})
    query.awaitTermination()
    return query


@pytest.mark.usefixtures("finished")
def test_a_second_operator_sees_the_output_of_the_first_by_another_key(collected):
    assert plain(collected) == EXPECTED


def test_each_operator_has_its_state_and_its_batch_log(finished, tmp_path):
    sums = {row.k: row.total.n for row in finished.state().collect()}
    assert sums == {"a": 17, "b": 6, "c": 5, "d": 8}
    later = finished.stage(2)
    assert {row.odd: [each.k for each in row.seen] for row in later.state().collect()} == {
        False: ["a", "b", "b", "d"],
        True: ["c", "a"],
    }
    assert later.state(1).collect()[0].odd is False
    assert read_state(f"{tmp_path}/cp/stages/2").count() == 2
    assert [row.rows for row in finished.batch_log().select("rows").collect()] == [3, 2, 3]
    assert [row["rows"] for row in later.batch_log().rows] == [2, 2, 2]
    assert all(row["delivered"] for row in batch_log(f"{tmp_path}/cp/stages/2").rows)
    assert later.plan.partitions == 3
    with pytest.raises(InvalidArgumentError, match="the query has 2 stages, got stage 3; give 1 or 2"):
        finished.stage(3)


def test_a_query_with_two_operators_continues_from_its_checkpoint(feed, begin, collected, tmp_path):
    source = feed(SCHEMA, BATCHES[0])
    for rows in (*BATCHES[1:], []):
        begin(chained(source.stream()), collected, tmp_path / "cp", {"availableNow": True}).awaitTermination()
        if rows:
            source.add(rows)
    assert plain(collected) == EXPECTED


@pytest.mark.usefixtures("finished")
def test_a_query_keeps_the_number_of_its_operators(feed, begin, collected, tmp_path):
    stream = feed(SCHEMA, BATCHES[0], name="other").stream()
    one = balance(stream, "k", numPartitions=2).transformWithStateInPandas(
        Running(), "k string, total long", "update", "none"
    )
    with pytest.raises(MismatchError, match="has 2 keyed operators one after the other, but 1 were given"):
        begin(one, collected, tmp_path / "cp")
    (tmp_path / "cp/stages").rename(tmp_path / "away")
    with pytest.raises(MismatchError, match="has 1 keyed operator one after the other, but 2 were given"):
        begin(chained(stream), collected, tmp_path / "cp")


@pytest.mark.usefixtures("finished")
def test_a_stage_of_another_time_is_refused(feed, begin, collected, tmp_path):
    stream = feed(SCHEMA, BATCHES[0], name="other").stream()
    log = tmp_path / "cp/stages/2/log"
    for version in (2, 3):
        (log / f"{version:020d}.commit").unlink()
    with pytest.raises(LogBrokenError, match=r"stage 2 is older than the stage before: .* ends with batch 0, but"):
        begin(chained(stream), collected, tmp_path / "cp")


def test_group_by_of_an_output_names_balance(feed):
    counts = balance(feed(SCHEMA, BATCHES[0]).stream(), "k").count()
    with pytest.raises(InvalidArgumentError, match=r"groupBy needs .* use balance\(stream, \*key\)"):
        counts.groupBy("k")
    with pytest.raises(InvalidArgumentError, match="nothing"):
        balance(counts, "nothing")


def test_explain_shows_both_operators(feed, capsys):
    chained(feed(SCHEMA, BATCHES[0]).stream()).explain()
    first, second = capsys.readouterr().out.split("then, on this output\n")
    assert re.match(r"== Keyed stream ==\nkey +k\n", first)
    assert re.search(r"\noperator +Running, ", first)
    assert re.match(r"key +odd\n", second)
    assert re.search(r"\noperator +Seen, ", second)
