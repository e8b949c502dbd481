"""Test processors without Spark.

`TwsTester` runs a processor for one key at a time, in milliseconds, and has the methods of Spark's class of this name.
"""

from equipoise.requirements import require_pyspark

require_pyspark()

from equipoise.spark.testing.tws_tester import TwsTester  # noqa: E402 - pyspark is checked before it is imported

__all__ = ["TwsTester"]
