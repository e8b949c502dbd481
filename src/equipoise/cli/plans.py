"""Plans: ``equipoise plan show|diff|pin|rollback|unpin``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from equipoise.cli.output import Json, Plot, draw, require_folder, require_plot, show, write_json
from equipoise.errors import InvalidArgumentError
from equipoise.plan import Plan, diff
from equipoise.readable import fingerprint_text

app = typer.Typer(help="Show and compare plans, and choose the plan of a query.", no_args_is_help=True)

Place = Annotated[str, typer.Argument(help="A query's checkpoint, or a file that Plan.save wrote.")]
Checkpoint = Annotated[str, typer.Argument(help="A query's checkpoint; the query may be running.")]
Version = Annotated[
    int | None,
    typer.Option("--version", "-v", help="Version of a plan of the checkpoint; default: the plan of the last batch."),
]


@app.command("show")
def show_plan(place: Place, *, version: Version = None, plot: Plot = None, json: Json = None) -> None:
    """Show a plan: its partitions, tail groups, isolated keys, and why it was made."""
    require_folder(json)
    require_plot(plot)
    plan = _plan(place, version)
    facts: dict[str, Any] = {
        "version": plan.version,
        "partitions": plan.partitions,
        "tail_groups": plan.tail_groups,
        "isolated_keys": len(plan.isolated),
        "reason": plan.reason,
    }
    keys = [{"key": fingerprint_text(key), "partition": partition} for key, partition in plan.isolated.items()]
    draw(plan.plot, plot)
    if json is not None:
        write_json(facts | {"isolated": keys, "tail": plan.tail.tolist()}, json)
        return
    show([{"": name, "plan": value} for name, value in facts.items()], None)
    if keys:
        show(keys, None, title="Isolated keys")


@app.command("diff")
def diff_plans(
    before: Place,
    after: Annotated[str | None, typer.Argument(help="The other place; default: the same checkpoint.")] = None,
    *,
    first: Annotated[
        int | None,
        typer.Option("--from", help="Version in BEFORE; default: the one before --to, with AFTER its last plan."),
    ] = None,
    last: Annotated[
        int | None, typer.Option("--to", help="Version in AFTER; default: the plan of the last batch.")
    ] = None,
    plot: Plot = None,
    json: Json = None,
) -> None:
    """List the keys and tail groups that move from one plan to another."""
    require_folder(json)
    require_plot(plot)
    later = _plan(after or before, last)
    if after is None and first is None:
        known = [version for version in _versions(before) if version < later.version]
        if not known:
            raise InvalidArgumentError(
                f"{before} has no plan before {later.version} to compare with; name another place as AFTER"
            )
        first = known[-1]
    found = diff(_plan(before, first), later)
    moves = [
        {"what": what, "name": name, "from": move.source, "to": move.target}
        for what, group in (("key", {fingerprint_text(k): m for k, m in found.keys.items()}), ("group", found.groups))
        for name, move in group.items()
    ]
    draw(found.plot, plot)
    show(moves, json, title=str(found), columns=["what", "name", "from", "to"])


@app.command()
def pin(checkpoint: Checkpoint, *, json: Json = None) -> None:
    """Keep the current plan until `unpin`."""
    require_folder(json)
    plan = _overridable(checkpoint).pin()
    _report(plan.version, f"plan {plan.version} is kept until `equipoise plan unpin`", json)


@app.command()
def rollback(
    checkpoint: Checkpoint,
    version: Annotated[int, typer.Argument(help="Version of a plan of the checkpoint.")],
    *,
    json: Json = None,
) -> None:
    """Go back to an earlier plan and keep it until `unpin`."""
    require_folder(json)
    plan = _overridable(checkpoint).rollback(version)
    _report(
        plan.version,
        f"plan {plan.version} is used from the next batch on, until `equipoise plan unpin`",
        json,
    )


@app.command()
def unpin(checkpoint: Checkpoint, *, json: Json = None) -> None:
    """Plan by the load again."""
    require_folder(json)
    _overridable(checkpoint).unpin()
    _report(None, "plans follow the load again, from the next batch on", json)


def _report(pinned: int | None, text: str, json: str | None) -> None:
    if json is None:
        typer.echo(text)
    else:
        write_json({"pinned": pinned}, json)


def _plan(place: str, version: int | None) -> Plan:
    if Path(place).is_file():
        if version is not None:
            raise InvalidArgumentError(
                f"{place} is a file with one plan, and --version chooses among the plans of a checkpoint; leave it out"
            )
        return Plan.load(place)
    if version is None:
        plan: Plan = _overridable(place).plan
        return plan
    from equipoise.state.checkpoint import Checkpoint as Folder
    from equipoise.storage import Storage

    known = _versions(place)
    if version not in known:
        raise InvalidArgumentError(f"{place} has no plan {version}; it has {', '.join(map(str, known)) or 'none'}")
    return Folder(Storage(place)).plan_of_version(version)


def _versions(place: str) -> list[int]:
    from equipoise.state.checkpoint import Checkpoint as Folder
    from equipoise.storage import Storage

    return sorted(Folder(Storage(place)).plan_names())


def _overridable(checkpoint: str) -> Any:
    from equipoise.spark.stream.overrides import Overridable
    from equipoise.state.checkpoint import Checkpoint as Folder
    from equipoise.storage import Storage

    storage = Storage(checkpoint)
    Folder(storage).require()
    return Overridable(storage)
