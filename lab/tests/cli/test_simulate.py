import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

from equipoise import InvalidArgumentError
from equipoise_lab.cli.commands import app

RUNNER = CliRunner()


def simulate(*arguments):
    return RUNNER.invoke(app, ["simulate", "--messages", "20000", "--keys", "500", *arguments])


def test_a_table_has_a_row_for_each_splitter_and_planner():
    answer = simulate("--splitters", "shuffle, partial-key,off-greedy,kip", "--oracle", "--service-ms", "1")
    assert answer.exit_code == 0, answer.output
    for name in ("shuffle", "partial-key", "off-greedy", "kip", "DistCost", "latency"):
        assert name in answer.stdout
    assert "plan every 1,000 messages" in " ".join(answer.stdout.split())


def test_planners_plan_however_short_the_stream():
    for messages in ("2", "20000"):
        answer = simulate("--splitters", "kip,uniform", "--messages", messages, "--json", "-")
        assert answer.exit_code == 0, answer.output
    results = json.loads(answer.stdout)
    kip, plain = (max(results[name]["loads"]) / 2000 for name in ("kip", "uniform"))
    assert kip < 0.95 * plain


def test_results_are_written_as_json_and_nothing_else():
    answer = simulate("--splitters", "partial-key", "--json", "-", "--period", "1000", "--no-spread")
    result = json.loads(answer.stdout)["partial-key"]
    assert result["messages"] == sum(result["loads"]) == 20_000
    assert result["distribution_cost"] is None
    assert result["aggregation"] > 0
    assert result["queue"] is None


def test_keys_can_come_from_a_parquet_file(tmp_path):
    path = tmp_path / "keys.parquet"
    pq.write_table(pa.table({"user": np.arange(1000) % 7}), path)
    out = tmp_path / "result.json"
    answer = simulate("--splitters", "key-grouping", "--parquet", str(path), "--column", "user", "--json", str(out))
    assert answer.exit_code == 0, answer.output
    result = json.loads(out.read_text(encoding="utf-8"))["key-grouping"]
    assert (result["messages"], result["keys"]) == (1000, 7)


def test_wrong_names_are_reported_before_the_run():
    for wrong in (("--splitters", "pkg"), ("--workload", "nothing"), ("--splitters", ","), ("--json", "no/such/file")):
        assert isinstance(simulate(*wrong).exception, InvalidArgumentError), wrong


def scale(*arguments):
    sizes = ("--messages", "30000", "--keys", "500", "--partitions", "10", "--hours", "2")
    return RUNNER.invoke(app, ["simulate", "--scale", "--quick", *sizes, *arguments])


def test_the_scaled_simulation_has_a_table_of_splitters_and_one_of_planners():
    answer = scale("--splitters", "partial-key,kip,readj", "--time-limit", "30", "--exponent", "0.9")
    assert answer.exit_code == 0, answer.output
    for text in ("30,000 messages", "10 workers", "partial-key", "kip", "replan", "most memory"):
        assert text in answer.stdout


def test_the_scaled_simulation_is_written_as_json_and_says_what_is_exact():
    answer = scale("--splitters", "shuffle,kip,readj", "--time-limit", "1e-9", "--json", "-")
    result = json.loads(answer.stdout)
    assert result["splitters"]["figures"]["shuffle"]["trouble"] == "gave up after 1e-09 s"
    assert [each["load"]["exponent"] for each in result["planners"]] == [0.5, 1.0]
    assert result["planners"][0]["figures"]["readj"]["trouble"] == "gave up after 1e-09 s"
    assert result["planners"][0]["load"]["partitions"] == 10
    assert "multinomial" in " ".join(result["how"])
    assert result["peak_memory_bytes"]["this process"] > 1_000_000


def test_options_that_do_not_belong_to_the_scaled_simulation_are_refused():
    for wrong in (("--oracle",), ("--service-ms", "1"), ("--workload", "drift"), ("--splitters", "off-greedy")):
        assert isinstance(scale(*wrong).exception, InvalidArgumentError), wrong
    for wrong in (("--quick",), ("--hours", "3"), ("--drift", "0.1"), ("--time-limit", "3")):
        assert isinstance(simulate(*wrong).exception, InvalidArgumentError), wrong
