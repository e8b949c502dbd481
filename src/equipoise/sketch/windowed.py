"""Windowed counter: several Lossy Counting sketches over tumbling windows, which approximate a sliding window."""

from itertools import pairwise
from typing import Annotated, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.framing import reading, require, seal, unseal
from equipoise.hashing import FINGERPRINT_SEED
from equipoise.sketch.base import LEAST_SEED, MAX_TOTAL, Sketch
from equipoise.sketch.histogram import Histogram
from equipoise.sketch.lossy_counting import LossyCounting

_MAX_WINDOW = MAX_TOTAL // 4  # two counters cover up to twice the window; the rest is for the next update


class _Stored(msgspec.Struct):
    """Payload; ``stored`` has each Lossy Counter in its own stored form, oldest first."""

    window: int
    counters: Annotated[int, msgspec.Meta(ge=2)]
    epsilon: float
    hash_seed: int
    phase: int
    stored: list[bytes]


class WindowedCounter(Sketch):
    """Find the hot keys of the recent past, with several counters that start one after the other.

    Every ``step = ceil(window / (counters - 1))`` the oldest counter is dropped and an empty one starts. The oldest
    counter answers; it has seen the last ``window`` or somewhat more.

    Guarantees
    ----------
    - ``total`` is the weight that the answering counter has seen, the most recent weight. Bounds, shares and errors
      are those of ``LossyCounting`` over exactly that weight.
    - After a weight of ``window``, ``window <= total < counters * step``; before, ``total`` is all weight so far.
    - A weight counts exactly like that many repetitions, also if it spans the end of a window.
    - ``a.merge(b)`` answers about the inputs of the answering counters of ``a`` and ``b`` together, whatever their
      phases; its ``total`` is the sum of theirs. Counters of equal age are merged. On further updates, the oldest
      counter is dropped when the first of the two would have dropped it, ``total`` stays at least ``window``, and after
      ``counters`` drops the merge has no effect any more.

    Differs from the paper
    ----------------------
    The number of counters is a parameter; the paper's figure has three. A window that is not a multiple of the step is
    rounded up to one. The paper has no merge.

    Parameters
    ----------
    window
        Least weight to remember (W), at most 2**51.
    counters
        Number of counters (x), at least 2. More counters remember less beyond ``window``, and make updates slower.
    epsilon
        Largest error of each counter, as a share of the weight it has seen.
    hash_seed
        Seed of the counted fingerprints.

    References
    ----------
    Gedik: Partitioning functions for stateful data parallelism in stream processing, VLDB Journal 2014, section 4.1.2.

    Examples
    --------
    >>> sketch = WindowedCounter(window=100, epsilon=0.05)
    >>> sketch.update_many([7] * 1000)
    >>> sketch.update_many([8] * 160)
    >>> sketch.top(2), sketch.total
    ([(8, 110.0)], 110)
    """

    kind = "windowed"

    def __init__(
        self, window: int, counters: int = 3, epsilon: float = 0.001, *, hash_seed: int = FINGERPRINT_SEED
    ) -> None:
        self.window = whole("window", window, 1)
        if self.window > _MAX_WINDOW:
            raise InvalidArgumentError(f"window must be at most 2**51, got {window}; use a coarser unit")
        self.counters = whole("counters", counters, 2)  # one answers while the others fill
        self.epsilon = at_least("epsilon", epsilon, 0)
        self.hash_seed = whole("hash_seed", hash_seed, LEAST_SEED)
        self.total = 0
        self._step = _step(self.window, self.counters)
        self._phase = 0  # weight since the newest counter began, below step
        self._by_age = [self._new_counter()]  # oldest first

    def _new_counter(self) -> LossyCounting:
        return LossyCounting(self.epsilon, hash_seed=self.hash_seed)

    def _feed(self, keys: NDArray[np.int64], weights: NDArray[np.int64]) -> None:
        weights = self._shortened(np.broadcast_to(weights, keys.shape))
        ends = np.cumsum(weights)
        fed, start = 0, 0
        while start < len(keys):
            turn = fed + self._step - self._phase
            last = int(np.searchsorted(ends, turn))  # the first key to reach the turn
            before_turn = weights[start : last + 1].copy()
            beyond = 0
            if last < len(keys):
                beyond = int(ends[last]) - turn
                before_turn[-1] -= beyond
            for counter in self._by_age:
                counter.update_many(keys[start : last + 1], before_turn)
            if last == len(keys):
                self._phase += int(ends[-1]) - fed
                break
            self._turn()
            weights[last] = beyond
            fed, start = turn, last if beyond else last + 1
        self.total = self._by_age[0].total

    def _shortened(self, weights: NDArray[np.int64]) -> NDArray[np.int64]:
        """Reduce weights that outlast a counter by whole lifetimes, which have no effect on the result."""
        life = self.counters * self._step
        excess: NDArray[np.int64] = np.maximum(weights // life - 1, 0) * life
        return weights - excess

    def _turn(self) -> None:
        """Start a new counter; drop the oldest if there are ``counters`` already."""
        self._phase = 0
        if len(self._by_age) == self.counters:
            del self._by_age[0]
        self._by_age.append(self._new_counter())

    def _merged(self, other: Self) -> Self:
        """Merge counters of equal age."""
        mine = (self.window, self.counters, self.epsilon, self.hash_seed)
        theirs = (other.window, other.counters, other.epsilon, other.hash_seed)
        if mine != theirs:
            raise MismatchError(
                f"cannot merge (window, counters, epsilon, hash seed) {mine} with {theirs}; "
                "make both with the same parameters"
            )
        ages = max(len(self._by_age), len(other._by_age))
        by_age = [self._at_age(age).merge(other._at_age(age)) for age in reversed(range(ages))]
        return self._holding(*mine, max(self._phase, other._phase), by_age)

    def _at_age(self, steps: int) -> LossyCounting:
        """Return the counter with the given number of completed steps, or the oldest."""
        return self._by_age[max(0, len(self._by_age) - 1 - steps)]

    def entries(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the keys tracked by the answering counter and their counts, by decreasing count."""
        return self._by_age[0].entries()

    def _bounds_of(self, key: int) -> tuple[float, float]:
        return self._by_age[0].lower(key), self._by_age[0].upper(key)

    def histogram(self, k: int | None = None) -> Histogram:
        """Return the ``k`` hottest keys (default: all tracked) as shares of ``total``."""
        return self._by_age[0].histogram(k)

    @property
    def nbytes(self) -> int:
        """Memory of the counters' arrays, in bytes."""
        return sum(counter.nbytes for counter in self._by_age)

    def to_bytes(self) -> bytes:
        """Return the stored form; its fields are those of ``_Stored``."""
        stored = [counter.to_bytes() for counter in self._by_age]
        payload = _Stored(self.window, self.counters, self.epsilon, self.hash_seed, self._phase, stored)
        return seal(self.kind, self.format_version, payload)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read the stored form of ``to_bytes``."""
        with reading(cls.kind):
            stored = msgspec.convert(unseal(cls.kind, cls.format_version, data), _Stored)
            by_age = [LossyCounting.from_bytes(counter) for counter in stored.stored]
            _check(stored, by_age)
            return cls._holding(stored.window, stored.counters, stored.epsilon, stored.hash_seed, stored.phase, by_age)

    @classmethod
    def _holding(
        cls, window: int, counters: int, epsilon: float, hash_seed: int, phase: int, by_age: list[LossyCounting]
    ) -> Self:
        """Make a sketch with the given counters, oldest first."""
        sketch = cls(window, counters, epsilon, hash_seed=hash_seed)
        sketch._phase, sketch._by_age, sketch.total = phase, by_age, by_age[0].total
        return sketch


def _step(window: int, counters: int) -> int:
    """Return the weight between the starts of two counters."""
    return -(-window // (counters - 1))


def _check(stored: _Stored, by_age: list[LossyCounting]) -> None:
    """Refuse counters that no sequence of updates can produce."""
    kind, step = WindowedCounter.kind, _step(stored.window, stored.counters)
    require(kind, 1 <= len(by_age) <= stored.counters, f"{len(by_age)} counters instead of 1 to {stored.counters}")
    require(kind, 0 <= stored.phase < step, f"phase {stored.phase} of {step}")
    parameters = {(counter.epsilon, counter.hash_seed) for counter in by_age}
    require(kind, parameters == {(stored.epsilon, stored.hash_seed)}, "a counter has other parameters")
    require(kind, all(a.total >= b.total for a, b in pairwise(by_age)), "its counters are not in order of age")
