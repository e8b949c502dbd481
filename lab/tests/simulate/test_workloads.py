"""Generated streams have the skew they claim, drift as asked, and repeat under a seed."""

import builtins
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.errors import InvalidArgumentError, MissingPackageError
from equipoise.hashing import fingerprint, fingerprints
from equipoise.microbatch.zipf import sample, zipf_shares
from equipoise_lab.simulate.workloads import (
    drifting_batches,
    key_fingerprints,
    load_parquet_keys,
    shifted_power_law_shares,
)

STREAM: dict[str, Any] = {"keys": 2000, "exponent": 1.2, "batch_size": 20_000, "batches": 6, "hot": 50, "seed": 7}


def hottest(batch, count=10):
    return {key for key, _ in Counter(batch.tolist()).most_common(count)}


# shares


@given(st.integers(1, 300), st.floats(0, 50), st.floats(1e-3, 1e3))
def test_shares_add_up_to_one_and_never_rise(keys, exponent, shift):
    shares = shifted_power_law_shares(keys, exponent, shift)
    assert shares.shape == (keys,)
    assert shares.sum() == pytest.approx(1.0)
    assert np.all(np.diff(shares) <= 0)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.5])
def test_zipf_shares_fall_with_the_power_of_the_rank(exponent):
    shares = zipf_shares(100, exponent)
    np.testing.assert_allclose(shares[0] / shares, np.arange(1, 101) ** exponent)


def test_an_exponent_of_zero_gives_equal_shares():
    assert zipf_shares(4, 0).tolist() == [0.25] * 4


def test_shifted_shares_follow_the_formula_of_dr():
    weights = (np.arange(1000) + 10.0) ** -1.5
    np.testing.assert_allclose(shifted_power_law_shares(1000, 1.5, shift=10), weights / weights.sum())


@pytest.mark.parametrize(
    ("keys", "exponent", "shift"),
    [
        (0, 1, 1),
        (2.5, 1, 1),
        ("3", 1, 1),
        (10, "steep", 1),
        (10, 1, None),
        (10, -1, 1),
        (10, np.nan, 1),
        (10, np.inf, 1),
        (10, 1, 0),
        (10, 1, np.nan),
    ],
)
def test_impossible_power_laws_are_refused(keys, exponent, shift):
    with pytest.raises(InvalidArgumentError):
        shifted_power_law_shares(keys, exponent, shift)


# samples

SHARES_OF_NOTHING = [[], [0.0, 0.0], [1.0, -0.1], [1.0, np.nan], [[0.5, 0.5]], ["a"], ["1"], [1, [2]], [None], None]


def test_a_sample_has_the_shares_it_was_drawn_from():
    shares = zipf_shares(50, 1.0)
    count = 200_000
    drawn = np.bincount(sample(shares, count, np.random.default_rng(3)), minlength=50)
    expected = shares * count
    chi_squared = ((drawn - expected) ** 2 / expected).sum()
    assert chi_squared < 49 + 4 * np.sqrt(2 * 49)  # mean and deviation of a chi-squared with 49 degrees of freedom


def test_keys_without_a_share_are_never_drawn():
    drawn = sample([0.0, 0.3, 0.0, 0.7, 0.0], 10_000, np.random.default_rng(0))
    assert set(drawn.tolist()) == {1, 3}


def test_a_longer_sample_starts_with_the_shorter_one():
    shares = zipf_shares(1000, 1.1)
    short, long = (sample(shares, count, np.random.default_rng(5)) for count in (100, 1000))
    np.testing.assert_array_equal(short, long[:100])


@pytest.mark.parametrize("shares", SHARES_OF_NOTHING)
def test_shares_that_are_none_are_refused(shares):
    with pytest.raises(InvalidArgumentError, match="shares"):
        sample(shares, 1, np.random.default_rng(0))


@pytest.mark.parametrize("count", [-1, 1.5, "3", None])
def test_a_sample_of_an_impossible_size_is_refused(count):
    with pytest.raises(InvalidArgumentError, match="count"):
        sample([1.0], count, np.random.default_rng(0))


@pytest.mark.parametrize("rng", [3, None, np.random])
def test_a_sample_without_a_generator_says_how_to_make_one(rng):
    with pytest.raises(InvalidArgumentError, match="default_rng"):
        sample([1.0], 1, rng)


@pytest.mark.parametrize("seed", [-1, 1.5, "1", 2**63])
def test_fingerprints_of_an_impossible_seed_are_refused(seed):
    with pytest.raises(InvalidArgumentError, match="seed must be"):
        key_fingerprints([1, 2], seed)


def test_fingerprints_are_distinct_and_differ_between_seeds():
    keys = np.arange(10_000)
    one, two = key_fingerprints(keys, 1), key_fingerprints(keys, 2)
    np.testing.assert_array_equal(one, key_fingerprints(keys, 1))
    assert len(np.union1d(one, two)) == 20_000


# drift


def test_equal_arguments_give_equal_streams_and_another_seed_another():
    options = STREAM | {"drift": 0.2, "swaps": [3]}
    first, second = (list(drifting_batches(**options)) for _ in range(2))
    other = next(drifting_batches(**options | {"seed": 8}))
    np.testing.assert_array_equal(first, second)
    assert not np.intersect1d(first[0], other).size


