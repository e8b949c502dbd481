"""The laboratory of equipoise: benchmarks, the papers' experiments, simulation at scale, and the demo.

The library imports nothing of it.
"""

__version__ = "0.1.0"
