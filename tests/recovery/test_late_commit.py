"""A query finds the record of one that it has taken over, and is killed before it goes on from that."""

import os
import subprocess
import sys
import textwrap

from equipoise.state.log import CommitLog
from equipoise.storage import Storage

KILLED, FENCED = -9, 3
BATCHES = [[("a", 1), ("b", 2)], [("a", 3), ("c", 4)], [("a", 5), ("b", 6)]]
QUERY = """
    import pandas as pd
    import pyarrow as pa
    from pyspark.sql.types import LongType, StructField, StructType
    from equipoise.spark import Aggregator, LocalQuery

    class Sum(Aggregator):
        bufferSchema = StructType([StructField("total", LongType())])

        def zero(self):
            return (0,)

        def reduce(self, buffer, rows):
            return (buffer[0] + int(rows["v"].sum()),)

        def finish(self, key, buffer):
            return (*key, *buffer)

    def started(checkpoint):
        rows, output = pa.schema({"k": pa.string(), "v": pa.int64()}), pa.schema({"k": pa.string(), "n": pa.int64()})
        return LocalQuery(Sum(), "k", rows, output, checkpoint)

    def process(query, rows):
        output = query.process(pd.DataFrame(rows, columns=["k", "v"]))
        return sorted(map(tuple, output.to_numpy().tolist()))
"""
DRIVER = """
    import sys
    from equipoise import FencedError, failpoints
    from equipoise.state import fencing

    machine, checkpoint, hangs, rows = sys.argv[1], sys.argv[2], sys.argv[3], eval(sys.argv[4])
    real, reached = fencing.Epoch.check, []

    def hang():
        reached.append("hung")
        print("hangs", flush=True)
        sys.stdin.readline()

    def reach(point):
        reached.append(point)
        if point == "driver.before-commit" and hangs == "before the check":
            hang()

    def check(epoch):
        real(epoch)
        if "driver.before-commit" in reached and "hung" not in reached:
            hang()

    fencing._machine = lambda: machine
    query = started(checkpoint)
    failpoints.watchers.append(reach)
    fencing.Epoch.check = check
    try:
        process(query, rows)
    except FencedError:
        sys.exit(3)
"""


class Driver:
    """A process that runs a batch and hangs in the middle of its commit."""

    def __init__(self, machine, checkpoint, hangs, rows, failpoint=None):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("EQUIPOISE_")}
        if failpoint:
            environment["EQUIPOISE_FAILPOINT"] = failpoint
        code = textwrap.dedent(QUERY) + textwrap.dedent(DRIVER)
        command = [sys.executable, "-c", code, machine, checkpoint, hangs, repr(rows)]
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout.readline() == "hangs\n"

    def go_on(self):
        """Let it wake up; gives its exit code."""
        self._process.communicate("\n", timeout=120)
        return self._process.returncode


def test_killed_when_it_finds_the_record_of_the_query_that_it_took_over(tmp_path):
    names = {}
    exec(textwrap.dedent(QUERY), names)  # noqa: S102 - the same query as in the processes
    started, process = names["started"], names["process"]
    plain = started(str(tmp_path / "plain"))
    expected = [process(plain, rows) for rows in BATCHES]

    checkpoint = str(tmp_path / "checkpoint")
    with started(checkpoint) as query:
        assert process(query, BATCHES[0]) == expected[0]
    first = Driver("machine one", checkpoint, "after the check", BATCHES[1])
    second = Driver("machine two", checkpoint, "before the check", BATCHES[1], failpoint="driver.late-commit")
    assert first.go_on() == FENCED
    log = CommitLog(Storage(checkpoint))
    assert (log.head(), log.read(2).epoch) == (2, log.read(1).epoch + 1), "the record is that of the first"
    assert second.go_on() == KILLED

    third = started(checkpoint)
    assert [process(third, rows) for rows in BATCHES[1:]] == expected[1:]
    assert third.state() == plain.state()
