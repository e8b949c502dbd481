r"""Envelope of everything that equipoise stores as bytes: kind, format version, length, checksum.

Byte layout, integers little-endian::

    0   4  magic  b"EQP\x01"
    4   1  k, length of the kind's name
    5   k  kind, ASCII (for example "space-saving")
    .   2  format version of that kind
    .   8  n, length of the payload
    .   n  payload: MessagePack, arrays as little-endian bytes
    .   4  CRC-32 of all bytes before it

A reader refuses unknown kinds and versions. Nothing is ever unpickled.
"""

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from equipoise.errors import DamagedError, FormatError, UnknownFormatError

_MAGIC = b"EQP\x01"


def seal(kind: str, version: int, payload: object) -> bytes:
    """Encode ``payload`` (plain values, lists, dicts, bytes) inside the envelope."""
    name, body = kind.encode("ascii"), msgspec.msgpack.encode(payload)
    head = _MAGIC + bytes([len(name)]) + name + struct.pack("<HQ", version, len(body))
    return head + body + struct.pack("<I", zlib.crc32(head + body))


def unseal(kind: str, version: int, data: bytes) -> Any:
    """Decode the payload of ``seal(kind, version, ...)``; raise ``FormatError`` if the bytes are something else."""
    name = kind.encode("ascii")
    if data[:4] != _MAGIC:
        raise DamagedError(
            f"these {len(data)} bytes are not a stored {kind}: they do not start with {_MAGIC!r}; "
            "check that the right file was opened"
        )
    if len(data) < 5 or len(data) < 5 + data[4] + 14:
        raise DamagedError(f"stored {kind} ends early, after {len(data)} bytes; restore it from a copy or rebuild it")
    found = data[5 : 5 + data[4]]
    at = 5 + data[4]
    found_version, length = struct.unpack_from("<HQ", data, at)
    end = at + 10 + length
    if len(data) != end + 4:
        raise DamagedError(
            f"stored {kind} has {len(data)} bytes, its header says {end + 4}; restore it from a copy or rebuild it"
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
    except (ValueError, RecursionError) as error:  # msgspec's errors, text that is not UTF-8, nesting without end
        raise DamagedError(
            f"stored {kind} is not MessagePack ({error}); restore it from a copy or rebuild it"
        ) from error


@contextmanager
def reading(kind: str) -> Iterator[None]:
    """Raise ``DamagedError`` for a payload field of the wrong type, an invalid parameter or a broken array."""
    try:
        yield
    except FormatError:
        raise
    except (ValueError, OverflowError) as error:  # raised by msgspec, by numpy, or as InvalidArgumentError
        raise DamagedError(
            f"stored {kind} has invalid contents: {error}; restore it from a copy or rebuild it"
        ) from error


def require(kind: str, holds: bool, problem: str) -> None:
    """Raise ``DamagedError`` unless a condition on the fields of a payload holds."""
    if not holds:
        raise DamagedError(f"stored {kind} is inconsistent: {problem}; restore it from a copy or rebuild it")


def pack_array(array: NDArray[Any]) -> bytes:
    """Return the raw little-endian bytes of a one-dimensional array."""
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def unpack_array(data: bytes, dtype: type[np.generic]) -> NDArray[Any]:
    """Return a writable array of ``dtype`` from the bytes of ``pack_array``."""
    return np.frombuffer(data, dtype=np.dtype(dtype).newbyteorder("<")).astype(dtype)
