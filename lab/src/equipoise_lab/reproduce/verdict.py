"""How our numbers are compared with a claim."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Verdict on a claim."""

    HOLDS = "holds"
    IN_SHAPE = "holds in shape"
    FAILS = "does not hold"


@dataclass(frozen=True)
class Finding:
    """A verdict, our numbers, and why.

    Parameters
    ----------
    verdict
        What became of the claim.
    ours
        Our numbers.
    reason
        Which conditions are met or not.
    """

    verdict: Verdict
    ours: str
    reason: str


def judged(ours: str, *, shape: Mapping[str, bool], numbers: Mapping[str, bool] | None = None) -> Finding:
    """Judge by conditions that were fixed before the run.

    The claim holds where all conditions are met; it holds in shape where those of its shape are met, the order of the
    methods or the direction of a change, but not those of its numbers; else it does not hold.

    Parameters
    ----------
    ours
        Our numbers, in words.
    shape
        Whether each condition of the shape is met, by what it says.
    numbers
        The same of the printed numbers; ``None``: the claim prints none.

    Examples
    --------
    >>> judged("3 and 5", shape={"the second is larger": True}, numbers={"the second is 10 or more": False})
    Finding(verdict=<Verdict.IN_SHAPE: 'holds in shape'>, ours='3 and 5', reason='not so: the second is 10 or more')
    """
    numbers = numbers or {}
    unmet = [each for each, met in {**shape, **numbers}.items() if not met]
    if not unmet:
        return Finding(Verdict.HOLDS, ours, f"so it is: {'; '.join([*shape, *numbers])}")
    verdict = Verdict.IN_SHAPE if all(shape.values()) else Verdict.FAILS
    return Finding(verdict, ours, f"not so: {'; '.join(unmet)}")


def near(ours: float, paper: float, part: float = 0.25) -> bool:
    """Whether our number is within a part of the paper's.

    Examples
    --------
    >>> near(0.08, 0.09), near(0.05, 0.09)
    (True, False)
    """
    return abs(ours - paper) <= part * abs(paper)


def same_order(ours: float, paper: float) -> bool:
    """Whether two numbers above 0 differ by less than a factor of ten."""
    return 0.1 < ours / paper < 10
