"""Commands over a checkpoint: what they show, what they find damaged, and that overrides arrive."""

import json
from pathlib import Path

import msgspec
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType
from typer.testing import CliRunner

from equipoise import CheckpointInUseError, InvalidArgumentError, StorageError
from equipoise.cli import state
from equipoise.cli.commands import app
from equipoise.framing import seal, unseal
from equipoise.microbatch.dead_letters import DeadLetter
from equipoise.microbatch.spool import Spool
from equipoise.plan import KIP, Plan, uniform_plan
from equipoise.sketch import Histogram
from equipoise.spark import Aggregator, LocalQuery
from equipoise.state import batch_log, group_table
from equipoise.state.batch_log import batch_log_rows
from equipoise.state.checkpoint import Checkpoint, Overrides
from equipoise.state.commit import OutputFile
from equipoise.state.compaction import compact as compact_checkpoint
from equipoise.state.log import CommitLog
from equipoise.state.state_dump import local_states
from equipoise.storage import Storage

run = CliRunner().invoke


class Count(Aggregator):
    bufferSchema = StructType([StructField("n", LongType())])  # noqa: N815 - as Spark names schemas

    def zero(self):
        return (0,)

    def reduce(self, buffer, rows):
        return (buffer[0] + len(rows),)

    def finish(self, key, buffer):
        return (*key, *buffer)


def count(checkpoint, cache=None):
    schema, output = pa.schema({"k": pa.string()}), pa.schema({"k": pa.string(), "n": pa.int64()})
    return LocalQuery(
        Count(), key="k", inputSchema=schema, outputStructType=output, checkpointLocation=checkpoint, cache=cache
    )


@pytest.fixture
def checkpoint(tmp_path):
    rows = pd.DataFrame({"k": ["hot"] * 500 + [f"k{i}" for i in range(100)]})
    query = count(str(tmp_path / "cp"))
    for _ in range(4):
        query.process(rows)
    query.close()
    return str(tmp_path / "cp")


def printed(*arguments, code=0):
    result = run(app, list(arguments))
    assert result.exit_code == code, result.output + repr(result.exception)
    return result.output


def test_the_batch_log_and_state_are_shown_as_table_and_as_json(checkpoint):
    shown = printed("state", "log", checkpoint)
    assert "fullest task over the mean" in " ".join(shown.split())
    batches = json.loads(printed("state", "log", checkpoint, "--json", "-"))
    assert f"batch 3: {batches[3]['action']}, {batches[3]['reason']}" in shown
    assert [each["batch"] for each in batches] == [0, 1, 2, 3]
    assert batches[-1]["rows"] == 600
    states = json.loads(printed("state", "show", checkpoint, "--literal-keys", "--limit", "1000", "--json", "-"))
    assert {each["key"]: each["state"]["buffer"] for each in states}["hot"] == [2000]
    assert len(states) == 101
    hidden = json.loads(printed("state", "show", checkpoint, "--json", "-"))
    assert all(len(each["key"]) == 16 for each in hidden)


def test_verify_finds_a_damaged_file(checkpoint, tmp_path):
    assert "none is damaged" in printed("state", "verify", checkpoint)
    changes = sorted((tmp_path / "cp" / "changes").rglob("*"))
    file = next(path for path in reversed(changes) if path.is_file())
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))
    output = printed("state", "verify", checkpoint, "--json", "-", code=1)
    assert any(each["problem"] for each in json.loads(output))


def test_plans_are_shown_compared_and_pinned(checkpoint, tmp_path):
    facts = json.loads(printed("plan", "show", checkpoint, "--json", "-"))
    assert facts["partitions"] == 4
    assert "isolated_keys" in printed("plan", "show", checkpoint)
    assert "is kept until" in printed("plan", "pin", checkpoint)
    assert "follow the load" in printed("plan", "unpin", checkpoint)
    assert "is used from the next batch on" in printed("plan", "rollback", checkpoint, str(facts["version"]))
    plain = uniform_plan(4)
    planned = KIP().plan(plain, Histogram([1, 2], [0.5, 0.1]))
    plain.save(tmp_path / "one.json")
    planned.save(tmp_path / "two.json")
    moves = json.loads(printed("plan", "diff", str(tmp_path / "one.json"), str(tmp_path / "two.json"), "--json", "-"))
    assert all(each["from"] != each["to"] for each in moves)


