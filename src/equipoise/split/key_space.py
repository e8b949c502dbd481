"""Key space of DKG: three generations of keys, of which only the oldest may get more workers."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise.fingerprint_table import EMPTY, fill, get, new_table
from equipoise.kernels import kernel

BABY, TEENAGE, OLD, FORGOTTEN = 0, 1, 2, 3
"""Generations. A forgotten key is kept only if its width must be kept."""

NEVER = -np.inf

_FIRST_CAPACITY = 1024


class Entries(NamedTuple):
    """Entries of the keys, and the hash table from a key to the number of its entry."""

    table_keys: NDArray[np.int64]
    table_values: NDArray[np.int32]
    keys: NDArray[np.int64]
    counts: NDArray[np.int64]
    generations: NDArray[np.int8]
    widths: NDArray[np.int32]  # number of workers that the key may go to
    checked: NDArray[np.float64]  # time of the last check of the width


@kernel(inline="always")
def append(entries: Any, size: int, slot: int, key: int) -> None:
    """Add a new key as a baby, in a given free slot of the table."""
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
    """Promote the keys of largest count by one generation, in exchange for the smallest there (algorithm 3).

    Parameters
    ----------
    source, target
        Entries of the younger and of the older generation; both are sorted by decreasing count and changed.
    counts
        Count of each entry.
    capacity
        Number of keys in the older generation.
    fills
        Whether an older generation with room is filled, as in the authors' code.
    swaps_ties
        Whether keys of equal counts are swapped, as printed.
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
    """Keys in three generations: many babies, some teenagers, a few old ones.

    Parameters
    ----------
    expected_keys
        Expected number of keys. 10 % of it can be old, 40 % teenagers, and 50 % babies that survive a cycle.
    limit
        Number of entries at which babies are cut to those 50 % between cycles; ``None``: no limit.
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
        """Return the number of a key's entry, or -1."""
        return int(get(self.entries.table_keys, self.entries.table_values, key))

    def width(self, key: int) -> int:
        """Return the number of workers that a key may go to."""
        entry = self.entry(key)
        return 2 if entry == EMPTY else int(self.entries.widths[entry])

    def make_room(self) -> None:
        """Drop babies or, without a limit, double the room."""
        if self.limit is None:
            self._rebuild(np.arange(self.size), 2 * len(self.entries.keys))
        else:
            self._keep(self._of(OLD), self._of(TEENAGE), self._top_babies())

    def cycle(self, *, to_old: bool) -> None:
        """Run a cycle: drop babies, promote babies, and in some cycles promote teenagers.

        Parameters
        ----------
        to_old
            Whether teenagers are promoted in this cycle.
        """
        old, teenage, babies = self._of(OLD), self._of(TEENAGE), self._top_babies()
        counts = self.entries.counts
        promote(babies, teenage, counts, self.teenage, fills=self.fills, swaps_ties=self.swaps_ties)
        if to_old:
            promote(teenage, old, counts, self.old, fills=self.fills, swaps_ties=self.swaps_ties)
        self._keep(old, teenage, babies)

    def decay(self, retention: float) -> None:
        """Multiply all counts by ``retention``, and drop keys whose count becomes 0."""
        counts = self.entries.counts[: self.size]
        counts[:] = (counts * retention).astype(np.int64)
        self._rebuild(np.flatnonzero(counts > 0), len(self.entries.keys))

    def _of(self, generation: int) -> list[int]:
        return [int(entry) for entry in np.flatnonzero(self.entries.generations[: self.size] == generation)]

    def _top_babies(self) -> list[int]:
        """Return the babies of largest count that survive a cycle."""
        babies = np.flatnonzero(self.entries.generations[: self.size] == BABY)
        order = np.argsort(-self.entries.counts[babies], kind="stable")
        return [int(entry) for entry in babies[order[: self.babies]]]

    def _keep(self, old: list[int], teenage: list[int], babies: list[int]) -> None:
        """Set the three generations, and forget all other keys."""
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
        """Keep only the given entries, in the given order."""
        if len(kept) == capacity:
            capacity *= 2
        before, self.entries = self.entries, self._empty(capacity)
        for name in ("keys", "counts", "generations", "widths", "checked"):
            getattr(self.entries, name)[: len(kept)] = getattr(before, name)[kept]
        self.size = len(kept)
        fill(self.entries.table_keys, self.entries.table_values, self.entries.keys[: self.size])

    @property
    def nbytes(self) -> int:
        """Memory of the entries, in bytes."""
        return sum(array.nbytes for array in self.entries)
