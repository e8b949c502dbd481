"""The cache of a group has what was applied, once each, whatever happens to the processes that use it."""

import errno
import logging
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lmdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from equipoise.errors import DamagedError, InvalidArgumentError, MismatchError, StorageError
from equipoise.state import cache as cache_module
from equipoise.state import environments
from equipoise.state.cache import GroupCache
from equipoise.state.cached_entries import HEAD_BYTES, Record

heads = st.sampled_from([b"a", b"a" * (HEAD_BYTES - 1), b"a" * HEAD_BYTES, b"a" * 520, b"\xff" * 496, b"\xff" * 600])
keys = st.binary(min_size=1, max_size=3) | st.builds(bytes.__add__, heads, st.binary(max_size=3))
values = st.binary(max_size=20)
changes = st.lists(st.tuples(st.booleans(), st.lists(st.tuples(keys, st.none() | values), max_size=12)), max_size=5)


@pytest.fixture
def cache(tmp_path):
    cache = GroupCache(tmp_path)
    yield cache
    cache.close()


@pytest.fixture
def group(cache):
    return cache.group("t00017")


def contents(group):
    with group.read() as entries:
        return dict(entries.entries())


def groups(cache):
    return sorted(path.name for path in (cache.folder / "groups").iterdir())


def elsewhere(folder, code, *, wait=True):
    """Run ``code`` in another process, with ``group`` as in the tests."""
    start = f"""
        import os, sys, signal
        from pathlib import Path
        from equipoise.state.cache import GroupCache
        cache = GroupCache(Path({str(folder)!r}))
        group = cache.group("t00017")
    """
    command = [sys.executable, "-c", textwrap.dedent(start) + textwrap.dedent(code)]
    if wait:
        return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stdin=subprocess.PIPE)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes, st.lists(keys, max_size=8), st.lists(keys, max_size=8))
def test_the_cache_is_a_sorted_dict(group, batches, asked, prefixes):
    group.replace(-1, [])
    model = {}
    for reset, entries in batches:
        if reset:
            model.clear()
        model.update(entries)
        model = {key: value for key, value in model.items() if value is not None}
    numbered = [(number, reset, iter(entries)) for number, (reset, entries) in enumerate(batches)]
    assert group.apply(numbered, expected=-1) == len(batches) - 1 == group.version
    asked = asked + list(model)
    with group.read() as found:
        assert list(found.entries()) == sorted(model.items())
        assert [found.get(key) for key in asked] == found.get_many(asked) == [model.get(key) for key in asked]
        for prefix in [*prefixes, *model, *(key[:-1] for key in model)]:
            assert list(found.scan(prefix)) == sorted(e for e in model.items() if e[0].startswith(prefix))
        assert found.count == len(model)
        assert found.size_bytes == sum(len(key) + len(value) for key, value in model.items())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(keys, values), max_size=20), st.booleans())
def test_a_snapshot_replaces_everything_sorted_or_not(group, entries, is_sorted):
    group.apply([(group.version + 1, False, [(b"old", b"1")])], expected=group.version)
    entries = sorted(dict(entries).items()) if is_sorted else entries
    assert group.replace(3, iter(entries)) == 3
    with group.read() as found:
        assert dict(found.entries()) == dict(entries)
        assert found.version == 3
        assert found.count == len(dict(entries))
        assert found.size_bytes == sum(len(key) + len(value) for key, value in dict(entries).items())


def test_a_new_group_is_empty(group):
    assert group.version == -1
    with group.read() as found:
        assert (found.version, found.count, found.size_bytes) == (-1, 0, 0)
        assert (found.get(b"a"), found.get_many([b"a"]), list(found.scan(b"a"))) == (None, [None], [])


