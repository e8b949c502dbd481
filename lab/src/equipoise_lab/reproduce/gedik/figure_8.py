"""Figure 8 of Gedik: the size of the domain."""

from collections.abc import Iterator
from itertools import product

from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.drawing import lines
from equipoise_lab.reproduce.exhibit import Claim, Exhibit, Setting
from equipoise_lab.reproduce.gedik.growth import MEASURES, METHODS, NOTE, REPAIRED, SETTINGS, THREE, averaged
from equipoise_lab.reproduce.rows import Row, Rows
from equipoise_lab.reproduce.verdict import Finding, judged


def run(context: Context) -> Iterator[Row]:
    """Grow a region by every method over the number of keys."""
    for domain, method in context.track(product(context["domain sizes"], (*METHODS, REPAIRED))):
        yield {"domain": domain, **averaged(context, method, "LCL", domain=domain)}


def _ours_are_better(rows: Rows) -> Finding:
    gaps, spread = [], []
    for domain in rows.distinct("domain"):
        by = {m: rows.mean("imbalance", method=m, domain=domain) for m in METHODS}
        gaps.append(min(by["uniform"], by["consistent"]) / max(by[m] for m in THREE))
        spread.append(max(by[m] for m in THREE) / min(by[m] for m in THREE) - 1)
    worst = [
        rows.mean("imbalance", method="consistent", domain=d) >= rows.mean("imbalance", method="uniform", domain=d)
        for d in rows.distinct("domain")
    ]
    return judged(
        f"the better of the hashes is {min(gaps):.2f} to {max(gaps):.2f} of the worst of ours; ours are up to "
        f"{max(spread):.1%} apart",
        shape={
            "ours are better than both hashes for every size": min(gaps) > 1,
            "consistent hash is the worst": all(worst),
        },
        numbers={"ours are within 3 % of each other, give or take 2 points": max(spread) < 0.05},
    )


def _easier_when_larger(rows: Rows) -> Finding:
    found = {m: rows.line("domain", "imbalance", method=m)[1] for m in THREE}
    lowest = min(min(values) for values in found.values())
    return judged(
        ", ".join(f"{m} {values[0]:.2f} to {values[-1]:.2f}" for m, values in found.items()),
        shape={
            "the imbalance of ours falls as the domain grows": all(values[-1] < values[0] for values in found.values())
        },
        numbers={"none reaches the ideal of 1": lowest > 1},
    )


def _migration(rows: Rows) -> Finding:
    found = {m: rows.line("domain", "migration", method=m)[1] for m in METHODS}
    ours = [value for m in THREE for value in found[m]]
    mean = {m: sum(values) / len(values) for m, values in found.items()}
    return judged(
        ", ".join(f"{m} {min(values):.2f} to {max(values):.2f}" for m, values in found.items()),
        shape={
            "uniform hash is the worst and consistent hash the best": mean["uniform"] == max(mean.values())
            and mean["consistent"] == min(mean.values()),
            "redist is the best of ours, scan the worst": mean["redist"] < mean["readj"] < mean["scan"],
            "ours fall as the domain grows": all(found[m][-1] < found[m][0] for m in THREE),
        },
        numbers={
            "uniform between 6.5 and 7.5": all(6.5 <= value <= 7.5 for value in found["uniform"]),
            "consistent below 1": max(found["consistent"]) < 1,
            "ours between 1.25 and 2.2, within a quarter": min(ours) > 0.94 and max(ours) < 2.75,
        },
    )


EXHIBIT = Exhibit(
    name="gedik/figure-8",
    title="migration and imbalance over the domain size",
    section="Section 5.3",
    settings={
        **{name: setting for name, setting in SETTINGS.items() if name != "domain size"},
        "domain sizes": Setting(
            "10^4 to 10^8",
            (1_000, 10_000),
            (10_000, 100_000, 1_000_000),
            (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000, 10_000_000),
        ),
    },
    claims=(
        Claim(
            "Ours balance better than both hashes, consistent hash is the worst; ours are close to each other",
            "redist up to 3 % above readj",
            _ours_are_better,
        ),
        Claim("A larger domain is easier to balance; none reaches the ideal", "falling, above 1", _easier_when_larger),
        Claim(
            "Migration: uniform unacceptable, consistent below the ideal, ours falling with the domain",
            "uniform 6.5 to 7.5; ours 2.2 to 1.25, redist best and scan worst",
            _migration,
            looked_into="A hash modulo N moves 0.9 of the load from 9 to 10 channels, which is 9 times the ideal; "
            "less can only come from hot keys that happened to stay. Readj, with gains as printed, moves most of the "
            "three here",
        ),
    ),
    run=run,
    draw=lambda rows: lines(rows, "domain", MEASURES, line="method", log_x=True, log_y=True, limit=1),
    note=NOTE,
)
