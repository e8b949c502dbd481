"""D-Choices and W-Choices."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.errors import InvalidArgumentError
from equipoise.hashing import seeded_hashes
from equipoise.metrics import imbalance
from equipoise.microbatch.zipf import sample, zipf_shares
from equipoise.split import DChoices, PartialKey, WChoices, find_choices

FOUR = {"A": [0, 1, 2], "B": [0, 2], "C": [1, 3], "D": [0, 1]}
STREAM = "AABACAADAB"


# number of choices


@pytest.mark.parametrize(
    ("shares", "workers", "choices"),
    [
        ([0.3], 10, 6),
        ([0.03], 10, 2),
        ([0.5], 10, 10),
        ([0.9], 10, 10),
        ([0.2, 0.1, 0.05], 10, 3),
        ([0.2, 0.1, 0.05], 50, 14),
        ([0.15, 0.12, 0.04], 10, 3),
        ([], 10, 2),
        ([0.9], 1, 1),
    ],
)
def test_as_many_choices_are_found_as_in_the_worked_examples(shares, workers, choices):
    assert find_choices(shares, workers) == choices


@pytest.mark.parametrize(("exponent", "hot", "choices"), [(1.0, 25, 6), (1.4, 23, 22), (2.0, 12, 49)])
def test_zipf_needs_more_choices_the_steeper_it_is(exponent, hot, choices):
    shares = zipf_shares(10_000, exponent)
    head = shares[shares > 1 / 250]
    assert len(head) == hot
    assert find_choices(head, 50) == choices


def test_a_middle_prefix_of_the_head_can_be_the_one_that_fails():
    shares = np.array([0.15, 0.12, 0.04])
    first, last = shares[:1], shares
    assert find_choices(shares, 10) == 3
    reached = 1 - 0.9**4
    carried = 0.27 + reached**2 * 0.04 + reached**2 * 0.69
    assert carried == pytest.approx(0.3563, abs=1e-4)
    assert 10 * reached * (0.1 + 1e-4) == pytest.approx(0.3442, abs=1e-4)
    for part, after in ((first, last[1:].sum()), (last, 0.0)):
        q = 1 - 0.9 ** (2 * len(part))
        assert part.sum() + q**2 * (after + 0.69) <= 10 * q * (0.1 + 1e-4)


@settings(max_examples=60)
@given(st.lists(st.floats(0.001, 0.3), max_size=6), st.integers(2, 40))
def test_choices_lie_between_two_and_all_workers_and_fit_the_hottest(shares, workers):
    head = np.sort(np.array(shares, dtype=np.float64))[::-1]
    head = head / max(1.0, head.sum())
    choices = find_choices(head, workers)
    assert 2 <= choices <= workers
    assert len(head) == 0 or choices >= min(workers, np.ceil(head[0] * workers - 1e-9))


def printed_choices(shares, workers, slack=1e-4):
    """FIND_D as printed: every prefix, for every number of choices."""
    tail = max(0.0, 1.0 - np.cumsum(shares)[-1])
    for choices in range(max(2, int(np.ceil(shares[0] * workers))), workers):
        for prefix in range(1, len(shares) + 1):
            inside = np.cumsum(shares)[prefix - 1]
            reached = 1 - ((workers - 1) / workers) ** (prefix * choices)
            carried = inside + reached**choices * (np.cumsum(shares)[-1] - inside) + reached**2 * tail
            if carried > workers * reached * (1 / workers + slack):
                break
        else:
            return choices
    return workers


@settings(max_examples=100)
@given(st.lists(st.floats(0.001, 0.3), min_size=1, max_size=12), st.integers(2, 60))
def test_the_number_of_choices_is_that_of_testing_every_prefix(shares, workers):
    head = np.sort(np.array(shares, dtype=np.float64))[::-1]
    head = head / max(1.0, head.sum())
    assert find_choices(head, workers) == printed_choices(head, workers)


@pytest.mark.parametrize("shares", [[0.1, 0.2], [np.nan], [-0.1], [[0.1]]])
def test_shares_that_are_no_head_are_refused(shares):
    with pytest.raises(InvalidArgumentError):
        find_choices(shares, 10)


# routing


def routed(splitter, keys_with, stream_of):
    two = keys_with(PartialKey(4, choices=3).candidates, FOUR)
    return splitter.route(stream_of(two, STREAM)).tolist(), splitter.loads.tolist()


def test_the_worked_example_comes_out_for_each_width_of_the_head(keys_with, stream_of):
    # A is the only key whose share is above 0.4 on every one of its messages
    everywhere = WChoices(4, threshold=0.4, refresh=1)
    three = DChoices(4, threshold=0.4, choices=3, refresh=1)
    assert routed(PartialKey(4), keys_with, stream_of) == ([0, 1, 2, 0, 3, 1, 0, 1, 0, 2], [4, 3, 2, 1])
    assert routed(three, keys_with, stream_of) == ([0, 1, 2, 0, 3, 1, 2, 0, 1, 2], [3, 3, 3, 1])
    assert routed(everywhere, keys_with, stream_of) == ([0, 1, 2, 3, 1, 0, 2, 0, 3, 2], [3, 2, 3, 2])
    assert [imbalance(s.loads) for s in (three, everywhere)] == [0.5, 0.5]


def printed(stream, workers, threshold, mode):
    """The algorithm message by message, with exact counts."""
    counts, loads = {}, [0] * workers
    for number, key in enumerate(stream, 1):
        counts[key] = counts.get(key, 0) + 1
        shares = {k: c / number for k, c in counts.items()}
        width = 2
        if shares[key] > threshold:
            head = sorted((s for s in shares.values() if s > threshold), reverse=True)
            width = workers if mode is WChoices else find_choices(head, workers)
        if width >= workers and shares[key] > threshold:
            choices = range(workers)
        else:
            choices = PartialKey(workers, choices=width).candidates(key).tolist()
        target = min(choices, key=lambda worker: loads[worker])
        loads[target] += 1
        yield target


@pytest.mark.parametrize("mode", [DChoices, WChoices])
@settings(max_examples=40)
@given(stream=st.lists(st.integers(0, 9), min_size=1, max_size=60), workers=st.integers(2, 8))
def test_with_a_look_at_every_message_it_is_the_printed_algorithm(mode, stream, workers):
    splitter = mode(workers, threshold=0.2, refresh=1)  # 50 counters: counts are exact
    assert splitter.route(stream).tolist() == list(printed(stream, workers, 0.2, mode))


@pytest.mark.parametrize("mode", [DChoices, WChoices])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), hottest=st.floats(0.3, 0.7), workers=st.integers(150, 260))
def test_many_choices_are_searched_as_if_one_by_one(mode, seed, hottest, workers):
    rng = np.random.default_rng(seed)
    warm = np.where(rng.random(400) < 0.3, rng.integers(2, 5, 400), rng.integers(5, 1000, 400))
    stream = np.where(rng.random(400) < hottest, 1, warm)
    splitter = mode(workers, threshold=0.02, refresh=1)
    assert splitter.route(stream).tolist() == list(printed(stream.tolist(), workers, 0.02, mode))


@pytest.mark.parametrize("choices", [80, 150])
def test_reported_loads_replace_what_was_known_of_many_choices(choices):
    rng = np.random.default_rng(1)
    splitter = DChoices(150, threshold=0.1, choices=choices, refresh=1)
    splitter.route(np.full(2000, 7))
    for _ in range(3):
        splitter.probe(rng.integers(0, 5, 150))
        for _ in range(50):
            candidates, loads = splitter.candidates(7), splitter.loads.copy()
            assert splitter.route([7])[0] == candidates[np.argmin(loads[candidates])]


@pytest.mark.parametrize("mode", [DChoices, WChoices])
def test_balance_holds_where_two_choices_are_not_enough(mode):
    stream = seeded_hashes(sample(zipf_shares(10_000, 1.4), 100_000, np.random.default_rng(4)), 4)
    loads, two = (np.bincount(s.route(stream), minlength=50) for s in (mode(50), PartialKey(50)))
    assert imbalance(loads) / 100_000 < 1e-3
    assert imbalance(two) / 100_000 > 0.1


@settings(max_examples=10)
@given(st.integers(0, 1000), st.floats(0.6, 2.0))
def test_every_key_above_the_threshold_is_in_the_head(seed, exponent):
    stream = sample(zipf_shares(500, exponent), 600, np.random.default_rng(seed))
    splitter = DChoices(10, capacity=60, refresh=1)
    splitter.route(stream)
    keys, counts = np.unique(stream, return_counts=True)
    assert set(keys[counts / 600 > splitter.threshold].tolist()) <= set(splitter.hot_keys().tolist())


def test_the_two_workers_of_a_key_stay_among_its_workers_when_it_gets_hot():
    splitter = DChoices(20, refresh=1, seed=2)
    cold = splitter.candidates(5).tolist()
    splitter.route([5, 1, 2, 3] * 50)
    assert set(cold) <= set(splitter.candidates(5).tolist())
    assert len(splitter.candidates(5)) > 2


@pytest.mark.parametrize(
    "wrong", [{"threshold": 0}, {"threshold": 1.5}, {"capacity": 0}, {"refresh": 0}, {"slack": -1}, {"choices": 1}]
)
def test_impossible_options_are_refused(wrong):
    with pytest.raises(InvalidArgumentError):
        DChoices(10, **wrong)
