"""Keyed state: ``equipoise state show|history|verify|compact``; none of them disturbs a running query."""

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Annotated, Any

import typer
from rich import filesize
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, track
from rich.table import Table

from equipoise.cli.output import Json, Plot, draw, require_folder, require_plot, show, write_json
from equipoise.errors import EquipoiseError
from equipoise.pictures import history_figure

app = typer.Typer(help="Look at the keyed state of a query, and at what became of its batches.", no_args_is_help=True)

_ROUNDS = 3  # how often a check begins at most, while a query runs

Checkpoint = Annotated[str, typer.Argument(help="A query's checkpoint; the query may be running.")]


@app.command()
def history(
    checkpoint: Checkpoint,
    *,
    last: Annotated[int, typer.Option(min=1, help="Number of batches, the latest.")] = 20,
    plot: Plot = None,
    json: Json = None,
) -> None:
    """What became of the latest batches: measures, decisions and their reasons."""
    require_folder(json)
    require_plot(plot)
    from equipoise.state.batch_log import batch_log_rows

    rows = batch_log_rows(checkpoint)[-last:]
    draw(lambda: history_figure(rows), plot)
    if json is not None:
        write_json(rows, json)
        return
    show([_batch(row) for row in rows], None, title=f"Batches of {checkpoint}; fullest task over the mean")
    for row in rows:
        typer.echo(f"batch {row['batch']}: {row['action']}, {row['reason']}")
    if rows and not rows[-1]["delivered"]:
        typer.echo(f"batch {rows[-1]['batch']} is committed, not delivered; {_when_delivered(checkpoint)}")


def _when_delivered(checkpoint: str) -> str:
    from equipoise.state.fencing import tenancy
    from equipoise.storage import Storage

    is_running = tenancy(Storage(checkpoint)) == "running"
    return "the query is running and delivers it now" if is_running else "the next start delivers it"


def _batch(row: dict[str, Any]) -> dict[str, Any]:
    """A batch in the width of a terminal."""
    return {
        "batch": row["batch"],
        "rows": f"{row['rows']:,}",
        "s": f"{row['seconds']:.2f}",
        "in rows": f"{row['imbalance_rows']:.2f}",
        "in s": f"{row['imbalance_seconds']:.2f}",
        "state": _size(row["state_bytes"] or 0),
        "plan": row["plan"],
        "action": row["action"],
    }


@app.command("show")
def show_state(
    checkpoint: Checkpoint,
    *,
    version: Annotated[int | None, typer.Option(help="The state after batch version - 1; default the last.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Number of keys.")] = 20,
    literal_keys: Annotated[bool, typer.Option("--literal-keys", help="Show keys, not their fingerprints.")] = False,
    json: Json = None,
) -> None:
    """States of some keys."""
    require_folder(json)
    from equipoise.state.state_dump import local_states

    rows: list[dict[str, Any]] = []
    for fingerprint, state in islice(local_states(checkpoint, version), limit):
        key = state.pop("")
        named = ", ".join(map(str, key)) if literal_keys else f"{fingerprint % 2**64:016x}"
        rows.append({"key": named, "state": state})
    if json is not None:
        write_json(rows, json)
        return
    names = sorted({name for row in rows for name in row["state"]})
    table = Table("key", *map(escape, names), title=escape(f"Some of the state of {checkpoint}"), title_justify="left")
    for row in rows:
        table.add_row(*(escape(str(each)) for each in (row["key"], *(row["state"].get(name, "") for name in names))))
    Console().print(table)


@app.command()
def verify(
    checkpoint: Checkpoint,
    *,
    spool: Annotated[
        str | None, typer.Option(help="The spool of the query's source, for planned micro-batches; checked too.")
    ] = None,
    json: Json = None,
) -> None:
    """Check what the checkpoint rests on against the digests in its log; exits with 1 if something is damaged.

    Checked are every record that is kept, the plans and state files that they name, the plan that is pinned, outputs
    and Spark's offsets of the last batch, and all other files of the query. A state file that only earlier versions
    need may have been deleted: it is checked if it is there.
    """
    require_folder(json)
    found = [{"file": what, "problem": problem} for what, problem in _verified(checkpoint)]
    if spool is not None:
        from equipoise.microbatch.spool import Spool

        found += [{"file": f"spool: {what}", "problem": _problem(check)} for what, check in Spool(spool).verify()]
    damaged = [each for each in found if each["problem"]]
    if json is not None or damaged:
        show(damaged if json is None else found, json, title="Damaged files", columns=["file", "problem"])
    if json is None and not damaged:
        typer.echo(f"{len(found)} files of {checkpoint} are as they were written")
    if damaged:
        raise typer.Exit(1)


