"""Adaptation between micro-batches: measured loads, when to replan, how many partitions to use."""

from equipoise.adapt.batch_loads import BatchLoads, Work, task_slowness
from equipoise.adapt.combining import Combine, Combining
from equipoise.adapt.controller import Controller, Decision, MoveLimit
from equipoise.adapt.elasticity import Elastic, busy_fraction
from equipoise.adapt.load_record import StreamLoadRecord
from equipoise.adapt.look import Look, rows_needed
from equipoise.adapt.looking import Looking, saved_seconds
from equipoise.adapt.policy import Policy
from equipoise.adapt.promises import Promises

__all__ = [
    "BatchLoads",
    "Combine",
    "Combining",
    "Controller",
    "Decision",
    "Elastic",
    "Look",
    "Looking",
    "MoveLimit",
    "Policy",
    "Promises",
    "StreamLoadRecord",
    "Work",
    "busy_fraction",
    "rows_needed",
    "saved_seconds",
    "task_slowness",
]
