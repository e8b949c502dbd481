"""Damaged, missing and foreign files: no silent loss, but an error of ours that names the file and a way out."""

import re
import shutil
import struct
import zlib
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from pyspark.errors import PythonException

from equipoise.adapt import Policy
from equipoise.errors import DamagedError, EquipoiseError, FormatError, LogBrokenError, StorageError, UnknownFormatError
from equipoise.framing import seal, unseal
from equipoise.spark import balance, read_state
from equipoise.spark.stream import engine, transformed_files
from equipoise.state import batch_log, group_table
from equipoise.state.checkpoint import Checkpoint, Overrides
from equipoise.state.fencing import claim
from equipoise.state.log import CommitLog
from equipoise.state.section_reader import SectionReader
from equipoise.state.sections import Section, read_section
from equipoise.storage import Storage

WAY_OUT = r"(?i)restore|delete|read it with|run the query with|check that the right file|open a file written by"
BATCHES = 8


def start(spark, story, folder, sink=None):
    """The story's query, in this process, on the checkpoint in ``folder``."""
    script = story.script
    given = type("Given", (), {"folder": str(folder), "wait_value": -1})
    stream = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 1)
    groups = balance(
        stream.parquet(str(story.folder / "in")),
        "k",
        numPartitions=2,
        orderBy="v",
        tailGroups=16,
        retain=2,
        policy=Policy(planner=script.Restless()),
        cache=str(folder / "cache"),
    )
    ledger = script.Ledger(script.Options(given))
    made = groups.transformWithStateInPandas(ledger, script.OUTPUT, "update", "none")
    (folder / "out").mkdir(exist_ok=True)
    writer = made.writeStream.foreachBatch(sink or script.sink_into(folder, -1)).trigger(availableNow=True)
    return writer.start(checkpointLocation=str(folder / "cp"))


@pytest.fixture(scope="module")
def lived(spark, tmp_path_factory, story_class):
    """A checkpoint with every kind of file, whose last batch Spark does not know to be delivered; one more waits."""
    story = story_class(tmp_path_factory.mktemp("damage") / "story", batches=BATCHES + 1)
    waiting = story.folder / "in" / f"{BATCHES}.parquet"
    hidden = waiting.rename(story.folder / "later")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "SUMMARY_EVERY", 3)
        patch.setattr(group_table, "MOST_VERSIONS", 3)
        query = start(spark, story, story.folder)
        query.awaitTermination()
        query.stop()
    hidden.rename(waiting)
    for path in (story.checkpoint / "spark" / "commits").glob(f"*{BATCHES - 1}*"):
        path.unlink()
    for path in (story.checkpoint / "epochs").glob("*.released"):
        path.unlink()
    return story


@pytest.fixture
def copy(lived, tmp_path):
    """A copy to damage: its storage. There are no caches beside it."""
    shutil.copytree(lived.checkpoint, tmp_path / "cp")
    return Storage(str(tmp_path / "cp"))


def _sections(storage, folder):
    log, reader = CommitLog(storage), SectionReader(storage)
    chains = log.table(log.head()).chains
    found = [chain.snapshot.section for chain in chains.values() if chain.snapshot]
    found += [change.section for chain in chains.values() for change in chain.changes]
    return [list(reader.entries(section)) for section in found if section.path.startswith(folder)]


def _last_plan(storage):
    log = CommitLog(storage)
    return Checkpoint(storage).plan(log.read(log.head()).plan)


def _outputs(storage):
    log = CommitLog(storage)
    commit = log.read(log.head())
    engine.verify_outputs(storage, commit)
    return [storage.read(file.path) for file in commit.outputs]


def _claimed(storage):
    return claim(storage, lambda owner: owner == "", above=CommitLog(storage).last_epoch()).number


def _delivered(storage):
    """Mark the last batch as delivered, the first time, and read the mark."""
    log, checkpoint = CommitLog(storage), Checkpoint(storage)
    commit = log.read(log.head())
    if not storage.exists("delivered"):
        checkpoint.mark_delivered(commit)
    return checkpoint.is_delivered(commit)


def _transformed(storage):
    """List the output files of the last batch as files of transformed rows, the first time, and read the list."""
    log = CommitLog(storage)
    commit = log.read(log.head())
    path = f"outputs/{commit.version:020d}/transformed-{commit.epoch:010d}"
    if not storage.exists(path):
        storage.write(path, seal(*SEALED["outputs/*/transformed-*"], msgspec.to_builtins(commit.outputs)))
    return transformed_files.read_list(storage, path)


