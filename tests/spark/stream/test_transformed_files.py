"""Transformed rows are delivered once, whoever delivers them and whatever the store can do."""

import os

import pyarrow.fs
import pytest

from equipoise.errors import FencedError
from equipoise.names import unique_name
from equipoise.spark.stream import sinks
from equipoise.spark.stream.delivery import Delivery
from equipoise.spark.stream.transformed_files import TransformedFiles
from equipoise.state.commit import OutputFile
from equipoise.storage import Storage
from equipoise.storage.file_systems import ArrowObjects


class NoExclusiveCreation(ArrowObjects):
    """An object store on which the look for an existing file always comes before the write of the other driver."""

    def upload(self, path, *, replace):  # noqa: ARG002 - the look finds nothing
        return super().upload(path, replace=True)


@pytest.fixture(params=["disk", "objects"])
def storage(request, tmp_path):
    store = NoExclusiveCreation(pyarrow.fs.LocalFileSystem()) if request.param == "objects" else None
    (tmp_path / "cp/outputs/00000000000000000004").mkdir(parents=True)
    return Storage(str(tmp_path / "cp"), store=store)


@pytest.fixture
def deliver(storage, tmp_path):
    """Function that delivers batch 3 in an epoch, with other bytes each time; ``meanwhile`` happens after the write."""

    def run(epoch, *, check=lambda: None, meanwhile=lambda: None):
        def write(delivery):
            path = f"outputs/{delivery.batch + 1:020d}/{unique_name()}.parquet"
            with delivery.storage.writing(path) as file:
                file.write(os.urandom(20))
            meanwhile()
            return [OutputFile(path, file.size, file.sha256, 1)]

        delivery = Delivery(3, epoch, storage, [], rows=None, empty=None, check=check)
        TransformedFiles(sinks.parquet(str(tmp_path / "out")), write).deliver(delivery)
        return {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}

    return run


def fenced():
    raise FencedError("another query has taken over")


def test_rows_that_are_listed_are_not_transformed_again(deliver):
    first = deliver(1)
    assert deliver(1) == deliver(2) == deliver(5) == first


def test_a_list_that_this_driver_has_written_is_synced_since_it_may_have_been_stopped_before_it_did(
    deliver, storage, monkeypatch
):
    deliver(1)
    synced = []
    monkeypatch.setattr(type(storage), "sync", lambda _, path: synced.append(path))
    deliver(1)
    assert f"outputs/{4:020d}/transformed-{1:010d}" in synced


def test_a_driver_that_was_taken_over_while_it_transformed_changes_nothing(deliver):
    delivered = []
    with pytest.raises(FencedError):
        deliver(1, check=fenced, meanwhile=lambda: delivered.append(deliver(2)))
    assert deliver(3) == delivered[0]


def test_a_driver_that_wakes_up_between_two_others_changes_nothing(deliver):
    """The second takes up the list of the first; the list that comes late is of an epoch between theirs."""
    delivered = []

    def others():
        with pytest.raises(FencedError):
            deliver(1, check=fenced)
        delivered.append(deliver(3))

    with pytest.raises(FencedError):
        deliver(2, check=fenced, meanwhile=others)
    assert deliver(4) == delivered[0]
