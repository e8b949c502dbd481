"""The histograms of a streaming parallel decision tree, built in parts and merged.

Run me with `python examples/decision_tree_histograms.py`. A decision tree over a stream needs, for every leaf, feature
and class, a histogram of the values seen; with partial key grouping each is built by at most two workers, so that the
aggregator merges two histograms and not one from every worker (section 4.1 of Nasir et al., "Partial Key Grouping").
The histogram is that of Ben-Haim and Tom-Tov, "A streaming parallel decision tree algorithm", JMLR 2010.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from equipoise import fingerprints
from equipoise.split import PartialKey, Shuffle, Splitter

FEATURES, CLASSES = 4, 2


class Histogram:
    """At most so many (value, count) pairs; the two that are closest are made one when there is no room."""

    def __init__(self, bins: int) -> None:
        self.bins = bins
        self.points: list[tuple[float, float]] = []

    def update(self, value: float, count: float = 1.0) -> None:
        """Add a value."""
        at = bisect_left(self.points, (value,))
        if at < len(self.points) and self.points[at][0] == value:
            self.points[at] = (value, self.points[at][1] + count)
            return
        self.points.insert(at, (value, count))
        if len(self.points) > self.bins:
            self._shrink()

    def merge(self, other: "Histogram") -> "Histogram":
        """The histogram of both."""
        merged = Histogram(self.bins)
        merged.points = list(self.points)
        for value, count in other.points:
            merged.update(value, count)
        return merged

    def below(self, value: float) -> float:
        """How many values are at most ``value``, about: half of a pair lies on each side of its value."""
        total = 0.0
        for (left, one), (right, two) in zip(self.points, [*self.points[1:], (np.inf, 0.0)], strict=True):
            if left > value:
                break
            if right == np.inf or right > value:
                part = 0.0 if right == np.inf else (value - left) / (right - left)
                between = one + (two - one) * part
                return total + one / 2 + (one + between) / 2 * part if right < np.inf else total + one
            total += one
        return total

    @property
    def total(self) -> float:
        """How many values there are."""
        return sum(count for _, count in self.points)

    def _shrink(self) -> None:
        gaps = [right[0] - left[0] for left, right in zip(self.points, self.points[1:], strict=False)]
        at = int(np.argmin(gaps))
        (left, one), (right, two) = self.points[at : at + 2]
        self.points[at : at + 2] = [((left * one + right * two) / (one + two), one + two)]


Histograms = dict[tuple[int, int], Histogram]


def gini(counts: NDArray[np.float64]) -> float:
    """Impurity of a node with so many examples of each class."""
    total = counts.sum()
    return float(1 - ((counts / total) ** 2).sum()) if total else 0.0


def best_split(histograms: Histograms, points: Iterable[float]) -> tuple[int, float]:
    """Feature and value whose two sides are purest."""
    best, found = np.inf, (0, 0.0)
    for feature in range(FEATURES):
        for point in points:
            left = np.array([histograms[feature, label].below(point) for label in range(CLASSES)])
            right = np.array([histograms[feature, label].total for label in range(CLASSES)]) - left
            score = (left.sum() * gini(left) + right.sum() * gini(right)) / (left.sum() + right.sum())
            if score < best - 1e-12:
                best, found = score, (feature, point)
    return found


def in_parts(
    values: NDArray[np.float64], labels: NDArray[np.int64], splitter: Splitter, bins: int
) -> tuple[Histograms, int]:
    """Merged histograms of all workers, and how many histograms there were to merge."""
    workers: list[Histograms] = [defaultdict(lambda: Histogram(bins)) for _ in range(splitter.workers)]
    keys = fingerprints(np.arange(FEATURES * CLASSES))
    for example, label in zip(values, labels.tolist(), strict=True):
        targets = splitter.route(keys[np.arange(FEATURES) * CLASSES + label]).tolist()
        for feature, worker in enumerate(targets):
            workers[worker][feature, label].update(float(example[feature]))
    merged: Histograms = defaultdict(lambda: Histogram(bins))
    for each in workers:
        for key, histogram in each.items():
            merged[key] = merged[key].merge(histogram)
    return merged, sum(len(each) for each in workers)


def examples(count: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Feature 2 tells the classes apart at 0.6; the others are noise."""
    rng = np.random.default_rng(seed)
    values = rng.random((count, FEATURES))
    return values, (values[:, 2] > 0.6).astype(np.int64)


def main() -> None:
    """Find the split of a root with one process, by shuffling and by partial key grouping."""
    values, labels = examples(5000, seed=1)
    points = np.linspace(0.05, 0.95, 19)
    found = set()
    for name, splitter in (("one process", Shuffle(1)), ("shuffle", Shuffle(8)), ("partial key", PartialKey(8))):
        histograms, parts = in_parts(values, labels, splitter, bins=64)
        feature, point = best_split(histograms, points)
        found.add((feature, point))
        print(f"{name:12} split feature {feature} at {point:.2f}; {parts} histograms to merge")
    print(f"same result: {len(found) == 1}")


if __name__ == "__main__":
    main()