def test_changes_that_were_applied_are_left_out(group):
    group.apply([(4, False, [(b"a", b"4")])], expected=-1)
    assert group.apply([(4, False, [(b"a", b"again")]), (6, False, [(b"b", b"6")])], expected=-1) == 6
    assert contents(group) == {b"a": b"4", b"b": b"6"}
    assert group.apply([(4, True, [(b"a", b"anew")])], expected=-1) == 6
    assert contents(group) == {b"a": b"4", b"b": b"6"}


def test_changes_that_do_not_continue_what_is_stored_are_not_applied(group):
    group.apply([(1, False, [(b"a", b"1")])], expected=-1)
    assert group.apply([(3, False, [(b"a", b"3")])], expected=2) == 1
    assert contents(group) == {b"a": b"1"}
    assert group.apply([(3, True, [(b"b", b"3")])], expected=2) == 3
    assert contents(group) == {b"b": b"3"}


@pytest.mark.parametrize("versions", [(5, 5), (6, 5), (2, 3)])
def test_versions_out_of_order_are_refused(group, versions):
    with pytest.raises(InvalidArgumentError, match="ascending versions above 2"):
        group.apply([(version, False, []) for version in versions], expected=2)


def test_a_snapshot_may_go_back_but_not_over_what_another_process_did(group):
    group.apply([(9, False, [(b"a", b"9")])], expected=-1)
    assert group.replace(5, [(b"a", b"5")], expected=8) == 9
    assert group.replace(5, [(b"a", b"5")], expected=9) == 5
    assert contents(group) == {b"a": b"5"}


class Entries:
    """Entries that can be read again, and fail at the end if asked to."""

    def __init__(self, count, *, fail=False):
        self.count, self.fail = count, fail

    def __iter__(self):
        for number in range(self.count):
            yield number.to_bytes(8, "big"), bytes(1000)
        if self.fail:
            raise DamagedError("rubbish")


def test_entries_that_fail_change_nothing(group):
    group.apply([(0, False, [(b"a", b"1")])], expected=-1)
    with pytest.raises(DamagedError, match="rubbish"):
        group.apply([(1, False, [(b"b", b"2")]), (2, True, Entries(10, fail=True))], expected=0)
    with pytest.raises(DamagedError, match="rubbish"):
        group.replace(7, Entries(3000, fail=True))
    assert group.version == 0
    assert contents(group) == {b"a": b"1"}


@pytest.mark.parametrize("of", [Entries, lambda count: iter(Entries(count))])
def test_a_group_may_grow_beyond_its_first_map(cache, group, of):
    group.apply([(0, False, [(b"first", b"1")])], expected=-1)
    group.apply([(1, False, of(20_000)), (2, False, [(b"last", b"2")])], expected=0)
    expected = {b"first": b"1", b"last": b"2", **dict(Entries(20_000))}
    assert contents(group) == expected
    cache.close()
    assert contents(group) == expected
    group.replace(3, of(40_000))
    assert contents(group) == dict(Entries(40_000))


def test_another_process_may_grow_it(tmp_path, group):
    group.apply([(0, False, [(b"first", b"1")])], expected=-1)
    code = "group.apply([(1, False, [(n.to_bytes(8, 'big'), bytes(1000)) for n in range(20_000)])], expected=0)"
    with ThreadPoolExecutor(1) as other_thread, group.read() as before:
        elsewhere(tmp_path, code)
        assert dict(before.entries()) == {b"first": b"1"}
        waiting = other_thread.submit(contents, group)
        with pytest.raises(MismatchError, match="leave the `with"), group.read():
            pass
        assert before.get(b"first") == b"1"
        assert not waiting.done()
        before.get_many([b"first"])
    assert len(waiting.result()) == 20_001
    assert group.apply([(2, False, [(b"last", b"2")])], expected=1) == 2
    assert len(contents(group)) == 20_002


