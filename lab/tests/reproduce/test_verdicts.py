"""Every claim holds on the numbers of its paper, and can fail."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from equipoise_lab.reproduce import Rows, Verdict, exhibits

_SPEC = importlib.util.spec_from_file_location("as_printed", Path(__file__).with_name("as_printed.py"))
as_printed = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(as_printed)

EXHIBITS = exhibits()
MEASURED = {
    "BCI",
    "BSI",
    "average",
    "bound",
    "bytes",
    "communication",
    "computation",
    "cost",
    "counted",
    "counters",
    "deviation",
    "disagreement",
    "ends",
    "error",
    "held",
    "imbalance",
    "jaccard",
    "latency",
    "load",
    "longest",
    "map tasks",
    "mapped",
    "mean",
    "migration",
    "most",
    "rate",
    "reduce tasks",
    "seconds",
    "share",
    "spread",
    "state",
    "threshold",
    "throughput",
    "time",
    "widest as coded",
    "widest as printed",
}
SPOILS = 40


def printed(name):
    return getattr(as_printed, name.replace("/", "_").replace("-", "_"))()


def spoiled(rows, seed):
    """The same rows with every measured value off by a random factor, by orders of magnitude for odd seeds."""
    rng = np.random.default_rng(seed)
    spread = 10 if seed % 2 else 2
    factors = [{name: float(np.exp(rng.normal(0, spread))) for name in sorted(MEASURED)} for _ in rows]
    return [
        {name: value * factor[name] if name in MEASURED else value for name, value in row.items()}
        for row, factor in zip(rows, factors, strict=True)
    ]


@pytest.mark.parametrize("name", EXHIBITS)
def test_every_claim_holds_on_the_numbers_of_its_paper(name):
    rows = Rows(printed(name))
    for claim in EXHIBITS[name].claims:
        finding = claim.check(rows)
        assert finding.verdict is Verdict.HOLDS, f"{claim.says}: {finding}"


@pytest.mark.parametrize("name", EXHIBITS)
def test_every_claim_can_fail(name):
    rows = printed(name)
    for claim in EXHIBITS[name].claims:
        findings = (claim.check(Rows(spoiled(rows, seed))) for seed in range(SPOILS))
        assert any(finding.verdict is Verdict.FAILS for finding in findings), claim.says
