"""What everything that works on the entries of one key group may ask of it."""

from collections.abc import Iterator, Sequence
from typing import Protocol


class GroupReader(Protocol):
    """The entries of a key group at one version; it never changes."""

    def get(self, key: bytes) -> bytes | None:
        """Value of ``key``, or None."""
        ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values of ``keys``, in their order, None where there is none."""
        ...

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries whose key starts with ``prefix``, in ascending order of the key; lazy, so callers may stop early."""
        ...


class GroupView(GroupReader, Protocol):
    """The entries of a key group, to be read and changed."""

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of ``key``."""
        ...

    def delete(self, key: bytes) -> None:
        """Remove ``key``; nothing happens if it is absent."""
        ...
