"""What became of every batch, as flat rows, without Spark; the query may be running."""

from typing import Any

from equipoise.state import batch_log
from equipoise.state.checkpoint import Checkpoint
from equipoise.state.halves import undelivered
from equipoise.storage import Storage

_NUMBERS = ("bound", "imbalance_before", "imbalance_after", "gain_seconds", "move_seconds", "move_bytes")
_COUNTS = ("keys_moved", "groups_moved")


def batch_log_rows(path: str) -> list[dict[str, Any]]:
    """What became of every batch, and whether it was delivered; times are in milliseconds.

    Parameters
    ----------
    path
        The query's ``checkpointLocation``.
    """
    storage = Storage(path)
    Checkpoint(storage).require()
    rows = [batch_log_row(each) for each in batch_log.rows(storage) if each["batch"] >= 0]
    due = undelivered(storage, rows[-1]["batch"] + 1) if rows else None
    return [row | {"delivered": row["batch"] != due} for row in rows]


def batch_log_row(kept: dict[str, Any]) -> dict[str, Any]:
    """One batch: what the chronicle keeps of it, in one dictionary."""
    decision = kept["decision"]
    numbers = decision.get("numbers", {})
    return {
        "batch": kept["batch"],
        "time": kept["time_ms"],
        "watermark": kept["watermark_ms"] or None,
        "plan": kept["plan"],
        "next_plan": kept["next_plan"],
        "action": decision["action"],
        "applied": decision["applied"],
        "reason": decision["reason"],
        **kept["measures"],
        **{name: numbers.get(name) for name in _NUMBERS},
        **{name: None if numbers.get(name) is None else int(numbers[name]) for name in _COUNTS},
    }
