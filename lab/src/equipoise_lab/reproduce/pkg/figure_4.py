"""Figure 4 of PKG: what sources know of the loads, and how many they are."""

from collections.abc import Iterator
from itertools import product

from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.drawing import lines
from equipoise_lab.reproduce.exhibit import Claim, Exhibit, Setting, as_in_paper
from equipoise_lab.reproduce.pkg.data_sets import KEYS, MESSAGES, RECORDED, STAND_INS, names, route
from equipoise_lab.reproduce.rows import Row, Rows
from equipoise_lab.reproduce.verdict import Finding, judged
from equipoise_lab.simulate.cluster import ClusterOptions


def run(context: Context) -> Iterator[Row]:
    """Route every data set by hashing, with global loads, and with local ones from several numbers of sources."""
    techniques = {"H": ("key-grouping", "global", 1), "G": ("partial-key", "global", 1)}
    techniques |= {f"L{sources}": ("partial-key", "local", sources) for sources in context["sources"]}
    cells = product(names(context, *context["data sets"]), context["workers"], techniques.items())
    for data, workers, (technique, (splitter, load, sources)) in context.track(cells):
        options = ClusterOptions(sources=sources, load=load, spread=False, step=1_000_000)  # type: ignore[arg-type]  # of the literals above
        result = route(data, context, splitter, workers, options)
        yield {
            "data": data,
            "workers": workers,
            "technique": technique,
            "imbalance": result.average_imbalance,
            "messages": result.messages,
        }


def _local(rows: Rows) -> list[str]:
    return [each for each in rows.distinct("technique") if each.startswith("L")]


def _below_hashing(rows: Rows) -> Finding:
    ratios = [
        row["imbalance"] / rows.mean("imbalance", data=row["data"], workers=row["workers"], technique="H")
        for row in rows
        if row["technique"].startswith("L")
    ]
    return judged(
        f"L has {min(ratios):.1e} to {max(ratios):.2f} of the imbalance of H",
        shape={"L is below H for every data set, number of workers and of sources": max(ratios) < 1},
    )


def _near_global(rows: Rows) -> Finding:
    ratios = {
        (row["data"], row["workers"], row["technique"]): row["imbalance"]
        / rows.mean("imbalance", data=row["data"], workers=row["workers"], technique="G")
        for row in rows
        if row["technique"].startswith("L")
    }
    data, workers, technique = max(ratios, key=lambda each: ratios[each])
    far = sum(ratio >= 10 for ratio in ratios.values())
    largest = ratios[data, workers, technique]
    messages = rows.mean("messages", data=data)
    value = rows.mean("imbalance", data=data, workers=workers, technique=technique)
    return judged(
        f"L / G at most {largest:.1f}, {technique} on {data} at {workers} workers, where L is off by "
        f"{value * messages:,.1f} messages of {messages:,.0f}; {far} of {len(ratios)} ratios are 10 or more",
        shape={"L / G is below 10 everywhere": far == 0},
    )


def _robust_to_sources(rows: Rows) -> Finding:
    ratios = []
    for data, workers in {(row["data"], row["workers"]) for row in rows}:
        values = [rows.mean("imbalance", data=data, workers=workers, technique=each) for each in _local(rows)]
        ratios.append(max(values) / min(values))
    return judged(
        f"largest over smallest imbalance among {', '.join(_local(rows))}: at most {max(ratios):.1f}, half of the "
        f"cases below {sorted(ratios)[len(ratios) // 2]:.1f}",
        shape={"the numbers of sources are within an order of magnitude of each other": max(ratios) < 10},
    )


EXHIBIT = Exhibit(
    name="pkg/figure-4",
    title="local estimation against a global oracle, over workers and sources",
    section="Section 6.2, Q2",
    settings={
        "messages": MESSAGES._replace(quick=1_000_000, full=10_000_000),
        "keys": KEYS,
        "data sets": Setting(
            "several",
            ("WP", "LN2"),
            ("TW", "WP", "CT", "LN1", "LN2"),
            ("TW", "WP", "CT", "LN1", "LN2", "LJ", "SL1"),
        ),
        "workers": as_in_paper((5, 10, 50, 100)),
        "sources": Setting("several", (5, 10), (5, 10, 15, 20), (5, 10, 15, 20)),
    },
    claims=(
        Claim("PKG with local estimation always has a lower imbalance than hashing", "L below H", _below_hashing),
        Claim(
            "The difference of local estimation from the global variant is always less than one order of magnitude",
            "L / G below 10",
            _near_global,
            looked_into="The imbalance of L is up to the sum of those that its sources see, each of which is about "
            "what G has: so L / G can come near the number of sources, and does",
        ),
        Claim("The result is robust to the number of sources", "no effect to be seen", _robust_to_sources),
    ),
    run=run,
    draw=lambda rows: lines(
        rows,
        "workers",
        {"imbalance": "fraction of average imbalance"},
        line="technique",
        panel="data",
        log_x=True,
        log_y=True,
    ),
    note=STAND_INS,
    files=tuple(RECORDED.values()),
)
