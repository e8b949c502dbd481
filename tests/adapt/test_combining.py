"""Whether map tasks reduce their rows: by the rows of a key that they have, by hot keys, and by measured times."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise import InvalidArgumentError
from equipoise.adapt import Combining, Look
from equipoise.adapt.combining import REMEMBERED


def batch(scope="none", rows=1000, keys=500, sent=None, hot=(), seconds=0.0):
    sent = rows if sent is None else sent
    shown = {"hot_keys": [key for key, _ in hot], "hot_rows": [count for _, count in hot]}
    return {"rows": rows, "keys": keys, "sent_rows": sent, "combine_scope": scope, "seconds": seconds, **shown}


def after(*batches, **options):
    combining = Combining(**{"buffer_cost": 4, **options})
    for each in batches:
        combining.note(each)
    return combining


def test_the_first_batch_is_combined_unless_a_look_says_that_it_does_not_pay():
    assert after().decide(8).scope == "all"
    tasks = np.arange(1000) // 500
    assert after().decide(8, Look.of(np.arange(1000), seconds=0.1, tasks=tasks)).scope == "none"
    assert after().decide(8, Look.of(np.arange(1000) % 10, seconds=0.1, tasks=tasks)).scope == "all"
    unique = Look.of(np.arange(1000), seconds=0.1, chances=0.001, tasks=tasks)
    assert after().decide(8, unique).scope == "none", "keys seen once are not taken for keys that repeat"


def test_it_goes_on_while_keys_repeat_and_stops_when_they_do_not():
    assert after(batch("all", sent=200)).decide(8).scope == "all"
    stopped = after(batch("all", sent=400)).decide(8)
    assert (stopped.scope, stopped.reason) == (
        "none",
        "2.5 rows for each buffer, and a buffer costs as much as 4 rows",
    )
    assert after(batch("all", sent=400), batch(keys=400)).decide(8).scope == "none"
    assert after(batch("all", sent=400), batch(keys=100)).decide(8).scope == "all", "5 times as many rows a key"
    assert after(batch("all", sent=999), *[batch()] * REMEMBERED).decide(8).scope == "none"
    assert after(batch("all", sent=999), *[batch(keys=2)] * REMEMBERED).decide(8).scope == "all"


def test_a_hot_key_is_combined_and_no_longer_when_it_has_cooled():
    hot = batch(rows=100_000, keys=99_000, hot=[(7, 30_000), (8, 2_000), (9, 100)])
    chosen = after(hot, hot_only=True).decide(8)
    assert (chosen.scope, chosen.keys) == ("hot", (7, 8))
    assert after(hot).decide(8).scope == "all", "for operators that combine all or none"
    assert after(hot, hot_only=True).decide(2).scope == "none", "30 % of the load is not too much for one of two tasks"
    for rows, scope in ((11_000, "hot"), (9_000, "none")):
        cooler = batch("hot", rows=100_000, keys=99_000, hot=[(7, rows)])
        assert after(cooler, hot_only=True).decide(8).scope == scope
    few = batch(rows=20, keys=17, hot=[(7, 4)])
    assert after(few, hot_only=True).decide(8).scope == "none", "chance"


def test_measured_times_decide_where_both_ways_have_run():
    quick, slow = batch(keys=900, seconds=1.0), batch("all", sent=100, seconds=2.0)
    assert after(slow, quick, slow, slow).decide(8).scope == "all", "once is no measurement"
    turned = after(slow, quick, quick, slow).decide(8)
    assert turned.scope == "none"
    assert turned.reason == "2e+03 µs for each row with combining, 1e+03 µs without"
    small = batch(rows=100, keys=90, seconds=1.0)
    assert after(slow, small, small, slow).decide(8).scope == "all", "batches of another size tell nothing"


def test_a_mode_or_an_operator_without_merge_leaves_no_choice():
    assert after(mode="always").decide(8).scope == "all"
    assert after(mode="never").decide(8).scope == "none"
    assert after(mode="always", refused="Sums has no merge").decide(8).reason == "Sums has no merge"
    with pytest.raises(InvalidArgumentError, match="combine must be one of auto, always, never, got True"):
        Combining(True)


@given(
    st.lists(
        st.builds(
            batch,
            st.sampled_from(["all", "hot", "none"]),
            rows=st.integers(0, 2000),
            keys=st.integers(0, 2000),
            sent=st.integers(0, 2000),
            hot=st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 2000)), max_size=3),
            seconds=st.floats(0, 3),
        ),
        max_size=50,
    ),
    st.integers(1, 50),
)
def test_the_last_batches_of_the_log_are_enough(batches, tasks):
    assert after(*batches).decide(tasks) == after(*batches[-REMEMBERED:]).decide(tasks)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=300), st.integers(1, 9), st.integers(0, 99))
def test_a_look_at_all_rows_counts_the_buffers_of_map_tasks(keys, tasks, seed):
    readers = np.random.default_rng(seed).integers(0, tasks, len(keys))
    look = Look.of(keys, seconds=0.1, tasks=readers)
    assert look.buffers == len(set(zip(keys, readers.tolist(), strict=True)))
    sent = look.combined()
    assert (sent.counts <= np.minimum(look.counts, tasks)).all()
    assert look.buffers <= sent.rows <= look.rows
    only = look.combined([keys[seed % len(keys)]])
    assert (only.counts != look.counts).sum() <= 1
    assert only.rows <= look.rows


def zipf_rows(keys, exponent, rows, draw):
    shares = np.arange(1, keys + 1) ** -exponent
    return draw.choice(keys, rows, p=shares / shares.sum())


@pytest.mark.parametrize("tasks", [2, 16])
@pytest.mark.parametrize(
    ("keys", "exponent"), [(1_700, 1.1), (1_700, 0.0), (50_000, 0.0), (50_000, 1.0), (200_000, 0.8), (10**12, 0.0)]
)
def test_the_rows_of_a_buffer_are_estimated_from_a_sample_within_a_factor_of_two(keys, exponent, tasks):
    draw = np.random.default_rng(7)
    rows = draw.integers(0, keys, 200_000) if keys > 10**6 else zipf_rows(keys, exponent, 200_000, draw)
    task = np.arange(200_000) * tasks // 200_000
    chance = np.minimum(1.0, 0.02 * 200_000 / tasks / (1 + np.arange(200_000) % (200_000 // tasks)))
    taken = draw.random(200_000) < chance
    exact = Look.of(rows, seconds=0.1, tasks=task).buffers
    part = Look.of(rows[taken], seconds=0.1, chances=chance[taken], tasks=task[taken])
    assert part.rows == pytest.approx(200_000, rel=0.1)
    assert 1 / 2.2 < part.buffers / exact < 1.3
    assert 1 / 2.2 < part.combined().rows / exact < 1.3
