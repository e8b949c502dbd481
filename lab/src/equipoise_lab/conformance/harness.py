"""Runs a case through an operator, and keeps output, state and errors as text that can be compared."""

import json
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from equipoise import errors
from equipoise.errors import EquipoiseError
from equipoise.spark import balance, read_state
from equipoise.spark.stream.failures import translating
from equipoise_lab.conformance.case import Case, Form, Initial, Make, Step
from equipoise_lab.conformance.processors import Keeps, text
from equipoise_lab.spark_settings import settings

_BASE = {
    "spark.sql.shuffle.partitions": "1",  # its results do not depend on it, and each costs time
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # equipoise sets this for a moment when a query with a clock starts, and two may start at once
    "spark.sql.streaming.triggerAvailableNowWrapper.enabled": "true",
}
_DATA_ONLY = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
"""With processing time and without this, ``availableNow`` of Spark runs batches without rows for ever."""
_TRACEBACK = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception)): (.*)$", re.MULTILINE)
_PATH = re.compile(r"(?:/[\w.@-]+)+/(?=[\w-]+\.py)")
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_CONDITION = re.compile(r"\[[A-Z_]+(?:\.[A-Z_]+)*\]")
START_SECONDS = 300
"""Seconds that a start of a query may take, also on a busy machine."""
_GROUP_STATE = "groupState"  # name of Spark's column and of the variable of equipoise
_TRIES = 20
_LONGEST = 300
_LONGEST_STATE = 5_000
_T = TypeVar("_T")


class Trace(msgspec.Struct, omit_defaults=True):
    """Everything a user sees of a case.

    Parameters
    ----------
    batches
        Sorted output rows of each batch that the sink received, over all starts of the query; with a table, all rows
        after each start.
    schema
        Schema of the output.
    state
        Non-empty state variables: key to value. Timers are among them.
    failures
        Error of each start; ``None`` if it ended well.
    by_name
        Whether the last error is a refusal by an error of equipoise.
    unreadable
        Error of Spark's ``statestore`` source for the checkpoint.
    """

    batches: list[list[str]] = []
    schema: str = ""
    state: dict[str, dict[str, str]] = {}
    failures: list[str | None] = []
    by_name: bool = False
    unreadable: str | None = None


class Collector:
    """A ``foreachBatch`` function that stores rows as text, also from the server of Spark Connect."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def __call__(self, df: DataFrame, batch: int) -> None:
        """Store a batch; one that comes again replaces itself."""
        content = {"schema": df.schema.simpleString(), "rows": sorted(row_text(row) for row in df.collect())}
        Path(self._folder, f"{batch:06d}.json").write_text(json.dumps(content), encoding="utf-8")


def row_text(values: Any) -> str:
    """Text of the values of a row."""
    return ", ".join(text(value) for value in values)


def by_form(spark: SparkSession, case: Case, run: Callable[[Form], _T]) -> dict[Form, _T]:
    """Call ``run`` with each form of a case, under its settings. Forms run side by side: a query mostly waits."""
    clock = _DATA_ONLY if _clock(case) else {}
    with settings(spark, {**_BASE, **clock, **case.settings}), ThreadPoolExecutor(len(case.forms)) as threads:
        return dict(zip(case.forms, threads.map(run, case.forms), strict=True))


def run_on_spark(spark: SparkSession, case: Case, form: Form, makers: list[Any], folder: Path) -> Trace:
    """Run a case with Spark's operator."""
    checkpoint = folder / "checkpoint"
    trace = _run(spark, case, form, makers, folder, lambda _: lambda df, *key: df.groupBy(*key))
    if not case.batch and _has_commit(checkpoint):
        trace.state = _spark_state(spark, str(checkpoint), form, count_timers=_clock(case))
    return trace


def run_on_equipoise(spark: SparkSession, case: Case, form: Form, makers: list[Any], folder: Path) -> Trace:
    """Run a case with ``balance``."""
    checkpoint = folder / "checkpoint"
    trace = _run(spark, case, form, makers, folder, lambda step: partial(balance, numPartitions=step.partitions))
    if not case.batch and _has_commit(checkpoint / "spark"):
        trace.state = _our_state(spark, str(checkpoint), case.key, count_timers=_clock(case))
        if form == "applyInPandasWithState":
            trace.state.pop("timers", None)  # they are its timeouts, which Spark keeps beside the state
        if case.spark_reads:
            trace.unreadable = _unreadable(spark, str(checkpoint))
    return trace


def processors(case: Case, form: Form) -> list[Any]:
    """Processor of each start; the same objects go to Spark and to equipoise."""
    made: list[Any] = []
    makes: list[Make] = [case.make]
    for step in case.steps:
        if step.make is not None:
            makes.append(step.make)
        made.append(made[-1] if made and step.make is None else makes[-1](form != "row"))
    return made


def _clock(case: Case) -> bool:
    """Whether timers depend on the time of day."""
    return case.time_mode.lower().startswith("processingtime")


def _has_commit(checkpoint: Path) -> bool:
    """Whether Spark has committed a batch; without one there is no state to read."""
    return any(path.name.isdecimal() for path in (checkpoint / "commits").glob("*"))


