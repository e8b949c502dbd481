"""A snapshot is due when the changes outweigh the last one or are many, and few are due at a time."""

from hypothesis import given
from hypothesis import strategies as st

from equipoise.state.log import Chain, Change, GroupTable, Snapshot
from equipoise.state.sections import Section
from equipoise.state.snapshots import MOST_CHANGES, SMALLEST_BYTES, due_snapshots


def section(length):
    return Section("file", 0, length, 0, 1, reset=False)


def chain(*changes, snapshot=None):
    at = -1 if snapshot is None else 0
    return Chain(
        None if snapshot is None else Snapshot(0, section(snapshot)),
        [Change(at + 1 + number, section(length)) for number, length in enumerate(changes)],
    )


def due(**chains):
    return due_snapshots(GroupTable(9, chains))


def test_small_groups_wait_for_a_smallest_size():
    assert due(a=chain(SMALLEST_BYTES - 1)) == set()
    assert due(a=chain(SMALLEST_BYTES // 2, SMALLEST_BYTES // 2)) == {"a"}


def test_large_groups_wait_until_changes_outweigh_the_snapshot():
    large = 10 * SMALLEST_BYTES
    assert due(a=chain(large - 1, snapshot=large)) == set()
    assert due(a=chain(large, snapshot=large)) == {"a"}


def test_many_small_changes_are_due_too():
    assert due(a=chain(*[1] * (MOST_CHANGES - 1))) == set()
    assert due(a=chain(*[1] * MOST_CHANGES)) == {"a"}


def test_groups_without_changes_are_never_due():
    assert due() == set()
    assert due(a=chain(snapshot=1), b=Chain()) == set()


@given(st.lists(st.integers(0, 10 * SMALLEST_BYTES), max_size=60))
def test_few_are_due_at_a_time_and_the_most_overdue_go_first(lengths):
    chains = {f"t{number:05d}": chain(length) for number, length in enumerate(lengths)}
    found = due(**chains)
    assert len(found) <= max(1, -(-len(lengths) // 16))
    waiting = [chains[name].changed_bytes for name in chains if name not in found]
    taken = [chains[name].changed_bytes for name in found]
    assert all(size >= SMALLEST_BYTES for size in taken)
    if taken and waiting:
        assert min(taken) >= max(waiting)
    if any(length >= SMALLEST_BYTES for length in lengths):
        assert found
