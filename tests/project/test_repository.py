"""What the README and the build files promise."""

import contextlib
import io
import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import yaml

import equipoise
from equipoise_lab.bench import BENCHMARKS

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(path, language):
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_readme_opens_with_the_two_commands():
    assert blocks(ROOT / "README.md", "sh")[0].split("\n")[:2] == ["make demo", "make test"]


def test_every_make_target_that_is_named_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for document in DOCUMENTS:
        named = re.findall(r"(?:^|`)make ([a-z-]+)", document.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(named) <= targets, document


def test_every_benchmark_that_is_named_exists():
    for document in DOCUMENTS:
        named = re.findall(r"(?:^|`)equipoise-lab bench ([a-z-]+)", document.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(named) <= {"list", "all", *BENCHMARKS}, document


def test_ci_runs_make_test_and_nothing_else():
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line and not line.startswith(("#", "set "))] == ["make test"]


def test_make_test_checks_style_types_and_documentation_before_it_runs_the_tests():
    planned = subprocess.run(["make", "-n", "test"], cwd=ROOT, capture_output=True, text=True, check=True).stdout  # noqa: S607 - make from the path
    steps = ("ruff check", "ruff format --check", "mypy", "mkdocs build --strict", "pytest")
    assert all(step in planned for step in steps)
    assert max(planned.index(step) for step in steps[:-1]) < planned.index("pytest -m")


def test_the_five_papers_are_cited_and_the_version_is_the_one_of_the_library():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == equipoise.__version__
    assert [each["authors"][0]["family-names"] for each in citation["references"]] == [
        "Zvara", "Abdelhamid", "Nasir", "Gedik", "Dalabasmaz",
    ]  # fmt: skip
    for each in citation["references"]:
        assert {"given-names", "family-names"} <= set.intersection(*map(set, each["authors"]))
        assert re.fullmatch("19[0-9]{2}|20[0-9]{2}", str(each["year"])), each["title"]
        venue = "collection-title" if each["type"] == "conference-paper" else "journal"
        assert each[venue], each["title"]
        if "doi" in each:
            assert re.fullmatch(r"10\.\d{4,}/\S+", each["doi"]), each["title"]
        else:
            assert each["url"].startswith("https://"), each["title"]
    assert [len(each["authors"]) for each in citation["references"]] == [4, 4, 5, 1, 2]


def test_the_links_of_the_project_name_one_repository():
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert all(url.startswith(citation["repository-code"]) for url in urls.values())
    assert "example.org" in citation["repository-code"], "a name that nobody can own, until there is a public address"


def test_the_workflow_runs_make_test_on_every_python_that_is_supported():
    [job] = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8"))["jobs"].values()
    assert job["steps"][-1]["run"].startswith("make test")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each) for each in project["classifiers"]]
    assert job["strategy"]["matrix"]["python"] == [each[1] for each in named if each]


def test_issue_forms_can_be_read():
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").iterdir())
    assert [path.name for path in forms] == ["bug.yml", "feature.yml", "question.yml"]
    for path in forms:
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert {"name", "description", "body"} <= set(form), path


EXAMPLE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
COMPARED = {"README.md": (0,), "docs/index.md": (0, 1, 3)}
"""Examples on Spark whose output is the same in every run but for times, by their position on the page.

Others show measured seconds, or loads that are weighted by them. Pages that need no Spark are compared in
``test_example_outputs``.
"""
TIME = re.compile(r"\b\d+(\.\d+)? (s|ms|min)\b")


@pytest.mark.parametrize("document", DOCUMENTS, ids=[str(d.relative_to(ROOT)) for d in DOCUMENTS])
def test_the_python_in_the_documentation_runs(document, request, tmp_path, monkeypatch):
    if "pyspark" in document.read_text(encoding="utf-8"):
        request.getfixturevalue("spark")  # SparkSession.builder finds this one
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    compared = COMPARED.get(document.relative_to(ROOT).as_posix(), ())
    for number, (block, shown) in enumerate(EXAMPLE.findall(document.read_text(encoding="utf-8"))):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, str(document), "exec"), namespace)  # noqa: S102 - our own documentation
        if number in compared:
            assert TIME.sub("T", printed.getvalue()).strip() == TIME.sub("T", shown).strip()


def test_every_compared_example_has_an_output():
    for name, numbers in COMPARED.items():
        examples = EXAMPLE.findall((ROOT / name).read_text(encoding="utf-8"))
        assert all(examples[number][1] for number in numbers), name


TAKES_LONG = {
    "prompt_queries.py",
    "straggling_groups.py",
    "viral_key.py",
}  # short forms: tests/spark/test_prompt_queries.py, docs/how-to/straggling-groups.md, tests/spark/stream
EXAMPLES = [
    pytest.param(path, id=path.name, marks=[pytest.mark.long] if path.name in TAKES_LONG else [])
    for path in sorted((ROOT / "examples").glob("*.py"))
]


@pytest.mark.parametrize("script", EXAMPLES)
def test_an_example_runs_to_its_end(script, request):
    request.getfixturevalue("spark")  # asks for Java in the same words
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    assert "same result: True" in result.stdout


def locked():
    """Each requirement of the lock file with its hashes."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8").replace(" \\\n", "\n")
    for each in re.split(r"\n(?! )", text.strip()):
        requirement, *hashes = each.split("\n")
        yield requirement, [line.strip() for line in hashes]


def test_the_lock_pins_every_dependency_exactly():
    wanted = []
    for name in ("pyproject.toml", "lab/pyproject.toml"):
        project = tomllib.loads((ROOT / name).read_text(encoding="utf-8"))["project"]
        wanted += [*project["dependencies"], *chain(*project.get("optional-dependencies", {}).values())]
    names = {re.match(r"[A-Za-z0-9_.-]+", each)[0].lower() for each in wanted} - {"equipoise"}
    assert all(re.match(r"[a-z0-9_.-]+==[^ ]+( ; .*)?$", requirement) for requirement, _ in locked())
    assert names <= {requirement.split("==")[0] for requirement, _ in locked()}


def test_every_requirement_in_the_lock_has_hashes_and_setup_insists_on_them():
    for requirement, hashes in locked():
        assert hashes, requirement
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), requirement
    assert "--require-hashes --requirement requirements.lock" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_lock_and_the_makefile_name_no_registry():
    for name in ("requirements.lock", "Makefile"):
        assert not re.search(r"://|index-url [^-]|find-links [^-]", (ROOT / name).read_text(encoding="utf-8")), name


def test_no_file_that_is_committed_names_a_place_of_one_machine():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S607 - git from the path
    if listed.returncode:
        pytest.skip("not a git checkout: there is no list of committed files")
    pattern = re.compile(r"/(home|root|tmp|work|Users)/\w")
    for name in listed.stdout.split():
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".yml", ".yaml", ".json", ".lock"} and path != Path(__file__):
            assert not pattern.search(path.read_text(encoding="utf-8")), name
