"""Long streams of keys in bounded memory, chunk by chunk: data sets of the papers on splitting, and others."""

from collections.abc import Callable, Iterator
from math import erf, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError
from equipoise.kernels import kernel
from equipoise.microbatch.zipf import zipf_shares
from equipoise_lab.simulate.workloads import drifting_batches, key_fingerprints, shifted_power_law_shares

CHUNK = 1_000_000
"""Messages of a chunk."""

COUNTRIES = 204
"""Keys of the country data sets."""

Stream = Iterator[NDArray[np.int64]]


@kernel
def _alias_table(weights: Any, accept: Any, alias: Any) -> None:
    """Fill in Vose's tables: index i is kept with probability ``accept[i]``, else replaced by ``alias[i]``."""
    count = len(weights)
    small, large = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    smalls, larges = 0, 0
    scaled = weights * (count / weights.sum())
    for i in range(count):
        if scaled[i] < 1.0:
            small[smalls] = i
            smalls += 1
        else:
            large[larges] = i
            larges += 1
    accept[:] = 1.0
    while smalls > 0 and larges > 0:
        smalls -= 1
        less, more = small[smalls], large[larges - 1]
        accept[less] = scaled[less]
        alias[less] = more
        scaled[more] -= 1.0 - scaled[less]
        if scaled[more] < 1.0:
            larges -= 1
            small[smalls] = more
            smalls += 1


@kernel
def _draw(uniforms: Any, accept: Any, alias: Any, names: Any, out: Any) -> None:
    count = len(accept)
    for i in range(len(uniforms)):
        scaled = uniforms[i] * count
        index = min(int(scaled), count - 1)
        out[i] = names[index] if scaled - index < accept[index] else names[alias[index]]


class KeySampler:
    """Draw keys by their shares, in constant time each, by the alias method.

    Parameters
    ----------
    shares
        Share of each key, at least 0; they are scaled to add up to 1.
    seed
        Seed of the draws and of the fingerprints.

    Examples
    --------
    >>> sampler = KeySampler([0.9, 0.1], seed=1)
    >>> np.unique(sampler.draw(1000), return_counts=True)[1].tolist()
    [89, 911]
    """

    def __init__(self, shares: ArrayLike, seed: int) -> None:
        weights = np.asarray(shares, dtype=np.float64)
        if weights.ndim != 1 or not np.all(np.isfinite(weights) & (weights >= 0)) or not weights.sum() > 0:
            raise InvalidArgumentError("shares must be a list of finite numbers of at least 0, not all of them 0")
        self.names = key_fingerprints(np.arange(len(weights)), seed)
        """Fingerprint of each key."""
        self._accept = np.empty(len(weights))
        self._alias = np.arange(len(weights))
        _alias_table(weights, self._accept, self._alias)
        self._rng = np.random.default_rng(seed)

    def draw(self, count: int) -> NDArray[np.int64]:
        """Return the fingerprints of ``count`` messages."""
        out = np.empty(count, dtype=np.int64)
        _draw(self._rng.random(count), self._accept, self._alias, self.names, out)
        return out


def stream(shares: ArrayLike, messages: int, *, seed: int = 0, chunk: int = CHUNK) -> Stream:
    """Return a stream of independent draws from one distribution.

    Parameters
    ----------
    shares
        Share of each key.
    messages
        m, length of the stream.
    seed
        Seed of the draws and of the fingerprints.
    chunk
        Messages of a chunk.
    """
    sampler = KeySampler(shares, seed)
    return _chunks(lambda _start, count: sampler.draw(count), messages, chunk)


def _chunks(draw: Callable[[int, int], NDArray[np.int64]], messages: int, chunk: int) -> Stream:
    messages, chunk = whole("messages", messages, 1), whole("chunk", chunk, 1)
    return (draw(start, min(chunk, messages - start)) for start in range(0, messages, chunk))


