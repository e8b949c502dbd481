"""Compute the measures of a batch that its commit records: amounts and imbalance."""

from collections.abc import Iterator

import numpy as np

from equipoise.adapt import Combine, busy_fraction
from equipoise.metrics import load_imbalance, lower_bound
from equipoise.plan import Plan, uniform_plan
from equipoise.spark.stream.batch_spec import GroupLoad, Manifest
from equipoise.state.commit import Measures
from equipoise.state.ownership import fingerprint_of

GOAL = 10.0
"""Seconds that a batch may take by default."""
MEASURABLE = 1_000_000
"""Bytes received, below which the time of receiving is that of opening files."""

_HOT_KEYS = 32  # keys with most rows in the record of a batch


def batch_measures(
    manifests: list[Manifest], plan: Plan, combine: Combine, seconds: float, target: float | None
) -> Measures:
    """Return the measures of a batch by name.

    Parameters
    ----------
    manifests
        Reports of its tasks.
    plan
        The plan of the batch.
    combine
        The keys that were combined.
    seconds
        Seconds that it took.
    target
        Seconds that it may take; ``None``: the default.
    """
    tasks = sorted(manifests, key=lambda manifest: manifest.partition)
    work = [sum(load.seconds for load in each.loads.values()) for each in tasks]
    received = [each.received for each in tasks]
    rows_hash, seconds_hash = hash_imbalance(tasks, plan)
    rows_bound, seconds_bound = whole_key_bound(tasks, plan.partitions)
    hottest = sorted(_rows_by_key(tasks), key=lambda each: (-each[1], each[0]))[:_HOT_KEYS]
    return {
        "rows": sum(each.rows for each in tasks),
        "sent_rows": sum(received),
        "combined_rows": sum(each.combined_rows for each in tasks),
        "keys": sum(each.keys for each in tasks),
        "combine": combine.reason,
        "combine_scope": combine.scope,
        "hot_keys": [key for key, _ in hottest],
        "hot_rows": [rows for _, rows in hottest],
        "seconds": seconds,
        "work_seconds": sum(work),
        "target_seconds": target,
        "partition_rows": received,
        "partition_seconds": [each.seconds for each in tasks],
        "imbalance_rows": load_imbalance(received) if sum(received) else 1.0,
        "imbalance_seconds": load_imbalance(work) if sum(work) else 1.0,
        "imbalance_rows_hash": rows_hash,
        "imbalance_seconds_hash": seconds_hash,
        "bound_rows": rows_bound,
        "bound_seconds": seconds_bound,
        "moved_bytes": sum(each.moved_bytes for each in tasks),
        "moved_seconds": max((each.moved_seconds for each in tasks), default=0.0),
        "caught_up_seconds": _caught_up(work, [each.moved_seconds for each in tasks]),
        "move_rate": move_rate(tasks),
        "output_rows": sum(file.rows for each in tasks for file in each.outputs),
        "busy": busy_fraction(sum(work), plan.partitions, GOAL if target is None else target),
    }


def _caught_up(work: list[float], moving: list[float]) -> float:
    """Return the seconds by which receiving state made the longest task longer than the longest work."""
    return max((sum(both) for both in zip(work, moving, strict=True)), default=0.0) - max(work, default=0.0)


def move_rate(manifests: list[Manifest]) -> float | None:
    """Return the bytes of state that a task receives in a second; ``None`` if too few were received to tell."""
    received, seconds = sum(each.moved_bytes for each in manifests), sum(each.moved_seconds for each in manifests)
    return received / seconds if received >= MEASURABLE and seconds > 0 else None


def _rows_by_key(manifests: list[Manifest]) -> Iterator[tuple[int, int]]:
    """Yield the listed and the isolated keys that had rows, each with their number."""
    for key, load in _isolated(manifests):
        if load.rows:
            yield key, load.rows
    for each in manifests:
        yield from zip(each.hot_keys, each.hot_rows, strict=True)


def _isolated(manifests: list[Manifest]) -> Iterator[tuple[int, GroupLoad]]:
    for each in manifests:
        for name, load in each.loads.items():
            key = fingerprint_of(name)
            if key is not None:
                yield key, load


def hash_imbalance(manifests: list[Manifest], plan: Plan) -> tuple[float, float]:
    """Return the imbalance, by rows received and by seconds, of plain hash with the same rows.

    Each key group is counted in its partition under plain hash, an isolated key with its tail group.
    """
    loads = [(name, load) for manifest in manifests for name, load in manifest.loads.items()]
    if not loads:
        return 1.0, 1.0
    keys = [fingerprint_of(name) for name, _ in loads]
    groups = [int(name[1:]) if key is None else key for (name, _), key in zip(loads, keys, strict=True)]
    by_hash = uniform_plan(plan.partitions, plan.tail_groups, hash_seed=plan.hash_seed)
    places = by_hash.assign(np.array(groups, dtype=np.int64))
    rows, seconds = (
        np.bincount(places, amounts, plan.partitions)
        for amounts in ([load.received for _, load in loads], [load.seconds for _, load in loads])
    )
    return load_imbalance(rows), load_imbalance(seconds)


def whole_key_bound(manifests: list[Manifest], partitions: int) -> tuple[float, float]:
    """Return the least imbalance, by rows received and by seconds, of any plan that keeps the hottest key whole."""
    isolated = [load for _, load in _isolated(manifests)]
    received = [load.received for load in isolated] + [rows for each in manifests for rows in each.hot_received]
    seconds = [load.seconds for load in isolated] + [seconds for each in manifests for seconds in each.hot_seconds]
    loads = [load for each in manifests for load in each.loads.values()]
    return (
        _bound(partitions, max(received, default=0), sum(load.received for load in loads)),
        _bound(partitions, max(seconds, default=0.0), sum(load.seconds for load in loads)),
    )


def _bound(partitions: int, largest: float, total: float) -> float:
    return lower_bound(partitions, min(1.0, largest / total)) if total > 0 else 1.0
