"""Figure 6 of Gedik: the number of channels."""

from collections.abc import Iterator
from itertools import product
from statistics import fmean

from equipoise.microbatch.zipf import zipf_shares
from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.drawing import lines
from equipoise_lab.reproduce.exhibit import Claim, Exhibit, Setting
from equipoise_lab.reproduce.gedik.growth import MEASURES, METHODS, NOTE, REPAIRED, SETTINGS, THREE, grow, planner
from equipoise_lab.reproduce.rows import Row, Rows
from equipoise_lab.reproduce.verdict import Finding, judged, near

_LETTERS = "LCL"


def run(context: Context) -> Iterator[Row]:
    """Grow a region by every method and measure at every number of channels."""
    shares = zipf_shares(context["domain size"], 1.0)
    for method, seed in context.track(product((*METHODS, REPAIRED), context.seeds(context["runs"]))):
        made = planner(method, _LETTERS, len(shares))
        for step in grow(made, _LETTERS, shares, seed, context["most channels"], every_step=True):
            yield {"method": method, "channels": step.channels, "run": seed, **step.row}


def _last(rows: Rows, name: str) -> dict[str, float]:
    """Means over the last numbers of channels, 28 to 32; of a single one, where the hottest key goes says most."""
    most = max(rows.distinct("channels"))
    last = tuple(n for n in rows.distinct("channels") if n > 0.85 * most)
    return {m: rows.mean(name, method=m, channels=last) for m in METHODS}


def _hashes(rows: Rows) -> Finding:
    found = _last(rows, "migration")
    return judged(
        ", ".join(f"{m} {value:.2f}" for m, value in found.items()) + " at the end",
        shape={
            "uniform hash has by far the highest, consistent hash the lowest migration": found["uniform"]
            > 3 * max(found[m] for m in THREE)
            and found["consistent"] < min(found[m] for m in THREE),
        },
        numbers={"uniform reaches 22, within a quarter": near(found["uniform"], 22)},
    )


def _flat_redist(rows: Rows) -> Finding:
    _, redist = rows.line("channels", "migration", method="redist")
    later = redist[len(redist) // 4 :]
    last = _last(rows, "migration")
    return judged(
        f"redist {min(later):.2f} to {max(later):.2f}, on average {fmean(later):.2f}; at the end scan "
        f"{last['scan']:.2f}, readj {last['readj']:.2f}",
        shape={
            "redist stays below 2": max(later) < 2,
            "scan and readj rise above redist, scan the most": last["redist"] < last["readj"] < last["scan"],
        },
        numbers={
            "redist about 1.15, within a quarter": near(fmean(later), 1.15),
            "scan above 3 at the end": last["scan"] > 3,
        },
    )


def _consistent_balance(rows: Rows) -> Finding:
    channels = rows.distinct("channels")
    worst = sum(
        rows.mean("imbalance", method="consistent", channels=n)
        >= max(rows.mean("imbalance", method=m, channels=n) for m in METHODS)
        for n in channels
    )
    last = _last(rows, "imbalance")
    return judged(
        f"consistent hash is the worst at {worst} of {len(channels)} numbers of channels; {last['consistent']:.2f} at "
        "the end",
        shape={"it is the worst in at least three quarters of them": worst >= 0.75 * len(channels)},
        numbers={"above 2 at the end": last["consistent"] > 2},
    )


def _readj_up_to_20(rows: Rows) -> Finding:
    best, over = [], []
    for n in rows.distinct("channels"):
        by = {m: rows.mean("imbalance", method=m, channels=n) for m in METHODS}
        if n <= 20:
            best.append(by["readj"] <= 1.01 * min(by.values()))
            over.append(by["uniform"] / by["readj"] - 1)
    last = _last(rows, "imbalance")
    return judged(
        f"readj is lowest, or within 1 %, at {sum(best)} of {len(best)} numbers up to 20; uniform up to "
        f"{max(over):.0%} above it; at the end readj {last['readj']:.2f}, redist {last['redist']:.2f}, scan "
        f"{last['scan']:.2f}",
        shape={
            "readj is lowest at three quarters of them or more": sum(best) >= 0.75 * len(best),
            "beyond 20 channels it is above redist and scan": last["readj"] > max(last["redist"], last["scan"]),
        },
        numbers={"uniform up to 36 % above readj, within 15 points": 0.21 < max(over) < 0.51},
    )


EXHIBIT = Exhibit(
    name="gedik/figure-6",
    title="migration and imbalance over the number of channels",
    section="Section 5.3",
    settings={
        **{name: setting for name, setting in SETTINGS.items() if name != "channels"},
        "runs": Setting("5", 1, 1, 5),
        "most channels": Setting("32", 6, 32, 32),
    },
    claims=(
        Claim(
            "Uniform hash migrates most, consistent hash least",
            "uniform 22 times the ideal with 32 channels",
            _hashes,
            looked_into="A hash modulo N moves all but 1 / N of the load, which is 31 times the ideal from 31 to 32 "
            "channels; less can only come from hot keys that happen to stay. In a step at 24 to 32 channels scan and "
            "redist move 8 of 101 tracked keys here, readj with gains as printed 48; why the paper's scan moves so "
            "many is not to be seen from its text",
        ),
        Claim(
            "Redist has a flat migration cost; that of scan and readj rises",
            "redist 1.15; scan above 3 with 32 channels",
            _flat_redist,
            looked_into="In a step at 24 to 32 channels scan and redist move 8 of 101 tracked keys here, readj with "
            "gains as printed 48; why the paper's scan moves so many is not to be seen from its text",
        ),
        Claim(
            "Consistent hash has the highest imbalance",
            "above 2 with 32 channels",
            _consistent_balance,
            looked_into="From 19 channels on, where the hottest key is more than a channel's part, uniform hash is "
            "at times the worse of the two",
        ),
        Claim(
            "Readj is best from 2 to 20 channels, but above redist and scan beyond",
            "uniform up to 36 % above readj",
            _readj_up_to_20,
            looked_into="From 28 channels on the hottest key, 7 % of the load, is about two channels' part, which "
            "decides the balance of all three: at the full scale they end within 4 % of each other",
        ),
    ),
    run=run,
    draw=lambda rows: lines(rows, "channels", MEASURES, line="method", log_y=True, limit=1),
    note=NOTE,
)
