"""Facts about the cluster, read through the DataFrame API alone, on Classic and on Connect."""

from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.errors import InvalidArgumentError

_known_slots: WeakKeyDictionary[SparkSession, int] = WeakKeyDictionary()


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is a Spark Connect client, so that ``foreachBatch`` runs in another process."""
    return any(kind.__module__.startswith("pyspark.sql.connect") for kind in type(spark).__mro__)


def task_slots(spark: SparkSession) -> int:
    """Return the number of tasks that run at the same time: Spark's default parallelism.

    It is read once for each session; pass ``slots`` if the cluster grows or shrinks. Under Connect this is a small job.
    """
    if spark not in _known_slots:
        _known_slots[spark] = _ask_slots(spark)
    return _known_slots[spark]


def _ask_slots(spark: SparkSession) -> int:
    if not is_connect(spark):
        return spark.sparkContext.defaultParallelism
    numbered = spark.range(0, 1 << 14).select(F.spark_partition_id().alias("partition"))
    counted = numbered.agg((F.max("partition") + 1).alias("slots")).first()
    assert counted is not None  # noqa: S101 - this tells the type checker
    return int(counted["slots"])


def slot_count(spark: SparkSession, given: int | None) -> int:
    """Return the given number of slots, or the cluster's own."""
    if given is not None and given < 1:
        raise InvalidArgumentError(f"slots must be at least 1, got {given}")
    return task_slots(spark) if given is None else given


def default_partitions(spark: SparkSession) -> int:
    """Return the session's number of shuffle partitions."""
    return int(spark.conf.get("spark.sql.shuffle.partitions", "200") or 200)


def partition_count(spark: SparkSession, given: int | None) -> int:
    """Return the given number of partitions, or the session's own."""
    count = default_partitions(spark) if given is None else given
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidArgumentError(f"numPartitions must be a whole number of at least 1, got {given!r}")
    return count
