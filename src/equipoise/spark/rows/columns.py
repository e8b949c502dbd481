"""Names of our columns on the way to a task; user code never sees them."""

FINGERPRINT = "__equipoise_fingerprint"
PARTITION = "__equipoise_partition"
SHARD = "__equipoise_piece"
"""Number of the piece of a split key that a row belongs to."""

WEIGHT = "__equipoise_weight"
THINNING = "__equipoise_thinning"
"""By how much fewer rows are observed the more there have been; see ``equipoise.spark.history``."""

GROUP = "__equipoise_group"
"""Number of the key group of a row; in the marker row of partition p it is -1 - p.

Every partition gets one marker, so that tasks without rows run too; it sorts before all other rows.
"""

PART = "__equipoise_part"
"""Partial buffer of rows of a split key; see ``equipoise.spark.stream.partial_buffers``."""

RESERVED = frozenset({FINGERPRINT, PARTITION, SHARD, WEIGHT, THINNING, GROUP, PART})
"""What no column of a batch DataFrame may be called."""


def marker(partition: int) -> int:
    """Group number of the marker of a partition, and the partition of a marker's group number.

    Examples
    --------
    >>> marker(3), marker(marker(3))
    (-4, 3)
    """
    return -1 - partition
