"""The page of the documentation that shows what the comparison with peers found."""

from collections.abc import Iterable

import msgspec

from equipoise_lab.bench.harness import Environment, Report, median
from equipoise_lab.bench.peers.results import Comparison, Curve, Results, worst_first


def as_markdown(report: Report) -> str:
    """The whole page.

    Parameters
    ----------
    report
        Of ``equipoise-lab bench peers``.
    """
    found = msgspec.convert({name: report.samples[name] for name in ("tables", "curves")}, Results)
    parts = [
        "# Side by side with other ways",
        _origin(report.env, quick=bool(report.samples.get("quick"))),
        "## Where another way is faster",
        _losses(found.tables),
        "## Ours against the best of the others",
        "The largest ratios come first. A ratio is the median of those of the rounds, with the least and the most.",
        _summary(found.tables),
    ]
    for table in found.tables:
        parts += [f"## {_title(table.name)}", _title(table.what), _comparison(table)]
    for curve in found.curves:
        parts += [f"## Over {curve.name}", _title(curve.what), _curve(curve)]
    return "\n\n".join(parts) + "\n"


def _origin(env: Environment, *, quick: bool) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in env.versions.items())
    size = "--quick, whose few rounds say little" if quick else "its full form"
    state = " with changes that were not committed" if env.dirty else ""
    return (
        "Written by `equipoise-lab bench peers --page docs/peers.md`; do not edit. "
        f"This run: {size}; commit `{env.commit[:12]}`{state}, {env.cores} cores, seed {env.seed}, {versions}. "
        "Times are medians in seconds, with the least and the most of all rounds beside them; contenders take turns, "
        "and their results were found equal before any was timed. Ours include sampling and planning. "
        "Emulated slots: the work of a row waits instead of computing, so that more tasks than cores run side by side."
    )


def _rows(heading: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(heading)
    lines = ["| " + " | ".join(names) + " |", "|---" + "|---:" * (len(names) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def _summary(tables: list[Comparison]) -> str:
    return _rows(
        ("work", "best of ours", "s", "best of the others", "s", "ours over it", "least to most"),
        (
            (
                duel.name,
                duel.ours,
                f"{duel.table.time(duel.ours):.2f}",
                duel.peer,
                f"{duel.table.time(duel.peer):.2f}",
                f"{duel.ratio.median:.2f}",
                f"{duel.ratio.least:.2f} to {duel.ratio.most:.2f}",
            )
            for duel in worst_first(tables)
        ),
    )


def _losses(tables: list[Comparison]) -> str:
    """List every other way that is faster than the best of ours, also among those that keep keys whole."""
    lines = []
    for duel in (duel for table in tables for duel in table.losses):
        ratio, peer, ours = duel.ratio, duel.table.time(duel.peer), duel.table.time(duel.ours)
        doubt = "" if ratio.least > 1 else ", not in every round"
        lines.append(
            f"- {_title(duel.name)}: {duel.peer} takes {peer:.2f} s, {duel.ours} {ours:.2f} s "
            f"({ratio.median:.2f} times as long, {ratio.least:.2f} to {ratio.most:.2f}{doubt})."
        )
    return "\n".join(lines) or "Nowhere in this run."


def _comparison(table: Comparison) -> str:
    best = table.time(table.best_of_ours)
    rows = []
    for family, names in table.families.items():
        name = min(names, key=table.time)
        of = ", ".join(each.removeprefix(family).strip() for each in names)
        label = name if len(names) == 1 else f"{name} (best of {of})"
        shown = f"**{label}**" if name in table.ours else label
        rows.append((table.time(name), (shown, *_spread(table.seconds[name]), f"{table.time(name) / best:.2f}")))
    return _rows(("contender", "median", "least to most", "over best of ours"), (row for _, row in sorted(rows)))


def _curve(curve: Curve) -> str:
    names = list(curve.points[0].seconds)
    return _rows(
        (curve.name, *names),
        ((f"{point.at:,.10g}", *(_cell(point.seconds[name]) for name in names)) for point in curve.points),
    )


def _cell(seconds: list[float]) -> str:
    return "{} ({})".format(*_spread(seconds))


def _spread(seconds: list[float]) -> tuple[str, str]:
    return f"{median(seconds):.2f}", f"{min(seconds):.2f} to {max(seconds):.2f}"


def _title(text: str) -> str:
    return text[:1].upper() + text[1:]
