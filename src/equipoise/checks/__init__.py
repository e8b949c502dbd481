"""Conformance checks for sketches, planners, splitters, aggregators and block methods, also of third parties."""

from equipoise.checks.aggregator import check_merge
from equipoise.checks.microbatch import check_blocks, check_buckets
from equipoise.checks.planner import check_planner
from equipoise.checks.sketch import check_sketch
from equipoise.checks.splitter import check_splitter

__all__ = ["check_blocks", "check_buckets", "check_merge", "check_planner", "check_sketch", "check_splitter"]