def test_another_process_may_apply_the_same(tmp_path, group):
    code = """
        changes = [(v, False, [(b"%d" % v, b"1"), (b"count", b"%d" % v)]) for v in range(50)]
        for end in range(1, 51):
            group.apply(changes[:end], expected=-1)
    """
    others = [elsewhere(tmp_path, code, wait=False) for _ in range(2)]
    assert [other.wait() for other in others] == [0, 0]
    for other in others:
        other.communicate()
    assert contents(group) == {b"count": b"49", **{b"%d" % v: b"1" for v in range(50)}}
    with group.read() as found:
        assert found.count == 51


def test_threads_may_read_and_write_while_the_map_grows(group):
    group.replace(0, [(b"%d" % key, b"0") for key in range(100)])

    def write(thread):
        for _ in range(10):
            version = group.version
            entries = [(b"%d" % key, b"%d" % thread) for key in range(100)]
            entries.append((b"filling %d" % thread, bytes(300_000)))
            group.apply([(version + 1, False, entries)], expected=version)

    def read(_):
        for _ in range(200):
            with group.read() as found:
                assert len({found.get(b"%d" % key) for key in range(100)}) == 1

    with ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(write, thread) for thread in range(4)] + [pool.submit(read, n) for n in range(4)]
        for job in jobs:
            job.result()
    assert group.version >= 10


def test_a_thread_that_reads_may_not_write_the_same_group(cache, group):
    with group.read():
        with pytest.raises(MismatchError, match=r"reading the cache of group t00017.*leave the `with"):
            group.apply([(0, False, [])], expected=-1)
        assert cache.group("t00018").apply([(0, False, [])], expected=-1) == 0
    assert group.apply([(0, False, [])], expected=-1) == 0


def test_a_process_killed_while_writing_leaves_the_old_version_and_no_lock(tmp_path, group):
    group.apply([(0, False, [(b"a", b"old")])], expected=-1)
    code = """
        class Killing:
            def __iter__(self):
                for number in range(200):
                    yield b"%d" % number, bytes(1000)
                os.kill(os.getpid(), signal.SIGKILL)
        group.apply([(1, True, Killing())], expected=0)
    """
    killed = elsewhere(tmp_path, code, wait=False)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert group.version == 0
    assert contents(group) == {b"a": b"old"}
    assert group.apply([(1, False, [(b"a", b"new")])], expected=0) == 1
    assert contents(group) == {b"a": b"new"}


def test_a_killed_reader_does_not_keep_old_pages_alive(tmp_path, group):
    group.replace(0, Entries(100))
    killed = elsewhere(tmp_path, "with group.read(): print('reading', flush=True); sys.stdin.read()", wait=False)
    assert killed.stdout.readline() == "reading\n"
    killed.kill()
    killed.communicate()
    assert elsewhere(tmp_path, "group.version") == ""  # opening clears the table of readers
    path = tmp_path.glob("*/groups/t00017")
    with environments.ENVIRONMENTS.using(next(path).parent.parent, "t00017", sync=False) as environment:
        assert environment._lmdb.readers() == "(no active readers)\n"


def data_file(folder):
    return next(Path(folder).glob("*/groups/t00017/data.mdb"))


def overwrite(path):
    path.write_bytes(b"rubbish" * 5000)


def cut(path):
    os.truncate(path, 3 * 4096)


def make_unreadable(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [overwrite, cut, make_unreadable])
def test_a_damaged_file_is_reported_and_taken_for_empty(tmp_path, cache, group, caplog, damage):
    group.replace(5, Entries(100))
    cache.group("t00018").replace(5, [(b"sound", b"1")])
    cache.close()
    damage(data_file(tmp_path))
    with caplog.at_level(logging.WARNING):
        assert group.version == -1
    assert "group t00017 cannot be used and is rebuilt" in caplog.text
    assert group.apply([(6, False, [(b"a", b"6")])], expected=5) == -1
    assert group.replace(6, [(b"a", b"6")]) == 6
    assert contents(group) == {b"a": b"6"}
    assert contents(cache.group("t00018")) == {b"sound": b"1"}


