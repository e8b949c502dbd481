"""The receiver: every tuple in one block of one batch, sealed in time, whatever happens in between."""

import threading
import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise import FeedError, InvalidArgumentError, PlanningError
from equipoise.microbatch import BLOCKS, Accumulator
from equipoise.microbatch import receiver as module
from equipoise.microbatch.feeds import CallableFeed, GeneratedFeed
from equipoise.microbatch.rates import Rate
from equipoise.microbatch.receiver import Cutting, Receiver, cut_table, require_cutting
from equipoise.microbatch.spool import BUCKET, SPLIT, Spool

SCHEMA = pa.schema({"key": pa.int64(), "value": pa.int64()})
INTERVAL = 0.1


@pytest.fixture(autouse=True)
def _patient_receiver(monkeypatch):
    """Let a loaded machine seal batches late; with so short an interval that would be an error."""
    monkeypatch.setattr(module, "_LATE_BATCHES", 10**9)


def generated(count, rate=20_000):
    return GeneratedFeed(SCHEMA, Rate(rate), keys=100, seed=1, count=count)


def started(folder, feed, **options):
    receiver = Receiver(Spool(folder), feed, SCHEMA, Cutting(("key",), INTERVAL, **options))
    receiver.start()
    return receiver


def wait_for(condition, seconds=120):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def wait_for_intervals(receiver, count):
    """Wait until the receiver has gone through so many intervals, with or without a batch."""
    cut = receiver._cut
    wait_for(lambda: receiver._cut > cut + (count - 0.5) * INTERVAL)


def rows_of(spool):
    found = []
    for number in spool.numbers():
        for section in spool.batch(number).blocks:
            found += spool.block(number, section)["key"].to_pylist()
    return found


def expected(count):
    feed = generated(count, rate=1e9)
    feed.open(None)
    keys = []
    while (chunk := feed.read(0)) is not None:
        keys += chunk.table["key"].to_pylist()
    return keys


@given(
    st.lists(st.one_of(st.none(), st.integers(0, 12)), min_size=1, max_size=80),
    st.integers(1, 6),
    st.sampled_from(sorted(BLOCKS)),
)
@settings(max_examples=60)
def test_blocks_hold_every_row_once_and_tell_which_keys_are_split(keys, count, method):
    rows = pa.table({"key": pa.array(keys, pa.int64()), "at": list(range(len(keys)))})
    buffer = Accumulator(0, 1, expected=10, expected_keys=3)
    buffer.add(module.fingerprints(module._values(rows["key"])), 0.5)
    batch = buffer.close()
    blocks = BLOCKS[method](batch, min(count, len(keys)))
    found = cut_table(rows, batch, blocks, 3)
    assert sorted(at for block in found for at in block["at"].to_pylist()) == list(range(len(keys)))
    homes = Counter(key for block in found for key in set(block["key"].to_pylist()))
    buckets = {}
    for block in found:
        columns = (block[name].to_pylist() for name in ("key", BUCKET, SPLIT))
        for key, bucket, split in zip(*columns, strict=True):
            assert split == (homes[key] > 1)
            assert 0 <= bucket < 3
            assert buckets.setdefault(key, bucket) == bucket
    assert all(row["at"] == rows["at"][row["at"]].as_py() for block in found for row in block.to_pylist())


def test_every_tuple_is_sealed_once_and_batches_end_at_multiples_of_the_interval(tmp_path, monkeypatch):
    seal, wanted = Receiver._seal, []

    def noted(receiver, *given):
        wanted.append(given[-1])
        seal(receiver, *given)

    monkeypatch.setattr(Receiver, "_seal", noted)
    receiver = started(tmp_path, generated(6000), blocks=3)
    wait_for(lambda: receiver.is_done and receiver.sealed > 4)
    receiver.stop()
    spool = Spool(tmp_path)
    assert sorted(rows_of(spool)) == sorted(expected(6000))
    lines = spool.batch_lines()
    assert [line["batch"] for line in lines] == list(range(len(lines)))
    assert all(line["bsi"] <= 1 for line in lines)
    assert {line["blocks"] for line in lines if line["rows"] > 3} == {3}
    ends = np.array(wanted) / INTERVAL
    assert np.allclose(ends, np.round(ends), rtol=0, atol=0.01)


def test_a_receiver_goes_on_where_the_one_before_ended(tmp_path):
    for _ in range(5):
        receiver = started(tmp_path, generated(6000, rate=8000), blocks=3)
        sealed = receiver.sealed
        wait_for(lambda: receiver.sealed > sealed)  # noqa: B023 - called at once
        receiver.stop()
    receiver = started(tmp_path, generated(6000, rate=8000), blocks=3)
    wait_for(lambda: receiver.is_done)
    receiver.stop()
    assert sorted(rows_of(Spool(tmp_path))) == sorted(expected(6000))


def test_a_batch_that_was_open_in_a_crash_is_sealed_with_its_tuples(tmp_path):
    first = started(tmp_path, generated(2000), blocks=2)
    wait_for(lambda: first.sealed >= 1)
    first._stopping.set()  # no orderly end: nothing is sealed any more
    first._thread.join()
    first._sealer.shutdown()
    first._spool.close()
    second = started(tmp_path, generated(2000), blocks=2)
    wait_for(lambda: second.is_done)
    second.stop()
    assert sorted(rows_of(Spool(tmp_path))) == sorted(expected(2000))


