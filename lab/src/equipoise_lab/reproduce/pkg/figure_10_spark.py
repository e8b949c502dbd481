"""Figure 10 (a) of PKG on Spark: throughput of a word count over the CPU delay, by three groupings."""

from collections.abc import Iterator
from itertools import product
from statistics import median

from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.drawing import lines
from equipoise_lab.reproduce.exhibit import Claim, Exhibit, Setting
from equipoise_lab.reproduce.pkg.counting import NOTE, SETTINGS, counting
from equipoise_lab.reproduce.pkg.deployment import METHODS
from equipoise_lab.reproduce.rows import Row, Rows
from equipoise_lab.reproduce.verdict import Finding, judged


def run(context: Context) -> Iterator[Row]:
    """Count words with a service time for each, in parts that are then merged."""
    with counting(context) as count:
        for delay, method in context.track(product(context["CPU delays, ms"], METHODS)):
            taken = median(count(context["rows"], method, delay).seconds for _ in range(context["runs"]))
            yield {"method": method, "delay": delay, "seconds": taken, "throughput": context["rows"] / taken}


def _line(rows: Rows, method: str) -> dict[float, float]:
    return dict(zip(*rows.line("delay", "throughput", method=method), strict=True))


def _falls_less(rows: Rows) -> Finding:
    found = {m: _line(rows, m) for m in METHODS}
    falls = {m: 1 - line[max(line)] / line[min(line)] for m, line in found.items()}
    return judged(
        ", ".join(f"{m} {fall:.0%}" for m, fall in falls.items()),
        shape={"KG falls more than PKG and SG": falls["KG"] > max(falls["PKG"], falls["SG"])},
        numbers={
            "KG by 60 % within 10 points": abs(falls["KG"] - 0.6) < 0.1,
            "PKG by 37 % within 10 points": abs(falls["PKG"] - 0.37) < 0.1,
        },
    )


def _better_than_hashing(rows: Rows) -> Finding:
    found = {m: _line(rows, m) for m in METHODS}
    delays = list(found["KG"])
    ratios = [found["PKG"][delay] / found["SG"][delay] for delay in delays]
    return judged(
        "; ".join(f"{d} ms: " + ", ".join(f"{m} {line[d]:,.0f} / s" for m, line in found.items()) for d in delays),
        shape={
            "PKG and SG are faster than KG at every delay": all(
                min(found["PKG"][delay], found["SG"][delay]) > found["KG"][delay] for delay in delays
            ),
            "PKG and SG are within a quarter of each other": all(0.75 < ratio < 1.25 for ratio in ratios),
        },
    )


EXHIBIT = Exhibit(
    name="pkg/figure-10-spark",
    title="throughput over CPU delay, on Spark",
    section="Section 6.2, Q5",
    settings={
        "rows": Setting("22 M", 2_000, 10_000, 60_000),
        **SETTINGS,
        "CPU delays, ms": Setting("0.1 to 1", (0.1, 1), (0.1, 1), (0.1, 0.2, 0.4, 0.6, 0.8, 1)),
    },
    claims=(
        Claim(
            "A tenfold delay costs KG more than PKG and SG",
            "KG about 60 %, PKG and SG about 37 %",
            _falls_less,
            looked_into="What Spark takes for a batch whatever the delay, a second or two, is another part of the "
            "time than what Storm takes for a message",
        ),
        Claim("SG and PKG perform alike, and better than KG", "higher throughput for all delays", _better_than_hashing),
    ),
    run=run,
    draw=lambda rows: lines(rows, "delay", {"throughput": "words / s"}, line="method"),
    note=NOTE,
    spark=True,
)