def test_damage_that_shows_later_is_reported_and_thrown_away(group, caplog, monkeypatch):
    group.replace(5, [(b"a", b"5")])

    def fail_once(_):
        monkeypatch.undo()
        raise lmdb.CorruptedError("located page was wrong type")

    for use in (lambda: group.version, lambda: group.apply([(6, False, [])], expected=5)):
        monkeypatch.setattr(Record, "load", fail_once)
        assert use() == -1
        assert "cache of group t00017 is damaged and deleted" in caplog.text
        assert contents(group) == {}
        caplog.clear()
        group.replace(5, [(b"a", b"5")])
    monkeypatch.setattr(Record, "load", fail_once)
    with pytest.raises(DamagedError, match="run the task again"), group.read():
        pass
    assert contents(group) == {}


def test_a_record_of_another_length_is_damage(tmp_path, group):
    group.replace(5, [(b"a", b"5")])
    using = environments.ENVIRONMENTS.using(data_file(tmp_path).parents[2], "t00017", sync=False)
    with using as environment, environment.transaction(write=True) as transaction:
        transaction.put(b"\xff" * 496, b"short")
    assert group.version == -1


@pytest.mark.parametrize("content", [b"", b"\x01", b"\xff" * 4 + b"k" * 600, b"\x05\0\0\0" + b"k" * 600])
def test_a_long_key_of_an_absurd_length_is_damage(tmp_path, group, content):
    for read in (lambda found: found.get(b"k" * 600), lambda found: list(found.entries())):
        group.replace(5, [(b"k" * 600, b"5")])
        using = environments.ENVIRONMENTS.using(data_file(tmp_path).parents[2], "t00017", sync=False)
        with using as environment, environment.transaction(write=True) as transaction:
            stored = next(key for key, _ in transaction.cursor() if len(key) == 511)
            transaction.put(stored, content)
        with pytest.raises(DamagedError, match="says that its key ends at byte"), group.read() as found:
            read(found)
        assert group.version == -1


def test_what_is_not_damage_is_not_swallowed(cache, group, monkeypatch):
    def no_descriptors(*_, **__):
        error = lmdb.Error("too many open files")
        error.code = errno.EMFILE
        raise error

    group.replace(5, [(b"a", b"5")])
    cache.close()
    with monkeypatch.context() as patch:
        patch.setattr(environments.lmdb, "open", no_descriptors)
        with pytest.raises(lmdb.Error, match="too many open files"):
            group.version  # noqa: B018 - the property reads
    assert group.version == 5


def test_forgotten_groups_are_gone(cache, group):
    group.replace(5, [(b"a", b"5")])
    cache.group("k00000000000000ff").replace(1, [])
    assert groups(cache) == ["k00000000000000ff", "t00017"]
    with group.read() as found:
        cache.forget("t00017")
        assert found.get(b"a") == b"5"
        assert group.version == -1
    cache.forget("k00000000000000ff")
    cache.forget("k00000000000000ff")
    assert groups(cache) == ["t00017"]
    assert not list((cache.folder / "gone").iterdir())


def test_what_another_process_forgot_is_forgotten(tmp_path, group):
    group.replace(5, [(b"a", b"5")])
    assert elsewhere(tmp_path, "cache.forget('t00017'); group.replace(7, [(b'b', b'7')])") == ""
    assert group.version == 7
    assert contents(group) == {b"b": b"7"}


def test_the_cache_may_be_deleted_at_any_time(tmp_path, cache, group):
    group.replace(5, [(b"a", b"5")])
    shutil.rmtree(tmp_path)
    assert group.version == -1
    shutil.rmtree(tmp_path)
    assert group.replace(6, [(b"b", b"6")]) == 6
    shutil.rmtree(tmp_path)
    cache.forget("t00017")


