"""Input of a table or figure when it is run."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

_T = TypeVar("_T")


def _say_nothing(_done: int, _total: int) -> None:
    pass


@dataclass(frozen=True)
class Context:
    """Parameters, seed, data, and where to tell how far it is.

    Parameters
    ----------
    values
        Parameters by name, at the scale that is run.
    seed
        Seed of everything random.
    data
        Folder with recorded data; ``None``: generated data only.
    tell
        Called with the number of parts that are done, and of all parts.
    """

    values: Mapping[str, Any]
    seed: int = 1
    data: Path | None = None
    tell: Callable[[int, int], None] = field(default=_say_nothing)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def seeds(self, count: int) -> range:
        """Seeds of repeated runs."""
        return range(self.seed, self.seed + count)

    def track(self, work: Iterable[_T]) -> Iterator[_T]:
        """Go through the parts of the work, telling how far it is."""
        parts = list(work)
        for done, part in enumerate(parts):
            self.tell(done, len(parts))
            yield part
        self.tell(len(parts), len(parts))

    def file(self, name: str) -> Path | None:
        """Path of recorded data, or ``None`` where there are none."""
        if self.data is None or not (self.data / name).is_file():
            return None
        return self.data / name
