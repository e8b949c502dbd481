"""Imbalance of splitters on streams with the hottest keys of the PKG paper's data sets."""

from itertools import product

from equipoise.microbatch.zipf import zipf_shares
from equipoise_lab.bench.harness import Context, Result
from equipoise_lab.simulate.cluster import ClusterOptions, simulate, splitter_of
from equipoise_lab.simulate.streams import stream, zipf_exponent

_HOTTEST = {"wikipedia": 0.0932, "twitter": 0.0267}
"""Share of the hottest key in the two main data sets, table 1 of the paper."""

_KEYS = 1_000_000
_SOURCES = 5

_RUNS = {
    "pkg_w5": ("partial-key", 5, "global"),
    "pkg_w10": ("partial-key", 10, "global"),
    "hash_w10": ("key-grouping", 10, "global"),
    "local_w5": ("partial-key", 5, "local"),
    "local_w10": ("partial-key", 10, "local"),
    "d_choices_w50": ("d-choices", 50, "local"),
    "w_choices_w100": ("w-choices", 100, "local"),
    "pkg_w50": ("partial-key", 50, "global"),
    "pkg_w100": ("partial-key", 100, "global"),
}
"""Splitter, workers and what sources know, by the name of the figure."""


def run(context: Context) -> Result:
    """Route Zipf streams with the same hottest key as the two main data sets of the PKG paper.

    Each figure is the fraction of average imbalance, the larger one of the two streams; of hashing the smaller one.
    """
    messages = 3_000_000 if context.quick else 20_000_000
    shares = {name: zipf_shares(_KEYS, zipf_exponent(_KEYS, share)) for name, share in _HOTTEST.items()}
    figures: dict[str, dict[str, float]] = {name: {} for name in _RUNS}
    for data, figure in context.track(product(_HOTTEST, _RUNS), "split-sim"):
        splitter, workers, load = _RUNS[figure]
        options = ClusterOptions(
            sources=_SOURCES,
            load=load,  # type: ignore[arg-type]  # one of the two literals in the table above
            spread=False,
            step=1_000_000,
        )
        keys = stream(shares[data], messages, seed=context.seed)
        figures[figure][data] = simulate(splitter_of(splitter, workers), keys, options).average_imbalance
    metrics = {name: max(figures[name].values()) for name in ("pkg_w5", "pkg_w10", "d_choices_w50", "w_choices_w100")}
    metrics["hash_w10"] = min(figures["hash_w10"].values())
    metrics["local_over_global"] = max(
        figures[f"local_{w}"][data] / figures[f"pkg_{w}"][data] for w, data in product(("w5", "w10"), _HOTTEST)
    )
    return Result(metrics, {"average_imbalance": figures, "messages": messages})
