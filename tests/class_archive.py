"""Writes an archive of the JVM classes that Spark loads (class data sharing); a JVM with it starts in half the time.

Run as ``python tests/class_archive.py FILE``; ``conftest.py`` uses the archive if it exists. The JVM ignores an archive
of another Java or of other jars. Without Java nothing is written.
"""

import os
import sys
import tempfile
from pathlib import Path

from equipoise.requirements import MINIMUM_JAVA, java_version

OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def write(archive):
    """Run one batch query and one streaming query, as most tests do, and let the JVM write its classes at exit."""
    temporary = archive.with_suffix(".tmp")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{OPTIONS} -Xlog:disable -XX:ArchiveClassesAtExit={temporary}"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from equipoise.spark import balance

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    with tempfile.TemporaryDirectory() as folder:
        rows = spark.createDataFrame([(number % 3, number) for number in range(30)], "k long, v long")
        rows.write.parquet(f"{folder}/in")
        read = spark.read.parquet(f"{folder}/in")
        balance(read, "k").applyInPandas(lambda frame: frame, "k long, v long").toPandas()
        read.join(rows, "k").groupBy("k").count().collect()
        stream = spark.readStream.schema(rows.schema).parquet(f"{folder}/in")
        counts = balance(stream, "k", numPartitions=2).count()
        writer = counts.writeStream.outputMode("update").trigger(availableNow=True)
        writer.option("checkpointLocation", f"{folder}/checkpoint").start(f"{folder}/out").awaitTermination()
    spark.stop()
    jvm = SparkContext._gateway.proc
    jvm.stdin.close()  # its sign to exit
    jvm.wait()
    temporary.rename(archive)


if __name__ == "__main__":
    if (java_version() or 0) >= MINIMUM_JAVA:
        write(Path(sys.argv[1]).absolute())
