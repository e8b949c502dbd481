"""Convert lines or rows in bulk, and find those that cannot be converted in a bounded number of tries.

All of them are tried at once. Where that fails, blocks of 64 are tried, then halves of each bad block down to single
lines or rows. A message whose rows are all bad would cost two tries for each row, so the tries on parts of blocks are
bounded: once they are used up, a bad block becomes one dead letter.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from equipoise.microbatch.dead_letters import DeadLetter

_BLOCK = 64
_TRIES = 4_000  # about 0.3 seconds; 2,000 rows if all are bad, 300 that are far from each other


class Tries:
    """Remaining conversions of parts of blocks for the rows of one message, or for lines that arrived together."""

    def __init__(self) -> None:
        self.left = _TRIES


def salvaged(
    rows: Any, convert: Callable[[Any], pa.Table | str], show: Callable[[Any], str], tries: Tries
) -> tuple[list[pa.Table], list[DeadLetter]]:
    """Convert lines or rows; return tables of those that can be converted, and dead letters of the others.

    Parameters
    ----------
    rows
        A list of lines, or a record batch.
    convert
        Returns a table with a row for each line or row, or the reason why it cannot.
    show
        Returns the text of the first of the lines or rows, for their dead letter.
    tries
        Remaining tries; reduced by this call.
    """
    found = convert(rows)
    if isinstance(found, pa.Table):
        return [found], []
    count = len(rows)
    if count == 1:
        return [], [DeadLetter(show(rows), found)]
    step = _BLOCK
    if count <= _BLOCK:
        if tries.left < 2:
            reason = (
                f"at least one of these {count} lines or rows cannot be read ({found}), and after {_TRIES:,} tries "
                "they are not tried one by one; correct the bad ones and send all of them again"
            )
            return [], [DeadLetter(f"{show(rows)} and {count - 1} more", reason, count)]
        tries.left -= 2
        step = -(-count // 2)
    tables, dead_letters = [], []
    for start in range(0, count, step):
        good, bad = salvaged(rows[start : start + step], convert, show, tries)
        tables += good
        dead_letters += bad
    return tables, dead_letters
