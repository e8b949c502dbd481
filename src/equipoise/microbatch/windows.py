"""Sliding and tumbling windows over the results of micro-batches, kept incrementally.

A window covers the last ``length`` batches and gives a result every ``slide`` batches. Each batch adds its buffers to
the window's. A batch that leaves the window is subtracted by the inverse of the merge. Without an inverse, its keys are
merged again from the remaining batches.
"""

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

from equipoise.arguments import whole
from equipoise.errors import InvalidArgumentError

K = TypeVar("K", bound=Hashable)
B = TypeVar("B")


def moved_on(
    total: B,
    panes: Sequence[tuple[int, B]],
    oldest: int,
    merge: Callable[[B, B], B],
    inverse: Callable[[B, B], B] | None,
) -> tuple[B, list[tuple[int, B]]]:
    """Total and panes of one key without the panes before ``oldest``; if no pane is left the total is undefined.

    Parameters
    ----------
    total
        Of all panes.
    panes
        Number of the batch and buffer of each, oldest first.
    oldest
        First batch of the window.
    merge, inverse
        As for ``Window``.
    """
    left = [pane for pane in panes if pane[0] >= oldest]
    if left and len(left) < len(panes):
        if inverse is not None and len(panes) - len(left) < len(left):
            for _, buffer in panes[: len(panes) - len(left)]:
                total = inverse(total, buffer)
        else:
            total = left[0][1]
            for _, buffer in left[1:]:
                total = merge(total, buffer)
    return total, left


class Window(Generic[K, B]):
    """Buffers of keys over the last batches.

    Guarantees
    ----------
    - The buffer of a key is that of its batches in the window merged in their order, up to what the inverse loses to
      rounding; a key that none of them has is not in the window.
    - With an inverse a batch costs as much as its own keys and those that fall out with it.

    Parameters
    ----------
    length, slide
        Batches that a window covers, and from one result to the next; equal for tumbling windows.
    merge
        One buffer of two.
    inverse
        The first buffer without the second; ``None`` where there is none.

    Examples
    --------
    >>> window = Window(2, 1, lambda a, b: a + b, lambda a, b: a - b)
    >>> [window.add(batch) for batch in ({"x": 1}, {"x": 2, "y": 5}, {"x": 4})]
    [{'x': 1}, {'x': 3, 'y': 5}, {'x': 6, 'y': 5}]
    """

    def __init__(
        self, length: int, slide: int, merge: Callable[[B, B], B], inverse: Callable[[B, B], B] | None = None
    ) -> None:
        self.length, self.slide = whole("length", length, 1), whole("slide", slide, 1)
        if self.slide > self.length:
            raise InvalidArgumentError(f"a slide of {slide} batches skips some: a window has {length}; slide by fewer")
        self._merge, self._inverse = merge, inverse
        self._batches: deque[Mapping[K, B]] = deque()
        self._totals: dict[K, B] = {}
        self._counts: dict[K, int] = {}
        self._since = 0

    def add(self, batch: Mapping[K, B]) -> dict[K, B] | None:
        """Add the buffers of a batch; return those of the window when a result is due, else ``None``."""
        self._batches.append(dict(batch))
        for key, buffer in batch.items():
            self._totals[key] = self._merge(self._totals[key], buffer) if key in self._totals else buffer
            self._counts[key] = self._counts.get(key, 0) + 1
        if len(self._batches) > self.length:
            self._drop(self._batches.popleft())
        self._since += 1
        if self._since < self.slide:
            return None
        self._since = 0
        return dict(self._totals)

    def _drop(self, batch: Mapping[K, B]) -> None:
        for key, buffer in batch.items():
            self._counts[key] -= 1
            if not self._counts[key]:
                del self._counts[key], self._totals[key]
            elif self._inverse is not None:
                self._totals[key] = self._inverse(self._totals[key], buffer)
            else:
                self._totals[key] = self._merged(key)

    def _merged(self, key: K) -> B:
        first, *others = [batch[key] for batch in self._batches if key in batch]
        for other in others:
            first = self._merge(first, other)
        return first
