"""Adaptation between micro-batches: measured loads, when to replan, how many partitions to use."""

from equipoise.adapt.batch_loads import BatchLoads, Work, task_slowness
from equipoise.adapt.controller import Controller, Decision
from equipoise.adapt.elasticity import Elastic, busy_fraction
from equipoise.adapt.load_record import StreamLoadRecord
from equipoise.adapt.policy import Policy
from equipoise.adapt.splitting import split_widths

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
