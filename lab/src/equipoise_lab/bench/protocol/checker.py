"""Compares state, deliveries and sink at the end with a model: each row must be there exactly once."""

import json
from collections import defaultdict
from typing import Any

from equipoise.state.checkpoint import Checkpoint
from equipoise.state.entries import parse_entry, split_value
from equipoise.state.halves import OFFSETS
from equipoise.state.log import CommitLog
from equipoise.state.section_reader import SectionReader
from equipoise.state.state_dump import group_entries
from equipoise.storage import Storage
from equipoise_lab.bench.protocol.spark_half import key_of, later_key_of, range_of


class ViolationError(AssertionError):
    """A guarantee does not hold."""


def expected_outputs(storage: Storage, last: int) -> tuple[dict[str, list[int]], dict[int, list[Any]]]:
    """State and outputs of the batches up to ``last``, by their offsets: the model."""
    seen: dict[str, list[int]] = defaultdict(list)
    outputs: dict[int, list[Any]] = {}
    end = 0
    for batch in range(last + 1):  # Spark's offsets of all batches are there: it keeps the last 100
        rows = range_of(storage.read(f"{OFFSETS}/{batch}"))
        if rows.start != end:
            raise ViolationError(f"batch {batch} begins with row {rows.start}, and the one before ended with {end}")
        end = rows.stop
        for row in rows:
            seen[key_of(row)].append(row)
        touched = sorted({key_of(row) for row in rows})
        outputs[batch] = sorted([batch, key, len(seen[key]), seen[key][-1]] for key in touched)
    return dict(seen), outputs


def later_outputs(
    outputs: dict[int, list[Any]],
) -> tuple[dict[str, list[int]], dict[int, list[Any]]]:
    """State and outputs of a second operator on outputs of the first."""
    seen: dict[str, list[int]] = defaultdict(list)
    found: dict[int, list[Any]] = {}
    for batch, rows in sorted(outputs.items()):
        for key, number in sorted((later_key_of(last), last) for _batch, _key, _count, last in rows):
            seen[key].append(number)
        touched = sorted({later_key_of(last) for _batch, _key, _count, last in rows})
        found[batch] = sorted([batch, key, len(seen[key]), seen[key][-1]] for key in touched)
    return dict(seen), found


def check_state(storage: Storage, version: int, expected: dict[str, list[int]]) -> None:
    """Every key has every row of its own once, and every file is the one that was committed."""
    log, sections = CommitLog(storage), SectionReader(storage)
    table, found = log.table(version), {}
    for chain in table.chains.values():
        for entry, value in group_entries(chain, sections).items():
            key = parse_entry(entry).key.decode()
            if key in found:
                raise ViolationError(f"version {version} has key {key} in two key groups")
            found[key] = json.loads(split_value(value)[1])
    _require_equal(f"state of version {version}", found, expected)
    for file in table.stored():
        storage.verify(file)
    commit = log.read(version)
    Checkpoint(storage).plan(commit.plan)


def check_outputs(what: str, found: dict[int, list[Any]], expected: dict[int, list[Any]]) -> None:
    """Every batch is delivered, once."""
    _require_equal(what, {batch: sorted(rows) for batch, rows in found.items() if rows}, _non_empty(expected))


def check_batch(what: str, batch: int, found: list[Any], expected: dict[int, list[Any]]) -> None:
    """A batch that Spark is about to record as finished must be in the sink."""
    _require_equal(f"{what}, batch {batch}", sorted(found), expected[batch])


def _non_empty(outputs: dict[int, list[Any]]) -> dict[int, list[Any]]:
    return {batch: rows for batch, rows in outputs.items() if rows}


def _require_equal(what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise ViolationError(f"{what}: found {found}, expected {expected}")
