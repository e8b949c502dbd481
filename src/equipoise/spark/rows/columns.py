"""Names of the columns that equipoise adds to rows on their way to a task; user code never sees them."""

FINGERPRINT = "__equipoise_fingerprint"
PARTITION = "__equipoise_partition"
SHARD = "__equipoise_shard"
"""Number of the shard of a split key that a row belongs to."""

WEIGHT = "__equipoise_weight"
THINNING = "__equipoise_thinning"
"""Factor by which fewer rows are observed as a run grows; see ``equipoise.spark.batch.load_record``."""

GROUP = "__equipoise_group"
"""Number of the key group of a row; in the marker row of partition p it is -1 - p.

Every partition gets one marker row, so that tasks without other rows run too; it sorts before them.
"""

PARTIAL_BUFFER = "__equipoise_partial_buffer"
"""Partial buffer of rows of a split key; see ``equipoise.spark.stream.partial_buffers``."""

INITIAL_STATE = "__equipoise_initial_state"
"""Columns of a row of initial state, as a struct; see ``equipoise.spark.stream.once``."""

RESERVED = frozenset({FINGERPRINT, PARTITION, SHARD, WEIGHT, THINNING, GROUP, PARTIAL_BUFFER, INITIAL_STATE})
"""Names that no column of a user's DataFrame may have."""


def marker(partition: int) -> int:
    """Return the group number of the marker of a partition, or the partition of a marker's group number.

    Examples
    --------
    >>> marker(3), marker(marker(3))
    (-4, 3)
    """
    return -1 - partition
