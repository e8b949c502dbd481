"""equipoise on Apache Spark: profile, advise and balance keyed work, and keyed state in streams that moves.

Needs Spark 4.1 or newer, on Classic or on Connect; uses the public DataFrame API only.
"""

from equipoise.requirements import require_pyspark

require_pyspark()

from equipoise.spark._balance import balance
from equipoise.spark.batch.advice import Action, Advice, Operation, advise
from equipoise.spark.batch.aggregate import Aggregation, aggregate, plan_aggregate
from equipoise.spark.batch.balanced_frame import BalancedCogroups, BalancedFrame, BalancedGroups, balanced
from equipoise.spark.batch.join import Join, join, plan_join
from equipoise.spark.batch.reduction import PartialFunction
from equipoise.spark.batch.report import Report, Strategy, profile
from equipoise.spark.prompt.query import microbatch, read_batches
from equipoise.spark.prompt.source import register
from equipoise.spark.rows.aggregator import Aggregator
from equipoise.spark.stream.batch_log_frame import BatchLog, batch_log
from equipoise.spark.stream.keyed_stream import KeyedStream
from equipoise.spark.stream.local import LocalQuery
from equipoise.spark.stream.query import StatefulQuery
from equipoise.spark.stream.state_reader import read_state
from equipoise.spark.stream.stateful_stream import StatefulStream
from equipoise.spark.stream.vectorised import KeyBatch, VectorProcessor
from equipoise.spark.stream.writer import StreamWriter

__all__ = [
    "Action",
    "Advice",
    "Aggregation",
    "Aggregator",
    "BalancedCogroups",
    "BalancedFrame",
    "BalancedGroups",
    "BatchLog",
    "Join",
    "KeyBatch",
    "KeyedStream",
    "LocalQuery",
    "Operation",
    "PartialFunction",
    "Report",
    "StatefulQuery",
    "StatefulStream",
    "Strategy",
    "StreamWriter",
    "VectorProcessor",
    "advise",
    "aggregate",
    "balance",
    "balanced",
    "batch_log",
    "join",
    "microbatch",
    "plan_aggregate",
    "plan_join",
    "profile",
    "read_batches",
    "read_state",
    "register",
]
