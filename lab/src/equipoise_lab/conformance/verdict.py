"""Compares what Spark and equipoise make of a case."""

import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import Literal

import msgspec
from pyspark.sql import SparkSession

from equipoise import errors
from equipoise.errors import CheckError
from equipoise_lab.conformance.case import Case, Form
from equipoise_lab.conformance.cases import CASES
from equipoise_lab.conformance.harness import Trace, by_form, processors, run_on_equipoise, run_on_spark
from equipoise_lab.conformance.recorded import recorded

Verdict = Literal["same", "different", "crashed", "refused", "stricter"]

Client = Literal["classic", "connect"]

CLIENTS: tuple[Client, ...] = ("classic", "connect")
VERDICTS: tuple[Verdict, ...] = ("same", "different", "crashed", "refused", "stricter")

SPARK_ON_CONNECT = frozenset({
    "value", "list", "map", "event-timer", "process-all-available", "process-all-available-event-time",
    "process-all-available-processing-time", "initial-state", "batch", "group-state", "group-state-event-timeout",
    "null-key-twice", "missing-column", "float-for-int",
})  # fmt: skip
"""Cases in which Spark's own operator runs on Connect as well, where each start costs seconds."""

_LONGEST = 400


class Outcome(msgspec.Struct):
    """Verdict of a case in one form.

    Parameters
    ----------
    case, form
        What ran.
    client
        ``"classic"`` or ``"connect"``.
    verdict
        ``"same"``; ``"different"`` output, state or error; ``"crashed"`` where Spark runs, or where both fail and the
        error is not one of equipoise; ``"refused"`` by name; ``"stricter"`` if Spark stores another value, which
        equipoise refuses by name or stores as it was given.
    difference
        The first difference; empty if there is none.
    from_record
        Whether Spark's operator did not run, and its record on Classic was compared.
    """

    case: str
    form: Form
    client: Client
    verdict: Verdict
    difference: str = ""
    from_record: bool = False


def crashed(name: str, form: Form, client: Client, words: str) -> Outcome:
    """Return the outcome of a case that did not get as far as a comparison."""
    return Outcome(name, form, client, "crashed", words[:_LONGEST])


def outcomes(spark: SparkSession, name: str, client: Client) -> list[Outcome]:
    """Run a case in all its forms through Spark, which must do what was recorded, and equipoise, and compare.

    On Connect Spark's operator runs in the cases of ``SPARK_ON_CONNECT``; in others its record on Classic is compared.
    An exception counts as crashed.

    Parameters
    ----------
    spark
        The session.
    name
        The case.
    client
        Client of the session.
    """
    case, expected = CASES[name], recorded().get(name, {})
    fresh = client == "classic" or name in SPARK_ON_CONNECT
    with tempfile.TemporaryDirectory() as folder:

        def run(form: Form) -> Outcome:
            try:
                made = processors(case, form)
                if fresh:
                    sparks = run_on_spark(spark, case, form, made, Path(folder, "spark", form))
                    require_recorded(name, case, sparks, expected[form])
                ours = run_on_equipoise(spark, case, form, made, Path(folder, "equipoise", form))
                verdict, difference = compared(case, expected[form], ours)
            except Exception as error:  # noqa: BLE001 - one case must not end the run of all
                return crashed(name, form, client, f"{type(error).__name__}: {error}")
            return Outcome(name, form, client, verdict, difference[:_LONGEST], not fresh)

        return list(by_form(spark, case, run).values())


def allowed(name: str, form: Form) -> Verdict:
    """Return the verdict that a case must have.

    All are the same but for values that are refused for a reason, keys that are NULL in a frame, and reads by Spark's
    own sources.
    """
    case = CASES[name]
    if case.stricter or (case.apart is not None and form == "pandas"):
        return "stricter"
    return "refused" if case.spark_reads else "same"


