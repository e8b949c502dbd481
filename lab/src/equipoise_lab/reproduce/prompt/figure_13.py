"""Figure 13 of Prompt: how long the reduce tasks of a batch take, by time-based blocks and by planned ones."""

from collections.abc import Iterator

import numpy as np

from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.drawing import lines
from equipoise_lab.reproduce.exhibit import Claim, Exhibit, Setting
from equipoise_lab.reproduce.rows import Row, Rows
from equipoise_lab.reproduce.verdict import Finding, judged

_TECHNIQUES = ("time-based", "prompt as printed", "prompt")


def run(context: Context) -> Iterator[Row]:
    """The same batches by each technique; times of their reduce tasks."""
    from equipoise_lab.bench.local_spark import local_spark  # noqa: PLC0415 - needs Spark
    from equipoise_lab.bench.prompt import SLOTS, Arrivals, process, sinusoidal_arrivals  # noqa: PLC0415 - as above

    rng, tuples = np.random.default_rng(context.seed), context["tuples of a batch"]
    service = context["seconds of an even batch"] * SLOTS / tuples

    def steady(count: int) -> Arrivals:  # when tuples come makes no difference to reduce tasks
        return sinusoidal_arrivals(count, context["exponent"], rng, waves=1.0, swing=0.0)

    with local_spark(SLOTS, or_more=True) as spark:
        process(spark, steady(200), "prompt", 0.0)  # warms up
        for number in context.track(range(context["batches"])):
            arrivals = steady(tuples)
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


def _longer(rows: Rows) -> Finding:
    found = {m: (rows.mean("mean", technique=m), max(rows.column("longest", technique=m))) for m in _TECHNIQUES}
    prompt, plain = found["prompt as printed"], found["time-based"]
    return judged(
        ", ".join(f"{m} {mean:.2f} s on average, at most {most:.2f} s" for m, (mean, most) in found.items()),
        shape={
            "the average reduce task takes longer with Prompt": prompt[0] > plain[0],
            "the longest one takes longer with Prompt": prompt[1] > plain[1],
        },
    )


EXHIBIT = Exhibit(
    name="prompt/figure-13",
    title="times of reduce tasks, batch by batch",
    section="Section 7.2, latency distribution",
    settings={
        "batches": Setting("thousands", 2, 2, 20),
        "tuples of a batch": Setting("not given", 200, 6_000, 6_000),
        "exponent": Setting("not given", 1.0, 1.0, 1.0),
        "seconds of an even batch": Setting("not given", 0.2, 1.0, 1.0),
    },
    claims=(
        Claim(
            "Reduce tasks differ less in their times with Prompt",
            "low variance instead of high",
            _narrower,
            looked_into="Algorithm 3 sends a key that was split to the bucket of its hash, and the keys that are split "
            "are the hottest ones; ours deals them out by their size",
        ),
        Claim(
            "Average and maximal latencies increase with Prompt",
            "both increase",
            _longer,
            looked_into="The sum of all reduce tasks is the same whatever the buckets, so their average is, too, and "
            "the longest is shorter where they are even",
        ),
    ),
    run=run,
    draw=lambda rows: lines(
        rows, "batch", {"spread": "p95 - p5 of a batch, s", "longest": "longest reduce task, s"}, line="technique"
    ),
    note="On 8 emulated slots with a service time that waits. Map tasks hand on tuples uncombined, as the clusters of "
    "the paper are: how reduce tasks differ then depends on the buckets alone, which are by hash for time-based "
    "batches and by algorithm 3 for Prompt.",
    spark=True,
)
