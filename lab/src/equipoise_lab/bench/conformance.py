"""The same processors through Spark's stateful operators and through `balance`: different and crashed must be 0."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from equipoise_lab.bench.harness import Context, Report, Result
from equipoise_lab.bench.local_spark import local_spark
from equipoise_lab.conformance.case import Form
from equipoise_lab.conformance.cases import CASES
from equipoise_lab.conformance.connect import outcomes_on_connect
from equipoise_lab.conformance.section import with_section
from equipoise_lab.conformance.verdict import VERDICTS, Outcome, outcomes

FORMS: tuple[Form, ...] = ("pandas", "row", "applyInPandasWithState")
PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "keyed-streams.md"
_QUICK = ("value", "list", "map", "event-timer", "group-state", "float-for-int")


def run(context: Context) -> Result:
    """Run every case in every form on Classic and on Connect, or a few on Classic."""
    names = _QUICK if context.quick else tuple(CASES)
    found: list[Outcome] = []
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=context.console, transient=True) as bar:
        task = bar.add_task("", total=len(names) * (1 if context.quick else 2))
        for each in _outcomes(names, connect=not context.quick):
            found += each
            bar.update(task, advance=1, description=", ".join(f"{one.case} {one.form}: {one.verdict}" for one in each))
    return Result(metrics(found), {"outcomes": msgspec.to_builtins(found)})


def _outcomes(names: Sequence[str], *, connect: bool) -> Iterator[list[Outcome]]:
    with local_spark(2) as spark:
        for name in names:
            yield outcomes(spark, name, "classic", fresh=True)
    if connect:
        yield from outcomes_on_connect(names)


def metrics(of: Iterable[Outcome]) -> dict[str, float]:
    """Count verdicts of all outcomes, of each form and of each client.

    ``total`` leaves out the values that equipoise refuses because Spark stores them as others, counted as
    ``stricter``.
    """
    found = list(of)
    groups = {"": found}
    groups |= {f"{form}_": [each for each in found if each.form == form] for form in FORMS}
    groups |= {f"{client}_": [each for each in found if each.client == client] for client in ("classic", "connect")}
    counted: dict[str, float] = {}
    for prefix, members in groups.items():
        for verdict in VERDICTS:
            counted[f"{prefix}{verdict}"] = float(sum(each.verdict == verdict for each in members))
        counted[f"{prefix}total"] = float(sum(each.verdict != "stricter" for each in members))
    return counted


def page(report: Report) -> str:
    """Return the page on keyed streams with the section of a report."""
    found = msgspec.convert(report.samples["outcomes"], list[Outcome])
    return with_section(PAGE.read_text(encoding="utf-8"), found)
