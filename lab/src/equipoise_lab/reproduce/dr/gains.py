"""Gains over the skew of the keys; DR claims that they are highest in the middle."""

from typing import Any

from equipoise.plan import Planner
from equipoise_lab.reproduce.rows import Rows
from equipoise_lab.reproduce.verdict import Finding, judged
from equipoise_lab.simulate.workloads import shifted_power_law_shares
from equipoise_lab.variants import KIPPrinted

METHODS: dict[str, str | Planner | None] = {"hash": None, "DR": KIPPrinted(), "DR, ours": "kip"}
"""Planner of each method, as the functions of ``equipoise.spark`` take it; hash has none."""

LAWS = {"Zipf": 1, "shifted": 10}
"""How far the power laws are shifted: not, as the text has it, and by as much as in an example of the paper's code."""

_GAIN, _CLEARLY = 1.1, 1.05


def shares_of(law: str, keys: int, exponent: float) -> Any:
    """Shares of the keys under a law."""
    return shifted_power_law_shares(keys, exponent, LAWS[law])


def gains(rows: Rows, method: str = "DR") -> dict[float, float]:
    """Time by hash over the time of a method, at every exponent."""
    by_hash, found = (dict(zip(*rows.line("exponent", "seconds", method=m), strict=True)) for m in ("hash", method))
    return {exponent: by_hash[exponent] / found[exponent] for exponent in by_hash}


def in_the_middle(rows: Rows) -> Finding:
    """Whether the gain is larger at some exponent in between than at the least and at the largest, under Zipf's law."""
    found = gains(rows.where(law="Zipf"))
    first, *middle, last = (found[exponent] for exponent in sorted(found))
    return judged(
        f"hash over DR: {laws_in_words(rows)}",
        shape={
            "there is a gain of a tenth or more in the middle": max(middle) >= _GAIN,
            "it is clearly larger than at the least exponent": max(middle) > _CLEARLY * first,
            "it is clearly larger than at the largest exponent": max(middle) > _CLEARLY * last,
        },
        numbers={"at both ends the gain is less than a tenth": max(first, last) < _GAIN},
    )


def laws_in_words(rows: Rows) -> str:
    """Gains of DR and of ours under every law, in words."""
    return "; ".join(
        f"{law}, {method}: {gains_in_words(gains(rows.where(law=law), method))}"
        for law in rows.distinct("law")
        for method in ("DR", "DR, ours")
    )


def gains_in_words(line: dict[float, float]) -> str:
    """A line over the exponents in words."""
    return ", ".join(f"{value:.2f} at {exponent:g}" for exponent, value in line.items())
