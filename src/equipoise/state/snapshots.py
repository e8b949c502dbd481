"""Which key groups a batch writes a snapshot of.

A group is due when its changes outweigh its last snapshot, so that writing snapshots costs no more than writing
changes, however large the state; or when its oldest change is many versions old, for a file of changes stays as long as
one group needs its part of it, and a chain of many files takes long to read. A batch writes few of them, so that groups
that became due together do not all fall on one batch.
"""

from equipoise.state.log import Chain, GroupTable

SMALLEST_BYTES = 64 * 1024
MOST_VERSIONS = 200
"""Versions from the oldest change that a group needs to the last of all: it is due, whether it changed since or not."""

_GROUPS_A_BATCH = 16  # one in so many groups of the table


def due_snapshots(table: GroupTable) -> frozenset[str]:
    """Names of the groups to write a snapshot of, the most overdue ones."""
    overdue = {group: _overdue(chain, table.version) for group, chain in table.chains.items()}
    due = sorted((group for group in overdue if overdue[group] >= 1), key=lambda group: (-overdue[group], group))
    return frozenset(due[: max(1, -(-len(table.chains) // _GROUPS_A_BATCH))])


def _overdue(chain: Chain, version: int) -> float:
    """How often over a group is due; below 1: not yet."""
    if not chain.changes:
        return 0.0
    snapshot = chain.snapshot.section.length if chain.snapshot else 0
    age = version + 1 - chain.changes[0].version
    return max(chain.changed_bytes / max(SMALLEST_BYTES, snapshot), age / MOST_VERSIONS)
