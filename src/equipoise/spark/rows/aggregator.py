"""The shape zero, reduce, merge, finish: results that can be built in parts and put together."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import pandas as pd
from pyspark.sql.types import StructType

from equipoise.errors import InvalidArgumentError


class Aggregator(ABC):
    """Folds the rows of a key into a buffer; where buffers can be merged, a key may be split.

    Laws that ``merge`` must keep: ``merge(zero(), b) == b``, it is associative and commutative, and reducing rows in
    two parts and merging gives what reducing them in one does.
    """

    bufferSchema: StructType | str  # noqa: N815 - as Spark names schemas
    """Schema of a buffer, which is a tuple."""

    takes_arrow: ClassVar[bool] = False
    """Whether streams give ``reduce`` Arrow tables in place of pandas frames."""

    @abstractmethod
    def zero(self) -> tuple[Any, ...]:
        """The buffer of no rows."""

    @abstractmethod
    def reduce(self, buffer: tuple[Any, ...], rows: pd.DataFrame) -> tuple[Any, ...]:
        """The buffer with more rows."""

    def merge(self, one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:  # noqa: ARG002 - for those who override it
        """One buffer for the rows of two; without it keys stay whole."""
        raise InvalidArgumentError(
            f"{type(self).__name__} has no merge, so its buffers cannot be put together; add one"
        )

    def inverse(self, whole: tuple[Any, ...], part: tuple[Any, ...]) -> tuple[Any, ...]:  # noqa: ARG002 - for those who override it
        """The buffer of ``whole`` without the rows of ``part``; with it a window takes off what falls out of it."""
        raise InvalidArgumentError(
            f"{type(self).__name__} has no inverse, so rows cannot be taken off a buffer; add one"
        )

    @abstractmethod
    def finish(self, key: tuple[Any, ...], buffer: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The output row of a key whose buffer has changed; ``None`` for none."""

    @property
    def can_merge(self) -> bool:
        """Whether there is a ``merge``, so that a key may be split."""
        return type(self).merge is not Aggregator.merge

    @property
    def can_invert(self) -> bool:
        """Whether there is an ``inverse``; without it windows are merged anew."""
        return type(self).inverse is not Aggregator.inverse
