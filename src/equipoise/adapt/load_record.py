"""Load record of a stream: decayed averages of the measured loads, from which plans are made.

A record stores load by key and tail group, whatever the plan of the batch, so it stays valid when the plan changes.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, Self, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from equipoise.adapt.batch_loads import BatchLoads
from equipoise.adapt.look import Look
from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.framing import reading, require, seal, unseal
from equipoise.hashing import FINGERPRINT_SEED
from equipoise.metrics import load_imbalance, lower_bound
from equipoise.plan import Costs, Plan
from equipoise.plan.cost import price
from equipoise.sketch import Histogram

LoadMeasure = Literal["auto", "seconds", "rows"]
"""Measure of load: see :class:`StreamLoadRecord`."""

LISTED_KEYS = 1024
"""Largest number of keys in a record, besides the isolated ones."""

_KIND, _FORMAT_VERSION = "stream-load-record", 2
_NOISE = float(np.log(1.3))  # costs per row within this factor count as equal
_FLUCTUATIONS = 2.0  # or within this multiple of their usual change between batches, as a logarithm
_WIDEST = 14.0  # natural logarithm of the largest relative cost: about a million
_SIGNIFICANT_SECONDS = 0.05  # shorter batches do not show the cost of a row
_SHIFT = 0.1  # fraction of rows in other groups than before, beyond chance, at which the past is discarded
_NEGLIGIBLE = 1e-6  # share of the load below which a key is not worth listing

_GROUP = np.dtype([("rows", "<f4"), ("load", "<f4"), ("cost", "<f4"), ("weight", "<f4"), ("state", "<f4")])
_KEY = np.dtype(
    [("key", "<i8"), ("load", "<f4"), ("cost", "<f4"), ("weight", "<f4"), ("state", "<f4"), ("isolated", "u1")]
)

_Doubles = NDArray[np.float64]
_Table = NDArray[np.void]


@dataclass(frozen=True, eq=False)
class _Record:
    """Decayed sums over the batches, and the last known costs and states.

    Parameters
    ----------
    batches, rows, seconds
        Decayed sums.
    squares
        Sum of the squared weights of the rows.
    groups
        One record for each tail group: decayed rows and load of all its keys; last known relative cost of a row of the
        unlisted keys, as a natural logarithm; last known load of one of these rows, 0 where there was none; state
        without the isolated keys.
    keys
        One record for each listed key, by ascending fingerprint, with the same fields; an unknown state is NaN.
    """

    batches: float
    rows: float
    seconds: float
    squares: float
    groups: _Table
    keys: _Table


class _Stored(msgspec.Struct, forbid_unknown_fields=True):
    """Payload; ``groups`` and ``keys`` are packed arrays of ``_GROUP`` and ``_KEY``, little-endian."""

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
    """Decayed record of measured loads: loads of tail groups and hot keys, and their last known state.

    Load is measured in one of three ways:

    - ``"rows"``: every row counts the same.
    - ``"seconds"``: measured time, noise and pauses included.
    - ``"auto"``: rows, weighted by their relative cost, which is the cost per row of the key or group divided by the
      median over the rows of the batch. Of two consecutive measurements the one closer to 1 counts, or 1 if they lie
      on different sides of it, so that a pause of the machine has no effect. A factor within 1.3, or within the usual
      fluctuation of costs, counts as 1, so that noise does not appear as skew. Above, it counts increasingly, and fully
      from the square of that factor. So a slow key is recognised in its second batch.

    Guarantees
    ----------
    - If the rows of a batch fall into other groups than before, beyond chance, the past counts less, and not at all if
      a tenth of the rows has moved. So new hot keys are recognised after one batch.
    - A record never changes; :meth:`add` returns the next one. Equal batches make equal records, also if a record is
      stored and read in between.
    - Loads of a group cover all its keys, isolated or not, and mean the same under every plan.
    - At most ``LISTED_KEYS`` keys are listed, besides the isolated ones.

    Parameters
    ----------
    tail_groups
        H, number of tail groups.
    load
        Measure of load.
    decay
        Factor by which the weight of earlier batches falls with every batch of similar load, in [0, 1).
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
        """Total load of the record."""
        return float(self._group_loads().sum())

    @property
    def effective_rows(self) -> float:
        """Number of unweighted rows with the same statistical weight as the record."""
        return _effective_rows(self._record)

    @property
    def batch_work(self) -> float:
        """Sum of the times of the tasks of a batch in seconds, as a decayed average."""
        return self._record.seconds / self._record.batches if self._record.batches else 0.0

    def add(self, batch: BatchLoads, *, alone: bool = False) -> "StreamLoadRecord":
        """Return the record with one more batch; a batch without load does not change the loads.

        Parameters
        ----------
        batch
            Measured loads.
        alone
            Whether the loads of the batches before are dropped. Costs and states on record are kept.
        """
        if batch.tail_groups != self.tail_groups:
            raise MismatchError(
                f"the batch measured {batch.tail_groups} tail groups but the record has {self.tail_groups}; "
                "measure with the number of groups of the query's first plan"
            )
        past, count = self._record, self.tail_groups
        tail, single = batch.tail, batch.single
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
        decay = 0.0 if alone else self.decay * _agreement(past, group_rows) if counts else 1.0
        groups = past.groups.copy()
        groups["rows"] = decay * groups["rows"] + group_rows
        groups["load"] = decay * groups["load"] + work[:count] + np.bincount(home, work[count:], count)
        groups["cost"] = cost[:count]
        weight = _weights(np.concatenate([rest_rows, single.rows]), work)
        groups["weight"] = np.where(rest_rows > 0, weight[:count], groups["weight"])
        keys["weight"][at] = np.where(single.rows > 0, weight[count:], keys["weight"][at])
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

    def seen(self, look: Look) -> "StreamLoadRecord":
        """Return the record of a batch by rows that were seen before it ran.

        The rows replace all loads on record. Each counts as much as a row of its key, or else of its tail group, has
        last cost. States are kept.
        """
        past, count = self._record, self.tail_groups
        home = np.mod(look.fingerprints, count)
        usual = past.groups["weight"].astype(np.float64)
        usual[usual == 0] = self._usual_weight()
        weight = usual[home]
        known = np.searchsorted(past.keys["key"], look.fingerprints)
        listed = np.isin(look.fingerprints, past.keys["key"])
        own = past.keys["weight"][known[listed]].astype(np.float64)
        weight[listed] = np.where(own > 0, own, weight[listed])
        rows = look.counts
        groups = past.groups.copy()
        groups["rows"] = np.bincount(home, rows, count)
        groups["load"] = np.bincount(home, rows * weight, count)
        hottest = look.fingerprints[np.argsort(-rows * weight, kind="stable")[:LISTED_KEYS]]
        keys = _spread(past.keys, np.union1d(past.keys["key"], hottest))
        keys["load"] = 0.0
        at = np.searchsorted(keys["key"], look.fingerprints)
        there = np.flatnonzero(np.isin(look.fingerprints, keys["key"]))
        keys["load"][at[there]] = (rows * weight)[there]
        seconds = past.seconds / past.rows * look.rows if past.rows else 0.0
        following = StreamLoadRecord(count, load=self.load, decay=self.decay, hash_seed=self.hash_seed)
        following._record = _Record(
            1.0, look.rows, seconds, look.variance, groups, _worth_listing(keys, float(groups["load"].sum()))
        )
        return following

    def _usual_weight(self) -> float:
        """Return the load of a row of which nothing is known: 1, or the mean seconds of a row."""
        if self.load != "seconds" or not self._record.rows:
            return 1.0
        return self._record.seconds / self._record.rows or 1.0

    def _rest(
        self, groups: NDArray[np.int64], amounts: _Doubles, home: NDArray[np.int64], listed: _Doubles
    ) -> _Doubles:
        """Return the amount of each tail group without its listed keys."""
        count = self.tail_groups
        rest = np.bincount(groups, amounts, count) - np.bincount(home, listed, count)
        return np.asarray(np.maximum(0.0, rest), dtype=np.float64)

    def _folded_back(self, keys: _Table, isolated: NDArray[np.int64]) -> _Doubles:
        """Return the state that each tail group gains by keys no longer isolated, minus that of newly isolated keys."""
        leaves = keys["isolated"].astype(np.int8) - np.isin(keys["key"], isolated).astype(np.int8)
        return self._by_group(keys, np.nan_to_num(keys["state"]) * leaves)

    def _by_group(self, keys: _Table, amounts: NDArray[Any]) -> _Doubles:
        """Sum amounts of keys by tail group."""
        return np.bincount(np.mod(keys["key"], self.tail_groups), amounts, self.tail_groups).astype(np.float64)

    def _work(self, rows: _Doubles, seconds: _Doubles, before: _Doubles) -> tuple[_Doubles, _Doubles]:
        """Return load and relative cost of each group and key of a batch; ``before`` is the last known cost."""
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
        # 0 up to the noise, then twice the excess, and from twice the noise the full value: continuous throughout
        believed = np.sign(agreed) * np.clip(2 * (np.abs(agreed) - noise), 0.0, np.abs(agreed))
        return rows * np.exp(believed), cost

    def _group_loads(self) -> _Doubles:
        """Return the load of each tail group with all its keys; rounding does not make it less than its listed keys."""
        listed = self._by_group(self._record.keys, self._record.keys["load"])
        return np.maximum(self._record.groups["load"].astype(np.float64), listed)

    def histogram(self) -> Histogram:
        """Return the shares of the listed keys; another key has at most the rest of its tail group."""
        keys, group_load = self._record.keys, self._group_loads()
        total = float(group_load.sum())
        if total == 0:
            return Histogram([], [], total=0.0, hash_seed=self.hash_seed)
        unlisted = float((group_load - self._by_group(keys, keys["load"])).max()) / total
        busy = keys[keys["load"] > 0]
        return Histogram(
            busy["key"],
            busy["load"].astype(np.float64) / total,
            error=unlisted,  # a key may have been unlisted in some of the batches
            unlisted=unlisted,
            total=total,
            hash_seed=self.hash_seed,
        )

    def costs(self) -> Costs:
        """Return load and state of every tail group with all its keys, and the known states of single keys."""
        keys = self._record.keys
        known = keys[~np.isnan(keys["state"])]
        group_state = self._record.groups["state"] + self._by_group(known, known["state"] * known["isolated"])
        key_state = dict(zip(known["key"].tolist(), known["state"].tolist(), strict=True))
        return Costs(group_load=self._group_loads(), group_state=group_state, key_state=key_state)

    def by_rows(self) -> "StreamLoadRecord":
        """Return the record with rows as the measure of load."""
        past = self._record
        groups, keys = past.groups.copy(), past.keys.copy()
        groups["load"] = groups["rows"]
        keys["load"] = _weights(keys["weight"], keys["load"])
        following = StreamLoadRecord(self.tail_groups, load="rows", decay=self.decay, hash_seed=self.hash_seed)
        following._record = replace(past, groups=groups, keys=keys)
        return following

    def imbalances(self, *plans: Plan) -> list[float]:
        """Return the load of the fullest partition over the mean under each plan, and last the least of any plan.

        The least is that of a plan with as many partitions as the first, while the hottest key stays whole.

        Examples
        --------
        >>> from equipoise.adapt import BatchLoads, Work
        >>> loads = StreamLoadRecord(4).add(BatchLoads(4, {0: Work(60, 0.1), 1: Work(20, 0.1), 2: Work(20, 0.1)}))
        >>> loads.imbalances(Plan(2, [0, 1, 1, 1]), Plan(2, [0, 0, 0, 1]))
        [1.2, 2.0, 1.0]
        """
        priced = price(self.histogram(), self.tail_groups, self.costs())
        if not self.total:
            return [1.0] * (len(plans) + 1)
        least = lower_bound(plans[0].partitions, min(1.0, priced.largest_share))
        return [*(load_imbalance(priced.loads(plan)) for plan in plans), least]

    def state_bytes(self, plan: Plan) -> list[int]:
        """Return the last known state of each partition in bytes, for the plan under which it was measured."""
        apart = self._record.keys[self._record.keys["isolated"].astype(np.bool_)]
        amounts = np.bincount(plan.tail, self._record.groups["state"], plan.partitions)
        amounts += np.bincount(plan.assign(apart["key"]), np.nan_to_num(apart["state"]), plan.partitions)
        return [int(amount) for amount in amounts]

    def to_bytes(self) -> bytes:
        """Return the stored form; its fields are those of ``_Stored``."""
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
        """Read the stored form of ``to_bytes``."""
        with reading(_KIND):
            stored = msgspec.convert(unseal(_KIND, _FORMAT_VERSION, data), _Stored)
            measure = checked_measure(stored.load)
            groups, keys = np.frombuffer(stored.groups, _GROUP), np.frombuffer(stored.keys, _KEY)
            _check(stored, groups, keys)  # first, since memory is taken for as many groups as it says
            loads = cls(stored.tail_groups, load=measure, decay=stored.decay, hash_seed=stored.hash_seed)
            loads._record = _Record(stored.batches, stored.rows, stored.seconds, stored.squares, groups, keys)
            return loads


