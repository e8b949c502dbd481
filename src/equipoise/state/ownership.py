"""Key groups of a plan, their owners, and the handover of keys when the plan changes.

Names of key groups: ``t00017`` is tail group 17, ``k`` and 16 hexadecimal digits is an isolated key. For routing a
group has a number: its tail group, or H plus the position of the isolated key among the sorted ones.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from equipoise.plan import Plan
from equipoise.readable import fingerprint_text


def tail_group(number: int) -> str:
    """Name of a tail group.

    Examples
    --------
    >>> tail_group(17)
    't00017'
    """
    return f"t{number:05d}"


def key_group(fingerprint: int) -> str:
    """Name of the key group of an isolated key.

    Examples
    --------
    >>> key_group(-1)
    'kffffffffffffffff'
    """
    return f"k{fingerprint_text(fingerprint)}"


def fingerprint_of(group: str) -> int | None:
    """Fingerprint of the key that a key group isolates; ``None`` for a tail group.

    Examples
    --------
    >>> fingerprint_of(key_group(-5)), fingerprint_of("t00001")
    (-5, None)
    """
    if group[0] == "t":
        return None
    unsigned = int(group[1:], 16)
    return unsigned - 2**64 if unsigned >= 2**63 else unsigned


@dataclass(frozen=True)
class Layout:
    """The key groups of a plan."""

    plan: Plan

    @cached_property
    def names(self) -> list[str]:
        """Name of each key group, by its number."""
        tail = [tail_group(number) for number in range(self.plan.tail_groups)]
        return tail + [key_group(key) for key in self.plan.isolated_keys.tolist()]

    @cached_property
    def owners(self) -> NDArray[np.int32]:
        """Partition of each key group, by its number."""
        return np.concatenate([self.plan.tail, self.plan.assign(self.plan.isolated_keys)]).astype(np.int32)


def arrivals(before: Plan, after: Plan) -> frozenset[int]:
    """Return the numbers, under plan ``after``, of the key groups whose owner receives state for them."""
    keys = after.isolated_keys
    new = ~np.isin(keys, before.isolated_keys)
    moved = np.concatenate([before.tail != after.tail, new | (before.assign(keys) != after.assign(keys))])
    folded = np.setdiff1d(before.isolated_keys, keys)
    return frozenset([*np.flatnonzero(moved).tolist(), *np.mod(folded, after.tail_groups).tolist()])


@dataclass(frozen=True)
class Handover:
    """Keys whose entries move to another key group when one plan follows another.

    Parameters
    ----------
    isolated
        For each new key group: the tail group that its entries are taken from.
    folded
        For each tail group: the key groups that are removed and whose entries it takes back.
    """

    isolated: dict[str, str]
    folded: dict[str, list[str]]

    @classmethod
    def between(cls, before: Plan, after: Plan) -> "Handover":
        """The handover from plan ``before`` to plan ``after``."""
        earlier, later = set(before.isolated), set(after.isolated)
        isolated = {key_group(key): _home(key, after) for key in sorted(later - earlier)}
        folded: dict[str, list[str]] = {}
        for key in sorted(earlier - later):
            folded.setdefault(_home(key, after), []).append(key_group(key))
        return cls(isolated, folded)

    @cached_property
    def leaving(self) -> dict[str, list[int]]:
        """For each tail group: the fingerprints whose entries leave it."""
        leaving: dict[str, list[int]] = {}
        for group, source in self.isolated.items():
            fingerprint = fingerprint_of(group)
            assert fingerprint is not None  # noqa: S101 - this tells the type checker
            leaving.setdefault(source, []).append(fingerprint)
        return leaving


def _home(key: int, plan: Plan) -> str:
    return tail_group(key % plan.tail_groups)