def require_recorded(name: str, case: Case, found: Trace, expected: Trace) -> None:
    """Raise ``CheckError`` unless Spark does what was recorded, since a case that misses its point shows nothing."""
    difference = first_difference(expected, found, "recorded", "now")
    last = found.failures[-1]
    if not difference and case.refusal is not None and not (last and re.search(case.refusal, last)):
        difference = f"an error of Spark with {case.refusal!r} is expected, and found was {last}"
    if difference:
        raise CheckError(
            f"Spark does not do in case {name!r} what was recorded: {difference}; correct the case, or record it again "
            f"with python -m equipoise_lab.conformance.recorded {name}"
        )


def first_difference(one: Trace, other: Trace, one_name: str, other_name: str) -> str:
    """Return the first difference between two traces; empty if there is none. Words of errors do not count."""
    for number, (failure, others) in enumerate(zip(one.failures, other.failures, strict=True), 1):
        if (failure is None) != (others is None):
            return f"start {number}: {one_name} {failure or 'no error'}, {other_name} {others or 'no error'}"
    pairs: list[tuple[str, object, object]] = []
    both = zip(one.batches, other.batches, strict=False)
    pairs += [(f"batch {number}", *_not_shared(*batches)) for number, batches in enumerate(both)]
    pairs.append(("number of batches", len(one.batches), len(other.batches)))
    pairs.append(("schema", one.schema, other.schema))
    for name in sorted({*one.state, *other.state}):
        pairs.append((f"state {name}", one.state.get(name, {}), other.state.get(name, {})))
    for what, left, right in pairs:
        if left != right:
            return f"{what}: {one_name} {left}, {other_name} {right}"
    return ""


def _is_ours(failure: str) -> bool:
    """Whether a failure, as a trace has it, is an error of equipoise."""
    raised = getattr(errors, failure.split(":", 1)[0], None)
    return isinstance(raised, type) and issubclass(raised, errors.EquipoiseError)


def _not_shared(rows: list[str], others: list[str]) -> tuple[list[str], list[str]]:
    """Return the rows of each batch that the other one lacks."""
    missing, extra = Counter(rows) - Counter(others), Counter(others) - Counter(rows)
    return sorted(missing.elements()), sorted(extra.elements())


def compared(case: Case, sparks: Trace, ours: Trace) -> tuple[Verdict, str]:
    """Return the verdict on two traces, and the first difference."""
    for theirs, failure in zip(sparks.failures, ours.failures, strict=True):
        if failure is not None and (theirs is None or (case.refusal is not None and not _is_ours(failure))):
            refused: Verdict = "stricter" if case.stricter else "refused"
            return refused if ours.by_name else "crashed", failure
    if case.meant is not None and case.apart is None and ours.batches == [list(case.meant)]:
        return "stricter", f"stores {', '.join(case.meant)}"
    difference = first_difference(sparks, ours, "Spark", "equipoise")
    if difference:
        return _different(case, sparks, ours), difference
    if case.stricter or (case.differs and case.apart is None):
        return "different", f"nothing differs, and the case says: {case.stricter or case.differs}"
    if ours.unreadable:
        return "refused", f"Spark's statestore raises {ours.unreadable}; use read_state"
    return "same", ""


def _different(case: Case, sparks: Trace, ours: Trace) -> Verdict:
    """Return the verdict on traces that differ: not "different" if the case says how and why."""
    fitting: Verdict
    if case.apart is not None:
        batches = sparks.batches if case.meant is None else [list(case.meant)]
        sparks, fitting = msgspec.structs.replace(sparks, batches=batches, state=case.apart), "stricter"
    elif case.differs:
        sparks, ours, fitting = _with_rows(sparks), _with_rows(ours), "same"
    else:
        return "different"
    return "different" if first_difference(sparks, ours, "Spark", "equipoise") else fitting


def _with_rows(trace: Trace) -> Trace:
    """Return a trace without its batches without rows."""
    return msgspec.structs.replace(trace, batches=[rows for rows in trace.batches if rows])
