"""Checks of the arrays that the measures are given."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.errors import InvalidArgumentError

ROUNDING = 1e-9
"""Relative difference that the order of summation may cause."""


def as_array(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return the values as an array; raise if they are rows of different lengths."""
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InvalidArgumentError(f"{name} cannot be read as an array: {error}") from error


def as_numbers(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return the values as an array of floats; raise for text, also if it spells numbers."""
    array = as_array(values, name)
    if array.dtype.kind not in "iuf":
        raise InvalidArgumentError(
            f"{name} must be numbers, got an array of {array.dtype}; convert them to float first"
        )
    return array.astype(np.float64, copy=False)


def as_vector(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return a one-dimensional array of at least one number, without NaN."""
    array = as_numbers(values, name)
    if array.ndim != 1 or array.size == 0:
        raise InvalidArgumentError(f"{name} must be a list of at least one number, got shape {array.shape}")
    if np.isnan(array).any():
        raise InvalidArgumentError(f"{name} must be without NaN, found one; fill in missing values first")
    return array


def as_amounts(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return a one-dimensional array of finite numbers of at least 0."""
    array = as_vector(values, name)
    if not np.all(np.isfinite(array) & (array >= 0)):
        bad = array[~(np.isfinite(array) & (array >= 0))][0]
        raise InvalidArgumentError(f"{name} must be finite numbers of at least 0, got {bad}")
    return array


def as_assignment(values: ArrayLike, workers: int) -> NDArray[np.int64]:
    """Return a one-dimensional array of workers in 0 .. workers - 1."""
    array = as_array(values, "an assignment")
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise InvalidArgumentError(
            f"an assignment is a list of at least one worker number, got {array.dtype} of shape {array.shape}"
        )
    if array.min() < 0 or array.max() >= workers:
        raise InvalidArgumentError(f"an assignment names a worker outside 0..{workers - 1}")
    return array.astype(np.int64, copy=False)
