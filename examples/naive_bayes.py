"""Streaming naive Bayes with vertical parallelism: the words of documents are the keys, and a worker has their counts.

Run me with `python examples/naive_bayes.py`. With partial key grouping a word has two workers: each counts its part,
and a prediction asks both. The model is the same as that of one process, and no worker drowns in the words that
everybody uses: an application of Nasir et al., "Partial Key Grouping".
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from equipoise import fingerprints
from equipoise.split import KeyGrouping, PartialKey

CLASSES = 3
Document = Sequence[str]


class NaiveBayes:
    """Words and classes, counted; with add-one smoothing."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, int]] = Counter()
        self.words = np.zeros(CLASSES)
        self.documents = np.zeros(CLASSES)
        self.vocabulary: set[str] = set()

    def learn(self, document: Document, label: int) -> None:
        """Count one document."""
        self.observe(document, label)
        for word in document:
            self.counts[word, label] += 1

    def observe(self, document: Document, label: int) -> None:
        """Count what does not belong to a word; one process does this alone."""
        self.documents[label] += 1
        self.words[label] += len(document)
        self.vocabulary.update(document)

    def count(self, word: str) -> NDArray[np.float64]:
        """How often a word was seen in each class."""
        return np.array([self.counts[word, label] for label in range(CLASSES)], dtype=float)

    def predict(self, document: Document) -> int:
        """The likeliest class."""
        scores = np.log(self.documents + 1)
        for word in document:
            scores = scores + np.log((self.count(word) + 1) / (self.words + len(self.vocabulary)))
        return int(np.argmax(scores))


class SplitNaiveBayes(NaiveBayes):
    """The same model with its counts at workers that a splitter chooses."""

    def __init__(self, splitter: KeyGrouping | PartialKey) -> None:
        super().__init__()
        self.splitter = splitter
        self.workers: list[Counter[tuple[str, int]]] = [Counter() for _ in range(splitter.workers)]

    def learn(self, document: Document, label: int) -> None:
        """Send each word to a worker, which counts it."""
        self.observe(document, label)
        for word, worker in zip(document, self.splitter.route(fingerprints(list(document))).tolist(), strict=True):
            self.workers[worker][word, label] += 1

    def count(self, word: str) -> NDArray[np.float64]:
        """Ask the workers that may have seen the word, and add up."""
        candidates = set(self.splitter.candidates(int(fingerprints([word])[0])).tolist())
        return np.array(
            [sum(self.workers[w][word, label] for w in candidates) for label in range(CLASSES)], dtype=float
        )


def stream(documents: int, seed: int) -> Iterable[tuple[Document, int]]:
    """Documents whose frequent words are the same in all classes; the rarer ones tell them apart."""
    rng = np.random.default_rng(seed)
    for _ in range(documents):
        label = int(rng.integers(CLASSES))
        ranks = rng.zipf(1.3, 20) % 5000
        yield [f"w{rank}" if rank < 30 else f"w{rank}-{(rank + label) % CLASSES}" for rank in ranks.tolist()], label


def main() -> None:
    """Learn with one process, by key grouping and by partial key grouping; compare."""
    workers, alone = 10, NaiveBayes()
    split = {"key grouping": SplitNaiveBayes(KeyGrouping(workers)), "partial key": SplitNaiveBayes(PartialKey(workers))}
    for document, label in stream(3000, seed=1):
        alone.learn(document, label)
        for model in split.values():
            model.learn(document, label)
    tests = list(stream(300, seed=2))
    right = sum(alone.predict(document) == label for document, label in tests)
    print(f"one process: {right / len(tests):.1%} right")
    for name, model in split.items():
        same = all(model.predict(document) == alone.predict(document) for document, _ in tests)
        loads = model.splitter.loads
        memory = max(len(counts) for counts in model.workers)
        balance = f"fullest worker {loads.max() / loads.mean():.2f} of the mean"
        print(f"{name:13} {balance}, {memory} counters; same result: {same}")


if __name__ == "__main__":
    main()
