r"""Files of JSON lines with checksums: readable for people, and damage is detected.

A line is a JSON object that ends with the version of this format and a checksum::

    {"batch": 12, "rows": 100, "version": 1, "crc32": "8f3c01aa"}

``crc32`` is the CRC-32 of all bytes of the line before ``, "crc32"``. A last line without its end was being written
when the process or the machine stopped, and is ignored.
"""

import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from equipoise.errors import DamagedError, UnknownFormatError
from equipoise.storage import sync_folder

_VERSION = 1
_TAIL = re.compile(rb', "crc32": "([0-9a-f]{8})"\}')
_TAIL_BYTES = len(', "crc32": "00000000"}')
_BLOCK = 1 << 16


def line_of(record: Mapping[str, Any]) -> bytes:
    """Return a record as a line, with its line end."""
    head = json.dumps({**record, "version": _VERSION}).encode()[:-1]
    return b'%s, "crc32": "%08x"}\n' % (head, zlib.crc32(head))


def records(data: bytes, where: str, first: int = 1) -> Iterator[dict[str, Any]]:
    """The records of lines.

    Parameters
    ----------
    data
        Lines, with their ends.
    where
        Name of the file, for the error.
    first
        Number of the first line.
    """
    for number, line in enumerate(data.split(b"\n")[:-1], first):
        yield _record(line, f"line {number} of {where}")


def add_records(path: Path, added: Sequence[Mapping[str, Any]], *, sync: bool) -> None:
    """Append records to a file, replacing an incomplete last line; with ``sync`` they survive a power cut."""
    is_new = not path.exists()
    with path.open("a+b") as file:
        file.truncate(_whole(file))
        file.write(b"".join(map(line_of, added)))
        file.flush()
        if sync:
            os.fsync(file.fileno())
    if sync and is_new:
        sync_folder(str(path.parent))


def _whole(file: Any) -> int:
    """Bytes of a file up to the end of its last whole line."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - _BLOCK)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return int(start + found + 1)
        end = start
    return 0


def _record(line: bytes, where: str) -> dict[str, Any]:
    head, tail = line[:-_TAIL_BYTES], _TAIL.fullmatch(line[-_TAIL_BYTES:])
    if tail is None or int(tail[1], 16) != zlib.crc32(head):
        raise DamagedError(
            f"{where} is damaged: it does not match its checksum; restore the file from a copy, or delete the line"
        )
    try:
        found = json.loads(head + b"}")
    except ValueError as error:
        raise DamagedError(f"{where} is not a JSON object ({error}); restore the file from a copy") from error
    version = found.pop("version", None)
    if version != _VERSION:
        raise UnknownFormatError(
            f"{where} has format {version}, this release reads format {_VERSION}; read it with the release that wrote "
            "it"
        )
    return dict(found)
