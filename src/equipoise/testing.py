"""Test processors without Spark.

``TwsTester`` runs a processor for one key at a time, in milliseconds, and has the methods of Spark's class of this
name. ``run_batches`` runs whole queries, with crashes, pauses, other partitions and the clock as values in their input.
"""

from equipoise.requirements import require_pyspark

require_pyspark()

from equipoise.spark.testing.batch_run import Advance, BatchRun, Crash, Pause, Rescale, run_batches
from equipoise.spark.testing.tws_tester import TwsTester

__all__ = ["Advance", "BatchRun", "Crash", "Pause", "Rescale", "TwsTester", "run_batches"]
