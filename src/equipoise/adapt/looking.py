"""Whether to look at a batch before it is placed: the time of looking against the time that looking saves."""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict, get_args

from equipoise.errors import InvalidArgumentError
from equipoise.readable import seconds_text

LookMode = Literal["auto", "always", "never"]
"""When to look at a batch: where it pays, always, or never."""

_WEIGHT = 0.5  # of the latest batch in the averages
_MARGIN = 1.2  # times its cost a look must save
_TOLERANCE = 1.05  # imbalance over its bound that no look is expected to cure
_USUAL = 1 / 8  # part of the batches that bring other hot keys, before any has been seen
_MEMORY = 0.98  # weight of a batch with other hot keys, at the next batch
_RECENT = 50.0  # batches without other hot keys that count once there was one
_FIRST_GAP, _LAST_GAP = 16, 256  # batches without a look before a check; it doubles with each that saves nothing
_DEAR_SECONDS, _DEAR_PART = 1.0, 0.3  # of a look, and over the whole batch, from which reading the rows twice is dear


class Experience(TypedDict):
    """Statistics of earlier batches: averages of seconds, what a look reached, and how often hot keys change.

    ``cost`` and ``gain`` are the seconds that a look takes and saves, ``stake`` those that a batch loses whose hot keys
    are others. ``changes`` counts batches with other hot keys, the latest with most weight, and ``batches`` all, of
    which few count from before the last change. ``unseen`` counts batches since the last look, and ``gap`` is how many
    of them make the next one a check.
    """

    cost: float | None
    gain: float | None
    reached: float
    stake: float
    batches: float
    changes: float
    unseen: int
    gap: int


class LookNumbers(TypedDict):
    """What a decision rests on; see the columns of the batch log."""

    look_cost: float | None
    look_gain: float | None
    look_stake: float
    look_chance: float


_NEW: Experience = {
    "cost": None,
    "gain": None,
    "reached": 1.0,
    "stake": 0.0,
    "batches": 0.0,
    "changes": 0.0,
    "unseen": 0,
    "gap": _FIRST_GAP,
}


def checked_look(look: object) -> LookMode:
    """Return ``look``; refuse unknown modes."""
    for mode in get_args(LookMode):
        if look == mode:
            return mode  # type: ignore[no-any-return]  # get_args() loses the type
    raise InvalidArgumentError(f"look must be one of {', '.join(get_args(LookMode))}, got {look!r}")