def test_a_stream_has_the_batches_and_skew_asked_for():
    batches = list(drifting_batches(**STREAM | {"drift": 0.5, "swaps": [2]}))
    assert [len(batch) for batch in batches] == [20_000] * 6
    share = zipf_shares(2000, 1.2)[0]
    for batch in batches:
        assert Counter(batch.tolist()).most_common(1)[0][1] / len(batch) == pytest.approx(share, rel=0.1)


def test_without_drift_the_hot_keys_stay():
    batches = list(drifting_batches(**STREAM))
    assert all(len(hottest(batch) & hottest(batches[0])) >= 8 for batch in batches)
    expected = key_fingerprints(np.arange(3), STREAM["seed"]).tolist()
    assert hottest(batches[-1], 3) == set(expected)


def test_drift_replaces_the_hot_keys_bit_by_bit():
    batches = list(drifting_batches(**STREAM | {"batches": 21, "drift": 0.1}))
    kept = [len(hottest(batch, 20) & hottest(batches[0], 20)) for batch in batches]
    assert kept[1] >= 14
    assert kept[20] <= 8  # of 20 keys about 0.9 ** 20 = 12 % should be left
    assert kept[1] > kept[10] > kept[20]


def test_a_swap_replaces_the_hot_keys_at_once_and_only_then():
    batches = [hottest(batch) for batch in drifting_batches(**STREAM | {"swaps": [3]})]
    assert not batches[2] & batches[3]
    assert len(batches[0] & batches[2]) >= 8
    assert len(batches[3] & batches[5]) >= 8


def test_drift_of_one_is_a_swap_before_every_batch():
    batches = [hottest(batch) for batch in drifting_batches(**STREAM | {"drift": 1.0})]
    assert all(not before & after for before, after in pairwise(batches))


@pytest.mark.parametrize(
    "wrong",
    [
        {"keys": 0},
        {"exponent": -1.0},
        {"keys": 2000.5},
        {"batch_size": 0},
        {"batch_size": 1.5},
        {"batches": "6"},
        {"drift": "fast"},
        {"swaps": [1.5]},
        {"swaps": 3},
        {"swaps": ["a"]},
        {"hot": 1.5},
        {"seed": 0.5},
        {"seed": 2**63},
        {"batches": 0},
        {"drift": 1.1},
        {"drift": np.nan},
        {"swaps": [0]},
        {"swaps": [6]},
        {"hot": 0},
        {"hot": 1001},
        {"seed": -1},
    ],
)
def test_impossible_streams_are_refused_at_the_call(wrong):
    with pytest.raises(InvalidArgumentError):
        drifting_batches(**STREAM | wrong)


# recorded keys


def write(path, **columns):
    pq.write_table(pa.table(columns), path, row_group_size=2)
    return path


@pytest.mark.parametrize(
    "values",
    [["a", "b", None, "a", ""], [3, None, -1, 3, 2], [1.5, -0.0, None, 0.0], [True, None, False], [b"x", None]],
)
def test_keys_of_a_parquet_file_are_fingerprinted_in_order(tmp_path, values):
    path = write(tmp_path / "keys.parquet", key=values)
    np.testing.assert_array_equal(load_parquet_keys(path), fingerprints(values))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.float32])
def test_narrow_numbers_are_hashed_by_their_own_type_also_beside_null(tmp_path, dtype):
    values = np.array([5, 7, 5], dtype=dtype)
    path = write(tmp_path / "keys.parquet", key=pa.array([5, 7, 5, None], pa.from_numpy_dtype(dtype)))
    assert load_parquet_keys(path).tolist() == [*fingerprints(values).tolist(), fingerprint(None)]


def test_dictionary_columns_are_read_as_their_values(tmp_path):
    path = write(tmp_path / "keys.parquet", key=pa.array(["a", None, "b", "a"]).dictionary_encode())
    np.testing.assert_array_equal(load_parquet_keys(path), fingerprints(["a", None, "b", "a"]))


def test_a_file_without_rows_has_no_keys(tmp_path):
    assert load_parquet_keys(write(tmp_path / "keys.parquet", key=pa.array([], pa.string()))).tolist() == []


def test_weights_come_with_the_keys(tmp_path):
    path = write(tmp_path / "plays.parquet", artist=["a", "b"], plays=[3, 4])
    keys, weights = load_parquet_keys(path, "artist", weight="plays")
    np.testing.assert_array_equal(keys, fingerprints(["a", "b"]))
    assert weights.tolist() == [3.0, 4.0]


@pytest.mark.parametrize("weights", [[1, None], [1.0, -1.0], [1.0, float("inf")], ["many", "few"]])
def test_weights_that_are_none_are_refused(tmp_path, weights):
    path = write(tmp_path / "plays.parquet", key=["a", "b"], plays=weights)
    with pytest.raises(InvalidArgumentError, match="plays"):
        load_parquet_keys(path, weight="plays")


def test_a_missing_column_is_named_beside_those_that_exist(tmp_path):
    path = write(tmp_path / "keys.parquet", user=["a"], artist=["b"])
    with pytest.raises(InvalidArgumentError, match="no column 'key'; it has user, artist"):
        load_parquet_keys(path)


def test_a_missing_pyarrow_is_answered_with_the_extra_to_install(tmp_path, monkeypatch):
    def without_pyarrow(name, *rest):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return original(name, *rest)

    original = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", without_pyarrow)
    with pytest.raises(MissingPackageError, match=r"needs pyarrow, .*pip install '\.\[dashboard\]'"):
        load_parquet_keys(tmp_path / "keys.parquet")
