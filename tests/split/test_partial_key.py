import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.errors import InvalidArgumentError
from equipoise.hashing import fingerprints, seeded_hashes
from equipoise.metrics import average_imbalance_fraction, imbalance
from equipoise.microbatch.zipf import sample, zipf_shares
from equipoise.split import KeyGrouping, PartialKey

STREAM = "ABACADABAC"
CANDIDATES = {"A": [0, 1], "B": [1, 2], "C": [2, 0], "D": [0, 2]}


@pytest.fixture
def example(keys_with, stream_of):
    return stream_of(keys_with(PartialKey(3).candidates, CANDIDATES), STREAM)


def as_text(workers):
    return "".join(str(worker) for worker in workers)


def test_with_global_load_the_worked_example_comes_out(example):
    splitter = PartialKey(3)
    targets = splitter.route(example)
    assert as_text(targets) == "0102120102"
    assert splitter.loads.tolist() == [4, 3, 3]
    assert imbalance(splitter.loads) == pytest.approx(0.6667, abs=1e-4)
    assert average_imbalance_fraction(targets, 3) == pytest.approx(0.05667, abs=1e-5)


def test_with_local_load_two_sources_decide_for_themselves(example):
    sources = [PartialKey(3), PartialKey(3)]
    targets = np.array([sources[i % 2].route([key])[0] for i, key in enumerate(example)])
    assert as_text(targets) == "0112001102"
    assert np.bincount(targets).tolist() == [4, 4, 2]


@pytest.mark.parametrize("absolute", [False, True])
def test_a_probe_puts_the_estimates_right(example, absolute):
    sources = [PartialKey(3), PartialKey(3)]
    loads = np.zeros(3, dtype=np.int64)
    targets = []
    for i, key in enumerate(example):
        if i in (4, 8):
            for source in sources:
                source.probe(loads, sources=2, absolute=absolute)
        targets.append(int(sources[i % 2].route([key])[0]))
        loads[targets[-1]] += 1
    assert as_text(targets) == "0112000212"
    assert loads.tolist() == [4, 3, 3]


def test_greedy_3_comes_out_as_in_the_worked_example(keys_with, stream_of):
    splitter = PartialKey(3, choices=3)
    wanted = {"A": [0, 1, 2], "B": [0, 1, 2], "C": [2, 1, 0], "D": [1, 0, 2]}
    targets = splitter.route(stream_of(keys_with(splitter.candidates, wanted), STREAM))
    assert targets.tolist() == [0, 1, 2, 2, 0, 1, 0, 1, 2, 2]
    assert splitter.loads.tolist() == [3, 3, 4]


def test_the_same_key_alternates_between_its_two_workers(keys_with):
    splitter = PartialKey(5)
    key = keys_with(splitter.candidates, {"x": [3, 1]})["x"]
    assert splitter.route([key] * 4).tolist() == [3, 1, 3, 1]


def by_hand(keys, workers, choices, seed):
    splitter = PartialKey(workers, choices=choices, seed=seed)
    loads = [0] * workers
    for key in keys:
        target = min(splitter.candidates(key).tolist(), key=lambda worker: loads[worker])
        loads[target] += 1
        yield target


@settings(max_examples=60)
@given(
    keys=st.lists(st.integers(-5, 5), max_size=60),
    workers=st.integers(1, 9),
    choices=st.integers(1, 6),
    seed=st.integers(-3, 3),
)
def test_each_message_goes_to_the_first_least_loaded_choice(keys, workers, choices, seed):
    splitter = PartialKey(workers, choices=choices, seed=seed)
    assert splitter.route(np.array(keys, dtype=np.int64)).tolist() == list(by_hand(keys, workers, choices, seed))


@settings(max_examples=60)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=80), st.integers(1, 9), st.integers(1, 4))
def test_a_key_meets_at_most_d_workers(keys, workers, choices):
    targets = PartialKey(workers, choices=choices).route(keys)
    for key in set(keys):
        assert len({w for k, w in zip(keys, targets.tolist(), strict=True) if k == key}) <= choices


def test_choices_are_spread_evenly_and_independently():
    splitter = PartialKey(10, seed=3)
    pairs = np.array([splitter.candidates(key) for key in range(20_000)])
    counts = np.bincount(10 * pairs[:, 0] + pairs[:, 1], minlength=100)
    chi_squared = ((counts - 200) ** 2 / 200).sum()
    assert chi_squared < 99 + 4 * np.sqrt(2 * 99)


def test_a_choice_is_the_scaled_upper_half_of_sparks_hash():
    seed, workers, keys = 7, 13, np.arange(-50, 50)
    splitter = PartialKey(workers, seed=seed)
    for choice in range(2):
        # a second column hashed as BIGINT from the hash of the first: xxhash64(seed, choice, fingerprint) of Spark
        columns = (np.full(100, seed), np.full(100, choice), keys)
        upper = fingerprints(*columns).astype(np.uint64) >> np.uint64(32)
        expected = (upper * np.uint64(workers)) >> np.uint64(32)
        assert [splitter.candidates(key)[choice] for key in keys.tolist()] == expected.tolist()


def test_balance_is_near_perfect_while_no_key_is_too_hot():
    stream = seeded_hashes(sample(zipf_shares(10_000, 0.8), 200_000, np.random.default_rng(2)), 2)
    split = average_imbalance_fraction(PartialKey(10).route(stream), 10)
    hashed = average_imbalance_fraction(KeyGrouping(10).route(stream), 10)
    assert split < 1e-4 < hashed / 30


@pytest.mark.parametrize(
    "wrong", [{"workers": 0}, {"workers": 2.5}, {"workers": 2**21}, {"choices": 0}, {"seed": 2**63}, {"seed": "x"}]
)
def test_impossible_options_are_refused(wrong):
    with pytest.raises(InvalidArgumentError):
        PartialKey(**{"workers": 4, **wrong})


@pytest.mark.parametrize("loads", [[1, 2], [1.5, 2, 3], [-1, 2, 3], 5])
def test_a_probe_of_something_else_is_refused(loads):
    with pytest.raises(InvalidArgumentError, match="3 message counts"):
        PartialKey(3).probe(loads)
