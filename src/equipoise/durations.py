"""Durations in the form in which users write them."""

import re

from equipoise.errors import InvalidArgumentError

_UNITS = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(millisecond|second|minute|hour)s?\s*")


def seconds_of(name: str, duration: str | float) -> float:
    """Return the seconds of a duration, given as a number of seconds or as text such as ``"30 seconds"``.

    Parameters
    ----------
    name
        Name of the argument, for the error message.
    duration
        Number of seconds, or text with a unit.

    Examples
    --------
    >>> seconds_of("window", "1.5 minutes"), seconds_of("window", 2)
    (90.0, 2.0)
    """
    if isinstance(duration, str):
        found = _DURATION.fullmatch(duration)
        if found is not None:
            seconds = float(found[1]) * _UNITS[found[2]]
        else:
            try:
                seconds = float(duration)
            except ValueError:
                raise InvalidArgumentError(
                    f"{name} must be a number of seconds or a text such as '500 milliseconds', '30 seconds' or "
                    f"'2 hours', got {duration!r}"
                ) from None
    else:
        seconds = float(duration)
    if not seconds > 0:
        raise InvalidArgumentError(f"{name} must exceed 0 seconds, got {duration!r}")
    return seconds
