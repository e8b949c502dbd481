"""The command ``equipoise dashboard``: one snapshot, a server until it is stopped, and bad input."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType
from typer.testing import CliRunner

from equipoise import InvalidArgumentError, ServerError
from equipoise.cli import dashboard
from equipoise.cli.commands import app
from equipoise.spark import Aggregator, LocalQuery

run = CliRunner().invoke


class Count(Aggregator):
    bufferSchema = StructType([StructField("n", LongType())])  # noqa: N815 - as Spark names schemas

    def zero(self):
        return (0,)

    def reduce(self, buffer, rows):
        return (buffer[0] + len(rows),)

    def finish(self, key, buffer):
        return (*key, *buffer)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("dashboard") / "cp")
    query = LocalQuery(
        Count(), "k", pa.schema({"k": pa.string()}), pa.schema({"k": pa.string(), "n": pa.int64()}), folder
    )
    query.process(pd.DataFrame({"k": ["hot"] * 500 + [f"k{i}" for i in range(100)]}))
    query.close()
    return folder


def test_one_snapshot_as_json(checkpoint, tmp_path):
    answer = run(app, ["dashboard", checkpoint, "--literal-keys", "--json", "-"])
    assert answer.exit_code == 0, answer.output
    said = json.loads(answer.output)
    assert (said["status"], said["batches"][0]["rows"], said["hot_keys"][0]["key"]) == ("finished", 600, "hot")
    assert run(app, ["dashboard", checkpoint, "--json", str(tmp_path / "said.json")]).exit_code == 0
    assert json.loads((tmp_path / "said.json").read_text())["hot_keys"][0]["key"] != "hot"


def test_it_serves_until_it_is_interrupted_and_needs_no_spark(checkpoint):
    code = "import sys; sys.modules['pyspark'] = None; from equipoise.cli import main; main()"
    command = [sys.executable, "-c", code, "dashboard", checkpoint, "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if "DISPLAY" not in name}
    with subprocess.Popen([*command, "--open"], stderr=subprocess.PIPE, text=True, env=environment) as process:
        line = process.stderr.readline()
        url = re.search(r"Dashboard: (http://127\.0\.0\.1:\d+/)$", line.strip())[1]
        with urllib.request.urlopen(f"{url}data", timeout=120) as answer:  # noqa: S310 - our own server
            assert json.loads(answer.read())["status"] == "finished"
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=120)
    assert process.returncode == 0
    assert rest.strip() == "stopped"


def test_bad_input_is_reported(checkpoint, tmp_path):
    answer = run(app, ["dashboard", str(tmp_path / "none")])
    assert isinstance(answer.exception, InvalidArgumentError)
    assert "checkpointLocation" in str(answer.exception)
    answer = run(app, ["dashboard", checkpoint, "--host", "0.0.0.0", "--port", "0"])  # noqa: S104 - it is refused
    assert isinstance(answer.exception, InvalidArgumentError)
    assert "--token" in str(answer.exception)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answer = run(app, ["dashboard", checkpoint, "--port", str(taken.getsockname()[1])])
        assert isinstance(answer.exception, ServerError)
    assert run(app, ["dashboard", checkpoint, "--port", "70000"]).exit_code == 2
    answer = run(app, ["dashboard", checkpoint, "--json", str(tmp_path / "none" / "x.json")])
    assert isinstance(answer.exception, InvalidArgumentError)


def test_a_page_is_opened_only_where_there_is_a_screen(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not dashboard.has_screen()
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert dashboard.has_screen()
    monkeypatch.delenv("WAYLAND_DISPLAY")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert dashboard.has_screen()
