"""Figures 9 to 11 of Gedik: how large the partitioning function is."""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from equipoise.microbatch.zipf import zipf_shares
from equipoise.plan.cost import imbalance_threshold, tracking_threshold
from equipoise.sketch import LossyCounting
from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.drawing import lines
from equipoise_lab.reproduce.exhibit import Claim, Exhibit, Setting, as_in_paper
from equipoise_lab.reproduce.gedik.growth import ALPHA, SETTINGS, grow, planner, resources
from equipoise_lab.reproduce.rows import Row, Rows
from equipoise_lab.reproduce.verdict import Finding, judged, near
from equipoise_lab.simulate.streams import stream

_MEASURES = {"counted": "keys in the lossy counter", "mapped": "keys in the explicit hash"}
_ERROR = 0.1  # of delta: "epsilon typical 0.1"
_LOOKS = 8

_NOTE = (
    "The lossy counter has an error of a tenth of delta and is fed from the stream until it has seen several of its "
    "windows; its size is an average over the window. The explicit hash is that of scan, after growing from one "
    "channel; all three algorithms track the same keys."
)


def _threshold(letters: str, sigma: float, channels: int, domain: int) -> float:
    """Delta of equation 17: the smallest over the resources."""
    theta = imbalance_threshold(ALPHA, channels)
    return min(tracking_threshold(each, sigma, theta, channels, domain) for each in resources(letters))


