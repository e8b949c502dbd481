"""Every store does what its abilities say, and a folder on it keeps to its word when answers are lost."""

import errno
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import pyarrow.fs
import pytest

from equipoise.errors import AlreadyExistsError, DamagedError, StorageError
from equipoise.storage import Storage, local_disk, object_store
from equipoise.storage.file_systems import ArrowObjects, RenamingFiles
from equipoise.storage.local_disk import LocalDisk
from equipoise.storage.object_store import ConditionalObjects


def _below(folder):
    """A file system of pyarrow whose root is a local folder."""
    return pyarrow.fs.SubTreeFileSystem(str(folder), pyarrow.fs.LocalFileSystem())


STORES = {
    "local disk": lambda folder, _: (LocalDisk(), f"{folder}/root"),
    "renaming files": lambda folder, hadoop: (RenamingFiles(hadoop(folder)), "root"),
    "arrow objects": lambda folder, _: (ArrowObjects(_MakesFolders(folder)), "root"),
    "conditional objects": lambda folder, _: (ConditionalObjects(f"file://{folder}"), "root"),
    "conditional objects in memory": lambda *_: (ConditionalObjects("memory:///"), "root"),
}


class _MakesFolders:
    """A local folder as an object store, which needs no folders: they are there when a file is written."""

    def __init__(self, folder):
        self._folder, self._real = folder, _below(folder)

    def __reduce__(self):
        return _MakesFolders, (self._folder,)

    def __getattr__(self, name):
        return getattr(self._real, name)

    def open_output_stream(self, path):
        self._real.create_dir(path.rpartition("/")[0], recursive=True)
        return self._real.open_output_stream(path)


@pytest.fixture(params=STORES)
def placed(request, tmp_path, hadoop_folder):
    """A store, and a folder in it."""
    return STORES[request.param](tmp_path, hadoop_folder)


@pytest.fixture
def store(placed):
    return placed[0]


@pytest.fixture
def root(placed):
    return placed[1]


@pytest.fixture
def storage(placed):
    store, root = placed
    return Storage(root, store=store)


def put(store, path, data, *, replace=True):
    upload = store.upload(path, replace=replace)
    for start in range(0, len(data), 3):
        upload.write(data[start : start + 3])
    upload.complete()


def names(store, folder):
    return sorted(entry.name for entry in store.entries(folder))


def test_a_file_is_read_whole_and_in_ranges(store, root):
    put(store, f"{root}/a/file", b"0123456789")
    assert store.read(f"{root}/a/file") == b"0123456789"
    assert store.read(f"{root}/a/file", 3, 4) == b"3456"
    assert store.read(f"{root}/a/file", 8, 100) == b"89"
    assert store.read(f"{root}/a/file", 7) == b"789"
    assert store.read(f"{root}/a/file", 10, 5) == store.read(f"{root}/a/file", 3, 0) == b""
    put(store, f"{root}/a/empty", b"")
    assert store.read(f"{root}/a/empty") == store.read(f"{root}/a/empty", 0, 5) == b""


def test_what_is_not_there_is_reported_by_the_usual_error(store, root):
    for reach in (store.read, lambda path: store.read(path, 0, 1), lambda path: store.read(path, 5)):
        with pytest.raises(FileNotFoundError):
            reach(f"{root}/a/gone")
    assert store.look(f"{root}/a/gone") is None
    assert store.entries(f"{root}/nowhere") == store.entries(f"{root}/nowhere", recursive=True) == []
    store.delete_folder(f"{root}/nowhere")


def test_files_and_folders_are_looked_at(store, root):
    put(store, f"{root}/a/b/file", b"123")
    assert store.look(f"{root}/a/b/file") == ("file", True, 3)
    assert store.look(f"{root}/a/b") == ("b", False, 0)
    assert store.entries(f"{root}/a") == [("b", False, 0)]
    found = [entry for entry in store.entries(f"{root}/a", recursive=True) if entry.is_file]
    assert found == [("b/file", True, 3)]
    put(store, f"{root}/ab/file", b"1")
    assert store.entries(f"{root}/a") == [("b", False, 0)], "a folder whose name only begins like this one"


