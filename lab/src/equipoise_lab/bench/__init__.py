"""Every performance claim of equipoise, each a named benchmark that anyone can run."""

import ast
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from equipoise.errors import InvalidArgumentError
from equipoise.requirements import require_pyspark
from equipoise_lab.bench.harness import Context, Report, Result, environment

__all__ = [
    "BENCHMARKS",
    "NEED_DATA",
    "RESUMABLE",
    "Context",
    "Report",
    "Result",
    "benchmark",
    "details",
    "page",
    "run",
    "summary",
]

BENCHMARKS = {
    "assign": "equipoise_lab.bench.assign",
    "sketch": "equipoise_lab.bench.sketch",
    "planners": "equipoise_lab.bench.planners",
    "routing": "equipoise_lab.bench.routing",
    "look": "equipoise_lab.bench.look",
    "batch-groups": "equipoise_lab.bench.batch_groups",
    "batch-even": "equipoise_lab.bench.batch_even",
    "batch-fixed-costs": "equipoise_lab.bench.batch_fixed_costs",
    "batch-real": "equipoise_lab.bench.batch_real",
    "splitters": "equipoise_lab.bench.splitters",
    "split-sim": "equipoise_lab.bench.split_sim",
    "dkg-sim": "equipoise_lab.bench.dkg_sim",
    "split-agg": "equipoise_lab.bench.split_agg",
    "hot-key": "equipoise_lab.bench.hot_key",
    "skew-join": "equipoise_lab.bench.skew_join",
    "prompt-core": "equipoise_lab.bench.prompt_core",
    "prompt-throughput": "equipoise_lab.bench.prompt_throughput",
    "prompt-latency": "equipoise_lab.bench.prompt_latency",
    "prompt-elastic": "equipoise_lab.bench.prompt_elastic",
    "prompt-overhead": "equipoise_lab.bench.prompt_overhead",
    "fuzz-feed": "equipoise_lab.bench.fuzz_feed",
    "stream-throughput": "equipoise_lab.bench.stream_throughput",
    "stream-drift": "equipoise_lab.bench.stream_drift",
    "stream-look": "equipoise_lab.bench.stream_look",
    "look-cost": "equipoise_lab.bench.look_cost",
    "moves": "equipoise_lab.bench.moves",
    "stream-real": "equipoise_lab.bench.stream_real",
    "processor-cost": "equipoise_lab.bench.processor_cost",
    "micro-batch-cost": "equipoise_lab.bench.micro_batch_cost",
    "batch-memory": "equipoise_lab.bench.batch_memory",
    "state-growth": "equipoise_lab.bench.state_growth",
    "restart": "equipoise_lab.bench.restart",
    "stream-even": "equipoise_lab.bench.stream_even",
    "peers": "equipoise_lab.bench.peers",
    "simulate-protocol": "equipoise_lab.bench.simulate_protocol",
    "sink-cost": "equipoise_lab.bench.sink_cost",
    "conformance": "equipoise_lab.bench.conformance",
    "house": "equipoise_lab.bench.house",
}
"""Module of each benchmark; it has a docstring and ``run(context) -> Result``."""


NEED_DATA = {"batch-real", "stream-look", "stream-real"}
"""Benchmarks of real data, which run only with ``--data``."""


RESUMABLE = {"conformance"}
"""Benchmarks that keep what has run in the file of ``--progress``."""


def benchmark(name: str) -> ModuleType:
    """Module of a benchmark."""
    if name not in BENCHMARKS:
        raise InvalidArgumentError(f"there is no benchmark {name!r}; choose one of {', '.join(BENCHMARKS)}")
    try:
        return import_module(BENCHMARKS[name])
    except ModuleNotFoundError as error:
        if error.name in {"pyspark", "pandas", "pyarrow", "lmdb"}:
            require_pyspark()
        raise


def summary(name: str) -> str:
    """Describe a benchmark in one line."""
    spec = find_spec(BENCHMARKS[name])
    assert spec is not None  # noqa: S101 - the table above names modules that exist
    assert spec.origin is not None  # noqa: S101 - and that are files
    # read without importing: some benchmarks need Spark, the list of them does not
    return (ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or "").splitlines()[0]


def page(name: str) -> Callable[[Report], str]:
    """Return the function that writes a benchmark's report as a page; most have none."""
    write: Callable[[Report], str] | None = getattr(benchmark(name), "page", None)
    if write is None:
        raise InvalidArgumentError(
            f"benchmark {name!r} does not write a page; `equipoise-lab bench peers --page FILE` and `conformance` do"
        )
    return write


def details(report: Report) -> list[tuple[str, ...]]:
    """Return a table of what lies behind the metrics of a report, its heading first; most benchmarks have none."""
    rows: Callable[[Report], list[tuple[str, ...]]] | None = getattr(benchmark(report.benchmark), "details", None)
    return [] if rows is None else rows(report)


def run(name: str, context: Context) -> Report:
    """Run a benchmark and record where it ran."""
    result: Result = benchmark(name).run(context)
    return Report(name, result.metrics, {"quick": context.quick, **result.samples}, environment(context.seed))