def test_a_folder_that_is_no_checkpoint_is_reported(tmp_path):
    for command in (["state", "log"], ["state", "show"], ["plan", "show"], ["plan", "pin"]):
        result = run(app, [*command, str(tmp_path / "nothing")])
        assert result.exit_code == 1
        assert "nothing" in str(result.exception)


def test_overrides_are_reported_as_json_too(checkpoint):
    version = json.loads(printed("plan", "show", checkpoint, "--json", "-"))["version"]
    assert json.loads(printed("plan", "pin", checkpoint, "--json", "-")) == {"pinned": version}
    assert json.loads(printed("plan", "rollback", checkpoint, "0", "--json", "-")) == {"pinned": 0}
    assert json.loads(printed("plan", "unpin", checkpoint, "--json", "-")) == {"pinned": None}


def test_a_checkpoint_is_made_small_and_its_state_stays(checkpoint, tmp_path):
    states = printed("state", "show", checkpoint, "--literal-keys", "--limit", "1000", "--json", "-")
    done = json.loads(printed("state", "compact", checkpoint, "--json", "-"))
    assert done["version"] == 4
    assert sum(done["after"].values()) < sum(done["before"].values())
    assert done["after"]["changes"] == 0
    assert "0 of" in printed("state", "compact", checkpoint)
    assert printed("state", "show", checkpoint, "--literal-keys", "--limit", "1000", "--json", "-") == states
    assert "none is damaged" in printed("state", "verify", checkpoint)
    assert [each["batch"] for each in json.loads(printed("state", "log", checkpoint, "--json", "-"))] == [0, 1, 2, 3]
    query = count(checkpoint)
    found = query.process(pd.DataFrame({"k": ["hot", "k1"]}))
    assert found.set_index("k")["n"].to_dict() == {"hot": 2001, "k1": 5}
    with pytest.raises(InvalidArgumentError, match="not kept any more"):
        list(local_states(checkpoint, 3))
    result = run(app, ["state", "compact", checkpoint])
    assert isinstance(result.exception, CheckpointInUseError)
    query.close()
    printed("state", "compact", checkpoint)
    query = count(checkpoint, str(tmp_path / "elsewhere"))
    assert query.process(pd.DataFrame({"k": ["hot"]})).to_numpy().tolist() == [["hot", 2002]]


def test_plans_and_the_batch_log_are_drawn(checkpoint, tmp_path):
    plain = uniform_plan(4)
    plain.save(tmp_path / "one.json")
    KIP().plan(plain, Histogram([1, 2], [0.5, 0.1])).save(tmp_path / "two.json")
    places = [str(tmp_path / name) for name in ("one.json", "two.json")]
    for command in (["plan", "show", checkpoint], ["plan", "diff", *places], ["state", "log", checkpoint]):
        picture = tmp_path / f"{command[1]}.png"
        printed(*command, "--plot", str(picture))
        assert picture.read_bytes().startswith(b"\x89PNG")


def test_whatever_a_key_holds_is_shown_as_it_is(tmp_path):
    query = count(str(tmp_path / "cp"))
    query.process(pd.DataFrame({"k": ["[/x]", "http://[fe80::1]/"]}))
    query.close()
    shown = printed("state", "show", str(tmp_path / "cp"), "--literal-keys")
    assert "[/x]" in shown
    assert "http://[fe80::1]/" in shown


def test_a_damaged_claim_or_override_is_found_too(checkpoint):
    printed("plan", "pin", checkpoint)
    assert "none is damaged" in printed("state", "verify", checkpoint)
    (overrides,) = [path for path in Path(checkpoint).iterdir() if path.name == "overrides"]
    overrides.write_bytes(overrides.read_bytes()[:-1])
    assert "overrides" in printed("state", "verify", checkpoint, code=1)


def test_a_version_that_is_superseded_while_it_is_read_is_read_anew(checkpoint, monkeypatch):
    """A running query deletes what older versions need."""
    first = state._checks(checkpoint)

    def damaged():
        raise StorageError("it is not there")

    looks = [(first[0] - 1, [("a file of the version before", damaged)]), first]
    monkeypatch.setattr(state, "_checks", lambda _: looks.pop(0))
    assert "none is damaged" in printed("state", "verify", checkpoint)
    assert not looks


@pytest.mark.parametrize("target", ["", "there/is/none.json"])
def test_a_result_that_could_not_be_written_is_refused_first(checkpoint, tmp_path, target):
    result = run(app, ["state", "show", checkpoint, "--json", str(tmp_path / target)])
    assert isinstance(result.exception, InvalidArgumentError)


