"""The same processors through Spark's stateful operators and through `balance`: different and crashed must be 0."""

from collections.abc import Iterable
from pathlib import Path

import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from equipoise.requirements import require_java
from equipoise_lab.bench.harness import Context, Report, Result, environment
from equipoise_lab.conformance.case import Form
from equipoise_lab.conformance.cases import CASES
from equipoise_lab.conformance.progress import Progress
from equipoise_lab.conformance.section import with_section
from equipoise_lab.conformance.verdict import CLIENTS, VERDICTS, Outcome
from equipoise_lab.conformance.worker import Worker

FORMS: tuple[Form, ...] = ("pandas", "row", "applyInPandasWithState")
PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "keyed-streams.md"
_QUICK = ("value", "list", "map", "event-timer", "group-state", "float-for-int")


def run(context: Context) -> Result:
    """Run every case in every form on Classic and on Connect, or a few on Classic."""
    require_java()
    names = _QUICK if context.quick else tuple(CASES)
    clients = CLIENTS[:1] if context.quick else CLIENTS
    env = environment(context.seed)
    kept = Progress(context.progress, f"{env.commit}{'-dirty' if env.dirty else ''}", context.accept)
    found: list[Outcome] = []
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Bars(*columns, console=context.console, transient=True) as bar:
        task = bar.add_task("", total=len(names) * len(clients))
        for client in clients:
            with Worker(client) as worker:
                for name in names:
                    outcomes = kept.outcomes(name, client)
                    if outcomes is None:
                        outcomes = worker.outcomes(name)
                        kept.add(name, client, outcomes)
                    found += outcomes
                    shown = ", ".join(f"{each.case} {each.form}: {each.verdict}" for each in outcomes)
                    bar.update(task, advance=1, description=shown)
    return Result(metrics(found), {"commits": kept.commits, "outcomes": msgspec.to_builtins(found)})


def metrics(of: Iterable[Outcome]) -> dict[str, float]:
    """Count verdicts of all outcomes, of each form and of each client.

    ``total`` leaves out the values that equipoise refuses because Spark stores them as others, counted as
    ``stricter``.
    """
    found = list(of)
    groups = {"": found}
    groups |= {f"{form}_": [each for each in found if each.form == form] for form in FORMS}
    groups |= {f"{client}_": [each for each in found if each.client == client] for client in CLIENTS}
    counted: dict[str, float] = {}
    for prefix, members in groups.items():
        for verdict in VERDICTS:
            counted[f"{prefix}{verdict}"] = float(sum(each.verdict == verdict for each in members))
        counted[f"{prefix}total"] = float(sum(each.verdict != "stricter" for each in members))
    return counted


def details(report: Report) -> list[tuple[str, ...]]:
    """Return the outcomes that are not the same in all respects: case, form, client, verdict and difference."""
    return [
        ("case", "form", "client", "verdict", "difference"),
        *(
            (each.case, each.form, each.client, each.verdict, each.difference)
            for each in _outcomes(report)
            if each.verdict != "same" or each.difference
        ),
    ]


def page(report: Report) -> str:
    """Return the page on keyed streams with the section of a report."""
    return with_section(PAGE.read_text(encoding="utf-8"), _outcomes(report))


def _outcomes(report: Report) -> list[Outcome]:
    return msgspec.convert(report.samples["outcomes"], list[Outcome])
