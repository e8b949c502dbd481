"""Types of joins, and the work that each key of a join causes: rows read and rows produced."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equipoise.errors import InvalidArgumentError
from equipoise.sketch import Histogram
from equipoise.spark.batch.key_loads import KeyLoads
from equipoise.spark.batch.sample import Sample
from equipoise.split.shards import shard_fingerprints

_HASH_OF_NULL = 42  # the seed of Spark's hash, which NULL leaves unchanged
_SURE = 5  # sampled rows from which the size of a key is trusted


@dataclass(frozen=True)
class JoinType:
    """A type of join: the sides that may be split, that keep rows with NULL keys, and that may be broadcast."""

    name: str
    splits: tuple[int, ...]
    keeps_null: tuple[int, ...]
    broadcasts: tuple[int, ...]
    pairs: bool = True  # whether every pair of matching rows comes out


LEFT, RIGHT = 0, 1
SIDES = ("left", "right")
JOIN_TYPES = {
    "inner": JoinType("inner", (LEFT, RIGHT), (), (RIGHT, LEFT)),
    "left": JoinType("left", (LEFT,), (LEFT,), (RIGHT,)),
    "right": JoinType("right", (RIGHT,), (RIGHT,), (LEFT,)),
    "semi": JoinType("semi", (LEFT,), (), (RIGHT,), pairs=False),
    "anti": JoinType("anti", (LEFT,), (LEFT,), (RIGHT,), pairs=False),
}
"""Types of joins that can be split, by name."""

_OTHER_NAMES = {"outer": "full", "fullouter": "full", "leftouter": "left", "rightouter": "right", "leftsemi": "semi"}
_OTHER_NAMES |= {"leftanti": "anti"}


def join_type(how: str) -> JoinType:
    """Return a type of join by any of Spark's names for it."""
    name = str(how).lower().replace("_", "")
    name = _OTHER_NAMES.get(name, name)
    if name == "full":
        raise InvalidArgumentError(
            "a full outer join cannot be split: whichever side is repeated, its unmatched rows would come out several "
            "times; use Spark's own join, or a left join and an anti join"
        )
    if name not in JOIN_TYPES:
        raise InvalidArgumentError(
            f"how must be one of {', '.join(JOIN_TYPES)}, got {how!r}; use Spark's own join for others"
        )
    return JOIN_TYPES[name]


@dataclass(frozen=True, eq=False)
class SampledSide:
    """Sampled keys of one side, with the estimated number of rows of each."""

    sample: Sample
    keys: NDArray[np.int64]
    rows: NDArray[np.float64]
    hits: NDArray[np.int64]
    nulls: int

    @classmethod
    def of_sample(cls, sample: Sample) -> "SampledSide":
        """Count the keys of a sample."""
        known, nulls = sample.without_nulls()
        keys, inverse, hits = np.unique(known.fingerprints, return_inverse=True, return_counts=True)
        rows = np.bincount(inverse, known.loads, len(keys)).astype(np.float64)
        return cls(known, keys, rows, hits, nulls)

    def of(self, keys: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the rows of some keys, and whether enough of them were sampled to trust the number."""
        at = np.minimum(np.searchsorted(self.keys, keys), max(len(self.keys) - 1, 0))
        found = self.keys[at] == keys if len(self.keys) else np.zeros(len(keys), dtype=bool)
        rows = np.where(found, self.rows[at], 0.0) if len(self.keys) else np.zeros(len(keys))
        hits = np.where(found, self.hits[at], 0) if len(self.keys) else np.zeros(len(keys), dtype=np.int64)
        return rows, (hits >= _SURE) | self.sample.is_complete


@dataclass(frozen=True, eq=False)
class JoinSizes:
    """Work of each key: rows that are read and rows that are produced.

    Parameters
    ----------
    keys
        All sampled keys, sorted.
    shared, repeated
        Work that the shards of a key share, and work that each of them has: the rows of the side that is repeated.
    sides
        Side on which each key would be split.
    hashes
        Spark's own hash of each key.
    nulls
        Rows with NULL keys that the join keeps.
    """

    keys: NDArray[np.int64]
    shared: NDArray[np.float64]
    repeated: NDArray[np.float64]
    sides: NDArray[np.int64]
    hashes: NDArray[np.int64]
    nulls: float

    @classmethod
    def of(cls, kind: JoinType, left: SampledSide, right: SampledSide) -> "JoinSizes":
        """Combine the samples of two sides."""
        both = (left, right)
        keys = np.union1d(left.keys, right.keys)
        (here, sure_here), (there, sure_there) = left.of(keys), right.of(keys)
        out = np.where(sure_here & sure_there, here * there, np.maximum(here, there)) if kind.pairs else here
        larger = np.where(there > here, RIGHT, LEFT)
        side = larger if len(kind.splits) == 2 else np.full(len(keys), kind.splits[0])
        hashes = np.zeros(len(keys), dtype=np.int64)
        for each in both:
            hashes[np.searchsorted(keys, each.sample.fingerprints)] = each.sample.hashes
        return cls(
            keys,
            shared=np.where(side == LEFT, here, there) + out,
            repeated=np.where(side == LEFT, there, here),
            sides=side,
            hashes=hashes,
            nulls=float(sum(both[each].nulls for each in kind.keeps_null)),
        )

    @property
    def work(self) -> NDArray[np.float64]:
        """Work of each whole key."""
        return self.shared + self.repeated

    @property
    def hottest(self) -> float:
        """Share of the work of the hottest key."""
        return float(self.work.max() / max(self.work.sum(), 1.0)) if len(self.keys) else 0.0

    def side_of(self, key: int) -> int:
        """Return the side on which a key is split."""
        return int(self.sides[np.searchsorted(self.keys, key)])

    def loads(self, widths: Mapping[int, int]) -> KeyLoads:
        """Return the loads with some keys in shards; each shard has all rows of the side that is repeated."""
        split = np.isin(self.keys, list(widths))
        keys, work = [self.keys[~split]], [self.work[~split]]
        for key, shared, repeated in zip(
            self.keys[split].tolist(), self.shared[split], self.repeated[split], strict=True
        ):
            keys.append(shard_fingerprints(key, widths[key]))
            work.append(np.full(widths[key], shared / widths[key] + repeated))
        every, load = np.concatenate(keys), np.concatenate(work)
        total = float(load.sum())
        if total == 0:
            return KeyLoads.of(Histogram([], [], total=0.0), every, load, 0, 0.0)
        return KeyLoads.of(Histogram(every, load / total, unlisted=0.0, total=total), every, load, len(every), total)

    def plain_loads(self, partitions: int) -> NDArray[np.float64]:
        """Return the load of each partition under Spark's hash, as a share of all work; NULLs are all in one."""
        loads = np.bincount(np.mod(self.hashes, partitions), self.work, partitions).astype(np.float64)
        loads[_HASH_OF_NULL % partitions] += self.nulls
        return np.asarray(loads / max(self.work.sum() + self.nulls, 1.0), dtype=np.float64)

    def with_nulls(self, loads: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return loads, given as shares of the work of keys, as shares of all work with NULLs spread evenly."""
        work = float(self.work.sum())
        return np.asarray((loads * work + self.nulls / len(loads)) / max(work + self.nulls, 1.0), dtype=np.float64)
