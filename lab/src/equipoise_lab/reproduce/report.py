"""The results as one HTML page and one Markdown table."""

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from equipoise.web_page import PageSection, as_page, as_svg, as_table
from equipoise_lab.reproduce import PAPERS
from equipoise_lab.reproduce.exhibit import Claim, Exhibit, in_words
from equipoise_lab.reproduce.records import Record
from equipoise_lab.reproduce.rows import Rows
from equipoise_lab.reproduce.verdict import Finding, Verdict

_MARKS = {Verdict.HOLDS: "\u2713", Verdict.IN_SHAPE: "\u223c", Verdict.FAILS: "\u2717"}
_TITLE = "Claims of the papers, run again"
_MOST_ROWS = 400  # of the numbers of one exhibit on the page; the raw file has all


class Judged(NamedTuple):
    """A result and what became of each claim."""

    exhibit: Exhibit
    record: Record
    findings: list[tuple[Claim, Finding]]


def judge(exhibit: Exhibit, record: Record) -> Judged:
    """Hold a result against the claims of its exhibit."""
    rows = Rows(record.rows)
    return Judged(exhibit, record, [(claim, claim.check(rows)) for claim in exhibit.claims])


def counted(results: Iterable[Judged]) -> dict[str, int]:
    """Number of claims by verdict."""
    counts = Counter(finding.verdict for result in results for _, finding in result.findings)
    return {verdict.value: counts[verdict] for verdict in Verdict}


def as_json(results: Iterable[Judged]) -> list[dict[str, Any]]:
    """The results without their raw numbers."""
    return [
        {
            "exhibit": exhibit.name,
            "title": exhibit.title,
            "section": exhibit.section,
            "scale": record.scale,
            "seed": record.seed,
            "parameters": record.parameters,
            "data": record.data,
            "seconds": record.seconds,
            "env": record.env,
            "claims": [
                {
                    "claim": claim.says,
                    "paper": claim.paper,
                    "ours": finding.ours,
                    "verdict": finding.verdict.value,
                    "reason": reason(claim, finding),
                }
                for claim, finding in findings
            ],
        }
        for exhibit, record, findings in results
    ]


def reason(claim: Claim, finding: Finding) -> str:
    """Why the verdict is what it is; unless the claim holds, also what was found on looking into it."""
    looked_into = "" if finding.verdict is Verdict.HOLDS else claim.looked_into
    return ". ".join(part.rstrip(".") for part in (finding.reason, looked_into) if part)


