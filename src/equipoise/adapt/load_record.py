"""The decayed record of what batches measured, which plans are made from.

A record books all load with the key and the tail group it belongs to, whatever plan the batch ran under, so it stays
valid when the plan changes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from equipoise.adapt.batch_loads import BatchLoads, Work
from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.framing import reading, require, seal, unseal
from equipoise.hashing import FINGERPRINT_SEED
from equipoise.plan import Costs, Plan
from equipoise.sketch import Histogram

LoadMeasure = Literal["auto", "seconds", "rows"]
"""What counts as load: see :class:`StreamLoadRecord`."""

LISTED_KEYS = 1024
"""Keys that a record lists at most, besides the isolated ones."""

_KIND, _FORMAT_VERSION = "measured-loads", 1
_NOISE = float(np.log(1.3))  # costs per row that differ by up to this factor are taken to be equal
_FLUCTUATIONS = 2.0  # or up to this many times the logarithm by which they usually change between batches
_WIDEST = 14.0  # natural logarithm of the largest relative cost that is told apart: about a million
_SIGNIFICANT_SECONDS = 0.05  # a batch of less work than this says nothing about the cost of a row
_SHIFT = 0.1  # part of the rows that must go to other groups than before, beyond chance, for the past to count nothing
_NEGLIGIBLE = 1e-6  # share of the load below which a key is not worth listing

_GROUP = np.dtype([("rows", "<f4"), ("load", "<f4"), ("cost", "<f4"), ("state", "<f4")])
_KEY = np.dtype([("key", "<i8"), ("load", "<f4"), ("cost", "<f4"), ("state", "<f4"), ("isolated", "u1")])

_Doubles = NDArray[np.float64]
_Table = NDArray[np.void]


class _Columns(NamedTuple):
    """Works as arrays, by ascending number; a state that was not measured is NaN."""

    numbers: NDArray[np.int64]
    rows: _Doubles
    seconds: _Doubles
    state: _Doubles


def _columns(works: Mapping[int, Work]) -> _Columns:
    numbers = np.array(sorted(works), dtype=np.int64)
    found = [works[number] for number in numbers.tolist()]
    table = np.array([(w.rows, w.seconds, np.nan if w.state is None else w.state) for w in found], dtype=np.float64)
    rows, seconds, state = table.reshape(-1, 3).T
    return _Columns(numbers, rows, seconds, state)


@dataclass(frozen=True, eq=False)
class _Record:
    """Decayed sums over the batches, and what was last known of costs and states.

    Parameters
    ----------
    batches, rows, seconds
        Decayed sums.
    squares
        Rows, each with the square of its weight.
    groups
        One line for each tail group: decayed rows and load with all keys; of the keys that are not told apart, the
        relative cost of a row when last seen (natural logarithm); state without the isolated keys.
    keys
        One line for each key that is told apart, by ascending fingerprint; the same, but a state may be NaN, unknown.
    """

    batches: float
    rows: float
    seconds: float
    squares: float
    groups: _Table
    keys: _Table


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """Payload; lines of ``groups`` and ``keys`` are packed as ``_GROUP`` and ``_KEY`` say, little-endian."""

    tail_groups: int
    load: str
    decay: float
    hash_seed: int
    batches: float
    rows: float
    seconds: float
    squares: float
    groups: bytes
    keys: bytes


class StreamLoadRecord:
    """Decayed record of what batches measured: the loads of groups and hot keys, and their last known state.

    What counts as load is one of three:

    - ``"rows"``: every row counts the same.
    - ``"seconds"``: time as it was measured, noise and pauses included.
    - ``"auto"``: rows, each weighted by the cost per row of its key or group relative to the usual one, the median
      over the rows of the batch. Only what two consecutive observations agree on is believed, so a pause of the machine
      is nobody's cost. A factor within 1.3, or within what costs usually fluctuate by, counts as 1, so noise makes no
      skew; from there on it counts more and more, and in full from the square of that. So a key that is truly slow
      shows in its second batch.

    Guarantees
    ----------
    - Where a batch has its rows in other groups than before, beyond chance, the past counts less, down to nothing when
      a tenth has moved: a new hot set is seen for what it is after one batch.
    - A record never changes; :meth:`add` makes the next one. Equal batches make equal records, also when stored and
      read in between.
    - The figures cover all keys of a group, isolated or not, and mean the same under every plan.
    - At most ``LISTED_KEYS`` keys and the isolated ones are listed.

    Parameters
    ----------
    tail_groups
        H, number of tail groups.
    load
        What counts as load.
    decay
        What is left of the weight of earlier batches when the next one, alike, comes in, in [0, 1).
    hash_seed
        Seed of the fingerprints.

    Examples
    --------
    >>> from equipoise.adapt import BatchLoads, Work
    >>> batch = BatchLoads(2, {0: Work(60, 0.06), 1: Work(40, 0.04)}, listed={4: Work(50, 0.05)})
    >>> loads = StreamLoadRecord(2).add(batch)
    >>> list(loads.histogram()), loads.costs().group_load.tolist()
    ([(4, 0.5)], [60.0, 40.0])
    """

    def __init__(
        self,
        tail_groups: int,
        *,
        load: LoadMeasure = "auto",
        decay: float = 0.5,
        hash_seed: int = FINGERPRINT_SEED,
    ) -> None:
        self.tail_groups = whole("tail_groups", tail_groups, 1)
        self.load = checked_measure(load)
        self.decay = checked_decay(decay)
        self.hash_seed = int(hash_seed)
        self._record = _Record(0.0, 0.0, 0.0, 0.0, np.zeros(self.tail_groups, _GROUP), np.empty(0, _KEY))

    @property
    def total(self) -> float:
        """Load on record."""
        return float(self._group_loads().sum())

    @property
    def effective_rows(self) -> float:
        """Number of rows, counted once each, that would say as much as the record does."""
        return _effective_rows(self._record)

    @property
    def batch_work(self) -> float:
        """Seconds that the tasks of a batch take together, on the decayed average."""
        return self._record.seconds / self._record.batches if self._record.batches else 0.0

    def add(self, batch: BatchLoads) -> "StreamLoadRecord":
        """Record with one batch more; one without load leaves the loads as they were."""
        if batch.tail_groups != self.tail_groups:
            raise MismatchError(
                f"the batch measured {batch.tail_groups} tail groups but the record has {self.tail_groups}; "
                "measure with the number of groups that the query began with"
            )
        past, count = self._record, self.tail_groups
        tail, single = _columns(batch.groups), _columns({**batch.isolated, **batch.listed})
        isolated = np.isin(single.numbers, list(batch.isolated))
        home = np.mod(single.numbers, count)
        keys = _spread(past.keys, np.union1d(past.keys["key"], single.numbers))
        at = np.searchsorted(keys["key"], single.numbers)
        rest_rows = self._rest(tail.numbers, tail.rows, home[~isolated], single.rows[~isolated])
        rest_seconds = self._rest(tail.numbers, tail.seconds, home[~isolated], single.seconds[~isolated])
        work, cost = self._work(
            np.concatenate([rest_rows, single.rows]),
            np.concatenate([rest_seconds, single.seconds]),
            np.concatenate([past.groups["cost"], keys["cost"][at]]).astype(np.float64),
        )
        group_rows = rest_rows + np.bincount(home, single.rows, count)
        counts = bool(work.sum() > 0)
        decay = self.decay * _agreement(past, group_rows) if counts else 1.0
        groups = past.groups.copy()
        groups["rows"] = decay * groups["rows"] + group_rows
        groups["load"] = decay * groups["load"] + work[:count] + np.bincount(home, work[count:], count)
        groups["cost"] = cost[:count]
        keys["load"] *= decay
        keys["load"][at] += work[count:]
        keys["cost"][at] = cost[count:]
        keys["state"][at] = np.where(np.isnan(single.state), keys["state"][at], single.state)
        groups["state"] += self._folded_back(keys, single.numbers[isolated])
        measured = ~np.isnan(tail.state)
        groups["state"][tail.numbers[measured]] = tail.state[measured]
        np.maximum(groups["state"], 0.0, out=groups["state"])
        keys["isolated"] = False
        keys["isolated"][at] = isolated
        following = StreamLoadRecord(count, load=self.load, decay=self.decay, hash_seed=self.hash_seed)
        following._record = _Record(
            decay * past.batches + counts,
            decay * past.rows + batch.rows,
            decay * past.seconds + batch.seconds,
            decay**2 * past.squares + batch.rows,
            groups,
            _worth_listing(keys, float(groups["load"].sum())),
        )
        return following

    def _rest(
        self, groups: NDArray[np.int64], amounts: _Doubles, home: NDArray[np.int64], listed: _Doubles
    ) -> _Doubles:
        """What each tail group took without its listed keys."""
        count = self.tail_groups
        rest = np.bincount(groups, amounts, count) - np.bincount(home, listed, count)
        return np.asarray(np.maximum(0.0, rest), dtype=np.float64)

    def _folded_back(self, keys: _Table, isolated: NDArray[np.int64]) -> _Doubles:
        """State that each tail group gains by keys no longer isolated, less what it loses by those that now are."""
        leaves = keys["isolated"].astype(np.int8) - np.isin(keys["key"], isolated).astype(np.int8)
        return self._by_group(keys, np.nan_to_num(keys["state"]) * leaves)

    def _by_group(self, keys: _Table, amounts: NDArray[Any]) -> _Doubles:
        """Sum of amounts of keys for each tail group."""
        return np.bincount(np.mod(keys["key"], self.tail_groups), amounts, self.tail_groups).astype(np.float64)

    def _work(self, rows: _Doubles, seconds: _Doubles, before: _Doubles) -> tuple[_Doubles, _Doubles]:
        """Load of each part of a batch, and its relative cost; ``before`` is the cost when it was last seen."""
        if self.load == "seconds":
            return seconds, before
        seen = rows > 0
        if self.load == "rows" or seconds[seen].sum() < _SIGNIFICANT_SECONDS:
            return rows, before
        cost = before.copy()
        cost[seen] = _relative_costs(rows[seen], seconds[seen])
        agreed = np.where(cost * before > 0, np.sign(cost) * np.minimum(np.abs(cost), np.abs(before)), 0.0)
        fluctuation = float(np.median(np.abs(cost - before)[seen]))
        noise = max(_NOISE, _FLUCTUATIONS * fluctuation)
        # nothing up to the noise, twice what exceeds it up to twice the noise, then all: without a jump anywhere
        believed = np.sign(agreed) * np.clip(2 * (np.abs(agreed) - noise), 0.0, np.abs(agreed))
        return rows * np.exp(believed), cost

    def _group_loads(self) -> _Doubles:
        """Load of each tail group with all its keys, which rounding makes no smaller than that of its listed ones."""
        listed = self._by_group(self._record.keys, self._record.keys["load"])
        return np.maximum(self._record.groups["load"].astype(np.float64), listed)

    def without(self, split: Iterable[int]) -> "StreamLoadRecord":
        """The record as if some keys had no load, which they do not have where they are reduced in pieces elsewhere."""
        gone = np.isin(self._record.keys["key"], list(split))
        groups, keys = self._record.groups.copy(), self._record.keys.copy()
        groups["load"] = np.maximum(0.0, self._group_loads() - self._by_group(keys, keys["load"] * gone))
        keys["load"][gone] = 0.0
        rest = StreamLoadRecord(self.tail_groups, load=self.load, decay=self.decay, hash_seed=self.hash_seed)
        total = self.total
        left = float(groups["load"].sum()) / total if total else 1.0
        past = self._record
        rest._record = replace(
            past,
            rows=left * past.rows,
            seconds=left * past.seconds,
            squares=left * past.squares,
            groups=groups,
            keys=keys,
        )
        return rest

    def histogram(self) -> Histogram:
        """Shares of the keys that are told apart; any other has at most what they leave of its group."""
        keys, group_load = self._record.keys, self._group_loads()
        total = float(group_load.sum())
        if total == 0:
            return Histogram([], [], total=0.0, hash_seed=self.hash_seed)
        unlisted = float((group_load - self._by_group(keys, keys["load"])).max()) / total
        busy = keys[keys["load"] > 0]
        return Histogram(
            busy["key"],
            busy["load"].astype(np.float64) / total,
            error=unlisted,  # a key may have gone unlisted in some of the batches
            unlisted=unlisted,
            total=total,
            hash_seed=self.hash_seed,
        )

    def costs(self) -> Costs:
        """Load and state of every tail group with all its keys, and the known states of single keys."""
        keys = self._record.keys
        known = keys[~np.isnan(keys["state"])]
        group_state = self._record.groups["state"] + self._by_group(known, known["state"] * known["isolated"])
        key_state = dict(zip(known["key"].tolist(), known["state"].tolist(), strict=True))
        return Costs(group_load=self._group_loads(), group_state=group_state, key_state=key_state)

    def state_bytes(self, plan: Plan) -> list[int]:
        """Last known bytes of the state of each partition, under the plan that was in force when they were measured."""
        apart = self._record.keys[self._record.keys["isolated"].astype(np.bool_)]
        amounts = np.bincount(plan.tail, self._record.groups["state"], plan.partitions)
        amounts += np.bincount(plan.assign(apart["key"]), np.nan_to_num(apart["state"]), plan.partitions)
        return [int(amount) for amount in amounts]

    def to_bytes(self) -> bytes:
        """Stored form; its fields are those of ``_Stored``."""
        record = self._record
        stored = _Stored(
            tail_groups=self.tail_groups,
            load=self.load,
            decay=self.decay,
            hash_seed=self.hash_seed,
            batches=record.batches,
            rows=record.rows,
            seconds=record.seconds,
            squares=record.squares,
            groups=record.groups.tobytes(),
            keys=record.keys.tobytes(),
        )
        return seal(_KIND, _FORMAT_VERSION, stored)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read what ``to_bytes`` wrote."""
        with reading(_KIND):
            stored = msgspec.convert(unseal(_KIND, _FORMAT_VERSION, data), _Stored)
            measure = checked_measure(stored.load)
            loads = cls(stored.tail_groups, load=measure, decay=stored.decay, hash_seed=stored.hash_seed)
            groups, keys = np.frombuffer(stored.groups, _GROUP), np.frombuffer(stored.keys, _KEY)
            _check(stored, groups, keys)
            loads._record = _Record(stored.batches, stored.rows, stored.seconds, stored.squares, groups, keys)
            return loads


