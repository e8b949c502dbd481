"""Algorithm 4 of Prompt: add and remove map and reduce tasks so that batches end within their interval."""

from dataclasses import dataclass
from math import ceil

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError

_CATCH_UP = 10


@dataclass(frozen=True)
class Scaled:
    """Numbers of tasks for the next batch, and the reason.

    Parameters
    ----------
    maps, reduces
        p and r, number of map and of reduce tasks.
    action
        ``"out"``, ``"in"`` or ``"keep"``.
    reason
        One sentence, with numbers.
    """

    maps: int
    reduces: int
    action: str
    reason: str


class AutoScale:
    """Latency-aware scaling of both stages.

    Guarantees
    ----------
    - Tasks are added only after ``patience`` consecutive batches above ``threshold``, and removed only after as many at
      or below ``threshold - step``.
    - After an action, the opposite one waits for ``patience`` batches.
    - Both numbers stay within their bounds.

    Differs from the paper
    ----------------------
    The printed algorithm lists scale-out alone, with one counter that is never reset; here each direction has its own,
    reset by a batch that does not qualify, and fires at the d-th batch. Rate and keys are compared with what they were
    at the last action. Where neither has changed, the print never acts again; here both numbers change. The print
    changes one task at a time, as ``stride=1`` does. With a longer stride a steep ramp is followed in one action, and
    no task is removed that would be added again at once: with 4 tasks, the load of 3 is a third more.
    Waiting batches count as load, so that the backlog is worked off.

    Parameters
    ----------
    maps, reduces
        p and r to begin with.
    threshold, step
        Fraction of the interval that a batch may take, and how far below it tasks are removed.
    patience
        d, consecutive batches before an action; the paper gives no value.
    stride
        Most tasks of a stage that an action adds or removes. 1 is the print. Above 1, an action changes as many as
        bring the load, if it is shared evenly, to the middle between the thresholds or below it.
    least, most
        Bounds of both numbers.

    References
    ----------
    Abdelhamid, Mahmood, Daghistani, Aref: Prompt, SIGMOD 2020, algorithm 4.

    Examples
    --------
    >>> scale = AutoScale(4, 4, patience=2)
    >>> [scale.next(0.95, rate, keys=50).maps for rate in (100, 120, 130)]
    [4, 5, 5]
    """

    def __init__(
        self,
        maps: int,
        reduces: int,
        *,
        threshold: float = 0.9,
        step: float = 0.1,
        patience: int = 3,
        stride: int = 1,
        least: int = 1,
        most: int = 1024,
    ) -> None:
        self.least, self.most = whole("least", least, 1), whole("most", most, 1)
        if self.least > self.most:
            raise InvalidArgumentError(f"least {least} exceeds most {most}; give bounds in order")
        for name, value in (("maps", maps), ("reduces", reduces)):
            if not self.least <= whole(name, value, 1) <= self.most:
                raise InvalidArgumentError(f"{name} is {value}, outside of {self.least}..{self.most}")
        self.maps, self.reduces = maps, reduces
        self.threshold, self.step = at_least("threshold", threshold, 0), at_least("step", step, 0)
        if self.step >= 2 * self.threshold:
            raise InvalidArgumentError(f"step {step} leaves no load between 0 and the threshold {threshold}; take less")
        self.patience = whole("patience", patience, 1)
        self.stride = whole("stride", stride, 1)
        self._above = self._below = 0
        self._last: tuple[float, float] | None = None
        self._quiet = {"out": 0, "in": 0}

    def next(self, load: float, rate: float, keys: float, *, behind: int = 0) -> Scaled:
        """Decide after a batch.

        Parameters
        ----------
        load
            W, processing time over batch interval.
        rate
            Tuples of the batch.
        keys
            Keys of the batch.
        behind
            Batches of the backlog, which is to be worked off within ten batches.
        """
        measured = f"the batch took {load:.0%} of its interval" + (f" and {behind} wait" if behind else "")
        load += behind / _CATCH_UP
        if self._last is None:
            self._last = (rate, keys)
        busy, idle = load > self.threshold, load <= self.threshold - self.step
        self._above = self._above + 1 if busy else 0
        self._below = self._below + 1 if idle else 0
        action = "keep"
        if self._above >= self.patience and not self._quiet["out"]:
            action = self._act("out", load, rate, keys)
        elif self._below >= self.patience and not self._quiet["in"]:
            action = self._act("in", load, rate, keys)
        if action == "keep":
            self._quiet = {name: max(0, left - 1) for name, left in self._quiet.items()}
        done = {"out": "tasks were added", "in": "tasks were removed", "keep": "nothing was changed"}[action]
        return Scaled(
            self.maps, self.reduces, action, f"{measured}; {done}: {self.maps} map, {self.reduces} reduce tasks"
        )

    def _act(self, action: str, load: float, rate: float, keys: float) -> str:
        assert self._last is not None  # noqa: S101 - this tells the type checker
        sign = 1 if action == "out" else -1
        moved = [(now - before) * sign > 0 for now, before in zip((rate, keys), self._last, strict=True)]
        if not any(moved):
            moved = [True, True]
        before = (self.maps, self.reduces)
        if moved[0]:
            self.maps = self._changed(self.maps, sign, load)
        if moved[1]:
            self.reduces = self._changed(self.reduces, sign, load)
        if before == (self.maps, self.reduces):
            return "keep"
        self._above = self._below = 0
        self._last = (rate, keys)
        self._quiet = {"out": 0, "in": 0} | {"in" if action == "out" else "out": self.patience}
        return action

    def _changed(self, tasks: int, sign: int, load: float) -> int:
        wanted = ceil(min(tasks * load / (self.threshold - self.step / 2), self.most))
        fewest = 0 if sign < 0 and self.stride > 1 else 1
        change = min(max(sign * (wanted - tasks), fewest), self.stride)
        return min(max(tasks + sign * change, self.least), self.most)