def test_groups_that_were_not_used_for_longest_are_deleted_first(cache):
    names = [f"t{number:05d}" for number in range(5)]
    for name in names:
        cache.group(name).replace(1, [(name.encode(), bytes(100_000))])
    with cache.group("t00001").read() as found:
        pass
    assert found.version == 1
    sizes = {path.parent.name: path.stat().st_size for path in cache.folder.glob("groups/*/data.mdb")}
    cache.trim(sum(sizes.values()))
    assert groups(cache) == names
    cache.trim(sum(sizes.values()) - 1)
    assert groups(cache) == names[1:]
    cache.trim(2 * sizes["t00001"])
    assert groups(cache) == ["t00001", "t00004"]
    with cache.group("t00004").read() as found:
        cache.trim(0)
        assert found.get(b"t00004") == bytes(100_000)
    assert groups(cache) == []
    assert cache.group("t00001").version == -1


def test_trimming_closes_what_another_process_has_deleted(tmp_path, cache, group):
    group.replace(5, [(b"a", bytes(100_000))])
    assert elsewhere(tmp_path, "cache.trim(0)") == ""
    assert groups(cache) == []
    assert [path.name for path in environments.ENVIRONMENTS._open if path.parent.parent == cache.folder] == ["t00017"]
    cache.trim(1_000_000)
    assert [path.name for path in environments.ENVIRONMENTS._open if path.parent.parent == cache.folder] == []


def test_bytes_read_past_a_group_are_counted_until_it_is_cached(group):
    group.spend(5)
    group.spend(7)
    assert group.record == Record(spent=12)
    group.apply([(3, False, [(b"a", b"1")])], expected=-1)
    assert group.record == Record(3, 1, 2)
    group.spend(1)
    group.replace(4, [])
    assert group.record == Record(4)


def test_few_environments_stay_open_and_none_in_use_is_closed(cache, monkeypatch):
    monkeypatch.setattr(environments, "MOST_OPEN", 3)
    groups = [cache.group(f"t{number:05d}") for number in range(10)]
    groups[0].replace(1, [(b"a", b"1")])
    with groups[0].read() as found:
        for each in groups[1:]:
            each.replace(2, [(b"b", b"2")])
        assert found.get(b"a") == b"1"
        ours = [path.name for path in environments.ENVIRONMENTS._open if path.parent.parent == cache.folder]
        assert ours == ["t00000", "t00008", "t00009"]
    assert [each.version for each in groups] == [1] + [2] * 9


def test_a_forked_child_opens_its_own(tmp_path):
    code = """
        group.replace(1, [(b"a", b"1")])
        child = os.fork()
        if not child:
            group.apply([(2, False, [(b"child", b"2")])], expected=1)
            cache.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        group.apply([(3, False, [(b"parent", b"3")])], expected=2)
        with group.read() as found:
            print(sorted(key.decode() for key, _ in found.entries()))
    """
    assert elsewhere(tmp_path, code) == "['a', 'child', 'parent']"


def test_a_new_boot_starts_a_new_cache_and_deletes_the_old(tmp_path, monkeypatch):
    boot_id = tmp_path / "boot_id"
    monkeypatch.setattr(cache_module, "_BOOT_ID", boot_id)
    boot_id.write_text("first\n")
    first = GroupCache(tmp_path / "cache")
    first.group("t00017").replace(1, [])
    assert GroupCache(tmp_path / "cache").group("t00017").version == 1
    first.close()
    boot_id.write_text("second\n")
    second = GroupCache(tmp_path / "cache")
    assert second.group("t00017").version == -1
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["cache-4-second-0000000000-any"]


def test_a_later_run_deletes_the_caches_of_earlier_ones_and_not_the_other_way_round(tmp_path):
    first, third = GroupCache(tmp_path, 1, "a"), GroupCache(tmp_path, 3, "c")
    third.group("t00017").replace(7, [(b"a", b"7")])
    assert not first.folder.exists()
    (tmp_path / "cache-1-old-run").mkdir()
    (tmp_path / "gone-half").mkdir()
    (tmp_path / "mine").mkdir()
    late = GroupCache(tmp_path, 1, "a")  # a task of the first run that comes late
    assert late.group("t00017").version == -1
    with third.group("t00017").read() as found:
        assert found.get(b"a") == b"7"
        fourth = GroupCache(tmp_path, 4, "d")
        assert found.get(b"a") == b"7"
    assert sorted(path.name for path in tmp_path.iterdir()) == [fourth.folder.name, "mine"]
    for cache in (late, third):
        cache.close()


