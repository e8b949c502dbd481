"""The data sets of table 1 of the paper: generated with the same hottest key, or recorded ones of the same kind."""

from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise.microbatch.zipf import zipf_shares
from equipoise.split import OffGreedy, Shuffle
from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.exhibit import Setting
from equipoise_lab.simulate.cluster import Cluster, ClusterOptions, ClusterResult, splitter_of
from equipoise_lab.simulate.streams import Stream, log_normal_shares, stream, zipf_exponent
from equipoise_lab.simulate.workloads import drifting_batches, load_parquet_keys


class DataSet(NamedTuple):
    """A row of table 1: messages, keys, and the share of the hottest key."""

    messages: int
    keys: int
    hottest: float


TABLE_1 = {
    "WP": DataSet(22_000_000, 2_900_000, 0.0932),
    "TW": DataSet(1_200_000_000, 31_000_000, 0.0267),
    "CT": DataSet(690_000, 2_900, 0.0329),
    "LJ": DataSet(69_000_000, 4_900_000, 0.0029),
    "SL1": DataSet(905_000, 77_000, 0.0328),
    "LN1": DataSet(10_000_000, 16_000, 0.1471),
    "LN2": DataSet(10_000_000, 1_100, 0.0701),
}

RECORDED = {
    "WP recorded": "wiki_pageviews_events.parquet",
    "CT recorded": "stock_cashtags.parquet",
    "SL2 recorded": "slashdot0902.parquet",
}
"""Files of ``--data`` by the names of what they are like."""

MESSAGES = Setting("WP 22 M, TW 1.2 G, CT 690 k, LJ 69 M, LN 10 M", tiny=20_000, quick=1_000_000, full=22_000_000)
"""Largest number of messages that are made of a data set."""

KEYS = Setting("WP 2.9 M, TW 31 M, CT 2.9 k, LJ 4.9 M, LN 16 k and 1.1 k", tiny=5_000, quick=1_000_000, full=3_000_000)
"""Largest number of keys that are made of a data set."""

STAND_INS = (
    "Generated: Zipf's law with the share of the hottest key that table 1 gives, for the Wikipedia log and the "
    "tweets are not to be had; the log-normal sets as printed; CT is a Zipf stream whose 20 hottest keys change."
)

_CT_BATCHES = 40
_CT_DRIFT = 0.2
_CT_HOT = 20


def names(context: Context, *wanted: str) -> list[str]:
    """The wanted data sets, and those of the recorded ones that are like one of them and at hand."""
    like = {name.split()[0] for name in RECORDED} & {*wanted}
    recorded = [name for name, file in RECORDED.items() if name.split()[0] in like and context.file(file) is not None]
    return [*wanted, *recorded]


def make(name: str, context: Context, *, chunk: int | None = None) -> Stream:
    """The stream of a data set, chunk by chunk."""
    if name in RECORDED:
        return _chunks(recorded_keys(name, context), chunk or 1_000_000)
    messages = min(TABLE_1[name].messages, context["messages"])
    if name == "CT":
        keys = min(TABLE_1[name].keys, context["keys"])
        batches = drifting_batches(
            keys,
            zipf_exponent(keys, TABLE_1[name].hottest),
            messages // _CT_BATCHES,
            _CT_BATCHES,
            drift=_CT_DRIFT,
            hot=_CT_HOT,
            seed=context.seed,
        )
        return (part for batch in batches for part in _chunks(batch, chunk or len(batch)))
    return stream(_shares(name, context["keys"]), messages, seed=context.seed, chunk=chunk or min(messages, 1_000_000))


def recorded_keys(name: str, context: Context) -> NDArray[np.int64]:
    """Fingerprints of the keys of a recorded data set; those of a graph, which has no order, shuffled."""
    return _ordered(load_parquet_keys(_path(name, context)), name, context.seed)


def recorded_sources(name: str, context: Context) -> NDArray[np.int64]:
    """Fingerprints of the source vertices of a recorded graph, in the order of its keys."""
    return _ordered(load_parquet_keys(_path(name, context), "src"), name, context.seed)


def _path(name: str, context: Context) -> Any:
    return context.file(RECORDED[name])


def _ordered(values: NDArray[np.int64], name: str, seed: int) -> NDArray[np.int64]:
    return values[np.random.default_rng(seed).permutation(len(values))] if name.startswith("SL") else values


def _chunks(keys: NDArray[np.int64], size: int) -> Stream:
    return (keys[start : start + size] for start in range(0, len(keys), size))


@lru_cache(maxsize=4)
def _shares(name: str, most_keys: int) -> NDArray[np.float64]:
    if name in {"LN1", "LN2"}:
        return log_normal_shares(int(name[-1]))
    keys = min(TABLE_1[name].keys, most_keys)
    return zipf_shares(keys, zipf_exponent(keys, max(TABLE_1[name].hottest, 1.5 / keys)))


def route(
    name: str,
    context: Context,
    splitter: str,
    workers: int,
    options: ClusterOptions,
    *,
    chunk: int | None = None,
    **splitter_options: Any,
) -> ClusterResult:
    """Route a data set to workers; an offline splitter is shown the whole of it first.

    Sources that shuffle begin each at a worker of its own, or all would send to the same one at a time.
    """
    of_source = splitter_of(splitter, workers, **splitter_options)
    if splitter == Shuffle.name:
        seeds = count()
        of_source = lambda _clock: Shuffle(workers, seed=next(seeds))  # noqa: E731 - stands in for what splitter_of gives
    cluster = Cluster(of_source, options)
    offline = cluster.splitters[0]
    if isinstance(offline, OffGreedy):
        for keys in make(name, context):
            offline.learn(keys)
    for keys in make(name, context, chunk=chunk):
        cluster.feed(keys)
    return cluster.result()
