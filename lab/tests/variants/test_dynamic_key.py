"""Dynamic Key Grouping as coded and as printed: their decisions, and how they differ from the library's."""

import numpy as np
import pytest

from equipoise.fingerprint_table import find
from equipoise.split import DynamicKey
from equipoise.split.key_space import OLD, append
from equipoise_lab.variants import DynamicKeyCoded, DynamicKeyPrinted


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def splitter_in(kind, loads, *, width=2, generation=OLD, **options):
    """A warm splitter with given loads that knows one key, the first whose first worker is 0."""
    clock = Clock()
    splitter = kind(len(loads), clock=clock, **options)
    clock.now = 100.0
    splitter._next_cycle = 1000.0
    key = next(key for key in range(10_000) if splitter.candidates(key)[0] == 0)
    know(splitter._space, key, generation, width)
    splitter.loads[:] = loads
    return splitter, key


def know(space, key, generation, width=2, count=1):
    entries = space.entries
    slot = find(entries.table_keys, entries.table_values, key)
    append(entries, space.size, slot, key)
    entries.generations[space.size] = generation
    entries.widths[space.size] = width
    entries.counts[space.size] = count
    space.size += 1


@pytest.mark.parametrize(
    ("workers", "threshold", "coded", "machines", "machines_coded"),
    [
        (5, 24.4721, 24, 5, 5),
        (10, 13.1623, 13, 8, 8),
        (20, 7.2361, 7, 14, 15),
        (50, 3.4142, 3, 30, 34),
        (100, 2.0, 2, 51, 51),
    ],
)
def test_thresholds_and_widths_are_those_of_table_1(workers, threshold, coded, machines, machines_coded):
    printed = DynamicKeyPrinted(workers).threshold
    assert printed == pytest.approx(threshold, abs=1e-4)
    assert DynamicKeyCoded(workers).threshold == coded
    assert int(100 / printed) + 1 == machines
    assert int(100 / coded) + 1 == machines_coded


@pytest.mark.parametrize("kind", [DynamicKeyCoded, DynamicKeyPrinted])
def test_an_overloaded_old_key_takes_the_next_worker_if_that_has_less(kind):
    splitter, key = splitter_in(kind, [30, 30, 5, 20, 15])
    assert splitter.route([key]).tolist() == [2]
    assert splitter.width(key) == 3
    splitter, key = splitter_in(kind, [30, 30, 35, 5, 0])
    assert splitter.route([key]).tolist() == [0]
    assert splitter.width(key) == 2


@pytest.mark.parametrize(("kind", "width"), [(DynamicKeyCoded, 3), (DynamicKeyPrinted, 2)])
def test_a_key_with_two_free_workers_gets_narrower(kind, width):
    splitter, key = splitter_in(kind, [10, 10, 10, 40, 30], width=4)
    assert splitter.route([key]).tolist() == [0]
    assert splitter.width(key) == width


def test_a_single_key_widens_by_the_minute_as_coded():
    clock = Clock()
    splitter = DynamicKeyCoded(10, clock=clock)
    know(splitter._space, 7, OLD)
    changes = {}
    width = None
    for tick in range(6015):
        clock.now = tick / 10
        splitter.route([7])
        if splitter.width(7) != width:
            width = splitter.width(7)
            changes[int(clock.now)] = width
    assert changes == {0: 2, 60: 3, 120: 4, 180: 5, 240: 6, 300: 7, 360: 8, 420: 7, 480: 6, 540: 5, 601: 6}


def run(splitter, clock, seconds, share, hot, rate=1000, seed=1):
    """Loads of the workers over some seconds of a stream with one hot key."""
    rng = np.random.default_rng(seed)
    loads = np.zeros(splitter.workers, dtype=np.int64)
    for _ in range(seconds):
        batch = np.where(rng.random(rate) < share, hot, rng.integers(1000, 1200, rate))
        loads += np.bincount(splitter.route(batch), minlength=splitter.workers)
        clock.now += 1.0
    return loads


def test_as_coded_what_was_hot_for_long_keeps_the_newcomer_out_of_the_old():
    clock = Clock()
    coded, ours = DynamicKeyCoded(10, expected_keys=10, clock=clock), DynamicKey(10, expected_keys=10, clock=clock)
    for splitter in (coded, ours):
        clock.now = 0.0
        splitter._started = splitter._next_cycle = 0.0
        run(splitter, clock, 400, 0.8, 1)
        run(splitter, clock, 200, 0.8, 2)
    assert coded.width(2) == 2
    assert ours.width(2) >= 5


def test_as_printed_no_key_is_ever_promoted_unless_generations_are_filled():
    for fills, wider in ((False, False), (True, True)):
        clock = Clock()
        splitter = DynamicKeyPrinted(10, fills=fills, clock=clock)
        loads = run(splitter, clock, 120, 0.8, 1)
        assert (sorted(loads)[-3] > loads.sum() * 0.11) == wider
