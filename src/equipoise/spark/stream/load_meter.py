"""Measure the load of a task: exact sums for its key groups, and its hottest keys."""

import numpy as np
from numpy.typing import NDArray

from equipoise.spark.stream.batch_spec import GroupLoad, Manifest

LISTED = 64
"""Number of hottest keys that a task reports by rows, by rows received, and by seconds."""


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
        self._sums = np.zeros((3, groups))  # rows, seconds, rows received
        self._tail_groups = tail_groups
        self._combined = self._buffers = self._runs = 0
        self._keys: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._key_sums = np.empty((3, 0))

    def add(
        self,
        groups: NDArray[np.int64],
        fingerprints: NDArray[np.int64],
        rows: NDArray[np.int64],
        seconds: NDArray[np.float64],
        received: NDArray[np.int64] | None = None,
    ) -> None:
        """Add runs: group, fingerprint, rows, seconds and rows received of each; default: no row was combined."""
        amounts = np.stack([rows, seconds, rows if received is None else received]).astype(np.float64)
        for sums, each in zip(self._sums, amounts, strict=True):
            np.add.at(sums, groups, each)
        self._runs += len(groups)
        tail = groups < self._tail_groups
        keys, inverse = np.unique(np.concatenate([self._keys, fingerprints[tail]]), return_inverse=True)
        together = np.concatenate([self._key_sums, amounts[:, tail]], axis=1)
        sums = np.stack([np.bincount(inverse, each, len(keys)) for each in together])
        kept = np.unique(np.concatenate([_largest(each) for each in sums]))
        self._keys, self._key_sums = keys[kept], sums[:, kept]

    def add_combined(self, rows: int, buffers: int) -> None:
        """Add rows that map tasks have reduced, and the partial buffers they have become; ``add`` includes them."""
        self._combined += rows
        self._buffers += buffers

    def add_seconds(self, group: int, seconds: float) -> None:
        """Add time that a key group took without rows."""
        self._sums[1, group] += seconds

    def load(self, group: int, state: int | None) -> GroupLoad:
        """Return the load of a key group."""
        rows, seconds, received = self._sums[:, group].tolist()
        return GroupLoad(int(rows), seconds, state, int(received))

    def report(self, manifest: Manifest) -> None:
        """Write the hottest keys and the sums of rows into a manifest."""
        manifest.hot_keys = self._keys.tolist()
        manifest.hot_rows = self._key_sums[0].astype(np.int64).tolist()
        manifest.hot_seconds = self._key_sums[1].tolist()
        manifest.hot_received = self._key_sums[2].astype(np.int64).tolist()
        manifest.rows = int(self._sums[0].sum())
        manifest.combined_rows, manifest.buffers, manifest.keys = self._combined, self._buffers, self._runs


def _largest(values: NDArray[np.float64]) -> NDArray[np.int64]:
    if len(values) <= LISTED:
        return np.arange(len(values))
    return np.argpartition(values, len(values) - LISTED)[-LISTED:]
