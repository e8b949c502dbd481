"""Runs cases in a process of its own, since a process has one kind of Spark, Classic or Connect.

``python -m equipoise_lab.conformance.worker CLIENT`` reads names of cases, a line each, and prints the outcomes of each
as JSON. A process that ends or takes too long is replaced, and its case counts as crashed.
"""

import os
import signal
import subprocess
import sys
import tempfile
from threading import Event, Timer
from typing import IO, Self, cast

import msgspec
from pyspark.sql import SparkSession

from equipoise.cli.quiet_spark import start_quietly
from equipoise_lab.conformance.cases import CASES
from equipoise_lab.conformance.harness import START_SECONDS
from equipoise_lab.conformance.recorded import SETTINGS
from equipoise_lab.conformance.verdict import Client, Outcome, crashed, outcomes

_MARK = b"outcome "
_SPARK_SECONDS = 300.0  # in which Spark starts, also on a busy machine
_STOP_SECONDS = 60.0
_LAST_LINES = 15


class Worker:
    """A process with Spark that runs one case after the other; it starts with the first.

    Parameters
    ----------
    client
        ``"classic"`` or ``"connect"``.
    seconds
        Limit of a case; default the limits of its starts with both engines, and the time in which Spark starts.
    """

    def __init__(self, client: Client, seconds: float | None = None) -> None:
        self.client = client
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None:
            self._kill()  # it may be in the middle of a case
        self._end()

    def outcomes(self, name: str) -> list[Outcome]:
        """Run a case in all its forms."""
        seconds = self._seconds or _SPARK_SECONDS + 2 * START_SECONDS * len(CASES[name].steps)
        process = self._process or self._start()
        late = Event()

        def end() -> None:
            late.set()
            self._kill()

        limit = Timer(seconds, end)
        limit.start()
        try:
            found = _answer(process, name)
        finally:
            limit.cancel()
        if found is not None:
            return found
        last = self._end()
        ended = f"no result within {seconds:.0f} s" if late.is_set() else f"exit code {process.returncode}"
        return [crashed(name, form, self.client, f"{ended}: {last}") for form in CASES[name].forms]

    def _kill(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def _start(self) -> "subprocess.Popen[bytes]":
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by _end
        self._process = subprocess.Popen(  # noqa: S603 - a fixed command
            [sys.executable, "-m", __name__, self.client],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        return self._process

    def _end(self) -> str:
        """End the process, and return the last lines of its log."""
        process, log, self._process, self._log = self._process, self._log, None, None
        if process is None or log is None:
            return ""
        with process, log:
            try:
                process.communicate(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            log.seek(0)
            return "\n".join(log.read().decode(errors="replace").splitlines()[-_LAST_LINES:])


def _answer(process: "subprocess.Popen[bytes]", name: str) -> list[Outcome] | None:
    """Give a process the name of a case, and return the outcomes; ``None`` if it ends without."""
    assert process.stdin is not None  # noqa: S101 - a pipe, as the next
    assert process.stdout is not None  # noqa: S101
    try:
        process.stdin.write(f"{name}\n".encode())
        process.stdin.flush()
    except BrokenPipeError:
        return None
    for line in process.stdout:
        if line.startswith(_MARK):
            return msgspec.json.decode(line.removeprefix(_MARK), type=list[Outcome])
    return None


def _session(client: Client) -> SparkSession:
    if client == "classic":
        return start_quietly(SETTINGS)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return SparkSession.builder.remote("local[2]").getOrCreate()


def _run(client: Client) -> None:
    spark = _session(client)
    try:
        for line in sys.stdin:
            found = msgspec.json.encode(outcomes(spark, line.strip(), client))
            print(f"{_MARK.decode()}{found.decode()}", flush=True)  # noqa: T201 - the answer
    finally:
        spark.stop()


if __name__ == "__main__":
    _run(cast("Client", sys.argv[1]))
