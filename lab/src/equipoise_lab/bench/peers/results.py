"""Results of the comparison with peers: raw seconds, from which everything else is derived."""

import re

import msgspec

from equipoise_lab.bench.harness import median


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
    """

    name: str
    what: str
    ours: tuple[str, ...]
    seconds: dict[str, list[float]]

    @property
    def slug(self) -> str:
        """Name for metrics."""
        return re.sub(r"[^a-z0-9]+", "_", self.name.lower()).strip("_")

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
    def over_best_peer(self) -> float:
        """Time of the best of ours over that of the best peer; below 1 where ours is faster."""
        return self.time(self.best_of_ours) / self.time(self.best_peer)

    @property
    def families(self) -> dict[str, list[str]]:
        """Contenders that differ in a number only, such as ``salted 8``, under one name; the others by themselves."""
        found: dict[str, list[str]] = {}
        for name in self.seconds:
            found.setdefault(re.sub(r" x?\d+$", "", name), []).append(name)
        return found


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
