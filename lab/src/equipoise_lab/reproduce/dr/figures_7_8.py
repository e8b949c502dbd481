"""Figures 7 and 8 (left) of DR: rounds of a crawl, their fetch lists partitioned by host."""

import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from equipoise.adapt import Policy
from equipoise.errors import InvalidArgumentError
from equipoise.metrics import load_imbalance
from equipoise.microbatch.zipf import sample, zipf_shares
from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.dr.gains import METHODS
from equipoise_lab.reproduce.drawing import bars
from equipoise_lab.reproduce.exhibit import Claim, Exhibit, Setting
from equipoise_lab.reproduce.rows import Row, Rows
from equipoise_lab.reproduce.verdict import Finding, judged, near
from equipoise_lab.simulate.workloads import load_parquet_keys

_FILE = "reddit_links.parquet"
_FILES = 8
_SETTINGS = {
    "rounds": Setting("7", (1, 2), (1, 4), (1, 2, 3, 4, 5, 6, 7)),
    "pages of the first round": Setting("not given", 200, 1_000, 2_000),
    "growth of the frontier": Setting("not given", 1.4, 1.4, 1.4),
    "hosts": Setting("64 sites, and those that they link to", 100, 600, 1_000),
    "exponent of the hosts": Setting("heavily skewed", 1.0, 1.0, 1.0),
    "partitions": Setting("not given, on 64 cores", 4, 16, 16),
    "seconds of a page": Setting("not given", 0.002, 0.006, 0.02),
}


def run(context: Context) -> Iterator[Row]:
    """Fetch one list after the other; what a round observed is what the next one is planned by."""
    from equipoise.spark import balance  # noqa: PLC0415 - as above
    from equipoise_lab.bench.contenders import grouped  # noqa: PLC0415 - needs Spark
    from equipoise_lab.bench.local_spark import as_parquet, local_spark, run_to_the_end  # noqa: PLC0415 - as above
    from equipoise_lab.bench.placed_records import records_by_hash, records_of_partitions  # noqa: PLC0415 - as above

    partitions, fetch = context["partitions"], grouped.waiting(context["seconds of a page"])
    with local_spark(partitions) as spark, TemporaryDirectory() as folder:
        with as_parquet(spark, {"key": np.arange(2 * partitions)}, _FILES) as few:
            run_to_the_end(grouped.by_balance(few, partitions, grouped.waiting(0.0), partitions))  # warms up
        hosts, lists = _fetch_lists(context)
        crawled = list(zip(context["rounds"], lists, strict=True))
        for (number, pages), (method, planner) in context.track(product(crawled, METHODS.items())):
            with as_parquet(spark, {"key": pages}, _FILES) as df:
                start = time.perf_counter()
                if planner is None:
                    run_to_the_end(grouped.by_hash(df, partitions, fetch))
                    seconds = time.perf_counter() - start
                    loads = records_by_hash(df, partitions)
                else:
                    record = str(Path(folder) / method)
                    policy = Policy(planner=planner)
                    groups = balance(
                        df, "key", numPartitions=partitions, policy=policy, slots=partitions, record=record
                    )
                    run_to_the_end(groups.applyInPandas(fetch, grouped.counted(df)))
                    seconds = time.perf_counter() - start
                    groups.wait_for_record()
                    loads = records_of_partitions(df, groups.partition, partitions)
                hottest = np.unique(pages, return_counts=True)[1].max()
                yield {
                    "hosts": hosts,
                    "round": number,
                    "method": method,
                    "pages": len(pages),
                    "seconds": seconds,
                    "imbalance": load_imbalance(loads),
                    "bound": max(1.0, float(hottest * partitions / len(pages))),
                }


def _fetch_lists(context: Context) -> tuple[str, list[NDArray[np.int64]]]:
    """Hosts of the pages of each round, recorded ones where there are any, else drawn; and which of both they are."""
    first, growth = context["pages of the first round"], context["growth of the frontier"]
    sizes = [int(first * growth ** (number - 1)) for number in context["rounds"]]
    path = context.file(_FILE)
    if path is None:
        rng = np.random.default_rng(context.seed)
        shares = zipf_shares(context["hosts"], context["exponent of the hosts"])
        return "generated", [sample(shares, size, rng) for size in sizes]
    links = load_parquet_keys(path)
    if len(links) < sum(sizes):
        raise InvalidArgumentError(f"{path} has {len(links):,} rows, and the rounds need {sum(sizes):,}")
    return "recorded", np.split(links[: sum(sizes)], np.cumsum(sizes)[:-1])


def _last(rows: Rows, name: str) -> dict[str, float]:
    last = rows.where(round=max(rows.distinct("round")))
    return {method: last.mean(name, method=method) for method in METHODS}


def _more_even(rows: Rows) -> Finding:
    found, bound = _last(rows, "imbalance"), _last(rows, "bound")["DR"]
    return judged(
        "largest partition over mean: "
        + ", ".join(f"{method} {value:.2f}" for method, value in found.items())
        + f"; no plan below {bound:.2f}",
        shape={"DR is more even than hash in the last round": found["DR"] < found["hash"]},
    )


def _faster(rows: Rows) -> Finding:
    found = _last(rows, "seconds")
    ratio = found["hash"] / found["DR"]
    return judged(
        ", ".join(f"{method} {value:.1f} s" for method, value in found.items()) + f"; hash over DR {ratio:.2f}",
        shape={"DR is faster in the last round by a tenth or more": ratio > 1.1},
        numbers={"by 2.8 times, within a quarter": near(ratio, 69.1 / 24.9)},
    )


def _faster_in_every_round(rows: Rows) -> Finding:
    found = {
        method: [
            rows.mean("seconds", round=n, method="hash") / rows.mean("seconds", round=n, method=method)
            for n in rows.distinct("round")
        ]
        for method in ("DR", "DR, ours")
    }
    return judged(
        "hash over each: " + "; ".join(f"{m} {', '.join(f'{v:.2f}' for v in line)}" for m, line in found.items()),
        shape={"DR is faster in every round": min(found["DR"]) > 1},
    )


_NOTE = (
    "Pages take a service time that waits, as fetching does, on as many emulated slots as partitions; a host stays in "
    "one partition, as politeness asks. The first round is planned by a sample, every later one by what the round "
    "before observed (`record=`), by KIP as printed and by ours. Hosts are drawn by Zipf's law; with --data they are "
    "those of links posted on reddit, in their order."
)


EXHIBIT = Exhibit(
    name="dr/figures-7-8",
    title="balance and time of the last round of a crawl, and the speedup of each round",
    section="Section 6, balancing in distributed crawl ordering",
    settings=_SETTINGS,
    claims=(
        Claim("DR improves the balance of fetch lists", "improves the balance across all partitions", _more_even),
        Claim("The last round is significantly faster", "69.1 to 24.9 minutes", _faster),
        Claim("DR improves crawl speed in consecutive rounds", "faster", _faster_in_every_round),
    ),
    run=run,
    draw=lambda rows: bars(
        rows, "round", {"imbalance": "largest partition over mean", "seconds": "seconds"}, line="method", panel="hosts"
    ),
    note=_NOTE,
    files=(_FILE,),
    spark=True,
)
