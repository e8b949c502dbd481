"""Conformance checks for aggregators: a key may be split only if its partial buffers can be merged in any order."""

import math
from collections.abc import Sequence
from itertools import pairwise, permutations
from typing import Any, Protocol

import numpy as np
import pandas as pd

from equipoise.errors import CheckError

_CHUNKS = 4
_CLOSE = 1e-9  # relative and absolute difference of floats that count as equal: sums depend on their order


class Mergeable(Protocol):
    """Interface that is checked: zero, reduce and merge."""

    def zero(self) -> Any:
        """Return the buffer of no rows."""

    def reduce(self, buffer: Any, rows: pd.DataFrame) -> Any:
        """Return the buffer after more rows."""

    def merge(self, one: Any, other: Any) -> Any:
        """Return one buffer for the rows of two."""


def check_merge(aggregator: Mergeable, rows: pd.DataFrame) -> None:
    """Check on sample rows that ``merge`` has a zero, is commutative and associative, and agrees with ``reduce``.

    Parameters
    ----------
    aggregator
        Aggregator to check.
    rows
        Sample rows, in the form that ``reduce`` gets. They are reduced in up to four chunks. Without rows nothing is
        checked.

    Raises
    ------
    CheckError
        If a law does not hold; the message has the law and two buffers that differ.

    Examples
    --------
    >>> class Longest:
    ...     def zero(self): return ""
    ...     def reduce(self, buffer, rows): return max([buffer, *rows["word"]], key=len)
    ...     def merge(self, one, other): return max(one, other, key=len)
    >>> check_merge(Longest(), pd.DataFrame({"word": ["a", "to", "the"]}))
    >>> check_merge(Longest(), pd.DataFrame({"word": ["a", "to", "be"]}))
    Traceback (most recent call last):
    equipoise.errors.CheckError: Longest.merge: merge(a, b) == merge(b, a) does not hold: 'to' is not 'be'; ...
    """
    name = type(aggregator).__name__
    size = max(1, len(rows) // _CHUNKS)
    frames = [rows.iloc[start : start + size].reset_index(drop=True) for start in range(0, len(rows), size)][:_CHUNKS]

    def reduced(chunk: pd.DataFrame) -> Any:
        return aggregator.reduce(aggregator.zero(), chunk)

    def require(law: str, one: Any, other: Any) -> None:
        if not alike(one, other):
            raise CheckError(
                f"{name}.merge: {law} does not hold: {one!r} is not {other!r}; correct merge, or do not split keys"
            )

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
        require("merging two partial buffers equals reducing all rows at once", one, together)
    for a, b, c in permutations(frames[:3], 3):
        left = aggregator.merge(aggregator.merge(reduced(a), reduced(b)), reduced(c))
        right = aggregator.merge(reduced(a), aggregator.merge(reduced(b), reduced(c)))
        require("merge(merge(a, b), c) == merge(a, merge(b, c))", left, right)


def alike(one: Any, other: Any) -> bool:
    """Return whether two buffers are equal, up to the rounding of sums of floats.

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
