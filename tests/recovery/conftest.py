"""Stories: queries in processes of their own, which tests kill and start again."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from equipoise.state import batch_log
from equipoise.storage import Storage

SCRIPT = Path(__file__).with_name("story.py")
SERVER = Path(__file__).with_name("story_server.py")
KILLED = -9
PATIENCE = 240  # seconds for one process; a quiet machine needs 10


class Server:
    """Starts stories without Spark, see ``story_server.py``.

    Parameters
    ----------
    hash_seed
        Of all its stories: the order of their sets.
    """

    def __init__(self, hash_seed):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        self._process = subprocess.Popen(
            [sys.executable, str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, request):
        """The answer to a request."""
        self._process.stdin.write(f"{json.dumps(request)}\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def start(self, arguments, environment, log):
        """Start a story."""
        request = {"arguments": arguments, "environment": environment, "log": str(log)}
        return Forked(self, self.ask(request))

    def close(self):
        """End the server."""
        self._process.communicate()


class Forked:
    """A story that a server started, with the methods of ``subprocess.Popen`` that tests use."""

    def __init__(self, server, pid):
        self._server, self.pid, self.returncode = server, pid, None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.wait()

    def poll(self):
        """Exit code, ``None`` while it runs."""
        if self.returncode is None:
            self.returncode = self._server.ask(self.pid)
        return self.returncode

    def wait(self, timeout=PATIENCE):
        """Wait for the end; gives the exit code."""
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("story", timeout)
            time.sleep(0.01)
        return self.returncode

    def kill(self):
        """Kill it, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class Story:
    """One query, from its first start to the end that it must come to.

    Parameters
    ----------
    folder
        Folder of its own.
    batches
        Number of micro-batches.
    seed
        Of the rows.
    servers
        They start the stories without Spark, in turn.
    """

    def __init__(self, folder, *, batches=8, seed=0, servers=()):
        self.folder = folder
        self._servers = servers
        self.script = _script()
        self.batches = []
        self._started = 0
        rng = np.random.default_rng(seed)
        (folder / "in").mkdir(parents=True)
        for number in range(batches):
            keys = [self.script.KEYS[place % len(self.script.KEYS)] for place in rng.zipf(1.3, 150)]
            rows = pd.DataFrame({"k": keys, "v": rng.integers(0, 1000, 150) + 1000 * number})
            path = folder / "in" / f"{number}.parquet"
            rows.to_parquet(path)
            os.utime(path, (number + 1, number + 1))  # Spark reads the oldest file first
            self.batches.append(rows)

    @property
    def checkpoint(self):
        return self.folder / "cp"

    def start(self, *options, failpoint=None):
        """Start a process; it counts the points that it reaches in a folder of its own."""
        self._started += 1
        points = self.folder / f"points-{self._started}"
        points.mkdir()
        environment = os.environ | {"EQUIPOISE_FAILPOINT_FOLDER": str(points), "PYTHONHASHSEED": str(self._started)}
        environment.pop("EQUIPOISE_FAILPOINT", None)
        if failpoint is not None:
            environment["EQUIPOISE_FAILPOINT"] = failpoint
        arguments = [str(self.folder), *options]
        if "--cache" not in options:
            arguments += ["--cache", str(self.folder / "cache")]
        if "--local" in options:
            server = self._servers[self._started % len(self._servers)]
            return server.start(arguments, environment, self.log)
        with self.log.open("w") as log:
            command = [sys.executable, str(SCRIPT), *arguments]
            return subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=self.folder)

    def run(self, *options, failpoint=None):
        """Start a process and wait for its end; gives its exit code."""
        with self.start(*options, failpoint=failpoint) as process:
            try:
                return process.wait(PATIENCE)
            finally:
                process.kill()

    def finish(self, *options):
        """Let the query come to its end, and check that nothing was lost and nothing happened twice."""
        assert self.run(*options) == 0, self.output
        self.check()
        if "--look" in options:
            _, *looked_at = batch_log.rows(Storage(str(self.checkpoint)))  # without the initial state
            assert len(looked_at) == len(self.batches)
            assert all(row["measures"]["look_rows"] for row in looked_at)

    @property
    def log(self):
        """What the last process said."""
        return self.folder / f"log-{self._started}.txt"

    @property
    def output(self):
        return self.log.read_text()[-5000:]

    def reached(self, point):
        """How often the last process and its workers came to a point that was asked for."""
        return len(list((self.folder / f"points-{self._started}").glob(f"{point}-*")))

    def deliveries(self):
        """What the sink was given, for each batch."""
        found = defaultdict(list)
        for path in sorted((self.folder / "out").glob("*.json")):
            found[int(path.name.partition("-")[0])].append(path.read_text())
        written = defaultdict(list)
        for path in sorted((self.folder / "delivered").rglob("part-*.parquet")):
            written[int(path.name.split("-")[1])] += pq.ParquetFile(path).read().to_pylist()
        for batch, rows in written.items():
            found[batch].append("\n".join(["", *(json.dumps(row) for row in rows)]))
        return found

    def check(self):
        """Compare all that the query did with plain Python."""
        assert self.script.END in self.output
        known, deliveries, passed = {}, self.deliveries(), defaultdict(lambda: [0, 0])
        assert sorted(deliveries) == list(range(len(self.batches)))
        for batch, rows in enumerate(self.batches):
            expected = []
            for key, values in rows.groupby("k", dropna=False)["v"]:
                name = None if pd.isna(key) else key
                before = known.get(name, ((0, 0), [], {}))
                known[name] = self.script.reaction(before, sorted(values.tolist()))
                expected.append(json.dumps(self.script.output(name, known[name])))
                count, total = known[name][0]
                passed[count] = [passed[count][0] + 1, passed[count][1] + total]
            first, *others = deliveries[batch]
            assert sorted(first.splitlines()[1:]) == sorted(expected)
            assert all(other == first for other in others), f"batch {batch} was delivered with other bytes"
        names = sorted(known, key=lambda name: (name is not None, name))
        state = [
            [name, list(sums), kept, sorted([k, n] for k, n in table.items())]
            for name in names
            for sums, kept, table in [known[name]]
        ]
        assert json.loads((self.folder / "state.json").read_text()) == state
        for later in self.folder.glob("state-*.json"):
            assert json.loads(later.read_text()) == sorted([count, *sums] for count, sums in passed.items())

    def until(self, happened, process):
        """Wait for something to happen while a process runs."""
        end = time.monotonic() + PATIENCE
        while not happened():
            assert process.poll() is None, self.output
            assert time.monotonic() < end, self.output
            time.sleep(0.02)


def _script():
    spec = importlib.util.spec_from_file_location("equipoise_recovery_story", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def story_class():
    """For stories that are played in this process."""
    return Story


@pytest.fixture(scope="session")
def story_servers():
    """Two, with different orders of sets."""
    servers = [Server(hash_seed) for hash_seed in ("1", "2")]
    yield servers
    for server in servers:
        server.close()


@pytest.fixture
def make_story(tmp_path, spark, story_servers):  # noqa: ARG001 - the session asks for Java in our words
    """Function that makes a story in a folder of its own."""

    def make(name="story", **options):
        return Story(tmp_path / name, servers=story_servers, **options)

    return make
