"""Names that no other process, machine or run uses."""

import uuid
from collections.abc import Callable

_source: Callable[[], str] = lambda: uuid.uuid4().hex  # noqa: E731 - replaced where the same names are wanted again


def unique_name() -> str:
    """A new name: 32 hexadecimal digits."""
    return _source()
