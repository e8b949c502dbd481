"""Sketches that find hot keys in one pass."""

from equipoise.sketch.base import Sketch
from equipoise.sketch.drift_histogram import DriftHistogram
from equipoise.sketch.histogram import Histogram
from equipoise.sketch.lossy_counting import LossyCounting
from equipoise.sketch.space_saving import SpaceSaving
from equipoise.sketch.windowed import WindowedCounter

__all__ = ["DriftHistogram", "Histogram", "LossyCounting", "Sketch", "SpaceSaving", "WindowedCounter"]
