"""Advice on the skew of a key: what to do, why, and the numbers behind it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from equipoise.plan import Plan
from equipoise.readable import size_text
from equipoise.spark.rows.explained import Explained, Facts
from equipoise.spark.rows.routing import SplitPlan

_WAYS = {"hash": "Spark's hash", "whole": "keys placed whole", "split": "hot keys in shards"}


class Action(Enum):
    """Recommendation about the skew of a key."""

    NOTHING = "do nothing"
    ISOLATE = "isolate the hot keys"
    SPLIT = "split the hot keys"
    BROADCAST = "broadcast one side"
    MORE_PARTITIONS = "use more partitions"
    MEASURE = "measure while the query runs"


@dataclass(frozen=True, eq=False)
class Advice(Explained):
    """One recommendation, with its reason and the numbers behind it.

    Parameters
    ----------
    action
        What to do.
    reason
        Why, in a sentence with the decisive numbers.
    numbers
        All figures that were compared, by name: ``hottest_share``, the share of the hottest key, and the time over
        ideal of each way: ``hash_over_ideal`` for Spark's hash, ``whole_over_ideal`` for keys placed whole by a plan,
        ``split_over_ideal`` for a plan with hot keys in shards, ``hash_x2_over_ideal`` and so on for Spark's hash with
        a multiple of the partitions; ``load_error``, the expected error of the load of the fullest partition, as a
        share of an even load.
    plan
        The plan that the numbers are about; ``None`` if none was made.
    """

    action: Action
    reason: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    plan: Plan | SplitPlan | None = field(default=None, repr=False)

    @property
    def advice(self) -> "Advice":
        """The advice itself, as the other verbs' results have it."""
        return self

    def with_number(self, name: str, value: float) -> "Advice":
        """Return the advice with one more figure."""
        return replace(self, numbers={**self.numbers, name: value})

    def __str__(self) -> str:
        return f"{self.action.value}: {self.reason}"

    @property
    def _title(self) -> str:
        return "Advice"

    def _facts(self, *, measure: bool) -> Facts:  # noqa: ARG002 - everything is known
        return [("advice", str(self)), *number_facts(self.numbers)]


def number_facts(numbers: Mapping[str, float]) -> Facts:
    """Return the numbers of an advice as facts to show."""
    facts = []
    if "hottest_share" in numbers:
        facts.append(("hottest key", f"{numbers['hottest_share']:.1%} of the load"))
    times = [f"{_way(name)} {value:.2f}" for name, value in numbers.items() if name.endswith("_over_ideal")]
    if times:
        facts.append(("time over ideal", ", ".join(times)))
    if numbers.get("load_error"):
        facts.append(("error", f"{numbers['load_error']:.1%} of an even partition, for the load of the fullest one"))
    if "broadcast_bytes" in numbers:
        size, most = size_text(numbers["broadcast_bytes"]), size_text(numbers["threshold_bytes"])
        facts.append(("smaller side", f"{numbers['broadcast_rows']:,.0f} rows, {size}; Spark broadcasts up to {most}"))
    return facts


def _way(name: str) -> str:
    way, _, factor = name.removesuffix("_over_ideal").partition("_x")
    return _WAYS[way] + (f" x{factor}" if factor else "")
