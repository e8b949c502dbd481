"""Conformance checks for splitters: the guarantees that the simulator and the engines need."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from equipoise.errors import CheckError, InvalidArgumentError
from equipoise.readable import fingerprint_text, size_text
from equipoise.split.base import Splitter

SplitterFactory = Callable[[int, int], Splitter]
"""Function that makes a splitter from a number of workers and a seed."""

_BYTES_OF_KEY = 256  # generous bound of the memory per stored key, with half-empty tables
_FEW, _MANY = 20_000, 60_000


def streams() -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Yield streams of unusual shapes, with a name for messages."""
    rng = np.random.default_rng(11)
    skewed = np.minimum(rng.zipf(1.3, 3000), 10**6).astype(np.int64)
    yield "an empty stream", np.empty(0, dtype=np.int64)
    yield "one message", np.array([5])
    yield "one key only", np.full(500, -7)
    yield "every message a new key", np.arange(3000)
    yield "a skewed stream", skewed
    yield "a hot key that is swapped", np.where(rng.random(3000) < 0.7, np.arange(3000) // 1500, skewed)
    yield "the extreme fingerprints", np.tile(np.array([-(2**63), 2**63 - 1, 0, -1]), 50)


def check_routes_are_workers(make: SplitterFactory) -> None:
    """Every message gets one worker in 0 .. W - 1, as an int32; the stream does not change."""
    for workers in (1, 2, 3, 10, 64):
        for name, stream in streams():
            splitter, before = make(workers, 1), stream.copy()
            targets = splitter.route(stream)
            where = f"{name}, {workers} workers"
            if targets.dtype != np.int32 or targets.shape != stream.shape:
                _fail(splitter, where, f"{len(stream)} messages gave {targets.dtype} of shape {targets.shape}")
            if len(targets) and (targets.min() < 0 or targets.max() >= workers):
                _fail(splitter, where, f"a worker lies outside 0..{workers - 1}")
            if not np.array_equal(stream, before):
                _fail(splitter, where, "the stream was changed")
            if splitter.loads.shape != (workers,) or splitter.loads.min() < 0:
                _fail(splitter, where, "loads are not one count for each worker")


def check_deterministic(make: SplitterFactory) -> None:
    """Equal seeds and streams give equal routes."""
    for name, stream in streams():
        for seed in (0, 1, -5):
            one, two = make(10, seed), make(10, seed)
            if not np.array_equal(one.route(stream), two.route(stream)):
                _fail(one, f"{name}, seed {seed}", "two equal splitters gave different routes")


def check_chunks_make_no_difference(make: SplitterFactory) -> None:
    """Routes do not depend on how the stream is divided into calls."""
    rng = np.random.default_rng(3)
    for name, stream in streams():
        whole = make(7, 2)
        expected = whole.route(stream)
        for count in (2, 30):
            cuts = np.sort(rng.integers(0, len(stream) + 1, count))
            splitter = make(7, 2)
            got = np.concatenate([splitter.route(chunk) for chunk in np.split(stream, cuts)])
            if not np.array_equal(got, expected):
                at = int(np.flatnonzero(got != expected)[0])
                _fail(
                    whole, f"{name}, in {count + 1} calls", f"the route of message {at} differs from that of one call"
                )
            if not np.array_equal(splitter.loads, whole.loads):
                _fail(whole, f"{name}, in {count + 1} calls", "the loads differ from those of one call")


def check_keys_stay_with_their_candidates(make: SplitterFactory) -> None:
    """Each message goes to one of the candidates of its key, which are workers."""
    for name, stream in streams():
        splitter = make(6, 4)
        for number, key in enumerate(stream[:400].tolist()):
            target = int(splitter.route([key])[0])
            candidates = splitter.candidates(key)
            if not len(candidates) or candidates.min() < 0 or candidates.max() >= splitter.workers:
                _fail(splitter, name, f"the candidates of a key are not workers: {candidates.tolist()}")
            if target not in candidates:
                _fail(splitter, name, f"message {number} went to {target}, not to any of {candidates.tolist()}")


def check_sources_agree_on_new_keys(make: SplitterFactory) -> None:
    """Sources with the same seed have the same candidates for a new key."""
    one, two = make(12, 9), make(12, 9)
    for key in (0, 1, -1, 2**63 - 1):
        if not np.array_equal(one.candidates(key), two.candidates(key)):
            _fail(one, f"key {fingerprint_text(key)}", "two sources with the same seed have different candidates")


def check_memory(make: SplitterFactory) -> None:
    """Memory grows with the keys only if the splitter says so, and then by a bounded amount for each."""
    splitter = make(10, 1)
    if splitter.memory not in {"workers", "keys"}:
        _fail(splitter, "memory", f"memory is {splitter.memory!r}; set it to 'workers' or 'keys'")
    splitter.route(np.arange(_FEW))
    few = splitter.nbytes
    splitter.route(np.arange(_FEW, _MANY))
    grown = splitter.nbytes - few
    if splitter.memory == "workers" and grown > few // 10:
        _fail(
            splitter,
            f"{_MANY} keys",
            f"memory grew from {size_text(few)} by {size_text(grown)}, but memory is 'workers'",
        )
    if splitter.nbytes > _BYTES_OF_KEY * _MANY:
        _fail(
            splitter, f"{_MANY} keys", f"it uses {size_text(splitter.nbytes)}, more than {_BYTES_OF_KEY} bytes per key"
        )


def check_probe_sets_the_loads(make: SplitterFactory) -> None:
    """A probe replaces the loads by the share of this source, or by the whole loads."""
    splitter = make(3, 1)
    splitter.route([1, 2, 3])
    splitter.probe([7, 8, 9], sources=2)
    if splitter.loads.tolist() != [3, 4, 4]:
        _fail(splitter, "probe([7, 8, 9], sources=2)", f"loads are {splitter.loads.tolist()}, expected [3, 4, 4]")
    splitter.probe([7, 8, 9], absolute=True)
    if splitter.loads.tolist() != [7, 8, 9]:
        _fail(splitter, "probe([7, 8, 9], absolute=True)", f"loads are {splitter.loads.tolist()}")


def check_refuses_bad_input(make: SplitterFactory) -> None:
    """Zero workers, keys that are fractions, text or tables, and loads of another number of workers are refused."""
    splitter = make(4, 0)
    attempts: dict[str, Callable[[], object]] = {
        "0 workers": lambda: make(0, 0),
        "keys that are fractions": lambda: splitter.route([0.5]),
        "keys that are text": lambda: splitter.route(["a"]),
        "a table of keys": lambda: splitter.route([[1, 2], [3, 4]]),
        "a probe of 3 of 4 workers": lambda: splitter.probe([1, 2, 3]),
        "a probe of 0 sources": lambda: splitter.probe([1, 2, 3, 4], sources=0),
    }
    for what, attempt in attempts.items():
        try:
            attempt()
        except InvalidArgumentError:
            continue
        _fail(splitter, what, "was accepted; expected InvalidArgumentError")


SPLITTER_CHECKS: tuple[Callable[[SplitterFactory], None], ...] = (
    check_refuses_bad_input,
    check_routes_are_workers,
    check_deterministic,
    check_chunks_make_no_difference,
    check_keys_stay_with_their_candidates,
    check_sources_agree_on_new_keys,
    check_memory,
    check_probe_sets_the_loads,
)
"""All checks, in the order in which they run."""


def check_splitter(make: SplitterFactory) -> None:
    """Run all checks of a splitter; raise ``CheckError`` at the first that fails.

    Parameters
    ----------
    make
        Function that makes a splitter from a number of workers and a seed. A splitter that has a clock needs one that
        always returns the same time.

    Examples
    --------
    >>> from equipoise.split import PartialKey
    >>> check_splitter(lambda workers, seed: PartialKey(workers, seed=seed))
    """
    for check in SPLITTER_CHECKS:
        check(make)


def _fail(splitter: Splitter, where: str, what: str) -> None:
    raise CheckError(f"{splitter.name}: {where}: {what}")
