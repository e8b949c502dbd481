"""The Spark session of a command: the one that is there, or a quiet one of its own that is stopped at the end."""

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.cli.quiet_spark import start_quietly
from equipoise.errors import InvalidArgumentError, SparkError
from equipoise.requirements import require_java, require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Master = Annotated[
    str | None,
    typer.Option(
        help="Where Spark runs, such as local[4]; default as Spark is set up, else all cores of this machine."
    ),
]
Remote = Annotated[str | None, typer.Option(help="A Spark Connect server instead, such as sc://host:15002.")]
Conf = Annotated[
    list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of Spark; may be given several times.")
]


@contextmanager
def spark_session(
    master: str | None, remote: str | None, conf: Sequence[str] | None, tell: Callable[[str], None]
) -> Iterator["SparkSession"]:
    """A session; what goes wrong in Spark while it is used is told in our words.

    Parameters
    ----------
    master, remote, conf
        As the user gave them.
    tell
        Says what is done now.
    """
    settings = named_values("--conf", conf)
    if master is not None and remote is not None:
        raise InvalidArgumentError("--master starts Spark and --remote goes to one that runs; give one of them")
    require_pyspark()
    from pyspark.sql import SparkSession

    there = SparkSession.getActiveSession()
    if there is None and remote is None and "SPARK_REMOTE" not in os.environ:
        require_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if there is None:
        _hear_only_us()
    tell("starting Spark" if there is None else "Spark is there")
    try:
        spark = there or _started(SparkSession.builder, master, remote, settings)
        try:
            yield spark
        finally:
            if there is None:
                tell("stopping Spark")
                hush(spark)
                spark.stop()
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise SparkError(f"Spark failed: {spark_message(error)}") from error


def is_of_spark(error: Exception) -> bool:
    """Whether Spark raised it, or its bridge to the JVM, a package that a client of Connect does not have."""
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException) or type(error).__module__.partition(".")[0] == "py4j"


def _started(builder: Any, master: str | None, remote: str | None, settings: dict[str, str]) -> "SparkSession":
    settings = {"spark.app.name": "equipoise", **settings}
    if remote is None and "SPARK_REMOTE" not in os.environ:
        return start_quietly(settings if master is None else {"spark.master": master, **settings})
    builder = builder if remote is None else builder.remote(remote)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    return spark


def _hear_only_us() -> None:
    """Show warnings of equipoise, but not those of the bridge to the JVM: what fails there is raised, too."""
    handler = logging.StreamHandler()
    handler.addFilter(logging.Filter("equipoise"))
    logging.getLogger().addHandler(handler)


def hush(spark: "SparkSession") -> None:
    """Let Spark say nothing any more: what is ended in the midst of its work is no error."""
    from pyspark.sql.utils import is_remote

    if not is_remote():
        spark.sparkContext.setLogLevel("OFF")


def named_values(option: str, given: Sequence[str] | None) -> dict[str, str]:
    """Texts of the form NAME=VALUE as a dictionary.

    Parameters
    ----------
    option
        Name of the option, for the error.
    given
        As the user gave them.

    Examples
    --------
    >>> named_values("--conf", ["spark.sql.shuffle.partitions=8", "a=b=c"])
    {'spark.sql.shuffle.partitions': '8', 'a': 'b=c'}
    """
    pairs = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not name.strip() or not equals:
            raise InvalidArgumentError(f"{option} is NAME=VALUE, got {text!r}")
        pairs[name.strip()] = value
    return pairs


def spark_message(error: Exception) -> str:
    """What Spark says, without the trace of its own code."""
    java = getattr(error, "java_exception", None)
    text = str(java.toString()) if java is not None else str(error)
    kept = []
    for line in text.strip().splitlines():
        if line.lstrip().startswith(("at ", "JVM stacktrace", "Driver stacktrace")):
            break
        kept.append(line)
    told = re.sub(r"^[\w.$]+(?:Exception|Error): ", "", "\n".join(kept).strip())
    return re.sub(r"[.;]? SQLSTATE: \w+", "", told) or type(error).__name__