def test_a_plan_that_is_not_there_is_reported_with_those_that_are(checkpoint, tmp_path):
    result = run(app, ["plan", "show", checkpoint, "--version", "99"])
    assert "has no plan 99; it has 0" in str(result.exception)
    uniform_plan(4).save(tmp_path / "plan.json")
    result = run(app, ["plan", "show", str(tmp_path / "plan.json"), "--version", "1"])
    assert "is a file with one plan" in str(result.exception)


@pytest.mark.parametrize("what", ["plan", "summary", "commit", "changes", "offsets", "batch-log"])
def test_verify_finds_files_that_are_sound_but_not_the_ones_that_were_committed(checkpoint, what):
    root = Path(checkpoint)
    assert "none is damaged" in printed("state", "verify", checkpoint)
    if what == "offsets":
        (root / "spark" / "offsets" / "3").write_bytes((root / "spark" / "offsets" / "2").read_bytes() + b"more")
    elif what == "batch-log":
        for version in (2, 4):
            batch_log.write(CommitLog(Storage(checkpoint)), version)
        older, newer = sorted((root / "batch-log").iterdir())
        newer.write_bytes(older.read_bytes())
    elif what == "summary":
        compact_checkpoint(Storage(checkpoint))
        [path] = (root / "log").glob("*.summary")
        path.write_bytes(seal("summary", 4, [3, *unseal("summary", 4, path.read_bytes())[1:]]))
    else:
        folder = {"plan": "plans", "commit": "log", "changes": "changes"}[what]
        older, newer = sorted(path for path in (root / folder).rglob("*") if path.is_file())[-2:]
        newer.write_bytes(older.read_bytes())
    assert "Damaged files" in printed("state", "verify", checkpoint, code=1)


def test_verify_checks_the_files_of_every_version_that_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(group_table, "MOST_VERSIONS", 2)
    monkeypatch.setattr(group_table, "_GROUPS_A_BATCH", 1)
    checkpoint = str(tmp_path / "cp")
    with count(checkpoint) as query:
        for _ in range(7):
            query.process(pd.DataFrame({"k": ["hot"] * 50 + [f"k{i}" for i in range(20)]}))
    storage = Storage(checkpoint)
    log = CommitLog(storage)
    now = log.table(log.head()).files()
    older = [path for version in range(log.head()) for path in log.table(version).files() - now if storage.exists(path)]
    assert "none is damaged" in printed("state", "verify", checkpoint)
    content = bytearray(storage.read(older[0]))
    content[len(content) // 2] ^= 1
    storage.write(older[0], bytes(content))
    found = json.loads(printed("state", "verify", checkpoint, "--json", "-", code=1))
    assert [each["file"] for each in found if each["problem"]] == [f"{older[0]}, of an earlier version"]
    storage.delete(older[0])
    assert "none is damaged" in printed("state", "verify", checkpoint), "the query may have deleted it"


@pytest.mark.parametrize("what", ["outputs", "spark/offsets", "plans"])
def test_verify_checks_what_earlier_commits_name_if_it_is_there(checkpoint, what):
    spare = uniform_plan(7)
    Checkpoint(Storage(checkpoint)).keep_plan(Plan(7, spare.tail, {}, version=99))
    files = sorted(path for path in (Path(checkpoint) / what).rglob("*") if path.is_file())
    path = files[-1] if what == "plans" else files[0]
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"!")
    found = json.loads(printed("state", "verify", checkpoint, "--json", "-", code=1))
    [damaged] = [each for each in found if each["problem"]]
    assert path.name.removesuffix(".json") in damaged["problem"]
    path.unlink()
    assert "none is damaged" in printed("state", "verify", checkpoint), "it may have been deleted"


def test_verify_checks_the_lists_of_transformed_files_and_these_files(checkpoint):
    storage = Storage(checkpoint)
    head = CommitLog(storage).head()
    for version in (head - 1, head):  # the list of a driver that was taken over does not count
        files = [transformed(storage, version, content) for content in (b"taken over", b"delivered")]
        for epoch, file in enumerate(files, 1):
            data = seal("transformed", 1, msgspec.to_builtins([file]))
            storage.write(f"outputs/{version:020d}/transformed-{epoch:010d}", data)
        storage.write(files[0].path, b"nobody reads this")
    assert "none is damaged" in printed("state", "verify", checkpoint)
    storage.write(files[1].path, b"d\xe4livered")
    [damaged] = problems(checkpoint)
    assert damaged["file"] == f"outputs/{head:020d}/transformed-0000000002"
    assert files[1].path in damaged["problem"]
    storage.delete(files[1].path)
    assert f"{files[1].path} is not there; restore it" in problems(checkpoint)[0]["problem"]
    storage.write(damaged["file"], data[:-4])
    assert f"{damaged['file']}: stored transformed has" in problems(checkpoint)[0]["problem"]
    storage.delete_folder(f"outputs/{head - 1:020d}")
    storage.write(files[1].path, b"delivered")
    storage.write(damaged["file"], data)
    assert "none is damaged" in printed("state", "verify", checkpoint), "a version that was delivered may be deleted"


