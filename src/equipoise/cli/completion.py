"""Names that the shell completes."""

from equipoise.bench import BENCHMARKS
from equipoise.plan import PLANNERS


def benchmarks(incomplete: str) -> list[str]:
    """Benchmarks, and what else ``bench`` takes."""
    return [name for name in ("list", "all", *BENCHMARKS) if name.startswith(incomplete)]


def planners(incomplete: str) -> list[str]:
    """Planners."""
    return [name for name in PLANNERS if name.startswith(incomplete)]


def splitters(incomplete: str) -> list[str]:
    """Splitters and planners, the last of a list that is separated by commas."""
    from equipoise.split import SPLITTERS

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in (*SPLITTERS, *PLANNERS) if name.startswith(last)]


def workloads(incomplete: str) -> list[str]:
    """Workloads of ``simulate``."""
    from equipoise.simulate.streams import WORKLOADS

    return [name for name in WORKLOADS if name.startswith(incomplete)]
