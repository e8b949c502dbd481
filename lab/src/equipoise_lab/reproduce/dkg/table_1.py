"""Table 1 of DKG: from which load on a key is spread, and over how many machines."""

from collections.abc import Iterator
from math import floor

import numpy as np

from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.drawing import lines
from equipoise_lab.reproduce.exhibit import Claim, Exhibit, Setting, as_in_paper
from equipoise_lab.reproduce.rows import Row, Rows
from equipoise_lab.reproduce.verdict import Finding, judged
from equipoise_lab.variants import DynamicKeyCoded, DynamicKeyPrinted

_PRINTED = {5: (24.47, 5), 10: (13.16, 8), 20: (7.24, 14), 50: (3.41, 30), 100: (2.00, 51)}
"""Threshold and most machines by the number of machines."""

_BATCH = 100


def run(context: Context) -> Iterator[Row]:
    """Compute the thresholds, and let a stream of one key spread as far as it will."""
    for machines in context.track(context["machines"]):
        seconds = iter(range(10**9))
        printed = DynamicKeyPrinted(machines, fills=True, clock=lambda: float(next(seconds)), seed=context.seed)  # noqa: B023 - each has its own clock
        minutes = iter(range(0, 10**9, 15))
        coded = DynamicKeyCoded(machines, clock=lambda: float(next(minutes)), seed=context.seed)  # noqa: B023 - as above
        widest = {"printed": 0, "coded": 0}
        for _ in range(context["seconds"]):
            for name, splitter in (("printed", printed), ("coded", coded)):
                splitter.route(np.full(_BATCH, 7))
                widest[name] = max(widest[name], splitter.width(7))
        yield {
            "machines": machines,
            "ideal": 100 / machines,
            "threshold": printed.threshold,
            "coded threshold": coded.threshold,
            "most": floor(100 / printed.threshold) + 1,
            "widest as printed": widest["printed"],
            "widest as coded": widest["coded"],
        }


def _thresholds(rows: Rows) -> Finding:
    found = {row["machines"]: row["threshold"] for row in rows}
    return judged(
        ", ".join(f"{value:.2f} % of {m}" for m, value in found.items()),
        shape={"all as printed, to two digits": all(abs(v - _PRINTED[m][0]) < 0.0051 for m, v in found.items())},
    )


def _most_machines(rows: Rows) -> Finding:
    found = {row["machines"]: row["most"] for row in rows}
    return judged(
        "floor(100 / threshold) + 1 gives " + ", ".join(f"{value} of {m}" for m, value in found.items()),
        shape={"all as printed": all(value == _PRINTED[m][1] for m, value in found.items())},
    )


def _reached(rows: Rows) -> Finding:
    found = ", ".join(f"{r['widest as printed']} and {r['widest as coded']} of {r['machines']}" for r in rows)
    exact = [row["widest as printed"] == _PRINTED[row["machines"]][1] for row in rows]
    bounded = all(
        max(row["widest as printed"], row["widest as coded"]) <= _PRINTED[row["machines"]][1] + 1 for row in rows
    )
    return judged(
        f"widest of a stream of one key, as printed and as coded: {found}",
        shape={"no key gets wider than the table says, give or take one": bounded},
        numbers={"as printed, a stream of one key gets exactly as wide": all(exact)},
    )


EXHIBIT = Exhibit(
    name="dkg/table-1",
    title="thresholds of ideal loads",
    section="Section 4.3",
    settings={
        "machines": as_in_paper((5, 10, 20, 50, 100)),
        "seconds": Setting("-", 120, 1500, 6000),
    },
    claims=(
        Claim("The threshold is L + sqrt(L)", "24.47, 13.16, 7.24, 3.41, 2.00", _thresholds),
        Claim("So a key goes to a limited number of machines", "5, 8, 14, 30, 51", _most_machines),
        Claim(
            "The limit is what a key can reach",
            "5, 8, 14, 30, 51",
            _reached,
            looked_into="The code cuts loads and thresholds to whole percents, so 7.24 % becomes 7 % and 3.41 % "
            "becomes 3 %, and a key may spread over 15 of 20 and 34 of 50; a wide key whose machines are nearly at "
            "the threshold gets narrower again before it has come to the limit",
        ),
    ),
    run=run,
    draw=lambda rows: lines(
        Rows(
            {"machines": row["machines"], "of a key": value, "which": name}
            for row in rows
            for name, value in (
                ("limit by the table", row["most"]),
                ("reached as printed", row["widest as printed"]),
                ("reached as coded", row["widest as coded"]),
            )
        ),
        "machines",
        {"of a key": "machines of a key"},
        line="which",
    ),
    note="A key that is alone in its stream is spread by DKG as printed, asked every second, and as coded, asked "
    "every 15 seconds for its check of once a minute.",
)
