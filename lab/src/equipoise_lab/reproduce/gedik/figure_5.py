"""Figure 5 of Gedik: the frequency threshold."""

from collections.abc import Iterator
from itertools import product

from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.drawing import lines
from equipoise_lab.reproduce.exhibit import Claim, Exhibit, Setting, as_in_paper
from equipoise_lab.reproduce.gedik.growth import MEASURES, METHODS, NOTE, REPAIRED, SETTINGS, THREE, averaged
from equipoise_lab.reproduce.rows import Row, Rows
from equipoise_lab.reproduce.verdict import Finding, judged


def run(context: Context) -> Iterator[Row]:
    """Grow a region by every method over sigma."""
    for letters, sigma, method in context.track(
        product(context["resource functions"], context["sigma"], (*METHODS, REPAIRED))
    ):
        yield {"sigma": sigma, **averaged(context, method, letters, sigma=sigma)}


def _ends(rows: Rows, name: str, letters: str, method: str) -> tuple[float, float]:
    """Values at the smallest and at the largest sigma."""
    _, values = rows.line("sigma", name, resources=letters, method=method)
    return values[0], values[-1]


def _trade(rows: Rows) -> Finding:
    balance = {m: _ends(rows, "imbalance", "LCL", m) for m in THREE}
    migration = {m: _ends(rows, "migration", "LCL", m) for m in THREE}
    return judged(
        "LCL, smallest and largest sigma: "
        + "; ".join(
            f"{m} imbalance {balance[m][0]:.2f} and {balance[m][1]:.2f}, migration {migration[m][0]:.2f} and "
            f"{migration[m][1]:.2f}"
            for m in THREE
        ),
        shape={
            "a smaller sigma gives a smaller imbalance, for all three": all(a < b for a, b in balance.values()),
            "and more migration": all(a > b for a, b in migration.values()),
        },
    )


def _order_of_migration(rows: Rows) -> Finding:
    small = [s for s in rows.distinct("sigma") if s <= 0.1]
    found = {m: rows.mean("migration", resources="LCL", method=m, sigma=tuple(small)) for m in METHODS}
    return judged(
        "LCL, sigma up to 0.1, on average: " + ", ".join(f"{m} {value:.2f}" for m, value in found.items()),
        shape={
            "redist has the least and scan the most of the three": found["redist"] < found["readj"] < found["scan"],
            "consistent hash is below and uniform hash above all three": found["consistent"]
            < min(found[m] for m in THREE)
            and found["uniform"] > max(found[m] for m in THREE),
        },
    )


def _similar_balance(rows: Rows) -> Finding:
    middle = [s for s in rows.distinct("sigma") if 0.02 <= s <= 0.5]
    spread, best = [], []
    for sigma in middle:
        by = {m: rows.mean("imbalance", resources="LCL", method=m, sigma=sigma) for m in THREE}
        spread.append(max(by.values()) / min(by.values()))
        best.append(by["readj"] <= 1.01 * min(by.values()))
    small = min(rows.distinct("sigma"))
    last = {m: rows.mean("imbalance", resources="LCL", method=m, sigma=small) for m in THREE}
    return judged(
        f"LCL: largest over smallest of the three up to {max(spread):.2f} for sigma from 0.02 to 0.5; readj lowest in "
        f"{sum(best)} of {len(best)}; at {small} " + ", ".join(f"{m} {value:.2f}" for m, value in last.items()),
        shape={
            "in the middle the three are within a quarter of each other": max(spread) < 1.25,
            "readj is lowest there, or within 1 %": all(best),
            "at the smallest sigma readj is no longer the lowest": last["readj"] > min(last.values()),
        },
    )


def _quadratic_gains_less(rows: Rows) -> Finding:
    gains = {}
    for letters in ("LCL", "LQL"):
        small, large = zip(*(_ends(rows, "imbalance", letters, m) for m in THREE), strict=True)
        gains[letters] = (sum(large) / 3) / (sum(small) / 3)
    return judged(
        ", ".join(f"{letters} {gain:.2f} times better at the smallest sigma" for letters, gain in gains.items()),
        shape={"LQL gains less than LCL": gains["LQL"] < gains["LCL"]},
    )


EXHIBIT = Exhibit(
    name="gedik/figure-5",
    title="migration and imbalance over the frequency threshold scaler",
    section="Section 5.3",
    settings={
        **SETTINGS,
        "runs": Setting("5", 1, 1, 5),
        "resource functions": as_in_paper(("LCL", "LQL")),
        "sigma": Setting(
            "0.01 to 1",
            (0.02, 0.1, 1.0),
            (0.01, 0.05, 0.1, 0.25, 1.0),
            (0.008, 0.01, 0.02, 0.05, 0.1, 0.15, 0.25, 0.35, 0.5, 0.75, 1.0),
        ),
    },
    claims=(
        Claim("Lower sigma brings lower imbalance but higher migration cost", "falling and rising lines", _trade),
        Claim(
            "Redist has the best migration cost of the three, scan the worst",
            "redist, readj, scan",
            _order_of_migration,
            looked_into="In a step at 24 to 32 channels scan and redist move 8 of 101 tracked keys here, readj with "
            "gains as printed 48; why the paper's scan moves so many is not to be seen from its text",
        ),
        Claim(
            "The three have similar balance, readj slightly lower in the middle, but not for very low sigma",
            "LCL",
            _similar_balance,
            looked_into="At a sigma of 0.008, 492 keys are tracked, and readj, which goes on until no move or swap "
            "improves the balance, has the most to choose from; the paper does not say what keeps its own from that",
        ),
        Claim(
            "With LQL lower sigma improves balance less than with LCL",
            "not as pronounced",
            _quadratic_gains_less,
            looked_into="It is the jump between a sigma of 0.25 and of 0.5 that the paper itself notes: with squares "
            "the hottest keys are nearly all of the load, and where only 8 keys are tracked or fewer, an untracked one "
            "joins them. Below the jump LQL gains by a factor of 1.4 and LCL by one of 1.2",
        ),
    ),
    run=run,
    draw=lambda rows: lines(rows, "sigma", MEASURES, line="method", panel="resources", log_x=True, log_y=True, limit=1),
    note=NOTE,
)
