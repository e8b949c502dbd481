"""Start Spark on this machine without the noise of its launch: warnings of the JVM, log lines and progress bars."""

import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equipoise.errors import SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": (
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
    ),
}
_SHOWN_LINES = 20


def start_quietly(settings: Mapping[str, str]) -> "SparkSession":
    """Start Spark in a JVM of its own; a setting ``spark.log.level`` makes its log visible again.

    The JVM writes warnings before any logging is set up ("Using incubator modules"), so its output goes to a temporary
    file, which is shown if the start fails.

    Parameters
    ----------
    settings
        Settings of Spark; they win over the quiet ones.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setAll(list((_QUIET | dict(settings)).items()))
    handler = signal.getsignal(signal.SIGINT)
    gateway = None
    if SparkContext._gateway is None:  # noqa: SLF001 - a process has one JVM; the second session finds it running
        gateway = _launch(conf, shows_log="spark.log.level" in settings)
    SparkContext(conf=conf, gateway=gateway)
    # Spark's handler sends a request to the JVM while another one may be under way, which fails; stopping ends jobs too
    signal.signal(signal.SIGINT, handler)
    return SparkSession.builder.getOrCreate()


def _launch(conf: Any, *, shows_log: bool) -> Any:
    """Launch the JVM; if it exits at once, raise ``SparkError`` with the end of what it wrote."""
    from pyspark import java_gateway
    from pyspark.errors import PySparkRuntimeError

    launch_gateway: Any = java_gateway.launch_gateway  # without annotations
    if shows_log:
        return launch_gateway(conf)
    with tempfile.TemporaryFile() as written:
        try:
            return launch_gateway(conf, {"stdout": written, "stderr": written})
        except PySparkRuntimeError as error:
            written.seek(0)
            lines = written.read().decode(errors="replace").strip().splitlines()[-_SHOWN_LINES:]
            raise SparkError("\n".join(["Spark did not start; the JVM exited and wrote:", *lines])) from error
