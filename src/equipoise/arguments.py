"""Checks of arguments that many modules share, with one form of message."""

import operator
from collections.abc import Mapping
from inspect import Parameter, signature
from typing import Any, TypeVar

import numpy as np

from equipoise.errors import InvalidArgumentError

_T = TypeVar("_T")


def whole(name: str, value: object, least: int) -> int:
    """Return ``value`` as an int; refuse fractions, booleans, text, and numbers below ``least``.

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
        raise InvalidArgumentError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return number


def at_least(name: str, value: object, least: float) -> float:
    """Return ``value`` as a float; refuse NaN, infinity, text, and numbers below ``least``.

    Examples
    --------
    >>> at_least("slack", 0.5, 0)
    0.5
    """
    number = float(value) if isinstance(value, int | float | np.number) and not isinstance(value, bool) else np.nan
    if not (np.isfinite(number) and number >= least):
        raise InvalidArgumentError(f"{name} must be a finite number of at least {least}, got {value!r}")
    return number


def make_by_name(kind: str, classes: Mapping[str, type[_T]], name: str, options: Mapping[str, Any]) -> _T:
    """Make an instance of a registered class; refuse unknown names, unknown options and missing options.

    Parameters
    ----------
    kind
        Noun for the classes, used in messages.
    classes
        The registry: classes by name.
    name
        The class to make.
    options
        Its arguments, by keyword.

    Examples
    --------
    >>> make_by_name("number", {"whole": int, "complex": complex}, "complex", {"real": 2})
    (2+0j)
    """
    if name not in classes:
        raise InvalidArgumentError(f"there is no {kind} {name!r}; choose one of {', '.join(classes)}")
    known = signature(classes[name]).parameters
    unknown = sorted(set(options) - set(known))
    if unknown:
        there_are = ", ".join(known) or "none"
        raise InvalidArgumentError(f"{kind} {name!r} has no option {', '.join(unknown)}; it has {there_are}")
    missing = [each.name for each in known.values() if each.default is Parameter.empty and each.name not in options]
    if missing:
        raise InvalidArgumentError(f"{kind} {name!r} needs {missing[0]}; pass {missing[0]}=...")
    return classes[name](**options)
