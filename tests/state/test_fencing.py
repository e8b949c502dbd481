"""One query at a time commits to a checkpoint, and the one that was taken over finds out."""

import os
import pickle
import platform
import signal
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from equipoise.errors import (
    CheckpointInUseError,
    DamagedError,
    FencedError,
    InvalidArgumentError,
    LogBrokenError,
    StorageError,
    UnknownFormatError,
)
from equipoise.framing import seal
from equipoise.state import fencing
from equipoise.state.fencing import claim, tenancy
from equipoise.storage import Storage
from equipoise.storage.local_disk import LocalDisk

CLAIM = """
    import pickle
    import sys
    from equipoise.state.fencing import claim
    epoch = claim(pickle.loads(bytes.fromhex(sys.argv[1])), lambda owner: False)
    print(epoch.number, flush=True)
    sys.stdin.read()
    epoch.release()
"""


@pytest.fixture
def storage(tmp_path, make_storage, protocol):
    return make_storage(tmp_path, protocol)


@pytest.fixture
def elsewhere(storage):
    """A query of another process, which has claimed the checkpoint."""
    command = [sys.executable, "-c", textwrap.dedent(CLAIM), pickle.dumps(storage).hex()]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == "1\n"
        yield process
        process.kill()


def nobody(_):
    return False


def test_a_store_that_may_not_list_what_was_written_is_refused(tmp_path):
    class Forgetful(LocalDisk):
        abilities = replace(LocalDisk.abilities, list_after_write=False)

    storage = Storage(str(tmp_path), store=Forgetful())
    with pytest.raises(
        InvalidArgumentError, match=r"list_after_write.*; keep the checkpoint on a local disk, HDFS, S3"
    ):
        claim(storage, nobody)
    assert storage.names("") == []


def test_epochs_count_up_and_earlier_claims_are_cleaned_away(storage):
    for number in (1, 2, 3):
        epoch = claim(storage, nobody)
        assert epoch.number == number
        epoch.check()
        epoch.release()
        assert storage.names("epochs") == [epoch.name, f"{epoch.name}.released"]


def test_a_second_query_of_this_process_is_refused_while_the_first_runs(storage):
    first = claim(storage, nobody)
    with pytest.raises(CheckpointInUseError, match=f"process {os.getpid()} is running on .*stop it first"):
        claim(storage, lambda owner: owner == first.owner)
    first.check()
    assert claim(storage, lambda owner: owner != first.owner).number == 2


def test_a_query_that_was_taken_over_is_fenced_off(storage):
    first = claim(storage, nobody)
    second = claim(storage, nobody)
    with pytest.raises(
        FencedError, match=rf"taken over .*epoch {second.name}.*continues from the last commit, and delivers it"
    ):
        first.check()
    first.release()  # too late to matter
    second.check()
    assert storage.names("epochs") == [second.name]


def test_a_query_of_another_process_is_refused_while_that_lives(storage, elsewhere):
    with pytest.raises(CheckpointInUseError, match=f"process {elsewhere.pid} is running"):
        claim(storage, nobody)


def test_a_query_that_has_ended_well_makes_room(storage, elsewhere):
    elsewhere.stdin.close()
    assert elsewhere.wait() == 0
    assert claim(storage, nobody).number == 2


def test_a_query_that_was_killed_makes_room(storage, elsewhere):
    elsewhere.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, elsewhere.pid, os.WEXITED | os.WNOWAIT)  # dead, and nobody has asked yet: a zombie process
    assert claim(storage, nobody).number == 2
    elsewhere.wait()
    assert claim(storage, nobody).number == 3


def test_a_released_checkpoint_is_free_although_its_process_lives(storage):
    epoch = claim(storage, nobody)
    epoch.release()
    assert claim(storage, lambda _: True).number == 2


