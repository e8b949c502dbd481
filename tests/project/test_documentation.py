"""The documentation is complete: every name, every error, every option and every method has its place in it."""

import importlib
import importlib.util
import inspect
import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from equipoise import errors
from equipoise.adapt import Policy
from equipoise.plan import PLANNERS
from equipoise.sketch import Sketch
from equipoise.split import SPLITTERS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in sorted(DOCS.rglob("*.md"))}
PARTS = ("adapt", "checks", "microbatch", "plan", "sketch", "spark", "split", "testing")
PACKAGES = ["equipoise", *(f"equipoise.{part}" for part in PARTS), "equipoise_lab.variants"]


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def figures():
    return loaded("figures")


def found(path):
    """What a dotted path names to mkdocstrings: a module before anything of the same name in its package."""
    parent, _, name = path.rpartition(".")
    above = importlib.import_module(parent)
    if hasattr(above, "__path__") and importlib.util.find_spec(path) is not None:
        return importlib.import_module(path)
    return getattr(above, name)


def described():
    """Everything that a page describes from its docstring, by identity; of a module all that is defined in it."""
    for text in PAGES.values():
        for path in re.findall(r"^::: (\S+)$", text, re.MULTILINE):
            value = found(path)
            yield id(value)
            if inspect.ismodule(value):
                yield from (id(each) for name, each in vars(value).items() if not name.startswith("_"))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_is_described(package):
    module = importlib.import_module(package)
    there = set(described())
    missing = [name for name in module.__all__ if not name.startswith("__") and id(getattr(module, name)) not in there]
    assert not missing


def test_nothing_is_described_twice():
    paths = [found(path) for text in PAGES.values() for path in re.findall(r"^::: (\S+)$", text, re.MULTILINE)]
    assert len({id(each) for each in paths}) == len(paths)


def test_every_error_code_has_a_way_out():
    classes = [each for each in vars(errors).values() if inspect.isclass(each)]
    rows = dict(re.findall(r"^\| `([A-Z_]+)` \| `(\w+)` \|", PAGES["operations/errors.md"], re.MULTILINE))
    assert rows == {each.code: each.__name__ for each in classes}


def test_every_option_of_a_query_is_explained():
    from equipoise.spark.stream.options import StreamOptions

    options = {field.name for kind in (StreamOptions, Policy) for field in fields(kind)}
    assert not [name for name in options if f"`{name}`" not in PAGES["operations/tuning.md"]]


def test_every_method_has_a_page_with_a_figure():
    pages = {name: text for name, text in PAGES.items() if name.startswith(("algorithms/", "lab/"))}
    described_in = {
        path: name for name, text in pages.items() for path in re.findall(r"^::: (\S+)$", text, re.MULTILINE)
    }
    methods = [f"equipoise.plan.{each.__name__}" for each in PLANNERS.values()]
    methods += [f"equipoise.split.{each.__name__}" for each in SPLITTERS.values()]
    methods += [f"equipoise.sketch.{each.__name__}" for each in Sketch.__subclasses__()]
    methods += [f"equipoise_lab.variants.{name}" for name in ("KIPPrinted", "DynamicKeyCoded", "DynamicKeyPrinted")]
    for method in methods:
        assert "/figures/" in pages[described_in[method]], method


@pytest.mark.long
def test_every_figure_is_drawn_and_shown(figures):
    shown = {name for text in PAGES.values() for name in re.findall(r"/figures/([\w-]+)\.svg", text)}
    assert shown == set(figures.FIGURES)
    for name in figures.FIGURES:
        drawn = figures.svg(name)
        assert drawn.startswith("<svg")
        assert "currentColor" in drawn
        assert "<style" not in drawn, "it would hold for the whole page"
        assert "nan" not in drawn.lower()


def test_the_picture_of_the_readme_is_there_and_small():
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert shown
    assert all((ROOT / path).stat().st_size < 100_000 for path in shown)


def test_pages_link_to_pages_that_exist():
    """As mkdocs checks it when the site is built; here it takes no time."""
    for name, text in PAGES.items():
        plain = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)", plain):
            if "://" not in target and "figures/" not in target:
                assert (DOCS / name).parent.joinpath(target).exists(), f"{name} links to {target}"


def test_every_page_is_in_the_navigation():
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    assert set(re.findall(r"([\w/-]+\.md)$", nav, re.MULTILINE)) == set(PAGES)


@pytest.mark.long
def test_the_site_is_built_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    page = (tmp_path / "site" / "algorithms" / "planners" / "kip" / "index.html").read_text(encoding="utf-8")
    assert '<figure class="drawing"' in page
    assert "Differs from the paper" in page


def test_the_notebook_runs_and_its_outputs_are_cleared(request, monkeypatch, tmp_path):
    notebook = json.loads((ROOT / "examples" / "equipoise_tour.ipynb").read_text(encoding="utf-8"))
    cells = [each for each in notebook["cells"] if each["cell_type"] == "code"]
    assert all(each["outputs"] == [] and each["execution_count"] is None for each in cells)
    request.getfixturevalue("spark")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for cell in cells:
        exec(compile("".join(cell["source"]), cell["id"], "exec"), namespace)  # noqa: S102 - our own notebook
