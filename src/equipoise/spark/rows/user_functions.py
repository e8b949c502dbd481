"""User functions: the number of their arguments, as Spark counts them, and the line and traceback of their errors."""

import inspect
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equipoise

_PACKAGE = str(Path(equipoise.__file__).parent) + os.sep
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


def raised_at(error: Exception, what: str = "") -> str:
    """Return the last place in the user's code that an exception passed through, in brackets; empty without one.

    The name of the function there is left out if ``what`` ends with it.
    """
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith(_PACKAGE)]
    own = [each for each in frames if each.filename == frames[0].filename]  # not the libraries that it calls
    if not own:
        return ""
    function = "" if own[-1].name == what.rpartition(".")[2] else f", in {own[-1].name}"
    return f" ({own[-1].filename}, line {own[-1].lineno}{function})"