def test_a_listing_has_every_file_that_was_complete_before(store, root):
    assert store.abilities.list_after_write
    for number in range(50):
        put(store, f"{root}/a/{number:02d}", b"1")
        assert names(store, f"{root}/a") == [f"{each:02d}" for each in range(number + 1)]
    store.delete(f"{root}/a/07")
    assert "07" not in names(store, f"{root}/a")
    store.delete_folder(f"{root}/a")
    assert store.entries(f"{root}/a") == []
    assert store.look(f"{root}/a") is None


def test_a_file_is_replaced_where_that_is_allowed_and_only_there(store, root):
    put(store, f"{root}/a/file", b"first")
    put(store, f"{root}/a/file", b"second")
    with pytest.raises(FileExistsError):
        put(store, f"{root}/a/file", b"third", replace=False)
    assert store.read(f"{root}/a/file") == b"second"
    assert [name for name in names(store, f"{root}/a") if not name.endswith(".tmp")] == ["file"]


def test_a_file_is_not_there_before_it_is_complete(store, root):
    upload = store.upload(f"{root}/a/file", replace=False)
    upload.write(b"half")
    assert store.look(f"{root}/a/file") is None
    upload.complete()
    assert store.read(f"{root}/a/file") == b"half"


@pytest.mark.parametrize("replace", [True, False])
def test_an_abandoned_upload_leaves_nothing(store, root, replace):
    upload = store.upload(f"{root}/a/file", replace=replace)
    upload.write(b"half")
    upload.abandon()
    assert store.look(f"{root}/a/file") is None
    assert store.entries(f"{root}/a") == []


@pytest.mark.parametrize("replace", [True, False])
def test_an_abandoned_upload_leaves_the_file_alone_that_another_writer_has_completed_meanwhile(store, root, replace):
    upload = store.upload(f"{root}/a/file", replace=replace)
    upload.write(b"half")
    put(store, f"{root}/a/file", b"of another driver")
    upload.abandon()
    assert store.read(f"{root}/a/file") == b"of another driver"
    assert names(store, f"{root}/a") == ["file"]


def test_of_eight_that_create_a_file_at_once_exactly_one_succeeds_where_that_is_stated(store, storage):
    if not store.abilities.create_if_absent:
        pytest.skip("the store does not state it")

    def creates(round_and_place):
        number, place = round_and_place
        try:
            storage.create(f"a/{number}", bytes([place]) * 10)
        except AlreadyExistsError:
            return None
        return place

    with ThreadPoolExecutor(8) as pool:
        for number in range(50):
            won = [place for place in pool.map(creates, [(number, place) for place in range(8)]) if place is not None]
            assert len(won) == 1
            assert storage.read(f"a/{number}") == bytes(won) * 10
    assert len(storage.names("a")) == 50


@pytest.mark.parametrize("name", [name for name in STORES if "conditional" in name])
def test_names_at_the_root_of_a_bucket_are_whole(tmp_path, hadoop_folder, name):
    store, _ = STORES[name](tmp_path, hadoop_folder)
    storage = Storage("", store=store)
    storage.write("query", b"1")
    storage.write("log/a", b"12")
    assert storage.names("") == ["log", "query"]
    assert storage.names("log") == ["a"]
    assert storage.usage("") == 3


def test_a_store_travels_to_other_processes(placed):
    store, root = placed
    if getattr(store, "_url", "").startswith("memory"):
        pytest.skip("the memory of a process stays there")
    put(store, f"{root}/a/file", b"1")
    travelled = pickle.loads(pickle.dumps(Storage(root, store=store)))  # noqa: S301 - our own bytes
    assert travelled.read("a/file") == b"1"
    assert travelled.abilities == store.abilities


@pytest.mark.parametrize("path", ["../victim", "a/../../victim", "/victim", "a//b", "a/", "./a", "a/./b", ".."])
def test_no_path_leads_out_of_the_folder(storage, path):
    for use in (
        storage.read,
        storage.exists,
        storage.size,
        storage.delete,
        storage.delete_folder,
        storage.names,
        storage.sync,
        lambda each: storage.read_range(each, 0, 1),
        lambda each: storage.write(each, b""),
        lambda each: storage.create(each, b""),
        lambda name: storage.clean(name, check=lambda: None),
    ):
        with pytest.raises(DamagedError, match=r"leads out of .*; restore the file that names it from a copy"):
            use(path)


