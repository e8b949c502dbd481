"""CPU time from the measured loads of a batch to a plan that is ready to route the next one."""

import hashlib
import time
from typing import Any

import numpy as np

from equipoise.adapt import BatchLoads, Controller, Policy, StreamLoadRecord, Work
from equipoise.plan import KIP, uniform_plan
from equipoise.plan.lookup import routing_bytes
from equipoise.plan.planner import default_tail_groups
from equipoise_lab.bench.harness import Context
from equipoise_lab.simulate.workloads import key_fingerprints, shifted_power_law_shares

_HOT = 1000  # keys that the tasks list
_SHARES = shifted_power_law_shares(200_000, 1.0, 200)  # no key has more than the mean load of 1,024 partitions
_ROWS = 10_000_000


def planning_milliseconds(context: Context) -> dict[int, list[float]]:
    """Return the milliseconds of CPU of replans, warm, by number of partitions.

    With 200 partitions there are 4,096 tail groups and 1,000 isolated keys, with 1,024 partitions the default numbers.
    Every batch has other keys, so that every replan moves all hot keys.
    """
    repeats = context.repeats(15, 7)
    return {
        200: _replans(KIP(histogram_scale=_HOT / 200), 200, 4096, repeats, context.seed),
        1024: _replans(KIP(), 1024, default_tail_groups(1024), repeats, context.seed),
    }


def _replans(planner: KIP, partitions: int, groups: int, repeats: int, seed: int) -> list[float]:
    controller = Controller(Policy(planner=planner, load="rows"))
    plan = uniform_plan(partitions, groups)
    record = StreamLoadRecord(groups, load="rows")
    times = []
    for batch in range(repeats + 3):
        works = _works(groups, 1000 * seed + batch)
        start = time.process_time()
        loads = BatchLoads(groups, *works)
        record = record.add(loads)
        plan = controller.decide(plan, record, batch=batch, batch_seconds=60).plan
        hashlib.sha256(plan.to_json().encode()).hexdigest()
        record.to_bytes()
        routing_bytes(plan)
        times.append(1000 * (time.process_time() - start))
        assert plan.version == batch + 1, f"batch {batch} did not replan"  # noqa: S101 - what is measured
    return times[3:]  # the first ones compile


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
