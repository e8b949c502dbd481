"""Partitioning plan: immutable, versioned, stored as readable JSON.

Stored form, UTF-8 JSON::

    {"format": "equipoise-plan", "format_version": 2,
     "sha256": "<of the plan below, as compact JSON with sorted keys>",
     "plan": {"version": 3, "parent": 2, "planner": "kip", "reason": "...", "hash_seed": 42, "partitions": 4,
              "isolated": {"<fingerprint, 16 hexadecimal digits>": <partition>, ...},
              "tail": [<partition of tail group 0>, ...]}}
"""

import hashlib
import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.arguments import whole
from equipoise.errors import DamagedError, InvalidArgumentError, MismatchError, UnknownFormatError
from equipoise.fingerprint_table import EMPTY, get, new_table, put_all
from equipoise.hashing import FINGERPRINT_SEED, as_fingerprints
from equipoise.kernels import kernel
from equipoise.pictures import plan_figure
from equipoise.readable import fingerprint_text
from equipoise.sketch.histogram import Histogram

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT = "equipoise-plan"
FORMAT_VERSION = 2

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


_Hexadecimal = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    """Fields of a stored plan; its checksum covers exactly these."""

    version: int
    parent: int | None
    planner: str
    reason: str
    hash_seed: int
    partitions: int
    isolated: dict[_Hexadecimal, int]
    tail: list[int]


class _Head(msgspec.Struct):
    """Fields that every version of the format has."""

    format: str
    format_version: int


class _File(_Head):
    sha256: str
    plan: msgspec.Raw


