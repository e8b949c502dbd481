"""Commands over tables: profile, advise and balance."""

import json
import os
import subprocess
import sys
from typing import get_args

import pandas as pd
import pytest
from typer.testing import CliRunner

from equipoise import AlreadyExistsError, InvalidArgumentError, SparkError, SparkUnavailableError, fingerprint
from equipoise.cli.advise import OperationName
from equipoise.cli.commands import app
from equipoise.cli.session import is_local, named_values, spark_session
from equipoise.cli.tables import format_of


@pytest.fixture(scope="module")
def visits(tmp_path_factory, spark):  # noqa: ARG001 - the commands use this session
    """The same rows in every format."""
    folder = tmp_path_factory.mktemp("visits")
    rows = pd.DataFrame({"host": ["hot"] * 600 + [f"h{i % 50}" for i in range(400)], "ms": range(1000)})
    rows.to_parquet(folder / "visits.parquet")
    rows.to_csv(folder / "visits.csv", index=False)
    rows.to_json(folder / "visits.jsonl", orient="records", lines=True)
    return folder


def test_a_profile_names_hot_keys_and_strategies(visits, printed):
    text = printed("profile", visits / "visits.parquet", "--key", "host", "-n", 8, "--slots", 4)
    assert "1,000 rows, 8 partitions on 4 slots; from all rows" in text
    assert "kip" in text
    assert f"{fingerprint('hot') % 2**64:016x}" in text
    assert "hot " not in text.split("Hottest keys")[1]


@pytest.mark.parametrize("name", ["visits.parquet", "visits.csv", "visits.jsonl"])
def test_a_profile_is_written_as_json_whatever_the_format(visits, printed, name):
    facts = json.loads(printed("profile", visits / name, "-k", "host", "-n", 8, "--literal-keys", "--json", "-"))
    assert (facts["rows"], facts["partitions"]) == (1000, 8)
    assert facts["hot_keys"][0]["host"] == "hot"
    assert facts["hot_keys"][0]["share"] == pytest.approx(0.6)
    assert facts["bound"] == pytest.approx(4.8)
    assert sum(facts["strategies"]["kip"]["loads"]) == pytest.approx(1)


def test_a_weight_is_an_expression_and_a_table_of_the_catalog_is_a_source(visits, printed, spark):
    spark.read.parquet(str(visits / "visits.parquet")).createOrReplaceGlobalTempView("visits_of_today")
    facts = json.loads(
        printed("profile", "global_temp.visits_of_today", "-k", "host,ms", "--weight", "ms * 2", "--json", "-")
    )
    assert facts["key"] == ["host", "ms"]
    assert facts["hottest_share"] == pytest.approx(999 / (999 * 500))


def test_a_profile_is_drawn(visits, printed, tmp_path):
    printed("profile", visits / "visits.parquet", "-k", "host", "--plot", tmp_path / "loads.svg")
    assert "<svg" in (tmp_path / "loads.svg").read_text()


def test_advice_has_a_reason_and_numbers(visits, printed):
    source = visits / "visits.parquet"
    text = printed("advise", source, "-k", "host", "-n", 8, "--slots", 4)
    assert "one key carries 60.0% and cannot be split" in " ".join(text.split())
    assert "60.0% of the load" in text
    assert "Spark's hash 1." in text
    assert "_" not in text, "names of numbers are for programs"
    advice = json.loads(
        printed("advise", source, "-k", "host", "-o", "aggregate", "-n", 8, "--slots", 4, "--json", "-")
    )
    assert advice["action"] == "split the hot keys"
    assert advice["numbers"]["hottest_share"] == pytest.approx(0.6)
    joined = json.loads(printed("advise", source, "-k", "host", "-o", "join", "--other", source, "--json", "-"))
    assert joined["action"] == "broadcast one side"


def test_the_operations_are_those_of_the_library():
    from equipoise.spark import Operation

    assert list(get_args(OperationName)) == [each.value for each in Operation]


