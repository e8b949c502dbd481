"""Conformance checks over sketches and planners, for ours and for those of third parties."""

from equipoise.checks.planner import check_planner
from equipoise.checks.sketch import check_sketch

__all__ = ["check_planner", "check_sketch"]
