"""Open a query on a checkpoint: the same steps on Spark Classic, on Connect, without Spark and for planned batches.

1. Identify the checkpoint, or refuse one that belongs to a query with another key.
2. Claim an epoch, which fences off a query that still runs on the checkpoint.
3. Merge the state variables on record with those that the user's code declares now.
4. Make the engine, and let it commit version 0, the initial state, if the query is new.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic

import msgspec

from equipoise.spark.stream.delivery import Sink
from equipoise.spark.stream.engine import Engine, wall_clock
from equipoise.spark.stream.failures import translating
from equipoise.spark.stream.jobs import Jobs, Rows
from equipoise.spark.stream.options import StreamOptions
from equipoise.spark.stream.query import is_active_here
from equipoise.spark.stream.settings import QueryDefinition, Settings
from equipoise.state.checkpoint import Checkpoint, Identity, new_name
from equipoise.state.fencing import claim
from equipoise.state.handle import VariableSpec, merge_specs, removed_tags
from equipoise.state.log import CommitLog
from equipoise.storage import Storage


@dataclass(frozen=True)
class OpenQuery(Generic[Rows]):
    """A query that owns its checkpoint and is ready for its next batch."""

    settings: Settings
    jobs: Jobs[Rows]
    engine: Engine[Rows]


def open_query(
    storage: Storage,
    query: QueryDefinition,
    options: StreamOptions,
    sink: Sink,
    make_jobs: Callable[[Settings], Jobs[Rows]],
    *,
    shuffle_partitions: int,
    initial: Rows | None = None,
    clock: Callable[[], int] = wall_clock,
) -> OpenQuery[Rows]:
    """Take over the checkpoint of a query, or create it.

    Parameters
    ----------
    storage
        The checkpoint.
    query
        What the query computes.
    options
        The user's options.
    sink
        Where the output goes.
    make_jobs
        Makes the object that runs the tasks of a batch.
    shuffle_partitions
        Number of partitions if the options name none.
    initial
        Rows of the initial state; used only if the query is new.
    clock
        Returns the processing time in milliseconds since 1970.
    """
    checkpoint = Checkpoint(storage)
    known = checkpoint.identity()
    identity = checkpoint.identify(
        Identity(
            name=new_name(),
            key=list(query.key),
            key_schema=msgspec.json.decode(msgspec.json.encode(query.key_schema)),
            tail_groups=options.tail_groups(shuffle_partitions, None if known is None else known.tail_groups),
            time_mode=query.time_mode,
            exclusive=storage.abilities.create_if_absent,
        )
    )
    log = CommitLog(storage)
    epoch = claim(storage, is_active_here, exclusive=identity.exclusive, above=log.last_epoch())
    try:
        variables = _variables(log, query)
        settings = Settings(
            query=query,
            options=replace(options, numPartitions=options.first_partitions(shuffle_partitions)),
            identity=identity,
            epoch=epoch,
            variables=variables,
            removed=removed_tags(variables),
            sink=sink,
        )
        jobs = make_jobs(settings)
        engine = Engine(settings, jobs, clock)
        with translating():
            engine.initialise(initial)
    except BaseException:
        epoch.release()
        raise
    return OpenQuery(settings, jobs, engine)


def _variables(log: CommitLog, query: QueryDefinition) -> dict[str, VariableSpec]:
    """Return the state variables on record, with those that the user's code declares now."""
    last = log.last()
    stored = {} if last is None else last.variables
    known = {name: msgspec.convert(spec, VariableSpec) for name, spec in stored.items()}
    return merge_specs(known, query.code.variables, query.code.removed)
