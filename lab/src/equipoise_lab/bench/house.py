"""Size of the library and of the laboratory, and the cost of importing the library."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from equipoise.errors import InvalidArgumentError
from equipoise_lab.bench.harness import Context, Result, median

_ROOT = Path(__file__).parents[4]
_LONG = 500
_IMPORTS = {"import": "import equipoise", "balance_import": "from equipoise.spark import balance"}
_TIMED = """
import sys, time
before, start = set(sys.modules), time.perf_counter()
{statement}
print(1000 * (time.perf_counter() - start), len(set(sys.modules) - before))
"""


def run(context: Context) -> Result:
    """Count lines and words, build the wheel, and import the library in fresh interpreters."""
    if not (_ROOT / "mkdocs.yml").is_file():
        raise InvalidArgumentError(
            "the benchmark house counts the files of a checkout, and equipoise-lab is installed without one; "
            "run it from a clone, after `make setup`"
        )
    library, lab = line_counts(_ROOT / "src" / "equipoise"), line_counts(_ROOT / "lab" / "src")
    long = {path: lines for path, lines in (library | lab).items() if lines > _LONG}
    metrics = {
        "library_lines": sum(library.values()),
        "lab_lines": sum(lab.values()),
        "modules_over_500": len(long),
        "readme_words": len((_ROOT / "README.md").read_text(encoding="utf-8").split()),
        "wheel_kib": wheel_bytes(_ROOT) / 1024,
    }
    samples: dict[str, object] = {"long_modules": long}
    for name, statement in _IMPORTS.items():
        import_cost(statement)  # compiles to bytecode, uncounted
        costs = [import_cost(statement) for _ in range(context.repeats(11, 5))]
        metrics |= {f"{name}_ms": median(ms for ms, _ in costs), f"{name}_modules": costs[0][1]}
        samples[statement] = costs
    return Result(metrics, samples)


def line_counts(folder: Path) -> dict[str, int]:
    """Lines of each Python file under a folder, by its path."""
    files = sorted(folder.rglob("*.py"))
    return {
        path.relative_to(folder.parent).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in files
    }


def wheel_bytes(root: Path) -> int:
    """Size of the wheel of the project in a folder, built without network."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
        subprocess.run(command, cwd=root, capture_output=True, check=True)  # noqa: S603 - a fixed command
        [wheel] = Path(folder).iterdir()
        return wheel.stat().st_size


def import_cost(statement: str) -> tuple[float, int]:
    """Milliseconds of an import in a fresh interpreter, and the number of modules it loads."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", _TIMED.format(statement=statement)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)  # noqa: S603 - a fixed command
    ms, modules = done.stdout.split()
    return float(ms), int(modules)