def transformed(storage, version, content):
    """A file of transformed rows, as a list names it."""
    path = f"outputs/{version:020d}/{content[:4].hex()}.parquet"
    with storage.writing(path) as file:
        file.write(content)
    return OutputFile(path, file.size, file.sha256, 1)


def problems(checkpoint):
    """Files that are damaged, with their problems."""
    found = json.loads(printed("state", "verify", checkpoint, "--json", "-", code=1))
    return [each for each in found if each["problem"]]


def test_verify_checks_the_plan_that_is_pinned(checkpoint):
    folder = Checkpoint(Storage(checkpoint))
    pinned = folder.keep_plan(uniform_plan(7))
    folder.override(Overrides(pinned=pinned))
    assert "none is damaged" in printed("state", "verify", checkpoint)
    (Path(checkpoint) / "plans" / f"{pinned}.json").unlink()
    assert "which an override pins" in " ".join(printed("state", "verify", checkpoint, "--json", "-", code=1).split())
    folder.override(Overrides(pinned="hash"))
    assert "none is damaged" in printed("state", "verify", checkpoint)


@pytest.mark.parametrize(("problems", "rounds"), [("aab", 2), ("abcd", 3), ("a.", 2), (".", 1)])
def test_verify_ends_although_a_query_goes_on(checkpoint, monkeypatch, problems, rounds):
    """Each letter is what is wrong in a round."""
    heads, made = iter(range(100)), []

    def checks(_):
        made.append(problems[len(made)])

        def check(problem=made[-1]):
            if problem != ".":
                raise StorageError(problem)

        return -1, [("file", check)]

    monkeypatch.setattr(CommitLog, "head", lambda _: next(heads))
    monkeypatch.setattr(state, "_checks", checks)
    found = state._verified(checkpoint)
    assert len(made) == rounds
    assert found == [("file", None if made[-1] == "." else made[-1])]


def test_verify_checks_the_spool_too(checkpoint, tmp_path, monkeypatch):
    spool = Spool(tmp_path / "spool")
    schema = pa.schema({"k": pa.string()})
    spool.claim(schema, ["k"])
    spool.seal(0, [pa.table({"k": ["a"]}, schema=schema)], None, {"rows": 1})
    spool.close()
    assert "none is damaged" in printed("state", "verify", checkpoint, "--spool", str(spool.folder))
    monkeypatch.setattr("equipoise.microbatch.spool._DEAD_LETTERS_BYTES", 10)
    spool.add_dead_letters([DeadLetter("a text", "its reason", 1)])
    full = printed("state", "verify", checkpoint, "--spool", str(spool.folder))
    assert "dead-letters.jsonl of the spool is full: more dead letters are only counted; move it away" in full
    [blocks] = (spool.folder / "blocks").iterdir()
    blocks.write_bytes(blocks.read_bytes()[:-1] + b"!")
    damaged = run(app, ["state", "verify", checkpoint, "--spool", str(spool.folder), "--json", "-"])
    assert damaged.exit_code == 1
    assert [each["file"] for each in json.loads(damaged.stdout) if each["problem"]] != []


def test_a_batch_that_is_committed_and_not_delivered_is_said_so(checkpoint):
    assert "not delivered" not in printed("state", "log", checkpoint)
    assert [row["delivered"] for row in batch_log_rows(checkpoint)] == [True] * 4
    (Path(checkpoint) / "spark" / "commits" / "3").unlink()
    shown = printed("state", "log", checkpoint)
    assert "batch 3 is committed and not delivered; the next start delivers it" in shown
    assert [row["delivered"] for row in batch_log_rows(checkpoint)] == [True, True, True, False]
    storage = Storage(checkpoint)
    Checkpoint(storage).mark_delivered(CommitLog(storage).read(4))
    assert "not delivered" not in printed("state", "log", checkpoint)
