"""Our numbers: rows of named values, as they are kept in JSON, and what checks and drawings ask of them."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import Any

from equipoise.errors import InvalidArgumentError

Row = dict[str, Any]
"""A measurement: what was run, and what came of it. Values are numbers, texts or ``None``."""


class Rows(Sequence[Row]):
    """Measurements, of which some can be asked for by their values.

    Parameters
    ----------
    rows
        The measurements.

    Examples
    --------
    >>> rows = Rows([{"method": "KG", "workers": w, "load": 10.0 * w} for w in (5, 10)])
    >>> rows.mean("load", workers=10), rows.line("workers", "load", method="KG")
    (100.0, ([5, 10], [50.0, 100.0]))
    """

    def __init__(self, rows: Iterable[Row]) -> None:
        self._rows = list(rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def where(self, **fixed: Any) -> "Rows":
        """Rows with the given values; one of several, where a tuple is given."""
        return Rows(
            row
            for row in self._rows
            if all(
                row.get(name) in value if isinstance(value, tuple) else row.get(name) == value
                for name, value in fixed.items()
            )
        )

    def column(self, name: str, **fixed: Any) -> list[Any]:
        """Values of one name, in the order of the rows."""
        return [row[name] for row in self.where(**fixed)]

    def distinct(self, name: str, **fixed: Any) -> list[Any]:
        """Values of one name, each once, in the order in which they come first."""
        return list(dict.fromkeys(self.column(name, **fixed)))

    def mean(self, name: str, **fixed: Any) -> float:
        """Mean of the values of one name, of which there is at least one."""
        values = self.column(name, **fixed)
        if not values:
            raise InvalidArgumentError(f"no row has {fixed}; run it again with --again")
        return fmean(values)

    def line(self, x: str, y: str, **fixed: Any) -> tuple[list[Any], list[float]]:
        """A line to draw: each value of ``x`` once, in increasing order, and the mean of ``y`` at it."""
        found = self.where(**fixed)
        places = sorted(found.distinct(x))
        return places, [found.mean(y, **{x: place}) for place in places]
