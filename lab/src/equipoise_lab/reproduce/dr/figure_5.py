"""Figure 5 of DR: over-partitioning, with and without repartitioning."""

from collections.abc import Iterator
from itertools import product
from statistics import fmean

import numpy as np

from equipoise.metrics import load_imbalance, makespan
from equipoise.microbatch.zipf import zipf_shares
from equipoise.plan import KIP, Planner, Uniform, uniform_plan
from equipoise.sketch import Histogram
from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.drawing import lines
from equipoise_lab.reproduce.exhibit import Claim, Exhibit, Setting, as_in_paper
from equipoise_lab.reproduce.rows import Row, Rows
from equipoise_lab.reproduce.verdict import Finding, judged
from equipoise_lab.simulate.workloads import key_fingerprints
from equipoise_lab.variants import KIPPrinted

_METHODS: dict[str, Planner] = {"hash": Uniform(), "DR": KIPPrinted(), "DR, ours": KIP()}


def run(context: Context) -> Iterator[Row]:
    """Time of a stage whose tasks take as long as they have records, and a little to start."""
    shares = zipf_shares(context["keys"], context["exponent"])
    slots, overhead = context["slots"], context["start of a task"]
    for partitions, (method, planner) in context.track(product(context["partitions"], _METHODS.items())):
        listed = 2 * partitions + 1
        times, imbalances = [], []
        for seed in context.seeds(context["runs"]):
            keys = key_fingerprints(np.arange(len(shares)), seed)
            plan = planner.plan(uniform_plan(partitions, 100 * partitions), Histogram(keys[:listed], shares[:listed]))
            loads = np.bincount(plan.assign(keys), shares, partitions)
            times.append(makespan(loads * slots + overhead, slots))
            imbalances.append(load_imbalance(loads))
        yield {
            "partitions": partitions,
            "method": method,
            "time": fmean(times),
            "imbalance": fmean(imbalances),
        }


def _line(rows: Rows, method: str) -> dict[int, float]:
    return dict(zip(*rows.line("partitions", "time", method=method), strict=True))


def _formatted(values: dict[int, float]) -> str:
    return ", ".join(f"{value:.2f} at {n}" for n, value in values.items())


def _over_partitioning_helps(rows: Rows) -> Finding:
    plain = _line(rows, "hash")
    return judged(
        f"hash: {_formatted(plain)}",
        shape={
            "more partitions than slots are faster": min(list(plain.values())[2:]) < list(plain.values())[1],
            "processing time keeps improving to the largest number": list(plain.values())[-1]
            <= 1.02 * min(plain.values()),
        },
    )


def _cannot_reach(rows: Rows) -> Finding:
    plain, dr, ours = (_line(rows, m) for m in ("hash", "DR", "DR, ours"))
    return judged(
        f"best of hash {min(plain.values()):.2f}, of DR {min(dr.values()):.2f}, of ours {min(ours.values()):.2f}, in "
        "units of the ideal time",
        shape={"the best time of hash is above that of DR": min(plain.values()) > min(dr.values())},
    )


def _best_at_2_to_3(rows: Rows) -> Finding:
    dr = _line(rows, "DR")
    slots = sorted(dr)[1]
    best = min(dr, key=lambda n: dr[n])
    return judged(
        f"DR: {_formatted(dr)}; best at {best / slots:.1f} partitions a slot",
        shape={"DR is best with more partitions than slots": best > slots},
        numbers={"with 2 or 3 times as many": 2 <= best / slots <= 3},
    )


EXHIBIT = Exhibit(
    name="dr/figure-5",
    title="over-partitioning with and without DR (model of a stage)",
    section="Section 5, evaluation of Apache Spark DR",
    settings={
        "keys": as_in_paper(1_000_000, tiny=5_000),
        "exponent": as_in_paper(1.5),
        "slots": as_in_paper(40, tiny=4),
        "partitions": Setting(
            "some to many", (2, 4, 8, 16), (20, 40, 80, 120, 160, 240, 400), (20, 40, 80, 120, 160, 240, 400)
        ),
        "start of a task": Setting("not given", 0.01, 0.01, 0.01),
        "runs": Setting("not given", 1, 10, 30),
    },
    claims=(
        Claim("Without DR over-partitioning helps, and time keeps improving", "falling", _over_partitioning_helps),
        Claim("The speedup of DR cannot be reached by over-partitioning", "DR below", _cannot_reach),
        Claim(
            "DR is best with 2 to 3 times as many partitions as slots",
            "2 to 3",
            _best_at_2_to_3,
            looked_into="With an exponent of 1.5 the hottest of a million keys has 38 % of the records, fifteen "
            "times what a slot should have; whoever has it ends last, and the number of partitions hardly matters",
        ),
    ),
    run=run,
    draw=lambda rows: lines(
        rows,
        "partitions",
        {"time": "time over the ideal", "imbalance": "largest load over mean"},
        line="method",
        log_x=True,
    ),
    note="A model of one stage, not Spark: tasks start in turn on 40 slots, each takes as long as it has records and "
    "a hundredth of the ideal time to start.",
)
