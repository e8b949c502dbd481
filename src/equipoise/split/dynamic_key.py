"""Dynamic Key Grouping: keys that stay hot get one more worker at a time, and lose them again."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError
from equipoise.fingerprint_table import EMPTY, find
from equipoise.kernels import kernel
from equipoise.split.base import Splitter, hash_starts, hashed_workers, worker_of
from equipoise.split.key_space import BABY, FORGOTTEN, NEVER, OLD, KeySpace, append

_MOST_MISSED_CYCLES = 8  # after a pause, more cycles than this change nothing


@dataclass(frozen=True)
class Rules:
    """Choices in which the text of DKG, its code and this implementation differ.

    Parameters
    ----------
    check_interval
        Seconds between two checks of the width of a key; below 0: check on every message.
    one_step
        Whether a width shrinks by one at a time, instead of as far as possible.
    whole_percents
        Whether loads and thresholds are rounded down to whole percents.
    fills, swaps_ties
        See :func:`equipoise.split.key_space.promote`.
    old_every
        Cycles between promotions to Old.
    retention
        Fraction of counts and loads that is kept at each cycle.
    limit
        Number of entries at which babies are dropped between cycles; ``None``: no limit.
    """

    check_interval: float
    one_step: bool
    whole_percents: bool
    fills: bool
    swaps_ties: bool
    old_every: int
    retention: float
    limit: int | None


@kernel(inline="always")
def _load(loads: Any, worker: int, total: int, whole_percents: bool) -> float:
    """Return the load of a worker in percent of all messages."""
    if total == 0:
        return 0.0
    if whole_percents:
        return float(100 * loads[worker] // total)
    return float(100.0 * loads[worker] / total)


@kernel(inline="always")
def _scan(loads: Any, first: int, width: int, total: int, limit: float, percents: bool) -> tuple[int, float, int]:
    """Return the first of the least loaded candidates, its load, and the number of candidates below the threshold."""
    best, least, below = first, _load(loads, first, total, percents), 0
    for step in range(width):
        worker = first + step
        if worker >= len(loads):
            worker -= len(loads)
        load = _load(loads, worker, total, percents)
        if load < limit:
            below += 1
        if load < least:
            best, least = worker, load
    return best, least, below


@kernel(nogil=True)
def _route(
    keys: Any,
    start: int,
    entries: Any,
    size: int,
    now: float,
    warm: bool,
    threshold: float,
    interval: float,
    one_step: bool,
    percents: bool,
    loads: Any,
    targets: Any,
) -> tuple[int, int]:
    """Route keys until the table is full; return the numbers of routed messages and of entries."""
    workers = len(loads)
    total = loads.sum()
    narrow = min(2, workers)
    for i in range(len(keys)):
        slot = find(entries.table_keys, entries.table_values, keys[i])
        entry = int(entries.table_values[slot])
        if entry == EMPTY:
            if size == len(entries.keys):
                return i, size
            entry = size
            append(entries, size, slot, keys[i])
            size += 1
            may_change = False
        elif entries.generations[entry] == FORGOTTEN:
            entries.generations[entry] = BABY
            entries.counts[entry] = 0
            entries.checked[entry] = NEVER
            may_change = False
        else:
            may_change = now - entries.checked[entry] > interval
        if may_change:
            entries.checked[entry] = now
        first = worker_of(keys[i], start, workers)
        width = max(narrow, min(int(entries.widths[entry]), workers))
        best, least, below = _scan(loads, first, width, total, threshold, percents)
        if may_change and warm and least >= threshold and entries.generations[entry] == OLD:
            further = (first + width) % workers
            if _load(loads, further, total, percents) < least:
                best = further
                width += 1
        else:
            while may_change and width > 2 and below >= 2:
                width -= 1
                best, least, below = _scan(loads, first, width, total, threshold, percents)
                may_change = not one_step
        entries.widths[entry] = max(2, width)
        entries.counts[entry] += 1
        loads[best] += 1
        total += 1
        targets[i] = best
    return len(keys), size


class DynamicKeyGrouping(Splitter):
    """Base of the implementations of DKG, which differ only in their :class:`Rules`."""

    def __init__(
        self,
        workers: int,
        rules: Rules,
        *,
        expected_keys: int,
        cycle: float,
        warm_up: float,
        clock: Callable[[], float],
        seed: int,
    ) -> None:
        super().__init__(workers, seed=seed)
        self.rules = rules
        self.cycle = at_least("cycle", cycle, 0)
        if self.cycle == 0:
            raise InvalidArgumentError("cycle must be above 0 seconds, got 0")
        self.warm_up = at_least("warm_up", warm_up, 0)
        fair = 100 / self.workers
        self.threshold = float(int(fair + sqrt(fair))) if rules.whole_percents else fair + sqrt(fair)
        """Load in percent at which a worker counts as overloaded: T = L_i + sqrt(L_i)."""
        self._starts = hash_starts(self.seed, 1)
        self._space = KeySpace(
            whole("expected_keys", expected_keys, 2),
            limit=rules.limit,
            fills=rules.fills,
            swaps_ties=rules.swaps_ties,
            keeps_widths=rules.retention == 1,
        )
        self._clock = clock
        self._started = self._next_cycle = float(clock())
        self._cycles = 0

    def _manage(self, now: float) -> None:
        """Run the cycles that are due; the first is due at the start."""
        due = int((now - self._next_cycle) // self.cycle) + 1
        if due < 1:
            return
        self._next_cycle += due * self.cycle
        for _ in range(min(due, _MOST_MISSED_CYCLES)):
            self._cycles += 1
            self._space.cycle(to_old=self._cycles % self.rules.old_every == 0)
            if self.rules.retention < 1:
                self._space.decay(self.rules.retention)
                self.loads[:] = (self.loads * self.rules.retention).astype(np.int64)

    def _route(self, keys: NDArray[np.int64], targets: NDArray[np.int32]) -> None:
        now = float(self._clock())
        self._manage(now)
        space, rules, done = self._space, self.rules, 0
        while True:
            routed, space.size = _route(
                keys[done:],
                self._starts[0],
                space.entries,
                space.size,
                now,
                now - self._started > self.warm_up,
                self.threshold,
                rules.check_interval,
                rules.one_step,
                rules.whole_percents,
                self.loads,
                targets[done:],
            )
            done += routed
            if done == len(keys):
                return
            space.make_room()

    def width(self, key: int) -> int:
        """Return the number of workers that a key may go to."""
        return min(self._space.width(key), self.workers)

    def candidates(self, key: int) -> NDArray[np.int32]:
        """Return ``width(key)`` adjacent workers, starting with the worker of the key's hash."""
        first = int(hashed_workers(key, self._starts, self.workers)[0])
        return np.mod(np.arange(first, first + self.width(key)), self.workers).astype(np.int32)

    @property
    def nbytes(self) -> int:
        """Memory of loads and key space, in bytes."""
        return super().nbytes + self._space.nbytes