@kernel
def _assign(fingerprints: Any, tail: Any, keys: Any, partitions: Any, out: Any) -> None:
    groups = len(tail)
    is_power_of_two = groups & (groups - 1) == 0
    for i in range(len(fingerprints)):
        fingerprint = fingerprints[i]
        partition = get(keys, partitions, fingerprint)
        if partition == EMPTY:
            group = fingerprint & (groups - 1) if is_power_of_two else fingerprint % groups
            partition = tail[group]
        out[i] = partition


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """Assignment of keys to partitions: isolated keys one by one, all others by tail group.

    A key with fingerprint ``f`` goes to ``isolated[f]`` if it is isolated, else to ``tail[f mod H]``.

    Guarantees
    ----------
    - Every key has exactly one partition in ``0 .. partitions - 1``.
    - A plan never changes; ``from_json(to_json())`` equals it, and equal plans have equal JSON.

    Parameters
    ----------
    partitions
        N, the number of partitions.
    tail
        Partition of each of the H tail groups; H is at least N.
    isolated
        Partition of each isolated fingerprint.
    version
        Number of this plan in its sequence of plans, from 0.
    planner
        Name of the planner that made it.
    reason
        Why it was made, in one line, with numbers.
    parent
        Version of the plan it was made from; ``None`` for the first.
    hash_seed
        Seed of the fingerprints it routes.

    Examples
    --------
    >>> plan = Plan(2, [0, 1, 0, 1], {7: 0}, reason="by hand")
    >>> plan.assign([4, 5, 7]).tolist()
    [0, 1, 0]
    >>> Plan.from_json(plan.to_json()) == plan
    True
    """

    partitions: int
    tail: NDArray[np.int32]
    isolated: Mapping[int, int]
    version: int
    planner: str
    reason: str
    parent: int | None
    hash_seed: int

    def __init__(
        self,
        partitions: int,
        tail: ArrayLike,
        isolated: Mapping[int, int] | None = None,
        *,
        version: int = 0,
        planner: str = "manual",
        reason: str = "",
        parent: int | None = None,
        hash_seed: int = FINGERPRINT_SEED,
    ) -> None:
        partitions = whole("partitions", partitions, 1)
        owners = np.array(tail)
        if owners.ndim != 1:
            raise InvalidArgumentError(
                f"tail must be one list with a partition for each group, got shape {owners.shape}"
            )
        if len(owners) < partitions:
            raise InvalidArgumentError(
                f"{partitions} partitions need at least {partitions} tail groups, got {len(owners)}; "
                "with fewer, some partitions could never receive a tail key"
            )
        if owners.dtype.kind not in "iu" or owners.min() < 0 or owners.max() >= partitions:
            raise InvalidArgumentError(f"every tail group needs a partition, a whole number in 0..{partitions - 1}")
        owners = np.ascontiguousarray(owners, dtype=np.int32)
        owners.setflags(write=False)
        object.__setattr__(self, "partitions", partitions)
        object.__setattr__(self, "tail", owners)
        object.__setattr__(self, "isolated", MappingProxyType(_checked(isolated or {}, partitions)))
        object.__setattr__(self, "version", whole("version", version, 0))
        object.__setattr__(self, "planner", str(planner))
        object.__setattr__(self, "reason", str(reason))
        object.__setattr__(self, "parent", None if parent is None else whole("parent", parent, 0))
        object.__setattr__(self, "hash_seed", whole("hash_seed", hash_seed, _LOWEST))

    @property
    def tail_groups(self) -> int:
        """H, the number of tail groups."""
        return len(self.tail)

    @cached_property
    def isolated_keys(self) -> NDArray[np.int64]:
        """Fingerprints of the isolated keys, ascending."""
        return np.fromiter(self.isolated.keys(), dtype=np.int64, count=len(self.isolated))

    @cached_property
    def _table(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        keys, partitions = new_table(max(1, len(self.isolated)))
        targets = np.fromiter(self.isolated.values(), dtype=np.int32, count=len(self.isolated))
        put_all(keys, partitions, self.isolated_keys, targets)
        return keys, partitions

    def assign(self, fingerprints: ArrayLike) -> NDArray[np.int32]:
        """Return the partition of each fingerprint."""
        keys = as_fingerprints(fingerprints)
        out = np.empty(len(keys), dtype=np.int32)
        _assign(keys, self.tail, *self._table, out)
        return out

    def tail_group_of(self, fingerprints: ArrayLike) -> NDArray[np.int64]:
        """Return the tail group of each fingerprint, whether or not the key is isolated."""
        return np.mod(as_fingerprints(fingerprints), self.tail_groups)

    def same_routing(self, other: "Plan") -> bool:
        """Return whether both plans have the same partitions, tail and isolated keys."""
        return (
            self.partitions == other.partitions
            and self.hash_seed == other.hash_seed
            and np.array_equal(self.tail, other.tail)
            and self.isolated == other.isolated
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        mine = (self.version, self.planner, self.reason, self.parent)
        return self.same_routing(other) and mine == (other.version, other.planner, other.reason, other.parent)

    __hash__ = None  # type: ignore[assignment]  # compared by value; use the version as a dictionary key

    def __repr__(self) -> str:
        return (
            f"Plan(version={self.version}, planner={self.planner!r}, partitions={self.partitions}, "
            f"tail_groups={self.tail_groups}, isolated={len(self.isolated)}, reason={self.reason!r})"
        )

    def plot(self, histogram: Histogram | None = None) -> "Figure":
        """Draw the key groups of each partition or, with a histogram, its load.

        Parameters
        ----------
        histogram
            Shares of the hot keys. The rest is assumed to be spread evenly over the tail groups.
        """
        title = f"Plan {self.version} ({self.planner}) on {self.partitions} partitions"
        if histogram is None:
            groups = np.bincount(self.tail, minlength=self.partitions)
            return plan_figure(groups, [(each, 1.0) for each in self.isolated.values()], title=title, unit="key groups")
        if histogram.hash_seed != self.hash_seed:
            raise MismatchError(
                f"the histogram was made with hash seed {histogram.hash_seed} but the plan with {self.hash_seed}; "
                "fingerprint both with the same seed"
            )
        shares = {key: 100 * share for key, share in histogram}
        tail = np.bincount(self.tail, minlength=self.partitions) * 100 * histogram.rest / self.tail_groups
        others = [key for key in shares if key not in self.isolated]
        tail += np.bincount(self.assign(others), [shares[key] for key in others], self.partitions)
        keys = [(partition, shares.get(key, 0.0)) for key, partition in self.isolated.items()]
        return plan_figure(tail, keys, title=title, unit="share of the load, %", mean=100 / self.partitions)

    def to_json(self) -> str:
        """Return the stored form, readable JSON."""
        body = {
            "version": self.version,
            "parent": self.parent,
            "planner": self.planner,
            "reason": self.reason,
            "hash_seed": self.hash_seed,
            "partitions": self.partitions,
            "isolated": {fingerprint_text(key): partition for key, partition in self.isolated.items()},
            "tail": self.tail.tolist(),
        }
        head = json.dumps({"format": FORMAT, "format_version": FORMAT_VERSION, "sha256": _checksum(body)}, indent=1)
        fields = ",\n  ".join(f'"{name}": {_spaced(value)}' for name, value in body.items())
        return f'{head[:-2]},\n "plan": {{\n  {fields}\n }}\n}}\n'

    @classmethod
    def from_json(cls, text: str | bytes, *, source: str = "plan") -> Self:
        """Read the stored form; ``source`` names it in error messages."""
        try:
            head = msgspec.json.decode(text, type=_Head)
            if head.format != FORMAT:
                raise DamagedError(
                    f"{source} has the format {head.format!r}, expected {FORMAT!r}; open a file written by Plan.save"
                )
            if head.format_version != FORMAT_VERSION:
                raise UnknownFormatError(
                    f"{source} has plan format {head.format_version}, this release reads format {FORMAT_VERSION}; "
                    "read it with the release that wrote it"
                )
            file = msgspec.json.decode(text, type=_File)
            body = msgspec.json.decode(file.plan, type=_Body)
            if _checksum(msgspec.to_builtins(body)) != file.sha256:
                raise DamagedError(f"{source} does not match its checksum; restore it from a copy or plan anew")
            isolated = {_signed(int(key, 16)): partition for key, partition in body.isolated.items()}
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DamagedError(
                f"{source} is not a readable plan ({error}); restore it from a copy or plan anew"
            ) from error
        return cls(
            body.partitions,
            body.tail,
            isolated,
            version=body.version,
            planner=body.planner,
            reason=body.reason,
            parent=body.parent,
            hash_seed=body.hash_seed,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a file, atomically: a reader sees the old content or the new."""
        target = Path(path)
        temporary = target.with_name(f"{target.name}.{uuid.uuid4().hex}")
        try:
            with temporary.open("x", encoding="utf-8") as file:
                file.write(self.to_json())
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a plan from a file of ``save``."""
        return cls.from_json(Path(path).read_bytes(), source=str(path))


def _checked(isolated: Mapping[int, int], partitions: int) -> dict[int, int]:
    """Return isolated keys as plain integers, in order of their fingerprints."""
    ordered = {}
    for key, partition in isolated.items():
        number, target = whole("an isolated fingerprint", key, _LOWEST), whole("the partition of a key", partition, 0)
        if number > _HIGHEST:
            raise InvalidArgumentError(f"isolated fingerprint {number} exceeds 64 signed bits; use fingerprint(key)")
        if target >= partitions:
            raise InvalidArgumentError(
                f"isolated key {fingerprint_text(number)} is mapped to partition {target}, outside 0..{partitions - 1}"
            )
        ordered[number] = target
    return dict(sorted(ordered.items()))


def _compact(value: object, *, order: Literal["sorted"] | None = None) -> str:
    """Return a field as ``json.dumps`` writes it without spaces; msgspec is faster but does not escape text."""
    return json.dumps(value) if isinstance(value, str) else msgspec.json.encode(value, order=order).decode()


def _spaced(value: object) -> str:
    """Return a field as ``json.dumps`` writes it by default."""
    return _compact(value) if isinstance(value, str) else _compact(value).replace(",", ", ").replace(":", ": ")


def _checksum(body: Mapping[str, object]) -> str:
    fields = ",".join(f'"{name}":{_compact(body[name], order="sorted")}' for name in sorted(body))
    return hashlib.sha256(f"{{{fields}}}".encode()).hexdigest()


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value
