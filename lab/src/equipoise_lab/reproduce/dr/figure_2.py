"""Figure 2 of DR: imbalance over the number of partitions."""

from collections.abc import Iterator
from itertools import pairwise, product
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from equipoise.metrics import load_imbalance, lower_bound
from equipoise.microbatch.zipf import zipf_shares
from equipoise.plan import KIP, Planner, uniform_plan
from equipoise.sketch import Histogram
from equipoise_lab.bench.planners import contenders
from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.drawing import lines
from equipoise_lab.reproduce.exhibit import Claim, Exhibit, Setting, as_in_paper
from equipoise_lab.reproduce.rows import Row, Rows
from equipoise_lab.reproduce.verdict import Finding, judged
from equipoise_lab.simulate.workloads import key_fingerprints, shifted_power_law_shares
from equipoise_lab.variants import KIPPrinted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMES = {"uniform": "Hash", "readj": "Readj", "redist": "Redist", "scan": "Scan", "mixed": "Mixed"}
_CUT = 0.1  # the released code drops a tenth of the runs at either end


def _planners(partitions: int, scales: tuple[int, ...]) -> dict[str, tuple[Planner, int]]:
    """The methods of the paper by name, each with the number of keys that it is shown for each partition."""
    found = {_NAMES[name]: (planner, 2) for name, planner in contenders(partitions).items() if name in _NAMES}
    found |= {f"KIP, scale {scale}": (KIPPrinted(histogram_scale=scale), scale) for scale in scales}
    return found | {f"KIP, ours, scale {scale}": (KIP(histogram_scale=scale), scale) for scale in scales}


def run(context: Context) -> Iterator[Row]:
    """One update from plain hash by every method, under two readings of ZIPF."""
    laws = {
        "shifted": shifted_power_law_shares(context["keys"], 1.0, 10),
        "Zipf": zipf_shares(context["keys"], 1.0),
    }
    for (law, shares), partitions in context.track(product(laws.items(), context["partitions"])):
        for method, (planner, scale) in _planners(partitions, context["histogram scales"]).items():
            listed = len(shares) if method == "Mixed" else scale * partitions + 1
            values = [
                _imbalance(planner, partitions, shares, listed, context.seed * 1000 + run_number)
                for run_number in range(context["runs"])
            ]
            cut = int(len(values) * _CUT)
            yield {
                "law": law,
                "partitions": partitions,
                "method": method,
                "imbalance": fmean(sorted(values)[cut : len(values) - cut]),
                "bound": lower_bound(partitions, float(shares[0])),
            }


def _imbalance(planner: Planner, partitions: int, shares: NDArray[np.float64], listed: int, seed: int) -> float:
    keys = key_fingerprints(np.arange(len(shares)), seed)
    plan = planner.plan(uniform_plan(partitions, 100 * partitions), Histogram(keys[:listed], shares[:listed]))
    return load_imbalance(np.bincount(plan.assign(keys), shares, partitions))


def draw(rows: Rows) -> "Figure":
    """The methods under both laws, and the scales of KIP's histogram."""
    scales = rows.where(law="shifted", method=tuple(m for m in rows.distinct("method") if "scale" in m))
    methods = rows.where(method=(*_NAMES.values(), "KIP, scale 2", "KIP, ours, scale 2"))
    panels = [{**row, "panel": f"methods, {row['law']}"} for row in methods]
    panels += [{**row, "panel": "scales of the histogram, shifted"} for row in scales]
    return lines(
        Rows(panels), "partitions", {"imbalance": "largest load over mean"}, line="method", panel="panel", log_x=True
    )


def _line(rows: Rows, method: str, law: str = "shifted") -> dict[int, float]:
    return dict(zip(*rows.line("partitions", "imbalance", law=law, method=method), strict=True))


def _formatted(values: dict[int, float]) -> str:
    return ", ".join(f"{value:.3f} at {n}" for n, value in values.items())


