"""Keys and values of the entries in a group: layout, building and parsing.

Layout of the keys, integers big-endian so that byte order is numeric order::

    00 | fingerprint 8 | n 4 | grouping key n | tag 1 | suffix     an entry of a state variable, or a timer
    01 | time 8 | the whole key of the timer                       timers by time
    02 | expiry 8 | the whole key of the entry                     expiring entries by time

The fingerprint is a signed 64-bit integer in two's complement. Tag 0 is a timer: its suffix is its time. Tags 1 to
255 are the variables: the suffix is empty (value), the number of a chunk in 8 bytes (list), or the user's key (map).
Times are milliseconds since 1970, in 8 bytes; earlier times are stored as 0.

Layout of the values::

    00 | payload                         never expires
    01 | expiry 8 | payload              expires when the processing time reaches the expiry
    02 | schema 2 | payload              the same two, written with a later schema
    03 | schema 2 | expiry 8 | payload

Schemas of a variable are numbered from 0, the one that it had first. ``VariableSpec.schemas`` has them in this order.

Spaces 01 and 02 are indices with empty values, written and deleted together with their entries.
"""

import struct
from typing import NamedTuple

from equipoise.errors import DamagedError

TIMERS = 0
"""Tag of timers."""
DUE_TIMERS = b"\x01"
"""Prefix of the index of timers."""
DUE_EXPIRIES = b"\x02"
"""Prefix of the index of expiring entries."""

_LAST = 2**63 - 1
_HEAD = struct.Struct(">BqI")
_TIME = struct.Struct(">Q")
_SCHEMA = struct.Struct(">BH")


class Entry(NamedTuple):
    """The fields of a key of space 0."""

    fingerprint: int
    key: bytes
    tag: int
    suffix: bytes


def fingerprint_prefix(fingerprint: int) -> bytes:
    """Common prefix of the keys of all entries with this fingerprint."""
    return struct.pack(">Bq", 0, fingerprint)


def entry_prefix(fingerprint: int, key: bytes) -> bytes:
    """Common prefix of the keys of all entries of one grouping key."""
    return _HEAD.pack(0, fingerprint, len(key)) + key


def entry_key(prefix: bytes, tag: int, suffix: bytes = b"") -> bytes:
    """Key of one entry; ``prefix`` is the ``entry_prefix`` of its grouping key."""
    return prefix + bytes((tag,)) + suffix


def parse_entry(key: bytes) -> Entry:
    """Parse the key of an entry."""
    if len(key) <= _HEAD.size or key[0] != 0:
        raise _damage("the key of a state entry", key)
    _, fingerprint, length = _HEAD.unpack_from(key)
    end = _HEAD.size + length
    if len(key) <= end:
        raise _damage("the key of a state entry", key)
    return Entry(fingerprint, key[_HEAD.size : end], key[end], key[end + 1 :])


def pack_time(time: int) -> bytes:
    """Encode a time in 8 bytes that sort like the time, clipped to 0 and 2**63 - 1."""
    return _TIME.pack(min(max(time, 0), _LAST))


def unpack_time(data: bytes) -> int:
    """Decode a time from ``pack_time``."""
    if len(data) != _TIME.size:
        raise _damage("a time", data)
    return int(_TIME.unpack(data)[0])


def due_timer(time: int, entry: bytes) -> bytes:
    """Key of the index entry of a timer."""
    return DUE_TIMERS + pack_time(time) + entry


def due_expiry(time: int, entry: bytes) -> bytes:
    """Key of the index entry of an expiring entry."""
    return DUE_EXPIRIES + pack_time(time) + entry


def parse_due(key: bytes) -> tuple[int, bytes]:
    """Time and entry key of an index entry, of timers or of expiring entries."""
    if len(key) <= 9 or key[:1] not in (DUE_TIMERS, DUE_EXPIRIES):
        raise _damage("the key of an index entry", key)
    return unpack_time(key[1:9]), key[9:]


def value_head(schema: int, *, expires: bool = False) -> bytes:
    """The bytes of a stored value before its expiry, if any, and its payload."""
    return _SCHEMA.pack(2 + expires, schema) if schema else bytes((expires,))


def with_expiry(payload: bytes, expiry: int | None, schema: int = 0) -> bytes:
    """Build the stored value from a payload, its expiry, if any, and the number of its schema."""
    if expiry is None:
        return value_head(schema) + payload
    return value_head(schema, expires=True) + pack_time(expiry) + payload


def split_value(value: bytes) -> tuple[int | None, bytes, int]:
    """Expiry, if any, payload and number of the schema of a stored value."""
    if value[:1] == b"\x00":
        return None, value[1:], 0
    form = value[0] if value else 0
    start, expires = (3, form == 3) if form > 1 else (1, True)
    if form not in (1, 2, 3) or len(value) < start + 8 * expires:
        raise _damage("a state value", value)
    schema = _SCHEMA.unpack_from(value)[1] if form > 1 else 0
    if not expires:
        return None, value[start:], schema
    return unpack_time(value[start : start + 8]), value[start + 8 :], schema


def companions(key: bytes, value: bytes) -> list[bytes]:
    """Keys of the index entries that belong to an entry; they are moved and deleted with it.

    All entries under one ``fingerprint_prefix`` and their companions are the complete state of that fingerprint.
    """
    entry = parse_entry(key)
    if entry.tag == TIMERS:
        return [due_timer(unpack_time(entry.suffix), key)]
    expiry = split_value(value)[0]
    return [] if expiry is None else [due_expiry(expiry, key)]


def _damage(what: str, data: bytes) -> DamagedError:
    return DamagedError(
        f"{len(data)} bytes beginning with {data[:4].hex() or 'nothing'} are not {what}; restore the checkpoint"
    )
