"""Checks of the requirements of Spark, made before Spark is started."""

import os
import re
import shutil
import subprocess
from importlib.metadata import version as version_of
from importlib.util import find_spec
from pathlib import Path

from equipoise.errors import SparkUnavailableError

MINIMUM_JAVA = 17
"""Oldest Java that Spark 4 runs on."""

MINIMUM_SPARK = (4, 1)
"""Oldest Spark that can place rows by partition number."""

_JAVA_NEEDED = f"this needs Spark, and Spark needs Java {MINIMUM_JAVA} or newer"
_INSTALL_JAVA = "install it with: apt-get install openjdk-17-jre-headless (or brew install openjdk@17)"


def missing_text(purpose: str, package: str, extra: str) -> str:
    """Return the message that a package is missing, with the command that installs it.

    Parameters
    ----------
    purpose
        What needs the package.
    package
        The package.
    extra
        The extra of equipoise that contains it.

    Examples
    --------
    >>> print(missing_text("a picture", "matplotlib", "plot"))
    a picture needs matplotlib, which is not installed; in a checkout of equipoise, run: pip install '.[plot]'
    """
    return (
        f"{purpose} needs {package}, which is not installed; in a checkout of equipoise, run: pip install '.[{extra}]'"
    )


def require_pyspark() -> None:
    """Raise ``SparkUnavailableError`` with the command to install pyspark, if it is missing or too old."""
    if find_spec("pyspark") is None:
        raise SparkUnavailableError(missing_text("this", "pyspark", "spark"))
    require_spark_version(version_of("pyspark"))


def require_spark_version(version: str) -> None:
    """Raise ``SparkUnavailableError`` if a version of Spark is too old."""
    if tuple(int(part) for part in version.split(".")[:2]) < MINIMUM_SPARK:
        raise SparkUnavailableError(
            f"Spark {version} cannot place rows by partition number (repartitionById); use Spark 4.1 or newer"
        )


def require_java() -> None:
    """Raise ``SparkUnavailableError`` with the command to install Java, if it is missing or too old.

    A client of Spark Connect needs no Java. Call this only before a local Spark is started.
    """
    found = java_version()
    if found is None:
        raise SparkUnavailableError(f"{_JAVA_NEEDED}, but no Java was found; {_INSTALL_JAVA}")
    if found < MINIMUM_JAVA:
        raise SparkUnavailableError(f"{_JAVA_NEEDED}, but Java {found} was found; {_INSTALL_JAVA}")


def java_version() -> int | None:
    """Return the major version of the Java that Spark would start, ``None`` if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None:
        return None
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603 - the user's own Java
    except OSError:
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(version[1]) if version else None
