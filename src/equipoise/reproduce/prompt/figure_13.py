"""Figure 13 of Prompt: how long the reduce tasks of a batch take, by time-based blocks and by planned ones."""

from collections.abc import Iterator

import numpy as np

from equipoise.reproduce.context import Context
from equipoise.reproduce.drawing import lines
from equipoise.reproduce.exhibit import Claim, Exhibit, Setting
from equipoise.reproduce.rows import Row, Rows
from equipoise.reproduce.verdict import Finding, judged

_TECHNIQUES = ("time-based", "prompt as printed", "prompt")
_BATCHES_OF_A_WAVE = 5


def run(context: Context) -> Iterator[Row]:
    """The same batches by each technique; times of their reduce tasks."""
    from equipoise.bench.local_spark import local_spark  # noqa: PLC0415 - needs Spark
    from equipoise.bench.prompt import SLOTS, process, sinusoidal_arrivals  # noqa: PLC0415 - as above

    rng, tuples = np.random.default_rng(context.seed), context["tuples of a batch"]
    service = context["seconds of an even batch"] * SLOTS / tuples
    wave = {"waves": 1 / _BATCHES_OF_A_WAVE, "swing": context["swing"]}
    with local_spark(SLOTS) as spark:
        process(spark, sinusoidal_arrivals(200, context["exponent"], rng, **wave), "prompt", 0.0)  # warms up
        for number in context.track(range(context["batches"])):
            arrivals = sinusoidal_arrivals(tuples, context["exponent"], rng, number=number, **wave)
            for technique in _TECHNIQUES:
                taken = process(spark, arrivals, technique, service).reduce_seconds
                early, late = np.percentile(taken, [5, 95])
                yield {
                    "batch": number,
                    "technique": technique,
                    "mean": float(np.mean(taken)),
                    "longest": max(taken),
                    "spread": float(late - early),
                }


def _narrower(rows: Rows) -> Finding:
    spread = {m: rows.mean("spread", technique=m) for m in _TECHNIQUES}
    return judged(
        ", ".join(f"{m} {value:.2f} s" for m, value in spread.items()) + " between the 5th and the 95th percentile",
        shape={"Prompt has the smaller spread": spread["prompt as printed"] < spread["time-based"]},
    )


def _bounded(rows: Rows) -> Finding:
    longest = {m: max(rows.column("longest", technique=m)) for m in _TECHNIQUES}
    return judged(
        "longest reduce task: " + ", ".join(f"{m} {value:.2f} s" for m, value in longest.items()),
        shape={"the longest reduce task is shorter with Prompt": longest["prompt as printed"] < longest["time-based"]},
    )


EXHIBIT = Exhibit(
    name="prompt/figure-13",
    title="times of reduce tasks, batch by batch",
    section="Section 7.2, latency distribution",
    settings={
        "batches": Setting("thousands", 2, 3, 30),
        "tuples of a batch": Setting("not given", 200, 6_000, 6_000),
        "exponent": Setting("not given", 1.0, 1.0, 1.0),
        "swing": Setting("not given", 0.5, 0.5, 0.5),
        "seconds of an even batch": Setting("not given", 0.2, 1.0, 1.0),
    },
    claims=(
        Claim("Reduce tasks take more alike with Prompt", "a narrow band instead of a wide one", _narrower),
        Claim("The upper bound of the latency is lower", "a low upper bound", _bounded),
    ),
    run=run,
    draw=lambda rows: lines(
        rows, "batch", {"spread": "p95 - p5 of a batch, s", "longest": "longest reduce task, s"}, line="technique"
    ),
    note="On 8 emulated slots with a service time that waits. The text of the paper says that average and maximal "
    "latencies increase with Prompt; its figure shows the opposite of the maximum, and that is what is judged.",
    spark=True,
)
