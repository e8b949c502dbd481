"""Names of the columns that equipoise adds to rows on their way to a task; user code never sees them."""

FINGERPRINT = "__equipoise_fingerprint"
PARTITION = "__equipoise_partition"
SHARD = "__equipoise_shard"
"""Number of the shard of a split key that a row belongs to."""

ROW_ID = "__equipoise_row_id"
CHANCE = "__equipoise_chance"
"""Chance of a row to be taken into a sample."""

WEIGHT = "__equipoise_weight"
THINNING = "__equipoise_thinning"
"""Factor by which fewer rows are observed as a run grows; see ``equipoise.spark.batch.load_record``."""

GROUP = "__equipoise_group"
"""Number of the key group of a row; in the marker row of partition p it is -1 - p.

Every partition gets one marker row, so that tasks without other rows run too; it sorts before them.
"""

PARTIAL_BUFFER = "__equipoise_partial_buffer"
"""Partial buffer of rows of a combined key; see ``equipoise.spark.stream.partial_buffers``."""

BUFFER = "__equipoise_buffer"
"""Partial buffer of rows of a key as a struct; see ``equipoise.spark.stream.column_buffers``."""

BUFFER_ROWS = "__equipoise_rows"
"""Number of rows that were reduced to such a buffer."""

BUFFER_EVENT = "__equipoise_event"
"""Latest event time among these rows."""

INITIAL_STATE = "__equipoise_initial_state"
"""Columns of a row of initial state, as a struct; see ``equipoise.spark.stream.once``."""

RESERVED = frozenset(
    {
        FINGERPRINT,
        PARTITION,
        SHARD,
        ROW_ID,
        CHANCE,
        WEIGHT,
        THINNING,
        GROUP,
        PARTIAL_BUFFER,
        BUFFER,
        BUFFER_ROWS,
        BUFFER_EVENT,
        INITIAL_STATE,
    }
)
"""Names that no column of a user's DataFrame may have."""


def marker(partition: int) -> int:
    """Return the group number of the marker of a partition, or the partition of a marker's group number.

    Examples
    --------
    >>> marker(3), marker(marker(3))
    (-4, 3)
    """
    return -1 - partition