def country_shares(skew: float) -> NDArray[np.float64]:
    """Return the shares of DKG's country-skew data sets: one country has ``skew`` of the messages, 204 share the rest.

    Parameters
    ----------
    skew
        From 0, all countries alike (r0), to 1, one country only (r100).
    """
    if at_least("skew", skew, 0) > 1:
        raise InvalidArgumentError(f"skew must be the fraction of the messages with one key, in [0, 1], got {skew}")
    shares = np.full(COUNTRIES, (1 - skew) / COUNTRIES)
    shares[0] += skew
    return shares


def half_skew(skew: float, messages: int, *, seed: int = 0, chunk: int = CHUNK) -> Stream:
    """Return DKG's country-half-skew stream: skewed in the first half, even in the second.

    The paper does not say which half is skewed. In this order, a splitter has to undo the spreading of a key.

    Parameters
    ----------
    skew
        Fraction of the messages of the first half that have one country.
    messages, seed, chunk
        See :func:`stream`.
    """
    skewed, even = KeySampler(country_shares(skew), seed), KeySampler(country_shares(0), seed)
    half = whole("messages", messages, 2) // 2

    def draw(start: int, count: int) -> NDArray[np.int64]:
        first = min(count, max(0, half - start))
        return np.concatenate([skewed.draw(first), even.draw(count - first)])

    return _chunks(draw, messages, chunk)


LOG_NORMALS = {1: (1.789, 2.366), 2: (2.245, 1.133)}
"""Location and scale of PKG's LN1 and LN2, found by its authors in a social network."""


def log_normal_shares(number: int, *, keys: int | None = None) -> NDArray[np.float64]:
    """Return the shares of PKG's LN1 or LN2: the key is a rounded log-normal number.

    With rounding, the hottest key has the shares in table 1 of the paper, 14.71 % and 7.01 %.

    Parameters
    ----------
    number
        1 or 2.
    keys
        K, number of keys; the last one includes all larger numbers. Default 16,000 and 1,100, as in table 1.

    Examples
    --------
    >>> log_normal_shares(1).max().round(4), log_normal_shares(2).max().round(4)
    (np.float64(0.1471), np.float64(0.0701))
    """
    if number not in LOG_NORMALS:
        raise InvalidArgumentError(f"the number of a log-normal data set must be 1 or 2, got {number!r}")
    location, scale = LOG_NORMALS[number]
    keys = {1: 16_000, 2: 1_100}[number] if keys is None else whole("keys", keys, 1)
    edges = np.arange(keys - 1) + 0.5
    below = np.array([0.5 * (1 + erf((log(edge) - location) / (scale * sqrt(2)))) for edge in edges])
    return np.diff(np.concatenate([[0.0], below, [1.0]]))


def bursts(
    keys: int,
    exponent: float,
    messages: int,
    *,
    every: int = 500_000,
    length: int = 100_000,
    share: float = 0.5,
    seed: int = 0,
    chunk: int = CHUNK,
) -> Stream:
    """Return a Zipf stream with bursts, in which one key, which may be a rare one, has many of the messages.

    Parameters
    ----------
    keys, exponent
        K and z of Zipf's law.
    messages, seed, chunk
        See :func:`stream`.
    every
        Messages from the start of one burst to that of the next; the first starts after as many.
    length
        Length of a burst in messages, at most ``every``.
    share
        Fraction of the messages of a burst that have its key.
    """
    sampler = KeySampler(zipf_shares(keys, exponent), seed)
    every, length = whole("every", every, 1), whole("length", length, 1)
    if length > every:
        raise InvalidArgumentError(f"length must be at most every ({every}), got {length}; bursts would overlap")
    if at_least("share", share, 0) > 1:
        raise InvalidArgumentError(f"share must be a fraction of the messages, in [0, 1], got {share}")
    rng = np.random.default_rng([seed, 1])

    def draw(start: int, count: int) -> NDArray[np.int64]:
        batch = sampler.draw(count)
        number = np.arange(start, start + count)
        burst, since = np.divmod(number, every)
        hit = (burst > 0) & (since < length) & (rng.random(count) < share)
        batch[hit] = sampler.names[
            np.mod(burst[hit] * 7919, len(sampler.names))
        ]  # a prime, for steps away from the hot keys
        return batch

    return _chunks(draw, messages, chunk)


