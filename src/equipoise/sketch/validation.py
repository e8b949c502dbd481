"""Reading stored sketches: whatever is wrong inside a sound envelope is damage, too."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import msgspec

from equipoise.errors import DamagedError, FormatError
from equipoise.sketch.base import MAX_TOTAL

Total = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOTAL)]
"""Weight seen, as a field of a stored sketch."""


@contextmanager
def reading(kind: str) -> Iterator[None]:
    """Turn a field of the wrong type, a bad parameter or a broken array into ``DamagedError``."""
    try:
        yield
    except FormatError:
        raise
    except (ValueError, OverflowError) as error:  # msgspec's and numpy's complaints, and our InvalidArgumentError
        raise DamagedError(
            f"stored {kind} has impossible contents: {error}; restore it from a copy or rebuild it"
        ) from error


def require(kind: str, holds: bool, what: str) -> None:
    """Refuse contents that contradict each other."""
    if not holds:
        raise DamagedError(f"stored {kind} contradicts itself: {what}; restore it from a copy or rebuild it")
