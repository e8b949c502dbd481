"""Messages routed by a splitter per second, on one core."""

from functools import partial

import numpy as np

from equipoise.microbatch.zipf import sample, zipf_shares
from equipoise.split import DChoices, DynamicKey, PartialKey, Splitter, WChoices
from equipoise_lab.bench.harness import Context, Result, interleaved, median
from equipoise_lab.simulate.workloads import key_fingerprints

_WORKERS = (10, 100, 1000, 10_000)
_KEYS = 100_000


def run(context: Context) -> Result:
    """Route a Zipf stream of exponent 1 over 100,000 keys to 10 up to 10,000 workers."""
    messages = 2_000_000 if context.quick else 10_000_000
    ranks = sample(zipf_shares(_KEYS, 1.0), messages, np.random.default_rng(context.seed))
    stream = key_fingerprints(ranks, context.seed)
    kinds: dict[str, type[Splitter]] = {
        "pkg": PartialKey,
        "d_choices": DChoices,
        "w_choices": WChoices,
        "dkg": DynamicKey,
    }
    splitters = {f"{name}, {n} workers": kind(n) for name, kind in kinds.items() for n in _WORKERS}
    contenders = {name: partial(splitter.route, stream) for name, splitter in splitters.items()}
    seconds = interleaved(contenders, context.repeats(7, 3))
    rates = {name: messages / median(times) for name, times in seconds.items()}
    metrics = {f"{name}_per_second_{n}": rates[f"{name}, {n} workers"] for name in kinds for n in _WORKERS}
    return Result(metrics, {"seconds": seconds, "messages": messages})
