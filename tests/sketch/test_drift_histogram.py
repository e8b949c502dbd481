"""The drift-respecting histogram follows its golden run, and its bounds hold through cuts, sampling and merges."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.errors import DamagedError, InvalidArgumentError, MismatchError
from equipoise.framing import pack_array, seal, unseal
from equipoise.sketch import DriftHistogram, Histogram

weighted_keys = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), max_size=200)


def small(**changes):
    """Golden parameters, which never sample and never forget."""
    parameters = {
        "take": 2,
        "soft_boundary": 2,
        "hard_boundary": 4,
        "compaction": 2,
        "backoff": 1,
        "drift_boundary": 0.5,
        "drift_history_weight": 0.8,
        "solidarity": 2,
        "shift_boundary": 1,
    }
    return DriftHistogram(**{**parameters, **changes})


def counted(pairs, **changes):
    sketch = small(**changes)
    sketch.update_many([key for key, _ in pairs], [weight for _, weight in pairs])
    return sketch


def letters(text, **changes):
    return counted([(ord(letter), 1) for letter in text], **changes)


def letter_weights(sketch):
    return {chr(key): weight for key, weight in sketch.top(100)}


def true_counts(pairs):
    counts: Counter[int] = Counter()
    for key, weight in pairs:
        counts[key] += weight
    return counts


def skewed(count, seed=3):
    return np.random.default_rng(seed).zipf(1.3, count) % 5000


@pytest.mark.parametrize(
    ("records", "held", "boundary", "drift"),
    [
        (7, {"a": 3, "b": 2, "c": 1, "d": 1}, 6, 0.5),
        (11, {"a": 5, "b": 2, "c": 1, "d": 1}, 6, 0.4),
        (18, {"g": 6, "a": 5}, 4, 0.3575),
        (22, {"g": 8, "a": 5}, 4, 0.286),
        (28, {"g": 12, "a": 5}, 4, 0.2288),
        (32, {"g": 14, "a": 5}, 4, 0.18304),
    ],
)
def test_the_golden_run_goes_as_computed(records, held, boundary, drift):
    stream = "aaabbcd aaef ggggggh ggij ggk ggl ggmn".replace(" ", "")
    sketch = letters(stream[:records])
    assert letter_weights(sketch) == held
    assert sketch._state.boundary == boundary
    assert sketch._state.drift == pytest.approx(drift)


def test_merging_workers_gives_the_golden_shares():
    one, two = letters("xxxxxxyyyz", hard_boundary=10), letters("xx" + 8 * "y" + 10 * "w", hard_boundary=10)
    merged = one.merge(two).histogram()
    assert [chr(key) for key in merged.fingerprints] == ["y", "w", "x", "z"]
    assert merged.shares.round(5).tolist() == [0.36667, 0.33333, 0.26667, 0.03333]
    assert (merged.error, merged.total) == (0, 30)
    assert np.allclose(merged.shares, Histogram.merge(one.histogram(), two.histogram()).shares)


def test_drifting_keys_raise_the_boundary_and_nothing_is_dropped():
    sketch = small(soft_boundary=6, hard_boundary=6, drift_boundary=0.1, drift_history_weight=0)
    for batch in range(10):
        keys = 6 * batch + np.arange(6)
        sketch.update_many(keys, [2**batch * 50, 2**batch * 50, 1, 1, 1, 1])
        assert sketch._state.boundary == 6 * (batch + 2)
    assert len(sketch.entries()[0]) == 60


def test_the_boundary_returns_to_where_it_started_and_no_further():
    sketch = small(take=5, soft_boundary=20, hard_boundary=20, compaction=10)
    sketch.update_many(np.repeat(np.arange(5), 1000))
    for key in range(1000, 2000):
        sketch.update(key)
        assert 20 <= sketch._state.boundary <= 40
    assert sketch._state.boundary == 20


@settings(max_examples=200)
@given(weighted_keys, weighted_keys, weighted_keys)
def test_without_sampling_bounds_are_certain_also_after_merges_and_later_updates(left, right, later):
    merged = counted(left).merge(counted(right))
    for key, weight in later:
        merged.update(key, weight)
    truth = true_counts(left + right + later)
    for key in range(42):
        assert merged.lower(key) <= truth[key] <= merged.upper(key)


@settings(max_examples=100)
@given(weighted_keys)
def test_without_sampling_the_margin_is_at_most_the_largest_weights_dropped(pairs):
    sketch, dropped = small(), 0.0
    for key, weight in pairs:
        before = dict(sketch.top(100))
        sketch.update(key, weight)
        before[key] = before.get(key, 0) + weight
        after = dict(sketch.top(100))
        dropped += max((amount for each, amount in before.items() if each not in after), default=0)
    assert all(sketch.upper(key) - sketch.lower(key) <= dropped for key in range(42))


def test_bounds_hold_for_every_seed_while_sampling_backs_off():
    keys = skewed(6000)
    truth = Counter(keys.tolist())
    hottest = [key for key, _ in truth.most_common(20)]
    for seed in range(60):
        sketch = DriftHistogram(5, soft_boundary=40, backoff=1.1, seed=seed)
        sketch.update_many(keys)
        assert sketch._state.scale > 10
        for key in hottest:
            assert sketch.lower(key) <= truth[key] <= sketch.upper(key)


def test_sampled_counts_are_right_on_average():
    keys = skewed(6000)
    estimates = []
    for seed in range(200):
        sketch = DriftHistogram(5, soft_boundary=40, backoff=1.1, seed=seed)
        sketch.update_many(keys)
        estimates.append(dict(sketch.top(1))[1])
    assert np.mean(estimates) == pytest.approx(np.sum(keys == 1), rel=0.02)


def test_weighted_rows_are_sampled_by_weight():
    rng = np.random.default_rng(5)
    keys, weights = skewed(4000), rng.integers(1, 200, 4000)
    truth = true_counts(zip(keys.tolist(), weights.tolist(), strict=True))
    sketch = DriftHistogram(5, soft_boundary=40, backoff=1.1)
    sketch.update_many(keys, weights)
    assert sketch.total == weights.sum()
    assert all(sketch.lower(key) <= count <= sketch.upper(key) for key, count in truth.items())


def test_a_row_heavier_than_the_scale_is_never_left_out():
    sketch = DriftHistogram(5, soft_boundary=40, backoff=1.1)
    sketch.update_many(skewed(6000))
    before = sketch._state.seen.norm
    sketch.update(-1, 10**6)
    assert sketch._state.seen.norm - before == 10**6


def test_another_seed_draws_another_sample_and_the_same_seed_the_same():
    keys = skewed(6000)

    def stored(seed):
        sketch = DriftHistogram(5, soft_boundary=40, seed=seed)
        sketch.update_many(keys)
        return sketch.to_bytes()

    assert stored(1) == stored(1)
    assert stored(1) != stored(2)


def test_different_inputs_draw_different_samples_even_with_the_same_seed():
    states = set()
    for seed in range(5):
        sketch = DriftHistogram(5, soft_boundary=40)
        sketch.update_many(skewed(100, seed))
        states.add(int(sketch._random[0]))
    assert len(states) == 5


def test_merging_cuts_to_the_boundary_and_bounds_what_it_dropped():
    one, two = letters("aaabbc", hard_boundary=4), letters("xxxyyz", hard_boundary=4)
    merged = one.merge(two)
    assert letter_weights(merged) == {"a": 3, "x": 3}
    assert merged.upper(ord("b")) == 2


def test_shares_never_add_up_to_more_than_one():
    sketch = DriftHistogram(5, soft_boundary=40, backoff=1.5)
    sketch.update_many(skewed(20_000))
    assert 0 < sketch.histogram().shares.sum() <= 1


def swapped(rows, phases, seed=3):
    """Rows of a skewed stream that has other keys in each phase."""
    rng = np.random.default_rng(seed)
    return [rng.zipf(1.3, rows) % 5000 + 10_000 * phase for phase in range(phases)]


def test_what_was_hot_before_the_keys_changed_is_forgotten():
    *before, last = swapped(20_000, 6)
    sketch = DriftHistogram(50, soft_boundary=400)
    for phase in before:
        sketch.update_many(phase)
    sketch.update_many(last)
    assert len(last) <= sketch.total < 1.2 * len(last)
    hottest = {key for key, _ in Counter(last.tolist()).most_common(20)}
    assert len(hottest & {key for key, _ in sketch.top(20)}) >= 18
    assert sketch.histogram().total == sketch.total


def test_a_sketch_that_never_forgets_names_what_was_hot_before():
    phases = swapped(20_000, 6)
    sketch = DriftHistogram(50, soft_boundary=400, shift_boundary=1)
    for phase in phases:
        sketch.update_many(phase)
    assert sketch.total == 120_000
    hottest = {key for key, _ in Counter(phases[-1].tolist()).most_common(20)}
    assert len(hottest & {key for key, _ in sketch.top(20)}) < 10


@pytest.mark.parametrize("weight", [1, 1000])
def test_a_steady_stream_is_remembered_whole(weight):
    for seed in range(20):
        sketch = DriftHistogram(50, soft_boundary=400, seed=seed)
        keys = skewed(60_000, seed)
        sketch.update_many(keys, np.full(len(keys), weight))
        assert sketch._state.boundaries > 10
        assert sketch.total == 60_000 * weight


def test_forgetting_starts_sampling_with_all_rows_again_and_returns_the_room():
    before, after = swapped(60_000, 2)
    sketch = DriftHistogram(50, soft_boundary=400)
    sketch.update_many(before)
    scale = sketch._state.scale
    sketch.update_many(after[:20_000])
    assert sketch._state.scale < scale / 2
    assert sketch._state.boundary == 400


def test_bounds_hold_about_the_rows_that_are_remembered_for_every_seed():
    keys = np.concatenate(swapped(10_000, 3))
    for seed in range(40):
        sketch = DriftHistogram(5, soft_boundary=60, backoff=1.1, seed=seed)
        for end in range(2000, len(keys) + 1, 2000):
            sketch.update_many(keys[end - 2000 : end])
            truth = Counter(keys[end - sketch.total : end].tolist())
            for key, count in truth.most_common(20):
                assert sketch.lower(key) <= count <= sketch.upper(key)
        assert sketch.total < len(keys)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 9)), min_size=60, max_size=300), st.integers(1, 9))
def test_without_sampling_bounds_are_certain_also_after_forgetting(pairs, step):
    shifting = [(key + 50 * (at // 40), weight * step) for at, (key, weight) in enumerate(pairs)]
    sketch = counted(shifting, shift_boundary=0)
    ends = np.cumsum([weight for _, weight in shifting])
    remembered = int(np.searchsorted(ends, ends[-1] - sketch.total, side="right"))
    assert (ends[remembered - 1] if remembered else 0) == ends[-1] - sketch.total
    truth = true_counts(shifting[remembered:])
    for key in {key for key, _ in shifting}:
        assert sketch.lower(key) <= truth[key] <= sketch.upper(key)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"take": 0}, "take must be a whole number of at least 1"),
        ({"take": 1.5}, "take must be a whole number"),
        ({"soft_boundary": 0}, "soft_boundary must be a whole number of at least 1"),
        ({"soft_boundary": "2"}, "soft_boundary must be a whole number"),
        ({"solidarity": 0}, "solidarity must be a whole number of at least 1"),
        ({"hard_boundary": 4.5}, "hard_boundary must be a whole number"),
        ({"take": 3}, "at least twice take"),
        ({"hard_boundary": 2**29}, "at most"),
        ({"compaction": 0}, "compaction must be a whole number of at least 1"),
        ({"compaction": 3}, "use 1 to 2"),
        ({"compaction": 1.5}, "compaction must be a whole number"),
        ({"backoff": 0.9}, "backoff must be a finite number of at least 1"),
        ({"backoff": math.inf}, "backoff must be a finite number of at least 1"),
        ({"backoff": "much"}, "backoff must be a finite number"),
        ({"drift_boundary": -1}, "drift_boundary must be"),
        ({"drift_history_weight": 1.5}, "drift_history_weight must be"),
        ({"drift_history_weight": math.nan}, "drift_history_weight must be"),
        ({"shift_boundary": -0.1}, "shift_boundary must be"),
        ({"shift_boundary": 1.1}, "shift_boundary is a share"),
        ({"seed": -1}, "seed must be"),
        ({"seed": 0.5}, "seed must be"),
        ({"seed": 2**64}, "seed must be"),
    ],
)
def test_impossible_parameters_are_refused(changes, complaint):
    with pytest.raises(InvalidArgumentError, match=complaint):
        small(**changes)


@pytest.mark.parametrize(
    "changes", [{"take": 1}, {"backoff": 1.1}, {"hash_seed": 1}, {"solidarity": 3}, {"shift_boundary": 0}]
)
def test_sketches_of_different_parameters_are_not_merged(changes):
    with pytest.raises(MismatchError, match="make both with the same parameters"):
        small().merge(small(**changes))


def test_sketches_of_different_seeds_are_merged():
    assert letters("a", seed=1).merge(letters("a", seed=2)).lower(ord("a")) == 2


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("settings", {}),
        ("total", -1),
        ("total", 0),
        ("random", -1),
        ("last_top", b"123"),
        ("last_top", pack_array(np.array([1, 2, 3]))),
        ("keys", pack_array(np.array([1, 1]))),
        ("keys", pack_array(np.array([1]))),
        ("past", pack_array(np.array([0.0, 1.0]))),
        ("past", pack_array(np.array([math.nan, 1.0]))),
        ("past", pack_array(np.array([-1.0, 1.0]))),
        ("past", pack_array(np.array([1e9, 1.0]))),
        ("recent", pack_array(np.array([1e9, 1.0]))),
        ("recent", pack_array(np.array([1.0]))),
        ("missed", pack_array(np.array([0.0, 1e9]))),
        ("missed", pack_array(np.array([0.0, -1.0]))),
    ],
)
def test_stored_contents_that_contradict_each_other_are_damage(field, value):
    payload = unseal("drift-histogram", 2, letters("aaabbcdaaefggggggh").to_bytes())
    with pytest.raises(DamagedError, match="stored drift-histogram"):
        DriftHistogram.from_bytes(seal("drift-histogram", 2, {**payload, field: value}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("boundary", 0),
        ("boundary", 5),
        ("boundary", 2),
        ("scale", 0.5),
        ("scale", math.nan),
        ("drift", -1.0),
        ("highest", 0.5),
        ("highest", math.inf),
        ("past", {"norm": 0.0, "squares": 1.0}),
        ("past", {"norm": math.nan, "squares": 1.0}),
        ("past", {"norm": 4.0, "squares": 17.0}),
        ("recent", {"norm": 5.0, "squares": 5.0}),
        ("past_total", 0),
        ("past_total", 19),
        ("boundaries", -1),
        ("lost", -1.0),
        ("quiet", "many"),
    ],
)
def test_a_stored_state_that_contradicts_itself_is_damage(field, value):
    payload = unseal("drift-histogram", 2, letters("aaabbcdaaefggggggh").to_bytes())
    payload["state"][field] = value
    with pytest.raises(DamagedError, match="stored drift-histogram"):
        DriftHistogram.from_bytes(seal("drift-histogram", 2, payload))
