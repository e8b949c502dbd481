"""Figure 9 of PKG: more than two choices."""

from collections.abc import Iterator
from itertools import product

from equipoise.microbatch.zipf import zipf_shares
from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.drawing import lines
from equipoise_lab.reproduce.exhibit import Claim, Exhibit, Setting, as_in_paper
from equipoise_lab.reproduce.rows import Row, Rows
from equipoise_lab.reproduce.verdict import Finding, judged
from equipoise_lab.simulate.cluster import ClusterOptions, simulate, splitter_of
from equipoise_lab.simulate.streams import stream

_BALANCED = 1e-3
_CHOICES = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 30, 40)


def run(context: Context) -> Iterator[Row]:
    """Route one Zipf stream with more and more choices."""
    shares = zipf_shares(context["keys"], context["exponent"])
    options = ClusterOptions(load="global", spread=False, step=1_000_000)
    for workers, choices in context.track(product(context["workers"], context["choices"])):
        if choices <= workers:
            keys = stream(shares, context["messages"], seed=context.seed)
            result = simulate(splitter_of("partial-key", workers, choices=choices), keys, options)
            yield {"workers": workers, "choices": choices, "imbalance": result.average_imbalance}


def _needed(rows: Rows, workers: int) -> int | None:
    choices, values = rows.line("choices", "imbalance", workers=workers)
    return next((d for d, value in zip(choices, values, strict=True) if value < _BALANCED), None)


def _restored(rows: Rows) -> Finding:
    found = {workers: _needed(rows, workers) for workers in (5, 40)}
    two = rows.mean("imbalance", workers=5, choices=2)
    return judged(
        f"two choices at 5 workers give {two:.1e}; below 1e-3 first with "
        + ", ".join(f"{d or 'none'} choices at {w} workers" for w, d in found.items()),
        shape={
            "two choices do not suffice for 5 workers": two > _BALANCED,
            "more choices restore balance for 5 and for 40 workers": None not in found.values(),
        },
        numbers={
            "four choices suffice for 5 workers and nine for 40": all(
                (found[w] or d + 1) <= d for w, d in {5: 4, 40: 9}.items()
            )
        },
    )


def _lowered(rows: Rows) -> Finding:
    found = {}
    for workers in (50, 100):
        choices, values = rows.line("choices", "imbalance", workers=workers)
        found[workers] = (values[0], min(value for d, value in zip(choices, values, strict=True) if d >= 20))
    return judged(
        ", ".join(f"{w} workers {two:.1e} with two choices, {tens:.1e} with tens" for w, (two, tens) in found.items()),
        shape={"a few tens of choices lower the imbalance tenfold or more": all(t < h / 10 for h, t in found.values())},
    )


EXHIBIT = Exhibit(
    name="pkg/figure-9",
    title="imbalance over the number of choices",
    section="Section 6.2, Q4",
    settings={
        "messages": Setting("10 M", tiny=50_000, quick=1_000_000, full=10_000_000),
        "keys": as_in_paper(1_000_000, tiny=10_000),
        "exponent": as_in_paper(1.2),
        "workers": Setting("5 to 100", (5, 40, 50, 100), (5, 10, 20, 30, 40, 50, 100), (5, 10, 20, 30, 40, 50, 100)),
        "choices": Setting("2 to some tens", (2, 4, 9, 20, 40), _CHOICES, _CHOICES),
    },
    claims=(
        Claim(
            "Balance can be restored with more choices: from two to four at 5 workers, or to nine at 40",
            "d = 4 at W = 5, d = 9 at W = 40",
            _restored,
        ),
        Claim(
            "With 50 or 100 workers the imbalance is still high, but is lowered by a few tens of choices",
            "falling lines",
            _lowered,
        ),
    ),
    run=run,
    draw=lambda rows: lines(
        rows, "choices", {"imbalance": "fraction of average imbalance"}, line="workers", log_x=True, log_y=True
    ),
)