def checked_measure(load: object) -> LoadMeasure:
    """``load`` if it is a measure of load."""
    for measure in get_args(LoadMeasure):
        if load == measure:
            return measure  # type: ignore[no-any-return]  # get_args() forgets the type
    raise InvalidArgumentError(f"load must be one of {', '.join(get_args(LoadMeasure))}, got {load!r}")


def checked_decay(decay: float) -> float:
    """``decay`` if it is a weight of the past."""
    if not at_least("decay", decay, 0) < 1:
        raise InvalidArgumentError(f"decay is the weight that is left of the past, in [0, 1), got {decay}")
    return float(decay)


def _relative_costs(rows: _Doubles, seconds: _Doubles) -> _Doubles:
    """Natural logarithm of each part's cost per row over the usual one, the median over all rows."""
    cost = seconds / rows
    order = np.argsort(cost, kind="stable")
    passed = np.cumsum(rows[order])
    usual = cost[order[np.searchsorted(passed, passed[-1] / 2)]]
    if usual == 0:  # most rows took no time that the clock can tell
        return np.zeros(len(rows))
    relative = np.log(np.maximum(cost, np.finfo(float).tiny)) - np.log(usual)
    return np.asarray(np.clip(relative, -_WIDEST, _WIDEST), dtype=np.float64)


