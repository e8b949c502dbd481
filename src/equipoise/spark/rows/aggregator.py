"""The base class of user aggregators: zero, reduce, merge, finish."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import pandas as pd
from pyspark.sql.types import StructType

from equipoise.errors import InvalidArgumentError


class Aggregator(ABC):
    """Folds the rows of a key into a buffer; with ``merge``, a key may be split.

    ``merge`` must be associative and commutative, with ``merge(zero(), b) == b``. Merging the buffers of two sets of
    rows must give the buffer of all of them.
    """

    bufferSchema: StructType | str  # noqa: N815 - as Spark names schemas
    """Schema of a buffer, which is a tuple."""

    takes_arrow: ClassVar[bool] = False
    """Whether ``reduce`` receives Arrow tables instead of pandas frames in streams."""

    @abstractmethod
    def zero(self) -> tuple[Any, ...]:
        """Return the buffer of no rows."""

    @abstractmethod
    def reduce(self, buffer: tuple[Any, ...], rows: pd.DataFrame) -> tuple[Any, ...]:
        """Return the buffer with more rows added."""

    def merge(self, one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:  # noqa: ARG002 - for subclasses
        """Return one buffer for the rows of two; without this method keys stay whole."""
        raise InvalidArgumentError(f"{type(self).__name__} has no merge, so its buffers cannot be combined; add one")

    def inverse(self, whole: tuple[Any, ...], part: tuple[Any, ...]) -> tuple[Any, ...]:  # noqa: ARG002 - for subclasses
        """Return the buffer of ``whole`` without the rows of ``part``; windows use it to subtract old rows."""
        raise InvalidArgumentError(
            f"{type(self).__name__} has no inverse, so rows cannot be subtracted from a buffer; add one"
        )

    @abstractmethod
    def finish(self, key: tuple[Any, ...], buffer: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the output row of a key whose buffer has changed, or ``None``."""

    @property
    def can_merge(self) -> bool:
        """Whether there is a ``merge``, so that a key may be split."""
        return type(self).merge is not Aggregator.merge

    @property
    def can_invert(self) -> bool:
        """Whether there is an ``inverse``; without it windows are merged again."""
        return type(self).inverse is not Aggregator.inverse