def _linear_growth(rows: Rows) -> Finding:
    found = {method: _line(rows, method) for method in ("Hash", "Readj", "Redist", "Scan")}
    fits = {m: float(np.corrcoef(list(line), list(line.values()))[0, 1]) ** 2 for m, line in found.items()}
    apart = max(abs(found[m][n] / found["Readj"][n] - 1) for m in ("Redist", "Scan") for n in found["Readj"])
    return judged(
        "; ".join(f"{m} {_formatted(line)}" for m, line in found.items()),
        shape={
            "they grow with the partitions": all(line[max(line)] > line[min(line)] for line in found.values()),
            "a straight line explains 90 % or more": min(fits.values()) > 0.9,
            "Redist and Scan are within a quarter of Readj": apart < 0.25,
        },
    )


def _mixed_between(rows: Rows) -> Finding:
    mixed, readj, kip = _line(rows, "Mixed"), _line(rows, "Readj"), _line(rows, "KIP, scale 2")
    last = max(mixed)
    return judged(
        f"at {last} partitions Mixed {mixed[last]:.2f}, Readj {readj[last]:.2f}, KIP {kip[last]:.2f}",
        shape={
            "Mixed grows more slowly than Readj": mixed[last] < readj[last],
            "KIP is below Mixed": kip[last] < mixed[last],
        },
    )


def _below_1_2(rows: Rows) -> Finding:
    printed, ours = _line(rows, "KIP, scale 2"), _line(rows, "KIP, ours, scale 2")
    return judged(
        f"as printed {_formatted(printed)}; ours {_formatted(ours)}",
        shape={"KIP as printed stays below 1.2": max(printed.values()) < 1.2},
    )


def _below_1_2_under_zipf(rows: Rows) -> Finding:
    printed = _line(rows, "KIP, scale 2", "Zipf")
    bounds = dict(zip(*rows.line("partitions", "bound", law="Zipf"), strict=True))
    return judged(
        f"as printed {_formatted(printed)}; no plan can be below {_formatted(bounds)}",
        shape={"KIP as printed stays below 1.2": max(printed.values()) < 1.2},
    )


def _larger_scale(rows: Rows) -> Finding:
    last = max(rows.distinct("partitions"))
    found = {
        scale: rows.mean("imbalance", law="shifted", partitions=last, method=f"KIP, scale {scale}")
        for scale in (1, 2, 3, 4)
    }
    values = list(found.values())
    return judged(
        f"at {last} partitions " + ", ".join(f"{value:.3f} with {scale}" for scale, value in found.items()),
        shape={"each larger scale is at least as good, within 1 %": all(b <= 1.01 * a for a, b in pairwise(values))},
        numbers={"4 is better than 1": values[3] < values[0]},
    )


EXHIBIT = Exhibit(
    name="dr/figure-2",
    title="imbalance over the number of partitions, and over the scale of the histogram",
    section="Section 5, evaluation of hashing techniques",
    settings={
        "keys": as_in_paper(100_000, tiny=5_000),
        "partitions": Setting("4 to 64 or so", (4, 16), (4, 8, 16, 32, 64), (4, 8, 16, 32, 64)),
        "runs": Setting("100", 2, 3, 100),
        "histogram scales": as_in_paper((1, 2, 3, 4)),
    },
    claims=(
        Claim(
            "The imbalance of Hash and Readj grows linearly with the partitions; Redist and Scan are very similar",
            "linear growth",
            _linear_growth,
        ),
        Claim(
            "Imbalance grows much slower for Mixed",
            "between Readj and KIP",
            _mixed_between,
            looked_into="Mixed is shown every key, with its exact share, and KIP only the hottest 2 N + 1",
        ),
        Claim("KIP stays below 1.2, with the power law of the released code", "below 1.2", _below_1_2),
        Claim(
            "KIP stays below 1.2 over Zipf of exponent 1",
            "below 1.2",
            _below_1_2_under_zipf,
            looked_into="The hottest of 100,000 keys has 8.3 % under Zipf's law, more than a partition's part from "
            "12 partitions on, so no method that keeps keys whole can stay below 1.2; the released code draws from a "
            "law whose head is flattened, (i + 10)^-1",
        ),
        Claim("KIP reaches better balance with a larger histogram scale", "1, 2, 3, 4", _larger_scale),
    ),
    run=run,
    draw=draw,
    note="KIP as printed, and ours, which uses what is known of the groups of light keys; both from plain hash by "
    "one update.",
)
