"""The user's own code, named in a job file as ``module:object``."""

import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equipoise.errors import InvalidArgument, UserFunctionFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def look_in(folder: Path) -> None:
    """Find modules beside the job file: here, and in the Python processes of a Spark that this process starts."""
    place = str(folder.resolve())
    if place not in sys.path:
        sys.path.insert(0, place)
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if place not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([place, *(each for each in known if each)])


def imported(name: str, entry: str) -> Any:
    """What a job file names.

    Parameters
    ----------
    name
        Module and object, with a colon between them.
    entry
        The entry of the file, for errors.

    Examples
    --------
    >>> imported("math:tau", "processor")
    6.283185307179586
    """
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise InvalidArgument(f"{entry} is module:object, for example visits:Slowest, got {name!r}")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name.split(".")[0]:
            raise _failed(f"importing {module_name}", entry, error) from error
        raise InvalidArgument(
            f"there is no module {module_name!r} for {entry}; put {module_name}.py beside the job file, or install it"
        ) from error
    except Exception as error:
        raise _failed(f"importing {module_name}", entry, error) from error
    if not hasattr(module, attribute):
        there = ", ".join(each for each in vars(module) if not each.startswith("_"))
        raise InvalidArgument(f"the module {module_name} has no {attribute!r} for {entry}; it has {there}")
    return getattr(module, attribute)


def made(name: str, entry: str) -> Any:
    """An instance of the class that a job file names, or the object itself."""
    found = imported(name, entry)
    if not isinstance(found, type):
        return found
    try:
        return found()
    except Exception as error:
        raise _failed(f"{name.partition(':')[2]}()", entry, error) from error


def ship(spark: "SparkSession", names: list[str], folder: Path) -> None:
    """Give the modules that lie beside the job file to the executors."""
    files = {sys.modules[name.partition(":")[0]].__file__ for name in names}
    for file in sorted(each for each in files if each is not None):
        if Path(file).resolve().parent == folder.resolve():
            spark.addArtifacts(file, pyfile=True)


def _failed(what: str, entry: str, error: Exception) -> UserFunctionFailed:
    return UserFunctionFailed(f"{what}, for {entry}, failed: {type(error).__name__}: {error}")