def test_nothing_is_forgotten_that_tells_where_the_feed_is(tmp_path):
    receiver = started(tmp_path, generated(1000), blocks=2)
    wait_for(lambda: receiver.is_done)
    receiver.forget(receiver.sealed)
    sealed = receiver.sealed
    receiver.stop()
    assert len(Spool(tmp_path).numbers()) >= 1
    again = started(tmp_path, generated(1000), blocks=2)
    wait_for(lambda: again.sealed > sealed + 1)
    again.stop()
    assert sum(line["rows"] for line in Spool(tmp_path).batch_lines()) == 1000


def test_a_full_spool_slows_the_feed_and_drops_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("equipoise.microbatch.feeds.CHUNK_ROWS", 500)
    feed = generated(30_000, rate=1e6)
    receiver = started(tmp_path, feed, blocks=2, spool_bytes=1 << 16)
    wait_for(lambda: Spool(tmp_path).bytes >= 1 << 16)
    wait_for_intervals(receiver, 3)
    assert not feed.is_done
    assert Spool(tmp_path).bytes < 2 * (
        (1 << 16) + 20_000
    )  # one chunk more; while it is sealed, a batch is there twice
    found, spool = [], Spool(tmp_path)
    until = time.monotonic() + 120
    while not (receiver.is_done and spool.numbers() == [receiver.sealed - 1]):
        assert time.monotonic() < until
        sealed = receiver.sealed
        for number in spool.numbers():
            if number < sealed - 1:
                found += [k for s in spool.batch(number).blocks for k in spool.block(number, s)["key"].to_pylist()]
        spool.release(sealed)
        receiver.forget(sealed - 1)
        time.sleep(0.02)
    receiver.stop()
    assert sorted(found + rows_of(Spool(tmp_path))) == sorted(expected(30_000))


def test_blocks_and_buckets_follow_what_the_query_says(tmp_path):
    receiver = started(tmp_path, generated(None, rate=2000), blocks=2, buckets=2, least=1, most=4)
    spool = Spool(tmp_path)
    for number in range(12):
        spool.add_time(number, 0.99 * INTERVAL)
        sealed = receiver.sealed
        spool.release(sealed)
        wait_for(lambda sealed=sealed: receiver.sealed > sealed)
    wait_for(lambda: any(line["action"] == "out" for line in spool.batch_lines()))
    receiver.stop()
    assert spool.tasks().blocks > 2 or spool.tasks().buckets > 2
    changed = [line for line in spool.batch_lines() if line["action"] == "out"]
    assert "99% of its interval" in changed[0]["reason"]
    assert "tasks were added" in changed[0]["reason"]
    after = [line["reason"] for line in spool.batch_lines() if line["batch"] > changed[0]["batch"] and line["loads"]]
    assert "cut before the last change" in after[0]
    assert receiver._scale.most == 4


def test_failures_reach_whoever_asks_for_batches(tmp_path, monkeypatch):
    def dry(_):
        raise ValueError("dry")

    receiver = started(tmp_path / "a", CallableFeed(dry, SCHEMA))
    with pytest.raises(FeedError, match="dry"):
        wait_for(lambda: receiver.sealed > 1000)
    receiver.stop()

    def slow(batch, count):
        time.sleep(0.15)
        return BLOCKS["prompt"](batch, count)

    monkeypatch.setitem(module.BLOCKS, "level", slow)
    monkeypatch.setattr(module, "_LATE_BATCHES", 3)
    receiver = started(tmp_path / "b", generated(None, rate=5000))
    with pytest.raises(PlanningError, match="longer than the interval"):
        wait_for(lambda: receiver.sealed > 1000)
    receiver.stop()


def test_weights_are_sizes(tmp_path):
    rows = [{"key": 1, "value": 10}, {"key": 2, "value": 1}, {"key": 3, "value": None}] * 10
    given = iter([(rows, 1)])
    receiver = started(tmp_path, CallableFeed(lambda _: next(given, None), SCHEMA), blocks=2, weight="value")
    wait_for(lambda: any(line["rows"] for line in Spool(tmp_path).batch_lines()))
    receiver.stop()
    spool = Spool(tmp_path)
    [number] = [n for n in spool.numbers() if spool.batch(n).measures["rows"]]
    sizes = [
        sum(max(1, value or 1) for value in spool.block(number, section)["value"].to_pylist())
        for section in spool.batch(number).blocks
    ]
    assert abs(sizes[0] - sizes[1]) <= 20


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ({"interval": 0}, "interval must exceed"),
        ({"early": 1.0}, "early is a fraction"),
        ({"method": "best"}, "method must be one of level, prompt"),
        ({"blocks": 0}, "blocks"),
        ({"key": ()}, "need a key"),
    ],
)
def test_cuttings_that_cannot_be_are_reported(options, reported):
    with pytest.raises(InvalidArgumentError, match=reported):
        Cutting(**({"key": ("key",)} | options))


