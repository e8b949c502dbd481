"""Plans: ``equipoise plan show|diff|pin|rollback|unpin``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from equipoise.cli.output import Json, Plot, draw, require_folder, require_plot, show, write_json
from equipoise.errors import InvalidArgumentError
from equipoise.plan import Plan, diff

app = typer.Typer(help="Look at plans, and say which a query shall use.", no_args_is_help=True)

Place = Annotated[str, typer.Argument(help="A query's checkpoint, or a file that Plan.save wrote.")]
Checkpoint = Annotated[str, typer.Argument(help="A query's checkpoint; the query may be running.")]
Version = Annotated[int | None, typer.Option("--version", "-v", help="A plan of the checkpoint; default the next one.")]


@app.command("show")
def show_plan(place: Place, *, version: Version = None, plot: Plot = None, json: Json = None) -> None:
    """What a plan says: its partitions, tail groups, isolated and split keys, and why it was made."""
    require_folder(json)
    require_plot(plot)
    plan = _plan(place, version)
    facts: dict[str, Any] = {
        "version": plan.version,
        "partitions": plan.partitions,
        "tail_groups": plan.tail_groups,
        "isolated_keys": len(plan.isolated),
        "split_keys": len(plan.widths),
        "reason": plan.reason,
    }
    keys = [
        {"key": f"{key % 2**64:016x}", "partition": partition, "pieces": plan.widths.get(key, 1)}
        for key, partition in plan.isolated.items()
    ]
    draw(plan.plot, plot)
    if json is not None:
        write_json(facts | {"isolated": keys, "tail": plan.tail.tolist()}, json)
        return
    show([{"": name, "plan": value} for name, value in facts.items()], None)
    if keys:
        show(keys, None, title="Keys with a partition of their own choosing")


@app.command("diff")
def diff_plans(
    before: Place,
    after: Annotated[str | None, typer.Argument(help="Another one; default the same checkpoint.")] = None,
    *,
    first: Annotated[
        int | None,
        typer.Option("--from", help="Plan of the first; default the one before the last, of two places its next one."),
    ] = None,
    last: Annotated[int | None, typer.Option("--to", help="Plan of the second; default its next one.")] = None,
    plot: Plot = None,
    json: Json = None,
) -> None:
    """What moves from one plan to another."""
    require_folder(json)
    require_plot(plot)
    later = _plan(after or before, last)
    if after is None and first is None:
        known = [version for version in _versions(before) if version < later.version]
        if not known:
            raise InvalidArgumentError(f"{before} has no plan before {later.version} to compare it with")
        first = known[-1]
    found = diff(_plan(before, first), later)
    moves = [
        {"what": what, "name": name, "from": move.source, "to": move.target}
        for what, group in (("key", {f"{k % 2**64:016x}": m for k, m in found.keys.items()}), ("group", found.groups))
        for name, move in group.items()
    ]
    draw(found.plot, plot)
    show(moves, json, title=str(found), columns=["what", "name", "from", "to"])


@app.command()
def pin(checkpoint: Checkpoint, *, json: Json = None) -> None:
    """Keep the plan in force until `unpin`."""
    require_folder(json)
    plan = _steering(checkpoint).pin()
    _told(
        plan.version, f"plan {plan.version} stays until `equipoise plan unpin`, from the batch after the next on", json
    )


@app.command()
def rollback(
    checkpoint: Checkpoint,
    version: Annotated[int, typer.Argument(help="A plan of the checkpoint.")],
    *,
    json: Json = None,
) -> None:
    """Go back to an earlier plan, and keep it until `unpin`."""
    require_folder(json)
    plan = _steering(checkpoint).rollback(version)
    _told(plan.version, f"plan {plan.version} is used again and stays until `equipoise plan unpin`", json)


@app.command()
def unpin(checkpoint: Checkpoint, *, json: Json = None) -> None:
    """Plan by the load again."""
    require_folder(json)
    _steering(checkpoint).unpin()
    _told(None, "plans follow the load again, from the batch after the next on", json)


def _told(held: int | None, text: str, json: str | None) -> None:
    if json is None:
        typer.echo(text)
    else:
        write_json({"held": held}, json)


def _plan(place: str, version: int | None) -> Plan:
    if Path(place).is_file():
        if version is not None:
            raise InvalidArgumentError(f"{place} is one plan; versions are of a checkpoint")
        return Plan.load(place)
    if version is None:
        plan: Plan = _steering(place).plan
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


def _steering(checkpoint: str) -> Any:
    from equipoise.spark.stream.overrides import Overridable
    from equipoise.state.checkpoint import Checkpoint as Folder
    from equipoise.storage import Storage

    storage = Storage(checkpoint)
    Folder(storage).require()
    return Overridable(storage)
