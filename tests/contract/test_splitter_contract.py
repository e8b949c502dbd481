"""Every exported splitter keeps the promises of a splitter, and the checks notice one that does not."""

from functools import partial
from inspect import signature
from itertools import count

import numpy as np
import pytest

from equipoise.checks import check_splitter
from equipoise.errors import CheckError
from equipoise.split import SPLITTERS, KeyGrouping, PartialKey, make_splitter


def standing_still():
    return 0.0


def factory(name, **options):
    if "clock" in signature(SPLITTERS[name]).parameters:
        options["clock"] = standing_still
    return lambda workers, seed: make_splitter(name, workers=workers, seed=seed, **options)


PARAMETERISED = {
    **{name: factory(name) for name in SPLITTERS},
    "greedy-1": factory("partial-key", choices=1),
    "greedy-5": factory("partial-key", choices=5),
    "d-choices, few counters": factory("d-choices", capacity=20, refresh=100),
    "d-choices, four choices": factory("d-choices", choices=4),
    "w-choices, often": factory("w-choices", refresh=50),
    "affinity, windows": factory("affinity", window=70, choices=3),
    "affinity, as coded": factory("affinity", choices=5, as_coded=True, ties_last=True),
    "dynamic-key, warm": factory("dynamic-key", warm_up=0, limit=300),
}


@pytest.mark.parametrize("make", PARAMETERISED.values(), ids=PARAMETERISED.keys())
def test_a_splitter_keeps_its_promises(make):
    check_splitter(make)


class Outside(KeyGrouping):
    def _route(self, keys, targets):  # noqa: ARG002 - the point is that it does not look
        targets[:] = self.workers


class Fickle(KeyGrouping):
    number = count()

    def _route(self, keys, targets):  # noqa: ARG002 - the point is that it does not look
        targets[:] = next(self.number) % self.workers


class Forgetful(PartialKey):
    def _route(self, keys, targets):
        self.loads[:] = 0
        super()._route(keys, targets)


class Elsewhere(KeyGrouping):
    def candidates(self, key):
        return (super().candidates(key) + 1) % self.workers


class Hoarder(KeyGrouping):
    def __init__(self, workers, *, seed=0):
        super().__init__(workers, seed=seed)
        self.kept = np.empty(0, dtype=np.int64)

    def _route(self, keys, targets):
        super()._route(keys, targets)
        self.kept = np.concatenate([self.kept, keys])

    @property
    def nbytes(self):
        return super().nbytes + self.kept.nbytes


class Unmoved(KeyGrouping):
    def probe(self, loads, *, sources=1, absolute=False):
        before = self.loads.copy()
        super().probe(loads, sources=sources, absolute=absolute)
        self.loads[:] = before


class Lenient(KeyGrouping):
    def route(self, fingerprints):
        return super().route(np.asarray(fingerprints, dtype=np.float64).astype(np.int64))


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Outside, "outside 0"),
        (Fickle, "two equal splitters gave different routes"),
        (Forgetful, "differs from that of one call"),
        (Elsewhere, "not to any of"),
        (Hoarder, "but memory is 'workers'"),
        (Unmoved, "loads are"),
        (Lenient, "was accepted"),
    ],
)
def test_a_broken_promise_is_noticed(kind, complaint):
    with pytest.raises(CheckError, match=complaint):
        check_splitter(partial(lambda workers, seed, kind: kind(workers, seed=seed), kind=kind))
