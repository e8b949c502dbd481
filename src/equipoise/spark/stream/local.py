"""A keyed stream query without Spark: for unit tests of processors, and of this library."""

import hashlib
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

import msgspec
import pandas as pd
import pyarrow as pa
from pyspark.errors import PySparkRuntimeError
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from equipoise import decimals
from equipoise.adapt import Policy
from equipoise.adapt.combining import CombineMode
from equipoise.adapt.looking import LookMode
from equipoise.arguments import whole
from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.framing import seal
from equipoise.spark.rows.arrow_rows import MisfitError, to_arrow
from equipoise.spark.rows.ddl import parse_ddl
from equipoise.spark.rows.options import PlacementMode
from equipoise.spark.rows.pandas_rows import to_pandas
from equipoise.spark.rows.schemas import as_struct
from equipoise.spark.rows.worker_options import WorkerOptions
from equipoise.spark.stream.engine import Engine, wall_clock
from equipoise.spark.stream.local_jobs import LocalJobs
from equipoise.spark.stream.opening import Stage, open_query, release_all
from equipoise.spark.stream.options import StreamOptions
from equipoise.spark.stream.overrides import Overridable
from equipoise.spark.stream.settings import QueryDefinition, Settings, Watermark
from equipoise.spark.stream.user_code import Form, Processor, UserCode
from equipoise.state.cache import GroupCache
from equipoise.state.checkpoint import Checkpoint
from equipoise.state.codec import KeyCodec
from equipoise.state.halves import COMMITS, OFFSETS, SparkHalf
from equipoise.state.handle import VariableSpec
from equipoise.state.log import CommitLog
from equipoise.state.section_reader import SectionReader
from equipoise.state.state_dump import group_entries, key_states
from equipoise.state.timers import time_mode
from equipoise.storage import Storage

_FINISHED_KEPT = 100  # batches, as Spark keeps them
SchemaLike: TypeAlias = StructType | pa.Schema | str
"""A schema as users give it."""


class LocalSchemas:
    """Parses schemas without a session; text is parsed by Spark where a session runs."""

    nullable_state = False

    def __init__(self, timezone: str) -> None:
        self._timezone = timezone

    def struct(self, schema: SchemaLike) -> StructType:
        """Return a schema as Spark's type."""
        if isinstance(schema, pa.Schema):
            return from_arrow_schema(schema)
        try:
            return as_struct(schema)
        except PySparkRuntimeError:  # only text needs a session, and there is none
            return parse_ddl(str(schema))

    def parsed(self, schema: SchemaLike) -> dict[str, Any]:
        """Return the JSON form of a schema, as it is stored."""
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self.struct(schema).jsonValue()))
        return plain

    def arrow(self, schema: SchemaLike) -> pa.Schema:
        """Return the Arrow form of a schema."""
        return to_arrow_schema(self.struct(schema), timezone=self._timezone)


@dataclass(frozen=True, kw_only=True)
class LocalOperator:
    """A keyed operator that follows another one in a ``LocalQuery``; parameters are those of ``LocalQuery``.

    Its input is the output of the operator before it. It has no event time.
    """

    processor: Processor
    key: str | Sequence[str]
    outputStructType: SchemaLike  # noqa: N815 - Spark's own name
    timeMode: str = "none"  # noqa: N815 - Spark's own name
    numPartitions: int = 4  # noqa: N815 - Spark's own name
    form: Form = "pandas"


