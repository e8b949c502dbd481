"""User functions: how many arguments they take, as Spark counts them, and the traceback of what they raise."""

import inspect
import traceback
from collections.abc import Callable
from typing import Any

_POSITIONAL = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}


def argument_count(function: Callable[..., Any]) -> int:
    """Number of positional parameters; those that are bound by name in a ``partial``, or keyword-only, do not count.

    Spark hands the key to a function of one argument more than there are frames.

    Examples
    --------
    >>> from functools import partial
    >>> argument_count(lambda key, rows: rows)
    2
    >>> argument_count(partial(lambda rows, q: rows, q=0.5))
    1
    """
    return sum(each.kind in _POSITIONAL for each in inspect.signature(function).parameters.values())


def traced(error: Exception) -> str:
    """Traceback of what the user's code raised, below our own call; Spark does not pass on the cause of an error."""
    below = error.__traceback__.tb_next if error.__traceback__ else None
    return "".join(traceback.format_exception(type(error), error, below))
