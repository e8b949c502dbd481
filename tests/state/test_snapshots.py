"""A snapshot is due when the changes outweigh the last one or are old, and few are due at a time."""

from hypothesis import given
from hypothesis import strategies as st

from equipoise.state.commit import Change, GroupSnapshot
from equipoise.state.group_table import MOST_VERSIONS, SMALLEST_BYTES, Chain, GroupTable, due_snapshots
from equipoise.state.sections import Section


def section(length, path="file"):
    return Section(path, 0, length, 0, 1, reset=False)


def chain(*changes, snapshot=None):
    at = -1 if snapshot is None else 0
    return Chain(
        None if snapshot is None else GroupSnapshot(0, section(snapshot)),
        [Change(at + 1 + number, section(length)) for number, length in enumerate(changes)],
    )


def due(version=9, **chains):
    return due_snapshots(GroupTable(version, chains))


def test_small_groups_wait_for_a_smallest_size():
    assert due(a=chain(SMALLEST_BYTES - 1)) == set()
    assert due(a=chain(SMALLEST_BYTES // 2, SMALLEST_BYTES // 2)) == {"a"}


def test_large_groups_wait_until_changes_outweigh_the_snapshot():
    large = 10 * SMALLEST_BYTES
    assert due(a=chain(large - 1, snapshot=large)) == set()
    assert due(a=chain(large, snapshot=large)) == {"a"}


def test_old_changes_are_due_too_be_they_many_or_one():
    for changes in ([1] * MOST_VERSIONS, [1]):
        assert due(MOST_VERSIONS - 2, a=chain(*changes)) == set()
        assert due(MOST_VERSIONS - 1, a=chain(*changes)) == {"a"}


def test_the_files_of_changes_stay_few_however_quiet_some_groups_are(make_hand, tmp_path):
    hand, table = make_hand(tmp_path), GroupTable()
    busy, quiet = [f"t{number:05d}" for number in range(16)], [f"t{number:05d}" for number in range(16, 32)]
    most = 0
    for version in range(5 * MOST_VERSIONS):
        changed = busy if version % 7 else [*busy, quiet[version // 7 % 16]]
        snapshots = {
            group: GroupSnapshot(table.chains[group].version, section(50, f"snapshots/{version}"))
            for group in due_snapshots(table)
        }
        sections = {group: section(50, f"changes/{version}") for group in changed}
        table.advance(hand.commit(version, sections, snapshots))
        most = max(most, sum(path.startswith("changes") for path in table.files()))
    assert len(table.chains) == 32
    assert most <= MOST_VERSIONS + 32


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
