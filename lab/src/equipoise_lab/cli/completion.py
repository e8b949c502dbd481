"""Names that the shell completes."""

from equipoise_lab.bench import BENCHMARKS


def benchmarks(incomplete: str) -> list[str]:
    """Complete the name of a benchmark, ``list`` or ``all``."""
    return [name for name in ("list", "all", *BENCHMARKS) if name.startswith(incomplete)]


def splitters(incomplete: str) -> list[str]:
    """Complete the last name of a list of splitters and planners, separated by commas."""
    from equipoise_lab.variants import PLANNERS, SPLITTERS

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in (*SPLITTERS, *PLANNERS) if name.startswith(last)]


def workloads(incomplete: str) -> list[str]:
    """Complete the name of a workload of ``simulate``."""
    from equipoise_lab.simulate.streams import WORKLOADS

    return [name for name in WORKLOADS if name.startswith(incomplete)]