@app.command()
def compact(
    checkpoint: Annotated[str, typer.Argument(help="A query's checkpoint; the query must not be running.")],
    *,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="Go on where a query of another machine has not said that it ended."),
    ] = False,
    json: Json = None,
) -> None:
    """Fold changes into snapshots and delete all that the last version does not need; it alone can be read then."""
    from equipoise.state.compaction import compact as make_small
    from equipoise.storage import Storage

    require_folder(json)
    columns = SpinnerColumn(), TextColumn("folding key groups"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        done = make_small(
            Storage(checkpoint),
            take_over=take_over,
            progress=lambda folded, of: progress.update(task, completed=folded, total=of),
        )
    if json is not None:
        write_json(done, json)
        return
    rows = [{"": part, "before": _size(done.before[part]), "after": _size(done.after[part])} for part in done.before]
    total = {"": "all", "before": _size(sum(done.before.values())), "after": _size(sum(done.after.values()))}
    show([*rows, total], None)
    typer.echo(f"version {done.version}: {done.folded} of {done.groups} key groups were written anew")


def _size(count: int) -> str:
    return filesize.decimal(count)


def _verified(checkpoint: str) -> list[tuple[str, str | None]]:
    """What was read, and what is wrong with it; begins anew where a running query has deleted what it was reading.

    What is wrong twice is damaged, and so is what is wrong in the last round.
    """
    from equipoise.state.log import CommitLog
    from equipoise.storage import Storage

    log, console = CommitLog(Storage(checkpoint)), Console(stderr=True)
    before: list[tuple[str, str | None]] = []
    for left in reversed(range(_ROUNDS)):
        head, checks = _checks(checkpoint)
        found = [(what, _problem(read)) for what, read in track(checks, "verifying", console=console, transient=True)]
        wrong = [each for each in found if each[1]]
        if not wrong or wrong == before or not left or log.head() == head:
            break
        before = wrong
        console.print(f"version {head} was superseded meanwhile and its files are being deleted; reading the next one")
    return found


def _checks(checkpoint: str) -> tuple[int, list[tuple[str, Callable[[], Any]]]]:
    """The last version, and what there is to read of it."""
    from equipoise.spark.stream.engine import verify_outputs
    from equipoise.state import batch_log
    from equipoise.state.checkpoint import Checkpoint as Folder
    from equipoise.state.fencing import tenancy
    from equipoise.state.halves import SparkHalf
    from equipoise.state.log import CommitLog
    from equipoise.state.section_reader import SectionReader
    from equipoise.storage import Storage

    storage = Storage(checkpoint)
    folder, log = Folder(storage), CommitLog(storage)
    folder.require()
    head = log.head()
    if head < 0:
        return head, [("query", folder.require)]
    try:
        commits = list(log.kept())
        commit, table = commits[-1], log.table(head)
    except EquipoiseError:  # nothing else can be checked without the log
        return head, [("log", lambda: (list(log.kept()), log.table(head)))]
    plans = sorted({name for each in commits for name in (each.plan, each.next_plan)})
    checks: list[tuple[str, Callable[[], Any]]] = [
        (f"log from version {commits[0].version} to {head}", lambda: None),
        *((f"summary of version {version}", partial(log.table, version)) for version in log.summaries()),
        *((f"plan {name}", partial(folder.plan, name)) for name in plans),
        ("plan that is pinned", partial(_read_pinned, folder)),
        ("claim of the query", lambda: tenancy(storage)),
        ("overrides", folder.overrides),
        ("mark of a delivery after a stop", lambda: folder.is_delivered(commit)),
        ("history", lambda: list(batch_log.rows(storage))),
        (f"offsets of batch {commit.batch} in Spark's half", lambda: SparkHalf(storage).require(head, commit.offsets)),
        (f"outputs of batch {commit.batch}", lambda: verify_outputs(storage, commit)),
        *((file.path, partial(storage.verify, file)) for file in table.stored()),
    ]
    sections = SectionReader(storage)
    for name, chain in sorted(table.chains.items()):
        parts = [chain.snapshot.section] if chain.snapshot else []
        checks.extend(
            (f"key group {name} in {section.path}", partial(_read, sections, section))
            for section in parts + [change.section for change in chain.changes]
        )
    first = log.table(commits[0].version).stored()
    named = {file.path: file for files in (first, *(each.files for each in commits)) for file in files}
    older = sorted(named.keys() - table.files())
    checks.extend((f"{path}, of an earlier version", partial(_verify_older, storage, named[path])) for path in older)
    return head, checks


def _read_pinned(folder: Any) -> None:
    hold = folder.overrides().hold
    if hold not in {None, "hash"}:
        folder.held_plan(hold)


def _verify_older(storage: Any, file: Any) -> None:
    """Check a file that the last version does not need, unless it was deleted."""
    try:
        storage.verify(file)
    except EquipoiseError:
        if storage.exists(file.path):
            raise


def _read(sections: Any, section: Any) -> None:
    for _ in sections.entries(section):
        pass


def _problem(read: Callable[[], Any]) -> str | None:
    try:
        read()
    except EquipoiseError as error:
        return str(error)
    return None
