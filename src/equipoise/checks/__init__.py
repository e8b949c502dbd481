"""Conformance checks over sketches, planners, splitters and aggregators, for ours and for those of third parties."""

from equipoise.checks.aggregator import check_merge
from equipoise.checks.planner import check_planner
from equipoise.checks.sketch import check_sketch
from equipoise.checks.splitter import check_splitter

__all__ = ["check_merge", "check_planner", "check_sketch", "check_splitter"]