class Looking:
    """Compares the measured seconds of looking with the seconds that a look saves.

    The saving of a batch with a look is the time by which its plan shortens the fullest task, against the plan before.
    Without a look it is the time that a plan for this very batch might have saved: the fullest task as measured,
    against the least that looks reached so far. So a steady stream stops looking, and one that begins to drift starts
    again, without any look in between.

    A look also limits the loss when the hot keys change: it is worth their chance, as seen so far, times what such a
    batch loses, which is what plain hash would lose. So a stream with hot keys is looked at for longer where looks are
    cheap, and one without any, where hash is level, is not. After n batches without other hot keys the chance is
    1 / (8 + n). So the looks at a stream that never changes end, and have taken less than one batch with other hot keys
    would lose. Then there are checks: after 16 batches without a look, 32, 64, and so on, at last every 257th batch,
    where a batch could lose more than a look takes. A look that saves something starts this anew.

    Guarantees
    ----------
    - Pure: equal batches in equal order give equal decisions, and a restart continues from the ``experience``.
    - With ``"auto"`` the first batch with rows is looked at: nothing is known of its keys.
    - Batches without rows change nothing. A look that failed counts as a cost without a saving.

    Parameters
    ----------
    mode
        When to look.
    experience
        That of an earlier run; ``None`` for a new query.

    Examples
    --------
    >>> looking = Looking("auto")
    >>> looking.decide()
    (True, 'nothing is known of the keys yet')
    >>> seen = {"rows": 90, "look_rows": 90, "look_seconds": 0.1, "promised_seconds": 0.0, "promised_rows": 1.0}
    >>> looking.note(seen, slots=2)
    >>> looking.decide()
    (False, 'a look takes 100 ms and saves 0 s')
    """

    def __init__(self, mode: LookMode = "auto", experience: Experience | None = None) -> None:
        self.mode = checked_look(mode)
        known = _NEW if experience is None else experience
        self._cost, self._gain = known["cost"], known["gain"]
        self._reached = known["reached"]  # imbalance that the last plan made from a look promised
        self._stake, self._batches, self._changes = known["stake"], known["batches"], known["changes"]
        self._unseen, self._gap = known["unseen"], known["gap"]

    @property
    def experience(self) -> Experience:
        """Statistics of earlier batches."""
        return {
            "cost": self._cost,
            "gain": self._gain,
            "reached": self._reached,
            "stake": self._stake,
            "batches": self._batches,
            "changes": self._changes,
            "unseen": self._unseen,
            "gap": self._gap,
        }

    @property
    def numbers(self) -> LookNumbers:
        """What the decision about the next batch rests on."""
        return {
            "look_cost": self._cost,
            "look_gain": self._gain,
            "look_stake": self._stake,
            "look_chance": (1 + self._changes) / (1 / _USUAL + self._batches),
        }

    def is_dear(self, batch_seconds: float) -> bool:
        """Return whether looks take so much of a batch, at least 0.3 and a second, that its rows are to be read once.

        Parameters
        ----------
        batch_seconds
            Time of the last batch with rows, its look included.
        """
        cost = self._cost or 0.0
        return cost >= _DEAR_SECONDS and cost >= _DEAR_PART * batch_seconds

    def decide(self) -> tuple[bool, str]:
        """Return whether to look at the next batch, and why."""
        if self.mode != "auto":
            return self.mode == "always", f"look={self.mode!r}"
        if self._gain is None:
            return True, "nothing is known of the keys yet"
        cost = self._cost or 0.0
        chance = self.numbers["look_chance"]
        taken, worth = f"a look takes {seconds_text(cost)}", chance * self._stake
        if self._gain >= worth:
            return self._gain > _MARGIN * cost, f"{taken} and saves {seconds_text(self._gain)}"
        lost = f"{taken}; other hot keys, with a chance of {chance:.2g}, cost {seconds_text(self._stake)}"
        if worth <= _MARGIN * cost < self._stake and self._unseen >= self._gap:
            return True, f"a check after {self._unseen} batches without a look: {lost}"
        return worth > _MARGIN * cost, lost

    def note(self, measures: Mapping[str, Any], slots: int | None) -> None:
        """Add a batch.

        Parameters
        ----------
        measures
            Measures of the batch.
        slots
            Tasks that run at a time; ``None``: all.
        """
        if not measures["rows"]:
            return
        seconds, saved = measures.get("look_seconds"), 0.0
        if seconds is None:
            saved = self._over_least(measures, measures.get("imbalance_rows", 1.0), slots)
        else:
            self._cost = _averaged(self._cost, float(seconds))
            if measures["look_rows"]:
                saved = float(measures["promised_seconds"])
                self._reached = float(measures["promised_rows"])
        stake = self._over_least(measures, measures.get("imbalance_rows_hash") or 1.0, slots)
        if self._gain is not None:
            has_changed = 2 * saved > stake > 0
            self._batches = 1 + (min(_RECENT, self._batches) if has_changed else self._batches)
            self._changes = _MEMORY * self._changes + has_changed
        self._count_unseen(looked=seconds is not None, has_saved=saved > _MARGIN * (self._cost or 0.0))
        self._stake = stake if self._gain is None else _averaged(self._stake, stake)
        self._gain = _averaged(self._gain, saved)

    def _count_unseen(self, *, looked: bool, has_saved: bool) -> None:
        """Count the batches without a look, and how many of them make the next one a check."""
        if has_saved:
            self._gap = _FIRST_GAP
        elif looked and self._unseen >= self._gap:
            self._gap = min(2 * self._gap, _LAST_GAP)
        self._unseen = 0 if looked else self._unseen + 1

    def _over_least(self, measures: Mapping[str, Any], imbalance: float, slots: int | None) -> float:
        """Return the seconds that the rows of a batch took longer with an imbalance than with a plan for this batch."""
        partitions = len(measures.get("partition_rows", ()))
        least = max(self._reached, _TOLERANCE * measures.get("bound_rows", 1.0))
        return saved_seconds(imbalance, least, measures.get("work_seconds", 0.0), partitions, slots)


def saved_seconds(before: float, after: float, work: float, partitions: int, slots: int | None) -> float:
    """Return the seconds that a lower imbalance saves; 0 where the slots, not the fullest task, set the time.

    Parameters
    ----------
    before, after
        Load of the fullest partition over the mean.
    work
        Seconds of all tasks together.
    partitions
        Number of partitions.
    slots
        Tasks that run at a time; ``None``: all.

    Examples
    --------
    >>> saved_seconds(2.0, 1.0, work=8.0, partitions=4, slots=4)
    2.0
    """
    if not partitions:
        return 0.0
    least = work / min(slots or partitions, partitions)
    return max(0.0, max(before * work / partitions, least) - max(after * work / partitions, least))


def _averaged(before: float | None, value: float) -> float:
    return value if before is None else before + _WEIGHT * (value - before)
