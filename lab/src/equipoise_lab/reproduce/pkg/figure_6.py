"""Figure 6 of PKG: how often local estimation decides otherwise than the global oracle."""

from collections.abc import Iterator
from itertools import product

from equipoise.microbatch.zipf import zipf_shares
from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.drawing import lines
from equipoise_lab.reproduce.exhibit import Claim, Exhibit, Setting
from equipoise_lab.reproduce.pkg.data_sets import KEYS, STAND_INS, route
from equipoise_lab.reproduce.rows import Row, Rows
from equipoise_lab.reproduce.verdict import Finding, judged, near
from equipoise_lab.simulate.cluster import ClusterOptions, simulate, splitter_of
from equipoise_lab.simulate.streams import stream

_KEYS, _WORKERS = 10_000, 5


def run(context: Context) -> Iterator[Row]:
    """Route Zipf streams from several sources and compare each route with that of the oracle; then WP once."""
    cells = [*product(context["exponents"], (1, *context["sources"])), ("WP", 5)]
    for exponent, sources in context.track(cells):
        options = ClusterOptions(sources=sources, load="local", oracle=True, spread=False, step=1_000_000)
        if exponent == "WP":
            result = route("WP", context, "partial-key", context["workers of WP"], options)
        else:
            keys = stream(zipf_shares(_KEYS, exponent), context["messages"], seed=context.seed)
            result = simulate(splitter_of("partial-key", _WORKERS), keys, options)
        agreement = result.agreement or 0.0
        yield {
            "exponent": None if exponent == "WP" else exponent,
            "data": "WP" if exponent == "WP" else "ZF",
            "sources": sources,
            "disagreement": 100 * (1 - agreement),
            "jaccard": agreement / (2 - agreement),
            "imbalance": result.average_imbalance,
        }


def _local(rows: Rows) -> Rows:
    """Rows of several sources; one source is the oracle itself."""
    return Rows(row for row in rows.where(data="ZF") if row["sources"] > 1)


def _overlap_on_wp(rows: Rows) -> Finding:
    overlap = rows.mean("jaccard", data="WP")
    return judged(
        f"overlap {overlap:.0%}",
        shape={"the choices are quite different: less than 80 % overlap": overlap < 0.8},
        numbers={"within a quarter of 47 %": near(overlap, 0.47)},
    )


def _falls_with_skew(rows: Rows) -> Finding:
    ends = {}
    for sources in _local(rows).distinct("sources"):
        _, values = rows.line("exponent", "disagreement", data="ZF", sources=sources)
        ends[sources] = (values[0], min(values[len(values) // 2 :]), values[-1])
    return judged(
        "; ".join(f"{s} sources {first:.0f} % to {last:.0f} %" for s, (first, _, last) in ends.items()),
        shape={
            "it is less at the largest exponent than at the smallest, for every number of sources": all(
                last < first for first, _, last in ends.values()
            )
        },
    )


def _good_despite(rows: Rows) -> Finding:
    found = _local(rows)
    high = sum(row["disagreement"] > 20 for row in found)
    oracle = {row["exponent"]: row["imbalance"] for row in rows.where(data="ZF", sources=1)}
    excess = max(row["imbalance"] - oracle[row["exponent"]] for row in found)
    return judged(
        f"{high} of {len(found)} runs disagree in more than 20 % of the messages; imbalance above that of the oracle "
        f"by at most {excess:.1e}",
        shape={
            "there is high disagreement": high > 0,
            "the imbalance is above that of the oracle by less than 1e-3": excess < 1e-3,
        },
    )


EXHIBIT = Exhibit(
    name="pkg/figure-6",
    title="disagreement of local estimation with the global oracle, over skew and sources",
    section="Section 6.2, Q2",
    settings={
        "messages": Setting("10 M", tiny=20_000, quick=1_000_000, full=10_000_000),
        "keys": KEYS,
        "exponents": Setting(
            "up to 1.2",
            (0.1, 0.6, 1.2),
            tuple(round(0.1 * i, 1) for i in range(1, 13)),
            tuple(round(0.1 * i, 1) for i in range(1, 13)),
        ),
        "sources": Setting("several", (5, 10), (5, 10, 15, 20), (5, 10, 15, 20)),
        "workers of WP": Setting("not given", 5, 5, 5),
    },
    claims=(
        Claim(
            "On WP, global and local agree on the destination of few messages", "Jaccard overlap 47 %", _overlap_on_wp
        ),
        Claim(
            "More skew reduces the disagreement, whatever the number of sources",
            "falling lines",
            _falls_with_skew,
        ),
        Claim("Good balance despite high disagreement", "imbalance as low as the oracle's", _good_despite),
    ),
    run=run,
    draw=lambda rows: lines(
        _local(rows),
        "exponent",
        {"disagreement": "disagreement, %", "imbalance": "fraction of average imbalance"},
        line="sources",
    ),
    note=f"{STAND_INS} ZF has 10,000 keys and 5 workers.",
)
