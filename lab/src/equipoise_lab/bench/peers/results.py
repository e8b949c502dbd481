"""Results of the comparison with peers: raw seconds, from which everything else is derived."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from equipoise_lab.bench.harness import Ratio, median, paired


class Comparison(msgspec.Struct):
    """Seconds of every contender on one piece of work.

    Parameters
    ----------
    name
        What the work is.
    what
        The same in a sentence or two.
    ours
        Names of the contenders that are ours.
    seconds
        Of every contender in every round.
    whole
        Names of the contenders that keep every key whole, and so run any function; empty if that is not compared.
    """

    name: str
    what: str
    ours: tuple[str, ...]
    seconds: dict[str, list[float]]
    whole: tuple[str, ...] = ()

    def time(self, name: str) -> float:
        """Median seconds of a contender."""
        return median(self.seconds[name])

    @property
    def peers(self) -> list[str]:
        """All contenders but ours."""
        return [name for name in self.seconds if name not in self.ours]

    @property
    def best_of_ours(self) -> str:
        """The fastest of ours."""
        return min(self.ours, key=self.time)

    @property
    def best_peer(self) -> str:
        """The fastest of the others."""
        return min(self.peers, key=self.time)

    @property
    def duels(self) -> list["Duel"]:
        """Best of ours against the best of the others: of all, and of those that keep keys whole."""
        return [min(found, key=lambda duel: self.time(duel.peer)) for found in self._contests()]

    @property
    def losses(self) -> list["Duel"]:
        """Best of ours against every other that is faster: of all, and of those that keep keys whole; worst first."""
        lost = {(duel.ours, duel.peer): duel for found in self._contests() for duel in found if duel.ratio.median > 1}
        return sorted(lost.values(), key=lambda duel: -duel.ratio.median)

    @property
    def over_best_peer(self) -> float:
        """Time of the best of ours over that of the best peer; below 1 where ours is faster."""
        return self.duels[0].ratio.median

    @property
    def whole_over_best_peer(self) -> float | None:
        """The same among the contenders that keep keys whole; ``None`` if that is not compared."""
        return self.duels[1].ratio.median if self.whole else None

    def _contests(self) -> list[list["Duel"]]:
        """Best of ours against every other: of all, and of those that keep keys whole."""
        among = {self.name: tuple(self.seconds)} | ({f"{self.name}, keys whole": self.whole} if self.whole else {})
        found = []
        for name, names in among.items():
            ours = min((each for each in self.ours if each in names), key=self.time)
            found.append([Duel(name, self, ours, peer) for peer in self.peers if peer in names])
        return found

    @property
    def families(self) -> dict[str, list[str]]:
        """Contenders that differ in a number only, such as ``salted 8``, under one name; the others by themselves."""
        found: dict[str, list[str]] = {}
        for name in self.seconds:
            found.setdefault(re.sub(r" x?\d+$", "", name), []).append(name)
        return found


class Duel(NamedTuple):
    """The best of ours and the best of the others on one piece of work."""

    name: str
    table: Comparison
    ours: str
    peer: str

    @property
    def ratio(self) -> Ratio:
        """Time of ours over that of the other in each round; below 1 where ours is faster."""
        return paired(self.table.seconds[self.ours], self.table.seconds[self.peer])


def worst_first(tables: Sequence[Comparison]) -> list[Duel]:
    """Return the duels of all tables, losses first."""
    return sorted((duel for table in tables for duel in table.duels), key=lambda duel: -duel.ratio.median)


def slug(name: str) -> str:
    """Return the name of a piece of work for metrics.

    Examples
    --------
    >>> slug("grouped Python function, Zipf 1.2")
    'grouped_python_function_zipf_1_2'
    """
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


class Point(msgspec.Struct):
    """Seconds of every contender at one point of a curve."""

    at: float
    seconds: dict[str, list[float]]


class Curve(msgspec.Struct):
    """How times change with one size.

    Parameters
    ----------
    name
        What is changed.
    what
        What else there is to know, in a sentence or two.
    points
        In increasing order.
    """

    name: str
    what: str
    points: list[Point]


class Results(msgspec.Struct):
    """All tables and curves."""

    tables: list[Comparison]
    curves: list[Curve]