def test_a_folder_that_cannot_hold_caches_is_reported(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"in the way")
    with pytest.raises(StorageError, match=r"the cache folder .*/file is not a folder, expected.*another folder"):
        GroupCache.of_query("b", str(tmp_path / "file"))
    with pytest.raises(StorageError, match=r"the cache in .*/file/in cannot be used .*another cache folder"):
        GroupCache.of_query("b", str(tmp_path / "file" / "in"))

    def refuse(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", refuse)
    for make in (lambda: GroupCache(tmp_path / "new"), lambda: GroupCache.of_query("b")):
        with pytest.raises(StorageError, match=r"No space left on device.*nothing that was committed is lost"):
            make()


def test_commits_wait_for_the_disk_where_boots_cannot_be_distinguished(tmp_path, monkeypatch):
    assert GroupCache(tmp_path).sync is not Path("/proc/sys/kernel/random/boot_id").exists()
    monkeypatch.setattr(cache_module, "_BOOT_ID", tmp_path / "absent")
    cache = GroupCache(tmp_path / "other")
    assert cache.sync
    assert cache.group("t00017").replace(1, []) == 1
    cache.close()


@pytest.mark.parametrize("name", ["", "../t00017", "t 1", "t\u0661"])
def test_names_that_are_no_group_ids_are_refused(cache, name):
    with pytest.raises(InvalidArgumentError, match="letters and digits"):
        cache.group(name)
    with pytest.raises(InvalidArgumentError, match="letters and digits"):
        cache.forget(name)


def test_queries_have_caches_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module.tempfile, "tempdir", str(tmp_path))
    one, other = GroupCache.of_query("a/../b"), GroupCache.of_query("b")
    assert len({one.folder, other.folder, GroupCache.of_query("b", str(tmp_path / "own")).folder}) == 3
    assert one.folder.is_relative_to(tmp_path / f"equipoise-{os.geteuid()}")
    assert (tmp_path / f"equipoise-{os.geteuid()}").stat().st_mode & 0o077 == 0


@pytest.fixture
def default(tmp_path, monkeypatch):
    """The folder of all caches that are given none."""
    monkeypatch.setattr(cache_module.tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"equipoise-{os.geteuid()}"


def pretend_to_be(monkeypatch, user):
    monkeypatch.setattr(cache_module.os, "geteuid", lambda: user)


def test_a_default_folder_of_another_user_is_refused(default, monkeypatch):
    default.with_name("equipoise-1234567").mkdir()
    pretend_to_be(monkeypatch, 1_234_567)
    with pytest.raises(
        StorageError, match=rf"equipoise-1234567 belongs to user {os.getuid()}, expected.*1234567.*cache="
    ):
        GroupCache.of_query("b")


@pytest.mark.parametrize("mode", [0o777, 0o720, 0o702, 0o1777])
def test_a_default_folder_that_others_can_write_is_refused_and_left_alone(default, mode):
    default.mkdir()
    default.chmod(mode)
    expected = rf"{default} has mode {mode:04o}, expected .*no other user can write.*chmod"
    with pytest.raises(StorageError, match=expected):
        GroupCache.of_query("b")
    assert default.stat().st_mode & 0o7777 == mode
    assert not list(default.iterdir())


@pytest.mark.parametrize("target", ["elsewhere", "absent"])
def test_a_default_folder_that_is_a_symbolic_link_is_refused(tmp_path, default, target):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    default.symlink_to(tmp_path / target)
    with pytest.raises(StorageError, match=rf"{default} is a symbolic link, expected a folder.*remove it") as refusal:
        GroupCache.of_query("b")
    assert "chmod" not in str(refusal.value), "that would not help"
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_default_folder_that_was_deleted_is_checked_when_it_is_made_again(tmp_path, default):
    cache = GroupCache.of_query("b")
    group = cache.group("t00017")
    group.replace(5, [(b"a", b"5")])
    shutil.rmtree(default)
    assert group.version == -1
    assert [each.stat().st_mode & 0o077 for each in (default, cache.folder.parent)] == [0, 0]
    shutil.rmtree(default)
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    default.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="symbolic link"):
        group.replace(6, [(b"a", b"6")])
    assert not list((tmp_path / "elsewhere").iterdir())
    cache.close()


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
def test_a_folder_in_which_others_could_rename_the_cache_is_refused(tmp_path, mode):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(mode)
    said = rf"cache folder {shared} has mode {mode:04o}: other users .*chmod go-w.*\(cache={shared}/equipoise\)"
    with pytest.raises(StorageError, match=said):
        GroupCache.of_query("b", str(shared))
    assert list(shared.iterdir()) == []


