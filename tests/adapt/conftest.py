"""Tasks that measure, without an engine: what a batch of rows reports under a plan."""

import numpy as np
import pytest

from equipoise.adapt import BatchLoads, Work

ROW_SECONDS = 1e-4
ROW_BYTES = 100.0


@pytest.fixture(scope="session")
def measure():
    """Function that measures a batch; ``row_seconds`` gives the time of one row of single keys."""

    def measured(plan, rows, *, listed=64, row_seconds=None):
        keys, counts = np.unique(rows, return_counts=True)
        cost = np.array([(row_seconds or {}).get(key, ROW_SECONDS) for key in keys.tolist()])
        seconds, state = counts * cost, counts * ROW_BYTES
        alone = np.isin(keys, plan.isolated_keys)
        home = np.mod(keys[~alone], plan.tail_groups)
        sums = [np.bincount(home, values[~alone], plan.tail_groups) for values in (counts, seconds, state)]
        groups = {int(group): Work(*(float(values[group]) for values in sums)) for group in np.unique(home)}
        isolated = {key: Work(0, 0.0, 0.0) for key in plan.isolated}
        isolated |= {int(keys[i]): Work(int(counts[i]), seconds[i], state[i]) for i in np.flatnonzero(alone)}
        task = plan.assign(keys)
        hot = {}
        for partition in range(plan.partitions):
            mine = np.flatnonzero((task == partition) & ~alone)
            for i in mine[np.argsort(-seconds[mine], kind="stable")[:listed]]:
                hot[int(keys[i])] = Work(int(counts[i]), seconds[i], state[i])
        return BatchLoads(plan.tail_groups, groups, isolated, hot)

    return measured
