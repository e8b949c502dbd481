"""Counts of every key hour by hour, for loads that are too large to be simulated message by message.

Planners need a count for each tail group and for each hot key. The counts of all keys are drawn from their exact joint
distribution, which is multinomial, a million keys at a time, and added up at once. So memory grows with the groups and
the hot keys, not with the keys or the messages.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError
from equipoise.hashing import FINGERPRINT_SEED, hash_long
from equipoise.kernels import kernel
from equipoise.plan import Plan
from equipoise.sketch import Histogram
from equipoise_lab.simulate.workloads import key_fingerprints

_CHUNK = 1_000_000


@kernel(nogil=True)
def _add_to_groups(first: int, counts: Any, names: int, groups: Any) -> None:
    """Add the counts of keys ``first``, ``first + 1`` and so on to their tail groups."""
    for i in range(len(counts)):
        groups[hash_long(first + i, names) % len(groups)] += counts[i]


@dataclass(frozen=True)
class Hour:
    """Messages of one hour.

    Parameters
    ----------
    known
        Keys that are counted one by one: all that ever had a hot rank.
    counts
        Messages of each of them; 0 for a key that no longer has a rank.
    groups
        Messages of each tail group, without the known keys.
    """

    known: NDArray[np.int64]
    counts: NDArray[np.int64]
    groups: NDArray[np.int64]

    @property
    def messages(self) -> int:
        """Messages of all keys."""
        return int(self.counts.sum() + self.groups.sum())

    @property
    def hottest(self) -> float:
        """Share of the hottest key."""
        return float(self.counts.max() / self.messages)

    def loads(self, plan: Plan) -> NDArray[np.int64]:
        """Return the messages of each partition under a plan that isolates known keys only."""
        single = np.bincount(plan.assign(self.known), self.counts, plan.partitions)
        return (single + np.bincount(plan.tail, self.groups, plan.partitions)).astype(np.int64)

    def of_groups(self) -> NDArray[np.int64]:
        """Return the messages of each tail group, known keys included."""
        home = np.mod(self.known, len(self.groups))
        return self.groups + np.bincount(home, self.counts, len(self.groups)).astype(np.int64)

    def histogram(self, listed: int) -> Histogram:
        """Return the histogram of the hottest keys."""
        hottest = np.lexsort((self.known, -self.counts))[:listed]
        return Histogram(self.known[hottest], self.counts[hottest] / self.messages, total=float(self.messages))


class HourlyCounts:
    """Hourly counts of a Zipf load, in which some of the hot ranks get new keys every hour.

    Guarantees
    ----------
    - The counts of an hour are one draw from the multinomial distribution of all keys.
    - Before each hour except the first, each hot rank gets a new key with probability ``drift``. Its old key does not
      occur again.

    Parameters
    ----------
    keys
        K, number of keys at a time.
    exponent
        z of Zipf's law.
    messages
        Messages of an hour.
    groups
        H, number of tail groups.
    hot
        Number of hot ranks, at most half of the keys. The keys of twice as many ranks are counted one by one.
    drift
        Average fraction of the hot ranks that get a new key in an hour.
    seed
        Seed of the draws and of the fingerprints.
    """

    def __init__(
        self, keys: int, exponent: float, messages: int, *, groups: int, hot: int, drift: float = 0.0, seed: int = 0
    ) -> None:
        self.keys, self.messages = whole("keys", keys, 2), whole("messages", messages, 1)
        self.groups, self.hot = whole("groups", groups, 1), whole("hot", hot, 1)
        if self.hot > self.keys // 2:
            raise InvalidArgumentError(f"hot must lie between 1 and half of the {keys} keys, got {hot}")
        self.drift = at_least("drift", drift, 0)
        if self.drift > 1:
            raise InvalidArgumentError(f"drift must be a fraction of the hot ranks, in [0, 1], got {drift}")
        self._exponent = at_least("exponent", exponent, 0)
        self._seed = whole("seed", seed, 0)
        self._names = hash_long(self._seed, FINGERPRINT_SEED)
        self._rng = np.random.default_rng(self._seed)
        single = 2 * self.hot
        edges = [0, *range(single, self.keys, _CHUNK), self.keys]
        self._chunks = [chunk for chunk in pairwise(edges) if chunk[0] < chunk[1]]
        self._weights = np.array([self._relative(*chunk).sum() for chunk in self._chunks])
        self.known = key_fingerprints(np.arange(single), self._seed)
        """Keys that ever had one of the ranks that are counted one by one."""
        self._rank_of_known = np.arange(single)
        self._named = self.keys
        self._hours = 0

    def _relative(self, first: int, end: int) -> NDArray[np.float64]:
        """Return the shares of ranks ``first`` to ``end``, relative to that of the hottest."""
        return np.arange(first + 1, end + 1, dtype=np.float64) ** -self._exponent

    def _rename(self) -> None:
        """Give some of the hot ranks new keys."""
        changed = np.flatnonzero(self._rng.random(self.hot) < self.drift)
        self._rank_of_known[np.isin(self._rank_of_known, changed)] = -1
        fresh = key_fingerprints(np.arange(self._named, self._named + len(changed)), self._seed)
        self._named += len(changed)
        self.known = np.concatenate([self.known, fresh])
        self._rank_of_known = np.concatenate([self._rank_of_known, changed])

    def draw(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield the counts of the next hour, chunk by chunk, each with its first rank."""
        if self._hours:
            self._rename()
        self._hours += 1
        messages, left = self.messages, float(self._weights.sum())
        for chunk, weight in zip(self._chunks, self._weights.tolist(), strict=True):
            here = messages
            if chunk[1] < self.keys:
                here = int(self._rng.binomial(messages, min(1.0, weight / left)))
            shares = self._relative(*chunk)
            shares /= shares.sum()
            yield chunk[0], self._rng.multinomial(here, shares)
            messages, left = messages - here, left - weight

    def next_hour(self) -> Hour:
        """Draw the next hour."""
        groups = np.zeros(self.groups, dtype=np.int64)
        counts = np.empty(0, dtype=np.int64)
        for first, drawn in self.draw():
            if first == 0:
                alive = self._rank_of_known >= 0
                counts = np.where(alive, drawn[self._rank_of_known], 0)
            else:
                _add_to_groups(first, drawn, self._names, groups)
        return Hour(self.known, counts, groups)