def test_a_query_of_another_machine_cannot_be_seen_and_is_fenced_off(storage, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(fencing, "_machine", lambda: "another")
        first = claim(storage, nobody)
    claim(storage, lambda _: True)
    with pytest.raises(FencedError):
        first.check()


def test_a_process_with_the_number_of_a_dead_one_is_another(storage, elsewhere, monkeypatch):
    started = fencing._started(elsewhere.pid)
    monkeypatch.setattr(fencing, "_started", lambda _: started + 1)
    assert claim(storage, nobody).number == 2


@pytest.fixture
def meanwhile(monkeypatch):
    """Do something between the first look of a query at the claims and its own claim."""

    def make(act):
        real = fencing._claims

        def stale(where):
            found = real(where)
            monkeypatch.setattr(fencing, "_claims", real)
            act()
            return found

        monkeypatch.setattr(fencing, "_claims", stale)

    return make


def test_a_query_that_paused_before_its_claim_takes_a_number_of_its_own(storage, meanwhile):
    claim(storage, nobody).release()
    settled = []
    meanwhile(lambda: settled.append(claim(storage, nobody)))
    late = claim(storage, nobody)
    assert (settled[0].number, late.number) == (2, 3)
    late.check()
    with pytest.raises(FencedError):
        settled[0].check()
    assert storage.names("epochs") == [late.name]


def test_a_query_that_paused_before_its_claim_is_refused_where_another_is_seen_to_run(storage, meanwhile):
    settled = []
    meanwhile(lambda: settled.append(claim(storage, nobody)))
    with pytest.raises(CheckpointInUseError, match="is running on"):
        claim(storage, lambda owner: owner == settled[0].owner)
    settled[0].check()
    assert storage.names("epochs") == [settled[0].name]


@pytest.mark.parametrize("owner", ["0" * 32, "f" * 32])
def test_a_claim_that_could_not_be_withdrawn_takes_over_nothing(storage, owner):
    epoch = claim(storage, nobody)
    left = f"epochs/0000000001-{owner}"
    storage.write(left, seal("epoch", 1, [fencing._machine(), 2**22 + 5, 1]))
    epoch.check()
    assert tenancy(storage) == "running"
    with pytest.raises(CheckpointInUseError):
        claim(storage, lambda each: each == epoch.owner)
    storage.delete(f"epochs/{epoch.name}")
    with pytest.raises(StorageError, match="has lost the claim"):
        epoch.check()


def test_every_round_of_claims_at_once_has_one_winner_of_its_number(make_storage, protocol, tmp_path):
    with ThreadPoolExecutor(8) as pool:
        for number in range(100):
            tried = pool.map(_claimed_or_refused, [make_storage(tmp_path / f"{number}", protocol)] * 8)
            won = [epoch for epoch in tried if epoch is not None]
            assert len({epoch.number for epoch in won}) == len(won)
            valid = [epoch for epoch in won if _is_in_force(epoch)]
            assert [epoch.number for epoch in valid] == [max(epoch.number for epoch in won)]


def _claimed_or_refused(storage):
    try:
        return claim(storage, nobody)
    except (FencedError, StorageError):  # fenced off, or what it wanted to look at was cleaned away
        return None


def _is_in_force(epoch):
    try:
        epoch.check()
    except FencedError:
        return False
    return True


def test_of_many_claims_at_once_one_is_left(storage):
    with ThreadPoolExecutor(8) as pool:
        tried = pool.map(_claimed_or_refused, [storage] * 24)
        epochs = [epoch for epoch in tried if epoch is not None]
    assert len({epoch.number for epoch in epochs}) == len(epochs)
    assert sum(map(_is_in_force, epochs)) <= 1
    assert claim(storage, nobody).number > max(epoch.number for epoch in epochs)


def test_a_lost_claim_is_reported(storage):
    epoch = claim(storage, nobody)
    storage.delete_folder("epochs")
    with pytest.raises(StorageError, match="has lost the claim"):
        epoch.check()
    assert claim(storage, nobody, above=7).number == 8


def test_where_a_takeover_cannot_be_seen_a_failure_stays_itself_unless_it_accuses_the_checkpoint(storage, monkeypatch):
    epoch = claim(storage, nobody)

    def away(_):
        raise StorageError("the store is away")

    monkeypatch.setattr(fencing, "_claims", away)
    with pytest.raises(ValueError, match="the table is gone") as failure, epoch.reported_first():
        raise ValueError("the table is gone")
    assert failure.value.__notes__ == ["Whether another query has taken over could not be checked: the store is away"]
    with pytest.raises(StorageError, match="the store is away") as failure, epoch.reported_first():
        raise LogBrokenError("restore both halves")
    assert isinstance(failure.value.__cause__, LogBrokenError)


def test_a_damaged_claim_is_named_with_the_way_out(storage):
    epoch = claim(storage, nobody)
    path = f"epochs/{epoch.name}"
    sound = storage.read(path)
    for data in (b"", sound[:-1], seal("epoch", 1, ["machine"])):
        storage.write(path, data)
        with pytest.raises(DamagedError, match=f"{epoch.name}.*delete the file"):
            claim(storage, nobody)
    storage.write(path, seal("epoch", 2, []))
    with pytest.raises(
        UnknownFormatError, match=f"{epoch.name}.*format 2, this release reads format 1.*delete the file"
    ):
        claim(storage, nobody)


def test_who_holds_a_checkpoint_can_be_seen_without_claiming_it(storage, elsewhere):
    before = storage.names("epochs")
    assert tenancy(storage) == "running"
    assert storage.names("epochs") == before
    elsewhere.kill()
    elsewhere.wait()
    assert tenancy(storage) == "gone"
    epoch = claim(storage, nobody)
    assert tenancy(storage) == "running"
    epoch.release()
    assert tenancy(storage) == "ended"


def test_nobody_holds_an_empty_folder_and_another_machine_cannot_be_seen(storage):
    assert tenancy(storage) == "free"
    storage.write("epochs/0000000001-x", seal("epoch", 1, ["another machine", 1, 1]))
    assert tenancy(storage) == "elsewhere"


def test_without_a_table_of_processes_a_process_of_that_number_counts(storage, monkeypatch, tmp_path):
    monkeypatch.setattr(fencing, "_PROCESSES", tmp_path / "nothing")
    assert fencing._machine() == platform.node()
    assert fencing._runs(os.getpid(), 0)
    assert not fencing._runs(2**22 + 5, 0)
    claim(storage, lambda owner: owner == "")
    assert tenancy(storage) == "running"
