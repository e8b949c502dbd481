"""Imports point down the layers only, only the Spark layer speaks to Spark, and the library knows no laboratory."""

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import equipoise
import equipoise_lab

ROOT = Path(equipoise.__file__).parent
LAB = Path(equipoise_lab.__file__).parent

LAYERS = [
    {
        "errors",
        "arguments",
        "decimals",
        "durations",
        "hashing",
        "fingerprint_table",
        "framing",
        "kernels",
        "metrics",
        "names",
        "readable",
        "requirements",
        "failpoints",
        "storage",
    },
    {"sketch", "pictures"},
    {"plan", "split"},
    {"adapt"},
    {"state"},
    {"microbatch"},
    {"checks", "dashboard", "web_page"},
    {"spark"},
    {"testing"},
    {"cli"},
    {"__main__"},
]
LAB_LAYERS = [
    {"variants", "spark_settings"},
    {"simulate", "conformance"},
    {"bench"},
    {"reproduce"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
LAB_LEVEL = {name: level for level, names in enumerate(LAB_LAYERS) for name in names}
MODULES = sorted(ROOT.rglob("*.py"))
LAB_MODULES = sorted(LAB.rglob("*.py"))


def imported_modules(path):
    """Absolute names of all modules a file imports, at the top or inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            if node.module in {"equipoise", "equipoise_lab"}:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part_of(path, root=ROOT):
    return path.relative_to(root).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", MODULES, ids=[str(p.relative_to(ROOT)) for p in MODULES])
def test_a_module_imports_only_from_its_own_layer_or_below(path):
    part = part_of(path)
    if part == "__init__":
        return
    for name in imported_modules(path):
        if name.startswith("equipoise."):
            other = name.split(".")[1]
            if other in LEVEL and other != part:
                assert LEVEL[other] < LEVEL[part] or {other, part} <= LAYERS[0], f"{part} imports {name}"


@pytest.mark.parametrize("path", LAB_MODULES, ids=[str(p.relative_to(LAB)) for p in LAB_MODULES])
def test_a_module_of_the_laboratory_imports_only_from_its_own_layer_or_below(path):
    part = part_of(path, LAB)
    for name in imported_modules(path):
        other = name.split(".")[1] if name.startswith("equipoise_lab.") else None
        if other in LAB_LEVEL and other != part:
            assert LAB_LEVEL[other] < LAB_LEVEL[part], f"{part} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=[str(p.relative_to(ROOT)) for p in MODULES])
def test_the_library_imports_nothing_of_the_laboratory(path):
    assert not [name for name in imported_modules(path) if name.split(".")[0] == "equipoise_lab"]


@pytest.mark.parametrize("path", MODULES, ids=[str(p.relative_to(ROOT)) for p in MODULES])
def test_only_the_command_line_imports_rich_and_typer(path):
    if part_of(path) != "cli":
        assert not [name for name in imported_modules(path) if name.split(".")[0] in {"rich", "typer"}]


@pytest.mark.parametrize("path", MODULES, ids=[str(p.relative_to(ROOT)) for p in MODULES])
def test_only_the_spark_layer_and_what_starts_it_import_pyspark(path):
    if part_of(path) not in {"spark", "cli"}:
        assert not [name for name in imported_modules(path) if name.split(".")[0] == "pyspark"]


FLOORS = {
    "rows": set(),
    "batch": {"rows"},
    "stream": {"rows"},
    "prompt": {"rows", "stream"},
    "testing": {"rows", "stream"},
    "_balance": {"rows", "batch", "stream"},
}
"""Floors of the Spark layer, and the floors below that each may import from; batch imports nothing of streams."""
SPARK_MODULES = sorted(path for path in (ROOT / "spark").rglob("*.py") if path != ROOT / "spark" / "__init__.py")


@pytest.mark.parametrize("path", SPARK_MODULES, ids=[str(p.relative_to(ROOT)) for p in SPARK_MODULES])
def test_a_floor_of_the_spark_layer_imports_only_from_floors_below(path):
    floor = part_of(path, ROOT / "spark")
    for name in imported_modules(path):
        if name.startswith("equipoise.spark"):
            below = name.removeprefix("equipoise.spark").removeprefix(".").partition(".")[0]
            assert below in FLOORS[floor] | {floor}, f"{floor} imports {name}"


def test_every_module_of_the_spark_layer_is_on_a_floor():
    assert {part_of(path, ROOT / "spark") for path in SPARK_MODULES} == set(FLOORS)


def test_no_floor_imports_both_batches_and_streams_but_balance():
    both = [floor for floor, below in FLOORS.items() if {"batch", "stream"} <= below | {floor}]
    assert both == ["_balance"]


def submodules():
    for package in (equipoise, equipoise_lab):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(".__main__"):
                yield module.name


@pytest.mark.parametrize("name", sorted(submodules()))
def test_no_name_of_a_package_shadows_one_of_its_modules(name):
    """``from package import name`` gives the module, whether or not ``name`` is exported."""
    module = importlib.import_module(name)
    package, _, short = name.rpartition(".")
    assert getattr(importlib.import_module(package), short) is module


HEAVY = ("numba", "llvmlite", "rich", "typer", "pandas", "pyarrow", "pyspark", "matplotlib")


def heavy_packages_after(statement):
    """Those of the heavy packages that a new interpreter has loaded after a statement."""
    code = f"import sys; {statement}; print(*[name for name in {HEAVY} if name in sys.modules])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_importing_equipoise_loads_numpy_and_no_heavy_package():
    assert heavy_packages_after("import equipoise") == []


def test_making_a_plan_and_a_sketch_loads_no_numba_before_they_are_used():
    assert heavy_packages_after("import equipoise; equipoise.uniform_plan(4); equipoise.sketch.SpaceSaving(9)") == []
    assert "numba" in heavy_packages_after("import equipoise; equipoise.fingerprint(1)")


def test_importing_the_spark_layer_loads_no_numba():
    assert {"numba", "llvmlite"}.isdisjoint(heavy_packages_after("import equipoise.spark"))


def test_every_part_of_the_package_has_a_layer():
    assert {part_of(path) for path in MODULES} - {"__init__"} == set(LEVEL)
    assert {part_of(path, LAB) for path in LAB_MODULES} - {"__init__"} == set(LAB_LEVEL)
