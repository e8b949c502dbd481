"""Override the plan or the number of partitions of a running query."""

from typing import Any

import msgspec

from equipoise.arguments import whole
from equipoise.errors import InvalidArgumentError, LogBrokenError
from equipoise.plan import Plan
from equipoise.spark.stream.planning import HASH
from equipoise.state.checkpoint import Checkpoint
from equipoise.state.log import CommitLog
from equipoise.storage import Storage


class Overridable:
    """Methods that override the plan; overrides are files in the checkpoint, so any process can make them.

    They take effect with the next batch that has not begun.
    """

    def __init__(self, storage: Storage) -> None:
        self._checkpoint = Checkpoint(storage)

    def rescale(self, numPartitions: int | None) -> None:  # noqa: N803 - Spark's own name
        """Change the number of partitions; ``None`` goes back to the number of the start."""
        if numPartitions is not None:
            tail_groups = self._checkpoint.require().tail_groups
            if whole("numPartitions", numPartitions, 1) > tail_groups:
                raise InvalidArgumentError(
                    f"numPartitions {numPartitions} exceeds the {tail_groups} tail groups of this query; "
                    "tailGroups is fixed when a query is created"
                )
        self._override(partitions=numPartitions)

    def pin(self) -> Plan:
        """Keep the plan in force until ``unpin``."""
        name = self._plan_name()
        self._override(pinned=name)
        return self._checkpoint.plan(name)

    def rollback(self, version: int) -> Plan:
        """Go back to an earlier plan and keep it until ``unpin``; ``batch_log`` lists versions."""
        names = self._checkpoint.plan_names()
        if version not in names:
            raise InvalidArgumentError(f"there is no plan {version}; there are {', '.join(map(str, sorted(names)))}")
        self._override(pinned=names[version])
        return self._checkpoint.plan(names[version])

    def plain_hash(self) -> None:
        """Go back to plain hash and keep it until ``unpin``."""
        self._override(pinned=HASH)

    def unpin(self) -> None:
        """Plan by the load again."""
        self._override(pinned=None)

    @property
    def plan(self) -> Plan:
        """The plan of the last committed batch."""
        return self._checkpoint.plan(self._plan_name())

    def _plan_name(self) -> str:
        last = CommitLog(self._checkpoint.storage).last()
        if last is None:
            raise LogBrokenError(
                f"the query in {self._checkpoint.storage.location} has not committed a version yet; wait for one"
            )
        return last.plan

    def _override(self, **overridden: Any) -> None:
        self._checkpoint.override(msgspec.structs.replace(self._checkpoint.overrides(), **overridden))
