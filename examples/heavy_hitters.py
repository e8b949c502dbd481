"""Heavy hitters in many places: with partial key grouping the count of a key is the sum of two summaries, not of all.

Run me with `python examples/heavy_hitters.py`. Every worker keeps a SpaceSaving summary of what it is sent. Under
shuffling the error of a key adds up over all workers; under partial key grouping over the two that may have seen it
(section 4.2 of Nasir et al., "Partial Key Grouping").
"""

import numpy as np
from numpy.typing import NDArray

from equipoise.sketch import SpaceSaving
from equipoise.split import KeyGrouping, PartialKey, Shuffle


class HeavyHitters:
    """Summaries at the workers of a splitter.

    Guarantees
    ----------
    - The true count of a key lies between ``lower`` and ``upper``, and these are no further apart than the sum of the
      floors of the summaries that may have counted it.
    """

    def __init__(self, splitter: KeyGrouping | PartialKey | Shuffle, counters: int) -> None:
        self.splitter = splitter
        self.summaries = [SpaceSaving(counters) for _ in range(splitter.workers)]
        self._everywhere = isinstance(splitter, Shuffle)

    def add(self, keys: NDArray[np.int64]) -> None:
        """Count a chunk of the stream."""
        targets = self.splitter.route(keys)
        for worker, summary in enumerate(self.summaries):
            summary.update_many(keys[targets == worker])

    def seen_by(self, key: int) -> list[SpaceSaving]:
        """The summaries that may have counted a key."""
        workers = range(len(self.summaries)) if self._everywhere else set(self.splitter.candidates(key).tolist())
        return [self.summaries[worker] for worker in workers]

    def bounds(self, key: int) -> tuple[float, float]:
        """Least and largest possible count of a key."""
        found = self.seen_by(key)
        return sum(each.lower(key) for each in found), sum(each.upper(key) for each in found)

    def error_bound(self, key: int) -> int:
        """By how much the two may differ."""
        return sum(each.floor for each in self.seen_by(key))

    def top(self, count: int) -> list[tuple[int, float]]:
        """The hottest keys by their largest possible count."""
        known = {key for each in self.summaries for key in each.entries()[0].tolist()}
        return sorted(((key, self.bounds(key)[1]) for key in known), key=lambda pair: (-pair[1], pair[0]))[:count]


def main() -> None:
    """Compare the errors of the hottest keys."""
    keys = np.random.default_rng(1).zipf(1.2, 400_000) % 100_000
    true = np.bincount(keys)
    hottest = np.argsort(-true, kind="stable")[:50].tolist()
    for splitter in (KeyGrouping(10), PartialKey(10), Shuffle(10)):
        hitters = HeavyHitters(splitter, counters=200)
        for chunk in np.array_split(keys, 20):
            hitters.add(chunk)
        error = np.mean([hitters.bounds(key)[1] - true[key] for key in hottest])
        found = len({key for key, _ in hitters.top(50)} & set(hottest))
        loads = splitter.loads
        balance = f"fullest worker {loads.max() / loads.mean():.2f} of the mean"
        within = all(hitters.bounds(key)[0] <= true[key] <= hitters.bounds(key)[1] for key in hottest)
        print(f"{splitter.name:13} {balance}; mean error of the top 50: {error:5.1f}, {found} of them found")
        print(f"{'':13} same result: {within}, as far as the bounds say")


if __name__ == "__main__":
    main()
