"""Load of a key: the hottest keys, and fine tail groups that fold to those of any plan."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from equipoise.errors import DamagedError
from equipoise.framing import pack_array, seal, unpack_array, unseal
from equipoise.plan import Costs, Plan, Planner, uniform_plan
from equipoise.plan.cost import price
from equipoise.plan.planner import default_tail_groups
from equipoise.sketch import Histogram
from equipoise.split.shards import in_shards, shard_fingerprints

FINE_GROUPS = 1 << 16
"""Number of tail groups kept. The number of groups of a plan is a power of two, so these fold by addition."""

LISTED = 4096
"""Number of hottest keys kept; the load of the others is in the groups."""

_KIND, _FORMAT_VERSION = "key-loads", 1


@dataclass(frozen=True, eq=False)
class KeyLoads:
    """Load of a key, sampled or recorded over earlier runs.

    Stored form, inside the envelope of ``equipoise.framing``, kind ``key-loads``, format 1: a list of fingerprints
    (int64), shares (float64), error, unlisted, total, group loads (float64, ``FINE_GROUPS`` of them), rows, load.

    Parameters
    ----------
    histogram
        The hottest keys.
    group_load
        Share of the load in each of ``FINE_GROUPS`` tail groups.
    rows
        Number of rows of the data.
    load
        Weight of all rows of the data.
    """

    histogram: Histogram
    group_load: NDArray[np.float64]
    rows: int
    load: float

    @classmethod
    def of(
        cls, histogram: Histogram, keys: NDArray[np.int64], loads: NDArray[np.float64], rows: int, load: float
    ) -> Self:
        """Make loads from a histogram and the rows behind it."""
        groups = np.bincount(np.mod(keys, FINE_GROUPS), loads, FINE_GROUPS)
        return cls(histogram.top(LISTED), groups / max(groups.sum(), np.finfo(float).tiny), rows, load)

    def costs(self, groups: int) -> Costs:
        """Return the load of each tail group of a plan with ``groups`` of them."""
        if groups > FINE_GROUPS or FINE_GROUPS % groups:
            return Costs()
        return Costs(group_load=self.group_load.reshape(-1, groups).sum(axis=0))

    def plan(self, partitions: int, planner: Planner) -> Plan:
        """Return a plan for these loads, made from plain hash."""
        first = hash_over_fine_groups(partitions)
        return planner.plan(first, self.histogram, costs=self.costs(first.tail_groups))

    def predicted(self, plan: Plan) -> NDArray[np.float64]:
        """Return the share of the load in each partition under a plan."""
        return price(self.histogram, plan.tail_groups, self.costs(plan.tail_groups)).loads(plan)

    def in_shards(self, widths: Mapping[int, int]) -> "KeyLoads":
        """Return these loads with some keys in shards; ``widths`` has the number of shards by fingerprint."""
        groups = self.group_load.copy()
        for key, share in self.histogram:
            if widths.get(key, 1) == 1:
                continue
            shards = shard_fingerprints(key, widths[key])
            groups[key % FINE_GROUPS] -= share
            np.add.at(groups, np.mod(shards, FINE_GROUPS), share / len(shards))
        return KeyLoads(in_shards(self.histogram, widths), np.maximum(groups, 0.0), self.rows, self.load)

    @property
    def hottest(self) -> float:
        """Share of the hottest key."""
        return float(self.histogram.shares[0]) if len(self.histogram) else 0.0

    def blend(self, newer: "KeyLoads", weight: float = 0.5) -> "KeyLoads":
        """Return a decayed average: ``weight`` of these loads, the rest of the newer; counts are the newer ones."""
        return KeyLoads(
            self.histogram.blend(newer.histogram, weight).top(LISTED),
            weight * self.group_load + (1 - weight) * newer.group_load,
            newer.rows,
            newer.load,
        )

    def to_bytes(self) -> bytes:
        """Return the stored form."""
        histogram = self.histogram
        payload = [
            pack_array(histogram.fingerprints),
            pack_array(histogram.shares),
            histogram.error,
            histogram.unlisted,
            histogram.total,
            pack_array(self.group_load),
            self.rows,
            self.load,
        ]
        return seal(_KIND, _FORMAT_VERSION, payload)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what ``to_bytes`` wrote."""
        keys, shares, error, unlisted, total, groups, rows, load = unseal(_KIND, _FORMAT_VERSION, data)
        group_load = unpack_array(groups, np.float64)
        if len(group_load) != FINE_GROUPS:
            raise DamagedError(
                f"stored {_KIND} has {len(group_load)} groups instead of {FINE_GROUPS}; delete it to record again"
            )
        histogram = Histogram(
            unpack_array(keys, np.int64), unpack_array(shares, np.float64), error=error, unlisted=unlisted, total=total
        )
        return cls(histogram, group_load, rows, load)


def hash_over_fine_groups(partitions: int) -> Plan:
    """Return plain hash over tail groups that the fine groups fold to."""
    groups = min(default_tail_groups(partitions), FINE_GROUPS) if partitions <= FINE_GROUPS else None
    return uniform_plan(partitions, groups)
