"""Conformance checks over sketches, planners and splitters, for ours and for those of third parties."""

from equipoise.checks.planner import check_planner
from equipoise.checks.sketch import check_sketch
from equipoise.checks.splitter import check_splitter

__all__ = ["check_planner", "check_sketch", "check_splitter"]
