"""How many records lie in each partition."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows


def records_by_hash(df: DataFrame, partitions: int) -> list[int]:
    """Records that Spark's hash of the column ``key`` puts into each partition."""
    return records_of_partitions(df.repartition(partitions, "key"), F.spark_partition_id(), partitions)


def records_of_partitions(df: DataFrame, partition: Column, partitions: int) -> list[int]:
    """Records of each partition, whose number a column tells."""
    found = df.groupBy(partition.alias("partition")).count().collect()
    counts = {row["partition"]: row["count"] for row in found}
    return [counts.get(number, 0) for number in range(partitions)]
