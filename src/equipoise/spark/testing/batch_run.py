"""Run a query over a list of batches, with crashes, pauses, other partitions and the clock as elements of the list.

The query is a ``LocalQuery`` on a temporary checkpoint. A fault happens at a failpoint of ``equipoise.failpoints``:

1. A crash raises an exception that nothing in the query catches. The query is abandoned as it is, without a release of
   its checkpoint, and another one is started on the checkpoint and gets the same rows.
2. A pause starts another query on the checkpoint while the first one stands at the failpoint. The other one runs the
   batch. Then the first one continues, and must find out that it was taken over.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pandas as pd
import pyarrow as pa
from pyspark.sql import Row

from equipoise import failpoints
from equipoise.arguments import at_least, whole
from equipoise.errors import CheckError, FencedError, InvalidArgumentError
from equipoise.spark.stream.local import LocalQuery, LocalSchemas, SchemaLike
from equipoise.spark.stream.user_code import Processor
from equipoise.spark.testing.output_rows import rows_of
from equipoise.state.kinds import short

_OTHERS = ("spool.", "compact.", "driver.before-list", "driver.after-list", "driver.late-commit")
_AT_START = ("driver.in-claim", "driver.in-sweep")
REACHABLE = tuple(point for point in failpoints.POINTS if not point.startswith(_OTHERS))
"""Failpoints that a batch of a ``LocalQuery`` or its start can reach."""


def _known(at: str, points: Sequence[str] = REACHABLE) -> None:
    if at not in points:
        raise InvalidArgumentError(f"there is no failpoint {at!r} here; choose one of {', '.join(points)}")


@dataclass(frozen=True)
class Crash:
    """A crash of the query in the next batch, and a restart on its checkpoint.

    Parameters
    ----------
    at
        Failpoint, a name of ``equipoise.failpoints.POINTS``: those of a task, such as ``"task.start"``, or of the
        driver, such as ``"driver.after-commit"``.
    count
        Which time the batch reaches it. Each task reaches the points of tasks.
    """

    at: str
    count: int = 1

    def __post_init__(self) -> None:
        _known(self.at)
        whole("count", self.count, 1)


@dataclass(frozen=True)
class Pause:
    """A pause of the driver in the next batch, as of a machine that hangs: another one takes over meanwhile.

    Parameters
    ----------
    at
        Failpoint, as for ``Crash``.
    """

    at: str = "driver.before-sink"

    def __post_init__(self) -> None:
        _known(self.at, [point for point in REACHABLE if point not in _AT_START])


@dataclass(frozen=True)
class Rescale:
    """Another number of partitions from the next batch on, as by ``query.rescale``.

    Parameters
    ----------
    numPartitions
        The number.
    """

    numPartitions: int  # noqa: N815 - Spark's own name

    def __post_init__(self) -> None:
        whole("numPartitions", self.numPartitions, 1)


@dataclass(frozen=True)
class Advance:
    """A step of the clock. Timers fire, and values expire, in the next batch, which may be empty.

    Parameters
    ----------
    seconds
        Seconds of processing time.
    """

    seconds: float

    def __post_init__(self) -> None:
        at_least("seconds", self.seconds, 0)


GivenRows: TypeAlias = pd.DataFrame | pa.Table | Sequence[Row | Mapping[str, Any]]
"""Rows of a micro-batch."""
Step: TypeAlias = GivenRows | Crash | Pause | Rescale | Advance
"""An element of the input of ``run_batches``."""


@dataclass(frozen=True)
class BatchRun:
    """Result of ``run_batches``. Two results are equal if their outputs and states are.

    Parameters
    ----------
    outputs
        Output rows of each batch, sorted by their text, because their order depends on the plan.
    state
        State by key after the last batch, as ``LocalQuery.state`` returns it.
    partitions
        Number of partitions of each batch.
    restarts
        Number of queries that were started after the first one.
    fenced
        Number of pauses after which the query was stopped by ``FencedError``.
    """

    outputs: list[list[Row]]
    state: dict[tuple[Any, ...], dict[str, Any]]
    partitions: list[int] = field(compare=False)
    restarts: int = field(compare=False)
    fenced: int = field(compare=False)


def run_batches(
    processor: Processor,
    key: str | Sequence[str],
    inputSchema: SchemaLike,  # noqa: N803 - as Spark names schemas
    outputStructType: SchemaLike,  # noqa: N803 - Spark's own name
    steps: Sequence[Step],
    **options: Any,
) -> BatchRun:
    """Run a processor over batches of rows, with faults among them, and return its outputs and its state.

    Plans, state files, commits and recovery are those of a query on Spark. A fault concerns the batch that follows it;
    several faults in a row happen one after the other in that batch. The clock begins at 0.

    Parameters
    ----------
    processor
        A ``StatefulProcessor``, a ``VectorProcessor`` or an ``Aggregator``.
    key, inputSchema, outputStructType
        As for ``LocalQuery``.
    steps
        Batches, each a DataFrame, an Arrow table or a list of ``Row`` or dicts, with ``Crash``, ``Pause``, ``Rescale``
        and ``Advance`` among them.
    **options
        Other options of ``LocalQuery``, such as ``form``, ``timeMode``, ``initialState`` or ``numPartitions``.

    Examples
    --------
    >>> from pyspark.sql.streaming import StatefulProcessor
    >>> class Count(StatefulProcessor):
    ...     def init(self, handle):
    ...         self.count = handle.getValueState("count", "n long")
    ...     def handleInputRows(self, key, rows, timerValues):
    ...         (n,) = self.count.get() or (0,)
    ...         self.count.update((n + len(list(rows)),))
    ...         yield Row(host=key[0], n=self.count.get()[0])
    >>> first, second = [Row(host="a"), Row(host="b")], [Row(host="a")]
    >>> arguments = Count(), "host", "host string", "host string, n long"
    >>> run = run_batches(*arguments, [first, Crash("driver.after-commit"), second], form="rows")
    >>> run.outputs
    [[Row(host='a', n=1), Row(host='b', n=1)], [Row(host='a', n=2)]]
    >>> run == run_batches(*arguments, [first, second], form="rows")
    True
    """
    if own := sorted({"checkpointLocation", "clock"} & set(options)):
        raise InvalidArgumentError(
            f"run_batches sets {own[0]} itself; use Advance for the clock, LocalQuery for a checkpoint that stays"
        )
    schema = LocalSchemas("UTC").arrow(inputSchema)
    with tempfile.TemporaryDirectory(prefix="equipoise-") as folder:
        now_ms = [0]

        def start(deliver: "_Deliver") -> "_Driver":
            arguments = processor, key, inputSchema, outputStructType, folder
            return _Driver(deliver, *arguments, clock=lambda: now_ms[0], **options)

        story = _Story(start)
        faults: list[Crash | Pause] = []
        for step in steps:
            if isinstance(step, Crash | Pause):
                faults.append(step)
            elif isinstance(step, Rescale):
                story.driver.rescale(step.numPartitions)
            elif isinstance(step, Advance):
                now_ms[0] += round(step.seconds * 1000)
            else:
                story.run(_table(step, schema), faults)
                faults = []
        if faults:
            raise InvalidArgumentError(f"no batch follows {faults[0]}, so it would not happen; add a batch after it")
        return story.end()


_Deliver: TypeAlias = Callable[[int, pa.Table], None]


class _CrashError(BaseException):
    """The crash; not an ``Exception``, so that no handler takes it for a failure."""


class _Driver(LocalQuery):
    """A query that reports its deliveries."""

    def __init__(self, deliver: _Deliver, *arguments: Any, **options: Any) -> None:
        self._deliver = deliver
        super().__init__(*arguments, **options)

    def _receive(self, output: pa.Table, batch: int) -> None:
        super()._receive(output, batch)
        self._deliver(batch, output)


class _Story:
    """The queries of one checkpoint, one after the other.

    Parameters
    ----------
    start
        Starts a query that reports its deliveries to the function.
    """

    def __init__(self, start: Callable[[_Deliver], _Driver]) -> None:
        self._start = start
        self._delivered: dict[int, pa.Table] = {}
        self._partitions: list[int] = []
        self._restarts = self._fenced = 0
        self.driver = start(self._receive)

    def run(self, rows: pa.Table, faults: Sequence[Crash | Pause]) -> None:
        """Run the next batch through its faults."""
        self._process(rows, faults)
        self._partitions.append(self.driver.plan.partitions)
        if len(self._delivered) != len(self._partitions):
            raise CheckError(
                f"{len(self._partitions)} batches ran and {len(self._delivered)} were delivered; this is an error of "
                "equipoise, please report it with the steps of the test"
            )

    def end(self) -> BatchRun:
        """Stop the query; return what it delivered and its state."""
        with self.driver as driver:
            outputs = [sorted(rows_of(table), key=repr) for _, table in sorted(self._delivered.items())]
            return BatchRun(outputs, driver.state(), self._partitions, self._restarts, self._fenced)

    def _process(self, rows: pa.Table, faults: Sequence[Crash | Pause]) -> None:
        if not faults:
            self.driver.process_arrow(rows)
        elif isinstance(faults[0], Pause):
            self._pause(faults[0], rows, faults[1:])
        else:
            self._crash(faults[0], rows)
            self._process(rows, faults[1:])

    def _crash(self, fault: Crash, rows: pa.Table) -> None:
        def crash() -> None:
            raise _CrashError(fault.at)

        try:
            with _at(fault, fault.count, crash):
                if fault.at in _AT_START:
                    self._restart()
                else:
                    self.driver.process_arrow(rows)
        except _CrashError:
            self._restart()

    def _pause(self, fault: Pause, rows: pa.Table, faults: Sequence[Crash | Pause]) -> None:
        paused = self.driver
        errors: list[Exception] = []

        def take_over() -> None:
            try:
                self._restart()
                self._process(rows, faults)
            except Exception as error:  # noqa: BLE001 - the paused query would take it for its own, and hide it
                errors.append(error)

        try:
            with _at(fault, 1, take_over):
                paused.process_arrow(rows)
        except FencedError:
            self._fenced += 1
        finally:
            paused.close()
        if errors:
            raise errors[0]

    def _restart(self) -> None:
        self._restarts += 1
        self.driver = self._start(self._receive)

    def _receive(self, batch: int, output: pa.Table) -> None:
        if not self._delivered.setdefault(batch, output).equals(output):
            raise CheckError(
                f"batch {batch} was delivered again with other rows: {self._delivered[batch].num_rows} before, "
                f"{output.num_rows} now; this is an error of equipoise, please report it with the steps of the test"
            )


@contextmanager
def _at(fault: Crash | Pause, count: int, happen: Callable[[], None]) -> Iterator[None]:
    """Call ``happen`` when the block reaches a failpoint for the count-th time; refuse a block that does not."""
    reached: list[str] = []

    def watch(point: str) -> None:
        reached.append(point)
        if point == fault.at and reached.count(point) == count:
            happen()

    failpoints.watchers.append(watch)
    try:
        yield
    finally:
        failpoints.watchers.remove(watch)
    if reached.count(fault.at) < count:
        known = ", ".join(point for point in REACHABLE if point in reached)
        raise InvalidArgumentError(
            f"the batch after {fault} reached this failpoint {reached.count(fault.at)} times, so nothing happened; it "
            f"reached: {known}; choose one of these, or another batch"
        )


def _require_batch(rows: object) -> None:
    """Refuse a step that is neither a fault nor a batch, and rows without names."""
    if isinstance(rows, Row | str) or not isinstance(rows, Sequence):
        raise InvalidArgumentError(
            f"a step is Crash(...), Pause(...), Rescale(...), Advance(...) or a batch, got {short(rows)}; a batch is a "
            "DataFrame, an Arrow table or a list of rows, also if it has one row"
        )
    for row in rows:
        if not isinstance(row, Mapping) and not (isinstance(row, Row) and hasattr(row, "__fields__")):
            raise InvalidArgumentError(f"the rows of a batch are dicts or Rows with named fields, got {short(row)}")


def _table(rows: GivenRows, schema: pa.Schema) -> pd.DataFrame | pa.Table:
    if isinstance(rows, pd.DataFrame | pa.Table):
        return rows
    _require_batch(rows)
    dicts = [row.asDict(recursive=True) if isinstance(row, Row) else dict(row) for row in rows]
    for row in dicts:
        if unknown := sorted(set(row) - set(schema.names)):
            raise InvalidArgumentError(f"a row has the column {unknown[0]!r}; inputSchema has {schema.names}")
    try:
        return pa.Table.from_pylist(dicts, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise InvalidArgumentError(f"the rows of a batch do not fit inputSchema {schema.names}: {error}") from error
