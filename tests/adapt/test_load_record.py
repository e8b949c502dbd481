"""The record of loads counts each key once, believes no noise, and survives storage."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise import DamagedError, InvalidArgumentError, MismatchError, Plan, UnknownFormatError
from equipoise.adapt import BatchLoads, StreamLoadRecord, Work
from equipoise.adapt.load_record import LISTED_KEYS
from equipoise.framing import seal, unseal
from equipoise.plan.cost import price

GROUPS = 8

works = st.builds(
    Work, st.integers(0, 1000), st.floats(0, 100, allow_subnormal=False), st.none() | st.floats(0, 1e6, width=32)
)


@st.composite
def batches(draw):
    """Groups, isolated keys, and listed keys that are a part of their group."""
    groups = draw(st.dictionaries(st.integers(0, GROUPS - 1), works, max_size=GROUPS))
    isolated = draw(st.dictionaries(st.integers(-50, 50), works, max_size=4))
    listed = {}
    for group, work in groups.items():
        key = group + GROUPS * draw(st.integers(-3, 3))
        if key not in isolated and draw(st.booleans()):
            part = draw(st.floats(0, 1))
            listed[key] = Work(int(work.rows * part), work.seconds * part)
    return BatchLoads(GROUPS, groups, isolated, listed)


def recorded(parts, **options):
    loads = StreamLoadRecord(GROUPS, **options)
    for part in parts:
        loads = loads.add(part)
    return loads


@given(st.lists(batches(), max_size=5), st.sampled_from(["auto", "rows", "seconds"]))
def test_listed_and_isolated_keys_are_part_of_their_groups_and_shares_add_up_to_one(parts, load):
    loads = recorded(parts, load=load)
    histogram, costs = loads.histogram(), loads.costs()
    listed = np.bincount(np.mod(histogram.fingerprints, GROUPS), histogram.shares, GROUPS)
    assert np.all(listed * loads.total <= costs.group_load * (1 + 1e-6))
    priced = price(histogram, GROUPS, costs)
    if loads.total:
        assert priced.loads(Plan(2, np.arange(GROUPS) % 2)).sum() == pytest.approx(1)
        assert histogram.unlisted == pytest.approx((costs.group_load / loads.total - listed).max(), abs=1e-6)


@given(st.lists(batches(), max_size=4), st.lists(batches(), max_size=3), st.sampled_from(["auto", "rows", "seconds"]))
def test_a_record_that_was_stored_goes_on_as_the_one_that_was_not(earlier, later, load):
    loads = recorded(earlier, load=load, decay=0.3)
    read = StreamLoadRecord.from_bytes(loads.to_bytes())
    assert (read.load, read.decay, read.tail_groups) == (load, 0.3, GROUPS)
    for part in later:
        loads, read = loads.add(part), read.add(part)
    assert read.to_bytes() == loads.to_bytes()
    assert read.histogram() == loads.histogram()


@given(batches(), st.data())
def test_a_single_changed_byte_is_noticed(batch, data):
    stored = bytearray(recorded([batch]).to_bytes())
    at = data.draw(st.integers(0, len(stored) - 1))
    stored[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises((DamagedError, UnknownFormatError)):
        StreamLoadRecord.from_bytes(bytes(stored))


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("rows", -1.0, "not a finite number"),
        ("groups", b"", "0 of 8 tail groups"),
        ("groups", np.full(5 * GROUPS, np.nan, dtype="<f4").tobytes(), "not a finite number"),
        ("groups", np.full(5 * GROUPS, 1e9, dtype="<f4").tobytes(), "cost is out of range"),
        ("keys", b"1", "invalid contents"),
        ("keys", bytes(50), "not in order"),
        ("keys", bytes(24) + b"\x07", "neither 0 nor 1"),
        ("load", "bytes", "load must be one of auto, seconds, rows"),
        ("decay", 1.0, "decay"),
        ("tail_groups", 2**40, "8 of 1099511627776 tail groups"),
        ("rows", "many", "invalid contents"),
    ],
)
def test_impossible_contents_are_refused(field, value, complaint):
    kind = "stream-load-record"
    contents = unseal(kind, 2, StreamLoadRecord(GROUPS).to_bytes())
    with pytest.raises(DamagedError, match=complaint):
        StreamLoadRecord.from_bytes(seal(kind, 2, contents | {field: value}))


def test_figures_may_be_numbers_of_numpy():
    batch = BatchLoads(4, {np.int64(0): Work(np.int64(3), np.float64(0.5), np.float32(10))})
    loads = StreamLoadRecord(4).add(batch)
    assert StreamLoadRecord.from_bytes(loads.to_bytes()).to_bytes() == loads.to_bytes()


def test_what_cannot_have_been_measured_is_refused():
    with pytest.raises(InvalidArgumentError, match=r"tail group 8 is not one of 0\.\.7"):
        BatchLoads(8, {8: Work(1, 1)})
    with pytest.raises(InvalidArgumentError, match="key 0000000000000005 is both in isolated and in listed"):
        BatchLoads(8, {}, {5: Work(1, 1)}, {5: Work(1, 1)})
    for bad in (Work(-1, 0), Work(1, float("nan")), Work(1, 1, float("inf")), Work(1, 1, float("nan"))):
        with pytest.raises(InvalidArgumentError, match="key 0000000000000005 has"):
            BatchLoads(8, {}, {5: bad})
    with pytest.raises(MismatchError, match="4 tail groups but the record has 8"):
        StreamLoadRecord(8).add(BatchLoads(4, {}))
    with pytest.raises(InvalidArgumentError, match="decay"):
        StreamLoadRecord(8, decay=1)
    with pytest.raises(InvalidArgumentError, match="load must be one of"):
        StreamLoadRecord(8, load="bytes")


def test_a_batch_without_rows_leaves_the_loads_as_they_were():
    loads = recorded([BatchLoads(GROUPS, {0: Work(10, 1), 1: Work(30, 1)})])
    after = loads.add(BatchLoads(GROUPS, {2: Work(0, 0, 500)}))
    assert after.histogram() == loads.histogram()
    assert after.costs().group_load.tolist() == loads.costs().group_load.tolist()
    assert after.batch_work == loads.batch_work
    assert after.costs().group_state[2] == 500


def test_earlier_batches_count_less_by_the_decay():
    even = BatchLoads(2, {0: Work(500, 1), 1: Work(500, 1)})
    uneven = BatchLoads(2, {0: Work(510, 1), 1: Work(490, 1)})
    loads = StreamLoadRecord(2, decay=0.25).add(even).add(uneven)
    assert loads.costs().group_load.tolist() == [635, 615]
    assert loads.effective_rows == pytest.approx(1250**2 / 1062.5)


def test_a_hot_set_that_is_swapped_makes_the_past_count_nothing():
    before = BatchLoads(2, {0: Work(900, 1), 1: Work(100, 1)})
    after = BatchLoads(2, {0: Work(100, 1), 1: Work(900, 1)})
    loads = StreamLoadRecord(2).add(before).add(before).add(after)
    assert loads.costs().group_load.tolist() == [100, 900]
    assert loads.effective_rows == 1000


def test_rows_that_differ_by_chance_alone_leave_the_past_its_weight():
    rng = np.random.default_rng(1)
    loads = StreamLoadRecord(64)
    for _ in range(30):
        loads = loads.add(BatchLoads(64, {g: Work(int(n), 0.01) for g, n in enumerate(rng.poisson(20, 64))}))
    assert loads.effective_rows == pytest.approx(3 * 64 * 20, rel=0.1)


def test_a_key_that_is_truly_slow_shows_in_its_second_batch():
    batch = BatchLoads(4, {g: Work(1000, 1.0 + 5 * (g == 0)) for g in range(4)}, listed={8: Work(10, 5.0)})
    loads = StreamLoadRecord(4).add(batch)
    assert loads.histogram().share_of(8) == pytest.approx(10 / 4000)
    loads = loads.add(batch)
    assert loads.histogram().share_of(8) > 0.4
    assert recorded([BatchLoads(GROUPS, {0: Work(10, 5), 1: Work(10, 1)})], load="seconds").costs().group_load[0] == 5


def test_a_pause_of_the_machine_is_nobodys_cost():
    usual = BatchLoads(4, {g: Work(1000, 1.0) for g in range(4)})
    pause = BatchLoads(4, {g: Work(1000, 1.0 + 60 * (g == 2)) for g in range(4)})
    loads = StreamLoadRecord(4).add(usual).add(pause).add(usual).add(pause)
    assert len(set(loads.costs().group_load.tolist())) == 1


def test_a_batch_of_next_to_no_work_says_nothing_about_costs():
    quick = BatchLoads(4, {g: Work(1000, 1e-3 * (1 + 9 * (g == 2))) for g in range(4)})
    assert len(set(StreamLoadRecord(4).add(quick).add(quick).add(quick).costs().group_load.tolist())) == 1
    clockless = BatchLoads(4, {0: Work(1000, 1.0), **{g: Work(1000, 0.0) for g in (1, 2, 3)}})
    assert len(set(StreamLoadRecord(4).add(clockless).add(clockless).costs().group_load.tolist())) == 1


@given(st.integers(0, 2**32), st.sampled_from(["group", "task"]))
@settings(max_examples=30)
def test_timing_noise_of_a_fifth_does_not_change_the_loads(seed, unit):
    rng = np.random.default_rng(seed)
    loads, rows = StreamLoadRecord(64), StreamLoadRecord(64, load="rows")
    for _ in range(5):
        noise = rng.uniform(0.8, 1.2, 64) if unit == "group" else np.repeat(rng.uniform(0.8, 1.2, 8), 8)
        batch = BatchLoads(64, {g: Work(100, noise[g] * 0.1) for g in range(64)})
        loads, rows = loads.add(batch), rows.add(batch)
    assert np.allclose(loads.costs().group_load, rows.costs().group_load, rtol=0.15)


def test_state_follows_a_key_that_is_isolated_and_folded_back():
    loads = StreamLoadRecord(4).add(BatchLoads(4, {0: Work(10, 1, 1000)}, listed={8: Work(5, 1, 400)}))
    assert (loads.costs().group_state[0], loads.costs().key_state) == (1000, {8: 400})
    loads = loads.add(BatchLoads(4, {1: Work(10, 1)}, {8: Work(5, 1)}))
    assert (loads.costs().group_state[0], loads.costs().key_state) == (1000, {8: 400})
    loads = loads.add(BatchLoads(4, {0: Work(10, 1, 700)}, {8: Work(5, 1, 450)}))
    assert loads.costs().group_state[0] == 1150
    loads = loads.add(BatchLoads(4, {1: Work(10, 1)}))
    assert loads.costs().group_state[0] == 1150


def test_the_hottest_keys_are_listed_and_the_isolated_ones():
    many = LISTED_KEYS + 200
    listed = {key: Work(10 + key, 0.1) for key in range(many)}
    isolated = {-key: Work(0, 0.0) for key in range(1, 31)}
    groups = {0: Work(sum(w.rows for w in listed.values()), 200.0)}
    loads = StreamLoadRecord(1).add(BatchLoads(1, groups, isolated, listed))
    assert set(loads.histogram().fingerprints.tolist()) == set(range(200, many))
    assert len(unseal("stream-load-record", 2, loads.to_bytes())["keys"]) == 25 * (LISTED_KEYS + 30)


@given(st.lists(batches(), min_size=1, max_size=4), st.integers(1, GROUPS))
def test_the_state_of_the_partitions_is_all_state_each_key_where_its_plan_has_it(parts, partitions):
    isolated = {key: key % partitions for key in parts[-1].isolated}
    plan = Plan(partitions, np.arange(GROUPS) % partitions, isolated)
    loads = recorded(parts)
    found = loads.state_bytes(plan)
    assert len(found) == partitions
    assert sum(found) == pytest.approx(loads.costs().group_state.sum(), rel=1e-5, abs=partitions)


def test_an_isolated_key_has_its_state_in_its_own_partition():
    batch = BatchLoads(2, {0: Work(1, 0, 100.0), 1: Work(1, 0, 10.0)}, {4: Work(5, 0, 1000.0)})
    assert StreamLoadRecord(2).add(batch).state_bytes(Plan(2, [0, 1], {4: 1})) == [100, 1010]