def _effective_rows(record: _Record) -> float:
    return record.rows**2 / record.squares if record.squares else 0.0


def _agreement(past: _Record, group_rows: _Doubles) -> float:
    """What the past still says about a batch: 1 if its rows fall into groups as before, 0 if a good part does not.

    The part that falls elsewhere is the total variation distance. Chance alone makes it, on average, at most half the
    sum of the standard deviations of the groups' shares.
    """
    before = past.groups["rows"].astype(np.float64)
    rows, rows_before, effective = float(group_rows.sum()), float(before.sum()), _effective_rows(past)
    if min(rows, rows_before, effective) == 0:
        return 1.0
    elsewhere = np.abs(group_rows / rows - before / rows_before).sum() / 2
    shares = (before + group_rows) / (rows_before + rows)
    chance = np.sqrt(shares * (1 / rows + 1 / effective)).sum() / 2
    return float(np.clip(1 - (elsewhere - chance) / _SHIFT, 0.0, 1.0))


def _spread(keys: _Table, numbers: NDArray[np.int64]) -> _Table:
    """Keys among others, of which nothing is known; ``numbers`` are sorted and hold all of the keys."""
    wider = np.zeros(len(numbers), _KEY)
    wider["key"], wider["state"] = numbers, np.nan
    wider[np.searchsorted(numbers, keys["key"])] = keys
    return wider