def test_a_table_is_balanced_and_nothing_is_replaced_unasked(visits, printed, refused, tmp_path, spark):
    source, target, record = visits / "visits.parquet", tmp_path / "balanced", tmp_path / "run.record"
    command = ["balance", source, target, "-k", "host", "-n", 4, "--record", record]
    facts = json.loads(printed(*command, "--json", "-"))
    assert facts["rows"] == sum(each["rows"] for each in facts["partitions"]) == 1000
    assert max(each["rows"] for each in facts["partitions"]) == 600
    assert record.exists()
    assert "one key carries 60.0% and cannot be split" in facts["advice"]
    written = spark.read.parquet(str(target)).toPandas()
    assert sorted(written["ms"]) == list(range(1000))
    files = {path: pd.read_parquet(path) for path in target.glob("*.parquet")}
    assert len([path for path, rows in files.items() if "hot" in set(rows["host"])]) == 1
    assert "--mode overwrite" in refused(AlreadyExistsError, *command)
    assert "fullest 2.40 x the mean" in printed(*command, "--mode", "overwrite")
    assert spark.read.parquet(str(target)).count() == 1000
    printed(*command, "--mode", "append", "--planner", "scan")
    assert spark.read.parquet(str(target)).count() == 2000


def test_the_format_of_a_target_goes_by_its_suffix(visits, printed, tmp_path, spark):
    printed("balance", visits / "visits.csv", tmp_path / "out.csv", "-k", "host", "-n", 40, "--weight", "ms")
    assert spark.read.csv(str(tmp_path / "out.csv"), header=True).count() == 1000


def test_formats_are_known_by_suffixes_and_by_the_files_of_a_folder(visits, tmp_path):
    assert [format_of(name) for name in ("a.JSON", "b.orc", "c.txt", "hdfs://x/d.csv.gz")] == [
        "json",
        "orc",
        None,
        "csv",
    ]
    assert format_of(str(visits)) == "csv"
    assert format_of(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["profile", "{}/nothing.parquet", "-k", "host"], "nothing.parquet"),
        (["profile", "{}/nothing", "-k", "host"], "does not exist; give a file"),
        (["profile", "no_such_table", "-k", "host"], "no_such_table"),
        (["profile", "{}/visits.parquet", "-k", "hst"], "there is no column `hst` for the key; there are host, ms"),
        (["profile", "{}/visits.parquet", "-k", " , "], "--key host"),
        (["profile", "{}/visits.parquet", "-k", "host", "--weight", "host"], "not a number"),
        (["profile", "{}/visits.parquet", "-k", "host", "--weight", "len("], "weight"),
        (["profile", "{}/visits.parquet", "-k", "host", "--plot", "loads.docx"], ".png"),
        (["profile", "{}/visits.parquet", "-k", "host", "--plot", "no/such/x.png"], "does not exist"),
        (["profile", "{}/visits.parquet", "-k", "host", "--json", "no/such/x.json"], "does not exist"),
        (["profile", "{}/visits.parquet", "-k", "host", "--option", "header"], "NAME=VALUE"),
        (["profile", "{}/visits.parquet", "-k", "host", "--conf", "=1"], "NAME=VALUE"),
        (["profile", "{}/visits.parquet", "-k", "host", "--master", "local", "--remote", "sc://x"], "one of them"),
        (["profile", "{}/visits.parquet", "-k", "host", "--format", "xls"], "cannot read"),
        (["advise", "{}/visits.parquet", "-k", "host", "-o", "join"], "--other"),
        (["advise", "{}/visits.parquet", "-k", "host", "--other", "x"], "for joins"),
        (["balance", "{}/visits.parquet", "{}/visits.parquet/", "-k", "host"], "another place"),
        (["balance", "{}/visits.parquet", "{}/new", "-k", "host", "--planner", "best"], "kip"),
    ],
)
def test_bad_input_is_reported_in_our_words(visits, refused, arguments, message):
    assert message in refused(InvalidArgumentError, *(each.format(visits) for each in arguments))
    assert not (visits / "new").exists()


