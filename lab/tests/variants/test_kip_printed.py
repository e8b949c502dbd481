"""Golden numbers of Algorithm 1 of DR."""

import numpy as np
import pytest

from equipoise import Histogram, InvalidArgumentError, Plan
from equipoise.plan import uniform_plan
from equipoise_lab.variants import KIPPrinted


def plan_with(partitions, keys, old, hashed, hosts):
    """A previous plan in which key i (fingerprint i) is at old[i] and would hash to hashed[i].

    Hosts beyond the first ones, which stand for the keys, are dealt out so that each partition has ``hosts``.
    """
    tail = [hashed[key] for key in keys]
    for partition in range(partitions):
        tail += [partition] * (hosts - tail.count(partition))
    return Plan(partitions, tail, {i: old[key] for i, key in enumerate(keys)})


def test_heavy_keys_go_where_the_print_puts_them():
    shares = {"B": 0.182, "C": 0.164, "A": 0.145, "H": 0.127, "K": 0.109, "I": 0.091, "E": 0.073, "D": 0.055}
    old = {"A": 0, "B": 1, "C": 2, "D": 3, "E": 1, "H": 2, "I": 0, "K": 0}
    hashed = {"A": 1, "B": 0, "C": 3, "D": 2, "E": 1, "H": 3, "I": 0, "K": 0}
    keys = list(shares)
    previous = plan_with(4, keys, old, hashed, hosts=10)
    plan = KIPPrinted(slack=0.001).plan(previous, Histogram(range(8), list(shares.values())))
    where = plan.assign(range(8))
    assert dict(zip(keys, where.tolist(), strict=True)) == {
        "B": 1,
        "C": 2,
        "A": 0,
        "H": 3,
        "K": 3,
        "I": 0,
        "E": 2,
        "D": 1,
    }
    heavy = np.bincount(where, list(shares.values()), 4)
    assert heavy == pytest.approx([0.236, 0.237, 0.237, 0.236])


def test_hosts_leave_the_overfull_partition_for_the_first_with_room():
    keys, shares = list("abcd"), [0.30, 0.20, 0.16, 0.10]
    previous = plan_with(3, keys, {"a": 0, "b": 0, "c": 1, "d": 2}, {"a": 0, "b": 1, "c": 1, "d": 2}, hosts=10)
    plan = KIPPrinted(slack=0.001).plan(previous, Histogram(range(4), shares))
    assert plan.assign(range(4)).tolist() == [0, 1, 2, 2]
    moved = np.flatnonzero(plan.tail != previous.tail)
    assert len(moved) == 6
    assert set(previous.tail[moved].tolist()) == {0}
    assert set(plan.tail[moved].tolist()) == {1}
    loads = np.bincount(plan.assign(range(4)), shares, 3) + np.bincount(plan.tail, minlength=3) * 0.24 / 30
    assert loads == pytest.approx([0.332, 0.328, 0.340])


def test_a_partition_that_vanishes_gives_everything_away():
    previous = KIPPrinted().plan(uniform_plan(6, 600), Histogram([1, 2, 3], [0.3, 0.2, 0.1]))
    plan = KIPPrinted().plan(previous, Histogram([1, 2, 3], [0.3, 0.2, 0.1]), partitions=3)
    assert plan.partitions == 3
    assert plan.tail.max() == 2


def test_bad_parameters_are_refused():
    with pytest.raises(InvalidArgumentError, match="lambda"):
        KIPPrinted(histogram_scale=-1)
    with pytest.raises(InvalidArgumentError, match="epsilon"):
        KIPPrinted(slack=float("nan"))
