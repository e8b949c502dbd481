"""The wheel holds the library and nothing else."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from equipoise import __version__

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "adapt", "checks", "cli", "dashboard", "metrics", "microbatch", "plan", "sketch", "spark", "split", "state",
    "storage",
}  # fmt: skip
MODULES = {
    "__init__", "__main__", "arguments", "durations", "errors", "failpoints", "fingerprint_table", "framing", "hashing",
    "decimals", "kernels", "names", "pictures", "readable", "requirements", "testing", "web_page",
}  # fmt: skip
PARTS = {"py.typed", *FOLDERS, *(f"{name}.py" for name in MODULES)}
"""Top-level parts of the package; a new one is added here on purpose."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    [path] = folder.iterdir()
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_the_wheel_holds_the_parts_of_the_library(wheel):
    paths = [name.split("/") for name in wheel.namelist()]
    assert {parts[0] for parts in paths} == {"equipoise", f"equipoise-{__version__}.dist-info"}
    assert {parts[1] for parts in paths if parts[0] == "equipoise"} == PARTS


def test_the_wheel_holds_no_laboratory_no_tests_and_nothing_compiled(wheel):
    for name in wheel.namelist():
        assert not {"equipoise_lab", "lab", "tests", "bench", "simulate", "reproduce", "__pycache__"} & set(
            name.split("/")
        )
    assert {Path(name).suffix for name in wheel.namelist() if name.startswith("equipoise/")} <= {
        ".css", ".html", ".js", ".json", ".properties", ".py", ".svg", ".typed",
    }  # fmt: skip


def test_the_wheel_needs_few_packages_and_its_command_is_the_one_of_the_library(wheel):
    name = f"equipoise-{__version__}.dist-info"
    metadata = wheel.read(f"{name}/METADATA").decode()
    base = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: ") and "extra ==" not in line]
    assert {line.split()[1].partition(">")[0] for line in base} == {"msgspec", "numba", "numpy"}
    assert wheel.read(f"{name}/entry_points.txt").decode().split("\n")[1:2] == ["equipoise = equipoise.cli:main"]
