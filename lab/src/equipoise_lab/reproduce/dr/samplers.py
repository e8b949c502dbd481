"""The samplers that DR compares its own with: accuracy and memory over skew and drift."""

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from equipoise.microbatch.zipf import zipf_shares
from equipoise.sketch import DriftHistogram, LossyCounting, Sketch, SpaceSaving
from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.drawing import lines
from equipoise_lab.reproduce.exhibit import Claim, Exhibit, Setting, as_in_paper
from equipoise_lab.reproduce.rows import Row, Rows
from equipoise_lab.reproduce.verdict import Finding, judged
from equipoise_lab.simulate.streams import stream
from equipoise_lab.simulate.workloads import drifting_batches

_SAMPLERS: dict[str, Callable[[int], Sketch]] = {
    "SpaceSaving": SpaceSaving,
    "Lossy Counting": lambda size: LossyCounting(1 / size),
    "DR": lambda size: DriftHistogram(size // 5, soft_boundary=size, shift_boundary=1),  # as in their code
}
_PIECES = 40


def run(context: Context) -> Iterator[Row]:
    """Feed every sampler of the same size with every stream, and compare its top keys with the true ones."""
    for exponent, drift, (name, make) in context.track(product(context["exponents"], (False, True), _SAMPLERS.items())):
        pieces = _stream(context, exponent, drift=drift)
        sketch, peak = make(context["size"]), 0
        for piece in pieces:
            sketch.update_many(piece)
            peak = max(peak, sketch.nbytes)
        recent = np.concatenate(pieces[-_PIECES // 4 :]) if drift else np.concatenate(pieces)
        yield {
            "exponent": exponent,
            "stream": "drifting" if drift else "steady",
            "sampler": name,
            "error": _error(sketch, recent, context["top"]),
            "bytes": peak,
        }


def _stream(context: Context, exponent: float, *, drift: bool) -> list[NDArray[np.int64]]:
    """Pieces of a stream; a drifting one has new hot keys in each quarter."""
    size = context["messages"] // _PIECES
    if drift:
        swaps = tuple(range(_PIECES // 4, _PIECES, _PIECES // 4))
        return list(drifting_batches(context["keys"], exponent, size, _PIECES, swaps=swaps, seed=context.seed))
    return list(stream(zipf_shares(context["keys"], exponent), size * _PIECES, seed=context.seed, chunk=size))


def _error(sketch: Sketch, keys: NDArray[np.int64], top: int) -> float:
    """Part of the share of the true top keys that is stated wrongly; shares are relative to the top ones."""
    distinct, counts = np.unique(keys, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:top]
    true = counts[order] / counts[order].sum()
    stated = dict(sketch.top(top))
    found = np.array([float(stated.get(int(key), 0.0)) for key in distinct[order]])
    if found.sum() > 0:
        found /= found.sum()
    return float(np.abs(true - found).sum() / 2)


def _sketches_need_skew(rows: Rows) -> Finding:
    found = {
        name: rows.line("exponent", "error", stream="steady", sampler=name)[1]
        for name in ("SpaceSaving", "Lossy Counting")
    }
    return judged(
        ", ".join(
            f"{name} error {values[0]:.3f} at the lowest and {values[-1]:.3f} at the highest exponent"
            for name, values in found.items()
        ),
        shape={
            "the error falls with the skew for both": all(values[-1] < values[0] for values in found.values()),
            "at the lowest exponent it is above a tenth": min(values[0] for values in found.values()) > 0.1,
        },
    )


def _less_memory(rows: Rows) -> Finding:
    found = {name: max(rows.column("bytes", stream="steady", sampler=name)) for name in _SAMPLERS}
    return judged(
        ", ".join(f"{name} {value / 1024:,.0f} KiB" for name, value in found.items()),
        shape={"Lossy Counting needs more than twice the memory of DR's": found["Lossy Counting"] > 2 * found["DR"]},
    )


def _follows_drift(rows: Rows) -> Finding:
    found = {name: rows.mean("error", stream="drifting", sampler=name) for name in _SAMPLERS}
    return judged(
        ", ".join(f"{name} {value:.3f}" for name, value in found.items()),
        shape={"the error of DR's is the least on drifting streams": found["DR"] <= min(found.values())},
    )


EXHIBIT = Exhibit(
    name="dr/samplers",
    title="samplers of hot keys: accuracy and memory over skew and drift",
    section="Sections 2 and 4; figures only in an extended paper that is not to be had",
    settings={
        "keys": as_in_paper(100_000, tiny=2_000),
        "messages": Setting("4,000,000", 20_000, 1_000_000, 4_000_000),
        "exponents": Setting("1 to 3", (1.0, 2.0), (1.0, 1.25, 1.5, 2.0, 3.0), (1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0)),
        "size": Setting("5,000 keys or so", 200, 5_000, 5_000),
        "top": Setting("not given", 20, 100, 100),
    },
    claims=(
        Claim(
            "Sketch algorithms are only accurate for highly skewed data ...",
            "no number",
            _sketches_need_skew,
            looked_into="With room for 5,000 keys SpaceSaving and Lossy Counting state the shares of the top 100 "
            "well at every exponent from 1 on",
        ),
        Claim(
            "... or consume unacceptable amounts of memory",
            "no number",
            _less_memory,
            looked_into="The Lossy Counting of the paper's measurements keeps every key of its one window and so is "
            "not that algorithm; the real one is of the size of the others",
        ),
        Claim(
            "DR's own counter respects drift",
            "named drift-respecting",
            _follows_drift,
            looked_into="Counts of the whole stream, which all three keep, cannot forget what was hot before",
        ),
    ),
    run=run,
    draw=lambda rows: lines(
        rows, "exponent", {"error": "shares stated wrongly", "bytes": "bytes"}, line="sampler", panel="stream"
    ),
    note="All have the same size, in keys. The error is the part of the shares of the true top keys, of the last "
    "quarter where the stream drifts, that is stated wrongly.",
)
