"""equipoise keeps keyed work in balance on stock Apache Spark, in batch and in Structured Streaming.

This package holds the algorithms and imports no Spark: sketches that find hot keys, plans that place them, planners
that make the next plan from the last one.
"""

from equipoise.errors import (
    AlreadyExistsError,
    CheckError,
    CheckpointInUseError,
    DamagedError,
    EquipoiseError,
    FeedError,
    FencedError,
    FormatError,
    InvalidArgumentError,
    LogBrokenError,
    MismatchError,
    MissingPackageError,
    PlanningError,
    ServerError,
    SparkError,
    SparkUnavailableError,
    StorageError,
    UnknownFormatError,
    UserFunctionError,
)
from equipoise.hashing import fingerprint, fingerprints
from equipoise.plan import KIP, Costs, Plan, Planner, diff, make_planner, uniform_plan
from equipoise.sketch import Histogram

__version__ = "0.1.0"

__all__ = [
    "KIP",
    "AlreadyExistsError",
    "CheckError",
    "CheckpointInUseError",
    "Costs",
    "DamagedError",
    "EquipoiseError",
    "FeedError",
    "FencedError",
    "FormatError",
    "Histogram",
    "InvalidArgumentError",
    "LogBrokenError",
    "MismatchError",
    "MissingPackageError",
    "Plan",
    "Planner",
    "PlanningError",
    "ServerError",
    "SparkError",
    "SparkUnavailableError",
    "StorageError",
    "UnknownFormatError",
    "UserFunctionError",
    "__version__",
    "diff",
    "fingerprint",
    "fingerprints",
    "make_planner",
    "uniform_plan",
]