@pytest.mark.parametrize(
    ("command", "error", "message"),
    [
        ("profile {}/nothing.parquet -k host", InvalidArgumentError, "nothing.parquet does not exist"),
        ("profile nothing.csv -k host", InvalidArgumentError, "nothing.csv does not exist"),
        ("profile {}/empty -k host", InvalidArgumentError, "name it with --format"),
        ("advise {}/visits.csv -k host -o join --other {}/x", InvalidArgumentError, "/x does not exist"),
        ("advise {}/visits.csv -k host -o join --other t --weight ms", InvalidArgumentError, "drop --weight"),
        ("balance {}/nothing.csv {}/new -k host", InvalidArgumentError, "nothing.csv does not exist"),
        ("balance {}/visits.csv {}/visits.jsonl -k host", AlreadyExistsError, "--mode overwrite"),
        ("balance {}/visits.csv {}/new -k host --planner best", InvalidArgumentError, "kip"),
        ("balance {}/visits.csv {}/new -k host --json no/such/x.json", InvalidArgumentError, "does not exist"),
    ],
)
def test_cheap_mistakes_are_reported_before_spark_starts(visits, refused, monkeypatch, command, error, message):
    def never(*_given):
        raise AssertionError("Spark was started")

    (visits / "empty").mkdir(exist_ok=True)
    for name in ("profile", "advise", "balance"):
        monkeypatch.setattr(sys.modules[f"equipoise.cli.{name}"], "spark_session", never)
    assert message in refused(error, *(each.format(visits) for each in command.split()))


@pytest.mark.parametrize(
    ("given", "known"),
    [
        ((None, None, None), True),
        (("local[4]", None, None), True),
        (("yarn", None, None), False),
        ((None, "sc://host", None), False),
        ((None, None, ["spark.hadoop.fs.defaultFS=hdfs://x"]), False),
    ],
)
def test_paths_are_checked_before_spark_starts_only_where_they_are_local(monkeypatch, given, known):
    for name in ("SPARK_REMOTE", "HADOOP_CONF_DIR", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert is_local(*given) is known
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert not is_local(*given)


def test_wrong_usage_has_exit_code_2(visits, printed):
    printed("profile", visits / "visits.parquet", code=2)
    printed("advise", visits / "visits.parquet", "-k", "host", "-o", "sort", code=2)
    printed("balance", visits / "visits.parquet", visits / "new", "-k", "host", "--mode", "maybe", code=2)


def test_a_failure_in_spark_is_reported_without_its_trace(visits, refused):
    weight = "assert_true(ms < 500) IS NULL"
    message = refused(InvalidArgumentError, "profile", visits / "visits.parquet", "-k", "host", "--weight", weight)
    assert "not a number" in message
    number = "if(ms < 500, 1, raise_error('too slow'))"
    message = refused(SparkError, "profile", visits / "visits.parquet", "-k", "host", "--weight", number)
    assert "too slow" in message
    assert "at org.apache" not in message


def test_an_unknown_format_of_the_target_is_refused_before_anything_is_read(visits, refused, monkeypatch, tmp_path):
    monkeypatch.setattr("equipoise.cli.balance.read_table", lambda *_: pytest.fail("the source was read"))
    arguments = ("balance", visits / "visits.parquet", tmp_path / "out", "-k", "host", "--target-format", "parqet")
    assert "knows no format 'parqet'" in refused(InvalidArgumentError, *arguments)
    assert not (tmp_path / "out").exists()


def test_all_rows_can_be_counted_instead_of_a_sample(visits, printed):
    arguments = ("profile", visits / "visits.parquet", "-k", "host", "-n", 8, "--slots", 4)
    assert "1,000 rows, 8 partitions on 4 slots; from all rows" in printed(*arguments, "--sample", "full")
    result = CliRunner().invoke(app, [str(each) for each in (*arguments, "--sample", "most")])
    assert result.exit_code == 2
    assert "give a number of rows from 1, or full, got 'most'" in " ".join(result.output.replace("│", " ").split())


def test_settings_are_names_and_values():
    assert named_values("--conf", ["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    assert named_values("--conf", None) == {}


def test_without_java_the_command_says_what_to_install(monkeypatch, tmp_path):
    import pyspark.sql

    monkeypatch.setattr(pyspark.sql.SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with (
        pytest.raises(SparkUnavailableError, match="no Java was found; install it with"),
        spark_session(None, None, None, lambda _: None),
    ):
        pass


def test_a_command_starts_a_quiet_spark_of_its_own(visits):
    command = [sys.executable, "-m", "equipoise", "profile", str(visits / "visits.csv"), "-k", "host", "--json", "-"]
    settings = ["--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=6"]
    answer = subprocess.run(
        [*command, *settings], capture_output=True, text=True, timeout=600, check=False, env=os.environ | {"LANG": "C"}
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    facts = json.loads(answer.stdout)
    assert (facts["partitions"], facts["slots"]) == (6, 1)
    assert answer.stderr == "", "no warning of the JVM, no log line, no progress bar"
