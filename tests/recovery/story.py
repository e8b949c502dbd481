"""A query to be killed: run in a process of its own, again and again on the same folder, until it ends well.

The folder holds ``in/`` (one Parquet file for each batch), and gets ``cp/`` (the checkpoint), ``cache/``, ``out/``
(what the sink was given, a file for each delivery) or ``delivered/`` (what a shipped sink wrote), and at the end
``state.json``. Owners, isolated keys and the number of partitions change every other batch, snapshots and summaries
are made early, and little is retained, so that a few small batches go through all that a long life holds.

What else happens is said by options; see the bottom.
"""

import argparse
import copy
import dataclasses
import hashlib
import json
import os
import random
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import LongType, StringType, StructField, StructType

from equipoise.adapt import Look, Policy
from equipoise.hashing import fingerprint
from equipoise.plan import Planner
from equipoise.plan.planner import Proposal
from equipoise.spark import LocalQuery, balance, read_state
from equipoise.spark.stream import engine, jobs, local_jobs, sinks
from equipoise.spark.stream.delivery import FileSink
from equipoise.spark.stream.local import LocalOperator
from equipoise.spark.stream.outputs import FileOutputs
from equipoise.spark.stream.starting import start_query
from equipoise.spark.stream.task import run_partition
from equipoise.spark.stream.transformed_files import TransformedFiles
from equipoise.state import catch_up, fencing, group_table
from equipoise.state.checkpoint import Checkpoint, Overrides
from equipoise.storage import Storage


def _schema(**types):
    return StructType([StructField(name, kind) for name, kind in types.items()])


KEYS = [None, *(f"key {number}" for number in range(30))]
ROWS = pa.schema({"k": pa.string(), "v": pa.int64()})
OUTPUT = _schema(k=StringType(), count=LongType(), total=LongType(), list=StringType(), map=StringType())
END = "the story ends well"


def reaction(known, values):
    """State and output of a key after some values: what the processor must do, in plain Python.

    ``known`` is (count, total), list and map before; some steps delete, so that a deletion is not taken for a loss.
    """
    (count, total), kept, table = known
    kept, table = list(kept), dict(table)
    for value in values:
        count, total = count + 1, total + value
        kept.append(value)
        if count % 11 == 0:
            kept = []
        table[value % 5] = table.get(value % 5, 0) + 1
        if table[value % 5] % 4 == 0:
            del table[value % 5]
    return (count, total), kept, table


def output(key, known):
    """The row that a key gives."""
    (count, total), kept, table = known
    return {
        "k": key,
        "count": count,
        "total": total,
        "list": json.dumps(kept),
        "map": json.dumps(sorted(table.items())),
    }


class Ledger(StatefulProcessor):
    """Does what ``reaction`` says, with a value, a list and a map."""

    def __init__(self, options):
        self._options = options

    def init(self, handle):
        catch_up.SPARSE_BYTES = 0  # in the worker: all groups of a story are small
        self._sums = handle.getValueState("sums", _schema(count=LongType(), total=LongType()))
        self._list = handle.getListState("list", _schema(v=LongType()))
        self._map = handle.getMapState("map", _schema(k=LongType()), _schema(n=LongType()))

    def handleInputRows(self, key, rows, timerValues):  # noqa: ARG002, N802, N803 - Spark's own names
        values = [value for frame in rows for value in frame["v"].tolist()]
        self._options.trouble(key, values)
        table = {k: n for (k,), (n,) in self._map.iterator()}
        before = self._sums.get() or (0, 0), [v for (v,) in self._list.get()], table
        after = reaction(before, values)
        sums, kept, now = after
        self._sums.update(sums)
        if kept[: len(before[1])] == before[1] and len(kept) > len(before[1]):
            self._list.appendList([(v,) for v in kept[len(before[1]) :]])
        elif kept:
            self._list.put([(v,) for v in kept])
        else:
            self._list.clear()
        for gone in table.keys() - now.keys():
            self._map.removeKey((gone,))
        for k, n in now.items():
            if table.get(k) != n:
                self._map.updateValue((k,), (n,))
        yield pd.DataFrame([output(key[0], after)])

    def close(self):
        pass


