"""Rate curves: how many tuples a replayed or generated feed has sent by a given time."""

import math
from dataclasses import dataclass

from equipoise.arguments import at_least
from equipoise.errors import InvalidArgumentError

CURVES = ("constant", "sinusoidal", "step", "ramp")
"""Names of the curves."""


@dataclass(frozen=True)
class Rate:
    """A rate of tuples over time.

    Parameters
    ----------
    rate
        Tuples a second: always, on average (sinusoidal), or at first (step, ramp).
    curve
        ``constant``; ``sinusoidal`` between ``rate - swing`` and ``rate + swing``; ``step`` to ``rate + swing`` after
        ``period`` seconds; ``ramp`` to ``rate + swing`` over ``period`` seconds, and back over as many.
    swing
        Tuples a second by which the rate changes.
    period
        Seconds, as ``curve`` says.

    Examples
    --------
    >>> Rate(100).sent(2.5), Rate(100, "step", swing=100, period=2).sent(3), Rate(0, "ramp", swing=10, period=2).sent(4)
    (250.0, 400.0, 20.0)
    """

    rate: float
    curve: str = "constant"
    swing: float = 0.0
    period: float = 60.0

    def __post_init__(self) -> None:
        if self.curve not in CURVES:
            raise InvalidArgumentError(f"curve must be one of {', '.join(CURVES)}, got {self.curve!r}")
        at_least("rate", self.rate, 0)
        if not self.period > 0:
            raise InvalidArgumentError(f"period must exceed 0 seconds, got {self.period}")
        if self.rate + self.swing < 0 or (self.curve == "sinusoidal" and abs(self.swing) > self.rate):
            raise InvalidArgumentError(
                f"a rate of {self.rate} with a swing of {self.swing} falls below 0; take less swing"
            )

    def sent(self, seconds: float) -> float:
        """Tuples sent from the start until then."""
        steady = float(self.rate * seconds)
        if self.curve == "sinusoidal":
            turn = 2 * math.pi / self.period
            return steady + self.swing / turn * (1 - math.cos(turn * seconds))
        if self.curve == "step":
            return steady + self.swing * max(0.0, seconds - self.period)
        if self.curve == "ramp":
            up = min(seconds, self.period)
            down = min(max(0.0, seconds - self.period), self.period)
            return steady + self.swing / self.period * (up * up / 2 + down * self.period - down * down / 2)
        return steady

    def when(self, tuples: float) -> float:
        """Seconds from the start after which so many tuples were sent."""
        if tuples <= 0:
            return 0.0
        late = 1.0
        while self.sent(late) < tuples:
            if late > 1e9:
                raise InvalidArgumentError(f"a rate of {self.rate} never comes to {tuples} tuples; give a higher one")
            late *= 2
        early = 0.0
        for _ in range(60):
            middle = (early + late) / 2
            early, late = (middle, late) if self.sent(middle) < tuples else (early, middle)
        return late
