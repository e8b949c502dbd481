"""Keyed state: ``equipoise state show|log|verify|compact``; none of them disturbs a running query."""

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, track
from rich.table import Table

from equipoise.cli.output import Json, Plot, draw, require_folder, require_plot, show, write_json
from equipoise.errors import EquipoiseError
from equipoise.pictures import batch_log_figure
from equipoise.readable import fingerprint_text, seconds_text, size_text

app = typer.Typer(help="Show, verify and compact the state of a query, and show its batch log.", no_args_is_help=True)

_ROUNDS = 3  # most attempts of a check while a query runs

Checkpoint = Annotated[str, typer.Argument(help="A query's checkpoint; the query may be running.")]


@app.command("log")
def show_log(
    checkpoint: Checkpoint,
    *,
    last: Annotated[int, typer.Option(min=1, help="Number of latest batches.")] = 20,
    plot: Plot = None,
    json: Json = None,
) -> None:
    """Show the latest batches: measurements, decisions and their reasons."""
    require_folder(json)
    require_plot(plot)
    from equipoise.state.batch_log import batch_log_rows

    rows = batch_log_rows(checkpoint)[-last:]
    draw(lambda: batch_log_figure(rows), plot)
    if json is not None:
        write_json(rows, json)
        return
    show([_batch(row) for row in rows], None, title=f"Batches of {checkpoint}; imbalance: fullest task over the mean")
    for row in rows:
        typer.echo(f"batch {row['batch']}: {row['action']}, {row['reason']}")
    if rows and not rows[-1]["delivered"]:
        typer.echo(f"batch {rows[-1]['batch']} is committed and not delivered; {_when_delivered(checkpoint)}")


def _when_delivered(checkpoint: str) -> str:
    from equipoise.state.fencing import tenancy
    from equipoise.storage import Storage

    is_running = tenancy(Storage(checkpoint)) == "running"
    return "the running query delivers it now" if is_running else "the next start delivers it"


def _batch(row: dict[str, Any]) -> dict[str, Any]:
    """Select the columns that fit into a terminal."""
    saved = f"{seconds_text(row['got_seconds'])} of {seconds_text(row['promised_seconds'])}"
    return {
        "batch": row["batch"],
        "rows": f"{row['rows']:,}",
        "time": seconds_text(row["seconds"]),
        "by rows": f"{row['imbalance_rows']:.2f}",
        "by time": f"{row['imbalance_seconds']:.2f}",
        "state": size_text(row["state_bytes"] or 0),
        "plan": row["plan"],
        "action": row["action"],
        "promised": "" if row["promised_rows"] is None else f"{row['promised_rows']:.2f}",
        "saved": saved if row["applied"] else "",
        "seen": "" if row["look_rows"] is None else f"{row['look_rows']:,} in {seconds_text(row['look_seconds'])}",
    }


@app.command("show")
def show_state(
    checkpoint: Checkpoint,
    *,
    version: Annotated[int | None, typer.Option(help="The state after batch version - 1; default: the latest.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Number of keys.")] = 20,
    literal_keys: Annotated[
        bool, typer.Option("--literal-keys", help="Show keys instead of their fingerprints.")
    ] = False,
    json: Json = None,
) -> None:
    """Show the state of some keys."""
    require_folder(json)
    from equipoise.state.state_dump import local_states

    rows: list[dict[str, Any]] = []
    for fingerprint, state in islice(local_states(checkpoint, version), limit):
        key = state.pop("")
        named = ", ".join(map(str, key)) if literal_keys else fingerprint_text(fingerprint)
        rows.append({"key": named, "state": state})
    if json is not None:
        write_json(rows, json)
        return
    names = sorted({name for row in rows for name in row["state"]})
    table = Table("key", *map(escape, names), title=escape(f"State of some keys in {checkpoint}"), title_justify="left")
    for row in rows:
        table.add_row(*(escape(str(each)) for each in (row["key"], *(row["state"].get(name, "") for name in names))))
    Console().print(table)


@app.command()
def verify(
    checkpoint: Checkpoint,
    *,
    spool: Annotated[
        str | None, typer.Option(help="Check also this spool of the query's source, for planned micro-batches.")
    ] = None,
    json: Json = None,
) -> None:
    """Compare the files of a checkpoint with the digests in its log; exits with 1 if a file is damaged.

    Checked are every record that is kept, all files that the records name by digest, the plans, and all other files of
    the query, in all its stages. State files, outputs and Spark's offsets that only earlier versions need may have been
    deleted: they are checked if they are there.
    """
    require_folder(json)
    found = [
        {"file": f"{stage}{what}", "problem": problem}
        for stage, folder in _stages(checkpoint)
        for what, problem in _verified(folder)
    ]
    if spool is not None:
        from equipoise.microbatch.spool import Spool

        opened = Spool(spool)
        found += [{"file": f"spool: {what}", "problem": _problem(check)} for what, check in opened.verify()]
        if not opened.lists_dead_letters:
            typer.echo(
                "dead-letters.jsonl of the spool is full: more dead letters are only counted; move it away", err=True
            )
    damaged = [each for each in found if each["problem"]]
    if json is not None or damaged:
        show(damaged if json is None else found, json, title="Damaged files", columns=["file", "problem"])
    if json is None and not damaged:
        typer.echo(f"{len(found)} files of {checkpoint} checked; none is damaged")
    if damaged:
        raise typer.Exit(1)


