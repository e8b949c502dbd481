"""Conformance checks for aggregators: a key may be split only if its buffers can be merged in any order."""

import math
from collections.abc import Sequence
from itertools import pairwise, permutations
from typing import Any, Protocol

import numpy as np
import pandas as pd

from equipoise.errors import CheckError

_PARTS = 4
_CLOSE = 1e-9  # by this part, or by this much, two floats may differ: sums of floats depend on their order


class Mergeable(Protocol):
    """What is checked: zero, reduce and merge."""

    def zero(self) -> Any:
        """The buffer of no rows."""

    def reduce(self, buffer: Any, rows: pd.DataFrame) -> Any:
        """The buffer with more rows."""

    def merge(self, one: Any, other: Any) -> Any:
        """One buffer for the rows of two."""


def check_merge(aggregator: Mergeable, rows: pd.DataFrame) -> None:
    """Try the laws of ``merge`` on some rows.

    Parameters
    ----------
    aggregator
        What to check.
    rows
        Rows as ``reduce`` is given them; they are cut into parts and reduced one by one. None tell nothing.

    Raises
    ------
    CheckError
        With the law that does not hold, and the buffers that show it.
    """
    name = type(aggregator).__name__
    size = max(1, len(rows) // _PARTS)
    frames = [rows.iloc[start : start + size].reset_index(drop=True) for start in range(0, len(rows), size)][:_PARTS]

    def reduced(*parts: pd.DataFrame) -> Any:
        buffer = aggregator.zero()
        for part in parts:
            buffer = aggregator.reduce(buffer, part)
        return buffer

    def require(law: str, one: Any, other: Any) -> None:
        if not alike(one, other):
            raise CheckError(f"{name}.merge: {law} does not hold, so no key may be split: {one!r} is not {other!r}")

    for frame in frames:
        require("merge(zero(), b) == b", aggregator.merge(aggregator.zero(), reduced(frame)), reduced(frame))
        require("merge(b, zero()) == b", aggregator.merge(reduced(frame), aggregator.zero()), reduced(frame))
    for first, second in pairwise(frames):
        one, other = (
            aggregator.merge(reduced(first), reduced(second)),
            aggregator.merge(reduced(second), reduced(first)),
        )
        require("merge(a, b) == merge(b, a)", one, other)
        together = reduced(pd.concat([first, second], ignore_index=True))
        require("reducing in two parts and merging is reducing at once", one, together)
    for a, b, c in permutations(frames[:3], 3):
        left = aggregator.merge(aggregator.merge(reduced(a), reduced(b)), reduced(c))
        right = aggregator.merge(reduced(a), aggregator.merge(reduced(b), reduced(c)))
        require("merge(merge(a, b), c) == merge(a, merge(b, c))", left, right)


def alike(one: Any, other: Any) -> bool:
    """Whether two buffers are equal, but for what the order of float sums does.

    Examples
    --------
    >>> alike((1, [0.1 + 0.2]), (1, [0.3])), alike((0.1 + 0.2 - 0.3,), (0.0,)), alike((1, 2), (2, 1))
    (True, True, False)
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if _is_row(one) and _is_row(other):
        return len(one) == len(other) and all(alike(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, int | float):
        return (one != one and other != other) or math.isclose(one, other, rel_tol=_CLOSE, abs_tol=_CLOSE)  # noqa: PLR0124 - NaN
    return bool(one == other)


def _is_row(value: object) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)
