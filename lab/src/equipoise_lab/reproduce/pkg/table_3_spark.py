"""Table 3 of PKG on Spark: how long a batch takes over the CPU delay and over the aggregation period."""

from collections.abc import Iterator
from statistics import median

from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.drawing import bars
from equipoise_lab.reproduce.exhibit import Claim, Exhibit, Setting, as_in_paper
from equipoise_lab.reproduce.pkg.counting import NOTE, SETTINGS, counting
from equipoise_lab.reproduce.pkg.deployment import METHODS
from equipoise_lab.reproduce.rows import Row, Rows
from equipoise_lab.reproduce.verdict import Finding, judged, near


def run(context: Context) -> Iterator[Row]:
    """Count a period's words with every delay, then with a fixed delay the words of longer periods."""
    rate, shortest = context["words a second"], min(context["aggregation periods, s"])
    cells = [(f"D = {d} ms", d, shortest, m) for d in context["CPU delays, ms"] for m in METHODS]
    fixed = context["CPU delay with aggregation, ms"]
    cells += [(f"T = {t:g} s", fixed, t, m) for t in context["aggregation periods, s"] for m in METHODS]
    with counting(context) as count:
        for setting, delay, period, method in context.track(cells):
            rows = int(rate * period)
            taken = [count(rows, method, delay) for _ in range(context["runs"])]
            seconds = median(each.seconds for each in taken)
            yield {
                "setting": setting,
                "delay": delay,
                "period": period,
                "method": method,
                "latency": seconds,
                "throughput": rows / seconds,
                "counters": taken[0].counters,
            }


def _longer_under_load(rows: Rows) -> Finding:
    ratios = {}
    for setting in [each for each in rows.distinct("setting") if each.startswith("D")]:
        ratios[setting] = rows.mean("latency", setting=setting, method="KG") / rows.mean(
            "latency", setting=setting, method="PKG"
        )
    last = list(ratios)[-1]
    return judged(
        ", ".join(f"{setting}: KG {ratio:.2f} times PKG" for setting, ratio in ratios.items()),
        shape={
            "KG takes longer than PKG at the longest delay": ratios[last] > 1,
            "the more so the longer the delay": ratios[last] > ratios[next(iter(ratios))],
        },
        numbers={"at 1 ms by 45 % to 76 %, as text and table say": 1.4 < ratios[last] < 1.8},
    )


def _as_shuffle(rows: Rows) -> Finding:
    ratios = {
        s: rows.mean("latency", setting=s, method="PKG") / rows.mean("latency", setting=s, method="SG")
        for s in rows.distinct("setting")
    }
    return judged(
        f"PKG / SG from {min(ratios.values()):.2f} to {max(ratios.values()):.2f}",
        shape={"within a tenth of each other, in every column": all(near(ratio, 1, 0.1) for ratio in ratios.values())},
        numbers={"within 5 %": all(near(ratio, 1, 0.05) for ratio in ratios.values())},
    )


def _over_periods(rows: Rows, name: str) -> dict[str, list[float]]:
    periods = rows.where(setting=tuple(s for s in rows.distinct("setting") if s.startswith("T")))
    return {method: periods.line("period", name, method=method)[1] for method in METHODS}


def _formatted(found: dict[str, list[float]]) -> str:
    return "; ".join(f"{method} {', '.join(f'{value:,.0f}' for value in line)}" for method, line in found.items())


def _less_memory(rows: Rows) -> Finding:
    found = _over_periods(rows, "counters")
    pkg, sg, kg = (found[method][-1] for method in ("PKG", "SG", "KG"))
    return judged(
        f"counters over the periods: {_formatted(found)}",
        shape={
            "PKG holds fewer counters than SG": pkg < sg,
            "longer periods hold more": all(line[-1] > line[0] for line in found.values()),
        },
        numbers={
            "about half of those of SG, within a quarter": near(pkg / sg, 0.5),
            "30 % more than those of KG, within a quarter": near(pkg / kg, 1.3),
        },
    )


def _faster_than_shuffle(rows: Rows) -> Finding:
    found = _over_periods(rows, "throughput")
    return judged(
        f"words / s over the periods: {_formatted(found)}",
        shape={
            "PKG is faster than SG at every period": all(
                pkg > sg for pkg, sg in zip(found["PKG"], found["SG"], strict=True)
            ),
            "PKG is faster than KG at the longest period": found["PKG"][-1] > found["KG"][-1],
        },
    )


EXHIBIT = Exhibit(
    name="pkg/table-3-spark",
    title="latency, throughput and counters over CPU delay and aggregation period, on Spark (with figure 10 b)",
    section="Section 6.2, Q5",
    settings={
        **SETTINGS,
        "words a second": Setting("not given", 2_000, 2_000, 2_000),
        "CPU delays, ms": Setting("0.1, 0.5, 1", (0.1, 1), (0.1, 1), (0.1, 0.5, 1)),
        "CPU delay with aggregation, ms": as_in_paper(0.4),
        "aggregation periods, s": Setting("10, 30, 60", (0.5, 1.0), (5, 10), (10, 30, 60)),
    },
    claims=(
        Claim(
            "When workers are heavily loaded, latency with KG is larger than with PKG", "up to 45 %", _longer_under_load
        ),
        Claim("PKG has the latency of SG", "within 4 %", _as_shuffle),
        Claim(
            "PKG needs less memory than SG; shorter aggregation periods need less",
            "half of SG, 30 % more than KG",
            _less_memory,
        ),
        Claim(
            "PKG has a higher throughput than SG, and than KG when periods are long", "above 30 s", _faster_than_shuffle
        ),
    ),
    run=run,
    draw=lambda rows: bars(rows, "setting", {"latency": "seconds of a batch", "counters": "counters"}, line="method"),
    note=f"{NOTE} Latency is that of a batch of a period's words, from its start to merged counts: Spark merges at the "
    "end of every batch, so a batch is an aggregation period, and its throughput is the inverse of its latency.",
    spark=True,
)
