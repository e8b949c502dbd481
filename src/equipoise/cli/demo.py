"""The main job: planners over a drifting skewed stream, with a table and a picture."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from equipoise.errors import InvalidArgument
from equipoise.pictures import replay_figure, require_matplotlib
from equipoise.plan import make_planner
from equipoise.simulate.replay import ReplayOptions, Step, replay
from equipoise.simulate.workloads import drifting_batches

_SHOWN = ("uniform", "consistent", "scan", "readj", "kip")


def command(
    *,
    out: Annotated[Path, typer.Option(help="Folder for the picture.")] = Path("demo"),
    partitions: Annotated[int, typer.Option(min=1, help="Number of partitions.")] = 20,
    batches: Annotated[int, typer.Option(min=4, help="Number of batches.")] = 30,
    rows: Annotated[int, typer.Option(min=1, help="Rows in a batch.")] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the stream.")] = 1,
) -> None:
    """Run planners over a drifting skewed stream; print a table and draw a picture."""
    require_matplotlib()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidArgument(f"the folder {out} cannot be made ({error}); name another with --out") from error
    console = Console()
    swap = batches // 2
    console.print(
        f"A stream of {batches} batches of {rows:,} rows over 100,000 keys, Zipf 1.0. The hot keys drift, and at batch "
        f"{swap} they are swapped all at once. Each batch runs under the plan made from the batches before it, "
        f"on {partitions} partitions."
    )
    stream = list(
        drifting_batches(
            keys=100_000, exponent=1.0, batch_size=rows, batches=batches, drift=0.05, swaps=(swap,), seed=seed
        )
    )
    runs: dict[str, list[Step]] = {}
    name_column, now_column = TextColumn("{task.description:<11}"), TextColumn("{task.fields[now]}")
    with Progress(name_column, BarColumn(), MofNCompleteColumn(), now_column, console=console) as progress:
        for name in _SHOWN:
            task = progress.add_task(name, total=batches, now="")
            runs[name] = []
            for step in replay(make_planner(name), stream, ReplayOptions(partitions)):
                runs[name].append(step)
                progress.update(task, advance=1, now=f"fullest partition {step.imbalance:.2f} x the mean")
    console.print(_table(runs, swap))
    path = out / "planners.png"
    replay_figure(runs, title=f"A drifting stream on {partitions} partitions").savefig(path, dpi=150)
    console.print(f"Picture: [bold]{path.resolve()}[/]", soft_wrap=True)


def _table(runs: dict[str, list[Step]], swap: int) -> Table:
    """Mean figures of each planner.

    Batch 0 is left out, since all of them run it under plain hash; of the moves also the first update, since some
    planners then go over to a ring once and for all.
    """
    table = Table(title="Fullest partition over the mean: 1.00 is perfect", title_justify="left")
    for heading in ("planner", "mean", "worst", "two batches after the swap", "state moved a batch", "keys isolated"):
        table.add_column(heading, justify="left" if heading == "planner" else "right")
    for name, steps in runs.items():
        later = steps[1:]
        imbalance = [step.imbalance for step in later]
        recovered = steps[min(swap + 2, len(steps) - 1)]
        table.add_row(
            name,
            f"{np.mean(imbalance):.2f}",
            f"{max(imbalance):.2f}",
            f"{recovered.imbalance:.2f}",
            f"{np.mean([step.migration for step in steps[2:]]):.1%}",
            str(len(later[-1].plan.isolated)),
            style="bold" if name == "kip" else None,
        )
    bounds = [step.bound for step in runs["kip"][1:]]
    recovered_bound = runs["kip"][min(swap + 2, len(runs["kip"]) - 1)].bound
    table.add_section()
    table.add_row("(bound)", f"{np.mean(bounds):.2f}", f"{max(bounds):.2f}", f"{recovered_bound:.2f}", "", "")
    return table
