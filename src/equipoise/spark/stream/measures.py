"""Compute the measures of a batch that its commit records: amounts and imbalance."""

import numpy as np

from equipoise.adapt import busy_fraction
from equipoise.metrics import load_imbalance, lower_bound
from equipoise.plan import Plan, uniform_plan
from equipoise.spark.stream.batch_spec import Manifest
from equipoise.state.commit import Measures
from equipoise.state.ownership import fingerprint_of

GOAL = 10.0
"""Seconds that a batch may take by default."""


def batch_measures(manifests: list[Manifest], plan: Plan, seconds: float, target: float | None) -> Measures:
    """Return the measures of a batch by name.

    Parameters
    ----------
    manifests
        Reports of its tasks.
    plan
        The plan of the batch.
    seconds
        Seconds that it took.
    target
        Seconds that it may take; ``None``: the default.
    """
    tasks = sorted(manifests, key=lambda manifest: manifest.partition)
    work = [max(0.0, sum(load.seconds for load in each.loads.values()) - each.elsewhere_seconds) for each in tasks]
    rows = [each.rows - each.elsewhere_rows for each in tasks]
    split = sum(each.elsewhere_seconds for each in tasks)
    rows_hash, seconds_hash = hash_imbalance(tasks, plan)
    rows_bound, seconds_bound = whole_key_bound(tasks, plan.partitions)
    return {
        "rows": sum(each.rows for each in tasks),
        "seconds": seconds,
        "work_seconds": sum(work) + split,
        "target_seconds": target,
        "split_rows": sum(each.elsewhere_rows for each in tasks),
        "partition_rows": rows,
        "partition_seconds": [each.seconds for each in tasks],
        "imbalance_rows": load_imbalance(rows) if sum(rows) else 1.0,
        "imbalance_seconds": load_imbalance(work) if sum(work) else 1.0,
        "imbalance_rows_hash": rows_hash,
        "imbalance_seconds_hash": seconds_hash,
        "bound_rows": rows_bound,
        "bound_seconds": seconds_bound,
        "output_rows": sum(file.rows for each in tasks for file in each.outputs),
        "busy": busy_fraction(sum(work) + split, plan.partitions, GOAL if target is None else target),
    }


def hash_imbalance(manifests: list[Manifest], plan: Plan) -> tuple[float, float]:
    """Return the imbalance, by rows and by seconds, of plain hash with the same rows.

    Each key group is counted in its partition under plain hash, an isolated key with its tail group, a split key whole.
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
        for amounts in ([load.rows for _, load in loads], [load.seconds for _, load in loads])
    )
    return load_imbalance(rows), load_imbalance(seconds)


def whole_key_bound(manifests: list[Manifest], partitions: int) -> tuple[float, float]:
    """Return the least imbalance, by rows and by seconds, of any plan that keeps the hottest key whole."""
    isolated = [load for each in manifests for name, load in each.loads.items() if fingerprint_of(name) is not None]
    rows = [load.rows for load in isolated] + [rows for each in manifests for rows in each.hot_rows]
    seconds = [load.seconds for load in isolated] + [seconds for each in manifests for seconds in each.hot_seconds]
    loads = [load for each in manifests for load in each.loads.values()]
    return (
        _bound(partitions, max(rows, default=0), sum(load.rows for load in loads)),
        _bound(partitions, max(seconds, default=0.0), sum(load.seconds for load in loads)),
    )


def _bound(partitions: int, largest: float, total: float) -> float:
    return lower_bound(partitions, min(1.0, largest / total)) if total > 0 else 1.0