def as_markdown(results: Sequence[Judged]) -> str:
    """Summary of the run, and one table: claim, paper, ours, verdict."""
    lines = [f"# {_TITLE}", "", _introduction(results), "", _origins(results), ""]
    lines += ["| | claim | paper | ours | verdict |", "|---|---|---|---|---|"]
    for exhibit, _, findings in results:
        for claim, finding in findings:
            verdict = f"**{finding.verdict}**: {reason(claim, finding)}"
            cells = (exhibit.name, claim.says, claim.paper, finding.ours, verdict)
            lines.append(f"| {' | '.join(_cell(each) for each in cells)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text that cannot break out of its cell of a Markdown table."""
    return html.escape(" ".join(text.split()), quote=False).replace("|", "\\|")


def as_html(results: Sequence[Judged]) -> str:
    """The page: a summary, then each table and figure with its claims, parameters, picture and numbers."""
    introduction = (
        f"{_introduction(results)} Each part says with which parameters, data, seed, commit and machine its numbers "
        "were made."
    )
    sections = [PageSection("All claims", _summary(results))]
    sections += [PageSection(_heading(each), _part(each), _anchor(each)) for each in results]
    return as_page(f"equipoise: {_TITLE[0].lower()}{_TITLE[1:]}", introduction, sections)


def _introduction(results: Sequence[Judged]) -> str:
    counts = counted(results)
    listed = ", ".join(f"{verdict}: {count}" for verdict, count in counts.items())
    papers = len({each.exhibit.paper for each in results})
    return (
        f"{sum(counts.values())} claims of {papers} paper{'s' * (papers != 1)}, run again: "
        f"{listed}. The conditions of every verdict are part of the code; a claim that does not hold is a "
        "finding."
    )


def _origins(results: Sequence[Judged]) -> str:
    """At which scales, commits and with what the results were made, each named once."""
    records = [each.record for each in results]

    def distinct(values: Iterable[Any]) -> str:
        return ", ".join(dict.fromkeys(str(each) for each in values)) or "none"

    return (
        f"Scale: {distinct(r.scale for r in records)}. Seed: {distinct(r.seed for r in records)}. "
        f"Commit: {distinct(_commit(r) for r in records)}. Cores: {distinct(r.env.cores for r in records)}. "
        f"Recorded data: {distinct(file for r in records for file in r.data)}. "
        f"Versions: {distinct(f'{name} {v}' for r in records for name, v in r.env.versions.items())}. "
        f"Time of all: {sum(r.seconds for r in records) / 60:.0f} minutes."
    )


def _commit(record: Record) -> str:
    return f"{record.env.commit[:12]}{' with changes' if record.env.dirty else ''}"


def _anchor(result: Judged) -> str:
    return result.exhibit.name.replace("/", "-")


def _heading(result: Judged) -> str:
    return f"{result.exhibit.name}: {result.exhibit.title}"


def _summary(results: Sequence[Judged]) -> str:
    """One row for each exhibit that leads to its part, and how its claims fared."""
    rows = []
    for paper in dict.fromkeys(each.exhibit.paper for each in results):
        rows.append(f'<tr><th colspan="3">{html.escape(PAPERS[paper].title)}</th></tr>')
        for each in results:
            if each.exhibit.paper == paper:
                marks = " ".join(_marked(finding.verdict) for _, finding in each.findings)
                link = f'<a href="#{_anchor(each)}">{html.escape(each.exhibit.name)}</a>'
                title = html.escape(each.exhibit.title)
                rows.append(f"<tr><td>{link}</td><td>{title}</td><td>{marks}</td></tr>")
    legend = ", ".join(f"{mark} {verdict}" for verdict, mark in _MARKS.items())
    return f'<div class="wide"><table>{"".join(rows)}</table></div><p>{legend}</p>'


def _marked(verdict: Verdict) -> str:
    return f'<span title="{verdict}">{_MARKS[verdict]}</span>'


def _part(result: Judged) -> str:
    exhibit, record, findings = result
    claims = [
        {
            "claim": claim.says,
            "paper": claim.paper,
            "ours": finding.ours,
            "verdict": f"{_MARKS[finding.verdict]} {finding.verdict}",
            "reason": reason(claim, finding),
        }
        for claim, finding in findings
    ]
    data = f"recorded data {', '.join(record.data)} and generated data" if record.data else "generated data"
    env = record.env
    origin = (
        f"Run at scale {record.scale} on {data}, seed {record.seed}, in {record.seconds:,.1f} s on {env.cores} cores; "
        f"commit {_commit(record)}; "
        f"{', '.join(f'{name} {version}' for name, version in env.versions.items())}."
    )
    parts = [
        f"<p>{html.escape(f'{exhibit.section}. {exhibit.note}'.strip())}</p>",
        as_table(claims),
        as_svg(exhibit.draw(Rows(record.rows))),
        _details("Parameters", as_table(_parameters(exhibit, record))),
        _details("Our numbers", _numbers(record.rows)),
        f"<p><small>{html.escape(origin)}</small></p>",
    ]
    return "\n".join(parts)


def _parameters(exhibit: Exhibit, record: Record) -> list[dict[str, str]]:
    return [
        {"parameter": name, "paper": setting.paper, "here": in_words(record.parameters[name])}
        for name, setting in exhibit.settings.items()
    ]


def _numbers(rows: Sequence[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    shown = [{name: _figure(row.get(name)) for name in names} for row in rows[:_MOST_ROWS]]
    more = f"<p>The raw file has all {len(rows):,} rows.</p>" if len(rows) > _MOST_ROWS else ""
    return as_table(shown) + more


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def _details(summary: str, content: str) -> str:
    return f"<details><summary>{html.escape(summary)}</summary>{content}</details>"