READERS = {
    "query": lambda storage: Checkpoint(storage).require(),
    "overrides": lambda storage: Checkpoint(storage).overrides(),
    "plans": _last_plan,
    "log/*.commit": lambda storage: CommitLog(storage).read(CommitLog(storage).head()),
    "log/*.summary": lambda storage: CommitLog(storage).table(CommitLog(storage).head()).chains,
    "changes": lambda storage: _sections(storage, "changes"),
    "snapshots": lambda storage: _sections(storage, "snapshots"),
    "outputs": _outputs,
    "epochs": _claimed,
    "batch-log": lambda storage: list(batch_log.rows(storage)),
    "delivered": _delivered,
    "outputs/*/transformed-*": _transformed,
}
SEALED = {
    "query": ("query", 2),
    "overrides": ("overrides", 3),
    "log/*.commit": ("commit", 4),
    "log/*.summary": ("summary", 4),
    "epochs": ("epoch", 1),
    "batch-log": ("batch-log", 2),
    "delivered": ("delivered", 3),
    "outputs/*/transformed-*": ("transformed", 1),
}
"""Kinds of sealed files: word and format in their envelope."""


def last_file(storage, kind):
    """The newest file of a kind that is read."""
    root = Path(storage.location)
    if kind in {"delivered", "outputs/*/transformed-*"}:
        READERS[kind](storage)  # the story has none of these
    if kind in {"changes", "snapshots"}:
        log = CommitLog(storage)
        used = {path for path in log.table(log.head()).files() if path.startswith(kind)}
        return root / max(used)
    if kind == "plans":
        log = CommitLog(storage)
        return root / "plans" / f"{log.read(log.head()).plan}.json"
    if kind == "outputs":
        log = CommitLog(storage)
        return root / log.read(log.head()).outputs[0].path
    return max(root.glob(kind if "*" in kind or (root / kind).is_file() else f"{kind}/*"))


def reported(storage, kind, path):
    """The error that reading gives, checked for its words; ``None`` if reading goes well."""
    found = None
    try:
        READERS[kind](storage)
    except EquipoiseError as error:
        found = error
    assert found is None or (path.name in str(found) and re.search(WAY_OUT, str(found))), found
    return found


