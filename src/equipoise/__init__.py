"""equipoise keeps keyed work in balance on stock Apache Spark, in batch and in Structured Streaming.

This package holds the algorithms and imports no Spark: sketches that find hot keys, plans that place them, planners
that make the next plan from the last one.
"""

from equipoise.errors import (
    AlreadyThere,
    CheckFailed,
    CheckpointInUse,
    Damaged,
    EquipoiseError,
    FeedFailed,
    Fenced,
    FormatError,
    InvalidArgument,
    LogBroken,
    Mismatch,
    MissingPackage,
    PlanningFailed,
    ServerFailed,
    SparkFailed,
    SparkUnavailable,
    StorageFailed,
    UnknownFormat,
    UserFunctionFailed,
)
from equipoise.hashing import fingerprint, fingerprints
from equipoise.plan import KIP, Costs, Plan, Planner, diff, make_planner, uniform_plan
from equipoise.sketch import Histogram

__version__ = "0.1.0"

__all__ = [
    "KIP",
    "AlreadyThere",
    "CheckFailed",
    "CheckpointInUse",
    "Costs",
    "Damaged",
    "EquipoiseError",
    "FeedFailed",
    "Fenced",
    "FormatError",
    "Histogram",
    "InvalidArgument",
    "LogBroken",
    "Mismatch",
    "MissingPackage",
    "Plan",
    "Planner",
    "PlanningFailed",
    "ServerFailed",
    "SparkFailed",
    "SparkUnavailable",
    "StorageFailed",
    "UnknownFormat",
    "UserFunctionFailed",
    "__version__",
    "diff",
    "fingerprint",
    "fingerprints",
    "make_planner",
    "uniform_plan",
]
