"""Whether the rows of a batch are reduced in the map tasks, before the exchange: by how often keys repeat there."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, get_args

import numpy as np

from equipoise.adapt.look import Look
from equipoise.errors import InvalidArgumentError
from equipoise.readable import count_text

CombineMode = Literal["auto", "always", "never"]
"""When to combine: where it pays, always, or never."""

Scope = Literal["all", "hot", "none"]
"""Keys that are combined: all, the hot ones, or none."""

REMEMBERED = 20
"""Batches that a decision rests on. After as many without combining, it is tried again."""

_HOT = 1.2  # load of a key, in units of a task's fair share, above which it is combined
_COOL = 0.8  # and below which it no longer is
_LISTED = 0.1  # load of the other keys that are combined with it
_CHANCE = 4.5  # standard deviations: one cold key in 300,000 appears that hot by chance
_GROWN = 2.0  # rows for each key, over those when combining was left out, at which it is tried again
_SIMILAR = 2.0  # rows of two batches whose times are compared
_SIGNIFICANT_SECONDS = 0.2  # shorter batches do not show the time of a row
_TIMES = 2  # batches of each way that are timed: the first of a query is slow
_SLOWER = 1.2  # seconds for each row, over those of the other way, at which the way is changed


def checked_combine(combine: object) -> CombineMode:
    """Return ``combine``; refuse unknown modes."""
    for mode in get_args(CombineMode):
        if combine == mode:
            return mode  # type: ignore[no-any-return]  # get_args() loses the type
    raise InvalidArgumentError(f"combine must be one of {', '.join(get_args(CombineMode))}, got {combine!r}")


class CombinedBatch(TypedDict):
    """Measures of an earlier batch that a decision needs. Hot keys are kept for the latest batch only."""

    rows: int
    keys: int
    sent_rows: int
    seconds: float
    combine_scope: Scope
    hot_keys: list[int]
    hot_rows: list[int]


@dataclass(frozen=True)
class Combine:
    """Which keys of a batch are combined, and why.

    Parameters
    ----------
    scope
        All keys, the hot ones, or none.
    reason
        Why, in words.
    keys
        Fingerprints of the hot keys.
    """

    scope: Scope = "none"
    reason: str = ""
    keys: tuple[int, ...] = field(default=(), repr=False)


class Combining:
    """Decides before each batch which keys are combined.

    Combining pays where a map task has many rows of a key, since each of its buffers costs as much as some rows. The
    number of rows for each buffer is measured in batches that combine all keys. From other batches, and from a look, it
    is estimated by the number of rows of the keys, as if these were spread over the map tasks at random. A key too hot
    for a task is combined in any case. Where batches of similar size have run in both ways, their times decide.

    Guarantees
    ----------
    - Pure: a decision follows from the last ``REMEMBERED`` batches with rows and the look, and a restart continues from
      the ``experience``.

    Parameters
    ----------
    mode
        When to combine.
    buffer_cost
        Rows that cost as much as a buffer: the least number of rows for each buffer at which combining pays.
    hot_only
        Whether the operator can combine hot keys alone; else it combines all or none.
    refused
        Why the operator cannot combine; empty if it can.
    experience
        That of an earlier run.

    Examples
    --------
    >>> combining = Combining("auto", buffer_cost=4)
    >>> combining.decide(8).reason
    'nothing is known of the keys yet'
    >>> batch = {"rows": 900, "keys": 450, "sent_rows": 600, "seconds": 1.0, "combine_scope": "all"}
    >>> combining.note(batch | {"hot_keys": [], "hot_rows": []})
    >>> combining.decide(8)
    Combine(scope='none', reason='1.5 rows for each buffer, and a buffer costs as much as 4 rows')
    """

    def __init__(
        self,
        mode: CombineMode = "auto",
        *,
        buffer_cost: float = 2.0,
        hot_only: bool = False,
        refused: str = "",
        experience: Sequence[CombinedBatch] = (),
    ) -> None:
        self.mode = checked_combine(mode)
        self._buffer_cost = buffer_cost
        self._hot_only = hot_only
        self._refused = refused
        self._seen: deque[CombinedBatch] = deque(experience, maxlen=REMEMBERED)

    def note(self, measures: Mapping[str, Any]) -> None:
        """Add the measures of a batch; one without rows tells nothing."""
        if measures["rows"]:
            if self._seen:
                self._seen[-1] = self._seen[-1] | {"hot_keys": [], "hot_rows": []}
            known = {name: measures[name] for name in CombinedBatch.__annotations__}
            self._seen.append(known)  # type: ignore[arg-type]  # it has these fields

    @property
    def experience(self) -> list[CombinedBatch]:
        """Statistics of earlier batches."""
        return list(self._seen)

    def decide(self, tasks: int, look: Look | None = None) -> Combine:
        """Return which keys of the next batch are combined.

        Parameters
        ----------
        tasks
            Number of tasks that run at the same time: the smaller of N and the slots.
        look
            Keys of the batch, if it was looked at.
        """
        if self._refused:
            return Combine("none", self._refused)
        if self.mode != "auto":
            return Combine("all" if self.mode == "always" else "none", f"combine={self.mode!r}")
        per_buffer = self._rows_per_buffer(tasks, look)
        if per_buffer is None:
            return Combine("all", "nothing is known of the keys yet")
        return self._by_rows(per_buffer, self._hot_keys(tasks, look))

    def _by_rows(self, per_buffer: float, hot: tuple[int, ...]) -> Combine:
        """Return which keys are combined, by the rows for each buffer if it were all of them, and the hot keys."""
        text = f"{per_buffer:.3g} rows for each buffer, and a buffer costs as much as {self._buffer_cost:g} rows"
        pays = per_buffer >= self._buffer_cost
        if pays or not hot:
            chosen = Combine("all" if pays else "none", text)
            return chosen if hot else self._by_time(chosen)
        some = count_text(len(hot), "key")
        if self._hot_only:
            return Combine("hot", f"{some} with much load; in all, {text}", hot)
        return Combine("all", f"{some} with much load; in all, {text}")

    def _rows_per_buffer(self, tasks: int, look: Look | None) -> float | None:
        """Return the rows for each buffer if all keys of the batch are combined; ``None``: not known."""
        if look is not None and look.seen and (look.is_exact or not self._seen):
            return look.rows / look.buffers
        if not self._seen:
            return None
        latest = self._seen[-1]
        if latest["combine_scope"] == "all":
            return float(latest["rows"] / max(1, latest["sent_rows"]))
        each = latest["rows"] / max(1, latest["keys"])
        for before in reversed(self._seen):
            if before["combine_scope"] == "all":  # what is known of the map tasks, for as many rows of a key
                grown = each / (before["rows"] / max(1, before["keys"]))
                at = before["rows"] / max(1, before["sent_rows"])
                return float(at * grown) if grown >= _GROWN else float(min(at, self._buffer_cost * 0.999))
        return float(each / (tasks * (1 - (1 - 1 / tasks) ** each)))

    def _hot_keys(self, tasks: int, look: Look | None) -> tuple[int, ...]:
        """Return the keys to combine if one of them is too hot for a task; ordered by fingerprint."""
        if look is not None and look.seen:
            keys, shares, rows = look.fingerprints, look.counts / look.rows, min(look.rows, look.effective_rows)
        elif self._seen:
            latest = self._seen[-1]
            keys = np.array(latest["hot_keys"], dtype=np.int64)
            shares = np.array(latest["hot_rows"], dtype=np.float64) / latest["rows"]
            rows = latest["rows"]
        else:
            return ()
        if tasks < 2 or not len(keys):
            return ()
        largest = float(shares.max())
        was_hot = bool(self._seen) and self._seen[-1]["combine_scope"] == "hot"
        limit = _COOL if was_hot else _HOT + (_CHANCE * tasks * (largest / rows) ** 0.5)
        if largest * tasks <= limit:
            return ()
        return tuple(np.sort(keys[shares * tasks > _LISTED]).tolist())

    def _by_time(self, chosen: Combine) -> Combine:
        """Return the other way if batches like the latest have run in both ways, and it was clearly quicker."""
        if not self._seen:
            return chosen
        latest, pays = self._seen[-1], chosen.scope == "all"
        pace: dict[bool, list[float]] = {True: [], False: []}
        for each in self._seen:
            is_like = 1 / _SIMILAR <= each["rows"] / latest["rows"] <= _SIMILAR
            if is_like and each["seconds"] >= _SIGNIFICANT_SECONDS:
                pace[each["combine_scope"] == "all"].append(each["seconds"] / each["rows"])
        if min(len(found) for found in pace.values()) < _TIMES:
            return chosen
        seconds = {way: float(np.median(found)) for way, found in pace.items()}
        if seconds[pays] <= _SLOWER * seconds[not pays]:
            return chosen
        took = f"{seconds[True] * 1e6:.3g} µs for each row with combining, {seconds[False] * 1e6:.3g} µs without"
        return Combine("none" if pays else "all", took)