class DynamicKey(DynamicKeyGrouping):
    """Dynamic Key Grouping (DKG) with decaying counts: hot keys have more workers while they are hot.

    Guarantees
    ----------
    - A key goes to ``width(key)`` adjacent workers, at least two if there are two.
    - Only the hottest keys, the Old ones, get wider: by one worker per ``check_interval``, if all workers of the key
      have 100/W + sqrt(100/W) percent or more of the recent messages and the next worker has less.
    - A key wider than two gets narrower, by one worker per ``check_interval``, while two of its workers are below that
      threshold.
    - Memory does not grow with the number of keys.
    - New hot keys are recognised within a few cycles, whatever the length of the stream before.

    Differs from the paper
    ----------------------
    Counts and loads are halved at each cycle. The paper counts over the whole stream, so that a key that was hot stays
    Old forever and an overload never decays. Teenagers become Old at every cycle instead of every fourth. The width of
    a key is checked once a second; in the text on every tuple, in the code once a minute. Babies are also dropped when
    there are ``limit`` keys, so that memory is bounded; in the paper only at the end of a cycle. A generation with room
    is filled; as printed, no key would ever leave the first generation.

    Parameters
    ----------
    workers
        W, number of workers.
    expected_keys
        Expected number of relevant keys: a tenth of it can be Old.
    cycle
        Seconds between two rounds of promotion.
    warm_up
        Seconds before any key may get wider.
    check_interval
        Seconds between two changes of the width of a key.
    retention
        Fraction of counts and loads that is kept at each cycle, in (0, 1].
    limit
        Largest number of keys that are stored.
    clock
        Returns seconds; called once in each call of ``route``.
    seed
        Seed of the hash function.

    References
    ----------
    Dalabasmaz, Can: Dynamic Key Grouping: a load balancing algorithm for distributed stream processing engines.

    Examples
    --------
    >>> seconds = iter(range(1000))
    >>> splitter = DynamicKey(10, clock=lambda: next(seconds), seed=1)
    >>> for _ in range(60):
    ...     targets = splitter.route([7] * 100)
    >>> splitter.width(7)
    6
    """

    name = "dynamic-key"
    memory = "workers"

    def __init__(
        self,
        workers: int,
        *,
        expected_keys: int = 100,
        cycle: float = 15.0,
        warm_up: float = 15.0,
        check_interval: float = 1.0,
        retention: float = 0.5,
        limit: int = 4096,
        clock: Callable[[], float] = time.monotonic,
        seed: int = 0,
    ) -> None:
        if not 0 < at_least("retention", retention, 0) <= 1:
            raise InvalidArgumentError(
                f"retention must be the fraction of the past to keep, in (0, 1], got {retention}"
            )
        if whole("limit", limit, 1) < 2 * expected_keys:
            raise InvalidArgumentError(f"limit must be at least twice expected_keys ({2 * expected_keys}), got {limit}")
        rules = Rules(
            check_interval=at_least("check_interval", check_interval, 0),
            one_step=True,
            whole_percents=False,
            fills=True,
            swaps_ties=False,
            old_every=1,
            retention=retention,
            limit=limit,
        )
        super().__init__(
            workers, rules, expected_keys=expected_keys, cycle=cycle, warm_up=warm_up, clock=clock, seed=seed
        )