def checked_measure(load: object) -> LoadMeasure:
    """Return ``load``; refuse unknown measures."""
    for measure in get_args(LoadMeasure):
        if load == measure:
            return measure  # type: ignore[no-any-return]  # get_args() loses the type
    raise InvalidArgumentError(f"load must be one of {', '.join(get_args(LoadMeasure))}, got {load!r}")


def checked_decay(decay: float) -> float:
    """Return ``decay``; refuse values outside [0, 1)."""
    if not at_least("decay", decay, 0) < 1:
        raise InvalidArgumentError(f"decay must be the weight of the past, in [0, 1), got {decay}")
    return float(decay)


def _weights(rows: _Doubles, work: _Doubles) -> _Doubles:
    """Return the load of one row; 0 where there was none."""
    return np.divide(work, rows, out=np.zeros(len(rows)), where=rows > 0)


def _relative_costs(rows: _Doubles, seconds: _Doubles) -> _Doubles:
    """Return the natural logarithm of each cost per row divided by the median over all rows."""
    cost = seconds / rows
    order = np.argsort(cost, kind="stable")
    passed = np.cumsum(rows[order])
    usual = cost[order[np.searchsorted(passed, passed[-1] / 2)]]
    if usual == 0:  # most rows took less time than the clock resolves
        return np.zeros(len(rows))
    relative = np.log(np.maximum(cost, np.finfo(float).tiny)) - np.log(usual)
    return np.asarray(np.clip(relative, -_WIDEST, _WIDEST), dtype=np.float64)


