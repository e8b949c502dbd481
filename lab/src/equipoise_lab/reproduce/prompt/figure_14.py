"""Figure 14 of Prompt: what planning costs, and what it saves against sorting the batch at its end."""

import time
from collections.abc import Iterator
from itertools import product
from statistics import median

import numpy as np
from numpy.typing import NDArray

from equipoise.microbatch import Accumulator, level_blocks, post_sorted, prompt_blocks
from equipoise.microbatch.zipf import sample, zipf_shares
from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.drawing import lines
from equipoise_lab.reproduce.exhibit import Claim, Exhibit, Setting
from equipoise_lab.reproduce.rows import Row, Rows
from equipoise_lab.reproduce.verdict import Finding, judged
from equipoise_lab.simulate.workloads import key_fingerprints

_PLANS = {"Prompt": prompt_blocks, "Prompt, ours": level_blocks}
_CHUNK = 10_000


def run(context: Context) -> Iterator[Row]:
    """Buffer and plan batches of an interval, and sort them instead."""
    rng = np.random.default_rng(context.seed)
    for exponent, interval in context.track(product(context["exponents"], context["intervals, s"])):
        rows = int(context["rate"] * interval)
        drawn = key_fingerprints(sample(zipf_shares(context["keys"], exponent), rows, rng), context.seed)
        timed = [_timed(drawn, context["keys"], context["blocks"]) for _ in range(context["runs"] + 1)][1:]
        for name in timed[0]:
            seconds = median(each[name] for each in timed)
            yield {
                "exponent": exponent,
                "interval": interval,
                "what": name,
                "seconds": seconds,
                "share": 100 * seconds / interval,
            }


def _timed(keys: NDArray[np.int64], distinct: int, blocks: int) -> dict[str, float]:
    """Seconds after the batch closed: to plan it, or to sort it and then plan."""
    times = np.linspace(0, 1, len(keys), endpoint=False)
    found = {}
    for name, cut in _PLANS.items():
        buffer = Accumulator(0, 1, expected=len(keys), expected_keys=distinct)
        for at in range(0, len(keys), _CHUNK):
            buffer.add(keys[at : at + _CHUNK], times[at : at + _CHUNK])
        start = time.perf_counter()
        batch = buffer.close()
        cut(batch, blocks).of_tuples(batch)
        found[name] = time.perf_counter() - start
    start = time.perf_counter()
    batch = post_sorted(keys)
    prompt_blocks(batch, blocks).of_tuples(batch)
    found["post-sort"] = time.perf_counter() - start
    return found


def _bounded(rows: Rows) -> Finding:
    found = {name: max(rows.column("share", what=name)) for name in _PLANS}
    return judged(
        ", ".join(f"{name} at most {value:.2f} % of the interval" for name, value in found.items()),
        shape={"Prompt takes at most 5 % of the interval": found["Prompt"] <= 5},
    )


def _sorting_costs_more(rows: Rows) -> Finding:
    ratios = [
        row["seconds"] / rows.mean("seconds", what="Prompt", exponent=row["exponent"], interval=row["interval"])
        for row in rows.where(what="post-sort")
    ]
    return judged(
        f"after the batch has closed, sorting and planning takes {min(ratios):.1f} to {max(ratios):.1f} times what "
        "planning takes",
        shape={"sorting at the end takes longer everywhere": min(ratios) > 1},
    )


EXHIBIT = Exhibit(
    name="prompt/figure-14",
    title="overhead of planning, and of sorting at the end of a batch instead",
    section="Section 7.2, partitioning overhead",
    settings={
        "rate": Setting("not given, tuples / s", 5_000, 100_000, 200_000),
        "keys": Setting("500 k to 1 M", 1_000, 100_000, 500_000),
        "blocks": Setting("not given", 8, 32, 32),
        "intervals, s": Setting("1, 2, 3", (1, 2), (1, 2, 3), (1, 2, 3)),
        "exponents": Setting("not given", (1.0,), (0.5, 1.0, 1.5), (0.5, 1.0, 1.5)),
        "runs": Setting("not given", 1, 5, 9),
    },
    claims=(
        Claim("Planning is bounded by 5 % of the interval", "at most 5 %", _bounded),
        Claim(
            "Sorting at the end of the batch instead costs throughput",
            "lower throughput with post-sort",
            _sorting_costs_more,
        ),
    ),
    run=run,
    draw=lambda rows: lines(
        rows, "interval", {"share": "% of the interval, after it closed"}, line="what", panel="exponent"
    ),
    note="Figure 14a gives throughput; here it is the time that stands between the end of a batch and its blocks, "
    "which is what takes the throughput away. One core.",
)
