"""The keys behind fingerprints, read from the state; used with ``literal_keys`` only."""

from collections.abc import Iterable

from equipoise.state.checkpoint import Identity
from equipoise.state.codec import KeyCodec
from equipoise.state.log import CommitLog
from equipoise.state.ownership import key_group, tail_group
from equipoise.state.section_reader import SectionReader
from equipoise.state.state_dump import key_of
from equipoise.storage import Storage

TRY_AGAIN = 20
"""Number of versions after which a key without state is looked up again."""


class KeyNames:
    """Look up the keys of fingerprints, each once.

    Parameters
    ----------
    storage, identity
        The checkpoint, and the query that lives there.
    """

    def __init__(self, storage: Storage, identity: Identity) -> None:
        self._storage, self._tail_groups = storage, identity.tail_groups
        self._keys = KeyCodec(identity.key_schema)
        self._known: dict[int, str] = {}
        self._missed: dict[int, int] = {}

    def of(self, fingerprints: Iterable[int]) -> dict[int, str]:
        """Names of the keys that have state."""
        wanted = list(fingerprints)
        log = CommitLog(self._storage)
        head = log.head()
        unknown = [
            key for key in wanted if key not in self._known and head >= self._missed.get(key, -TRY_AGAIN) + TRY_AGAIN
        ]
        if unknown:
            self._look_for(unknown, log, head)
        return {key: self._known[key] for key in wanted if key in self._known}

    def _look_for(self, fingerprints: list[int], log: CommitLog, head: int) -> None:
        chains, sections = log.table(head).chains, SectionReader(self._storage)
        for fingerprint in fingerprints:
            chain = chains.get(key_group(fingerprint)) or chains.get(tail_group(fingerprint % self._tail_groups))
            found = None if chain is None else key_of(fingerprint, chain, self._keys, sections)
            if found is None:
                self._missed[fingerprint] = head
            else:
                self._known[fingerprint] = ", ".join(str(part) for part in found)
