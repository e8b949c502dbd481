"""What is kept, what is run again, and what the report says of it."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from equipoise import InvalidArgumentError
from equipoise_lab.reproduce import Claim, Exhibit, Rows, Setting, Verdict
from equipoise_lab.reproduce import records as kept
from equipoise_lab.reproduce.exhibit import as_in_paper
from equipoise_lab.reproduce.records import RunRequest, answers, load, path_of, save
from equipoise_lab.reproduce.report import as_html, as_json, as_markdown, counted, judge
from equipoise_lab.reproduce.runner import reproduce
from equipoise_lab.reproduce.sources import digest
from equipoise_lab.reproduce.verdict import judged, near

RUNS = []


def run(context):
    RUNS.append(context)
    for n in context.track(context["sizes"]):
        yield {"n": n, "load": n * context.seed, "file": str(context.file("keys.parquet"))}


def draw(rows):
    from equipoise_lab.reproduce.drawing import lines

    return lines(rows, "n", {"load": "load"}, line="file")


EXHIBIT = Exhibit(
    name="pkg/made-up",
    title="a <b>bold</b> title",
    section="Section 1",
    settings={"sizes": Setting("1 | 2", (1,), (1, 2), (1, 2, 3)), "workers": as_in_paper(5)},
    claims=(
        Claim("more <i>is</i> more", "a | b", lambda rows: judged(f"{len(rows)} rows", shape={"any": len(rows) > 0})),
        Claim("never", "-", lambda _: judged("x", shape={"no": False}), looked_into="For a reason"),
    ),
    run=run,
    draw=draw,
    files=("keys.parquet",),
)


@pytest.fixture(autouse=True)
def known(monkeypatch):
    RUNS.clear()
    monkeypatch.setattr(kept, "digest", lambda _module: "as it is now")


def reproduced(folder, request, **options):
    return list(reproduce([EXHIBIT], folder, request, console=Console(file=io.StringIO()), **options))


def test_a_result_is_kept_with_all_that_is_needed_to_know_what_was_run(tmp_path):
    (record,) = reproduced(tmp_path, RunRequest("quick", seed=3))
    raw = json.loads(path_of(tmp_path, EXHIBIT).read_text(encoding="utf-8"))
    assert path_of(tmp_path, EXHIBIT).name == "pkg-made-up.json"
    assert raw["rows"] == record.rows == [{"n": 1, "load": 3, "file": "None"}, {"n": 2, "load": 6, "file": "None"}]
    assert raw["parameters"] == {"sizes": [1, 2], "workers": 5}
    assert raw["seed"] == raw["env"]["seed"] == 3
    assert raw["env"]["commit"]
    assert raw["env"]["cores"] >= 1
    assert "numpy" in raw["env"]["versions"]
    assert raw["seconds"] >= 0


def test_what_is_there_is_not_run_again_unless_asked_for(tmp_path):
    request = RunRequest("quick")
    first = reproduced(tmp_path, request)
    assert reproduced(tmp_path, request) == first
    assert len(RUNS) == 1
    reproduced(tmp_path, request, again=True)
    assert len(RUNS) == 2


def test_another_seed_scale_or_code_is_run_but_a_larger_scale_will_do(tmp_path, monkeypatch):
    reproduced(tmp_path, RunRequest("quick"))
    reproduced(tmp_path, RunRequest("quick", seed=2))
    reproduced(tmp_path, RunRequest("full", seed=2))
    assert len(RUNS) == 3
    assert reproduced(tmp_path, RunRequest("quick", seed=2))[0].scale == "full"
    assert len(RUNS) == 3
    monkeypatch.setattr(kept, "digest", lambda _module: "changed")
    assert load(tmp_path, EXHIBIT) is None
    reproduced(tmp_path, RunRequest("quick", seed=2))
    assert len(RUNS) == 4


def test_parameters_and_data_are_part_of_what_was_asked_for(tmp_path):
    (record,) = reproduced(tmp_path, RunRequest("quick"))
    other = replace(EXHIBIT, settings={**EXHIBIT.settings, "workers": as_in_paper(6)})
    assert answers(record, EXHIBIT, RunRequest("quick"))
    assert not answers(record, other, RunRequest("quick"))
    (tmp_path / "keys.parquet").touch()
    request = RunRequest("quick", data=tmp_path)
    assert not answers(record, EXHIBIT, request)
    (record,) = reproduced(tmp_path, request)
    assert record.data == ["keys.parquet (0 bytes)"]
    assert record.rows[0]["file"].endswith("keys.parquet")


def test_data_of_no_use_are_reported(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"has none of keys\.parquet"):
        reproduced(tmp_path, RunRequest("quick", data=tmp_path))


def test_a_damaged_result_is_run_again(tmp_path):
    reproduced(tmp_path, RunRequest("quick"))
    path_of(tmp_path, EXHIBIT).write_text("{", encoding="utf-8")
    assert load(tmp_path, EXHIBIT) is None
    reproduced(tmp_path, RunRequest("quick"))
    assert load(tmp_path, EXHIBIT) is not None


def test_an_interrupt_keeps_what_is_done(tmp_path):
    def stop(_context):
        raise KeyboardInterrupt

    second = replace(EXHIBIT, name="pkg/second", run=stop)
    with pytest.raises(KeyboardInterrupt):
        list(reproduce([EXHIBIT, second], tmp_path, RunRequest("quick"), console=Console(file=io.StringIO())))
    assert load(tmp_path, EXHIBIT) is not None
    assert load(tmp_path, second) is None


def test_reports_escape_what_they_are_given(tmp_path):
    (record,) = reproduced(tmp_path, RunRequest("quick"))
    save(tmp_path, EXHIBIT, record)
    results = [judge(EXHIBIT, record)]
    page, table = as_html(results), as_markdown(results)
    assert "<b>bold" not in page
    assert "a &lt;b&gt;bold&lt;/b&gt; title" in page
    assert "<i>is" not in page + table
    assert page.count('id="pkg-made-up"') == page.count('href="#pkg-made-up"') == 1
    assert "<script" not in page
    rows = [line for line in table.splitlines() if line.startswith("|")]
    assert len(rows) == 4
    assert len({line.replace("\\|", "").count("|") for line in rows}) == 1
    assert "2 claims of 1 paper, run again: holds: 1, holds in shape: 0, does not hold: 1." in table
    assert f"Scale: quick. Seed: {record.seed}. Commit: {record.env.commit[:12]}" in table
    assert "**does not hold**: not so: no. For a reason" in table
    assert counted(results) == {"holds": 1, "holds in shape": 0, "does not hold": 1}
    assert [each["verdict"] for each in as_json(results)[0]["claims"]] == ["holds", "does not hold"]


def test_a_verdict_follows_from_its_conditions():
    assert judged("x", shape={"a": True}, numbers={"b": True}).verdict is Verdict.HOLDS
    assert judged("x", shape={"a": True}, numbers={"b": False}).verdict is Verdict.IN_SHAPE
    assert judged("x", shape={"a": False}, numbers={"b": True}).verdict is Verdict.FAILS
    assert judged("x", shape={"a": False, "c": True}).reason == "not so: a"
    assert near(75, 100)
    assert not near(74, 100)


def test_rows_are_asked_for_by_their_values():
    rows = Rows([{"m": "a", "x": 2, "y": 1.0}, {"m": "a", "x": 1, "y": 3.0}, {"m": "a", "x": 1, "y": 5.0}])
    assert rows.line("x", "y", m="a") == ([1, 2], [4.0, 1.0])
    assert rows.distinct("x") == [2, 1]
    assert len(rows.where(x=(1, 7))) == 2
    with pytest.raises(InvalidArgumentError, match="no row has"):
        rows.mean("y", m="b")


def test_an_exhibit_without_claims_or_paper_is_refused():
    for wrong in ({"claims": ()}, {"name": "table-2"}):
        with pytest.raises(InvalidArgumentError, match="must be named paper/figure"):
            replace(EXHIBIT, **wrong)


def test_the_digest_of_code_covers_what_is_imported():
    pkg, gedik = (digest(f"equipoise_lab.reproduce.{name}") for name in ("pkg.table_2", "gedik.figure_3"))
    assert pkg != gedik
    assert len(pkg) == 16
    assert digest("equipoise.errors") == digest("equipoise.errors")


def test_one_that_fails_is_reported_and_the_others_go_on(tmp_path):
    def fail(_context):
        raise RuntimeError("out of order")

    broken = replace(EXHIBIT, name="pkg/broken", run=fail)
    failed, found = reproduce([broken, EXHIBIT], tmp_path, RunRequest("tiny"))
    assert (failed.exhibit, str(failed.error)) == ("pkg/broken", "out of order")
    assert found.rows
