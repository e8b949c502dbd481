"""Threshold sampling of rows, and bounds of the true counts.

At scale z, a row of weight w >= z is always sampled, with its weight. A lighter row is sampled with probability w / z,
and then counts as z. The expected sampled weight S of a key is therefore its true weight T, and S - T is a martingale
over the rows. Its steps are at most z, and its variance is the sum of w (z - w), at most (z - 1) T for weights of 1 or
more. By Freedman's inequality, except with a probability p, with L = ln(1 / p),

    |S - T| <= zL/3 + sqrt((zL/3)^2 + 2 (z - 1) L T)

in either direction. Solved for T, this gives the two bounds below. The scale grows as sampling backs off, and rows are
forgotten, at moments that depend on the sample. So p is divided among all possible numbers j of boundaries at which
that can have happened, as 1 / ((j + 1)(j + 2)), which add up to 1, and among the j + 1 moments at which the rows that
are remembered can begin. The bounds also hold for the sum of independent samples, each at a scale of at most z.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from equipoise.kernels import kernel

FAILURE_PROBABILITY = 1e-9
"""Probability that the bounds of one queried key miss the truth because of sampling."""

_GAMMA = np.uint64(0x9E3779B97F4A7C15)


@kernel
def mixed(state: Any) -> Any:
    """Output function of splitmix64."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@kernel
def uniform(random: Any) -> float:
    """Next number in [0, 1) of splitmix64; ``random`` is an array that holds its state."""
    random[0] += _GAMMA
    return float(mixed(random[0]) >> np.uint64(11)) * 2.0**-53


@dataclass(frozen=True)
class SamplingError:
    """Largest distance between a true count and its sampled weight.

    Parameters
    ----------
    step
        zL/3, the term of the largest step.
    spread
        (z - 1) L, the term of the variance.
    """

    step: float
    spread: float

    @classmethod
    def of(cls, scale: float, boundaries: int) -> "SamplingError":
        """Return the error at a scale of at most ``scale`` after a number of boundaries; none at a scale of 1."""
        if scale == 1:
            return cls(0.0, 0.0)
        log = math.log(2 * (boundaries + 1) ** 2 * (boundaries + 2) / FAILURE_PROBABILITY)  # 2: either direction
        return cls(scale * log / 3, (scale - 1) * log)

    def at_least(self, sampled: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the lower bound of the true counts."""
        root = np.sqrt((self.spread - self.step) ** 2 + 2 * self.spread * sampled)
        bound: NDArray[np.float64] = np.where(sampled < 2 * self.step, 0.0, sampled - self.step + self.spread - root)
        return np.maximum(bound, 0.0)

    def at_most(self, sampled: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the upper bound of the true counts."""
        margin = self.step + self.spread
        bound: NDArray[np.float64] = sampled + margin + np.sqrt(margin**2 + 2 * self.spread * sampled)
        return bound
