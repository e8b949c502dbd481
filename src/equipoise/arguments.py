"""Checks of arguments that many modules share, with one way to say what is wrong."""

import operator

import numpy as np

from equipoise.errors import InvalidArgument


def whole(name: str, value: object, least: int) -> int:
    """``value`` as an int; refuses fractions, booleans, text, and what is below ``least``.

    Examples
    --------
    >>> whole("partitions", np.int64(4), 1)
    4
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool | np.bool_) or number < least:
        raise InvalidArgument(f"{name} must be a whole number of at least {least}, got {value!r}")
    return number


def at_least(name: str, value: object, least: float) -> float:
    """``value`` as a float; refuses NaN, infinity, text, and what is below ``least``.

    Examples
    --------
    >>> at_least("slack", 0.5, 0)
    0.5
    """
    number = float(value) if isinstance(value, int | float | np.number) and not isinstance(value, bool) else np.nan
    if not (np.isfinite(number) and number >= least):
        raise InvalidArgument(f"{name} must be a finite number of at least {least}, got {value!r}")
    return number
