"""A query that is stopped in the middle of a batch delivers what it has committed, once."""

import logging
import sys
import threading
import time
from pathlib import Path

import pytest
from pyspark import cloudpickle

from equipoise.spark import Aggregator, balance
from equipoise.state.checkpoint import Checkpoint
from equipoise.state.fencing import claim, tenancy
from equipoise.state.log import CommitLog
from equipoise.storage import Storage

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import test modules

PATIENCE = 120  # seconds


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


class Ending:
    """A sink that is stopped while it takes a batch, and takes it to its end."""

    def __init__(self, batch):
        self.batch, self.given, self.inside, self.go = batch, [], threading.Event(), threading.Event()

    def __call__(self, _df, batch):
        if batch == self.batch:
            self.inside.set()
            assert self.go.wait(PATIENCE)
        self.given.append(batch)


class Slow:
    """A sink that is in the middle of a Spark job of one batch until the query is stopped.

    Parameters
    ----------
    batch
        Which one.
    folder
        Where the job says that it runs, and is let go.
    fails
        How often the sink fails on that batch after the stop.
    """

    def __init__(self, batch, folder, fails=0):
        self.batch, self.folder, self.fails, self.given = batch, str(folder), fails, []

    def __call__(self, df, batch):
        if batch == self.batch and not Path(self.folder, "inside").exists():
            df.mapInPandas(_waiting(self.folder), df.schema).collect()
            raise AssertionError("the job must be cancelled")
        if batch == self.batch and self.fails:
            self.fails -= 1
            raise OSError("the sink is out of order")
        self.given.append((batch, sorted(map(tuple, df.collect()))))


def _waiting(folder):
    def wait(frames):
        Path(folder, "inside").touch()
        while not Path(folder, "go").exists():
            time.sleep(0.02)
        yield from frames

    return wait


def start(source, tmp_path, sink):
    counts = balance(source.stream(), "k", numPartitions=2, tailGroups=8).aggregate(Count(), "k string, n long")
    writer = counts.writeStream.foreachBatch(sink).trigger(availableNow=True)
    return writer.start(checkpointLocation=str(tmp_path / "cp"))


def stop(query, sink, before=lambda: None):
    """Stop a query inside its sink."""
    end = time.monotonic() + PATIENCE
    while not Path(sink.folder, "inside").exists():
        assert query.isActive
        assert time.monotonic() < end
        time.sleep(0.02)
    before()
    query.stop()
    Path(sink.folder, "go").touch()


def test_a_batch_that_the_sink_took_while_the_query_was_stopped_is_not_delivered_again(source, tmp_path):
    sink = Ending(1)
    query = start(source, tmp_path, sink)
    assert sink.inside.wait(PATIENCE)
    stopping = [threading.Thread(target=query.stop) for _ in range(2)]
    for thread in stopping:
        thread.start()
    sink.go.set()
    for thread in stopping:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert sink.given == [0, 1]
    start(source, tmp_path, sink).awaitTermination()
    assert sink.given == [0, 1, 2]


def test_a_query_that_was_taken_over_leaves_its_batch_to_the_other(source, tmp_path, caplog):
    sink = Slow(1, tmp_path)
    query = start(source, tmp_path, sink)
    with caplog.at_level(logging.WARNING):
        stop(query, sink, before=lambda: claim(Storage(str(tmp_path / "cp")), lambda _: False))
    assert "the last committed batch is left to the query that has taken over: another query has taken" in caplog.text
    assert [batch for batch, _ in sink.given] == [0]


@pytest.fixture
def source(feed):
    return feed("k string, v int", [("a", 1), ("b", 2)], [("a", 3)], [("b", 4)])


def test_what_was_committed_is_delivered_on_stop_and_not_again_at_the_next_start(source, tmp_path):
    sink = Slow(1, tmp_path)
    stop(start(source, tmp_path, sink), sink)
    storage = Storage(str(tmp_path / "cp"))
    assert CommitLog(storage).head() == 2
    assert sink.given == [(0, [("a", 1), ("b", 1)]), (1, [("a", 2)])]
    assert Checkpoint(storage).is_delivered(CommitLog(storage).read(2))
    assert tenancy(storage) == "ended"
    start(source, tmp_path, sink).awaitTermination()
    assert [batch for batch, _ in sink.given] == [0, 1, 2]
    assert sink.given[2] == (2, [("b", 2)])


def test_a_delivery_on_stop_that_fails_is_reported_and_made_at_the_next_start(source, tmp_path, caplog):
    sink = Slow(1, tmp_path, fails=1)
    with caplog.at_level(logging.WARNING):
        stop(start(source, tmp_path, sink), sink)
    said = (
        "the last committed batch is not delivered; the next start delivers it: UserFunctionError: OSError in the sink"
    )
    assert said in caplog.text
    assert "raise OSError" in caplog.text
    assert [batch for batch, _ in sink.given] == [0]
    start(source, tmp_path, sink).awaitTermination()
    assert [batch for batch, _ in sink.given] == [0, 1, 2]


def test_a_query_that_is_stopped_in_its_look_does_not_run_the_batch(source, tmp_path):
    waiting = source.stream().mapInPandas(_waiting(str(tmp_path)), "k string, v int")
    counts = balance(waiting, "k", numPartitions=2, tailGroups=8, look="always").aggregate(Count(), "k string, n long")
    sink = Slow(None, tmp_path)
    query = counts.writeStream.foreachBatch(sink).start(checkpointLocation=str(tmp_path / "cp"))
    stopping = threading.Thread(target=stop, args=(query, sink))
    stopping.start()
    stopping.join(PATIENCE)
    is_stuck = stopping.is_alive()
    Path(tmp_path, "go").touch()
    assert not is_stuck, "the batch ran although the query was stopped"
    assert query.exception() is None
    assert CommitLog(Storage(str(tmp_path / "cp"))).head() == 0
    start(source, tmp_path, sink).awaitTermination()
    assert [batch for batch, _ in sink.given] == [0, 1, 2]