class Relay(StatefulProcessor):
    """A second operator: gives its rows as they are, and sums up what passes."""

    def init(self, handle):
        self._sums = handle.getValueState("sums", _schema(rows=LongType(), total=LongType()))

    def handleInputRows(self, key, rows, timerValues):  # noqa: ARG002, N802, N803 - Spark's own names
        for frame in rows:
            known, total = self._sums.get() or (0, 0)
            self._sums.update((known + len(frame), total + int(frame["total"].sum())))
            yield frame[OUTPUT.names]

    def close(self):
        pass


class Restless(Planner):
    """Moves every tail group and isolates other keys in every plan, by the version before and the keys it is shown."""

    name = "restless"

    def propose(self, problem):
        turn = (
            problem.previous.version + 1 + int(problem.histogram.fingerprints.sum() % 5)
        )  # another look, another plan
        tail = (np.arange(problem.previous.tail_groups) + turn) % problem.partitions
        chosen = [KEYS[(turn * 3 + step) % len(KEYS)] for step in range(5)]
        isolated = {fingerprint(key): (turn + place) % problem.partitions for place, key in enumerate(chosen)}
        return Proposal(tail.astype(np.int32), isolated, f"turn {turn}")


class Options:
    """What is to happen on the way; travels to the tasks with the processor."""

    def __init__(self, given):
        self.folder, self.wait_value = Path(given.folder), given.wait_value

    def trouble(self, key, values):
        """In the task: wait to be let on."""
        if self.wait_value in values and key[0] is not None:
            (self.folder / "waiting").touch()
            while not (self.folder / "go").exists():
                time.sleep(0.02)


def task_twice(order, runner):
    """A task as speculation runs it: two attempts at the same time, and the answer of either one counts.

    Spark gives a second attempt to another machine only, so on one machine its own speculation never happens.
    """

    def run(batches):
        given = list(batches)
        with ThreadPoolExecutor(2) as attempts:
            runners = [copy.deepcopy(runner)(order) for _ in range(2)]
            manifests = list(attempts.map(lambda each: run_partition(order, each, iter(given)), runners))
        taken = manifests[(order.version + manifests[0].partition) % 2]
        yield pa.RecordBatch.from_arrays([pa.array([msgspec.msgpack.encode(taken)])], names=["manifest"])

    return run


def deliver(folder, batch, files, rows):
    """Keep a delivery, and ask for another number of partitions."""
    text = "\n".join([json.dumps(sorted(files)), *(json.dumps(row) for row in rows)])
    delivery = len(list((folder / "out").glob(f"{batch}-*.json")))
    temporary = folder / "out" / f"{batch}-{delivery}.tmp"
    temporary.write_text(text)
    temporary.rename(temporary.with_suffix(".json"))
    ask_for_partitions(folder, batch)


