"""Time of the driver's work between a look at a batch and its job: planning, placing, and describing it to tasks."""

import hashlib
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from pyspark import cloudpickle
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from equipoise.adapt import BatchLoads, Controller, Look, Policy, StreamLoadRecord, Work, rows_needed
from equipoise.plan import KIP, Plan, uniform_plan
from equipoise.plan.lookup import routing_bytes
from equipoise.plan.planner import default_tail_groups
from equipoise.spark import LocalQuery
from equipoise.spark.stream.placement import RowPlacement
from equipoise.spark.stream.planning import Choice
from equipoise.spark.stream.task import task
from equipoise.state.catch_up import RECENT
from equipoise.state.commit import Change
from equipoise.state.group_table import Chain, GroupTable
from equipoise.state.ownership import tail_group
from equipoise.state.sections import Section
from equipoise_lab.bench.harness import Context
from equipoise_lab.bench.local_spark import local_spark
from equipoise_lab.bench.stream import TOTALS, VectorTotals
from equipoise_lab.simulate.workloads import key_fingerprints, shifted_power_law_shares

_HOT = 1000  # keys that the tasks list, and isolated keys of the plans that are placed
_WARM = 3  # repeats that compile and start
_SCHEMA = "key long, value long"
_SHARES = shifted_power_law_shares(200_000, 1.0, 200)  # no key has more than the mean load of 1,024 partitions
_ROWS = 10_000_000


class Times(NamedTuple):
    """Milliseconds of each repeat: CPU of this process, and of the clock."""

    cpu: list[float]
    wall: list[float]


def planning_milliseconds(context: Context) -> dict[int, Times]:
    """Return the times of replans, warm, by number of partitions.

    From a look at the batch and the measured loads of the batch before to a plan whose bytes are ready. With 200
    partitions there are 4,096 tail groups and 1,000 isolated keys, with 1,024 partitions the default numbers. Every
    batch has other keys, so that every replan moves all hot keys.
    """
    repeats = context.repeats(15, 7)
    return {
        200: _replans(KIP(histogram_scale=_HOT / 200), 200, 4096, repeats, context.seed),
        1024: _replans(KIP(), 1024, default_tail_groups(1024), repeats, context.seed),
    }


def driver_milliseconds(context: Context) -> dict[str, Times]:
    """Return the times of what follows a replan on the driver, warm: ``placement_N`` and ``batch_spec_N``.

    A placement makes the expressions of a plan in the JVM and the DataFrame of the batch; its CPU in the JVM is not
    counted, only waited for. A specification is made and pickled as the tasks receive it; every group has state, and as
    many changes as are sent.
    """
    repeats = context.repeats(15, 7)
    found: dict[str, Times] = {}
    with local_spark(2) as spark:
        df = spark.range(1).select(F.col("id").alias("key"), F.col("id").alias("value"))
        for partitions, groups in ((200, 4096), (1024, default_tail_groups(1024))):
            with tempfile.TemporaryDirectory() as folder, _query(folder, partitions, groups) as query:
                engine, runner = query._engine, query._engine._settings.query.code.runner  # noqa: SLF001 - what is timed
                progress = engine._recovered()  # noqa: SLF001 - as above
                progress.table = _table(groups, partitions)

                def place(plan: Plan, settings: Any = engine._settings) -> None:  # noqa: SLF001 - as above
                    RowPlacement(df, settings, plan, initial=False).placed(df)

                def describe(plan: Plan, made: Any = engine._batch_spec, at: Any = progress, run: Any = runner) -> None:  # noqa: SLF001 - as above
                    spec = made(at, Choice.keep(plan, ""), RECENT, ("key", "value"), 0)
                    cloudpickle.dumps(task(spec, run))  # type: ignore[no-untyped-call]  # it has no annotations

                plans = [_isolating(partitions, groups, context.seed + number) for number in range(repeats + _WARM)]
                found[f"placement_{partitions}"] = _timed(place, plans)
                found[f"batch_spec_{partitions}"] = _timed(describe, plans)
    return found


def _query(folder: str, partitions: int, groups: int) -> LocalQuery:
    return LocalQuery(VectorTotals(), "key", _SCHEMA, TOTALS, folder, numPartitions=partitions, tailGroups=groups)


def _table(groups: int, partitions: int) -> GroupTable:
    """Return a table in which every group has changed in each of the last versions."""
    chains = {
        tail_group(group): Chain(
            None,
            [
                Change(version, Section(f"changes/{version:020d}/{group % partitions:032x}", 0, 1000, group, 50, False))
                for version in range(RECENT)
            ],
        )
        for group in range(groups)
    }
    return GroupTable(RECENT - 1, chains)


def _isolating(partitions: int, groups: int, seed: int) -> Plan:
    keys = key_fingerprints(np.arange(_HOT), seed)
    owners = {key: place % partitions for place, key in enumerate(keys.tolist())}
    return Plan(partitions, uniform_plan(partitions, groups).tail, owners)


def _timed(work: Callable[[Plan], None], plans: list[Plan]) -> Times:
    times = Times([], [])
    for plan in plans:
        cpu, wall = time.process_time(), time.perf_counter()
        work(plan)
        times.cpu.append(1000 * (time.process_time() - cpu))
        times.wall.append(1000 * (time.perf_counter() - wall))
    return Times(times.cpu[_WARM:], times.wall[_WARM:])


def _replans(planner: KIP, partitions: int, groups: int, repeats: int, seed: int) -> Times:
    controller = Controller(Policy(planner=planner, load="rows"))
    plan = uniform_plan(partitions, groups)
    record = StreamLoadRecord(groups, load="rows")
    times = Times([], [])
    for batch in range(repeats + _WARM):
        works, look = _works(groups, 1000 * seed + batch), _look(partitions, 1000 * seed + batch)
        cpu, wall = time.process_time(), time.perf_counter()
        loads = BatchLoads(groups, *works)
        record = record.add(loads)
        plan = controller.decide(plan, record.seen(look), batch=batch, batch_seconds=60).plan
        hashlib.sha256(plan.to_json().encode()).hexdigest()
        record.to_bytes()
        routing_bytes(plan)
        times.cpu.append(1000 * (time.process_time() - cpu))
        times.wall.append(1000 * (time.perf_counter() - wall))
        assert plan.version == batch + 1, f"batch {batch} did not replan"  # noqa: S101 - what is measured
    return Times(times.cpu[_WARM:], times.wall[_WARM:])


def _look(partitions: int, seed: int) -> Look:
    """Return a look at the same keys as those of the works."""
    wanted = rows_needed(partitions)
    counts = np.random.default_rng(seed).multinomial(wanted, _SHARES / _SHARES.sum())
    keys = np.repeat(key_fingerprints(np.arange(len(_SHARES)), seed), counts)
    return Look.of(keys, seconds=0.0, chances=wanted / _ROWS)


def _works(groups: int, seed: int) -> Any:
    """Return works of the tail groups, of the isolated keys, of which there are none, and of the hottest keys."""
    keys = key_fingerprints(np.arange(len(_SHARES)), seed)
    tail = np.bincount(np.mod(keys, groups), _SHARES, groups)
    hot = zip(keys[:_HOT].tolist(), _SHARES[:_HOT].tolist(), strict=True)
    return (
        {group: Work(share * _ROWS, share * 100, share * 1e9) for group, share in enumerate(tail.tolist())},
        {},
        {key: Work(share * _ROWS, share * 100) for key, share in hot},
    )
