"""Names of our columns on the way to a task; user code never sees them."""

FINGERPRINT = "__equipoise_fingerprint"
GROUP = "__equipoise_group"
"""Number of the key group of a row; in the marker row of partition p it is -1 - p.

Every partition gets one marker, so that tasks without rows run too; it sorts before all other rows.
"""

PART = "__equipoise_part"
"""What was made of rows of a split key; see ``equipoise.spark.stream.make_parts``. Not there where no key is split."""


def marker(partition: int) -> int:
    """Group number of the marker of a partition, and the partition of a marker's group number.

    Examples
    --------
    >>> marker(3), marker(marker(3))
    (-4, 3)
    """
    return -1 - partition
