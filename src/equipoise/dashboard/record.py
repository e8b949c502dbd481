"""The data read of one query so far; each look reads only what is new."""

from collections import deque
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, NamedTuple

from equipoise.dashboard.decisions import timeline
from equipoise.dashboard.document import BatchFigures, DecisionEntry, HotKey, IsolatedKey, PlanFacts, Task, Totals
from equipoise.dashboard.hot_keys import HotKeys
from equipoise.dashboard.key_names import KeyNames
from equipoise.dashboard.rows import Row
from equipoise.errors import FormatError, StorageError
from equipoise.readable import key_text
from equipoise.state import batch_log
from equipoise.state.checkpoint import Checkpoint, Identity, Overrides
from equipoise.state.log import CommitLog
from equipoise.storage import Storage

if TYPE_CHECKING:
    from equipoise.plan import Plan

BATCHES = 300
"""Number of latest batches in a snapshot."""
DECISIONS = 60
"""Number of latest decisions in a snapshot."""
ISOLATED = 200
"""Number of isolated keys in a snapshot."""


class _Read(NamedTuple):
    """One version: its row and, while the log has its record, the loads and the name of the plan."""

    row: batch_log.Row
    loads: bytes | None
    plan: str | None


class QueryRecord:
    """The data read of one query.

    Parameters
    ----------
    storage, identity
        The checkpoint, and the query that lives there.
    literal_keys
        Whether to show keys instead of their fingerprints.
    """

    def __init__(self, storage: Storage, identity: Identity, *, literal_keys: bool) -> None:
        self.identity = identity
        self.version = -1
        self.totals = Totals()
        self._storage, self._checkpoint = storage, Checkpoint(storage)
        self._names = KeyNames(storage, identity) if literal_keys else None
        self._rows: deque[Row] = deque(maxlen=BATCHES + 1)
        self._hot = HotKeys()
        self._isolated: dict[int, frozenset[int] | None] = {}
        self._plan: Plan | None = None

    def catch_up(self, head: int) -> None:
        """Read the versions up to ``head``, at most ``BATCHES`` of them."""
        if head == self.version:
            return
        read = list(self._unread(CommitLog(self._storage), head))
        rows = [Row.of(each.row, self._storage.location) for each in read if each.row["batch"] >= 0]
        plan = self._checkpoint.plan(read[-1].plan or "")
        self._learn_plans({row.plan for row in rows})
        if read[0].loads is None or read[0].row["version"] != self.version + 1:
            self._hot = HotKeys()  # batches in between are unknown: ages start again
        for each in read:
            if each.loads is not None:
                self._hot.see_loads(each.row["batch"], each.loads)
        for row in rows:
            isolated = self._isolated[row.plan]
            if isolated is not None:
                self._hot.see_plan(row.batch, isolated)
        before = self._rows[-1].plan if self._rows else rows[0].plan if rows else 0
        self.totals = _added(self.totals, rows, before)
        self._rows.extend(rows)
        self.version, self._plan = head, plan

    def batches(self) -> list[BatchFigures]:
        """The latest batches, oldest first."""
        rows = list(self._rows)
        batches = [row.figures(before) for before, row in zip([None, *rows], rows, strict=False)]
        return batches[-BATCHES:]

    def tasks(self) -> list[Task]:
        """The partitions of the last batch."""
        return self._rows[-1].tasks() if self._rows else []

    def decisions(self) -> list[DecisionEntry]:
        """The latest decisions, newest first."""
        return timeline(list(self._rows)[-BATCHES:], DECISIONS)

    def hot_keys(self) -> list[HotKey]:
        """The keys with most load."""
        if self._plan is None or not self._rows:
            return []
        return self._hot.shown(self._plan, self._rows[-1].batch, self._names)

    def plan(self, overrides: Overrides) -> PlanFacts | None:
        """The plan of the last batch."""
        plan = self._plan
        if plan is None:
            return None
        listed = list(plan.isolated.items())[:ISOLATED]
        called = {} if self._names is None else self._names.of(key for key, _ in listed)
        return PlanFacts(
            version=plan.version,
            parent=plan.parent,
            planner=plan.planner,
            partitions=plan.partitions,
            tail_groups=plan.tail_groups,
            isolated_keys=len(plan.isolated),
            reason=plan.reason,
            overrides=_overrides_text(overrides),
            isolated=[
                IsolatedKey(key=called.get(key, key_text(key)), partition=partition) for key, partition in listed
            ],
        )

    def _unread(self, log: CommitLog, head: int) -> Iterable[_Read]:
        first = max(self.version + 1, head - BATCHES)
        oldest = max(first, log.oldest())
        if first < oldest:
            for row in batch_log.stored_rows(self._storage, first):
                if row["version"] < oldest:
                    yield _Read(row, None, None)
        for commit in log.commits(oldest, head):
            yield _Read(batch_log.row(commit), commit.loads, commit.plan)

    def _learn_plans(self, versions: Collection[int]) -> None:
        """Remember the isolated keys of plans; ``None`` for a plan that cannot be read any more."""
        unknown = [version for version in versions if version not in self._isolated]
        names = self._checkpoint.plan_names() if unknown else {}
        for version in unknown:
            try:
                self._isolated[version] = frozenset(self._checkpoint.plan(names[version]).isolated)
            except (KeyError, FormatError, StorageError):  # only the age of a key depends on an old plan
                self._isolated[version] = None
        used = {row.plan for row in self._rows} | set(versions)
        self._isolated = {version: keys for version, keys in self._isolated.items() if version in used}


def _added(totals: Totals, rows: list[Row], plan: int) -> Totals:
    """The totals with more rows, which follow one with this plan."""
    changes = sum(row.plan != before for row, before in zip(rows, [plan, *(row.plan for row in rows)], strict=False))
    return Totals(
        rows=totals.rows + sum(row.rows for row in rows),
        moved_bytes=totals.moved_bytes + sum(row.move_bytes or 0.0 for row in rows if row.applied),
        plan_changes=totals.plan_changes + changes,
        promised_seconds=totals.promised_seconds + sum(row.promised_seconds for row in rows),
        got_seconds=totals.got_seconds + sum(row.got_seconds for row in rows),
        spent_seconds=totals.spent_seconds + sum((row.look_seconds or 0.0) + row.moved_seconds for row in rows),
    )


def _overrides_text(overrides: Overrides) -> str | None:
    overridden = []
    if overrides.pinned is not None:
        overridden.append("plain hash" if overrides.pinned == "hash" else f"plan {int(overrides.pinned[:10])}")
    if overrides.partitions is not None:
        overridden.append(f"{overrides.partitions} partitions")
    return " and ".join(overridden) or None