def ask_for_partitions(folder, batch):
    Checkpoint(Storage(str(folder / "cp"))).override(Overrides(partitions=2 + batch // 2 % 3))


class Pause:
    """Stops this process inside the sink, at one batch of the story's whole life, as a machine that hangs.

    Parameters
    ----------
    folder
        Of the story.
    batch
        Where to stop; -1 for nowhere.
    """

    def __init__(self, folder, batch):
        self._file, self.batch, self._lock = folder / "paused", batch, threading.Lock()

    def here(self):
        with self._lock:  # files are copied by several threads
            if not self._file.exists():
                self._file.touch()
                os.kill(os.getpid(), signal.SIGSTOP)


class HangingStorage(Storage):
    """The checkpoint, for a sink that hangs when it has read some bytes of a file and not all."""

    def __init__(self, location, pause):
        super().__init__(location)
        self._pause = pause

    def chunks(self, path, length=100):
        for data in super().chunks(path, length):
            yield data
            self._pause.here()


class Watched(FileSink):
    """A shipped sink; it may hang inside, and asks for another number of partitions."""

    def __init__(self, real, folder, pause, receive=None):
        self._real, self._folder, self._pause, self._receive = real, folder, pause, receive

    def prepare(self, empty):
        self._real.prepare(empty)

    def deliver(self, delivery):
        given = delivery
        if delivery.batch == self._pause.batch:
            hanging = HangingStorage(delivery.storage.location, self._pause)
            given = dataclasses.replace(delivery, storage=hanging)
        self._real.deliver(given)
        if self._receive is not None:
            self._receive(delivery.rows(), delivery.batch)
        ask_for_partitions(self._folder, delivery.batch)


def random_look(_jobs, _rows, _wanted, *, is_dear, late_ms):  # noqa: ARG001 - the name belongs to the protocol
    """A look that finds keys which the batch may not have: no result may depend on it."""
    found = random.SystemRandom().choices(KEYS[1:], k=20)
    return Look.of([fingerprint(key) for key in found], seconds=0.001)


def write_shuffled(delivery):
    """A transformation of the output that gives other files each time: the rows in any order."""
    rows, files = delivery.rows(), []
    order = np.random.default_rng().permutation(rows.num_rows)
    for part in np.array_split(order, np.random.default_rng().integers(1, 3)):
        with FileOutputs(delivery.storage, delivery.batch + 1, rows.schema, "UTC") as outputs:
            outputs.add_table(rows.take(part))
            files += outputs.finish()
    return files


class Local(LocalQuery):
    """A query without Spark that keeps every delivery."""

    def use_parquet(self, folder, pause, *, transformed):
        """Deliver to files in place of ``out``."""
        files = sinks.parquet(str(folder / "delivered"))
        files = TransformedFiles(files, write_shuffled) if transformed else files
        sink = Watched(files, folder, pause, super()._receive)
        self._settings = dataclasses.replace(self._settings, sink=sink)
        self._engine = self._new_engine()

    def _receive(self, output, batch):
        super()._receive(output, batch)
        deliver(Path(self._epoch.storage.location).parent, batch, [], output.to_pylist())


def sink_into(folder, fails_at, pause=None):
    """A sink that keeps every delivery: checksums of the files behind it, and its rows as they come."""

    def sink(df, batch):
        if pause is not None and batch == pause.batch:
            pause.here()
        files = [
            hashlib.sha256(Path(name.removeprefix("file://")).read_bytes()).hexdigest() for name in df.inputFiles()
        ]
        deliver(folder, batch, files, [row.asDict() for row in df.collect()])
        if batch == fails_at and not (folder / "failed").exists():
            (folder / "failed").touch()
            raise OSError("the sink is out of order")

    return sink


def session(master):
    builder = SparkSession.builder.master(master)
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.codegen.wholeStage": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def plain(row):
    """A row of ``read_state`` as JSON has it."""
    return [
        row.k,
        [row.sums["count"], row.sums["total"]],
        [each.v for each in row.list or ()],
        sorted([key.k, value.n] for key, value in (row.map or {}).items()),
    ]


def run_locally(folder, ledger, options, given):
    """The whole query in this process; gives the state at its end."""
    then = [LocalOperator(processor=Relay(), key="count", outputStructType=OUTPUT, numPartitions=3)] * (
        given.operators - 1
    )
    with Local(ledger, "k", ROWS, OUTPUT, str(folder / "cp"), numPartitions=2, then=then, **options) as query:
        if given.sink != "function":
            query.use_parquet(folder, Pause(folder, given.pause_at), transformed=given.sink == "transformed")
        for path in sorted(folder.glob("in/*.parquet"), key=lambda path: int(path.stem))[query.batch :]:
            query.process(pd.read_parquet(path))
        for number in range(2, given.operators + 1):
            sums = sorted([count, *row["sums"]] for (count,), row in query.state(stage=number).items())
            (folder / f"state-{number}.json").write_text(json.dumps(sums))
        return [
            [
                key,
                list(sums),
                [v for (v,) in row.get("list", ())],
                sorted([k, n] for (k,), (n,) in row.get("map", {}).items()),
            ]
            for (key,), row in query.state().items()
            for sums in [row["sums"]]
        ]


def run_on_spark(folder, ledger, options, given):
    """The whole query on Spark; gives the state at its end."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = session(given.master)
    stream = spark.readStream.schema("k string, v long").option("maxFilesPerTrigger", 1).parquet(str(folder / "in"))
    groups = balance(stream, "k", numPartitions=2, **options)
    made = groups.transformWithStateInPandas(ledger, OUTPUT, "update", "none")
    for _ in range(1, given.operators):
        following = balance(made, "count", numPartitions=3, tailGroups=16, retain=2, cache=given.cache)
        made = following.transformWithStateInPandas(Relay(), OUTPUT, "update", "none")
    if given.sink == "transformed":
        made = made.transform(lambda df: df.orderBy(F.rand()))
    pause = Pause(folder, given.pause_at)
    real = {
        "parquet": lambda: sinks.parquet(str(folder / "delivered")),
        "transformed": lambda: sinks.parquet(str(folder / "delivered")),
        "table": lambda: sinks.table("story", path=str(folder / "delivered")),
    }.get(given.sink)
    sink = Watched(real(), folder, pause) if real else sink_into(folder, given.sink_fails_at, pause)
    start_query(made._pipeline, sink, str(folder / "cp"), {"availableNow": True}, None).awaitTermination()
    state = [plain(row) for row in read_state(str(folder / "cp"), spark=spark).collect()]
    for number in range(2, given.operators + 1):
        later = read_state(str(folder / "cp/stages" / str(number)), spark=spark).collect()
        sums = sorted([row["count"], row.sums.rows, row.sums.total] for row in later)
        (folder / f"state-{number}.json").write_text(json.dumps(sums))
    spark.stop()
    return state


def main(given):
    if given.machine:
        fencing._machine = lambda: given.machine
    engine.SUMMARY_EVERY, group_table.MOST_VERSIONS, group_table._GROUPS_A_BATCH = 3, 3, 4
    if given.twice:
        jobs.task = task_twice
    if given.look == "random":
        jobs.SparkJobs.look = local_jobs.LocalJobs.look = random_look
    folder = Path(given.folder)
    (folder / "out").mkdir(exist_ok=True)
    ledger = Ledger(Options(given))
    policy = Policy(planner=Restless())
    look = "auto" if given.look == "auto" else "always"
    options = {"orderBy": "v", "tailGroups": 16, "retain": 2, "policy": policy, "cache": given.cache, "look": look}
    state = run_locally(folder, ledger, options, given) if given.local else run_on_spark(folder, ledger, options, given)
    (folder / "state.json").write_text(json.dumps(sorted(state, key=lambda row: (row[0] is not None, row[0]))))
    print(END)  # noqa: T201 - the answer to the test that starts this


def parsed(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--local", action="store_true", help="run without Spark")
    parser.add_argument("--master", default="local[2,4]", help="with 4 attempts for each task")
    parser.add_argument("--cache", default=None, help="folder of the caches; a relative one is each executor's own")
    parser.add_argument("--machine", default="", help="name of the machine, as far as the query can tell")
    parser.add_argument("--twice", action="store_true", help="run every task twice at the same time")
    parser.add_argument("--wait-value", type=int, default=-1, help="on this value wait until the file 'go' is there")
    parser.add_argument("--sink-fails-at", type=int, default=-1, help="batch that the sink fails on, once")
    parser.add_argument("--sink", choices=["function", "parquet", "table", "transformed"], default="function")
    parser.add_argument(
        "--operators", type=int, default=1, help="keyed operators, each on the output of the one before"
    )
    parser.add_argument(
        "--look", choices=["auto", "always", "random"], default="auto", help="random: a look finds random keys"
    )
    parser.add_argument("--pause-at", type=int, default=-1, help="batch in whose sink the process stops itself, once")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main(parsed(sys.argv[1:]))