@pytest.mark.parametrize("kind", READERS)
def test_a_file_that_is_cut_short_is_reported(copy, kind):
    path = last_file(copy, kind)
    data = path.read_bytes()
    for length in (0, 3, len(data) // 2, len(data) - 2):
        path.write_bytes(data[:length])
        assert isinstance(reported(copy, kind, path), DamagedError)


@pytest.mark.parametrize("kind", READERS)
def test_a_flipped_bit_is_reported_or_changes_nothing(copy, kind):
    path = last_file(copy, kind)
    sound = READERS[kind](copy) if kind != "epochs" else None
    data = path.read_bytes()
    errors = 0
    for place in {*range(min(len(data), 64)), *range(0, len(data), max(1, len(data) // 64))}:
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(bytes(flipped))
        error = reported(copy, kind, path)
        assert error is not None or READERS[kind](copy) == sound, f"bit {place % 8} of byte {place}"
        assert error is None or isinstance(error, FormatError)
        errors += error is not None
    assert errors


@pytest.mark.parametrize("kind", ["query", "plans", "changes", "snapshots", "outputs"])
def test_a_missing_file_is_reported(copy, kind):
    path = last_file(copy, kind)
    path.unlink()
    assert isinstance(reported(copy, kind, path), StorageError if kind != "query" else LogBrokenError)


def test_what_is_missing_without_harm_is_done_without(copy):
    sound = CommitLog(copy).table(BATCHES).chains
    for kind in ("overrides", "batch-log", "epochs"):
        last_file(copy, kind).unlink()
    assert Checkpoint(copy).overrides() == Overrides()
    assert [row["version"] for row in batch_log.rows(copy)][-1] == BATCHES
    assert _claimed(copy) == CommitLog(copy).last_epoch() + 1
    assert CommitLog(copy).table(BATCHES).chains == sound


def test_a_missing_summary_is_reported_where_the_records_before_it_are_gone(copy):
    for path in (Path(copy.location) / "log").glob("*.summary"):
        path.unlink()
    with pytest.raises(LogBrokenError, match=r"no record of version 0 .*restore"):
        CommitLog(copy).table(BATCHES)


def test_a_gap_in_the_log_is_reported(copy):
    (Path(copy.location) / "log" / f"{BATCHES - 1:020d}.commit").unlink()
    with pytest.raises(LogBrokenError, match=rf"log has no record of version {BATCHES - 1} .*restore"):
        CommitLog(copy).table(BATCHES)


@pytest.mark.parametrize("version", [0, 99])
@pytest.mark.parametrize("kind", SEALED)
def test_another_format_version_is_reported(copy, kind, version):
    path = last_file(copy, kind)
    word, known = SEALED[kind]
    path.write_bytes(seal(word, version, unseal(word, known, path.read_bytes())))
    error = reported(copy, kind, path)
    assert isinstance(error, UnknownFormatError)
    assert f"format {version}, this release reads format {known}" in str(error)


@pytest.mark.parametrize("kind", SEALED)
def test_a_sound_envelope_around_something_else_is_reported(copy, kind):
    path = last_file(copy, kind)
    path.write_bytes(seal(*SEALED[kind], "something else"))
    assert isinstance(reported(copy, kind, path), DamagedError)


def test_another_format_version_of_a_plan_is_reported(copy):
    path = last_file(copy, "plans")
    other = re.sub(r'"format_version": ?2', '"format_version": 99', path.read_text())
    name = f"{path.name[:10]}-{sha256(other.encode()).hexdigest()}"
    path.with_name(f"{name}.json").write_text(other)
    with pytest.raises(UnknownFormatError, match=rf"{name}.json.*99"):
        Checkpoint(copy).plan(name)
    path.write_text(other)  # under the name of another plan
    assert isinstance(reported(copy, "plans", path), DamagedError)


@pytest.mark.parametrize("folder", ["changes", "snapshots"])
def test_another_format_version_of_a_section_is_reported(copy, folder):
    chains = CommitLog(copy).table(BATCHES).chains.values()
    parts = [each.section for chain in chains for each in (chain.snapshot, *chain.changes) if each]
    section = next(part for part in parts if part.path.startswith(folder))
    data = bytearray(copy.read_range(section.path, section.offset, section.length))
    struct.pack_into("<H", data, 4, 99)
    checksum = zlib.crc32(data[:-4])
    struct.pack_into("<I", data, len(data) - 4, checksum)
    with pytest.raises(UnknownFormatError, match=rf"{section.path} has format 99, this release reads format 2; run"):
        read_section(bytes(data), msgspec.structs.replace(section, checksum=checksum))
    assert isinstance(section, Section)


def test_a_plan_that_is_pinned_but_missing_is_reported(copy):
    name = f"{77:010d}-{'0' * 64}"
    with pytest.raises(StorageError, match=rf"plans has no plan {name}, .*unpin"):
        Checkpoint(copy).pinned_plan(name)


def _plan_in_force(storage):
    """Another valid plan over the plan of the next batch."""
    wanted = last_file(storage, "plans")
    other = next(path for path in sorted(wanted.parent.iterdir()) if path != wanted)
    return wanted, other, lambda: _last_plan(storage)


def _stale_commit(storage):
    """An older commit's bytes under a newer name."""
    log = Path(storage.location) / "log"
    older, wanted = (log / f"{version:020d}.commit" for version in (BATCHES - 1, BATCHES))
    return wanted, older, lambda: CommitLog(storage).read(BATCHES)


def _stale_summary(storage):
    """Another version's summary."""
    summaries = sorted((Path(storage.location) / "log").glob("*.summary"))
    assert len(summaries) > 1
    return summaries[-1], summaries[-2], lambda: CommitLog(storage).table(BATCHES)


def _stale_output(storage):
    """Another batch's output file."""
    log = CommitLog(storage)
    wanted, other = (Path(storage.at(log.read(version).outputs[0].path)) for version in (BATCHES, BATCHES - 1))
    return wanted, other, lambda: _outputs(storage)


def _stale_changes(storage):
    """Another batch's changes of the same groups."""
    wanted = last_file(storage, "changes")
    other = next(path for path in sorted(wanted.parent.parent.glob("*/*")) if path.parent != wanted.parent)
    return wanted, other, lambda: _sections(storage, "changes")


@pytest.mark.parametrize("swap", [_plan_in_force, _stale_commit, _stale_summary, _stale_output, _stale_changes])
def test_a_sound_file_in_the_place_of_another_is_refused_by_name(copy, swap):
    wanted, other, read = swap(copy)
    read()
    wanted.write_bytes(other.read_bytes())
    with pytest.raises(DamagedError, match=rf"{re.escape(wanted.name)}.*(?i:restore)"):
        read()


def test_a_query_does_not_start_by_another_plan_than_the_one_in_force(spark, lived, copy, tmp_path):
    wanted, other, _ = _plan_in_force(copy)
    wanted.write_bytes(other.read_bytes())
    with pytest.raises(DamagedError, match=rf"{wanted.name} .*damaged or another plan; restore it"):
        start(spark, lived, tmp_path)


def failure(query):
    """Text of the error that ends a query."""
    with pytest.raises(EquipoiseError) as caught:
        query.awaitTermination()
    return str(caught.value)


def test_a_query_says_which_file_of_changes_is_damaged(spark, lived, copy, tmp_path):
    path = last_file(copy, "changes")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    words = failure(start(spark, lived, tmp_path))
    assert f"changes/{path.parent.name}/{path.name} is damaged" in words
    assert "Restore the file" in words
    with pytest.raises(PythonException, match=rf"{path.name} is damaged"):
        read_state(copy.location, spark=spark).collect()
    assert CommitLog(copy).head() == BATCHES


def test_a_query_delivers_nothing_of_a_damaged_output(spark, lived, copy, tmp_path):
    path = last_file(copy, "outputs")
    path.write_bytes(path.read_bytes()[:-1])
    words = failure(start(spark, lived, tmp_path))
    assert re.search(
        rf"{path.name} has {path.stat().st_size} bytes with .*; its commit says .*; restore the file from a copy; "
        rf"batch {BATCHES - 1} must be delivered from it",
        words,
    )
    assert not list((tmp_path / "out").iterdir())


def test_a_query_whose_log_is_behind_spark_is_refused(spark, lived, copy, tmp_path):
    for version in (BATCHES, BATCHES - 1):
        (Path(copy.location) / "log" / f"{version:020d}.commit").unlink()
    said = (
        rf"Spark's half is newer than the log: the log in {copy.location} ends with batch {BATCHES - 3}, and Spark has "
        rf"planned batch {BATCHES - 1}; .*restore the whole checkpoint, both halves, from one copy"
    )
    with pytest.raises(LogBrokenError, match=said):
        start(spark, lived, tmp_path)
    assert not list((tmp_path / "out").iterdir())


def test_a_query_with_damage_in_its_log_does_not_start(spark, lived, copy, tmp_path):
    path = last_file(copy, "log/*.commit")
    sound = path.read_bytes()
    path.write_bytes(seal("commit", 99, unseal("commit", 4, sound)))
    with pytest.raises(UnknownFormatError, match=path.name):
        start(spark, lived, tmp_path)
    path.write_bytes(sound)
    last_file(copy, "query").unlink()
    with pytest.raises(LogBrokenError, match=r"query is missing, but .*log exists; restore"):
        start(spark, lived, tmp_path)


def test_a_query_goes_on_without_caches_and_with_what_it_can_do_without(spark, lived, copy, tmp_path):
    for kind in ("overrides", "batch-log", "epochs"):
        last_file(copy, kind).unlink()
    start(spark, lived, tmp_path).awaitTermination()
    assert CommitLog(copy).head() == BATCHES + 1
    before, after = (lived.folder / "out" / f"{BATCHES - 1}-0.json", tmp_path / "out" / f"{BATCHES - 1}-0.json")
    assert after.read_text() == before.read_text()


def test_a_checkpoint_that_vanishes_under_a_query_is_reported(spark, lived, copy, tmp_path):
    def vanish(_, batch):
        assert batch == BATCHES - 1, "nothing may be delivered from a checkpoint that is gone"
        for path in Path(copy.location).iterdir():
            if path.name != "spark":
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    words = failure(start(spark, lived, tmp_path, vanish))
    assert re.search(r"is not there; restore|has lost the claim|no record of version .* restore", words), words
