"""Zipf streams of any number of keys, without a table of the keys.

Each message is drawn from the exact distribution by rejection-inversion. Its random numbers are hashes of its position
in the stream. So memory does not grow with the keys, the stream does not depend on the chunks, and it is the same in
every release.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise.arguments import at_least, whole
from equipoise.hashing import FINGERPRINT_SEED, hash_long
from equipoise.kernels import kernel
from equipoise_lab.simulate.streams import CHUNK, Stream

_DRAWS = 0x21BF  # seed of the hashes used as random numbers; differs from those of the fingerprints
_ATTEMPTS = 8  # bits for the number of the attempt; nearly all messages need one


class _Law(NamedTuple):
    """Parameters of the distribution for the kernel."""

    keys: int
    one_minus: float
    """1 - z."""
    lowest: float
    """Integral of the hat up to the left end of rank 1."""
    highest: float
    """Integral of the hat up to the right end of rank K."""
    sure: float
    """Distance from the rank up to which a draw is accepted without evaluating the distribution."""


@kernel(inline="always")
def _integral(x: float, one_minus: float) -> float:
    """Return the integral of t^-z from 1 to x; the logarithm if z is 1."""
    log_x = np.log(x)
    power = one_minus * log_x
    if abs(power) < 1e-6:  # where the difference to 1 would lose digits
        return log_x * (1 + power / 2)  # type: ignore[no-any-return]
    return np.expm1(power) / one_minus  # type: ignore[no-any-return]


@kernel(inline="always")
def _inverse(area: float, one_minus: float) -> float:
    """Return the x at which the integral has the given value."""
    part = one_minus * area
    if abs(part) < 1e-6:
        return np.exp(area * (1 - part / 2))  # type: ignore[no-any-return]
    return np.exp(np.log1p(part) / one_minus)  # type: ignore[no-any-return]


def _law(keys: int, exponent: float) -> _Law:
    one_minus = 1.0 - exponent
    sure = 2.0 - _inverse(_integral(2.5, one_minus) - 2.0**-exponent, one_minus)
    return _Law(keys, one_minus, _integral(1.5, one_minus) - 1.0, _integral(keys + 0.5, one_minus), sure)


@kernel(nogil=True)
def _draw(law: Any, first: int, start: int, names: int, out: Any) -> None:
    """Fill in the fingerprints of messages ``first``, ``first + 1`` and so on."""
    width = law.highest - law.lowest
    for i in range(len(out)):
        attempt = (first + i) << _ATTEMPTS
        while True:
            uniform = (np.uint64(hash_long(attempt, start)) >> np.uint64(11)) * 2.0**-53
            attempt += 1
            area = law.highest - uniform * width
            x = _inverse(area, law.one_minus)
            rank = min(max(int(x + 0.5), 1), law.keys)
            if rank - x <= law.sure:
                break
            if area >= _integral(rank + 0.5, law.one_minus) - np.exp((law.one_minus - 1.0) * np.log(rank)):
                break
        out[i] = hash_long(rank - 1, names)


def zipf_stream(keys: int, exponent: float, messages: int, *, seed: int = 0, chunk: int = CHUNK) -> Stream:
    """Return a stream of independent draws by Zipf's law, in memory that grows only with the chunk.

    Keys have the fingerprints of :func:`equipoise_lab.simulate.workloads.key_fingerprints`, the hottest with index 0.

    Parameters
    ----------
    keys
        K, number of keys.
    exponent
        z, at least 0; 0 gives every key the same share.
    messages
        m, length of the stream.
    seed
        Seed of the draws and of the fingerprints.
    chunk
        Messages of a chunk.

    References
    ----------
    Hormann, Derflinger: Rejection-inversion to generate variates from monotone discrete distributions, 1996.

    Examples
    --------
    >>> from equipoise_lab.simulate.workloads import key_fingerprints
    >>> drawn = np.concatenate(list(zipf_stream(100_000_000, 1.0, 100_000, seed=1)))
    >>> round(int(np.count_nonzero(drawn == key_fingerprints([0], seed=1)[0])) / 100_000, 2)  # 1 / H(10^8) = 0.053
    0.05
    """
    law = _law(whole("keys", keys, 1), at_least("exponent", exponent, 0))
    messages, chunk, seed = whole("messages", messages, 1), whole("chunk", chunk, 1), whole("seed", seed, 0)
    names = hash_long(seed, FINGERPRINT_SEED)
    draws = hash_long(_DRAWS, names)

    def drawn(first: int) -> NDArray[np.int64]:
        out = np.empty(min(chunk, messages - first), dtype=np.int64)
        _draw(law, first, draws, names, out)
        return out

    return (drawn(first) for first in range(0, messages, chunk))