@pytest.fixture
def failing_folder(hadoop_folder):
    """Class of a file system whose rename reports a failure, after it took effect or without."""

    class MovesAndFails(hadoop_folder):
        def __init__(self, folder, *, took_effect):
            super().__init__(folder)
            self._took_effect = took_effect

        def move(self, source, target):
            if self._took_effect:
                super().move(source, target)
            raise OSError(errno.EIO, "rename failed")

    return MovesAndFails


@pytest.mark.parametrize("replace", [True, False])
def test_a_rename_that_reports_a_failure_after_it_took_effect_is_taken_for_success(tmp_path, failing_folder, replace):
    store = RenamingFiles(failing_folder(tmp_path, took_effect=True))
    assert store.abilities.rename_may_report_false
    put(store, "root/file", b"0123", replace=replace)
    assert store.read("root/file") == b"0123"
    assert names(store, "root") == ["file"]


@pytest.mark.parametrize("before", [None, b"another", b"size"])
def test_a_rename_that_failed_is_reported(tmp_path, hadoop_folder, failing_folder, before):
    if before is not None:
        put(RenamingFiles(hadoop_folder(tmp_path)), "root/file", before)
    storage = Storage("root", store=RenamingFiles(failing_folder(tmp_path, took_effect=False)))
    with pytest.raises(StorageError, match=r"could not write root/file: .*rename failed"):
        storage.write("file", b"0123")
    assert storage.names("") == ([] if before is None else ["file"])
    assert before is None or storage.read("file") == before
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == storage.names("")


def test_a_rename_fails_whose_temporary_file_is_gone_even_if_the_target_has_its_size(tmp_path, hadoop_folder):
    class Cleaned(hadoop_folder):
        def move(self, source, target):
            self.delete_file(source)
            super().move(source, target)

    put(RenamingFiles(hadoop_folder(tmp_path)), "root/file", b"size")
    with pytest.raises(OSError, match="cannot rename"):
        put(RenamingFiles(Cleaned(tmp_path)), "root/file", b"0123")
    assert RenamingFiles(hadoop_folder(tmp_path)).read("root/file") == b"size"


class _Dies(BaseException):
    """The process ends here."""


def test_a_file_that_another_driver_has_created_meanwhile_is_never_deleted(tmp_path, hadoop_folder):
    """A driver that pauses before its rename, and wakes after its successor has delivered, must not touch that file."""
    successor = RenamingFiles(hadoop_folder(tmp_path))

    class Overtaken(hadoop_folder):
        def move(self, source, target):
            put(successor, "root/file", b"delivered", replace=False)
            super().move(source, target)

        def between_delete_and_rename(self):
            raise _Dies

    with pytest.raises(FileExistsError):
        put(RenamingFiles(Overtaken(tmp_path)), "root/file", b"late", replace=False)
    assert successor.read("root/file") == b"delivered"


def test_a_process_that_dies_while_it_replaces_a_file_leaves_none_on_hdfs(tmp_path, hadoop_folder):
    """The limit that the store states: ``atomic_replace``."""

    class DiesInMove(hadoop_folder):
        def between_delete_and_rename(self):
            raise _Dies

    store = RenamingFiles(DiesInMove(tmp_path))
    assert not store.abilities.atomic_replace
    put(store, "root/file", b"old")
    with pytest.raises(_Dies):
        put(store, "root/file", b"new")
    assert store.look("root/file") is None


def test_a_killed_creator_leaves_a_temporary_folder_that_is_cleaned_away(tmp_path, hadoop_folder):
    storage = Storage("root", store=RenamingFiles(hadoop_folder(tmp_path)))
    storage.write("kept", b"1")
    RenamingFiles(hadoop_folder(tmp_path)).upload("root/part-1", replace=False).write(b"half")
    assert storage.names("") == ["kept"]
    storage.clean("", lambda: None, "part-")
    assert [path.name for path in (tmp_path / "root").iterdir()] == ["kept"]


