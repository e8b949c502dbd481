"""The main job: a skewed, drifting stream through a stateful job on local Spark, by plain hash and by equipoise."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from equipoise.cli.output import Json, require_folder, write_json
from equipoise.errors import InvalidArgumentError
from equipoise.pictures import partition_bars, require_matplotlib, stream_figure
from equipoise.web_page import Section, as_page, as_svg, as_table

_RUNS: dict[str, dict[str, Any]] = {"plain hash": {"placement": "hash"}, "equipoise": {}}
_KEYS = 2000
_SCHEMA = "key long, value long"


def command(
    *,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("demo"),
    partitions: Annotated[int, typer.Option(min=2, help="Number of partitions.")] = 16,
    slots: Annotated[int, typer.Option(min=1, help="Tasks at a time; they wait, so there may be more than cores.")] = 8,
    batches: Annotated[int, typer.Option(min=4, help="Number of batches.")] = 10,
    rows: Annotated[int, typer.Option(min=100, help="Rows in a batch.")] = 20_000,
    ideal: Annotated[
        float, typer.Option(min=0, help="Seconds of work in a batch, if it were spread evenly over the slots.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the stream.")] = 1,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Serve and open the live page of the balanced run while it runs.")
    ] = False,
    json: Json = None,
) -> None:
    """Run a stream by plain hash and by equipoise; print a table and write a report with pictures."""
    require_folder(json)
    require_matplotlib()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgumentError(f"the folder {out} cannot be made ({error}); name another with --out") from error
    console = Console(stderr=json == "-")
    swap = batches // 2
    told = (
        f"A stream of {batches} batches of {rows:,} rows over {_KEYS:,} keys, Zipf 1.2; at batch {swap} the hot keys "
        "are swapped all at once. Rows and sums of every key are kept as state, on "
        f"{partitions} partitions. The work of a row is emulated: it waits, so that {slots} tasks run at a time "
        "whatever the number of cores."
    )
    console.print(told)
    found = _measured(console, partitions, slots, batches, rows, ideal, seed, dashboard=dashboard)
    same = found["plain hash"]["state"] == found["equipoise"]["state"]
    summary = _summary(found, batches * rows, same=same)
    console.print(_table(summary))
    path = out / "report.html"
    path.write_text(_page(found, summary, told, partitions), encoding="utf-8")
    console.print(f"Report with pictures: [bold]{path.resolve()}[/]", soft_wrap=True)
    if json is not None:
        histories = {name: run["history"] for name, run in found.items()}
        write_json({"report": str(path.resolve()), "same_state": same, "histories": histories}, json)
    if not same:
        raise typer.Exit(1)


def _measured(
    console: Console, partitions: int, slots: int, batches: int, rows: int, ideal: float, seed: int, *, dashboard: bool
) -> dict[str, dict[str, Any]]:
    """History, state and bounds of each run."""
    from equipoise.metrics import lower_bound
    from equipoise_lab.bench.local_spark import local_spark
    from equipoise_lab.bench.stream import read_batches, scratch, write_batches
    from equipoise_lab.bench.stream_drift import drifting_keys

    keys = drifting_keys(batches, _KEYS, rows, seed)
    bounds = [lower_bound(partitions, np.unique(batch, return_counts=True)[1].max() / len(batch)) for batch in keys]
    found: dict[str, dict[str, Any]] = {}
    columns = TextColumn("{task.description:<11}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with (
        Progress(*columns, TextColumn("{task.fields[now]}"), console=console) as progress,
        scratch() as folder,
    ):
        waiting = progress.add_task("Spark", total=None, now="starting")
        with local_spark(slots) as spark:
            write_batches(folder / "rows", [{"key": batch, "value": batch % 7} for batch in keys], slots)
            progress.remove_task(waiting)
            _warm_up(spark, folder, slots)
            for name, options in _RUNS.items():
                task = progress.add_task(name, total=batches, now="")
                stream = read_batches(spark, folder / "rows", _SCHEMA, slots)
                at = folder / name.replace(" ", "-")
                with _served(at, console) if dashboard and name == "equipoise" else nullcontext():
                    found[name] = _run(stream, at, partitions, ideal * slots / rows, options, progress, task)
                found[name]["bounds"] = bounds
    return found


@contextmanager
def _served(checkpoint: Path, console: Console) -> Iterator[None]:
    """The live page of a checkpoint, at a free port, as long as the block lasts."""
    from equipoise.cli.dashboard import tell
    from equipoise.dashboard import DashboardServer, Watcher

    checkpoint.mkdir(parents=True)
    server = DashboardServer(Watcher(str(checkpoint)))
    server.start()
    try:
        tell(server, console, open_page=True)
        yield
    finally:
        server.stop()


def _warm_up(spark: Any, folder: Path, slots: int) -> None:
    """Start Python workers and let the JVM compile, outside of both runs."""
    from equipoise_lab.bench.stream import TOTALS, VectorTotals, read_batches, run_stateful, write_batches

    write_batches(folder / "warm", [{"key": np.arange(100), "value": np.arange(100)}] * 2, slots)
    run_stateful(read_batches(spark, folder / "warm", _SCHEMA, slots), VectorTotals(), TOTALS, slots, folder / "first")


def _run(
    stream: Any, at: Path, partitions: int, per_row: float, options: dict[str, Any], progress: Progress, task: Any
) -> dict[str, Any]:
    from equipoise.state.history import batch_log_rows
    from equipoise.state.state_dump import local_states
    from equipoise_lab.bench.stream import ONCE, TOTALS, VectorTotals, discard, keyed

    made = keyed(stream, VectorTotals(time.sleep, per_row), TOTALS, partitions, **options)
    query = made.writeStream.foreachBatch(discard).trigger(**ONCE).option("checkpointLocation", str(at)).start()
    try:
        while query.isActive:
            _tell(batch_log_rows(str(at)), progress, task)
            query.awaitTermination(0.3)
    finally:
        query.stop()
    if (failure := query.exception()) is not None:
        raise failure
    history = batch_log_rows(str(at))
    _tell(history, progress, task)
    return {"history": history, "state": {state.pop(""): state["state"] for _, state in local_states(str(at))}}


def _tell(history: list[dict[str, Any]], progress: Progress, task: Any) -> None:
    if not history:
        return
    last = history[-1]
    moves = sum(1 for each in history if each["applied"])
    now = f"{last['seconds']:.1f} s a batch, fullest task {last['imbalance_rows']:.2f} x the mean, {moves} new plans"
    progress.update(task, completed=len(history), now=now)


def _summary(found: dict[str, dict[str, Any]], rows: int, *, same: bool) -> list[dict[str, str]]:
    summary = []
    for name, run in found.items():
        history = run["history"]
        seconds = sum(each["seconds"] for each in history)
        bytes_moved = sum(each["move_bytes"] or 0 for each in history if each["applied"])
        summary.append(
            {
                "": name,
                "time": f"{seconds:.1f} s",
                "rows/s": f"{rows / seconds:,.0f}",
                "imbalance": f"{np.mean([each['imbalance_rows'] for each in history]):.2f}",
                "bound": f"{np.mean(run['bounds']):.2f}",
                "plans": str(sum(1 for each in history if each["applied"])),
                "moved": f"{bytes_moved:,.0f} B",
                "same state": "yes" if same else "NO",
            }
        )
    return summary


def _table(summary: list[dict[str, str]]) -> Table:
    table = Table(
        title="Imbalance: rows of the fullest task over the mean, on average; no plan gets below the bound",
        title_justify="left",
    )
    for heading in summary[0]:
        table.add_column(heading, justify="left" if heading == "" else "right")
    for row in summary:
        table.add_row(*row.values(), style="bold" if row[""] == "equipoise" else None)
    return table


def _page(found: dict[str, dict[str, Any]], summary: list[dict[str, str]], told: str, partitions: int) -> str:
    histories = {name: run["history"] for name, run in found.items()}
    bounds = found["equipoise"]["bounds"]
    last = {
        "hash" if name == "plain hash" else "balanced": _shares(history[-1]["partition_rows"])
        for name, history in histories.items()
    }
    decisions = [
        {"batch": each["batch"], "decision": each["action"], "why": each["reason"]} for each in histories["equipoise"]
    ]
    return as_page(
        "equipoise: a drifting stream, by plain hash and balanced",
        told,
        [
            Section("Result", as_table(summary)),
            Section("Batch by batch", as_svg(stream_figure(histories, bounds))),
            Section("The last batch", as_svg(partition_bars(last, title=f"Rows of each of the {partitions} tasks"))),
            Section("What was decided, and why", as_table(decisions)),
        ],
    )


def _shares(rows: list[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array(rows, dtype=np.float64) / max(1, sum(rows))
