"""DKG's key space: three generations of keys, of which only the oldest may spread further."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise.fingerprint_table import EMPTY, fill, get, new_table
from equipoise.kernels import kernel

BABY, TEENAGE, OLD, FORGOTTEN = 0, 1, 2, 3
"""Generations. A forgotten key is kept only where its width has to be."""

NEVER = -np.inf

_FIRST_CAPACITY = 1024


class Entries(NamedTuple):
    """What is known of each key; an entry's number is what the table finds."""

    table_keys: NDArray[np.int64]
    table_values: NDArray[np.int32]
    keys: NDArray[np.int64]
    counts: NDArray[np.int64]
    generations: NDArray[np.int8]
    widths: NDArray[np.int32]  # number of workers the key may go to
    checked: NDArray[np.float64]  # when it was last asked whether the width should change


@kernel(inline="always")
def append(entries: Any, size: int, slot: int, key: int) -> None:
    """Make a new key, whose free slot of the table is known, a baby."""
    entries.table_keys[slot] = key
    entries.table_values[slot] = size
    entries.keys[size] = key
    entries.counts[size] = 0
    entries.generations[size] = BABY
    entries.widths[size] = 2
    entries.checked[size] = NEVER


def promote(
    source: list[int], target: list[int], counts: NDArray[np.int64], capacity: int, *, fills: bool, swaps_ties: bool
) -> None:
    """Move the keys of largest count up one generation, against the smallest there (algorithm 3).

    Parameters
    ----------
    source, target
        Entries of the younger and of the older generation; both are put in order of decreasing count and changed.
    counts
        Count of each entry.
    capacity
        Number of keys in the older generation.
    fills
        Fill up an older generation that has room, as the authors' code does.
    swaps_ties
        Swap keys of equal counts, as printed.
    """
    source.sort(key=lambda entry: -counts[entry])
    target.sort(key=lambda entry: -counts[entry])
    moved = 0
    while fills and source and len(target) < capacity:
        target.insert(0, source.pop(0))
        moved += 1
    while source and target and moved < capacity:
        if counts[source[0]] < counts[target[-1]] + (0 if swaps_ties else 1):
            return
        winner, loser = source.pop(0), target.pop()
        target.insert(0, winner)
        source.append(loser)
        moved += 1


class KeySpace:
    """Keys in three generations: babies by the thousand, some teenagers, a few old ones.

    Parameters
    ----------
    expected_keys
        Of these, 10 % can be old, 40 % teenagers, and 50 % babies that outlive a cycle.
    limit
        Entries at which the babies are cut to those 50 % between cycles; ``None``: there may be any number.
    fills, swaps_ties
        See :func:`promote`.
    keeps_widths
        Whether a forgotten key keeps its width.
    """

    def __init__(
        self, expected_keys: int, *, limit: int | None, fills: bool, swaps_ties: bool, keeps_widths: bool
    ) -> None:
        self.old, self.teenage = max(1, expected_keys // 10), max(1, expected_keys * 4 // 10)
        self.babies = max(1, expected_keys // 2)
        self.limit = limit
        self.fills = fills
        self.swaps_ties = swaps_ties
        self.keeps_widths = keeps_widths
        self.size = 0
        self.entries = self._empty(_FIRST_CAPACITY if limit is None else limit)

    @staticmethod
    def _empty(capacity: int) -> Entries:
        return Entries(
            *new_table(capacity),
            np.empty(capacity, dtype=np.int64),
            np.empty(capacity, dtype=np.int64),
            np.empty(capacity, dtype=np.int8),
            np.empty(capacity, dtype=np.int32),
            np.empty(capacity, dtype=np.float64),
        )

    def entry(self, key: int) -> int:
        """Number of a key's entry, or -1."""
        return int(get(self.entries.table_keys, self.entries.table_values, key))

    def width(self, key: int) -> int:
        """Number of workers that a key may go to."""
        entry = self.entry(key)
        return 2 if entry == EMPTY else int(self.entries.widths[entry])

    def make_room(self) -> None:
        """Cut the babies or, where there may be any number, double the room."""
        if self.limit is None:
            self._rebuild(np.arange(self.size), 2 * len(self.entries.keys))
        else:
            self._keep(self._of(OLD), self._of(TEENAGE), self._top_babies())

    def cycle(self, *, to_old: bool) -> None:
        """What the manager does every cycle: cut the babies, promote them, and at times the teenagers.

        Parameters
        ----------
        to_old
            Whether teenagers become old in this cycle.
        """
        old, teenage, babies = self._of(OLD), self._of(TEENAGE), self._top_babies()
        counts = self.entries.counts
        promote(babies, teenage, counts, self.teenage, fills=self.fills, swaps_ties=self.swaps_ties)
        if to_old:
            promote(teenage, old, counts, self.old, fills=self.fills, swaps_ties=self.swaps_ties)
        self._keep(old, teenage, babies)

    def decay(self, retention: float) -> None:
        """Multiply all counts, and forget the keys that have none left."""
        counts = self.entries.counts[: self.size]
        counts[:] = (counts * retention).astype(np.int64)
        self._rebuild(np.flatnonzero(counts > 0), len(self.entries.keys))

    def _of(self, generation: int) -> list[int]:
        return [int(entry) for entry in np.flatnonzero(self.entries.generations[: self.size] == generation)]

    def _top_babies(self) -> list[int]:
        """The babies of largest count, as many as outlive a cycle."""
        babies = np.flatnonzero(self.entries.generations[: self.size] == BABY)
        order = np.argsort(-self.entries.counts[babies], kind="stable")
        return [int(entry) for entry in babies[order[: self.babies]]]

    def _keep(self, old: list[int], teenage: list[int], babies: list[int]) -> None:
        """Make these the generations, in this order, and forget all others."""
        generations = self.entries.generations
        generations[: self.size] = FORGOTTEN
        for entries, generation in ((old, OLD), (teenage, TEENAGE), (babies, BABY)):
            generations[entries] = generation
        kept = np.array([*old, *teenage, *babies], dtype=np.int64)
        if self.keeps_widths:
            wide = self.entries.widths[: self.size] > 2
            kept = np.append(kept, np.flatnonzero((generations[: self.size] == FORGOTTEN) & wide))
        self._rebuild(kept, len(self.entries.keys))

    def _rebuild(self, kept: NDArray[np.int64], capacity: int) -> None:
        """Keep these entries, in this order."""
        if len(kept) == capacity:
            capacity *= 2
        before, self.entries = self.entries, self._empty(capacity)
        for name in ("keys", "counts", "generations", "widths", "checked"):
            getattr(self.entries, name)[: len(kept)] = getattr(before, name)[kept]
        self.size = len(kept)
        fill(self.entries.table_keys, self.entries.table_values, self.entries.keys[: self.size])

    @property
    def nbytes(self) -> int:
        """Memory held by the entries, in bytes."""
        return sum(array.nbytes for array in self.entries)
