"""Every exported sketch keeps the promises of a sketch, and the checks notice one that does not."""

import inspect

import numpy as np
import pytest

from equipoise import sketch as exported
from equipoise.checks import check_sketch
from equipoise.checks import sketch as checks
from equipoise.errors import CheckError, DamagedError, UnknownFormatError
from equipoise.sketch import DriftHistogram, Histogram, LossyCounting, Sketch, SpaceSaving, WindowedCounter

PARAMETERISED = {
    "SpaceSaving, one counter": lambda: SpaceSaving(1),
    "SpaceSaving, few counters": lambda: SpaceSaving(50),
    "SpaceSaving, never full": lambda: SpaceSaving(10_000, hash_seed=7),
    "LossyCounting, coarse": lambda: LossyCounting(0.9),
    "LossyCounting": lambda: LossyCounting(0.01),
    "LossyCounting, no window ever ends": lambda: LossyCounting(1e-8, hash_seed=7),
    "WindowedCounter": lambda: WindowedCounter(1000, epsilon=0.01),
    "WindowedCounter, two counters": lambda: WindowedCounter(333, counters=2, epsilon=0.1),
    "WindowedCounter, window never filled": lambda: WindowedCounter(10**12, counters=5, hash_seed=7),
    "DriftHistogram, its defaults": DriftHistogram,
    "DriftHistogram, small": lambda: DriftHistogram(10, soft_boundary=60),
    "DriftHistogram, never sampling": lambda: DriftHistogram(10, soft_boundary=60, backoff=1),
    "DriftHistogram, nervous": lambda: DriftHistogram(
        5, soft_boundary=20, drift_boundary=0.01, solidarity=2, backoff=1.5, hash_seed=7
    ),
    "DriftHistogram, forgetful": lambda: DriftHistogram(5, soft_boundary=20, shift_boundary=0),
    "DriftHistogram, never forgetting": lambda: DriftHistogram(10, soft_boundary=60, shift_boundary=1),
}


@pytest.mark.parametrize("make", PARAMETERISED.values(), ids=PARAMETERISED)
def test_a_sketch_keeps_its_promises(make):
    check_sketch(make)


def test_every_exported_sketch_is_checked():
    classes = {each for each in vars(exported).values() if inspect.isclass(each) and issubclass(each, Sketch)}
    assert classes - {Sketch} == {type(make()) for make in PARAMETERISED.values()}


class Broken(SpaceSaving):
    """A sketch that breaks one promise."""

    def __init__(self, capacity=30, *, hash_seed=42):
        super().__init__(capacity, hash_seed=hash_seed)


class Overconfident(Broken):
    def lower(self, key):
        return self.upper(key)


class Dismissive(Broken):
    def upper(self, key):
        return super().upper(key) if key in self.entries()[0] else 0.0


class Slow(Broken):
    def update(self, key, weight=1):
        super().update(key, weight)
        self.total += 1


class Double(Broken):
    def update_many(self, fingerprints, weights=None):
        super().update_many(fingerprints, np.full(len(fingerprints), 2) if weights is None else weights)


class Wrapping(Broken):
    def upper(self, key):
        return super().upper(key) if key < 2**63 else 0.0


class Trustful(Broken):
    def merge(self, other):
        if isinstance(other, Broken):
            return super().merge(other)
        return self


class Overflowing(Broken):
    def _check_room(self, weight):
        pass


class Selfish(Broken):
    def merge(self, other):
        super().merge(other)
        return type(self).from_bytes(self.to_bytes())


class Careless(Broken):
    def merge(self, other):
        merged = super().merge(other)
        merged._counters.errors[:] = 0
        return merged


class Partial(Broken):
    slack = 0

    def merge(self, other):
        merged = super().merge(other)
        merged.slack = self.total
        return merged

    def upper(self, key):
        return super().upper(key) + self.slack


