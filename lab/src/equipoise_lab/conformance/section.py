"""The section of ``docs/how-to/keyed-streams.md`` that shows what is the same as in Spark and what is not."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from equipoise.errors import InvalidArgumentError
from equipoise_lab.conformance.cases import CASES
from equipoise_lab.conformance.recorded import recorded
from equipoise_lab.conformance.table import DIFFERENCES, FILES, SPARK_TESTS
from equipoise_lab.conformance.verdict import CLIENTS, VERDICTS, Client, Outcome, Verdict

RESULTS = Path(__file__).with_name("results.json")
"""Report of the last run of ``equipoise-lab bench conformance``."""

_START, _END = "<!-- conformance -->", "<!-- end of conformance -->"
_OPERATORS = {
    "pandas": "transformWithStateInPandas",
    "row": "transformWithState",
    "applyInPandasWithState": "applyInPandasWithState",
}
_INTRODUCTION = (
    "Spark has {tests} Python tests of these operators. Each has at least one case here that exercises the same, and "
    "further cases cover what Spark documents and does not test. A case runs the same processor through Spark's "
    "operator and through `balance`, and compares the output batch by batch and the final state. "
    "`equipoise-lab bench conformance --page docs/how-to/keyed-streams.md` runs all cases and writes this section."
)
_CHECKPOINT_2 = (
    "Spark runs the first two files a second time in the second format of its checkpoints. That is a setting of "
    "Spark's own state, and the case `checkpoint-format-2` has it."
)
_SHOWN: tuple[Verdict, ...] = ("same", "different", "crashed", "refused")
_STORED = re.compile(r"'a', [\"'](.*)[\"']")
_LONGEST = 200


def committed_outcomes() -> list[Outcome]:
    """Return the outcomes of the last run."""
    report = msgspec.json.decode(RESULTS.read_bytes())
    return msgspec.convert(report["samples"]["outcomes"], list[Outcome])


def with_section(page: str, outcomes: Sequence[Outcome]) -> str:
    """Return a page with the section of the given outcomes in place of the one that it has."""
    before, start, rest = page.partition(_START)
    _, end, after = rest.partition(_END)
    if not start or not end:
        raise InvalidArgumentError(f"the page lacks the lines {_START!r} and {_END!r}; add them where the section goes")
    return f"{before}{start}\n{section(outcomes)}\n{end}{after}"


def section(outcomes: Sequence[Outcome]) -> str:
    """Return the section in Markdown."""
    tests = sum(len(tests) for tests in SPARK_TESTS.values())
    parts = [
        "## Same as Spark",
        _INTRODUCTION.format(tests=tests),
        _counts(outcomes),
        _reference(outcomes),
        "### What is not the same",
        _not_same(outcomes),
        "These differences do not depend on the processor:",
        _table(("where", "difference"), DIFFERENCES.items()),
        *_not_run(outcomes),
        "### Stricter than Spark",
        "Spark stores some values as other ones. Here they are refused by name, or stored as they were given:",
        _stricter(outcomes),
        "### Spark's tests",
        *_spark_tests(outcomes),
    ]
    return "\n\n".join(part for part in parts if part)


def _reference(outcomes: Sequence[Outcome]) -> str:
    """Say where Spark's own operator ran, and where its record counts."""
    ran = [each for each in outcomes if each.client == "connect" and not each.from_record and each.verdict != "crashed"]
    on_connect = dict.fromkeys(f"`{each.case}`" for each in ran)
    if not any(each.from_record for each in outcomes):
        return ""
    return (
        "On Classic every case ran with Spark's operator as well. On Connect Spark's operator ran in the cases "
        f"{', '.join(on_connect)}; the others are compared with what it did on Classic."
    )


def _spark_tests(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield a table for each file of Spark's tests: tests, our cases, and their results on each client."""
    verdicts: dict[tuple[str, Client], Counter[Verdict]] = {}
    for each in outcomes:
        verdicts.setdefault((each.case, each.client), Counter())[each.verdict] += 1

    def result(cases: Sequence[str], client: Client) -> str:
        ran = [verdicts[case, client] for case in cases if (case, client) in verdicts]
        if len(ran) < len(cases):
            return "not run"
        total = sum(ran, Counter())
        return (
            "same" if set(total) == {"same"} else ", ".join(f"{total[each]} {each}" for each in VERDICTS if total[each])
        )

    for group, tests in SPARK_TESTS.items():
        yield f"`{FILES[group]}`:"
        rows = [
            (f"`{test}`", ", ".join(f"`{case}`" for case in cases), *(result(cases, client) for client in CLIENTS))
            for test, cases in tests.items()
        ]
        yield _table(("test", "cases", *map(str.capitalize, CLIENTS)), rows)
    yield _CHECKPOINT_2


def _counts(outcomes: Sequence[Outcome]) -> str:
    rows = []
    for form, operator in _OPERATORS.items():
        for client in CLIENTS:
            verdicts = [each.verdict for each in outcomes if (each.form, each.client) == (form, client)]
            counts = [verdicts.count(verdict) for verdict in _SHOWN]
            if verdicts:
                rows.append((f"`{operator}`", client.capitalize(), *map(str, counts), str(sum(counts))))
    return _table(("operator", "Spark", *_SHOWN, "cases"), rows)


def _not_same(outcomes: Sequence[Outcome]) -> str:
    rows: dict[tuple[str, str, str], list[str]] = {}
    for each in outcomes:
        if each.difference and each.verdict != "stricter":
            shown = each.difference.replace("|", "\\|").replace("`", "'")
            shown = shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}..."
            result = f"same rows: {CASES[each.case].differs}" if each.verdict == "same" else each.verdict
            rows.setdefault((each.case, result, shown), []).append(f"{each.form} on {each.client.capitalize()}")
    if not rows:
        return "Nothing."
    return _table(
        ("case", "shows", "result", "difference", "where"),
        [
            (f"`{case}`", CASES[case].about, result, f"`{shown}`", ", ".join(where))
            for (case, result, shown), where in rows.items()
        ],
    )


def _not_run(outcomes: Sequence[Outcome]) -> list[str]:
    """Name the cases that were added after the run, so that nobody takes them for the same."""
    ran = {(each.case, each.client) for each in outcomes}
    lines = []
    for client in CLIENTS:
        missing = [f"`{name}`" for name in CASES if (name, client) not in ran]
        if len(missing) == len(CASES):
            lines.append(f"No case has run on {client.capitalize()} yet.")
        elif missing:
            lines.append(f"Not run on {client.capitalize()} yet: {', '.join(missing)}.")
    return lines


def _stricter(outcomes: Sequence[Outcome]) -> str:
    traces = recorded()
    names = dict.fromkeys(each.case for each in outcomes if each.verdict == "stricter")
    rows = []
    for name in names:
        if CASES[name].apart is not None:
            rows.append((CASES[name].about, str(CASES[name].differs), "each key under its own"))
            continue
        [row] = traces[name]["pandas"].batches[0]
        meant = CASES[name].meant
        rows.append((CASES[name].about, _stored(row), "refused by name" if meant is None else _stored(meant[0])))
    return _table(("value", "Spark stores", "equipoise"), rows)


def _stored(row: str) -> str:
    """Return the value of an output row of the cases that store one."""
    found = _STORED.fullmatch(row)
    return f"`{found[1] if found else row}`"


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
