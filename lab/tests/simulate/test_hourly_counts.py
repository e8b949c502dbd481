import numpy as np
import pytest

from equipoise.errors import InvalidArgumentError
from equipoise.microbatch.zipf import zipf_shares
from equipoise.plan import Plan
from equipoise_lab.simulate import hourly_counts
from equipoise_lab.simulate.hourly_counts import HourlyCounts
from equipoise_lab.simulate.workloads import key_fingerprints

SIZES = {"keys": 3000, "exponent": 0.9, "messages": 200_000, "groups": 64, "hot": 40, "seed": 7}


def all_keys(counts):
    """Fingerprint and count of every key in the next hour, one by one."""
    parts = list(counts.draw())
    drawn = np.concatenate([part for _, part in parts])
    names = key_fingerprints(np.arange(SIZES["keys"]), SIZES["seed"])
    alive = counts._rank_of_known >= 0
    names[counts._rank_of_known[alive]] = counts.known[alive]
    return names, drawn


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(hourly_counts, "_CHUNK", 700)


@pytest.mark.usefixtures("small_chunks")
def test_loads_of_a_plan_equal_those_of_all_keys_one_by_one():
    one_by_one, summed = (HourlyCounts(**SIZES, drift=0.3) for _ in range(2))
    for _ in range(3):
        names, drawn = all_keys(one_by_one)
        hour = summed.next_hour()
        assert hour.messages == drawn.sum() == SIZES["messages"]
        isolated = {int(key): i % 6 for i, key in enumerate(hour.known[::3])}
        plan = Plan(6, np.arange(64) % 6, isolated)
        assert hour.loads(plan).tolist() == np.bincount(plan.assign(names), drawn, 6).astype(int).tolist()
        assert hour.of_groups().tolist() == np.bincount(np.mod(names, 64), drawn, 64).astype(int).tolist()
        assert hour.hottest == drawn.max() / drawn.sum()
        listed = hour.histogram(5)
        assert (listed.shares * hour.messages).round().tolist() == np.sort(drawn)[::-1][:5].tolist()


@pytest.mark.usefixtures("small_chunks")
def test_counts_are_those_of_zipfs_law():
    hours = HourlyCounts(**SIZES)
    drawn = np.sum([np.concatenate([part for _, part in hours.draw()]) for _ in range(20)], axis=0)
    expected = zipf_shares(SIZES["keys"], SIZES["exponent"]) * 20 * SIZES["messages"]
    chi_squared = ((drawn - expected) ** 2 / expected).sum()
    freedom = SIZES["keys"] - 1
    assert abs(chi_squared - freedom) < 4 * np.sqrt(2 * freedom)


def test_the_part_of_the_hot_keys_that_drift_says_is_new_every_hour():
    hours = HourlyCounts(**{**SIZES, "hot": 1000}, drift=0.2)
    before, after = hours.next_hour(), hours.next_hour()
    fresh = len(after.known) - len(before.known)
    assert 120 < fresh < 280
    gone = (before.counts > 0) & (after.counts[: len(before.counts)] == 0)
    assert np.count_nonzero(gone[:1000]) >= fresh
    assert np.all(after.counts[-fresh:] > 0)


def test_without_drift_keys_stay():
    hours = HourlyCounts(**SIZES)
    assert np.array_equal(hours.next_hour().known, hours.next_hour().known)


@pytest.mark.parametrize("wrong", [{"hot": 1501}, {"drift": 1.5}, {"keys": 1}, {"exponent": -1.0}])
def test_impossible_arguments_are_reported(wrong):
    with pytest.raises(InvalidArgumentError):
        HourlyCounts(**{**SIZES, **wrong})
