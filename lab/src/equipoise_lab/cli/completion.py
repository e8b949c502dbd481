"""Names that the shell completes."""

from equipoise_lab.bench import BENCHMARKS


def benchmarks(incomplete: str) -> list[str]:
    """Benchmarks, and what else ``bench`` takes."""
    return [name for name in ("list", "all", *BENCHMARKS) if name.startswith(incomplete)]


def splitters(incomplete: str) -> list[str]:
    """Splitters and planners, the last of a list that is separated by commas."""
    from equipoise_lab.variants import PLANNERS, SPLITTERS

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in (*SPLITTERS, *PLANNERS) if name.startswith(last)]


def workloads(incomplete: str) -> list[str]:
    """Workloads of ``simulate``."""
    from equipoise_lab.simulate.streams import WORKLOADS

    return [name for name in WORKLOADS if name.startswith(incomplete)]
