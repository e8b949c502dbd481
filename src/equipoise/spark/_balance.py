"""The one entry to balanced keyed work: ``balance(df, *key)`` in place of ``df.groupBy(*key)``."""

import os
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame

from equipoise.adapt import Elastic, Policy
from equipoise.adapt.combining import CombineMode
from equipoise.adapt.looking import LookMode
from equipoise.errors import InvalidArgumentError
from equipoise.plan import Plan
from equipoise.spark.batch.groups import BalancedGroups
from equipoise.spark.batch.options import BatchOptions, Sampling
from equipoise.spark.rows.keys import KeyLike, grouping_columns, resolve_key
from equipoise.spark.rows.options import PlacementMode

if TYPE_CHECKING:
    from equipoise.spark.stream.stateful_stream import StatefulStream

_BATCH = ("plan", "record", "weight", "sample", "slots", "seed")
_STREAM = ("elastic", "orderBy", "targetSeconds", "tailGroups", "look", "combine", "cache", "cacheBytes", "retain")


def balance(
    df: "DataFrame | StatefulStream",
    *key: KeyLike,
    numPartitions: int | None = None,  # noqa: N803 - Spark's own name
    placement: PlacementMode = "plan",
    policy: Policy = Policy(),  # noqa: B008 - it is immutable
    plan: Plan | None = None,
    record: str | os.PathLike[str] | None = None,
    weight: str | Column | None = None,
    sample: Sampling = None,
    slots: int | None = None,
    seed: int | None = None,
    elastic: Elastic | None = None,
    orderBy: str | tuple[str, ...] | None = None,  # noqa: N803 - Spark's own name
    targetSeconds: float | None = None,  # noqa: N803 - as Spark names options
    tailGroups: int | None = None,  # noqa: N803 - as Spark names options
    look: LookMode | None = None,
    combine: CombineMode | None = None,
    cache: str | None = None,
    cacheBytes: int | None = None,  # noqa: N803 - as Spark names options
    retain: int | None = None,
) -> Any:
    """Group a DataFrame by key, with the load spread evenly over partitions; write it in place of ``df.groupBy(*key)``.

    The result has the methods of Spark's ``GroupedData`` with the same signatures and the same results. Nothing is read
    before one of them is called.

    Parameters
    ----------
    df
        A batch or streaming DataFrame, or the output of a keyed operator on a stream: then the two operators run one
        after the other in one query, each with its own key, plan and state.
    *key
        Key column or columns, as for ``df.groupBy``: names or Columns of any type that Spark can group by. NULL is a
        key like any other. A key is computed several times, so one that Spark knows to be non-deterministic, such as
        ``F.rand()``, is refused.
    numPartitions
        Number of partitions N; default ``spark.sql.shuffle.partitions``.
    placement
        ``"plan"`` places keys by their load; ``"hash"`` by plain hash.
    policy
        When to plan, and with which planner. On a batch it gives the planner and the mode: ``"auto"`` places keys by
        the plan, ``"advise"`` makes and reports the plan and leaves the rows to Spark's hash, ``"observe"`` leaves them
        to Spark's hash and makes no plan.
    plan
        Batch only: a plan made earlier; then nothing is measured.
    record
        Batch only: file with the loads of earlier runs of this job. The first run samples; each run observes itself and
        adds what it saw; later runs plan from that, without a pass of their own.
    weight
        Batch only: numeric column with the load of a row, such as its bytes; default: every row counts 1.
    sample
        Batch only: number of rows to look at, so that the loads are known at least as exactly as from so many rows
        taken at random; smaller data are read whole. Default: ``max(20,000, 2 N ln N / 0.05^2)``, with which the load
        of the fullest partition is known to about 5 %. ``"full"``: the rows of every key are counted.
    slots
        Batch only: number of tasks that run at the same time; default Spark's default parallelism. Some partitions may
        be left empty so that all slots finish together.
    seed
        Batch only: seed of the sampling, default 0.
    elastic
        Stream only: bounds of N and the load at which it changes; default: N is fixed.
    orderBy
        Stream only: columns by which the rows of a key are sorted before the operator sees them.
    targetSeconds
        Stream only: time that a batch may take; default the trigger's interval, else 10.
    tailGroups
        Stream only: number of tail groups H, fixed when the query is created; default 16 for each partition, at least
        64.
    look
        Stream only: when to look at the keys of a micro-batch before it is placed; default ``"auto"``: where the time
        that it saves exceeds the time of looking. ``"always"`` or ``"never"``.
    combine
        Stream only: whether map tasks reduce their rows of a key before the exchange, if the operator can merge;
        default ``"auto"``: where keys repeat often enough, and for keys too hot for one partition. ``"always"`` or
        ``"never"``.
    cache
        Stream only: local folder for the executors' caches; default the system's temporary folder.
    cacheBytes
        Stream only: bytes that the caches of a keyed operator may take on one machine; default no bound. Groups that
        were not used for longest are deleted, and read from the checkpoint when they are needed again.
    retain
        Stream only: number of earlier versions of the state that stay readable, default 10.

    Returns
    -------
    BalancedGroups or KeyedStream
        For a batch, and for a stream or the output of a keyed operator on one.

    Examples
    --------
    ``balance(visits, "host", numPartitions=16).applyInPandas(summarise, "host string, p95 double")``
    """
    given = locals()
    streaming = getattr(df, "isStreaming", False) is True
    before = None if isinstance(df, DataFrame) else getattr(df, "pipeline", None)
    rows: Any = df if before is None else before.empty()
    resolved = resolve_key(rows, grouping_columns(key), streaming=streaming and before is None)
    refused, allowed, kind = (_BATCH, _STREAM, "streaming") if streaming else (_STREAM, _BATCH, "batch")
    for name in refused:
        if given[name] is not None:
            raise InvalidArgumentError(
                f"{name} is not an option of balance on a {kind} DataFrame; it has numPartitions, placement, policy, "
                f"{', '.join(allowed)}"
            )
    options: dict[str, Any] = {"numPartitions": numPartitions, "placement": placement, "policy": policy}
    options |= {name: given[name] for name in allowed if given[name] is not None}
    if not streaming:
        return BalancedGroups(rows, resolved, BatchOptions(**options), _run_once)
    from equipoise.spark.stream.keyed_stream import KeyedStream  # noqa: PLC0415 - a batch needs nothing of streams
    from equipoise.spark.stream.options import StreamOptions  # noqa: PLC0415 - as above

    return KeyedStream(rows, resolved, StreamOptions(**options), before)


def _run_once(*arguments: Any) -> DataFrame:
    """Run a ``StatefulProcessor`` over a batch; the module is loaded with the first call."""
    from equipoise.spark.stream.once import run_once  # noqa: PLC0415 - most batches need nothing of streams

    return run_once(*arguments)