def test_a_folder_for_all_with_the_sticky_bit_is_accepted_and_what_is_in_it_is_private(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    cache = GroupCache.of_query("b", str(shared))
    assert cache.folder.parent.stat().st_mode & 0o077 == 0
    cache.folder.parent.chmod(0o777)
    with pytest.raises(StorageError, match="has mode 0777"):
        GroupCache.of_query("b", str(shared))
    own = tmp_path / "link"
    own.symlink_to(shared)
    assert GroupCache.of_query("c", str(own)).group("t00017").version == -1


@pytest.mark.skipif(os.geteuid() != 0, reason="files of other users are made by root only")
def test_a_folder_that_was_given_and_belongs_to_another_user_is_refused(tmp_path, monkeypatch):
    theirs, ours, link = tmp_path / "theirs", tmp_path / "ours", tmp_path / "link"
    theirs.mkdir()
    ours.mkdir()
    os.chown(theirs, 1_234_567, -1)
    link.symlink_to(ours)
    os.chown(link, 1_234_567, -1, follow_symlinks=False)
    through = tmp_path / "through"
    through.symlink_to(theirs)
    for folder, found in (
        (theirs, "belongs to user 1234567"),
        (link, "is a symbolic link of user 1234567"),
        (through, "belongs to user 1234567"),
    ):
        with pytest.raises(StorageError, match=rf"{folder} {found}, expected .*give"):
            GroupCache.of_query("b", str(folder))
    inner = GroupCache.of_query("b", str(ours)).folder.parent
    shutil.rmtree(inner)
    inner.symlink_to(theirs)
    with pytest.raises(StorageError, match="is a symbolic link"):
        GroupCache.of_query("b", str(ours))
    pretend_to_be(monkeypatch, 1_234_567)
    with pytest.raises(StorageError, match=rf"{tmp_path}/\w+ belongs to user 0"):  # the one that was given is root's
        GroupCache.of_query("b", str(tmp_path))


def test_a_file_system_without_hard_links_is_named_with_the_way_out(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    cache = GroupCache(tmp_path)
    monkeypatch.setattr(os, "link", refused)
    with pytest.raises(StorageError, match=r"its file system has no hard links .*; give .* on a local disk \(cache=\)"):
        cache.group("t00001").replace(1, Entries(10))


def test_nobody_is_kept_waiting_by_a_thread_that_has_finished(group):
    thread = threading.Thread(target=contents, args=[group])
    thread.start()
    thread.join()
    assert group.replace(1, Entries(5000)) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such limit")
@pytest.mark.parametrize(("files", "kept"), [(64, 16), (1024, 128), (20_000, 1024), (-1, 1024)])
def test_open_environments_leave_room_for_other_files(monkeypatch, files, kept):
    monkeypatch.setattr(environments.resource, "getrlimit", lambda _: (files, files))
    assert environments._affordable() == kept