@app.command()
def compact(
    checkpoint: Annotated[str, typer.Argument(help="A query's checkpoint; the query must not be running.")],
    *,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="Continue although a query of another machine may still run; it then stops at its next commit.",
        ),
    ] = False,
    json: Json = None,
) -> None:
    """Fold changes into snapshots and delete files that the last version does not need.

    Afterwards only the last version can be read.
    """
    from equipoise.state.compaction import compact as compact_checkpoint
    from equipoise.storage import Storage

    require_folder(json)
    columns = SpinnerColumn(), TextColumn("folding key groups"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        done = compact_checkpoint(
            Storage(checkpoint),
            take_over=take_over,
            progress=lambda folded, of: progress.update(task, completed=folded, total=of),
        )
    if json is not None:
        write_json(done, json)
        return
    rows = [
        {"": part, "before": size_text(done.before[part]), "after": size_text(done.after[part])} for part in done.before
    ]
    total = {"": "all", "before": size_text(sum(done.before.values())), "after": size_text(sum(done.after.values()))}
    show([*rows, total], None)
    typer.echo(f"version {done.version}: {done.folded} of {done.groups} key groups were rewritten")


def _stages(checkpoint: str) -> list[tuple[str, str]]:
    """Return the checkpoint and the folders of its later stages, each after the text that names it in a table."""
    from equipoise.state.stages import later_stages
    from equipoise.storage import Storage

    later = later_stages(Storage(checkpoint))
    return [("", checkpoint), *((f"stage {number}: ", folder.location) for number, folder in later.items())]


def _verified(checkpoint: str) -> list[tuple[str, str | None]]:
    """Check all files, and return each with its problem; repeat if a running query has deleted files meanwhile.

    A problem that is found twice, or in the last round, is damage.
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
        console.print(f"version {head} was superseded and its files are being deleted; checking the next one")
    return found


def _checks(checkpoint: str) -> tuple[int, list[tuple[str, Callable[[], Any]]]]:
    """Return the last version and a check for each of its files."""
    from equipoise.spark.stream.engine import verify_outputs
    from equipoise.state import batch_log
    from equipoise.state.checkpoint import Checkpoint as Folder
    from equipoise.state.commit import Commit
    from equipoise.state.fencing import tenancy
    from equipoise.state.log import CommitLog
    from equipoise.state.section_reader import SectionReader
    from equipoise.state.stages import half_of
    from equipoise.storage import Storage

    storage = Storage(checkpoint)
    folder, log = Folder(storage), CommitLog(storage)
    folder.require()
    head = log.head()
    if head < 0:
        return head, [("query", folder.require)]

    def read_log() -> Any:
        commits = log.kept()
        return commits, log.table(commits[0].version), log.table(head)

    try:
        commits, first, table = read_log()
    except EquipoiseError:  # nothing else can be checked without the log
        return head, [("log", read_log)]
    commit, half = commits[-1], half_of(storage, folder.require().stage)
    plans = sorted({each.plan for each in commits})
    checks: list[tuple[str, Callable[[], Any]]] = [
        (f"log from version {commits[0].version} to {head}", lambda: None),
        *((f"summary of version {version}", partial(log.table, version)) for version in log.summaries()),
        *((f"plan {name}", partial(folder.plan, name)) for name in plans),
        ("pinned plan", partial(_read_pinned, folder)),
        ("claim of the query", lambda: tenancy(storage)),
        ("overrides", folder.overrides),
        ("mark of a delivery after a stop", lambda: folder.is_delivered(commit)),
        ("batch log", lambda: list(batch_log.rows(storage))),
        (f"batch {commit.batch} in the half of {half.caller}", lambda: half.require(head, commit.offsets)),
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
    named = {file.path: file for files in (first.stored(), *(each.files for each in commits)) for file in files}
    named |= {file.path: file.stored for each in commits[:-1] for file in each.outputs}
    older: list[tuple[str, Callable[[], Any]]] = [
        (path, partial(storage.verify, named[path])) for path in sorted(named.keys() - table.files())
    ]
    spare = [name for name in folder.plan_names().values() if name not in plans]
    older += [(f"plans/{name}.json", partial(folder.plan, name)) for name in spare]

    def compare(each: Commit) -> None:
        if half.is_kept(each.batch):
            half.require_same(each.batch, each.offsets, half.digest(each.batch))

    checks += [
        (f"batch {each.batch}, of an earlier version, in the half of {half.caller}", partial(compare, each))
        for each in commits[:-1]
        if each.batch >= 0
    ]
    checks.extend((f"{path}, of an earlier version", partial(_if_there, storage, path, read)) for path, read in older)
    return head, checks + _checks_of_lists(storage, head)


def _checks_of_lists(storage: Any, head: int) -> list[tuple[str, Callable[[], Any]]]:
    """Return a check for each list of files with transformed rows, and for those files."""
    from equipoise.spark.stream.outputs import FOLDER
    from equipoise.spark.stream.transformed_files import last_list, read_list

    def check(path: str, *, is_last: bool) -> None:
        for file in read_list(storage, path):
            verify = partial(storage.verify, file.stored)
            verify() if is_last else _if_there(storage, file.path, verify)

    lists = {version: last_list(storage, f"{FOLDER}/{version}") for version in storage.names(FOLDER)}
    return [
        (path, partial(_if_there, storage, path, partial(check, path, is_last=int(version) == head)))
        for version, path in lists.items()
        if path is not None
    ]


def _read_pinned(folder: Any) -> None:
    pinned = folder.overrides().pinned
    if pinned not in {None, "hash"}:
        folder.pinned_plan(pinned)


def _if_there(storage: Any, path: str, read: Callable[[], Any]) -> None:
    """Check a file that the last version does not need, unless it was deleted."""
    try:
        read()
    except EquipoiseError:
        if storage.exists(path):
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
