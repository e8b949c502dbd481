"""Imports point down the layers only, and only the Spark layer speaks to Spark."""

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import equipoise

ROOT = Path(equipoise.__file__).parent

LAYERS = [
    {
        "errors",
        "arguments",
        "durations",
        "hashing",
        "fingerprint_table",
        "framing",
        "metrics",
        "names",
        "requirements",
        "failpoints",
        "storage",
    },
    {"sketch", "pictures"},
    {"plan", "split"},
    {"adapt"},
    {"simulate", "state"},
    {"microbatch"},
    {"checks", "dashboard", "web_page"},
    {"spark"},
    {"bench"},
    {"reproduce"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
MODULES = sorted(ROOT.rglob("*.py"))


def imported_modules(path):
    """Absolute names of all modules a file imports, at the top or inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            if node.module == "equipoise":
                yield from (f"equipoise.{alias.name}" for alias in node.names)


def part_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


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


@pytest.mark.parametrize("path", MODULES, ids=[str(p.relative_to(ROOT)) for p in MODULES])
def test_only_the_spark_layer_and_what_starts_it_import_pyspark(path):
    if part_of(path) not in {"spark", "bench", "cli"}:
        assert not [name for name in imported_modules(path) if name.split(".")[0] == "pyspark"]


FLOORS = {"rows": set(), "batch": {"rows"}, "stream": {"rows"}, "prompt": {"rows", "stream"}}
"""Floors of the Spark layer, and the floors below that each may import from."""
SPARK_MODULES = sorted(path for floor in FLOORS for path in (ROOT / "spark" / floor).rglob("*.py"))


@pytest.mark.parametrize("path", SPARK_MODULES, ids=[str(p.relative_to(ROOT)) for p in SPARK_MODULES])
def test_a_floor_of_the_spark_layer_imports_only_from_floors_below(path):
    floor = path.relative_to(ROOT / "spark").parts[0]
    for name in imported_modules(path):
        if name.startswith("equipoise.spark"):
            below = name.removeprefix("equipoise.spark").removeprefix(".").partition(".")[0]
            assert below in FLOORS[floor] | {floor}, f"{floor} imports {name}"


def test_every_module_of_the_spark_layer_is_on_a_floor():
    assert {path.name for path in (ROOT / "spark").iterdir() if path.name != "__pycache__"} == {"__init__.py", *FLOORS}


def packages():
    for path in MODULES:
        if path.name == "__init__.py":
            yield ".".join(["equipoise", *path.parent.relative_to(ROOT).parts])


@pytest.mark.parametrize("package", sorted(packages()))
def test_no_export_shadows_a_module(package):
    found = importlib.import_module(package)
    for module in pkgutil.iter_modules(found.__path__):
        exported = getattr(found, module.name, None) if module.name in getattr(found, "__all__", ()) else None
        assert exported is None or exported is sys.modules[f"{package}.{module.name}"], f"{package}.{module.name}"


def test_importing_equipoise_loads_no_spark_and_no_optional_package():
    optional = ("pyspark", "pyarrow", "pandas", "matplotlib")
    code = f"import sys, equipoise; print([m for m in {optional} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_every_part_of_the_package_has_a_layer():
    assert {part_of(path) for path in MODULES} - {"__init__"} <= set(LEVEL)