def _worth_listing(keys: _Table, total: float) -> _Table:
    """The isolated keys, and of the others the hottest."""
    keep = keys["isolated"].astype(np.bool_)
    others = np.flatnonzero(~keep & (keys["load"] > _NEGLIGIBLE * total))
    keep[others[np.argsort(-keys["load"][others], kind="stable")[:LISTED_KEYS]]] = True
    return keys[keep]


def _check(stored: _Stored, groups: _Table, keys: _Table) -> None:
    """Refuse a record that no batches lead to."""
    require(_KIND, len(groups) == stored.tail_groups, f"it has {len(groups)} of {stored.tail_groups} tail groups")
    require(_KIND, bool(np.all(keys["key"][:-1] < keys["key"][1:])), "its keys are not in order")
    require(_KIND, bool(np.all(keys["isolated"] <= 1)), "a key is neither isolated nor not")
    amounts = [np.array([stored.batches, stored.rows, stored.seconds, stored.squares])]
    amounts += [groups[name] for name in ("rows", "load", "state")]
    amounts += [keys["load"], keys["state"][~np.isnan(keys["state"])]]
    sound = all(bool(np.all(np.isfinite(each) & (each >= 0))) for each in amounts)
    require(_KIND, sound, "an amount is no finite number of at least 0")
    costs = np.concatenate([groups["cost"], keys["cost"]])
    require(_KIND, bool(np.all(np.abs(costs) <= _WIDEST)), "a relative cost is out of range")
