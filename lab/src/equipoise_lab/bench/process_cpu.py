"""CPU seconds of this process and of all processes that it started, such as the JVM of Spark and its Python workers."""

import os
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


def tree_cpu_seconds() -> float:
    """Return the CPU seconds of this process and its descendants so far, those that have ended included; Linux only.

    A quiet machine is not needed to compare them, unlike seconds of a clock.
    """
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            fields = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        process = int(folder.name)
        parents[process], ticks[process] = int(fields[1]), sum(map(int, fields[11:15]))
    return sum(ticks[process] for process in parents if _descends(process, parents)) / _TICK


def _descends(process: int, parents: dict[int, int]) -> bool:
    """Whether a process is this one or was started by it, directly or not."""
    own = os.getpid()
    while process in parents:
        if process == own:
            return True
        process = parents[process]
    return False
