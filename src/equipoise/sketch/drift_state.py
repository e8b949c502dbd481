"""State of a ``DriftHistogram``: parameters, entries, and the stored form."""

import math
from typing import Annotated, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError
from equipoise.fingerprint_table import new_table
from equipoise.framing import require
from equipoise.sketch.base import LEAST_SEED, Total

KIND = "drift-histogram"
"""Name of the sketch in its stored form."""

_MAX_BOUNDARY = 2**28  # keys are numbered by 32-bit integers


class HistogramSettings(msgspec.Struct, frozen=True):
    """Parameters of a ``DriftHistogram``, described there."""

    take: int
    soft_boundary: int
    hard_boundary: int
    compaction: int
    backoff: float
    drift_boundary: float
    drift_history_weight: float
    solidarity: int
    shift_boundary: float
    hash_seed: int

    @classmethod
    def checked(
        cls,
        *,
        take: int,
        soft_boundary: int,
        hard_boundary: int | None,
        compaction: int | None,
        backoff: float,
        drift_boundary: float,
        drift_history_weight: float,
        solidarity: int,
        shift_boundary: float,
        hash_seed: int,
    ) -> Self:
        """Return settings with the defaults filled in; refuse invalid combinations."""
        take, soft_boundary = whole("take", take, 1), whole("soft_boundary", soft_boundary, 1)
        hard_boundary = soft_boundary if hard_boundary is None else whole("hard_boundary", hard_boundary, 1)
        if not 2 * take <= hard_boundary <= _MAX_BOUNDARY:
            raise InvalidArgumentError(
                f"hard_boundary must be at least twice take ({take}) and at most 2**28, got {hard_boundary}: "
                "drift is measured by the ranks of the former top keys among all tracked keys"
            )
        compaction = max(1, hard_boundary // 4) if compaction is None else whole("compaction", compaction, 1)
        if compaction > hard_boundary - take:
            raise InvalidArgumentError(
                f"compaction must leave at least take ({take}) of {hard_boundary} keys, got {compaction}; "
                f"use 1 to {hard_boundary - take}"
            )
        past = at_least("drift_history_weight", drift_history_weight, 0)
        if past > 1:
            raise InvalidArgumentError(f"drift_history_weight must be in [0, 1], got {past}")
        shift_boundary = at_least("shift_boundary", shift_boundary, 0)
        if shift_boundary > 1:
            raise InvalidArgumentError(f"shift_boundary is a share of the weight, in [0, 1], got {shift_boundary}")
        return cls(
            take,
            soft_boundary,
            hard_boundary,
            compaction,
            at_least("backoff", backoff, 1),  # 1: never sample
            at_least("drift_boundary", drift_boundary, 0),
            past,
            whole("solidarity", solidarity, 1),
            shift_boundary,
            whole("hash_seed", hash_seed, LEAST_SEED),
        )


class SampledWeight(msgspec.Struct):
    """Sampled weight: the total as estimated by the sample, and the sum of the squares of its rows."""

    norm: float = 0.0
    squares: float = 0.0

    def __add__(self, other: "SampledWeight") -> "SampledWeight":
        return SampledWeight(self.norm + other.norm, self.squares + other.squares)


class State(msgspec.Struct):
    """State of a sketch besides its entries; also a field of the payload.

    The past ends at the last boundary or merge.
    """

    boundary: int  # present hard boundary
    drift: float  # smoothed over the boundaries
    scale: float = 1.0  # weight of a sampled row: 1 / sampling rate
    highest: float = 1.0  # largest scale of the rows that are remembered
    lost: float = 0.0  # upper bound of the sampled weight of any key that is not tracked
    quiet: int = 0  # boundaries without drift since the hard boundary last moved
    boundaries: int = 0  # boundaries met, also before the rows that are remembered
    past_total: Total = 0
    past: SampledWeight = msgspec.field(default_factory=SampledWeight)
    recent: SampledWeight = msgspec.field(default_factory=SampledWeight)

    @property
    def seen(self) -> SampledWeight:
        """Sample of all rows that are remembered."""
        return self.past + self.recent


class Entries(NamedTuple):
    """Entries in order of arrival, and the hash table from a key to its entry."""

    table_keys: NDArray[np.int64]
    table_values: NDArray[np.int32]
    keys: NDArray[np.int64]
    past: NDArray[np.float64]  # sampled weight until the last boundary or merge
    recent: NDArray[np.float64]  # and since
    missed: NDArray[np.float64]  # upper bound of the weight lost to cuts before the entry was made

    @property
    def weights(self) -> NDArray[np.float64]:
        """Sampled weights."""
        return self.past + self.recent

    def only(self, chosen: slice | NDArray[np.intp] | NDArray[np.bool_]) -> "Entries":
        """Return some of the entries, without a table."""
        return Entries(*new_table(0), self.keys[chosen], self.past[chosen], self.recent[chosen], self.missed[chosen])


class Stored(msgspec.Struct):
    """Payload; ``last_top`` and ``keys`` are int64, the others float64, with the entries in order of arrival."""

    settings: HistogramSettings
    total: Total
    random: Annotated[int, msgspec.Meta(ge=0)]
    state: State
    last_top: bytes
    keys: bytes
    past: bytes
    recent: bytes
    missed: bytes


def new_entries(room: int) -> Entries:
    """Return empty arrays with room for ``room`` entries."""
    past, recent, missed = np.zeros((3, room))
    return Entries(*new_table(room), np.zeros(room, dtype=np.int64), past, recent, missed)


def check_stored(stored: Stored, last_top: NDArray[np.int64], entries: Entries) -> None:
    """Refuse a stored state that no sequence of updates can produce."""
    kind, settings, state = KIND, stored.settings, stored.state
    keys, past, recent, missed = entries.keys, entries.past, entries.recent, entries.missed
    require(kind, len(keys) == len(past) == len(recent) == len(missed), "its arrays have different lengths")
    require(kind, len(np.unique(keys)) == len(keys), "a key has two entries")
    raised, odd = divmod(state.boundary - settings.hard_boundary, settings.soft_boundary)
    require(kind, raised >= 0 and odd == 0, f"a boundary of {state.boundary} cannot be reached")
    require(kind, len(keys) < state.boundary, f"{len(keys)} keys with a boundary of {state.boundary}")
    require(kind, len(last_top) <= settings.take, f"{len(last_top)} former top keys, at most {settings.take} expected")
    require(kind, 1 <= state.scale < math.inf and 0 <= state.drift < math.inf, "scale or drift is out of range")
    reached = max(1, state.highest) * settings.backoff
    require(kind, state.highest >= 1 and state.scale <= reached < math.inf, "its scales disagree")
    require(kind, state.boundaries >= 0, f"it has met {state.boundaries} boundaries")
    require(kind, bool(np.all((missed >= 0) & (missed <= state.lost))), "a key has lost more than any key can have")
    require(kind, bool(np.all((past >= 0) & (recent >= 0) & (entries.weights > 0))), "a weight is out of range")
    parts = (
        ("past", stored.state.past_total, state.past, past),
        ("recent", stored.total - stored.state.past_total, state.recent, recent),
    )
    for name, total, sample, weights in parts:
        most = sample.norm * (1 + 1e-9)  # for rounding
        require(kind, weights.sum() <= most < math.inf, f"its {name} weights exceed the sampled weight")
        require(kind, 0 <= sample.squares <= most**2, f"its {name} weights and their squares disagree")
        require(kind, (sample.norm > 0) == (sample.squares > 0), f"its {name} weights and their squares disagree")
        require(kind, total > 0 or (total == 0 and sample.norm == 0), f"its {name} total and its sample disagree")
    require(kind, (stored.total > 0) == (state.seen.norm > 0), "its total and its sample disagree")
