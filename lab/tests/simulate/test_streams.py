import itertools
from collections import Counter

import numpy as np
import pytest

from equipoise.errors import InvalidArgumentError
from equipoise.microbatch.zipf import zipf_shares
from equipoise_lab.simulate.streams import (
    CHUNK,
    COUNTRIES,
    WORKLOADS,
    KeySampler,
    bursts,
    country_shares,
    half_skew,
    log_normal_shares,
    make_stream,
    stream,
    zipf_exponent,
)
from equipoise_lab.simulate.workloads import key_fingerprints


def hottest_share(keys):
    return Counter(keys.tolist()).most_common(1)[0][1] / len(keys)


def test_draws_have_the_shares_they_were_drawn_from():
    shares = zipf_shares(50, 1.0)
    sampler = KeySampler(shares, seed=3)
    drawn = Counter(sampler.draw(200_000).tolist())
    expected = shares * 200_000
    observed = np.array([drawn[name] for name in sampler.names.tolist()])
    chi_squared = ((observed - expected) ** 2 / expected).sum()
    assert chi_squared < 49 + 4 * np.sqrt(2 * 49)


def test_keys_without_a_share_are_never_drawn():
    sampler = KeySampler([0.0, 0.3, 0.0, 0.7, 0.0], seed=1)
    assert set(sampler.draw(10_000).tolist()) == set(sampler.names[[1, 3]].tolist())


def test_chunks_make_no_difference_to_a_stream():
    shares = zipf_shares(100, 1.0)
    one, many = (np.concatenate(list(stream(shares, 1000, seed=4, chunk=c))) for c in (1000, 77))
    np.testing.assert_array_equal(one, many)


@pytest.mark.parametrize("skew", [0, 30, 80, 100])
def test_the_hot_country_has_its_share(skew):
    shares = country_shares(skew / 100)
    assert len(shares) == COUNTRIES == 204
    assert shares.sum() == pytest.approx(1)
    assert shares[0] == pytest.approx(skew / 100 + (1 - skew / 100) / 204)


def test_half_skew_is_skewed_in_its_first_half_only():
    keys = np.concatenate(list(half_skew(0.8, 40_000, seed=2, chunk=7001)))
    assert hottest_share(keys[:20_000]) == pytest.approx(0.8, abs=0.02)
    assert hottest_share(keys[20_000:]) < 0.02
    assert hottest_share(keys) == pytest.approx(0.4, abs=0.02)


def test_the_log_normals_have_the_hottest_keys_of_table_1():
    for number, keys, share in ((1, 16_000, 0.1471), (2, 1_100, 0.0701)):
        shares = log_normal_shares(number)
        assert len(shares) == keys
        assert shares.sum() == pytest.approx(1)
        assert shares.max() == pytest.approx(share, abs=5e-5)
        rng = np.random.default_rng(1)
        drawn = np.rint(rng.lognormal(*{1: (1.789, 2.366), 2: (2.245, 1.133)}[number], 200_000))
        assert hottest_share(drawn) == pytest.approx(share, abs=0.004)


def test_a_burst_is_one_key_for_a_while():
    keys = np.concatenate(list(bursts(1000, 0.5, 10_000, every=4000, length=1000, share=0.6, seed=1, chunk=900)))
    assert hottest_share(keys[:4000]) < 0.05
    assert hottest_share(keys[4000:5000]) == pytest.approx(0.6, abs=0.06)
    assert hottest_share(keys[5000:8000]) < 0.05
    first, second = (Counter(keys[a:b].tolist()).most_common(1)[0][0] for a, b in ((4000, 5000), (8000, 9000)))
    assert first != second


@pytest.mark.parametrize("share", [0.0932, 0.0267])
def test_an_exponent_is_found_for_the_share_of_the_hottest_key(share):
    assert zipf_shares(10_000, zipf_exponent(10_000, share))[0] == pytest.approx(share)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_has_its_length_and_repeats_under_its_seed(name):
    def made(seed):
        return np.concatenate(list(make_stream(name, 5001, keys=500, exponent=1.1, skew=0.5, seed=seed)))

    assert len(made(1)) == 5001
    np.testing.assert_array_equal(made(1), made(1))
    assert not np.array_equal(made(1), made(2))


def test_the_hot_keys_of_a_swap_change_in_the_middle():
    keys = np.concatenate(list(make_stream("swap", 40_000, keys=2000, exponent=1.2, seed=1)))
    halves = [Counter(part.tolist()).most_common(1)[0][0] for part in np.split(keys, 2)]
    assert halves[0] == key_fingerprints([0], 1)[0]
    assert halves[0] != halves[1]


def test_long_streams_come_in_chunks():
    sizes = [len(chunk) for chunk in itertools.islice(make_stream("country-skew", 10**12), 2)]
    assert sizes == [CHUNK, CHUNK]


@pytest.mark.parametrize(
    "attempt",
    [
        lambda: country_shares(1.5),
        lambda: log_normal_shares(3),
        lambda: bursts(10, 1, 100, every=5, length=6),
        lambda: bursts(10, 1, 100, share=2),
        lambda: zipf_exponent(10, 0.05),
        lambda: KeySampler([], 1),
        lambda: KeySampler([0.0], 1),
        lambda: make_stream("nothing", 10),
        lambda: make_stream("zipf", 0),
        lambda: stream([1.0], 10, chunk=0),
    ],
)
def test_impossible_streams_are_refused_at_the_call(attempt):
    with pytest.raises(InvalidArgumentError):
        attempt()
