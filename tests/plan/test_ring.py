import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise import InvalidArgumentError
from equipoise.hashing import seeded_hashes
from equipoise.plan import HashRing
from equipoise.plan.ring import _TAIL_SEED


@given(st.integers(1, 12), st.integers(1, 40), st.integers(0, 2**32))
@settings(max_examples=50)
def test_bucketed_lookup_finds_the_first_replica_at_or_after_the_point(partitions, replicas, seed):
    ring = HashRing(partitions, replicas=replicas)
    keys = np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, 100)
    points = seeded_hashes(keys, _TAIL_SEED).view(np.uint64)
    expected = ring._owners[np.searchsorted(ring._ring, points) % len(ring._ring)]
    assert ring.lookup(keys).tolist() == expected.tolist()


@given(st.integers(1, 30))
@settings(max_examples=20)
def test_growing_moves_keys_to_the_new_partition_only(partitions):
    keys = np.arange(3000)
    before, after = HashRing(partitions).lookup(keys), HashRing(partitions + 1).lookup(keys)
    moved = before != after
    assert set(after[moved].tolist()) <= {partitions}
    assert moved.mean() == pytest.approx(1 / (partitions + 1), rel=0.35)


def test_shares_are_even_with_many_replicas():
    counts = np.bincount(HashRing(10, replicas=1000).lookup(np.arange(100_000)))
    assert counts.min() > 0.85 * counts.mean()
    assert counts.max() < 1.15 * counts.mean()


def test_a_ring_of_nothing_is_refused():
    with pytest.raises(InvalidArgumentError, match="partitions must be"):
        HashRing(0)
    with pytest.raises(InvalidArgumentError, match="replicas must be"):
        HashRing(3, replicas=0)