class Greedy(Broken):
    def merge(self, other):
        merged = super().merge(other)
        self.update(1)
        return merged


class Amnesic(Broken):
    @classmethod
    def from_bytes(cls, data):
        sketch = super().from_bytes(data)
        sketch._counters.errors[:] = 0
        return sketch


class Nervous(Broken):
    def top(self, k):
        self.total += 1
        return super().top(k)


class Trusting(Broken):
    @classmethod
    def from_bytes(cls, data):
        try:
            return super().from_bytes(data)
        except DamagedError:
            return cls()


class Crashing(Broken):
    @classmethod
    def from_bytes(cls, data):
        try:
            return super().from_bytes(data)
        except DamagedError as error:
            raise KeyError("payload") from error


class Timeless(Broken):
    @classmethod
    def from_bytes(cls, data):
        try:
            return super().from_bytes(data)
        except UnknownFormatError:
            return cls()


class Disordered(Broken):
    def entries(self):
        keys, counts = super().entries()
        return keys[::-1], counts[::-1]


class Boastful(Broken):
    def histogram(self, k=None):
        honest = super().histogram(k)
        return Histogram(honest.fingerprints, honest.shares, total=self.total, unlisted=honest.unlisted)


class Blind(Broken):
    def histogram(self, k=None):
        honest = super().histogram(k)
        return Histogram(honest.fingerprints, honest.shares, error=honest.error, total=self.total, unlisted=0)


class Lenient(Broken):
    def update_many(self, fingerprints, weights=None):
        super().update_many(fingerprints, None if weights is None else np.maximum(weights, 1))


BROKEN = [
    (Overconfident, checks.check_bounds, r"key \S+ has a true count of \d+, outside"),
    (Dismissive, checks.check_bounds, r"key \S+ has a true count of \d+, outside"),
    (Slow, checks.check_one_at_a_time, "counting one at a time differs"),
    (Double, checks.check_default_weight, "differs from counting with weights of 1"),
    (Wrapping, checks.check_unsigned_keys, r"key \S+ has other bounds as"),
    (Trustful, checks.check_merge_refused, "was accepted; expected MismatchError"),
    (Overflowing, checks.check_merge_refused, "was accepted; expected InvalidArgumentError"),
    (Selfish, checks.check_merge_bounds, r"total is \d+, expected"),
    (Careless, checks.check_merge_bounds, r"key \S+ has a true count of \d+, outside"),
    (Partial, checks.check_merge_commutes, r"key \S+ has bounds .* in the other"),
    (Greedy, checks.check_merge_leaves_operands, "an operand was changed"),
    (Amnesic, checks.check_round_trip, "after reading its bytes differ"),
    (Nervous, checks.check_deterministic, "queries between updates changed the bytes"),
    (Trusting, checks.check_damage_refused, "was accepted; expected DamagedError"),
    (Crashing, checks.check_damage_refused, r"raised KeyError\('payload'\); expected DamagedError"),
    (Timeless, checks.check_unknown_version_refused, "was accepted; expected UnknownFormatError"),
    (Disordered, checks.check_top, "not in order"),
    (Boastful, checks.check_histogram, r"key \S+ has share .*, error 0\.0"),
    (Blind, checks.check_histogram, r"unlisted key \S+ has share"),
    (Lenient, checks.check_bad_arguments_refused, "was accepted; expected InvalidArgumentError"),
]


def test_the_sound_original_of_the_broken_sketches_passes():
    check_sketch(Broken)


@pytest.mark.parametrize(("broken", "check", "complaint"), BROKEN)
def test_a_broken_promise_is_noticed_and_the_message_names_it(broken, check, complaint):
    with pytest.raises(CheckError, match=f"{broken.__name__} over .*{complaint}"):
        check(broken)
    with pytest.raises(CheckError):
        check_sketch(broken)


def test_every_check_notices_something():
    assert {check for _, check, _ in BROKEN} == set(checks.SKETCH_CHECKS)