class _LosesAnswers(LocalDisk):
    """Completes an upload, if it can, and then cannot say so."""

    def __init__(self, *, before=b""):
        self._before = before

    def upload(self, path, *, replace):
        upload = super().upload(path, replace=replace)
        complete = upload.complete

        def lost():
            if self._before:
                put(LocalDisk(), path, self._before)
                with pytest.raises(FileExistsError):
                    complete()
            else:
                complete()
            raise OSError(errno.ETIMEDOUT, "no answer")

        upload.complete = lost
        return upload


def test_a_creator_whose_answer_was_lost_reads_back_that_it_won(tmp_path):
    storage = Storage(str(tmp_path), store=_LosesAnswers())
    storage.create("a/file", b"mine")
    assert storage.read("a/file") == b"mine"
    assert storage.names("a") == ["file"]


def test_a_creator_whose_sync_failed_syncs_again_and_says_where_that_fails_too(tmp_path, monkeypatch):
    storage, synced, answers = (
        Storage(str(tmp_path)),
        [],
        [True, False, True],
    )  # make the folder, sync it, sync it again

    def sync(path, real=local_disk._sync):
        synced.append(path)
        if answers and not answers.pop(0):
            raise OSError(errno.EIO, "fsync failed")
        real(path)

    monkeypatch.setattr(local_disk, "_sync", sync)
    storage.create("log/1", b"mine")
    assert synced[-2:] == [f"{tmp_path}/log/1", f"{tmp_path}/log"], "the file and its folder, once more"
    answers += [False, False]
    with pytest.raises(StorageError, match=r"could not sync .*log/2: .*fsync failed"):
        storage.create("log/2", b"mine")


def test_the_names_of_new_folders_survive_a_power_cut(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(local_disk, "_sync", synced.append)
    Storage(str(tmp_path)).write("changes/00001/a", b"x")
    assert synced == [str(tmp_path), f"{tmp_path}/changes", f"{tmp_path}/changes/00001"]
    synced.clear()
    Storage(str(tmp_path)).write("changes/00001/b", b"x")
    assert synced == [f"{tmp_path}/changes/00001"]


@pytest.mark.parametrize("code", ["EPERM", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK"])
def test_a_file_system_without_hard_links_is_named_with_the_way_out(tmp_path, monkeypatch, code):
    def refuse(*_):
        raise OSError(getattr(errno, code), "refused")

    monkeypatch.setattr(os, "link", refuse)
    said = (
        r"could not create .*log/1: its file system has no hard links .*refused.*give a folder on a disk that has them"
    )
    with pytest.raises(StorageError, match=said):
        Storage(str(tmp_path)).create("log/1", b"mine")
    assert list((tmp_path / "log").iterdir()) == []


def test_an_object_that_is_too_large_is_reported_with_the_way_out(monkeypatch):
    monkeypatch.setattr(object_store, "LARGEST_BYTES", 3)
    storage = Storage("root", store=ConditionalObjects("memory:///"))
    with pytest.raises(
        StorageError, match=r"root/file: it has 4 bytes, .* at most 3; let each task write less"
    ) as reported:
        storage.write("file", b"0123")
    assert "free space" not in str(reported.value)


def test_a_creator_whose_answer_was_lost_and_that_finds_other_bytes_has_lost(tmp_path):
    storage = Storage(str(tmp_path), store=_LosesAnswers(before=b"another's"))
    with pytest.raises(AlreadyExistsError, match="a/file already exists"):
        storage.create("a/file", b"mine")
    assert storage.read("a/file") == b"another's"


def test_a_creator_that_cannot_know_says_why(tmp_path):
    class Silent(_LosesAnswers):
        def read(self, *_):
            raise OSError(errno.ETIMEDOUT, "no answer to this one either")

    with pytest.raises(StorageError, match=r"could not write .*a/file: .*no answer"):
        Storage(str(tmp_path), store=Silent()).create("a/file", b"mine")


def test_only_a_disk_asks_for_sync(store, storage):
    storage.write("a/file", b"1")
    storage.sync("a/file")
    assert store.abilities.sync is isinstance(store, LocalDisk)