def _counted(shares: NDArray[np.float64], delta: float, context: Context) -> float:
    """Keys that a lossy counter holds, on average over a window, once it has settled."""
    window = int(1 / (_ERROR * delta))
    wanted = min(context["messages"], context["windows"] * window)
    sketch = LossyCounting(1 / window)
    sizes = []
    looks = _LOOKS * max(1, round(wanted / window))
    for number, chunk in enumerate(stream(shares, wanted, seed=context.seed, chunk=max(1, wanted // looks))):
        sketch.update_many(chunk)
        if number >= looks // 2:
            sizes.append(len(sketch.entries()[0]))
    return float(np.mean(sizes))


def _sized(
    context: Context, letters: str, shares: NDArray[np.float64], *, sigma: float = 0.1, channels: int | None = None
) -> Row:
    count = channels or context["channels"]
    made = planner("scan", letters, len(shares), sigma=sigma)
    (step,) = grow(made, letters, shares, context.seed, count)
    delta = _threshold(letters, sigma, count, len(shares))
    return {
        "resources": letters,
        "delta": delta,
        "counted": _counted(shares, delta, context),
        "mapped": step.row["mappings"],
    }


def run_sigma(context: Context) -> Iterator[Row]:
    """Sizes over sigma."""
    shares = zipf_shares(context["domain size"], 1.0)
    cells = [(letters, sigma) for letters in ("LCL", "LLL", "LQL") for sigma in context["sigma"]]
    for letters, sigma in context.track(cells):
        yield {"sigma": sigma, **_sized(context, letters, shares, sigma=sigma)}


def run_skew(context: Context) -> Iterator[Row]:
    """Sizes over the skew; quadratic resources only where the paper has them."""
    cells = [(letters, skew) for letters in ("LCL", "LLL", "LQL") for skew in context["skews"]]
    for letters, skew in context.track([each for each in cells if each[0] != "LQL" or each[1] <= 0.5]):
        yield {"skew": skew, **_sized(context, letters, zipf_shares(context["domain size"], skew))}


def run_channels(context: Context) -> Iterator[Row]:
    """Sizes over the number of channels."""
    shares = zipf_shares(context["domain size"], 1.0)
    for channels in context.track(context["numbers of channels"]):
        yield {"channels": channels, **_sized(context, "LCL", shares, channels=channels)}


def _at(rows: Rows, name: str, letters: str, sigma: float) -> float:
    return rows.mean(name, resources=letters, sigma=sigma)


def _counter_over_sigma(rows: Rows) -> Finding:
    sigmas = rows.distinct("sigma")
    linear = [_at(rows, "counted", "LCL", s) for s in sigmas]
    quadratic = _at(rows, "counted", "LQL", 0.1)
    same = all(near(_at(rows, "counted", "LLL", s), _at(rows, "counted", "LCL", s), 0.02) for s in sigmas)
    return judged(
        f"LCL {linear[0]:,.0f} to {linear[-1]:,.0f}; at sigma 0.1 {_at(rows, 'counted', 'LCL', 0.1):,.0f}, LQL "
        f"{quadratic:,.0f}",
        shape={
            "it grows as sigma falls": linear[0] == max(linear) and linear[-1] == min(linear),
            "LCL and LLL are the same, LQL is larger": same and quadratic > _at(rows, "counted", "LCL", 0.1),
        },
        numbers={
            "2,500 at 0.1, within a quarter": near(_at(rows, "counted", "LCL", 0.1), 2500),
            "50,000 with LQL, within a quarter": near(quadratic, 50_000),
        },
    )


def _hash_over_sigma(rows: Rows) -> Finding:
    sigmas = rows.distinct("sigma")
    found = [_at(rows, "mapped", "LCL", s) for s in sigmas]
    apart = max(
        abs(_at(rows, "mapped", letters, s) - _at(rows, "mapped", "LCL", s))
        for s in sigmas
        for letters in ("LLL", "LQL")
    )
    return judged(
        "; ".join(
            f"{s}: LCL {_at(rows, 'mapped', 'LCL', s):.0f}, LQL {_at(rows, 'mapped', 'LQL', s):.0f}" for s in sigmas
        ),
        shape={"the resource functions differ by at most a hundredth of the largest size": apart <= 0.01 * max(found)},
        numbers={
            "from 1 to 500 or so": min(found) <= 10 and 250 <= max(found) <= 625,
            "about 50 at 0.1, within a quarter": near(_at(rows, "mapped", "LCL", 0.1), 50),
        },
    )


def _counter_over_skew(rows: Rows) -> Finding:
    _, values = rows.line("skew", "counted", resources="LCL")
    return judged(
        f"LCL {values[0]:,.0f} at the lowest skew, {max(values):,.0f} at most, {values[-1]:,.0f} at the highest",
        shape={
            "it falls at the highest skew": values[-1] < max(values),
            "the largest is within a half of the smallest": max(values) < 1.5 * min(values),
        },
    )


def _hash_over_skew(rows: Rows) -> Finding:
    skews, values = rows.line("skew", "mapped", resources="LCL")
    steps = np.diff(values) / np.diff(skews)
    return judged(
        ", ".join(f"{v:.0f} at {z}" for z, v in zip(skews, values, strict=True)),
        shape={
            "it grows with the skew": bool(np.all(np.diff(values) >= 0)) and values[-1] > values[0],
            "and ever faster": bool(steps[-1] > steps[: len(steps) // 2].max()),
        },
    )


def _linear_in_channels(rows: Rows) -> Finding:
    found = {}
    for name in _MEASURES:
        channels, values = rows.line("channels", name)
        found[name] = float(np.corrcoef(channels, values)[0, 1]) ** 2
    channels, mapped = rows.line("channels", "mapped")
    return judged(
        f"{mapped[0]:.0f} to {mapped[-1]:.0f} mapped over {channels[0]} to {channels[-1]} channels; a straight "
        "line explains " + ", ".join(f"{value:.1%} of {_MEASURES[name]}" for name, value in found.items()),
        shape={"both grow in proportion: a line explains 98 % or more": min(found.values()) > 0.98},
    )


_COMMON = {
    "domain size": SETTINGS["domain size"],
    "alpha": as_in_paper(ALPHA),
    "messages": Setting("not given", 20_000, 3_000_000, 20_000_000),
    "windows": Setting("not given", 3, 12, 40),
}
_SIGMA = Setting(
    "0.01 to 1",
    (0.02, 0.1, 1.0),
    (0.008, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0),
    (0.008, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0),
)
_SKEWS = tuple(round(0.1 * i, 1) for i in range(1, 11))


def _exhibit(
    number: int, along: str, words: str, settings: dict[str, Setting], claims: Iterable[Claim], *, log: bool = False
) -> Exhibit:
    line = None if along == "channels" else "resources"
    return Exhibit(
        name=f"gedik/figure-{number}",
        title=f"size of the partitioning function over {words}",
        section="Section 5.4",
        settings={**_COMMON, **settings},
        claims=tuple(claims),
        run={"sigma": run_sigma, "skew": run_skew, "channels": run_channels}[along],
        draw=lambda rows: lines(rows, along, _MEASURES, line=line or "resources", log_x=log, log_y=log),
        note=_NOTE,
    )


EXHIBITS = (
    _exhibit(
        9,
        "sigma",
        "the frequency threshold scaler",
        {"channels": SETTINGS["channels"], "sigma": _SIGMA},
        (
            Claim(
                "The lossy counter grows as sigma falls; LCL and LLL overlap",
                "2,500 at 0.1, 50,000 with LQL",
                _counter_over_sigma,
            ),
            Claim(
                "The explicit hash is much smaller, and the same for all resource functions",
                "1 to 500, about 50 at 0.1",
                _hash_over_sigma,
            ),
        ),
        log=True,
    ),
    _exhibit(
        10,
        "skew",
        "skew",
        {"channels": SETTINGS["channels"], "skews": Setting("0.1 to 1", (0.1, 0.5, 0.8, 1.0), _SKEWS, _SKEWS)},
        (
            Claim(
                "The lossy counter stays mostly flat, slightly reduced for very high skew", "flat", _counter_over_skew
            ),
            Claim("The explicit hash grows at an increasing rate", "super-linear", _hash_over_skew),
        ),
    ),
    _exhibit(
        11,
        "channels",
        "the number of channels",
        {
            "numbers of channels": Setting(
                "up to 32", (2, 4, 6), (2, 4, 8, 12, 16, 20, 24, 28, 32), (2, 4, 8, 12, 16, 20, 24, 28, 32)
            )
        },
        (Claim("The size increases linearly with the number of channels", "linear", _linear_in_channels),),
    ),
)
