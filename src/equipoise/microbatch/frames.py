"""Frames: records of an append-only file, each complete or never acknowledged.

A frame is its length in 8 bytes, little-endian, and an envelope of ``equipoise.framing``, which contains its length as
well. A frame that is cut short at the end of a file was never acknowledged. A frame with two different lengths, or a
damaged one with others behind it, was acknowledged and is an error.
"""

import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from equipoise.errors import DamagedError, FormatError
from equipoise.framing import seal, unseal

_KIND, _FORMAT = "tuples", 1
_LENGTH = struct.Struct("<Q")
_BEGIN = seal(_KIND, _FORMAT, None)[: 5 + len(_KIND)]  # first bytes of every envelope of this kind
_HEAD = len(_BEGIN) + 2 + _LENGTH.size  # bytes of an envelope before its payload
_CHECKSUM = 4


def frame(payload: object) -> bytes:
    """Return a frame of plain values."""
    envelope = seal(_KIND, _FORMAT, payload)
    return _LENGTH.pack(len(envelope)) + envelope


def frames(data: bytes, where: str) -> Iterator[tuple[Any, int]]:
    """Yield payload and end of each whole frame; bytes behind the last one were never acknowledged.

    Parameters
    ----------
    data
        Bytes of the file.
    where
        Its name, for the error.
    """
    at = 0
    while at < len(data):
        length, own = _lengths(data, at)
        if own is not None and own != length:
            raise DamagedError(
                f"{where} is damaged at byte {at}: a frame of {own} bytes says that it has {length}; restore the file "
                "from a copy"
            )
        if length is None or at + _LENGTH.size + length > len(data):
            break
        end = at + _LENGTH.size + length
        try:
            payload = unseal(_KIND, _FORMAT, data[at + _LENGTH.size : end])
        except FormatError as error:
            if isinstance(error, DamagedError) and (end == len(data) or _is_empty(data, at)):
                break
            raise DamagedError(f"{where} is damaged at byte {at}: {error}") from error
        yield payload, end
        at = end
    if at < len(data) and _has_frame(data, at + 1):
        raise DamagedError(
            f"{where} is damaged at byte {at}: there is no frame there, but others follow; restore the file from a copy"
        )


def _lengths(data: bytes, at: int) -> tuple[int | None, int | None]:
    """Length of the envelope at a position according to the frame and to the envelope; ``None`` where unknown."""
    begin = at + _LENGTH.size
    if begin > len(data):
        return None, None
    length = _LENGTH.unpack_from(data, at)[0]
    if begin + _HEAD > len(data) or not data.startswith(_BEGIN, begin):
        return length, None
    payload = _LENGTH.unpack_from(data, begin + _HEAD - _LENGTH.size)[0]
    return length, _HEAD + payload + _CHECKSUM if payload else None  # 0: it was never written to the disk


def _is_empty(data: bytes, at: int) -> bool:
    """Whether there are only zeros from a position on, which the system fills in for bytes that were never written."""
    return not any(data[at : at + _LENGTH.size]) and not data[at:].strip(b"\0")


def _has_frame(data: bytes, at: int) -> bool:
    """Whether a whole frame begins at a position or behind it."""
    while (begin := data.find(_BEGIN, at + _LENGTH.size)) >= 0:
        at = begin - _LENGTH.size
        length, own = _lengths(data, at)
        if own is not None and length == own and begin + own <= len(data):
            with suppress(FormatError):
                unseal(_KIND, _FORMAT, data[begin : begin + own])
                return True
        at += 1
    return False
