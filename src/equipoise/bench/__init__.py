"""Every performance claim of equipoise, each a named benchmark that anyone can run."""

from importlib import import_module
from types import ModuleType

from equipoise.bench.harness import Context, Report, Result, environment
from equipoise.errors import InvalidArgument

__all__ = ["BENCHMARKS", "Context", "Report", "Result", "benchmark", "run", "summary"]

BENCHMARKS = {
    "assign": "equipoise.bench.assign",
    "sketch": "equipoise.bench.sketch",
    "planners": "equipoise.bench.planners",
}
"""Module of each benchmark; it has a docstring and ``run(context) -> Result``."""


def benchmark(name: str) -> ModuleType:
    """Module of a benchmark."""
    if name not in BENCHMARKS:
        raise InvalidArgument(f"there is no benchmark {name!r}; choose one of {', '.join(BENCHMARKS)}")
    return import_module(BENCHMARKS[name])


def summary(name: str) -> str:
    """What a benchmark measures, in one line."""
    return (benchmark(name).__doc__ or "").splitlines()[0]


def run(name: str, context: Context) -> Report:
    """Run a benchmark and record where it ran."""
    result: Result = benchmark(name).run(context)
    return Report(name, result.metrics, result.samples, environment(context.seed))
