"""Real drifting streams (needs --data): rows of the fullest task over the bound, with a look at each batch and without.

The engine, its planning and its log are the real ones; tasks only count. A key has 100 bytes of state, so the part of
the state that moves is the part of the keys. Keys are renamed by several seeds for a look, ``auto``, the past and hash;
the other planners, which take longer, run with the first seed only, and not at all with ``quick``. A look at a batch
that is larger than it needs draws the rows at random, as Spark's sample does.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from equipoise.adapt import Policy
from equipoise.errors import InvalidArgumentError
from equipoise.spark.stream.options import StreamOptions
from equipoise_lab.bench.counted_tasks import run_counted
from equipoise_lab.bench.harness import Context, Result

_BATCHES, _SEEDS, _PARTITIONS = 20, 5, (20, 64)
_PLANNERS = ("scan", "redist", "readj", "mixed", "consistent")

Rows = Callable[[pa.Table], pa.Table]
_STREAMS: dict[str, tuple[str, Rows]] = {
    "lfm_tags": ("lfm_tags", lambda rows: rows),
    "ask_ubuntu_tags": ("ask_ubuntu_tags", lambda rows: rows),
    "google_task_events": ("google_task_events", lambda rows: rows.filter(pc.greater(rows["ts"].cast("int64"), 0))),
    "stock_cashtags": ("stock_cashtags", lambda rows: rows),
    "wiki_pageviews_events": ("wiki_pageviews_events", lambda rows: rows),
    "wiki_articles": ("wiki_pageviews_events", lambda rows: rows.filter(rows["is_article"])),
    "slashdot0902": ("slashdot0902", lambda rows: rows.take(np.random.default_rng(0).permutation(rows.num_rows))),
    "retail_baskets": ("retail_baskets", lambda rows: rows),
}
_QUICK = ("lfm_tags", "stock_cashtags")


def run(context: Context) -> Result:
    """Run every stream with every way of planning; keys get new random names for each seed."""
    if context.data is None:
        files = ", ".join(sorted({name for name, _ in _STREAMS.values()}))
        raise InvalidArgumentError(f"stream-look measures real data; pass --data DIR with {files} as Parquet")
    names = _QUICK if context.quick else tuple(_STREAMS)
    seeds = context.repeats(_SEEDS, 1)
    work = [(name, count, seed) for name in names for count in _PARTITIONS for seed in range(seeds)]
    found: dict[str, dict[str, list[float]]] = {}
    keys: dict[str, NDArray[np.int64]] = {}
    for name, count, seed in context.track(work, "stream look"):
        if name not in keys:
            keys = {name: _keys(context, name)}
        rng = np.random.default_rng([context.seed, seed])
        renamed = rng.integers(-(2**63), 2**63 - 1, keys[name].max() + 1, dtype=np.int64)[keys[name]]
        batches = np.array_split(renamed, _BATCHES)
        for way, options in _ways(count, quick=context.quick or seed > 0).items():
            over, moved = _measured(batches, options)
            each = found.setdefault(f"{name} {count} {way}", {"over_bound": [], "moved": []})
            each["over_bound"].append(over)
            each["moved"].append(moved)
    return Result(_metrics(found), {"streams": found, "batches": _BATCHES, "seeds": seeds})


def _ways(partitions: int, *, quick: bool) -> dict[str, StreamOptions]:
    """Return the options of each way of planning. The other planners run with the first seed only."""
    policy = Policy(load="rows")

    def options(**given: Any) -> StreamOptions:
        return StreamOptions(numPartitions=partitions, **{"policy": policy, "look": "never", **given})

    ways = {"look": options(look="always"), "auto": options(look="auto"), "past": options()}
    ways["hash"] = options(placement="hash")
    if not quick:
        ways |= {name: options(policy=Policy(load="rows", planner=name)) for name in _PLANNERS}
    return ways


def _measured(batches: list[NDArray[np.int64]], options: StreamOptions) -> tuple[float, float]:
    """Return the mean over the batches of the fullest task over the bound, and of the part of the state that moved.

    The first batch has no state to move; it counts towards the balance.
    """
    over, moved = [], []
    known: NDArray[np.int64] = np.empty(0, dtype=np.int64)
    before = None
    for rows, (commit, plan) in zip(batches, run_counted(batches, options), strict=True):
        keys, counts = np.unique(rows, return_counts=True)
        bound = max(1.0, plan.partitions * counts.max() / len(rows))
        over.append(commit.measures["imbalance_rows"] / bound)
        if before is not None:
            moved.append(float((plan.assign(known) != before.assign(known)).mean()))
        known, before = np.union1d(known, keys), plan
    return float(np.mean(over)), float(np.mean(moved))


def _metrics(found: dict[str, dict[str, list[float]]]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    means = {name: {what: float(np.mean(values)) for what, values in each.items()} for name, each in found.items()}
    for name, each in means.items():
        stream, count, way = name.split()
        metrics[f"{stream}_{count}_{way}_over_bound"] = each["over_bound"]
        metrics[f"{stream}_{count}_{way}_moved"] = each["moved"]
    for way in sorted({name.split()[2] for name in means}):
        mine = [each for name, each in means.items() if name.split()[2] == way]
        worst = "" if way == "look" else f"_{way}"
        metrics[f"over_bound_mean_worst{worst}"] = max(each["over_bound"] for each in mine)
        metrics[f"moved_share_worst{worst}"] = max(each["moved"] for each in mine)
    return metrics


def _keys(context: Context, name: str) -> NDArray[np.int64]:
    """Return the keys of a stream, numbered."""
    file, chosen = _STREAMS[name]
    table = chosen(pq.read_table(context.file(f"{file}.parquet")))
    column = table["key"].combine_chunks().dictionary_encode()
    return np.asarray(column.indices.to_numpy(), dtype=np.int64)
