"""Options that ``balance`` has on batch and on streaming DataFrames."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from equipoise.adapt import Policy
from equipoise.arguments import whole
from equipoise.errors import InvalidArgumentError

PlacementMode = Literal["plan", "hash"]
"""How keys are placed: by a plan made for their load, or by Spark's plain hash."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BalanceOptions:
    """Options of every keyed operation; ``BatchOptions`` and ``StreamOptions`` describe them and add their own."""

    numPartitions: int | None = None  # noqa: N815 - Spark's own name
    placement: PlacementMode = "plan"
    policy: Policy = field(default_factory=Policy)

    def __post_init__(self) -> None:
        if self.numPartitions is not None:
            whole("numPartitions", self.numPartitions, 1)
        if self.placement not in get_args(PlacementMode):
            raise InvalidArgumentError(f"placement must be 'plan' or 'hash', got {self.placement!r}")
        if not isinstance(self.policy, Policy):
            raise InvalidArgumentError(
                f"policy must be an equipoise.adapt.Policy, for example Policy(mode='advise'), got {self.policy!r}"
            )
