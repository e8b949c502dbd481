r"""The envelope of everything equipoise stores as bytes: kind, format version, length, checksum.

Byte layout, integers little-endian::

    0   4  magic  b"EQP\x01"
    4   1  k, length of the kind's name
    5   k  kind, ASCII (for example "space-saving")
    .   2  format version of that kind
    .   8  n, length of the payload
    .   n  payload: MessagePack, arrays as little-endian bytes
    .   4  CRC-32 of all bytes before it

A reader refuses what it does not know; nothing is ever unpickled.
"""

import struct
import zlib
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from equipoise.errors import DamagedError, UnknownFormatError

_MAGIC = b"EQP\x01"


def seal(kind: str, version: int, payload: object) -> bytes:
    """Encode ``payload`` (plain values, lists, dicts, bytes) inside the envelope."""
    name, body = kind.encode("ascii"), msgspec.msgpack.encode(payload)
    head = _MAGIC + bytes([len(name)]) + name + struct.pack("<HQ", version, len(body))
    return head + body + struct.pack("<I", zlib.crc32(head + body))


def unseal(kind: str, version: int, data: bytes) -> Any:
    """Decode what ``seal(kind, version, ...)`` made, or say what is wrong with it."""
    name = kind.encode("ascii")
    if data[:4] != _MAGIC:
        raise DamagedError(
            f"these {len(data)} bytes are not a stored {kind}: they do not start with {_MAGIC!r}; "
            "check that the right file was opened"
        )
    if len(data) < 5 or len(data) < 5 + data[4] + 14:
        raise DamagedError(f"stored {kind} is cut short after {len(data)} bytes; restore it from a copy or rebuild it")
    found = data[5 : 5 + data[4]]
    at = 5 + data[4]
    found_version, length = struct.unpack_from("<HQ", data, at)
    end = at + 10 + length
    if len(data) != end + 4:
        raise DamagedError(
            f"stored {kind} has {len(data)} bytes but says {end + 4}; restore it from a copy or rebuild it"
        )
    if zlib.crc32(data[:end]) != struct.unpack_from("<I", data, end)[0]:
        raise DamagedError(f"stored {kind} does not match its checksum; restore it from a copy or rebuild it")
    if found != name:
        raise DamagedError(
            f"expected a stored {kind}, found a stored {found.decode('ascii', 'replace')}; open it with that class"
        )
    if found_version != version:
        raise UnknownFormatError(
            f"stored {kind} has format {found_version}, this release reads format {version}; "
            "read it with the release that wrote it"
        )
    try:
        return msgspec.msgpack.decode(data[at + 10 : end])
    except (ValueError, RecursionError) as error:  # msgspec's, text that is not UTF-8, lists nested without end
        raise DamagedError(
            f"stored {kind} is not MessagePack ({error}); restore it from a copy or rebuild it"
        ) from error


def pack_array(array: NDArray[Any]) -> bytes:
    """Raw little-endian bytes of a one-dimensional array."""
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def unpack_array(data: bytes, dtype: type[np.generic]) -> NDArray[Any]:
    """Array of ``dtype`` from the bytes of ``pack_array``, writable."""
    return np.frombuffer(data, dtype=np.dtype(dtype).newbyteorder("<")).astype(dtype)
