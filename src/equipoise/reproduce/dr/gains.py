"""What DR says of its gains over the skew of the keys: they are in the middle."""

from collections.abc import Callable

from equipoise.reproduce.rows import Rows
from equipoise.reproduce.verdict import Finding, judged

_NO_GAIN = 1.1


def gains(rows: Rows, seconds: str) -> dict[float, float]:
    """Time by hash over the time with DR, at every exponent."""
    by_hash, with_dr = (dict(zip(*rows.line("exponent", seconds, method=m), strict=True)) for m in ("hash", "DR"))
    return {exponent: by_hash[exponent] / with_dr[exponent] for exponent in by_hash}


def middle_gains_most(seconds: str) -> Callable[[Rows], Finding]:
    """A check that the gain is larger at some exponent in between than at the least and at the largest."""

    def check(rows: Rows) -> Finding:
        found = gains(rows, seconds)
        first, *middle, last = (found[exponent] for exponent in sorted(found))
        return judged(
            f"hash over DR: {told(found)}",
            shape={
                "there is a gain in the middle": max(middle) > _NO_GAIN,
                "it is larger than at the least exponent": max(middle) > first,
                "it is larger than at the largest exponent": max(middle) > last,
            },
            numbers={f"at the least exponent the gain is below {_NO_GAIN}": first < _NO_GAIN},
        )

    return check


def told(line: dict[float, float]) -> str:
    """A line over the exponents in words."""
    return ", ".join(f"{value:.2f} at {exponent:g}" for exponent, value in line.items())
