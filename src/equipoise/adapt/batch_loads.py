"""What the tasks of one micro-batch measured."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from equipoise.arguments import whole
from equipoise.errors import InvalidArgumentError

_LARGEST = 1e30  # of all figures: they are recorded in single precision


class Work(NamedTuple):
    """What one group or one key took in one batch.

    Attributes
    ----------
    rows
        Rows, and timers, that were handled.
    seconds
        Time that they took.
    state
        Bytes of state after the batch; ``None``: not measured.
    """

    rows: float
    seconds: float
    state: float | None = None


@dataclass(frozen=True)
class BatchLoads:
    """What the tasks of one batch measured.

    Parameters
    ----------
    tail_groups
        H, number of tail groups.
    groups
        The tail groups that had anything to do, each with all its keys but the isolated ones.
    isolated
        Every key that the plan of the batch isolates, also those that had nothing to do.
    listed
        The hottest keys that are not isolated; their work is part of their group's.
    """

    tail_groups: int
    groups: Mapping[int, Work]
    isolated: Mapping[int, Work] = field(default_factory=dict)
    listed: Mapping[int, Work] = field(default_factory=dict)

    def __post_init__(self) -> None:
        whole("tail_groups", self.tail_groups, 1)
        outside = [group for group in self.groups if not 0 <= group < self.tail_groups]
        if outside:
            raise InvalidArgumentError(f"tail group {outside[0]} is not one of 0..{self.tail_groups - 1}")
        both = self.isolated.keys() & self.listed.keys()
        if both:
            raise InvalidArgumentError(
                f"key {min(both)} is both isolated and listed as part of its group; count it once"
            )
        for what, works in (("tail group", self.groups), ("key", self.isolated), ("key", self.listed)):
            for number, work in works.items():
                figures = (work.rows, work.seconds, work.state or 0.0)
                if not all(0 <= figure <= _LARGEST for figure in figures):
                    raise InvalidArgumentError(f"{what} {number} measured {work}; figures are in 0..{_LARGEST:.0g}")

    @property
    def rows(self) -> float:
        """Rows of the batch."""
        return float(sum(work.rows for works in (self.groups, self.isolated) for work in works.values()))

    @property
    def seconds(self) -> float:
        """Time of all tasks together."""
        return float(sum(work.seconds for works in (self.groups, self.isolated) for work in works.values()))
