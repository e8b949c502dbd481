"""What is seen of a batch replaces the loads of the past, and is looked for where that pays."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise import InvalidArgumentError, Plan
from equipoise.adapt import BatchLoads, Look, Looking, StreamLoadRecord, Work, rows_needed, saved_seconds
from equipoise.plan.cost import price

GROUPS = 8
keys = st.lists(st.integers(-40, 40), max_size=60)


@given(keys, keys, st.sampled_from(["auto", "rows"]))
def test_the_loads_of_a_look_are_its_rows_whatever_was_before(before, seen, load):
    past = StreamLoadRecord(GROUPS, load=load)
    if before:
        groups = {group: Work(sum(key % GROUPS == group for key in before), 0.0, 100.0) for group in range(GROUPS)}
        past = past.add(BatchLoads(GROUPS, groups))
    loads = past.seen(Look.of(seen, seconds=0.0))
    found = dict(loads.histogram())
    assert found == pytest.approx({key: seen.count(key) / len(seen) for key in seen})
    wanted = np.bincount(np.mod(np.array(seen, dtype=np.int64), GROUPS), minlength=GROUPS)
    assert loads.costs().group_load.tolist() == pytest.approx(wanted.tolist())
    if before:
        assert loads.costs().group_state.tolist() == [100.0] * GROUPS
    assert StreamLoadRecord.from_bytes(loads.to_bytes()).histogram() == loads.histogram()


@given(keys.filter(len), st.integers(1, 5))
def test_balance_predicted_from_all_rows_is_the_balance_that_follows(seen, partitions):
    look, plan = Look.of(seen, seconds=0.0), Plan(partitions, np.arange(GROUPS) % partitions, {3: 0})
    loads = StreamLoadRecord(GROUPS, load="rows").seen(look)
    counts = np.bincount(plan.assign(seen), minlength=partitions)
    assert look.imbalance(plan) == pytest.approx(counts.max() * partitions / len(seen))
    assert price(loads.histogram(), GROUPS, loads.costs()).loads(plan).tolist() == pytest.approx(
        (counts / len(seen)).tolist(), abs=1e-6
    )


def test_a_row_counts_what_rows_of_its_key_have_cost():
    slow = BatchLoads(2, {0: Work(1000, 1.0), 1: Work(1000, 1.0)}, listed={4: Work(100, 0.91)})
    past = StreamLoadRecord(2)
    for _ in range(3):
        past = past.add(slow)
    shares = dict(past.seen(Look.of([4] * 10 + [6] * 10 + [1] * 20, seconds=0.0)).histogram())
    assert shares[4] > 5 * shares[6]


def test_a_sample_counts_as_the_rows_that_were_seen_and_a_whole_batch_has_no_sampling_error():
    record = StreamLoadRecord(GROUPS)
    part, whole = Look.of([1, 2, 2], chances=0.01, seconds=0.1), Look.of([1, 2, 2], seconds=0.1)
    assert (part.is_exact, whole.is_exact) == (False, True)
    assert record.seen(part).effective_rows == pytest.approx(3 / 0.99)
    assert (part.rows, record.seen(part).total) == (pytest.approx(300), pytest.approx(300))
    assert record.seen(whole).effective_rows == 0  # chance explains nothing
    assert record.seen(Look.of([], seconds=0.1)).total == 0
    for impossible in (1.5, [1, 0.5, 0]):
        with pytest.raises(InvalidArgumentError, match="above 0 and at most 1"):
            Look.of([1, 2, 2], chances=impossible, seconds=0.1)


def test_rows_that_are_seen_with_unequal_chances_count_with_the_inverse():
    look = Look.of([5, 5, 6], chances=[1, 0.5, 0.1], seconds=0.1)
    assert (look.counts.tolist(), look.taken.tolist(), look.seen) == ([3.0, 10.0], [2, 1], 3)
    assert look.variances.tolist() == pytest.approx([4 * 0.5, 100 * 0.9])
    record = StreamLoadRecord(GROUPS).seen(look)
    assert dict(record.histogram()) == pytest.approx({5: 3 / 13, 6: 10 / 13})
    assert record.effective_rows == pytest.approx(13**2 / 92)
    assert look.imbalance(Plan(2, np.arange(GROUPS) % 2)) == pytest.approx(2 * 10 / 13)


@pytest.mark.parametrize(("partitions", "rows"), [(1, 20_000), (8, 20_000), (64, 212_935)])
def test_enough_rows_are_seen_for_the_error_that_a_plan_needs(partitions, rows):
    assert rows_needed(partitions) == rows


def batch(*, looked=None, imbalance=1.0, gain=0.0):
    measures = {"partition_rows": [1] * 4, "work_seconds": 4.0, "imbalance_rows": imbalance, "bound_rows": 1.0}
    measures |= {"rows": 4}
    if looked is not None:
        measures |= {"look_rows": 4, "look_seconds": looked, "promised_seconds": gain, "promised_rows": 1.0}
    return measures


def decisions(*batches, mode="auto"):
    looking = Looking(mode)
    made = [looking.decide()[0]]
    for each in batches:
        looking.note(each, slots=4)
        made.append(looking.decide()[0])
    return made


def test_a_steady_stream_stops_looking_and_one_that_drifts_starts_again():
    steady, drifting = batch(looked=0.1), batch(imbalance=1.8)
    assert decisions(steady, batch(), batch(), drifting, batch(looked=0.1, gain=0.8)) == [
        *(True, False, False, False, True, True)
    ]


def test_looks_that_gain_nothing_end_even_if_the_balance_stays_poor():
    reached = batch(looked=0.1, gain=0.0) | {"promised_rows": 1.8}
    assert decisions(*[reached] * 3, *[batch(imbalance=1.8)] * 3)[1:] == [False] * 6


def test_batches_without_rows_teach_nothing():
    empty = batch() | {"rows": 0, "partition_rows": [0] * 4, "work_seconds": 0.0}
    looked = batch(looked=0.1) | {"rows": 0, "look_rows": 0}
    assert decisions(looked, empty) == [True] * 3, "nothing is known of the keys yet"
    drifting = batch(looked=0.1, gain=0.8)
    assert decisions(drifting, *[empty] * 20)[-1], "timers between two batches do not end looking"


def test_looks_that_fail_end_and_are_tried_again_where_the_balance_is_poor():
    failed = batch(imbalance=1.8) | {"look_seconds": 0.3, "promised_seconds": 0.0, "look_rows": None}
    assert decisions(failed) == [True, False]
    assert decisions(failed, batch(imbalance=1.8)) == [True, False, True]


seconds = st.floats(0, 1)


@given(st.lists(st.tuples(seconds, seconds, st.floats(1, 3), st.integers(0, 3)), max_size=40), st.data())
def test_a_restart_continues_with_what_all_batches_before_have_taught(batches, data):
    cut = data.draw(st.integers(0, len(batches)))
    whole, part = Looking("auto"), Looking("auto")
    for number, (cost, gain, imbalance, kind) in enumerate(batches):
        if number == cut:
            part = Looking("auto", json.loads(json.dumps(part.experience)))
        measures = batch(looked=cost if kind else None, gain=gain, imbalance=imbalance)
        for looking in (whole, part):
            looking.note(measures, slots=4)
        assert part.decide() == whole.decide()


def test_the_modes_always_and_never_do_what_they_say():
    assert decisions(batch(looked=0.1), mode="always") == [True, True]
    assert decisions(batch(imbalance=3.0), mode="never") == [False, False]
    with pytest.raises(InvalidArgumentError, match="look must be one of auto, always, never"):
        Looking("sometimes")


def test_only_the_fullest_task_beyond_what_the_slots_allow_is_time_saved():
    assert saved_seconds(2.0, 1.0, work=8.0, partitions=8, slots=2) == 0
    assert saved_seconds(6.0, 1.0, work=8.0, partitions=8, slots=2) == pytest.approx(2.0)
    assert saved_seconds(1.0, 2.0, work=8.0, partitions=8, slots=None) == 0


def test_a_stream_with_hot_keys_is_looked_at_while_the_chance_of_others_is_worth_it():
    hot = {"imbalance_rows_hash": 2.0}  # other hot keys would cost 0.95 s of this batch
    cheap = [batch(looked=0.02) | hot] * 100
    assert all(decisions(*cheap[:30]))
    assert not decisions(*cheap)[-1], "100 batches have brought no other hot keys"
    assert not all(decisions(*[batch(looked=0.3) | hot] * 3)[1:]), "a look that is dear must save more"
    assert decisions(*[batch(looked=0.02)] * 3)[1:] == [False] * 3, "there is nothing to lose"
    changes = [batch(looked=0.02) | hot, batch(looked=0.02, gain=0.9) | hot]
    assert all(decisions(*changes * 60)), "hot keys that change every other batch"


def looked_at(looking, batches, *, cost=0.02, stake=2.0):
    """The places of the batches that are looked at, of a stream whose looks never save anything."""
    places = []
    for place in range(batches):
        wanted, _ = looking.decide()
        if wanted:
            places.append(place)
        seen = {"look_rows": 4, "look_seconds": cost, "promised_seconds": 0.0, "promised_rows": 1.0} if wanted else {}
        by_hash = 1.05 + stake * 4 / 4.0  # 4 s of work in 4 partitions
        looking.note(batch() | {"imbalance_rows_hash": by_hash} | seen, slots=4)
    return places


def test_a_skewed_steady_stream_is_looked_at_ever_more_rarely_down_to_a_floor():
    looking = Looking("auto")
    places = looked_at(looking, 3000)
    first = next(place for place in places if place + 1 not in places)
    assert places[: first + 1] == list(range(first + 1))
    assert (first + 1) * 0.02 < 2.0, "its looks took less than one batch with other hot keys loses"
    gaps = np.diff(places[first:]) - 1
    assert gaps[:6].tolist() == [16, 32, 64, 128, 256, 256]
    assert set(gaps[4:].tolist()) == {256}
    assert "a check after 256 batches without a look" in _reason_of_the_next_check(looking)


def _reason_of_the_next_check(looking):
    while not looking.decide()[0]:
        looked_at(looking, 1)
    return looking.decide()[1]


def test_a_stream_without_hot_keys_or_with_looks_that_cost_more_than_they_could_save_is_not_checked():
    assert looked_at(Looking("auto"), 1000, stake=0.0) == [0]
    assert looked_at(Looking("auto"), 1000, cost=3.0) == [0]


def test_a_swap_of_the_hot_keys_is_found_in_its_own_batch_and_ends_the_rarity():
    looking = Looking("auto")
    looked_at(looking, 700)
    assert not looking.decide()[0]
    looking.note(batch(imbalance=3.0) | {"imbalance_rows_hash": 3.05}, slots=4)
    assert looking.decide()[0], "the batch after the swap is looked at"
    chance = looking.numbers["look_chance"]
    assert chance == pytest.approx(2 / (8 + 51))
    assert looking.experience["gap"] == 16


def test_reading_twice_is_dear_where_looks_take_a_second_and_a_large_part_of_the_batch():
    for cost, seconds, dear in ((0.5, 1.0, False), (1.5, 10.0, False), (1.5, 5.0, True), (1.5, 4.0, True)):
        looking = Looking("always")
        assert not looking.is_dear(seconds), "nothing is known of its looks"
        looking.note(batch(looked=cost), slots=4)
        assert looking.is_dear(seconds) is dear


def test_the_numbers_of_a_decision_are_those_of_the_batches_before():
    looking = Looking("auto")
    new = {"look_cost": None, "look_gain": None, "look_stake": 0.0, "look_chance": 1 / 8}
    assert looking.numbers == new
    looking.note(batch(looked=0.1, gain=0.5) | {"imbalance_rows_hash": 2.05}, slots=4)
    assert looking.numbers == new | {"look_cost": 0.1, "look_gain": 0.5, "look_stake": pytest.approx(1.0)}
