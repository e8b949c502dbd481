"""The timeline of decisions, from the rows of the batch log."""

from collections.abc import Sequence

import msgspec

from equipoise.dashboard.document import DecisionEntry
from equipoise.dashboard.rows import Row

KEEP = "keep"


def timeline(rows: Sequence[Row], most: int) -> list[DecisionEntry]:
    """The latest decisions, newest first.

    Consecutive decisions to keep the plan are merged into one, with the reason of the last.

    Parameters
    ----------
    rows
        Batches, oldest first.
    most
        Number of decisions.
    """
    found: list[DecisionEntry] = []
    for at in range(len(rows) - 1, -1, -1):
        decision = _decision(rows[at], rows[at - 1] if at else None)
        if found and decision.action == KEEP == found[-1].action:
            found[-1] = msgspec.structs.replace(found[-1], first=decision.first)
        elif len(found) == most:
            break
        else:
            found.append(decision)
    return found


def _decision(row: Row, before: Row | None) -> DecisionEntry:
    same = {name: getattr(row, name) for name in DecisionEntry.__struct_fields__ if hasattr(row, name)}
    made = {
        "first": row.batch,
        "last": row.batch,
        "seen_before": None if before is None else before.imbalance_rows,
        "seen_after": row.imbalance_rows,
    }
    return DecisionEntry(**{**same, **made})
