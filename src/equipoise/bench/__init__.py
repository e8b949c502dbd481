"""Every performance claim of equipoise, each a named benchmark that anyone can run."""

import ast
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from equipoise.bench.harness import Context, Report, Result, environment
from equipoise.errors import InvalidArgument
from equipoise.requirements import require_pyspark

__all__ = ["BENCHMARKS", "NEED_DATA", "Context", "Report", "Result", "benchmark", "page", "run", "summary"]

BENCHMARKS = {
    "assign": "equipoise.bench.assign",
    "sketch": "equipoise.bench.sketch",
    "planners": "equipoise.bench.planners",
    "routing": "equipoise.bench.routing",
    "batch-groups": "equipoise.bench.batch_groups",
    "batch-even": "equipoise.bench.batch_even",
    "batch-real": "equipoise.bench.batch_real",
    "splitters": "equipoise.bench.splitters",
    "split-sim": "equipoise.bench.split_sim",
    "dkg-sim": "equipoise.bench.dkg_sim",
    "split-agg": "equipoise.bench.split_agg",
    "skew-join": "equipoise.bench.skew_join",
    "prompt-core": "equipoise.bench.prompt_core",
    "prompt-throughput": "equipoise.bench.prompt_throughput",
    "prompt-latency": "equipoise.bench.prompt_latency",
    "prompt-elastic": "equipoise.bench.prompt_elastic",
    "prompt-overhead": "equipoise.bench.prompt_overhead",
    "fuzz-feed": "equipoise.bench.fuzz_feed",
    "stream-throughput": "equipoise.bench.stream_throughput",
    "stream-drift": "equipoise.bench.stream_drift",
    "stream-real": "equipoise.bench.stream_real",
    "state-growth": "equipoise.bench.state_growth",
    "stream-even": "equipoise.bench.stream_even",
    "peers": "equipoise.bench.peers",
    "simulate-protocol": "equipoise.bench.simulate_protocol",
    "sink-cost": "equipoise.bench.sink_cost",
}
"""Module of each benchmark; it has a docstring and ``run(context) -> Result``."""


NEED_DATA = {"batch-real", "stream-real"}
"""Benchmarks of real data, which run only with ``--data``."""


def benchmark(name: str) -> ModuleType:
    """Module of a benchmark."""
    if name not in BENCHMARKS:
        raise InvalidArgument(f"there is no benchmark {name!r}; choose one of {', '.join(BENCHMARKS)}")
    try:
        return import_module(BENCHMARKS[name])
    except ModuleNotFoundError as error:
        if error.name in {"pyspark", "pandas", "pyarrow", "lmdb"}:
            require_pyspark()
        raise


def summary(name: str) -> str:
    """What a benchmark measures, in one line."""
    spec = find_spec(BENCHMARKS[name])
    assert spec is not None  # noqa: S101 - the table above names modules that exist
    assert spec.origin is not None  # noqa: S101 - and that are files
    # read without importing: some benchmarks need Spark, the list of them does not
    return (ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or "").splitlines()[0]


def page(name: str) -> Callable[[Report], str]:
    """What writes the page of a benchmark from its report; most have none."""
    write: Callable[[Report], str] | None = getattr(benchmark(name), "page", None)
    if write is None:
        raise InvalidArgument(f"benchmark {name!r} writes no page; `equipoise bench peers --page FILE` does")
    return write


def run(name: str, context: Context) -> Report:
    """Run a benchmark and record where it ran."""
    result: Result = benchmark(name).run(context)
    return Report(name, result.metrics, {"quick": context.quick, **result.samples}, environment(context.seed))