def test_columns_that_cannot_be_used_are_reported():
    schema = pa.schema({"when": pa.timestamp("us"), "k": pa.int32()})
    require_cutting(schema, Cutting(("k",), weight="k"))
    with pytest.raises(InvalidArgumentError, match="micro-batches cannot be planned"):
        require_cutting(schema, Cutting(("when",)))
    with pytest.raises(InvalidArgumentError, match="no key column 'x'"):
        require_cutting(schema, Cutting(("x",)))
    for weight in ("when", "x"):
        with pytest.raises(InvalidArgumentError, match="weight must be a column of numbers"):
            require_cutting(schema, Cutting(("k",), weight=weight))


def test_weights_of_any_size_are_planned(tmp_path):
    schema = pa.schema({"key": pa.int64(), "w": pa.float64()})
    rows = [
        {"key": number, "w": weight} for number, weight in enumerate([float("inf"), 1e300, -5.0, float("nan"), None])
    ]
    given = iter([(rows, 1)])
    feed = CallableFeed(lambda _: next(given, None), schema)
    receiver = Receiver(Spool(tmp_path), feed, schema, Cutting(("key",), INTERVAL, blocks=2, weight="w"))
    receiver.start()
    wait_for(lambda: any(line["rows"] == 5 for line in Spool(tmp_path).batch_lines()))
    receiver.stop()


def test_whole_weights_that_no_float_can_hold_are_planned(tmp_path):
    given = iter([([{"key": 1, "value": 2**53 + 1}, {"key": 2, "value": 2**63 - 1}], 1)])
    receiver = started(tmp_path, CallableFeed(lambda _: next(given, None), SCHEMA), blocks=2, weight="value")
    wait_for(lambda: receiver.sealed and any(line["rows"] == 2 for line in Spool(tmp_path).batch_lines()))
    receiver.stop()


def test_a_position_without_rows_is_kept(tmp_path):
    receiver = started(tmp_path, CallableFeed(lambda at: ([], {"seen": 7}) if at is None else None, SCHEMA))
    wait_for(lambda: any(Spool(tmp_path).batch(number).position for number in Spool(tmp_path).numbers()))
    receiver.stop()
    asked = []
    again = started(tmp_path, CallableFeed(asked.append, SCHEMA))
    wait_for(lambda: asked)
    again.stop()
    assert asked[0] == {"seen": 7}


def test_a_function_that_waits_for_data_stops_neither_batches_nor_the_end(tmp_path):
    go, ended = threading.Event(), threading.Event()
    receiver = started(tmp_path, CallableFeed(lambda _: go.wait(120) and ended.set(), SCHEMA))
    wait_for(lambda: receiver.sealed > 2)
    receiver.stop()
    assert not ended.is_set(), "the function still waits"
    go.set()


def test_a_line_of_a_batch_that_cannot_be_written_stops_nothing(tmp_path, caplog):
    (tmp_path / "batches.jsonl").mkdir()
    receiver = started(tmp_path, generated(2000), blocks=2)
    wait_for(lambda: receiver.is_done and receiver.sealed > 2)
    receiver.stop()
    assert sorted(rows_of(Spool(tmp_path))) == sorted(expected(2000))
    assert "is missing from batches.jsonl" in caplog.text


def test_what_cannot_be_planned_is_not_kept(tmp_path, monkeypatch):
    receiver = started(tmp_path, CallableFeed(lambda at: ([{"key": 1}], 1) if at is None else None, SCHEMA))

    def broken(*_):
        raise ValueError("no key")

    monkeypatch.setattr(module, "fingerprints", broken)
    again = started(tmp_path / "b", CallableFeed(lambda at: ([{"key": 1}], 1) if at is None else None, SCHEMA))
    with pytest.raises(ValueError, match="no key"):
        wait_for(lambda: again.sealed > 1000)
    again.stop()
    receiver.stop()
    assert not list((tmp_path / "b" / "open").iterdir())


def test_no_batch_is_sealed_while_the_spool_is_full_and_others_wait(tmp_path, monkeypatch):
    monkeypatch.setattr("equipoise.microbatch.feeds.CHUNK_ROWS", 500)
    receiver = started(tmp_path, generated(None, rate=1e5), blocks=2, spool_bytes=1 << 16)
    wait_for(lambda: Spool(tmp_path).bytes >= 1 << 16)
    wait_for(lambda: receiver._sealing is None or receiver._sealing.done())
    sealed = receiver.sealed
    wait_for_intervals(receiver, 5)
    assert receiver.sealed <= sealed + 1
    receiver.stop()


def test_times_of_another_run_change_nothing(tmp_path):
    spool = Spool(tmp_path)
    spool.claim(SCHEMA, ["key"])
    for number in range(16):
        spool.add_time(number, 100.0)
    spool.close()
    receiver = started(tmp_path, generated(None, rate=2000), blocks=2, buckets=2, least=1, most=9)
    wait_for(lambda: receiver.sealed > 3)
    receiver.stop()
    assert (spool.tasks().blocks, spool.tasks().buckets) == (2, 2)
