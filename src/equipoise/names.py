"""Names that no other process, machine or run uses."""

import uuid
from collections.abc import Callable

_source: Callable[[], str] = lambda: uuid.uuid4().hex  # noqa: E731 - simulations replace it, for reproducible names


def unique_name() -> str:
    """Return a new name of 32 hexadecimal digits."""
    return _source()
