"""Verdicts on traces, without Spark."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pyspark.sql import Row

from equipoise import CheckError, InvalidArgumentError
from equipoise_lab.bench.conformance import metrics
from equipoise_lab.conformance.cases import CASES
from equipoise_lab.conformance.harness import Trace
from equipoise_lab.conformance.processors import text
from equipoise_lab.conformance.section import section, with_section
from equipoise_lab.conformance.verdict import Outcome, compared, require_recorded

CASE = CASES["value"]


def trace(**changes):
    return Trace(
        **{"batches": [["1"], ["2"]], "schema": "s", "state": {"v": {"a": "1"}}, "failures": [None], **changes}
    )


def test_equal_traces_are_the_same():
    assert compared(CASE, trace(), trace()) == ("same", "")


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"batches": [["1"], ["3"]]}, "batch 1: Spark ['2'], equipoise ['3']"),
        ({"batches": [["1"], ["2", "4"]]}, "batch 1: Spark [], equipoise ['4']"),
        ({"batches": [["1"], ["2"], ["2"]]}, "number of batches: Spark 2, equipoise 3"),
        ({"schema": "t"}, "schema: Spark s, equipoise t"),
        ({"state": {}}, "state v: Spark {'a': '1'}, equipoise {}"),
        ({"state": {"v": {"a": "1"}, "w": {"a": "1"}}}, "state w: Spark {}, equipoise {'a': '1'}"),
    ],
)
def test_the_first_difference_is_named(changes, difference):
    assert compared(CASE, trace(), trace(**changes)) == ("different", difference)


def test_an_error_where_spark_runs_is_a_crash_or_a_refusal():
    assert compared(CASE, trace(), trace(failures=["boom"])) == ("crashed", "boom")
    assert compared(CASE, trace(), trace(failures=["no"], by_name=True)) == ("refused", "no")


def test_an_error_of_both_is_the_same_whatever_its_words():
    assert compared(CASE, trace(failures=["one"]), trace(failures=["another"])) == ("same", "")
    assert compared(CASE, trace(failures=["one"]), trace())[0] == "different"


def test_where_spark_refuses_equipoise_refuses_by_an_error_of_its_own():
    refuses, sparks = replace(CASE, refusal="one"), trace(failures=["one"])
    assert compared(refuses, sparks, trace(failures=["UserFunctionError: two"])) == ("same", "")
    assert compared(refuses, sparks, trace(failures=["KeyError: 'n'"])) == ("crashed", "KeyError: 'n'")


def test_state_that_spark_stores_under_another_key_must_stay_under_its_own():
    apart = replace(CASE, apart={"v": {"b": "1"}})
    assert compared(apart, trace(), trace(state={"v": {"b": "1"}}))[0] == "stricter"
    assert compared(apart, trace(), trace(state={"v": {"c": "1"}}))[0] == "different"
    assert compared(apart, trace(), trace(state={"v": {"b": "1"}}, batches=[["1"], ["3"]]))[0] == "different"
    assert compared(apart, trace(), trace()) == ("same", "")


def test_a_value_that_spark_stores_as_another_must_be_refused():
    strict = replace(CASE, stricter="it is another value")
    assert compared(strict, trace(), trace(failures=["no"], by_name=True)) == ("stricter", "no")
    assert compared(strict, trace(), trace(failures=["boom"]))[0] == "crashed"
    assert compared(strict, trace(), trace()) == (
        "different",
        "nothing differs, and the case says: it is another value",
    )


def test_a_value_that_spark_loses_may_be_stored_as_it_was_given():
    lost = replace(CASE, stricter="Spark stores NULL", meant=("7.0",))
    assert compared(lost, trace(), trace(batches=[["7.0"]])) == ("stricter", "stores 7.0")
    assert compared(lost, trace(), trace(batches=[["8.0"]]))[0] == "different"


def test_batches_without_rows_may_differ_where_a_case_says_why():
    differs = replace(CASE, differs="no timers")
    assert compared(CASE, trace(batches=[["1"], [], ["2"]]), trace())[0] == "different"
    assert compared(differs, trace(batches=[["1"], [], ["2"]]), trace())[0] == "same"
    assert compared(differs, trace(batches=[["1"], [], ["3"]]), trace())[0] == "different"
    assert compared(differs, trace(), trace()) == ("different", "nothing differs, and the case says: no timers")


def test_a_case_where_spark_calls_for_each_row_of_a_null_key_has_rows_and_state_of_its_own():
    apart = replace(CASE, meant=("1", "2"), apart={"v": {"b": "1"}})
    ours = trace(batches=[["1", "2"]], state={"v": {"b": "1"}})
    assert compared(apart, trace(), ours)[0] == "stricter"
    assert compared(apart, trace(), trace(batches=[["1", "2"]]))[0] == "different"
    assert compared(apart, trace(), trace(batches=[["1", "3"]], state={"v": {"b": "1"}}))[0] == "different"


def test_a_checkpoint_that_spark_does_not_read_is_a_refusal_after_all_else_was_the_same():
    assert compared(CASE, trace(), trace(unreadable="X"))[0] == "refused"
    assert compared(CASE, trace(), trace(unreadable="X", schema="t"))[0] == "different"


def test_a_case_that_no_longer_shows_its_point_is_found():
    require_recorded("value", CASE, trace(), trace())
    with pytest.raises(CheckError, match="batch 0"):
        require_recorded("value", CASE, trace(), trace(batches=[["9"], ["2"]]))
    with pytest.raises(CheckError, match="an error"):
        require_recorded("value", replace(CASE, refusal="poison"), trace(failures=["x"]), trace(failures=["poison"]))


def test_text_shows_the_types_that_users_see():
    assert text((1, Row(a="x", b=[1.5]), {"k": None})) == "(1, Row(a='x', b=[1.5]), {'k': None})"
    assert text({"b": 1, "a": datetime(2020, 1, 2, tzinfo=UTC)}) == text(
        {"a": datetime(2020, 1, 2, tzinfo=UTC), "b": 1}
    )


def test_metrics_count_verdicts_by_form_and_by_client():
    found = metrics([
        Outcome("value", "pandas", "classic", "same"),
        Outcome("value", "row", "connect", "crashed", "boom"),
        Outcome("float-for-int", "row", "connect", "stricter"),
    ])  # fmt: skip
    assert (found["same"], found["crashed"], found["stricter"], found["total"]) == (1, 1, 1, 2)
    assert (found["pandas_same"], found["row_crashed"], found["row_total"]) == (1, 1, 1)
    assert (found["classic_total"], found["connect_total"], found["applyInPandasWithState_total"]) == (1, 1, 0)


def test_the_section_names_what_is_not_the_same():
    shown = section([
        Outcome("value", "pandas", "classic", "same"),
        Outcome("value", "row", "classic", "crashed", "boom | `x`"),
        Outcome("value", "row", "connect", "crashed", "boom | `x`"),
    ])  # fmt: skip
    assert "| `transformWithStateInPandas` | Classic | 1 | 0 | 0 | 0 | 1 |" in shown
    assert "| crashed | `boom \\| 'x'` | row on Classic, row on Connect |" in shown
    assert "Nothing." in section([Outcome("value", "pandas", "classic", "same")])


def test_the_section_names_known_differences_and_the_cases_of_each_test_of_spark():
    shown = section([
        Outcome("last-rows-time-mode-none", "row", "classic", "same", "number of batches: Spark 3, equipoise 2"),
        Outcome("restart", "row", "classic", "same"),
        Outcome("restart-with-table", "row", "classic", "same"),
        Outcome("checkpoint-format-2", "row", "classic", "same"),
        Outcome("restart", "row", "connect", "same", from_record=True),
        Outcome("restart-with-table", "row", "connect", "same", from_record=True),
        Outcome("checkpoint-format-2", "row", "connect", "crashed", "boom"),
        Outcome("value", "row", "connect", "same"),
        Outcome("null-key-twice", "pandas", "classic", "stricter", "batch 0"),
    ])  # fmt: skip
    assert (
        "same rows: no timer could fire, so that no batch without rows follows | `number of batches: Spark 3" in shown
    )
    assert "| `restart`, `restart-with-table`, `checkpoint-format-2` | same | 2 same, 1 crashed |" in shown
    assert "On Connect Spark's operator ran in the cases `value`; the others are compared with what it" in shown
    assert "a call for each row, and the state of the other keys under NULL | each key under its own |" in shown
    assert "| `lastProgress.stateOperators` |" in shown


def test_the_section_names_cases_that_did_not_run():
    some = [Outcome(name, "pandas", "classic", "same") for name in CASES if name != "value"]
    shown = section(some)
    assert "Not run on Classic yet: `value`." in shown
    assert "No case has run on Connect yet." in shown
    everything = [Outcome(name, "pandas", client, "same") for client in ("classic", "connect") for name in CASES]
    assert "Not run" not in section(everything)
    assert "No case has run" not in section(everything)


def test_a_page_without_a_place_for_the_section_is_refused():
    with pytest.raises(InvalidArgumentError, match="end of conformance"):
        with_section("# a page", [])
