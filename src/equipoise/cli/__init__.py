"""The command line: ``equipoise``.

Exit codes: 0 done, 1 an error of equipoise (its message says what to do), 2 wrong usage, 130 interrupted.
"""

import os
import sys
from importlib import import_module

from equipoise.errors import EquipoiseError, MissingPackageError
from equipoise.requirements import missing_text

_EXTRAS = {
    "pyarrow": "dashboard",
    "matplotlib": "plot",
    **dict.fromkeys(("pyspark", "pandas", "lmdb", "grpc"), "spark"),
    **dict.fromkeys(("typer", "rich"), "cli"),
}
"""Packages that are not always installed, and the extra that installs each."""


def main() -> None:
    """Run the command line."""
    run("equipoise.cli.commands")


def run(module: str) -> None:
    """Run the commands of a module, and end the process with exit code 1 if they raise an error of equipoise.

    Parameters
    ----------
    module
        Full name of a module that has a Typer application as ``app``. It is imported here, because a package that it
        needs may be missing.
    """
    try:
        import_module(module).app()
    except EquipoiseError as error:
        _print_error(error)
        sys.exit(1)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        _print_error(MissingPackageError(missing_text("this", package, _EXTRAS[package])))
        sys.exit(1)


def _print_error(error: EquipoiseError) -> None:
    """Print code and message; the code is red on a terminal."""
    in_colour = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    code = f"\033[1;31m{error.code}\033[0m" if in_colour else error.code
    sys.stderr.write(f"{code} {error}\n")
