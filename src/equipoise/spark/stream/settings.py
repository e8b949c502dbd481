"""The definition of a query, and everything that its driver knows besides the checkpoint."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from equipoise.adapt import Combining
from equipoise.adapt.combining import CombinedBatch
from equipoise.errors import EquipoiseError, UserFunctionError
from equipoise.spark.rows.user_functions import raised_at, traced
from equipoise.spark.rows.worker_options import WorkerOptions
from equipoise.spark.stream.delivery import Sink
from equipoise.spark.stream.options import StreamOptions
from equipoise.spark.stream.user_code import UserCode
from equipoise.state.checkpoint import Identity
from equipoise.state.fencing import Epoch
from equipoise.state.handle import VariableSpec

Transformation = Callable[[Any], Any]
"""A function from the output rows of a batch to the rows that the sink receives."""


@dataclass(frozen=True)
class Watermark:
    """An event-time column and how late its rows may come."""

    column: str
    delay_ms: int


@dataclass(frozen=True, eq=False, kw_only=True)
class QueryDefinition:
    """Definition of a query, before it has a checkpoint and a sink.

    Parameters
    ----------
    key, key_schema
        Names of the key columns, and ``StructType.jsonValue()`` of them.
    code
        The user's code.
    time_mode
        ``none``, ``processingTime`` or ``eventTime``.
    output_schema, output_arrow
        Schema of the rows that the code yields, as Spark's type or text and as Arrow's.
    timezone, worker
        The session's time zone, and its other settings for user functions.
    watermark
        Event time; ``None`` without one.
    slots
        Number of tasks that run at a time; ``None``: one for each partition.
    visit_every
        Number of versions after which all keys are visited, not only those with rows; ``None`` for never.
    output_event_time
        Column of the output that has the event time for a later stage; its rows must not be late. ``None`` for none.
    final_by
        Key column with the event time by which an aggregate finishes a key: then its row is final, and delivered.
        ``None`` for other operators, and for aggregates that deliver a row whenever it changes.
    transformations
        Functions applied to the committed rows of a batch before the sink receives them, first to last.
    """

    key: tuple[str, ...]
    key_schema: dict[str, Any]
    code: UserCode
    time_mode: str
    output_schema: Any
    output_arrow: pa.Schema
    timezone: str = "UTC"
    worker: WorkerOptions = field(default_factory=WorkerOptions)
    watermark: Watermark | None = None
    slots: int | None = None
    visit_every: int | None = None
    output_event_time: str | None = None
    final_by: str | None = None
    transformations: tuple[Transformation, ...] = ()

    @property
    def has_event_time(self) -> bool:
        """Whether the batches of the query have a watermark that can move."""
        return self.watermark is not None or self.time_mode == "eventTime"

    def transformed(self, rows: Any) -> Any:
        """Apply the transformations to output rows."""
        for transformation in self.transformations:
            try:
                rows = transformation(rows)
            except EquipoiseError:
                raise
            except Exception as error:
                raise UserFunctionError(
                    f"{type(error).__name__} in a transformation of the output{raised_at(error)}: {error}\n"
                    "The batch is committed and not delivered. Correct the transformation and start the query again on "
                    f"the same checkpoint: the batch is delivered first.\n{traced(error)}"
                ) from error
        return rows


@dataclass(frozen=True, eq=False, kw_only=True)
class Settings:
    """A query that was opened on a checkpoint.

    Parameters
    ----------
    query
        What it computes.
    options
        The user's options, with N and the target time filled in.
    identity
        What the checkpoint says the query is.
    epoch
        Its right to commit.
    variables, removed
        State variables by name, and the tags of those to be deleted.
    sink
        Where the output goes.
    """

    query: QueryDefinition
    options: StreamOptions
    identity: Identity
    epoch: Epoch
    variables: dict[str, VariableSpec]
    removed: frozenset[int]
    sink: Sink

    @property
    def partitions(self) -> int:
        """Number of partitions unless an override asks for another one."""
        return self.options.first_partitions(1)

    @property
    def way_out(self) -> str:
        """What helps against a key that alone has more than the load of a partition."""
        refused, mode = self.query.code.uncombined, self.options.combine
        if refused:
            return f"{refused}: an operator that merges would combine its rows before the exchange"
        if self.options.order_by:
            return "orderBy keeps its rows together: without it they would be combined before the exchange"
        if mode == "never":
            return "combine='auto' would combine its rows before the exchange"
        return f"combine={mode!r} combines its rows once they fill a task, its state stays whole"

    def combining(self, experience: Sequence[CombinedBatch] = ()) -> Combining:
        """Return what decides before each batch which keys are combined."""
        code, options = self.query.code, self.options
        refused = code.uncombined or ("orderBy keeps the rows of a key together" if options.order_by else "")
        return Combining(
            options.combine,
            buffer_cost=code.buffer_cost,
            hot_only=code.hot_only,
            refused=refused,
            experience=experience,
        )
