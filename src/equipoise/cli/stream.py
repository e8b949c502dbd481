"""Run a streaming job that a file describes: ``equipoise stream``."""

import signal
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from rich import filesize

from equipoise.cli.job import JobFile, Prepared
from equipoise.cli.output import Json, Working, require_folder, show, working, write_json
from equipoise.cli.session import Conf, Master, Remote, spark_message, spark_session
from equipoise.errors import EquipoiseError, LogBroken, SparkFailed, StorageFailed

_POLL_SECONDS = 0.2
_REMEMBERED = 10_000  # batches that are told one by one in the JSON, the latest
_LINE = "batch {batch:>6}  {rows:>11,} rows  {seconds:>7.2f} s  fullest {imbalance:5.2f} x mean  {action}"


def command(
    file: Annotated[Path, typer.Argument(help="A TOML file with [source], [query] and [sink].")],
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Say whether the file makes a query that could start, and end.")
    ] = False,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Process all that is there, batch by batch, and end.")
    ] = False,
    batches: Annotated[int | None, typer.Option(min=1, help="End after so many batches.")] = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    json: Json = None,
) -> None:
    """Run a stateful or a micro-batch job from a file, until it ends or Ctrl-C; the same command goes on from there."""
    require_folder(json)
    job = JobFile(file)
    with working("starting") as tell, spark_session(master, remote, [*job.conf, *(conf or ())], tell) as spark:
        tell("building the query")
        prepared = job.prepare(spark, available_now=available_now)
        if not check:
            run = _Run(job, tell)
            run.until_the_end(prepared, batches)
    if check:
        _say_it_is_fine(job, json)
        return
    run.show(json)
    if run.interrupted:
        raise typer.Exit(130)


def _say_it_is_fine(job: JobFile, json: str | None) -> None:
    from equipoise.state.log import CommitLog
    from equipoise.storage import Storage

    checkpoint = job.job.query.checkpoint
    last = max(-1, CommitLog(Storage(checkpoint)).head() - 1)
    if json is not None:
        write_json({"file": str(job.path), "checkpoint": checkpoint, "last_batch": None if last < 0 else last}, json)
        return
    where = "would begin with batch 0" if last < 0 else f"would go on after batch {last}"
    typer.echo(f"{job.path} can be started; in {checkpoint} it {where}")


class _Run:
    """One run of a query, watched from outside: the log of its checkpoint says what became of each batch."""

    def __init__(self, job: JobFile, tell: Working) -> None:
        from equipoise.state.log import CommitLog
        from equipoise.storage import Storage

        self._job, self._tell = job, tell
        self._log = CommitLog(Storage(job.job.query.checkpoint))
        self._seen = max(0, self._log.head())
        self._sums = dict.fromkeys(("count", "rows", "seconds", "imbalance", "applied"), 0.0)
        self._latest: deque[dict[str, Any]] = deque(maxlen=_REMEMBERED)
        self.interrupted = False

    def until_the_end(self, prepared: Prepared, most: int | None) -> None:
        """Start the query and watch it until it ends, is interrupted, or has run ``most`` batches."""
        query = self._job.job.query
        with _interruptions() as asked:
            self._tell("starting the query")
            running = prepared.stream.start(
                prepared.sink, query.checkpoint, trigger=prepared.trigger, queryName=query.name
            )
            try:
                while running.isActive and not asked and (most is None or self._sums["count"] < most):
                    try:
                        self._look()
                    except (StorageFailed, LogBroken) as error:  # of the watching alone: the query has its own word
                        self._tell(f"the log cannot be read at this moment: {error}")
                    time.sleep(_POLL_SECONDS)
                self.interrupted = bool(asked)
                self._let_the_batch_end(running, asked)
            finally:
                running.stop()
            self._look()
        failure = running.exception()
        if failure is not None:
            said = str(failure) if isinstance(failure, EquipoiseError) else spark_message(failure)
            raise SparkFailed(f"the query failed: {said}{self._resume()}") from failure

    def show(self, json: str | None) -> None:
        """Say what became of the batches, and how to go on."""
        summary = self._summary()
        if json is not None:
            write_json(summary | {"interrupted": self.interrupted, "batches": list(self._latest)}, json)
            return
        text = {
            "batches": f"{summary['count']:,}",
            "rows": f"{summary['rows']:,}",
            "seconds": f"{summary['seconds']:.1f}",
            "rows/s": f"{summary['rows_per_second']:,.0f}",
            "fullest / mean": f"{summary['imbalance']:.2f}",
            "new plans": str(summary["plans"]),
            "state": filesize.decimal(summary["state_bytes"]),
        }
        show([text], None, title=f"{self._job.path}: {'interrupted' if self.interrupted else 'ended'}")
        typer.echo(self._resume().lstrip("\n"))

    def _look(self) -> None:
        """Tell of the batches that were committed since."""
        from equipoise.state import chronicle

        head = self._log.head()
        for version in range(max(self._seen + 1, self._log.oldest()), head + 1):
            kept = chronicle.row(self._log.read(version))
            measures, decision = kept["measures"], kept["decision"]
            row = {
                "batch": kept["batch"],
                "rows": measures["rows"],
                "seconds": measures["seconds"],
                "imbalance": measures["imbalance_rows"],
                "state_bytes": measures["state_bytes"],
                "plan": kept["plan"],
                "action": decision["action"],
                "applied": decision["applied"],
                "reason": decision["reason"],
            }
            self._latest.append(row)
            for name in self._sums:
                self._sums[name] += 1 if name == "count" else row[name]
            self._tell.line(_LINE.format(**row))
            self._seen = version
        self._tell(f"waiting for batch {max(0, head)}")

    def _let_the_batch_end(self, running: Any, asked: "_Asked") -> None:
        """Wait until the batch that runs is delivered; a second Ctrl-C ends the wait."""
        before = _last_batch(running)
        wanted = before + 1 if asked else self._seen - 1
        self._tell("letting the batch end; Ctrl-C once more stops at once" if asked else "stopping the query")
        while (
            running.isActive and asked.times < 2 and running.status["isTriggerActive"] and _last_batch(running) < wanted
        ):
            time.sleep(_POLL_SECONDS)

    def _summary(self) -> dict[str, Any]:
        sums, seconds = self._sums, self._sums["seconds"]
        return {
            "checkpoint": self._job.job.query.checkpoint,
            "count": int(sums["count"]),
            "rows": int(sums["rows"]),
            "seconds": seconds,
            "rows_per_second": sums["rows"] / seconds if seconds else 0.0,
            "imbalance": sums["imbalance"] / max(1.0, sums["count"]),
            "plans": int(sums["applied"]),
            "state_bytes": self._latest[-1]["state_bytes"] if self._latest else 0,
        }

    def _resume(self) -> str:
        checkpoint = self._job.job.query.checkpoint
        after = f"after batch {self._seen - 1}" if self._seen else "with batch 0"
        return f"\nrun the same command again to go on {after}; all that is needed is in {checkpoint}"


class _Asked:
    """How often the user has asked to stop."""

    def __init__(self) -> None:
        self.times = 0

    def __bool__(self) -> bool:
        return self.times > 0


@contextmanager
def _interruptions() -> Iterator[_Asked]:
    """Ctrl-C is counted while this is open: Spark's own way would end the jobs of the batch."""
    asked = _Asked()

    def count(_signal: int, _frame: FrameType | None) -> None:
        asked.times += 1
        if asked.times > 2:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, count)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def _last_batch(running: Any) -> int:
    """Number of the batch that Spark has finished last; -1 before the first."""
    progress = running.lastProgress
    return -1 if progress is None else int(progress["batchId"])
