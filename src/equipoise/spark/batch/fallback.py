"""Measuring must never fail a job that runs without it."""

import warnings
from collections.abc import Callable
from typing import TypeVar

from equipoise.errors import EquipoiseError

_T = TypeVar("_T")


def measured_or(measure: Callable[[], _T], otherwise: Callable[[str], _T], what: str) -> _T:
    """What is made of a measurement; where that fails, a warning, and what is made without one.

    Our own errors, which tell of wrong arguments, are raised.

    Parameters
    ----------
    measure
        Measures and decides.
    otherwise
        Decides without a measurement; is told why there is none.
    what
        What could not be measured and what happens instead, for the warning.
    """
    try:
        return measure()
    except EquipoiseError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the user's job goes on
        warnings.warn(f"{what}: {error}", RuntimeWarning, stacklevel=4)
        return otherwise(str(error))
