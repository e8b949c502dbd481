import numpy as np
import pytest

from equipoise.errors import InvalidArgumentError
from equipoise.microbatch.zipf import zipf_shares
from equipoise_lab.simulate.workloads import key_fingerprints
from equipoise_lab.simulate.zipf_stream import zipf_stream


def counts_by_rank(keys, exponent, messages, seed):
    names = key_fingerprints(np.arange(keys), seed)
    drawn = np.concatenate(list(zipf_stream(keys, exponent, messages, seed=seed, chunk=70_001)))
    order = np.argsort(names)
    at = order[np.searchsorted(names, drawn, sorter=order)]
    assert np.array_equal(names[at], drawn)
    return np.bincount(at, minlength=keys)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 0.9999999, 1.0, 1.3, 3.0])
def test_draws_have_the_shares_of_zipfs_law(exponent):
    observed = counts_by_rank(60, exponent, 200_000, seed=5)
    expected = zipf_shares(60, exponent) * 200_000
    often = expected >= 5
    chi_squared = ((observed - expected)[often] ** 2 / expected[often]).sum()
    freedom = np.count_nonzero(often) - 1
    assert chi_squared < freedom + 4 * np.sqrt(2 * freedom)
    assert observed[~often].sum() <= expected[~often].sum() + 6 * np.sqrt(expected[~often].sum() + 1)


def test_chunks_make_no_difference_and_another_seed_does():
    def stream(seed, chunk):
        return np.concatenate(list(zipf_stream(1000, 1.1, 5000, seed=seed, chunk=chunk)))

    np.testing.assert_array_equal(stream(3, 5000), stream(3, 77))
    assert np.any(stream(3, 5000) != stream(4, 5000))


def test_one_key_is_drawn_always_and_the_last_of_many_is_within_reach():
    assert set(np.concatenate(list(zipf_stream(1, 1.0, 100))).tolist()) == set(key_fingerprints([0], 0).tolist())
    drawn = np.concatenate(list(zipf_stream(100_000_000, 0.2, 100_000, seed=1)))
    assert len(np.unique(drawn)) > 99_000


def test_impossible_arguments_are_reported_at_the_call():
    for wrong in ({"keys": 0}, {"exponent": -1.0}, {"messages": 0}):
        with pytest.raises(InvalidArgumentError):
            zipf_stream(**{"keys": 10, "exponent": 1.0, "messages": 10, **wrong})
