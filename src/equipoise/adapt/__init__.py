"""Adaptation between micro-batches: what was measured, when to replan, how many partitions to use."""

from equipoise.adapt.batch_loads import BatchLoads, Work
from equipoise.adapt.controller import Controller, Decision
from equipoise.adapt.elasticity import Elastic, busy_fraction
from equipoise.adapt.load_record import StreamLoadRecord
from equipoise.adapt.policy import Policy
from equipoise.adapt.splitting import split_widths
from equipoise.adapt.task_speed import task_slowness

__all__ = [
    "BatchLoads",
    "Controller",
    "Decision",
    "Elastic",
    "Policy",
    "StreamLoadRecord",
    "Work",
    "busy_fraction",
    "split_widths",
    "task_slowness",
]
