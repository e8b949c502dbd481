"""Top-k word count with an aggregation period: workers count, and every so often hand what they have to an aggregator.

Run me with `python examples/word_count.py`. A short period makes fresh results and much traffic; splitting a key
costs a counter in every worker that sees it: the experiment on a cluster in Nasir et al., "Partial Key Grouping".
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from equipoise.split import KeyGrouping, PartialKey, Shuffle, Splitter


@dataclass
class WordCount:
    """Counts at workers, flushed to an aggregator every ``period`` words.

    Parameters
    ----------
    splitter
        Chooses the worker of each word.
    period
        T, words between two flushes.
    """

    splitter: Splitter
    period: int
    total: Counter[int] = field(default_factory=Counter)
    messages: int = 0
    peak: int = 0

    def __post_init__(self) -> None:
        self._workers: list[Counter[int]] = [Counter() for _ in range(self.splitter.workers)]
        self._since = 0

    def add(self, words: NDArray[np.int64]) -> None:
        """Count a chunk of the stream."""
        done = 0
        while done < len(words):
            part = words[done : done + self.period - self._since]
            for word, worker in zip(part.tolist(), self.splitter.route(part).tolist(), strict=True):
                self._workers[worker][word] += 1
            done, self._since = done + len(part), self._since + len(part)
            if self._since == self.period:
                self.flush()

    def flush(self) -> None:
        """Hand everything to the aggregator."""
        self.peak = max(self.peak, sum(len(counts) for counts in self._workers))
        for counts in self._workers:
            self.messages += len(counts)
            self.total.update(counts)
            counts.clear()
        self._since = 0

    def top(self, count: int) -> list[tuple[int, int]]:
        """The most frequent words up to the last flush."""
        return sorted(self.total.items(), key=lambda pair: (-pair[1], pair[0]))[:count]


def main() -> None:
    """Compare balance, memory and traffic; the counts are the same."""
    words = np.random.default_rng(1).zipf(1.1, 200_000) % 50_000
    expected = sorted(Counter(words.tolist()).items(), key=lambda pair: (-pair[1], pair[0]))[:10]
    for period in (10_000, 50_000):
        for splitter in (KeyGrouping(9), PartialKey(9), Shuffle(9)):
            counting = WordCount(splitter, period)
            for chunk in np.array_split(words, 7):
                counting.add(chunk)
            counting.flush()
            loads = splitter.loads
            same = counting.top(10) == expected
            print(
                f"T {period:6} {splitter.name:13} fullest worker {loads.max() / loads.mean():.2f} of the mean, "
                f"{counting.peak:6} counters, {counting.messages:6} messages; same result: {same}"
            )


if __name__ == "__main__":
    main()
