"""How a query was started: all that its driver needs to know besides what is in the checkpoint."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from equipoise.adapt import Elastic, Policy
from equipoise.spark.rows.aggregator import Aggregator
from equipoise.spark.stream.delivery import Sink
from equipoise.spark.stream.runners import RunnerFactory
from equipoise.state.checkpoint import Identity
from equipoise.state.fencing import Epoch
from equipoise.state.handle import VariableSpec


@dataclass(frozen=True)
class Watermark:
    """An event-time column and how late its rows may come."""

    column: str
    delay_ms: int


@dataclass(frozen=True, eq=False)
class Settings:
    """How a query was started.

    Parameters
    ----------
    identity
        What the query is about.
    epoch
        Its right to commit.
    partitions
        N at the first start, and from then on where nothing else is wished.
    runner
        Makes the runner of the user's code in a task.
    variables, removed
        State variables by name, and the numbers of those to be deleted.
    output_schema, output_arrow
        Schema of the outputs, as Spark's text or type and as Arrow's.
    sink
        Where the outputs go.
    policy
        When to replan.
    elastic, target_seconds
        Bounds of N where it is chosen by the load, and the time that a batch may take, if anybody said.
    watermark
        Event time, if any.
    order_by
        Columns by which the rows of a key are sorted.
    plain_hash
        Whether keys go by plain hash, whatever the load.
    cache, timezone, retain
        Folder for caches, the session's time zone, versions that stay readable.
    state_arrow
        Arrow schema of the state of a vectorised processor.
    slots
        Tasks that run at a time; ``None``: as many as there are partitions.
    aggregator
        The user's aggregator where its keys may be split; else ``None``.
    visit_every
        Versions after which all keys are visited, not only those with rows; ``None`` for never.
    """

    identity: Identity
    epoch: Epoch
    partitions: int
    runner: RunnerFactory
    variables: dict[str, VariableSpec]
    removed: frozenset[int]
    output_schema: Any
    output_arrow: pa.Schema
    sink: Sink
    policy: Policy
    elastic: Elastic | None = None
    target_seconds: float | None = None
    watermark: Watermark | None = None
    order_by: tuple[str, ...] = ()
    plain_hash: bool = False
    cache: str | None = None
    timezone: str = "UTC"
    retain: int = 10
    state_arrow: pa.Schema | None = None
    slots: int | None = None
    aggregator: Aggregator | None = None
    visit_every: int | None = None
