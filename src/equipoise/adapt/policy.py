"""Policy of replanning: how often, for what gain, and at what cost."""

from dataclasses import dataclass
from typing import Literal, get_args

from equipoise.adapt.load_record import LoadMeasure, checked_decay, checked_measure
from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError
from equipoise.plan import Planner, make_planner

Mode = Literal["observe", "advise", "auto"]
"""Reaction to imbalance: see :class:`Policy`."""


_THRESHOLD, _LEAST_GAIN = 0.08, 0.08  # unless set, where the plan follows from the past, which may have drifted
_THRESHOLD_SEEN, _LEAST_GAIN_SEEN = 0.02, 0.01  # and where rows of the very batch were seen


@dataclass(frozen=True)
class Policy:
    """Settings of when and how to replan.

    Parameters
    ----------
    mode
        ``"observe"`` measures the balance of the present plan and makes no other; ``"advise"`` makes plans and reports
        them; ``"auto"`` makes plans and applies them.
    planner
        A planner, or the name of one, which is made with its defaults.
    load
        Measure of load: see :class:`~equipoise.adapt.load_record.StreamLoadRecord`.
    decay
        Factor by which the weight of earlier batches falls with every batch, in [0, 1).
    threshold
        Fraction by which the imbalance must exceed its bound before a plan is made. With few rows it must also exceed
        what chance explains. ``None``: 0.08, and 0.02 for a batch that was looked at.
    minimum_gain
        Fraction of the longest task's time that a new plan must save, in [0, 1). With few rows it must also save more
        than chance explains. ``None``: 0.08, and 0.01 for a batch that was looked at.
    hysteresis
        Fraction that a new plan must save beyond ``minimum_gain`` within ``horizon`` batches of the last replan, whose
        moves have not paid off yet.
    minimum_interval
        Number of batches between two replans, at least 1; 1 allows a replan after every batch.
    horizon
        Number of batches over which the saved time is counted. It must exceed the time of moving.
    move_share
        Fraction of the time of a batch that a partition may spend on receiving state, above 0. A larger change is
        spread over batches, state with most load for its size first.
    budget_bytes
        State in bytes that one replan may move; ``None``: no limit.
    budget_seconds
        Time that one replan may spend on moving state, computed as if all state went to one partition; ``None``: no
        limit.
    move_rate
        Rate at which a partition receives state, in bytes per second, until it has been measured.

    Examples
    --------
    >>> Policy("advise", budget_bytes=10e6).budget(move_rate=1e6)
    10000000.0
    >>> Policy(budget_seconds=2).budget(move_rate=1e6)
    2000000.0
    """

    mode: Mode = "auto"
    planner: str | Planner = "kip"
    load: LoadMeasure = "auto"
    decay: float = 0.5
    threshold: float | None = None
    minimum_gain: float | None = None
    hysteresis: float = 0.02
    minimum_interval: int = 1
    horizon: int = 10
    move_share: float = 0.2
    budget_bytes: float | None = None
    budget_seconds: float | None = None
    move_rate: float = 32e6

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise InvalidArgumentError(f"mode must be one of {', '.join(get_args(Mode))}, got {self.mode!r}")
        if isinstance(self.planner, str):
            make_planner(self.planner)
        elif not isinstance(self.planner, Planner):
            raise InvalidArgumentError(f"planner must be a Planner or its name, got {self.planner!r}")
        checked_measure(self.load)
        checked_decay(self.decay)
        threshold, minimum_gain = self.limits(seen=False)
        at_least("threshold", threshold, 0)
        if at_least("minimum_gain", minimum_gain, 0) + at_least("hysteresis", self.hysteresis, 0) >= 1:
            raise InvalidArgumentError(
                f"minimum_gain and hysteresis are fractions of a task's time and must add up to less than 1, got "
                f"{minimum_gain} and {self.hysteresis}"
            )
        whole("minimum_interval", self.minimum_interval, 1)
        whole("horizon", self.horizon, 1)
        if at_least("move_share", self.move_share, 0) == 0:
            raise InvalidArgumentError("move_share must be above 0, got 0; use mode='advise' to move nothing")
        for name in ("budget_bytes", "budget_seconds"):
            if getattr(self, name) is not None:
                at_least(name, getattr(self, name), 0)
        if at_least("move_rate", self.move_rate, 0) == 0:
            raise InvalidArgumentError("move_rate must be above 0 bytes per second, got 0")

    def limits(self, *, seen: bool) -> tuple[float, float]:
        """Return ``threshold`` and ``minimum_gain`` for a batch of which rows were seen, or none.

        Where rows were seen, nothing has drifted: the error of the sample counts beside the limits, as chance.

        Examples
        --------
        >>> Policy(threshold=0.05).limits(seen=True)
        (0.05, 0.01)
        """
        usual = (_THRESHOLD_SEEN, _LEAST_GAIN_SEEN) if seen else (_THRESHOLD, _LEAST_GAIN)
        return (
            usual[0] if self.threshold is None else self.threshold,
            usual[1] if self.minimum_gain is None else self.minimum_gain,
        )

    def budget(self, move_rate: float) -> float | None:
        """Return the bytes that one replan may move at the given rate; ``None``: no limit."""
        limits = [] if self.budget_bytes is None else [float(self.budget_bytes)]
        if self.budget_seconds is not None:
            limits.append(self.budget_seconds * move_rate)
        return min(limits, default=None)
