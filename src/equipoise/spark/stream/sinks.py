"""Ready sinks. A sink may be given the same batch again after a crash; these say what then happens."""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.errors import InvalidArgument
from equipoise.spark.stream.settings import Sink

BATCH = "batch"
"""Column that says which batch a row came with."""


def parquet(path: str, **options: Any) -> Sink:
    """Parquet files below ``path``, a folder for each batch; a batch that comes again replaces its folder."""

    def write(df: DataFrame, batch: int) -> None:
        df.write.options(**options).mode("overwrite").parquet(f"{path.rstrip('/')}/{BATCH}={batch}")

    return write


def table(name: str, *, format: str = "parquet", **options: Any) -> Sink:  # noqa: A002 - Spark's own name
    """A table of the catalog, partitioned by ``batch``; a batch that comes again replaces its partition.

    A table that exists must have ``batch`` as its last column and only partition.
    """

    def write(df: DataFrame, batch: int) -> None:
        spark = df.sparkSession
        if not spark.catalog.tableExists(name):
            empty = df.where("false").withColumn(BATCH, F.lit(batch).cast("bigint"))
            empty.write.format(format).options(**options).partitionBy(BATCH).saveAsTable(name)
        insert = f"INSERT OVERWRITE TABLE {name} PARTITION ({BATCH} = {batch})"
        spark.sql(insert + " SELECT * FROM {rows}", rows=df)  # noqa: S608 - the name is the user's own SQL

    return write


def console(rows: int = 20, *, truncate: bool = True) -> Sink:
    """Print each batch; a batch that comes again is printed again."""

    def write(df: DataFrame, batch: int) -> None:
        print(f"-------- batch {batch} --------")  # noqa: T201 - printing is what it is for
        df.show(rows, truncate=truncate)

    return write


def kafka(
    servers: str, topic: str, *, value: str = "to_json(struct(*))", key: str | None = None, **options: Any
) -> Sink:
    """A Kafka topic, through Spark's own connector; a batch that comes again is sent again.

    Parameters
    ----------
    servers
        ``kafka.bootstrap.servers``.
    topic
        Where to send.
    value, key
        SQL expressions of a message's value and key.
    **options
        Further options of the connector.
    """
    if not servers or not topic:
        raise InvalidArgument("the Kafka sink needs servers and a topic")

    def write(df: DataFrame, batch: int) -> None:  # noqa: ARG001 - the name belongs to the protocol
        columns = [f"CAST({value} AS STRING) AS value", *([f"CAST({key} AS STRING) AS key"] if key else [])]
        sent = df.selectExpr(*columns).write.format("kafka").option("kafka.bootstrap.servers", servers)
        sent.option("topic", topic).options(**options).save()

    return write
