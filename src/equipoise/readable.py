"""Numbers and fingerprints in the form in which people read them."""

from equipoise.hashing import FINGERPRINT_SEED

_SIZES = ("KB", "MB", "GB", "TB", "PB")
_MINUTE, _HOUR = 60.0, 3600.0


def fingerprint_text(fingerprint: int) -> str:
    """Return a fingerprint as 16 hexadecimal digits, the form used in reports, logs, messages and pages.

    Examples
    --------
    >>> fingerprint_text(-1), fingerprint_text(255)
    ('ffffffffffffffff', '00000000000000ff')
    """
    return f"{int(fingerprint) % 2**64:016x}"


def key_text(fingerprint: int) -> str:
    """Return the name of a key in reports, messages and pages: its fingerprint, and whether it is NULL.

    Spark's hash of NULL is the seed.

    Examples
    --------
    >>> key_text(255), key_text(42)
    ('00000000000000ff', '000000000000002a (NULL)')
    """
    shown = fingerprint_text(fingerprint)
    return f"{shown} (NULL)" if fingerprint == FINGERPRINT_SEED else shown


def count_text(count: int, noun: str) -> str:
    """Return a count with its noun, which gets an s unless the count is 1.

    Examples
    --------
    >>> count_text(1, "key"), count_text(4, "shard"), count_text(0, "tail group")
    ('1 key', '4 shards', '0 tail groups')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def size_text(size: float) -> str:
    """Return a number of bytes with a unit; 1 KB is 1,000 bytes.

    Examples
    --------
    >>> size_text(0), size_text(999), size_text(14_260), size_text(2.5e9)
    ('0 bytes', '999 bytes', '14 KB', '2.5 GB')
    """
    if abs(size) < 1000:
        return f"{size:.0f} bytes"
    number = float(size)
    for unit in _SIZES:
        number /= 1000
        if abs(number) < 999.5 or unit == _SIZES[-1]:
            break
    return f"{_short(number)} {unit}"


def seconds_text(seconds: float) -> str:
    """Return a duration in the unit that suits it.

    Examples
    --------
    >>> seconds_text(0.0003765), seconds_text(1.26), seconds_text(14.2), seconds_text(250)
    ('0.38 ms', '1.3 s', '14 s', '4 min 10 s')
    >>> seconds_text(0), seconds_text(0.0000005), seconds_text(7300)
    ('0 s', '0.5 µs', '2 h 2 min')
    """
    amount = abs(seconds)
    sign = "-" if seconds < 0 else ""
    if amount == 0:
        return "0 s"
    if amount < 1e-4:
        return f"{sign}{_short(amount * 1e6)} µs"
    if amount < 0.9995:
        return f"{sign}{_short(amount * 1e3)} ms"
    if amount < _MINUTE - 0.5:
        return f"{sign}{_short(amount)} s"
    if amount < _HOUR - 0.5:
        minutes, rest = divmod(round(amount), 60)
        return f"{sign}{minutes} min" + (f" {rest} s" if rest else "")
    hours, minutes = divmod(round(amount / _MINUTE), 60)
    return f"{sign}{hours} h" + (f" {minutes} min" if minutes else "")


def _short(number: float) -> str:
    """Return two significant digits, or all digits before the decimal point."""
    return f"{number:.0f}" if abs(number) >= 10 else f"{number:.2g}"
