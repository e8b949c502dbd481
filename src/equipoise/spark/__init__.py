"""equipoise on Apache Spark: balanced keyed work on batches and streams.

Needs Spark 4.1 or newer, Classic or Connect; uses the public DataFrame API only. Names for streams are imported when
they are first used, so that a batch job loads nothing of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from equipoise.requirements import require_pyspark

require_pyspark()

from equipoise.spark._balance import balance
from equipoise.spark.batch.advice import Operation
from equipoise.spark.batch.cogroups import BalancedCogroups
from equipoise.spark.batch.groups import BalancedGroups
from equipoise.spark.batch.reduction import PartialFunction
from equipoise.spark.batch.report import Report, Strategy, advise, profile
from equipoise.spark.batch.skew_join import Join, join
from equipoise.spark.rows.advice import Action, Advice
from equipoise.spark.rows.aggregator import Aggregator
from equipoise.spark.rows.routing import SplitPlan

if TYPE_CHECKING:
    from equipoise.spark.prompt.query import microbatch, read_batches
    from equipoise.spark.prompt.source import register
    from equipoise.spark.rows.vector_aggregator import VectorAggregator
    from equipoise.spark.stream.batch_log_frame import BatchLog, batch_log
    from equipoise.spark.stream.keyed_stream import KeyedStream
    from equipoise.spark.stream.local import LocalOperator, LocalQuery
    from equipoise.spark.stream.query import StatefulQuery
    from equipoise.spark.stream.state_reader import read_state
    from equipoise.spark.stream.stateful_stream import StatefulStream
    from equipoise.spark.stream.vectorised import KeyBatch, VectorProcessor
    from equipoise.spark.stream.writer import StreamWriter

_LATER = {
    "BatchLog": "stream.batch_log_frame",
    "KeyBatch": "stream.vectorised",
    "KeyedStream": "stream.keyed_stream",
    "LocalOperator": "stream.local",
    "LocalQuery": "stream.local",
    "StatefulQuery": "stream.query",
    "StatefulStream": "stream.stateful_stream",
    "StreamWriter": "stream.writer",
    "VectorAggregator": "rows.vector_aggregator",
    "VectorProcessor": "stream.vectorised",
    "batch_log": "stream.batch_log_frame",
    "microbatch": "prompt.query",
    "read_batches": "prompt.query",
    "read_state": "stream.state_reader",
    "register": "prompt.source",
}
"""Modules of the names for streams."""

__all__ = [
    "Action",
    "Advice",
    "Aggregator",
    "BalancedCogroups",
    "BalancedGroups",
    "BatchLog",
    "Join",
    "KeyBatch",
    "KeyedStream",
    "LocalOperator",
    "LocalQuery",
    "Operation",
    "PartialFunction",
    "Report",
    "SplitPlan",
    "StatefulQuery",
    "StatefulStream",
    "Strategy",
    "StreamWriter",
    "VectorAggregator",
    "VectorProcessor",
    "advise",
    "balance",
    "batch_log",
    "join",
    "microbatch",
    "profile",
    "read_batches",
    "read_state",
    "register",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
