"""Dump of the keys and states of a checkpoint, read without Spark; the query may be running."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from equipoise.errors import InvalidArgumentError, StorageError
from equipoise.state.checkpoint import Checkpoint, Identity
from equipoise.state.codec import KeyCodec
from equipoise.state.commit import Commit
from equipoise.state.entries import TIMERS as TIMER_TAG
from equipoise.state.entries import fingerprint_prefix, parse_entry, split_value, unpack_time
from equipoise.state.evolution import ValueCodec
from equipoise.state.group_table import Chain, GroupTable
from equipoise.state.handle import VariableSpec
from equipoise.state.log import CommitLog
from equipoise.state.section_reader import SectionReader
from equipoise.storage import Storage

TIMERS = "timers"
"""Name under which the timers of a key are returned."""

_ENTRIES = 0


def local_states(path: str, version: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the fingerprint and the states of every key, without Spark; the key itself is under an empty name."""
    storage = Storage(path)
    identity, commit, table, variables = kept_version(storage, version)
    keys, sections = KeyCodec(identity.key_schema), SectionReader(storage)
    tables = {spec.tag: (name, spec, spec.values()) for name, spec in variables.items()}
    for _, chain in sorted(table.chains.items()):
        with while_kept(storage, commit.version):
            entries = group_entries(chain, sections)
        yield from key_states(entries, keys, tables, commit.time_ms)


@contextmanager
def while_kept(storage: Storage, version: int) -> Iterator[None]:
    """Explain a failed read if a running query has deleted the files of the version in the meantime."""
    try:
        yield
    except StorageError as error:
        head = CommitLog(storage).head()
        if head <= version:
            raise
        raise StorageError(
            f"version {version} of {storage.location} is no longer kept: the query has gone on to version {head} and "
            "has deleted files of earlier versions; read again, or start the query with a larger `retain`"
        ) from error


def kept_version(storage: Storage, version: int | None) -> tuple[Identity, Commit, GroupTable, dict[str, VariableSpec]]:
    """A version of a query: its identity, commit, table of key groups, and state variables."""
    path = storage.location
    identity, log = Checkpoint(storage).require(), CommitLog(storage)
    head, oldest = log.head(), log.oldest()
    wanted = head if version is None else version
    if not oldest <= wanted <= head:
        raise InvalidArgumentError(
            f"version {wanted} of {path} is not kept; versions {oldest} to {head} are: give one of these"
        )
    commit, table = log.read(wanted), log.table(wanted)
    gone = [file for file in sorted(table.files()) if not storage.exists(file)] if wanted < head else []
    if gone:
        raise InvalidArgumentError(
            f"version {wanted} of {path} is not kept any more: {storage.at(gone[0])} is gone; give a later version "
            f"up to the last, {head}: a query keeps as many versions before its last as its option `retain` says"
        )
    stored = {name: msgspec.convert(spec, VariableSpec) for name, spec in commit.variables.items()}
    variables = {name: spec for name, spec in stored.items() if not spec.removed}
    return identity, commit, table, variables


def group_entries(chain: Chain, sections: SectionReader) -> dict[bytes, bytes]:
    """All entries of a group."""
    entries: dict[bytes, bytes] = {}
    for section, read in sections.each(list(chain.sections())):
        if section.reset:
            entries.clear()
        for key, value in read:
            if value is None:
                entries.pop(key, None)
            else:
                entries[key] = value
    return entries


def key_states(
    entries: dict[bytes, bytes], keys: KeyCodec, tables: dict[int, tuple[str, VariableSpec, ValueCodec]], time_ms: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the fingerprint and the states of every key of a group; the key itself is under an empty name."""
    current, fingerprint = b"", 0
    row: dict[str, Any] = {}
    user_keys = {tag: spec.keys() for tag, (_, spec, _) in tables.items() if spec.key_schema}
    for key in sorted(entries):
        if key[0] != _ENTRIES:
            break
        entry = parse_entry(key)
        expiry, payload, schema = split_value(entries[key])
        known = tables.get(entry.tag)
        if (expiry is not None and expiry <= time_ms) or (known is None and entry.tag != TIMER_TAG):
            continue
        if entry.key != current or not row:
            if row:
                yield fingerprint, row
            current, fingerprint, row = entry.key, entry.fingerprint, {"": keys.decode_key(entry.key)}
        if known is None:
            row.setdefault(TIMERS, []).append(unpack_time(entry.suffix))
            continue
        name, spec, codec = known
        if spec.kind == "value":
            row[name] = codec.decode(payload, schema)
        elif spec.kind == "list":
            row.setdefault(name, []).extend(codec.decode_list(payload, schema))
        else:
            user_key = user_keys[entry.tag].decode_key(entry.suffix)
            row.setdefault(name, []).append((user_key, codec.decode(payload, schema)))
    if row:
        yield fingerprint, row


def key_of(fingerprint: int, chain: Chain, keys: KeyCodec, sections: SectionReader) -> tuple[Any, ...] | None:
    """The key of a fingerprint, from the latest entry of its key group; ``None`` where it has no entry.

    Changes are read from the latest on, because hot keys are in most of them.
    """
    prefix = fingerprint_prefix(fingerprint)
    for _, read in sections.each(list(chain.sections())[::-1]):
        for entry, _ in read:
            if entry.startswith(prefix):
                return tuple(keys.decode_key(parse_entry(entry).key))
    return None
