"""equipoise on Apache Spark: profile, advise and balance keyed work.

Needs Spark 4.1 or newer, on Classic or on Connect; uses the public DataFrame API only.
"""

from equipoise.requirements import require_pyspark

require_pyspark()

from equipoise.spark.advice import Action, Advice, Operation, advise
from equipoise.spark.balanced_frame import BalancedCogroups, BalancedFrame, BalancedGroups, balance, balanced
from equipoise.spark.report import Report, Strategy, profile

__all__ = [
    "Action",
    "Advice",
    "BalancedCogroups",
    "BalancedFrame",
    "BalancedGroups",
    "Operation",
    "Report",
    "Strategy",
    "advise",
    "balance",
    "balanced",
    "profile",
]