def _run(
    spark: SparkSession,
    case: Case,
    form: Form,
    made: list[Any],
    folder: Path,
    grouping: Callable[[Step], Callable[..., Any]],
) -> Trace:
    trace = Trace()
    (folder / "in").mkdir(parents=True)
    (folder / "out").mkdir()
    for number, step in enumerate(case.steps):
        _write(case, step, folder / "in")
        group = grouping(step)
        try:
            if case.batch:
                _run_batch(spark, case, form, made[number], folder, group)
            else:
                _run_stream(spark, case, form, made[number], folder, group)
        except Exception as error:  # noqa: BLE001 - an error of either engine is a result
            trace.failures.append(_described(error, folder))
            trace.by_name = _is_refusal(error)
        else:
            trace.failures.append(None)
    for path in sorted((folder / "out").glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        trace.batches.append(content["rows"])
        trace.schema = content["schema"]
    return trace


def _run_batch(spark: SparkSession, case: Case, form: Form, made: Any, folder: Path, group: Callable[..., Any]) -> None:
    df = spark.read.schema(case.schema).json(str(folder / "in"))
    with translating():  # a DataFrame of Spark reports an error of equipoise as text
        Collector(folder / "out")(_operator(spark, case, form, made, df, folder, group), 0)


def _run_stream(
    spark: SparkSession, case: Case, form: Form, made: Any, folder: Path, group: Callable[..., Any]
) -> None:
    reader = spark.readStream.schema(case.schema).option("maxFilesPerTrigger", 1)
    df = reader.json(str(folder / "in"))
    result, sink = _operator(spark, case, form, made, df, folder, group), Collector(folder / "out")
    writer = result.writeStream.outputMode(case.output_mode).option("checkpointLocation", str(folder / "checkpoint"))
    table = folder / "table"
    writer = writer.format("parquet").option("path", str(table)) if case.parquet else writer.foreachBatch(sink)
    for attempt in range(_TRIES):
        try:
            _run_to_the_end(writer, case)
            break
        except PySparkException as error:
            if "Python worker failed to connect back" not in str(error) or attempt == _TRIES - 1:
                raise  # else a busy machine took longer than the 10 s that Spark waits, before any row
    if case.parquet:
        sink(spark.read.parquet(str(table)), len(list((folder / "out").iterdir())))


def _run_to_the_end(writer: Any, case: Case) -> None:
    """Start a query, and wait until it has processed all input."""
    if case.process_all:
        query = writer.start()
        query.processAllAvailable()
        query.stop()
        return
    query = writer.trigger(availableNow=True).start()
    if not query.awaitTermination(START_SECONDS):
        query.stop()
        raise TimeoutError(f"the query did not end within {START_SECONDS} s")


def _operator(
    spark: SparkSession, case: Case, form: Form, made: Any, df: DataFrame, folder: Path, group: Callable[..., Any]
) -> Any:
    grouped = group(case.source(df) if case.source else df, *case.key)
    if form == "applyInPandasWithState":
        result = grouped.applyInPandasWithState(made, case.output, case.state, case.output_mode, case.time_mode)
    else:
        operator = grouped.transformWithStateInPandas if form == "pandas" else grouped.transformWithState
        initial = _initial(spark, case, case.initial, folder)
        result = operator(made, case.output, case.output_mode, case.time_mode, initial, case.event_time)
    if case.then is not None:
        result = case.then(result)
    return group(result, *case.counted_by).count() if case.counted_by else result


def _initial(spark: SparkSession, case: Case, initial: Initial | None, folder: Path) -> Any:
    if initial is None:
        return None
    df = spark.createDataFrame(list(initial.rows), initial.schema)
    return (_stored(spark, df, folder) if initial.through_statestore else df).groupBy(*case.key)


def _stored(spark: SparkSession, df: DataFrame, folder: Path) -> DataFrame:
    """Keep rows in the list state of another query of Spark, and return them as its ``statestore`` source does."""
    at, columns = folder / "earlier", df.schema
    if not at.exists():
        df.coalesce(1).write.json(str(at / "in"))
        stream = spark.readStream.schema(columns).json(str(at / "in"))
        kept = stream.groupBy("id").transformWithState(Keeps(frames=False), "id string", "update", "none")
        writer = kept.writeStream.format("noop").outputMode("update").trigger(availableNow=True)
        writer.option("checkpointLocation", str(at / "checkpoint")).start().awaitTermination()
    state = spark.read.format("statestore").option("path", str(at / "checkpoint")).option("stateVarName", "kept").load()
    return state.selectExpr("key.id AS id", "list_element.n AS n")


def _write(case: Case, step: Step, folder: Path) -> None:
    """Write each batch to a file, with times of modification one second apart, since Spark reads files by age."""
    names = cast("StructType", StructType.fromDDL(case.schema)).names
    for rows in step.batches:
        number = len(list(folder.iterdir()))
        path = folder / f"{number:03d}.json"
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
        path.write_text("\n".join(lines), encoding="utf-8")
        os.utime(path, (1_000_000 + number, 1_000_000 + number))


def _described(error: Exception, folder: Path) -> str:
    """First useful line of an error: Spark's condition, or the exception of the user's code."""
    message = _ADDRESS.sub("", _PATH.sub("", str(error).replace(str(folder), "FOLDER")))
    if isinstance(error, EquipoiseError):
        return f"{type(error).__name__}: {message.splitlines()[0]}"[:_LONGEST]
    conditions = list(_CONDITION.finditer(message))
    raised = _TRACEBACK.findall(message)
    if raised:
        name, words = raised[-1]
        return f"{conditions[-1][0] if conditions else type(error).__name__} {name}: {words}"[:_LONGEST]
    words = message[conditions[-1].start() :] if conditions else message
    return f"{type(error).__name__}: {words.splitlines()[0] if words else ''}"[:_LONGEST]


def _is_refusal(error: Exception) -> bool:
    """Whether an error of equipoise refuses what was asked, also if the processor asked for it."""
    if not isinstance(error, EquipoiseError):
        return False
    raised = getattr(errors, str(error).split(" ", 1)[0], None)
    of_user = isinstance(error, errors.UserFunctionError)
    return not of_user or (isinstance(raised, type) and issubclass(raised, EquipoiseError))


def _spark_state(spark: SparkSession, checkpoint: str, form: Form, *, count_timers: bool) -> dict[str, dict[str, str]]:
    def read(**options: str) -> DataFrame:
        return spark.read.format("statestore").options(path=checkpoint, operatorId=operator, **options).load()

    operator = "0"
    if form == "applyInPandasWithState":
        return _filled(
            {_GROUP_STATE: {row_text(row["key"]): text(row["value"][_GROUP_STATE]) for row in read().collect()}}
        )
    metadata = spark.read.format("state-metadata").load(checkpoint)
    metadata = metadata.where("operatorProperties LIKE '%stateVariables%'")  # a second operator counts
    [(operator, properties)] = metadata.selectExpr("string(operatorId)", "operatorProperties").collect()
    variables = json.loads(properties)["stateVariables"]
    state: dict[str, dict[str, str]] = {}
    for variable in variables:
        name, kind, ttl = variable["stateName"], variable["stateVariableType"], variable["ttlEnabled"]
        if kind == "TimerState":
            found = [
                (row["key"], row["expiration_timestamp_ms"]) for row in read(readRegisteredTimers="true").collect()
            ]
            state["timers"] = _timers(found, count=count_timers)
            continue
        rows = read(stateVarName=name, flattenCollectionTypes="false").collect()
        column = {"ValueState": "value", "ListState": "list_value", "MapState": "map_value"}[kind]
        state[name] = {row_text(row["key"]): _state_text(_without_ttl(row[column], kind, ttl)) for row in rows}
    return _filled(state)


def _our_state(spark: SparkSession, checkpoint: str, key: tuple[str, ...], *, count_timers: bool) -> dict[str, Any]:
    df = read_state(checkpoint, spark=spark)
    rows = df.collect()
    state: dict[str, dict[str, str]] = {}
    for name in df.columns[len(key) :]:
        found = [(row[: len(key)], row[name]) for row in rows]
        if name == "timers":
            each = [(key_values, expiry) for key_values, expiries in found for expiry in expiries or ()]
            state[name] = _timers(each, count=count_timers)
        else:
            state[name] = {row_text(key_values): _state_text(value) for key_values, value in found}
    return _filled(state)


def _timers(found: list[tuple[Any, int]], *, count: bool) -> dict[str, str]:
    """Timers of each key, or their number if they depend on the time of day."""
    by_key: dict[str, list[int]] = {}
    for key, expiry in found:
        by_key.setdefault(row_text(key), []).append(expiry)
    return {key: str(len(expiries) if count else sorted(expiries)) for key, expiries in by_key.items()}


def _without_ttl(value: Any, kind: str, ttl: Any) -> Any:
    """Return a state value without its expiry, which Spark stores around it."""
    if not ttl or value is None:
        return value
    if kind == "MapState":
        return {key: each["value"] for key, each in value.items()}
    if kind == "ListState":
        return [each["value"] for each in value]
    return value["value"]


def _state_text(value: Any) -> str:
    """Text of a state value; empty for an empty one, and a digest for a long one."""
    content = "" if value is None or value in ([], {}) else text(value)
    if len(content) <= _LONGEST_STATE:
        return content
    return f"{content[:20]}..., {len(content)} characters, SHA-256 {sha256(content.encode()).hexdigest()}"


def _filled(state: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Leave out what is empty: Spark lists variables that were deleted, and keys whose state was cleared."""
    filled = {name: {key: value for key, value in values.items() if value} for name, values in state.items()}
    return {name: values for name, values in filled.items() if values}


def _unreadable(spark: SparkSession, checkpoint: str) -> str | None:
    """Error of Spark's ``statestore`` source for a checkpoint; ``None`` if it reads it."""
    try:
        spark.read.format("statestore").load(checkpoint).collect()
    except PySparkException as error:
        return error.getCondition() or type(error).__name__
    return None
