"""A job file that cannot be right is told with its name and the entry, before anything is started."""

import re
from pathlib import Path

import pytest

from equipoise import InvalidArgument, UserFunctionFailed
from equipoise.cli.job import JobFile
from equipoise.cli.job_file import load_job

ROOT = Path(__file__).parents[2]
GOOD = """
[source]
format = "parquet"
path = "in"
schema = "host string, ms long"
[query]
kind = "stateful"
key = "host"
aggregate = ["count"]
checkpoint = "cp"
[sink]
format = "console"
"""


def written(folder, text):
    path = folder / "job.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('path = "in"', 'pth = "in"', r"job.toml: \[source\] has no entry 'pth'; it may have format, path, schema"),
        ('key = "host"', 'ky = "host"', r"\[query\] (has no entry 'ky'; it may have kind, key|lacks the entry 'key')"),
        ('key = "host"', "", r"\[query\] lacks the entry 'key'"),
        ('kind = "stateful"', 'kind = "steady"', r"'kind' in \[query\].*choose one of stateful, microbatch"),
        ('kind = "stateful"', "", r"\[query\] lacks the entry 'kind'"),
        ('format = "console"', 'format = "csv"', r"'format' in \[sink\].*choose one of parquet, table, console"),
        ('format = "console"', 'format = "parquet"', r"\[sink\] lacks the entry 'path'"),
        (
            'format = "console"',
            'format = "console"\npath = "x"',
            r"\[sink\] has no entry 'path'; it may have format, rows",
        ),
        ('checkpoint = "cp"', "checkpoint = 7", r"'checkpoint' in \[query\]: expected `str`, got `int`"),
        ("[sink]", "[drain]", r"the file has no entry 'drain'; it may have source, query, sink, policy, conf"),
        ("[query]", "[query", r"is not TOML"),
        ('aggregate = ["count"]', "", "needs one of processor, aggregator or aggregate, got none"),
        ('aggregate = ["count"]', 'processor = "a:B"', "needs outputSchema"),
        ('aggregate = ["count"]', 'aggregate = ["count"]\noutputSchema = "n long"', "drop outputSchema"),
        ('aggregate = ["count"]', 'aggregate = ["count"]\nprocessor = "a:B"', "got processor and aggregate"),
        ('path = "in"', 'feeds = { a = "b:c" }', "feeds in .* are for the format equipoise"),
        ('format = "parquet"', 'format = "equipoise"', "takes no select, where or path"),
        ('format = "console"', 'format = "python"\nfunction = "nowhere.at:all"', "there is no module 'nowhere.at'"),
        (
            'format = "console"',
            'format = "python"\nfunction = "math:all"',
            r"the module math has no 'all'.*it has .*sin",
        ),
        ('format = "console"', 'format = "python"\nfunction = "math:pi"', "must be a function, and math:pi is float"),
        ('format = "console"', 'format = "python"\nfunction = "math"', "is module:object"),
        ("[sink]", "[policy]\nminGain = 2\n[sink]", r"\[policy\] has no minGain; it takes mode, "),
        (
            'format = "console"',
            'format = "parquet"\npath = "x"\n[sink.options]\npath = "y"',
            r"path belongs into \[sink\], not into \[sink.options\]",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path, old, new, message):
    assert old in GOOD
    with pytest.raises(InvalidArgument, match=message) as told:
        JobFile(written(tmp_path, GOOD.replace(old, new, 1)))
    assert "job.toml" in str(told.value)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(InvalidArgument, match="cannot be read"):
        load_job(tmp_path / "nothing.toml")


def test_code_that_fails_when_it_is_imported_or_made_is_the_users(tmp_path):
    (tmp_path / "job_breaks_on_import.py").write_text("1 / 0", encoding="utf-8")
    (tmp_path / "job_needs_more.py").write_text("import not_installed_anywhere", encoding="utf-8")
    (tmp_path / "job_wants_arguments.py").write_text("class P:\n    def __init__(self, x): pass", encoding="utf-8")
    text = GOOD.replace('aggregate = ["count"]', 'processor = "{}"\noutputSchema = "n long"')
    for name, message in {
        "job_breaks_on_import:P": "ZeroDivisionError",
        "job_needs_more:P": "not_installed_anywhere",
        "job_wants_arguments:P": r"P\(\), for processor in \[query\], failed: TypeError",
    }.items():
        with pytest.raises(UserFunctionFailed, match=message):
            JobFile(written(tmp_path, text.replace("{}", name)))


def test_the_files_in_the_documentation_and_the_examples_are_right():
    page = (ROOT / "docs" / "how-to" / "jobs-from-a-file.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(shown) == 2
    examples = sorted((ROOT / "examples" / "jobs").glob("*.toml"))
    assert {type(load_job(path).query).__name__ for path in examples} == {"Stateful", "Microbatch"}


@pytest.mark.parametrize("number", [0, 1])
def test_a_file_of_the_documentation_is_right(tmp_path, number):
    page = (ROOT / "docs" / "how-to" / "jobs-from-a-file.md").read_text(encoding="utf-8")
    load_job(written(tmp_path, re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[number]))
