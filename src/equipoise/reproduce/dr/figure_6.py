"""Figure 6 of DR: what a stream with keyed state gains in throughput, over the skew of its keys."""

import time
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from equipoise.reproduce.context import Context
from equipoise.reproduce.dr.gains import gains, middle_gains_most, told
from equipoise.reproduce.drawing import lines
from equipoise.reproduce.exhibit import Claim, Exhibit, Setting
from equipoise.reproduce.rows import Row, Rows
from equipoise.reproduce.verdict import Finding, judged
from equipoise.simulate.workloads import sample, shifted_power_law_shares

_METHODS: dict[str, dict[str, Any]] = {"hash": {"hash": True}, "DR": {}}
_FILES = 4


def run(context: Context) -> Iterator[Row]:
    """A count for each key as state, with a service time for each record, by hash and with DR."""
    from equipoise.bench.local_spark import local_spark  # noqa: PLC0415 - needs Spark
    from equipoise.bench.stream import (  # noqa: PLC0415 - as above
        TOTALS,
        VectorTotals,
        read_batches,
        run_stateful,
        scratch,
        write_batches,
    )

    rng, records = np.random.default_rng(context.seed), context["records of a batch"]
    cases = list(product(context["parallelism"], context["exponents"]))
    with local_spark(max(context["parallelism"])) as spark, scratch() as folder:
        for number, (parallelism, exponent) in enumerate(context.track(cases)):
            shares = shifted_power_law_shares(context["keys"], exponent, context["shift of the law"])
            drawn = [sample(shares, records, rng) for _ in range(context["batches"] + 1)]
            write_batches(folder / f"{number}", [{"key": keys, "value": keys % 7} for keys in drawn], _FILES)
            processor = VectorTotals(time.sleep, context["seconds of an even task"] * parallelism / records)
            for method, options in _METHODS.items():
                stream = read_batches(spark, folder / f"{number}", "key long, value long", _FILES)
                at = folder / f"{number}-{method}"
                seconds = sum(run_stateful(stream, processor, TOTALS, parallelism, at, **options)[1:])
                yield {
                    "parallelism": parallelism,
                    "exponent": exponent,
                    "method": method,
                    "seconds": seconds,
                    "throughput": context["batches"] * records / seconds,
                }


def _more_throughput(rows: Rows) -> Finding:
    found = {p: gains(rows.where(parallelism=p), "seconds") for p in rows.distinct("parallelism")}
    return judged(
        "; ".join(f"parallelism {p}: {told(each)}" for p, each in found.items()),
        shape={
            "throughput is higher with DR at some exponent, for each parallelism": all(
                max(each.values()) > 1.1 for each in found.values()
            )
        },
    )


def _in_the_middle(rows: Rows) -> Finding:
    return middle_gains_most("seconds")(rows.where(parallelism=max(rows.distinct("parallelism"))))


EXHIBIT = Exhibit(
    name="dr/figure-6",
    title="throughput and time of a stateful stream, over the exponent of the keys (Spark instead of Flink)",
    section="Section 5, evaluation of Apache Flink DR",
    settings={
        "parallelism": Setting("14, 28", (4,), (14,), (14, 28)),
        "keys": Setting("1 M", 200, 2_000, 5_000),
        "records of a batch": Setting("57,500 / s and source", 400, 20_000, 50_000),
        "batches": Setting("10 minutes", 2, 4, 8),
        "shift of the law": Setting("10, in the code of the paper", 10, 10, 10),
        "exponents": Setting("1 to 2", (1.0, 1.5, 3.0), (1.0, 2.0, 4.0), (1.0, 1.5, 2.0, 3.0, 4.0)),
        "seconds of an even task": Setting("not given", 0.1, 1.0, 3.0),
    },
    claims=(
        Claim("DR increases the throughput", "up to about a half more", _more_throughput),
        Claim("Running time improves for the moderate exponents", "a gain in the middle", _in_the_middle),
    ),
    run=run,
    draw=lambda rows: lines(rows, "exponent", {"throughput": "records / s"}, line="method", panel="parallelism"),
    note="In spirit, on Spark: a stateful stream of micro-batches with as many emulated slots as the larger "
    "parallelism, a service time that waits for each record, and state that moves between batches. The first batch, in "
    "which Spark starts, is not counted; the batch after which DR plans first is.",
    spark=True,
)
