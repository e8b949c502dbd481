"""Figures 7 and 8 (left) of DR: rounds of a crawl, their fetch lists partitioned by host."""

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from equipoise.metrics import load_imbalance
from equipoise.reproduce.context import Context
from equipoise.reproduce.dr.figure_4 import records_by_hash, records_of_partitions
from equipoise.reproduce.drawing import bars
from equipoise.reproduce.exhibit import Claim, Exhibit, Setting
from equipoise.reproduce.rows import Row, Rows
from equipoise.reproduce.verdict import Finding, judged, near
from equipoise.simulate.workloads import load_parquet_keys, sample, zipf_shares

_FILE = "reddit_links.parquet"
_FILES = 8
_SETTINGS = {
    "rounds": Setting("7", (1, 2), (1, 4, 7), (1, 2, 3, 4, 5, 6, 7)),
    "pages of the first round": Setting("not given", 200, 1_000, 2_000),
    "growth of the frontier": Setting("not given, 230 GB in round 7", 1.4, 1.4, 1.4),
    "hosts": Setting("64 sites, and those that they link to", 100, 600, 1_000),
    "exponent of the hosts": Setting("heavily skewed", 1.0, 1.0, 1.0),
    "partitions": Setting("64 cores", 4, 16, 16),
    "seconds of a page": Setting("69.1 min in round 7, by hash", 0.002, 0.008, 0.02),
}


def run(context: Context) -> Iterator[Row]:
    """Fetch one list after the other; what a round observed is what the next one is planned by."""
    from equipoise.bench.contenders import grouped  # noqa: PLC0415 - needs Spark
    from equipoise.bench.local_spark import as_parquet, local_spark, run_to_the_end  # noqa: PLC0415 - as above
    from equipoise.spark import balance  # noqa: PLC0415 - as above

    partitions, fetch = context["partitions"], grouped.waiting(context["seconds of a page"])
    with local_spark(partitions) as spark, TemporaryDirectory() as folder:
        record = str(Path(folder) / "history")
        with as_parquet(spark, {"key": np.arange(2 * partitions)}, _FILES) as few:
            run_to_the_end(grouped.by_balance(few, partitions, grouped.waiting(0.0), partitions))  # warms up
        for number, pages in zip(context["rounds"], context.track(list(_fetch_lists(context))), strict=True):
            with as_parquet(spark, {"key": pages}, _FILES) as df:
                start = time.perf_counter()
                run_to_the_end(grouped.by_hash(df, partitions, fetch))
                planned = time.perf_counter()
                with_dr = balance(df, "key", partitions, slots=partitions, history=record)
                run_to_the_end(with_dr.groupBy().applyInPandas(fetch, grouped.counted(df)))
                seconds = {"hash": planned - start, "DR": time.perf_counter() - planned}
                with_dr.wait_for_history()
                loads = {
                    "hash": records_by_hash(df, partitions),
                    "DR": records_of_partitions(df, with_dr.partition, partitions),
                }
                hottest = np.unique(pages, return_counts=True)[1].max()
                for method, taken in seconds.items():
                    yield {
                        "round": number,
                        "method": method,
                        "pages": len(pages),
                        "seconds": taken,
                        "imbalance": load_imbalance(loads[method]),
                        "bound": max(1.0, float(hottest * partitions / len(pages))),
                    }


def _fetch_lists(context: Context) -> Iterator[NDArray[np.int64]]:
    """Hosts of the pages of each round, recorded or drawn."""
    sizes = [
        int(context["pages of the first round"] * context["growth of the frontier"] ** (n - 1))
        for n in context["rounds"]
    ]
    path = context.file(_FILE)
    if path is None:
        rng = np.random.default_rng(context.seed)
        shares = zipf_shares(context["hosts"], context["exponent of the hosts"])
        yield from (sample(shares, size, rng) for size in sizes)
        return
    recorded = load_parquet_keys(path)
    places = np.linspace(0, len(recorded) - max(sizes), len(sizes)).astype(np.int64)
    yield from (recorded[at : at + size] for at, size in zip(places, sizes, strict=True))


def _last(rows: Rows, name: str) -> dict[str, float]:
    last = rows.where(round=max(rows.distinct("round")))
    return {method: last.mean(name, method=method) for method in ("hash", "DR")}


def _more_even(rows: Rows) -> Finding:
    found, bound = _last(rows, "imbalance"), _last(rows, "bound")["DR"]
    return judged(
        f"largest partition over mean: hash {found['hash']:.2f}, DR {found['DR']:.2f}; no plan below {bound:.2f}",
        shape={"DR is more even than hash in the last round": found["DR"] < found["hash"]},
    )


def _faster(rows: Rows) -> Finding:
    found = _last(rows, "seconds")
    ratio = found["hash"] / found["DR"]
    return judged(
        f"hash {found['hash']:.1f} s, DR {found['DR']:.1f} s, {ratio:.2f} times",
        shape={"DR is faster in the last round": ratio > 1},
        numbers={"by 2.8 times, within a quarter": near(ratio, 69.1 / 24.9)},
    )


def _speedups(rows: Rows) -> dict[int, float]:
    return {
        number: rows.mean("seconds", round=number, method="hash") / rows.mean("seconds", round=number, method="DR")
        for number in rows.distinct("round")
    }


def _faster_in_every_round(rows: Rows) -> Finding:
    found = _speedups(rows)
    return judged(
        ", ".join(f"round {number} {value:.2f}" for number, value in found.items()),
        shape={
            "DR is faster in every round after the first": all(v > 1 for n, v in found.items() if n > 1),
            "it gains more in the last round than in the first": found[max(found)] > found[min(found)],
        },
    )


_NOTE = (
    "Pages take a service time that waits, as fetching does, on as many emulated slots as partitions; a host stays in "
    "one partition, as politeness asks. The first round is planned by a sample, every later one by what the round "
    "before observed (`history=`). With --data the hosts are those of links posted on reddit, a part of them for each "
    "round; else they are drawn by Zipf's law."
)
_LOOKED_INTO = (
    "A host that has more pages than a partition should have bounds every plan; how far hash is above that bound is "
    "luck, and the more partitions there are, the worse"
)

EXHIBIT = Exhibit(
    name="dr/figures-7-8",
    title="balance and time of the last round of a crawl, and the speedup of each round",
    section="Section 6, balancing in distributed crawl ordering",
    settings=_SETTINGS,
    claims=(
        Claim("DR improves the balance of fetch lists", "nearly even", _more_even),
        Claim("The last round is significantly faster", "69.1 to 24.9 minutes", _faster, _LOOKED_INTO),
        Claim("DR is faster in consecutive rounds", "a speedup that grows", _faster_in_every_round, _LOOKED_INTO),
    ),
    run=run,
    draw=lambda rows: bars(
        rows, "round", {"imbalance": "largest partition over mean", "seconds": "seconds"}, line="method"
    ),
    note=_NOTE,
    files=(_FILE,),
    spark=True,
)
