"""When a query may replan: limits on how often, for what gain, and at what price."""

from dataclasses import dataclass
from typing import Literal, get_args

from equipoise.adapt.load_record import LoadMeasure, checked_decay, checked_measure
from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError
from equipoise.plan import Planner, make_planner

Mode = Literal["observe", "advise", "auto"]
"""What is done about imbalance: see :class:`Policy`."""


@dataclass(frozen=True)
class Policy:
    """When to replan.

    Parameters
    ----------
    mode
        ``"observe"`` scores the plan in force and makes no other; ``"advise"`` makes plans and reports them;
        ``"auto"`` also puts them into force.
    planner
        What makes plans: a planner, or the name of one with its defaults.
    load
        What counts as load: see :class:`~equipoise.adapt.load_record.StreamLoadRecord`.
    decay
        What is left of the weight of earlier batches when the next one comes in, in [0, 1).
    trigger
        Part by which the imbalance must exceed its bound before a plan is sought; with few rows it must exceed what
        chance explains, too.
    minimum_gain
        Part of the longest task's time that a new plan must save, in [0, 1); with few rows it must save more than
        chance explains, too.
    hysteresis
        What a new plan must save beyond ``minimum_gain`` within ``horizon`` batches of the last replan, whose moves
        have not paid off by then.
    minimum_interval
        Batches from one replan to the next, at least 1; 1 allows one after every batch.
    horizon
        Batches over which the time saved is counted; it must exceed the time that moving takes.
    budget_bytes
        State that one replan may move; ``None``: any amount.
    budget_seconds
        Time that one replan may spend on moving state; ``None``: any time. Reckoned as if all of it went to one
        partition.
    move_rate
        Bytes of state that a partition is assumed to take over in a second; nothing measures it.

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
    trigger: float = 0.08
    minimum_gain: float = 0.08
    hysteresis: float = 0.02
    minimum_interval: int = 1
    horizon: int = 10
    budget_bytes: float | None = None
    budget_seconds: float | None = None
    move_rate: float = 32e6

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise InvalidArgumentError(f"mode must be one of {', '.join(get_args(Mode))}, got {self.mode!r}")
        if isinstance(self.planner, str):
            make_planner(self.planner)
        elif not isinstance(self.planner, Planner):
            raise InvalidArgumentError(f"planner must be a Planner or the name of one, got {self.planner!r}")
        checked_measure(self.load)
        checked_decay(self.decay)
        at_least("trigger", self.trigger, 0)
        if at_least("minimum_gain", self.minimum_gain, 0) + at_least("hysteresis", self.hysteresis, 0) >= 1:
            raise InvalidArgumentError(
                f"minimum_gain {self.minimum_gain} and hysteresis {self.hysteresis} are parts of the time that could "
                "be saved; together they must be below 1"
            )
        whole("minimum_interval", self.minimum_interval, 1)
        whole("horizon", self.horizon, 1)
        for name in ("budget_bytes", "budget_seconds"):
            if getattr(self, name) is not None:
                at_least(name, getattr(self, name), 0)
        if at_least("move_rate", self.move_rate, 0) == 0:
            raise InvalidArgumentError("move_rate is in bytes per second and must exceed 0")

    def budget(self, move_rate: float) -> float | None:
        """Bytes that one replan may move at the given rate; ``None``: any amount."""
        limits = [] if self.budget_bytes is None else [float(self.budget_bytes)]
        if self.budget_seconds is not None:
            limits.append(self.budget_seconds * move_rate)
        return min(limits, default=None)
