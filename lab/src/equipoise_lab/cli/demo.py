"""The demo: a skewed, drifting stream with keyed state on local Spark, placed by plain hash and by equipoise."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.syntax import Syntax
from rich.table import Table

from equipoise.cli.output import Json, require_folder, write_json
from equipoise.errors import InvalidArgumentError
from equipoise.pictures import partition_bars, require_matplotlib, stream_figure
from equipoise.readable import seconds_text, size_text
from equipoise.web_page import PageSection, as_page, as_svg, as_table

_HASH, _BALANCED = "plain hash", "equipoise"
_KEYS = 2000
_SCHEMA = "key long, value long"
_CODE = """\
from equipoise.spark import balance

totals = balance(stream, "key").process(Totals(), "key long, n long, sum long")
writer = totals.writeStream.option("checkpointLocation", "checkpoint")
writer.format("parquet").start("totals")
"""


@dataclass(frozen=True)
class _Load:
    """Size and shape of the stream."""

    partitions: int
    slots: int
    batches: int
    rows: int
    skew: float
    ideal: float
    seed: int

    def batch_keys(self) -> list[NDArray[np.int64]]:
        """Keys of each batch; the hot ones are replaced by others at half-time."""
        from equipoise_lab.bench.stream_drift import drifting_keys

        return drifting_keys(self.batches, _KEYS, self.rows, self.seed, self.skew)

    def bounds(self) -> list[float]:
        """Imbalance of each batch that no plan can beat while keys stay whole."""
        from equipoise.metrics import lower_bound

        hottest = (np.unique(batch, return_counts=True)[1].max() / len(batch) for batch in self.batch_keys())
        return [lower_bound(self.partitions, share) for share in hottest]

    def totals(self) -> dict[tuple[int], tuple[int, int]]:
        """Rows and sum of values of each key, computed without Spark."""
        keys, counts = np.unique(np.concatenate(self.batch_keys()), return_counts=True)
        return {(key,): (count, count * (key % 7)) for key, count in zip(keys.tolist(), counts.tolist(), strict=True)}

    def __str__(self) -> str:
        """Describe the stream and what is compared."""
        return (
            f"A stream of {self.batches} batches of {self.rows:,} rows with {_KEYS:,} keys (Zipf {self.skew:g}) runs "
            f"twice, on {self.partitions} partitions: placed by Spark's plain hash, and by equipoise. A count and a "
            f"sum are kept for each key. Halfway the hot keys are replaced by others. The work of a row is emulated "
            f"by waiting, so {self.slots} tasks run at a time on any number of cores."
        )


def command(
    *,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("demo"),
    partitions: Annotated[int, typer.Option(min=2, help="Number of partitions.")] = 8,
    slots: Annotated[int, typer.Option(min=1, help="Tasks that run at a time; may exceed the number of cores.")] = 8,
    batches: Annotated[int, typer.Option(min=4, help="Number of batches.")] = 10,
    rows: Annotated[int, typer.Option(min=100, help="Rows in a batch.")] = 20_000,
    skew: Annotated[
        float, typer.Option(min=0, help="Zipf exponent of the keys; at 1 the hottest key just fills a task.")
    ] = 1.0,
    ideal: Annotated[
        float, typer.Option(min=0, help="Seconds of work in a batch if it were spread evenly over the slots.")
    ] = 1.0,
    # of the seeds 1 to 6 a typical one: plain hash has an imbalance between 1.7 and 2.5, with this one 1.9
    seed: Annotated[int, typer.Option(min=0, help="Seed of the stream.")] = 2,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Serve and open the live page of the balanced run while it runs.")
    ] = False,
    json: Json = None,
) -> None:
    """Run a skewed stream by plain hash and by equipoise; print a table and write a report with pictures.

    Exits with 1 if the results of the two runs differ.
    """
    require_folder(json)
    require_matplotlib()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgumentError(
            f"the folder {out} cannot be created ({error}); name another one with --out"
        ) from error
    load = _Load(partitions, slots, batches, rows, skew, ideal, seed)
    console = Console(stderr=json == "-", highlight=False)
    console.print(str(load), "You will see the progress, a table, and a report with pictures; about a minute.\n")
    found = _measured(console, load, dashboard=dashboard)
    expected = load.totals()
    equal = all(run["state"] == expected for run in found.values())
    summary = _summary(found, load)
    console.print(_table(summary))
    console.print(
        "Imbalance is the number of rows of the fullest task over the mean, on average and in the last batch. "
        f"No plan can go below the bound, {np.mean(load.bounds()):.2f}, while every key stays whole.\n"
    )
    console.print(
        f"Results: the {len(expected):,} totals of both runs equal those computed without Spark.\n"
        if equal
        else "[bold red]Results: the totals of the runs differ from those computed without Spark.[/]\n"
    )
    path = (out / "report.html").resolve()
    path.write_text(_page(found, summary, load), encoding="utf-8")
    console.print(f"Report with pictures: [bold]{path}[/]\n", soft_wrap=True)
    console.print("The lines that do it:")
    console.print(Syntax(_CODE, "python", background_color="default", word_wrap=True))
    if json is not None:
        logs = {name: run["log"] for name, run in found.items()}
        write_json({"report": str(path), "results_equal": equal, "bounds": load.bounds(), "batch_logs": logs}, json)
    if not equal:
        raise typer.Exit(1)


def _start(stream: Any, load: _Load, checkpoint: Path, *, plain_hash: bool) -> Any:
    """Start the query that counts and sums by key."""
    from equipoise.spark import balance
    from equipoise_lab.bench.stream import ONCE, TOTALS, VectorTotals, discard

    processor = VectorTotals(time.sleep, load.ideal * load.slots / load.rows)
    totals = balance(stream, "key", numPartitions=load.partitions, placement="hash" if plain_hash else "plan").process(
        processor, TOTALS
    )
    writer = totals.writeStream.foreachBatch(discard).trigger(**ONCE)
    return writer.option("checkpointLocation", str(checkpoint)).start()


def _batch_log(checkpoint: Path) -> list[dict[str, Any]]:
    from equipoise.state.batch_log import batch_log_rows

    return batch_log_rows(str(checkpoint))


def _measured(console: Console, load: _Load, *, dashboard: bool) -> dict[str, dict[str, Any]]:
    """Batch log and final state of each run."""
    from equipoise_lab.bench.local_spark import local_spark
    from equipoise_lab.bench.stream import read_batches, scratch, write_batches

    found: dict[str, dict[str, Any]] = {}
    columns = TextColumn("{task.description:<11}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn()
    with (
        Progress(*columns, TextColumn("{task.fields[now]}"), console=console) as progress,
        scratch() as folder,
    ):
        waiting = progress.add_task("Spark", total=None, now="starting")
        with local_spark(load.slots) as spark:
            write_batches(folder / "rows", [{"key": keys, "value": keys % 7} for keys in load.batch_keys()], load.slots)
            _warm_up(spark, folder, load.slots)
            progress.remove_task(waiting)
            for name in (_HASH, _BALANCED):
                task = progress.add_task(name, total=load.batches, now="")
                stream = read_batches(spark, folder / "rows", _SCHEMA, load.slots)
                checkpoint = folder / name.replace(" ", "-")
                with _served(checkpoint, console) if dashboard and name == _BALANCED else nullcontext():
                    query = _start(stream, load, checkpoint, plain_hash=name == _HASH)
                    _follow(query, checkpoint, progress, task)
                found[name] = {"log": _batch_log(checkpoint), "state": _state(checkpoint)}
    return found


@contextmanager
def _served(checkpoint: Path, console: Console) -> Iterator[None]:
    """Serve the live page of a checkpoint at a free port during the block."""
    from equipoise.cli.dashboard import announce
    from equipoise.dashboard import DashboardServer, Watcher

    checkpoint.mkdir(parents=True)
    server = DashboardServer(Watcher(str(checkpoint)))
    server.start()
    try:
        announce(server, console, open_page=True)
        yield
    finally:
        server.stop()


def _warm_up(spark: Any, folder: Path, slots: int) -> None:
    """Start Python workers, and let the JVM and numba compile before the two runs: planning is compiled once."""
    from equipoise_lab.bench.stream import read_batches, write_batches

    small = _Load(slots, slots, 2, 1000, 0.0, 0.0, 0)
    keys = np.arange(small.rows)
    skewed = np.where(keys % 3 == 0, keys % 5, keys)
    write_batches(folder / "warm", [{"key": skewed, "value": keys}] * small.batches, slots)
    for plain_hash in (True, False):
        stream = read_batches(spark, folder / "warm", _SCHEMA, slots)
        _start(stream, small, folder / f"warm-{plain_hash}", plain_hash=plain_hash).awaitTermination()


def _follow(query: Any, checkpoint: Path, progress: Progress, task: TaskID) -> None:
    """Show the progress of a query until it ends; raise its error if it fails."""
    try:
        while query.isActive:
            _show_progress(_batch_log(checkpoint), progress, task)
            query.awaitTermination(0.3)
    finally:
        query.stop()
    if (failure := query.exception()) is not None:
        raise failure
    _show_progress(_batch_log(checkpoint), progress, task)


def _show_progress(log: list[dict[str, Any]], progress: Progress, task: TaskID) -> None:
    if not log:
        return
    last, plans = log[-1], sum(1 for each in log if each["applied"])
    now = f"{seconds_text(last['seconds'])}, imbalance {last['imbalance_rows']:.2f}, {plans} new plans"
    progress.update(task, completed=len(log), now=now)


def _state(checkpoint: Path) -> dict[tuple[Any, ...], tuple[int, int]]:
    from equipoise.state.state_dump import local_states

    return {tuple(state.pop("")): tuple(state["state"]) for _, state in local_states(str(checkpoint))}


def _summary(found: dict[str, dict[str, Any]], load: _Load) -> list[dict[str, str]]:
    summary = []
    for name, run in found.items():
        log = run["log"]
        seconds = sum(each["seconds"] for each in log)
        moved = sum(each["move_bytes"] or 0 for each in log if each["applied"])
        summary.append(
            {
                "placed by": name,
                "time": f"{seconds:.1f} s",
                "rows/s": f"{load.batches * load.rows / seconds:,.0f}",
                "imbalance": f"{np.mean([each['imbalance_rows'] for each in log]):.2f}",
                "at end": f"{log[-1]['imbalance_rows']:.2f}",
                "bound": f"{np.mean(load.bounds()):.2f}",
                "plans": str(sum(1 for each in log if each["applied"])),
                "moved": size_text(moved),
            }
        )
    return summary


def _table(summary: list[dict[str, str]]) -> Table:
    table = Table()
    for heading in summary[0]:
        table.add_column(heading, justify="left" if heading == "placed by" else "right")
    for row in summary:
        table.add_row(*row.values(), style="bold" if row["placed by"] == _BALANCED else None)
    return table


def _page(found: dict[str, dict[str, Any]], summary: list[dict[str, str]], load: _Load) -> str:
    logs = {name: run["log"] for name, run in found.items()}
    last = {"hash" if name == _HASH else "balanced": _shares(log[-1]["partition_rows"]) for name, log in logs.items()}
    decisions = [
        {"batch": each["batch"], "decision": each["action"], "reason": each["reason"]} for each in logs[_BALANCED]
    ]
    tasks = f"Rows of each of the {load.partitions} tasks"
    return as_page(
        "equipoise: a drifting stream, by plain hash and balanced",
        str(load),
        [
            PageSection("Result", as_table(summary)),
            PageSection("Batch by batch", as_svg(stream_figure(logs, load.bounds()))),
            PageSection("The last batch", as_svg(partition_bars(last, title=tasks))),
            PageSection("Decisions and their reasons", as_table(decisions)),
        ],
    )


def _shares(rows: list[int]) -> NDArray[np.float64]:
    return np.array(rows, dtype=np.float64) / max(1, sum(rows))
