"""Measure the load of a task: exact sums for its key groups, and its hottest keys."""

import numpy as np
from numpy.typing import NDArray

from equipoise.spark.stream.batch_spec import GroupLoad, Manifest

LISTED = 64
"""Number of hottest keys that a task reports by rows, and by seconds."""


class LoadMeter:
    """Adds up rows and seconds over the runs of a task.

    Parameters
    ----------
    groups
        Number of key groups of the plan.
    tail_groups
        Number of those that are tail groups; the others are isolated keys, which are not listed.
    """

    def __init__(self, groups: int, tail_groups: int) -> None:
        self._rows = np.zeros(groups, dtype=np.int64)
        self._seconds = np.zeros(groups)
        self._tail_groups = tail_groups
        self._elsewhere_rows, self._elsewhere_seconds = 0, 0.0
        self._keys: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._key_rows: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._key_seconds: NDArray[np.float64] = np.empty(0)

    def add(
        self,
        groups: NDArray[np.int64],
        fingerprints: NDArray[np.int64],
        rows: NDArray[np.int64],
        seconds: NDArray[np.float64],
    ) -> None:
        """Add runs: group, fingerprint, rows and seconds of each."""
        np.add.at(self._rows, groups, rows)
        np.add.at(self._seconds, groups, seconds)
        tail = groups < self._tail_groups
        keys, inverse = np.unique(np.concatenate([self._keys, fingerprints[tail]]), return_inverse=True)
        key_rows: NDArray[np.int64] = np.bincount(
            inverse, np.concatenate([self._key_rows, rows[tail]]), len(keys)
        ).astype(np.int64)
        key_seconds = np.bincount(inverse, np.concatenate([self._key_seconds, seconds[tail]]), len(keys)).astype(
            np.float64
        )
        kept = np.union1d(_largest(key_rows), _largest(key_seconds))
        self._keys, self._key_rows, self._key_seconds = keys[kept], key_rows[kept], key_seconds[kept]

    def add_elsewhere(self, rows: int, seconds: float) -> None:
        """Add the rows and seconds of split keys that other tasks have worked off; ``add`` includes them."""
        self._elsewhere_rows += rows
        self._elsewhere_seconds += seconds

    def add_seconds(self, group: int, seconds: float) -> None:
        """Add time that a key group took without rows."""
        self._seconds[group] += seconds

    def load(self, group: int, state: int | None) -> GroupLoad:
        """Return the load of a key group."""
        return GroupLoad(int(self._rows[group]), float(self._seconds[group]), state)

    def report(self, manifest: Manifest) -> None:
        """Write the hottest keys and the sum of rows into a manifest."""
        manifest.hot_keys = self._keys.tolist()
        manifest.hot_rows = self._key_rows.tolist()
        manifest.hot_seconds = self._key_seconds.tolist()
        manifest.rows = int(self._rows.sum())
        manifest.elsewhere_rows, manifest.elsewhere_seconds = self._elsewhere_rows, self._elsewhere_seconds


def _largest(values: NDArray[np.generic]) -> NDArray[np.int64]:
    if len(values) <= LISTED:
        return np.arange(len(values))
    return np.argpartition(values, len(values) - LISTED)[-LISTED:]
