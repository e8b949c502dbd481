"""User functions: the number of their arguments, as Spark counts them, and the traceback of their errors."""

import inspect
import traceback
from collections.abc import Callable
from typing import Any

_POSITIONAL = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}


def argument_count(function: Callable[..., Any]) -> int:
    """Return the number of positional parameters; keyword-only ones, and those bound by name, do not count.

    Spark passes the key to a function that has one more argument than there are frames.

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
    """Return the traceback of an error of the user's code, below our own call; Spark drops the cause of an error."""
    below = error.__traceback__.tb_next if error.__traceback__ else None
    return "".join(traceback.format_exception(type(error), error, below))