def _effective_rows(record: _Record) -> float:
    return record.rows**2 / record.squares if record.squares else 0.0


def _agreement(past: _Record, group_rows: _Doubles) -> float:
    """Return the weight of the past for a batch: 1 if its rows fall into groups as before, 0 if many do not.

    The fraction of rows in other groups is the total variation distance. By chance alone it is, on average, at most
    half the sum of the standard deviations of the groups' shares.
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
    """Extend the keys to ``numbers``, which are sorted and include all keys; new keys have no load, unknown state."""
    wider = np.zeros(len(numbers), _KEY)
    wider["key"], wider["state"] = numbers, np.nan
    wider[np.searchsorted(numbers, keys["key"])] = keys
    return wider


def _worth_listing(keys: _Table, total: float) -> _Table:
    """Return the isolated keys and the hottest of the others."""
    keep = keys["isolated"].astype(np.bool_)
    others = np.flatnonzero(~keep & (keys["load"] > _NEGLIGIBLE * total))
    keep[others[np.argsort(-keys["load"][others], kind="stable")[:LISTED_KEYS]]] = True
    return keys[keep]


def _check(stored: _Stored, groups: _Table, keys: _Table) -> None:
    """Refuse a record that no sequence of batches can produce."""
    require(_KIND, len(groups) == stored.tail_groups, f"it has {len(groups)} of {stored.tail_groups} tail groups")
    require(_KIND, bool(np.all(keys["key"][:-1] < keys["key"][1:])), "its keys are not in order")
    require(_KIND, bool(np.all(keys["isolated"] <= 1)), "an isolated flag is neither 0 nor 1")
    amounts = [np.array([stored.batches, stored.rows, stored.seconds, stored.squares])]
    amounts += [groups[name] for name in ("rows", "load", "weight", "state")]
    amounts += [keys["load"], keys["weight"], keys["state"][~np.isnan(keys["state"])]]
    sound = all(bool(np.all(np.isfinite(each) & (each >= 0))) for each in amounts)
    require(_KIND, sound, "an amount is not a finite number of at least 0")
    costs = np.concatenate([groups["cost"], keys["cost"]])
    require(_KIND, bool(np.all(np.abs(costs) <= _WIDEST)), "a relative cost is out of range")