def zipf_exponent(keys: int, hottest_share: float) -> float:
    """Return the exponent with which the hottest of K keys has the given share.

    Parameters
    ----------
    keys
        K, number of keys.
    hottest_share
        p_1, above 1 / K and below 1.

    Examples
    --------
    >>> round(zipf_exponent(1_000_000, 0.0932), 3)
    1.047
    """
    keys = whole("keys", keys, 2)
    if not 1 / keys < at_least("hottest_share", hottest_share, 0) < 1:
        raise InvalidArgumentError(
            f"hottest_share of {keys} keys must be between {1 / keys:.3g} and 1, got {hottest_share}"
        )
    low, high = 0.0, 60.0
    for _ in range(50):
        middle = (low + high) / 2
        if zipf_shares(keys, middle)[0] < hottest_share:
            low = middle
        else:
            high = middle
    return low


def _changing(drift: float, swaps: bool) -> Callable[[int, float, float, int, int], Stream]:
    """Return a function that makes a Zipf stream whose hot keys change slowly, or all at once in the middle."""

    def make(keys: int, exponent: float, _skew: float, messages: int, seed: int) -> Stream:
        batches = max(2, -(-messages // CHUNK))
        size = -(-messages // batches)
        whole_batches = drifting_batches(
            keys,
            exponent,
            size,
            batches,
            drift=drift,
            swaps=(batches // 2,) if swaps else (),
            hot=max(1, min(100, keys // 2)),
            seed=seed,
        )
        return (batch[: messages - i * size] for i, batch in enumerate(whole_batches))

    return make


WORKLOADS: dict[str, Callable[[int, float, float, int, int], Stream]] = {
    "zipf": lambda keys, exponent, _skew, messages, seed: stream(zipf_shares(keys, exponent), messages, seed=seed),
    "shifted": lambda keys, exponent, _skew, messages, seed: stream(
        shifted_power_law_shares(keys, exponent, 10), messages, seed=seed
    ),
    "log-normal-1": lambda _keys, _exponent, _skew, messages, seed: stream(log_normal_shares(1), messages, seed=seed),
    "log-normal-2": lambda _keys, _exponent, _skew, messages, seed: stream(log_normal_shares(2), messages, seed=seed),
    "country-skew": lambda _keys, _exponent, skew, messages, seed: stream(country_shares(skew), messages, seed=seed),
    "half-skew": lambda _keys, _exponent, skew, messages, seed: half_skew(skew, messages, seed=seed),
    "swap": _changing(drift=0.0, swaps=True),
    "drift": _changing(drift=0.05, swaps=False),
    "bursts": lambda keys, exponent, skew, messages, seed: bursts(
        keys, exponent, messages, every=max(1, messages // 8), length=max(1, messages // 40), share=skew, seed=seed
    ),
}
"""Workloads by name: functions of keys, exponent, skew, messages and seed."""


def make_stream(
    name: str, messages: int, *, keys: int = 100_000, exponent: float = 1.0, skew: float = 0.3, seed: int = 0
) -> Stream:
    """Make a workload by its name.

    Parameters
    ----------
    name
        One of ``WORKLOADS``.
    messages
        m, length of the stream.
    keys, exponent
        K and z of workloads with a power law.
    skew
        Fraction of the messages with the hot key, in the country data sets and in bursts.
    seed
        Seed of the draws and of the fingerprints.

    Examples
    --------
    >>> [len(chunk) for chunk in make_stream("country-skew", 2_500_000, skew=0.8)]
    [1000000, 1000000, 500000]
    """
    if name not in WORKLOADS:
        raise InvalidArgumentError(f"there is no workload {name!r}; choose one of {', '.join(WORKLOADS)}")
    return WORKLOADS[name](keys, exponent, skew, whole("messages", messages, 2), seed)
