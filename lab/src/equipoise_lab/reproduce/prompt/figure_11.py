"""Figure 11 of Prompt: the highest rate that holds, over the batch interval and over the skew of the keys."""

import math
from collections.abc import Iterator
from itertools import product

import numpy as np

from equipoise.errors import InvalidArgumentError
from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.drawing import bars
from equipoise_lab.reproduce.exhibit import Claim, Exhibit, Setting
from equipoise_lab.reproduce.rows import Row, Rows
from equipoise_lab.reproduce.verdict import Finding, judged

_OURS = ("prompt", "prompt as printed")
_WAVE_SECONDS = 4.0


def run(context: Context) -> Iterator[Row]:
    """Every technique on the same batches of a rate that swings."""
    from equipoise_lab.bench.local_spark import local_spark  # noqa: PLC0415 - needs Spark
    from equipoise_lab.bench.prompt import (  # noqa: PLC0415 - as above
        FILL,
        SLOTS,
        sinusoidal_arrivals,
        sustained_rate,
        taken_by_each,
    )

    rng, middle, rate = np.random.default_rng(context.seed), context["exponent"], context["tuples a second"]
    cases = [("over the interval", middle, interval) for interval in context["intervals, s"]]
    cases += [("over the skew", exponent, context["interval over the skew, s"]) for exponent in context["exponents"]]
    parts: dict[tuple[float, float], list[str]] = {}  # what lies on both lines is measured once
    for part, exponent, interval in cases:
        parts.setdefault((exponent, interval), []).append(part)
    with local_spark(SLOTS, or_more=True) as spark:
        for number, (exponent, interval) in enumerate(context.track(sorted(parts))):
            waves = interval / _WAVE_SECONDS
            tuples = int(rate * interval)
            arrivals = sinusoidal_arrivals(tuples, exponent, rng, waves=waves, swing=context["swing"])
            service, runs = FILL * SLOTS / rate, context["runs"]
            taken = taken_by_each(spark, arrivals, context["techniques"], service, runs, warm_up=number == 0)
            for part, (technique, found) in product(parts[exponent, interval], taken.items()):
                yield {
                    "part": part,
                    "case": f"{interval:g} s" if part == "over the interval" else f"z = {exponent:g}",
                    "interval": interval,
                    "exponent": exponent,
                    "technique": technique,
                    "rate": _or_none(sustained_rate(found, interval)),
                }


def _or_none(rate: float) -> float | None:
    """A rate, unless a batch took longer than its interval without any work."""
    return None if math.isnan(rate) else rate


def _measured(rows: Rows, part: str) -> Rows:
    """Rows of the cases in which every technique could be measured."""
    wanted = rows.where(part=part)
    unmeasured = {row["case"] for row in wanted if row["rate"] is None}
    kept = Rows(row for row in wanted if row["case"] not in unmeasured)
    if not kept:
        raise InvalidArgumentError(
            "batches without any work took longer than their interval; run it on an idle machine"
        )
    return kept


def _ratios(rows: Rows, other: str) -> dict[str, float]:
    """Rate of Prompt as printed over another technique's, in every case."""
    return {
        case: rows.mean("rate", case=case, technique="prompt as printed")
        / rows.mean("rate", case=case, technique=other)
        for case in rows.distinct("case")
    }


def _others(rows: Rows) -> list[str]:
    return [each for each in rows.distinct("technique") if each not in _OURS]


def _formatted(rows: Rows) -> str:
    return "; ".join(
        f"{case}: "
        + ", ".join(f"{m} {rows.mean('rate', case=case, technique=m):,.0f} / s" for m in rows.distinct("technique"))
        for case in rows.distinct("case")
    )


def _longer_is_better(rows: Rows) -> Finding:
    part = _measured(rows, "over the interval")
    lines = {m: part.line("interval", "rate", technique=m)[1] for m in part.distinct("technique")}
    return judged(
        _formatted(part),
        shape={
            "every technique holds more at the longest interval than at the shortest": all(
                line[-1] > line[0] for line in lines.values()
            )
        },
    )


def _up_to_twice(rows: Rows) -> Finding:
    part = _measured(rows, "over the interval")
    found = {m: _ratios(part, m) for m in _others(part)}
    most = {m: max(each.values()) for m, each in found.items()}
    speed = {m: part.mean("rate", technique=m) for m in part.distinct("technique")}
    return judged(
        "at most " + ", ".join(f"{ratio:.2f} times {m}" for m, ratio in most.items()),
        shape={
            "Prompt is above every other technique at every interval": min(min(e.values()) for e in found.values()) > 1,
            "time-based is the worst": min(speed, key=lambda m: speed[m]) == "time-based",
        },
        numbers={
            "at least twice time-based somewhere": most["time-based"] >= 2,
            "at least twice cAM somewhere": most["cam"] >= 2,
        },
    )


def _highest_at_every_skew(rows: Rows) -> Finding:
    part = _measured(rows, "over the skew")
    found = {m: _ratios(part, m) for m in _others(part)}
    last = part.distinct("case")[-1]
    return judged(
        _formatted(part),
        shape={"Prompt is the highest at every skew, within 5 %": min(min(e.values()) for e in found.values()) > 0.95},
        numbers={"at the highest skew twice every other technique": min(each[last] for each in found.values()) >= 2},
    )


EXHIBIT = Exhibit(
    name="prompt/figure-11",
    title="throughput over the batch interval with a rate that swings, and over the skew",
    section="Section 7.2, variable input rate and data skew",
    settings={
        "intervals, s": Setting("1, 2, 3", (3.0, 4.0), (4.0, 5.0), (4.0, 8.0, 12.0)),
        "interval over the skew, s": Setting("3", 3.0, 4.0, 8.0),
        "exponents": Setting("0.1 to 2.0", (2.0,), (0.1, 1.5), (0.1, 1.0, 2.0)),
        "exponent": Setting("not given", 1.0, 1.5, 1.0),
        "swing": Setting("not given", 1.0, 1.0, 1.0),
        "tuples a second": Setting("not given", 100, 1_000, 1_000),
        "techniques": Setting(
            "Prompt, time-based, shuffle, hash, PK2, PK5, cAM",
            ("prompt", "prompt as printed", "time-based", "cam"),
            ("prompt as printed", "time-based", "cam"),
            ("prompt", "prompt as printed", "time-based", "shuffle", "hash", "pk2", "pk5", "cam"),
        ),
        "runs": Setting("not given", 1, 1, 1),
    },
    claims=(
        Claim("All techniques do better with a longer interval", "rising", _longer_is_better),
        Claim("Prompt holds up to twice as much as the others, time-based the least", "2 to 4 times", _up_to_twice),
        Claim("Prompt holds the most at every skew", "2 to 5 times", _highest_at_every_skew),
    ),
    run=run,
    draw=lambda rows: bars(rows, "case", {"rate": "tuples / s"}, line="technique", panel="part"),
    note="Single batches of a sine wave of 4 s between nothing and twice its mean, on 8 emulated slots; mapping, "
    "reducing and merging take a service time that waits. The rate that just fills the interval follows from two "
    "measured batches, with and without service. Intervals are longer than those of the paper, because the stages of a "
    "batch alone cost two cores more than a second. No window and no back-pressure. `prompt` is our cut, at the full "
    "scale; claims are held against `prompt as printed`.",
    spark=True,
)