class LocalQuery(Overridable):
    """Run a keyed stream query in this process, batch by batch, without Spark.

    State, plans, commits and recovery are those of a query on Spark; only the shuffle differs. If a batch fails, give
    the same rows again, to this query or to a new one on the same checkpoint, as Spark does.

    Parameters
    ----------
    processor
        A ``StatefulProcessor``, a ``VectorProcessor`` or an ``Aggregator``.
    key, inputSchema
        Key column or columns, and the schema of the rows, which has them.
    outputStructType
        Schema of the rows that the processor yields.
    checkpointLocation
        Folder of the query; default a temporary folder that is deleted with the query.
    timeMode
        ``"none"``, ``"processingTime"`` or ``"eventTime"``.
    watermark
        Event-time column and delay, in milliseconds or as text like ``"10 minutes"``.
    initialState
        Rows with the key columns for ``handleInitialState`` when the query is created.
    numPartitions, placement, policy, look, orderBy, tailGroups, combine, cacheBytes, retain
        As for ``equipoise.spark.balance``.
    cache
        Folder for caches; default below the checkpoint if that is local.
    clock
        Returns the processing time in milliseconds since 1970.
    batchRows
        Largest number of rows of a frame, and of an Arrow record batch; keys with more rows come in several frames. A
        ``VectorProcessor`` receives up to 65,536 rows at once, unless this is below the default. So many rows also
        count as a map task, which combines them if the operator can merge.
    timezone
        The session's time zone.
    form
        How a ``StatefulProcessor`` receives rows: ``"pandas"`` or ``"rows"``.
    then
        Keyed operators that follow, each on the output of the one before it.

    Examples
    --------
    >>> import pandas as pd, pyarrow as pa
    >>> from pyspark.sql.types import LongType, StructField, StructType
    >>> from equipoise.spark import Aggregator
    >>> class Count(Aggregator):
    ...     bufferSchema = StructType([StructField("n", LongType())])
    ...     def zero(self): return (0,)
    ...     def reduce(self, buffer, rows): return (buffer[0] + len(rows),)
    ...     def merge(self, one, other): return (one[0] + other[0],)
    ...     def finish(self, key, buffer): return (*key, *buffer)
    >>> rows, counts = pa.schema({"host": pa.string()}), pa.schema({"host": pa.string(), "n": pa.int64()})
    >>> query = LocalQuery(Count(), key="host", inputSchema=rows, outputStructType=counts)
    >>> query.process(pd.DataFrame({"host": ["a", "a"]})).values.tolist()
    [['a', 2]]
    >>> query.process(pd.DataFrame({"host": ["a"]})).values.tolist()
    [['a', 3]]
    >>> query.state()
    {('a',): {'buffer': (3,)}}
    """

    def __init__(
        self,
        processor: Processor,
        key: str | Sequence[str],
        inputSchema: SchemaLike,  # noqa: N803 - as Spark names schemas
        outputStructType: SchemaLike,  # noqa: N803 - Spark's own name
        checkpointLocation: str | None = None,  # noqa: N803 - Spark's own name
        *,
        timeMode: str = "none",  # noqa: N803 - Spark's own name
        watermark: tuple[str, int | str] | None = None,
        initialState: pd.DataFrame | pa.Table | None = None,  # noqa: N803 - Spark's own name
        numPartitions: int = 4,  # noqa: N803 - Spark's own name
        placement: PlacementMode = "plan",
        policy: Policy | None = None,
        look: LookMode = "auto",
        orderBy: str | Sequence[str] = (),  # noqa: N803 - Spark's own name
        tailGroups: int = 256,  # noqa: N803 - as for ``balance``
        combine: CombineMode = "auto",
        cache: str | None = None,
        cacheBytes: int | None = None,  # noqa: N803 - as Spark names options
        retain: int = 10,
        clock: Callable[[], int] = wall_clock,
        batchRows: int = 10_000,  # noqa: N803 - as the others
        timezone: str = "UTC",
        form: Form = "pandas",
        then: Sequence[LocalOperator] = (),
    ) -> None:
        if checkpointLocation is None:
            checkpointLocation = tempfile.mkdtemp(prefix="equipoise-")  # noqa: N806 - Spark's own name
            weakref.finalize(self, shutil.rmtree, checkpointLocation, ignore_errors=True)
        storage = Storage(checkpointLocation)
        options = StreamOptions(
            numPartitions=numPartitions,
            placement=placement,
            policy=policy or Policy(),
            orderBy=orderBy if isinstance(orderBy, str) else tuple(orderBy),
            tailGroups=tailGroups,
            look=look,
            combine=combine,
            cache=cache or (None if "://" in storage.location else storage.at("cache")),
            cacheBytes=cacheBytes,
            retain=retain,
        )
        schemas = LocalSchemas(timezone)
        self._schema = schemas.arrow(inputSchema)
        self._timezone = timezone
        worker = WorkerOptions(frame_rows=whole("batchRows", batchRows, 1))
        event_time = None if watermark is None else Watermark(watermark[0], _milliseconds(watermark[1]))
        first = LocalOperator(
            processor=processor, key=key, outputStructType=outputStructType, timeMode=timeMode, form=form
        )
        query = _definition(schemas, first, self._schema, worker, timezone, options.order_by, event_time)
        keys, code = query.key, query.code
        super().__init__(storage)
        self._half = SparkHalf(storage)
        self._clock = clock
        self._delivered: list[tuple[int, pa.Table]] = []

        def jobs(settings: Settings) -> LocalJobs:
            return LocalJobs(settings, worker.frame_rows)

        definitions = [query]
        for operator in then:
            definitions.append(_definition(schemas, operator, definitions[-1].output_arrow, worker, timezone))
        later = [
            Stage(definition, replace(options, numPartitions=operator.numPartitions, orderBy=()), jobs)
            for definition, operator in zip(definitions[1:], then, strict=True)
        ]
        opened = open_query(
            storage,
            query,
            options,
            self._receive,
            jobs,
            shuffle_partitions=numPartitions,
            initial=None if initialState is None else self._initial(initialState, keys, code),
            clock=clock,
            later=later,
        )
        self._epochs = [opened.settings.epoch, *opened.later]
        self._settings, self._jobs, self._engine = opened.settings, opened.jobs, opened.engine
        self._epoch = epoch = opened.settings.epoch
        caches = GroupCache.of_query(
            f"{opened.settings.identity.name} in {storage.location}", options.cache, epoch.number, epoch.owner
        )
        self._close_caches = weakref.finalize(self, caches.close)  # hundreds of files, and select() allows 1,024

    @property
    def batch(self) -> int:
        """Number of the batch that ``process`` runs next."""
        return self._half.last_finished() + 1

    def process(self, rows: pd.DataFrame | pa.Table) -> pd.DataFrame:
        """Run the next micro-batch and return its output.

        A batch that was committed before its output was delivered is not run again: its committed output is returned.
        Rows that differ from the committed ones are refused.
        """
        return to_pandas(self.process_arrow(rows), self._timezone)

    def process_arrow(self, rows: pd.DataFrame | pa.Table) -> pa.Table:
        """Run the next micro-batch and return its output as an Arrow table."""
        table, batch = self._table(rows), self.batch
        self._delivered.clear()
        self._plan(batch, table)
        try:
            self._engine(table, batch)
        except BaseException:
            self._engine = self._new_engine()  # what it held in memory may be ahead of the log
            raise
        self._finish(batch)
        [(_, output)] = self._delivered
        return output

    def state(self, version: int | None = None, *, stage: int = 1) -> dict[tuple[Any, ...], dict[str, Any]]:
        """Return states by key: values as tuples, lists as lists of them, maps as dicts, and the ``timers``.

        Parameters
        ----------
        version
            The state after batch ``version - 1``; 0 is the initial state; default the last.
        stage
            Number of the keyed operator, from 1.
        """
        storage = self._epochs[stage - 1].storage
        identity = Checkpoint(storage).require()
        log = CommitLog(storage)
        wanted = log.head() if version is None else version
        commit, sections, keys = log.read(wanted), SectionReader(storage), KeyCodec(identity.key_schema)
        specs = {name: msgspec.convert(spec, VariableSpec) for name, spec in commit.variables.items()}
        tables = {spec.tag: (name, spec, spec.values()) for name, spec in specs.items() if not spec.removed}
        found: dict[tuple[Any, ...], dict[str, Any]] = {}
        for chain in log.table(wanted).chains.values():
            for _, row in key_states(group_entries(chain, sections), keys, tables, commit.time_ms):
                key = tuple(row.pop(""))
                maps = {name for name, spec, _ in tables.values() if spec.kind == "map"}
                found[key] = {name: dict(value) if name in maps else value for name, value in row.items()}
        return found

    def close(self) -> None:
        """End the query; another one may continue from its checkpoint."""
        release_all(self._epochs)
        self._close_caches()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _plan(self, batch: int, table: pa.Table) -> None:
        """Record the rows of the batch, as Spark does before it runs one."""
        storage, path = self._epoch.storage, f"{OFFSETS}/{batch}"
        offsets = seal("rows", 2, _digest(table))
        if CommitLog(storage).head() <= batch:
            storage.write(path, offsets)
        elif storage.exists(path) and storage.read(path) != offsets:
            raise MismatchError(
                f"batch {batch} was committed with other rows and its output is due; give the rows of that batch again"
            )

    def _finish(self, batch: int) -> None:
        """Record that the batch is delivered, as Spark does."""
        storage = self._epoch.storage
        storage.write(f"{COMMITS}/{batch}", seal("finished", 1, batch))
        for folder in (OFFSETS, COMMITS):
            storage.delete(f"{folder}/{batch - _FINISHED_KEPT}")

    def _new_engine(self) -> Engine[pa.Table]:
        return Engine(self._settings, self._jobs, self._clock)

    def _receive(self, output: pa.Table, batch: int) -> None:
        self._delivered.append((batch, output))

    def _table(self, rows: pd.DataFrame | pa.Table) -> pa.Table:
        missing = [name for name in self._schema.names if name not in _columns(rows)]
        if missing:
            raise InvalidArgumentError(
                f"the rows have no column {missing[0]!r} of inputSchema; they have {_columns(rows)}"
            )
        try:
            if isinstance(rows, pa.Table):
                return decimals.cast(rows.select(self._schema.names), self._schema)
            return to_arrow([rows[self._schema.names]], self._schema, self._timezone)
        except (MisfitError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            found = error.what if isinstance(error, MisfitError) else error
            raise InvalidArgumentError(
                f"the rows do not fit inputSchema: {found}; convert the rows, or change the schema"
            ) from error

    def _initial(self, rows: pd.DataFrame | pa.Table, keys: tuple[str, ...], code: UserCode) -> pa.Table:
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pandas(rows, preserve_index=False)
        for name in keys:
            if name not in table.column_names:
                raise InvalidArgumentError(
                    f"initialState has no column {name!r} of the key; it has {table.column_names}"
                )
            typed = table.column(name).cast(self._schema.field(name).type)
            table = table.set_column(table.column_names.index(name), name, typed)
        return table.select(code.initial_columns(keys, table.column_names))


def _definition(
    schemas: LocalSchemas,
    operator: LocalOperator,
    rows: pa.Schema,
    worker: WorkerOptions,
    timezone: str,
    order_by: Sequence[str] = (),
    watermark: Watermark | None = None,
) -> QueryDefinition:
    """Return the definition of a keyed operator on rows of a schema."""
    keys = (operator.key,) if isinstance(operator.key, str) else tuple(operator.key)
    for name in (*keys, *order_by, *(() if watermark is None else (watermark.column,))):
        if name not in rows.names:
            raise InvalidArgumentError(f"{name!r} is not a column of inputSchema; it has {rows.names}")
    mode, output = time_mode(operator.timeMode), schemas.arrow(operator.outputStructType)
    return QueryDefinition(
        key=keys,
        key_schema=schemas.parsed(pa.schema([rows.field(name) for name in keys])),
        code=UserCode(schemas, operator.processor, output.names, mode, operator.form),
        time_mode=mode,
        output_schema=operator.outputStructType,
        output_arrow=output,
        timezone=timezone,
        worker=worker,
        watermark=watermark,
    )


def _digest(table: pa.Table) -> str:
    """Return the SHA-256 of the rows, independent of the chunks of the table."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()


def _columns(rows: pd.DataFrame | pa.Table) -> list[str]:
    return list(rows.column_names if isinstance(rows, pa.Table) else rows.columns)


def _milliseconds(delay: int | str) -> int:
    return whole("watermark", delay, 0) if isinstance(delay, int) else int(pd.Timedelta(delay).total_seconds() * 1000)
