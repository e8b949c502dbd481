"""Figure 7 of Gedik: utility functions."""

from collections.abc import Iterator
from itertools import product

from equipoise.plan import Utility
from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.drawing import bars
from equipoise_lab.reproduce.exhibit import Claim, Exhibit, as_in_paper
from equipoise_lab.reproduce.gedik.growth import MEASURES, NOTE, SETTINGS, averaged
from equipoise_lab.reproduce.rows import Row, Rows
from equipoise_lab.reproduce.verdict import Finding, judged


def run(context: Context) -> Iterator[Row]:
    """Grow a region by readj and redist with every utility function."""
    for method, letters, utility in context.track(product(("readj", "redist"), context["resource functions"], Utility)):
        yield {"utility": utility.name, **averaged(context, method, letters, utility=utility)}


def _of(rows: Rows, method: str, letters: str, name: str) -> dict[str, float]:
    return {row["utility"]: row[name] for row in rows.where(method=method, resources=letters)}


def _readj_migration(rows: Rows) -> Finding:
    found = {letters: _of(rows, "readj", letters, "migration") for letters in rows.distinct("resources")}
    worst = [letters for letters, by in found.items() if by["A"] >= max(by.values()) - 1e-9]
    best = [letters for letters, by in found.items() if by["APM"] <= 1.01 * min(by.values())]
    return judged(
        "; ".join(f"{x}: " + ", ".join(f"{u} {value:.2f}" for u, value in by.items()) for x, by in found.items()),
        shape={
            "A has the highest migration for all resource functions": len(worst) == len(found),
            "APM has the lowest, or within 1 %, for all but LCL": set(found) - set(best) <= {"LCL"},
        },
    )


def _readj_balance(rows: Rows) -> Finding:
    apart = {}
    for letters in rows.distinct("resources"):
        by = _of(rows, "readj", letters, "imbalance")
        apart[letters] = max(by.values()) / min(by.values())
    quadratic = _of(rows, "readj", "LQL", "imbalance")
    return judged(
        ", ".join(f"{letters} largest over smallest {ratio:.3f}" for letters, ratio in apart.items()),
        shape={
            "within 5 % but for LQL": all(r < 1.05 for letters, r in apart.items() if letters != "LQL"),
            "APM is lowest for LQL, or within 1 %": quadratic["APM"] <= 1.01 * min(quadratic.values()),
        },
    )


def _redist_balance(rows: Rows) -> Finding:
    found = {letters: _of(rows, "redist", letters, "imbalance") for letters in rows.distinct("resources")}
    best = [x for x, by in found.items() if max(by["APM"], by["APLM"]) <= 1.05 * min(by.values())]
    quadratic = found["LQL"]
    gain = max(quadratic.values()) / min(quadratic["APM"], quadratic["APLM"])
    return judged(
        "; ".join(f"{x}: " + ", ".join(f"{u} {value:.2f}" for u, value in by.items()) for x, by in found.items())
        + f"; for LQL {gain:.1f} times lower than the worst",
        shape={"APM and APLM are the best, or within 5 %, for all resource functions": len(best) == len(found)},
        numbers={"for LQL 2 to 4 times lower than the worst": 2 < gain < 4},
    )


def _redist_migration(rows: Rows) -> Finding:
    ratios = {u: [] for u in ("APLM", "ATM", "ATLM")}  # type: dict[str, list[float]]
    for letters in rows.distinct("resources"):
        by = _of(rows, "redist", letters, "migration")
        for utility, values in ratios.items():
            values.append(by[utility] / by["APM"])
    means = {utility: sum(values) / len(values) for utility, values in ratios.items()}
    return judged(
        "over APM, on average: " + ", ".join(f"{u} {value:.2f}" for u, value in means.items()),
        shape={
            "APLM migrates more than APM": means["APLM"] > 1,
            "ATM and ATLM migrate less": means["ATM"] < 1 and means["ATLM"] < 1,
        },
        numbers={
            "APLM by 30 to 35 %, within 10 points": 1.2 < means["APLM"] < 1.45,
            "ATM and ATLM by 35 to 40 %, within 10 points": all(0.5 < means[u] < 0.75 for u in ("ATM", "ATLM")),
        },
    )


EXHIBIT = Exhibit(
    name="gedik/figure-7",
    title="utility functions of readj and redist",
    section="Section 5.3",
    settings={**SETTINGS, "resource functions": as_in_paper(("LCL", "LLL", "LQL"))},
    claims=(
        Claim(
            "Readj: A migrates most, for it ignores migration; APM least, but for LCL",
            "APM lowest for LLL and LQL",
            _readj_migration,
            looked_into="With LQL a utility function differs from one hash to the next as much as from the others: "
            "over eight hashes APM migrates from 1.3 to 1.6, ATLM from 1.2 to 1.5",
        ),
        Claim(
            "Readj: no difference in balance but for LQL, where APM is lowest",
            "alike",
            _readj_balance,
            looked_into="With LQL a utility function differs from one hash to the next more than from the others: over "
            "eight hashes APM is at 3.6 to 4.4, A at 3.5 to 4.2",
        ),
        Claim("Redist: APM and APLM have the best balance", "up to 3 times lower for LQL", _redist_balance),
        Claim(
            "Redist: APM migrates less than APLM, and more than ATM and ATLM",
            "APLM 30 to 35 % more, ATM and ATLM 35 to 40 % less",
            _redist_migration,
        ),
    ),
    run=run,
    draw=lambda rows: bars(rows, "resources", MEASURES, line="utility", panel="method", log_y=True),
    note=NOTE,
)
