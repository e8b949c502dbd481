"""Real drifting streams (needs --data): imbalance and migration per batch, by planner, as in Figure 3 of DR."""

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from equipoise.adapt.load_record import LISTED_KEYS
from equipoise.errors import InvalidArgumentError
from equipoise.plan import make_planner
from equipoise_lab.bench.harness import Context, Result
from equipoise_lab.simulate.replay import ReplayOptions, Step, replay

_FILES = ("lfm_tags", "ask_ubuntu_tags", "google_task_events")
_UNTIMED = {"google_task_events"}
_PLANNERS = {"hash": "uniform", "scan": "scan", "readj": "readj", "kip": "kip"}
_BATCHES, _PARTITIONS, _WINDOW = 20, 20, 5
_RENAMINGS = 30  # keys get new random names, as in the paper, which took 10: the luck of a single hash decides nothing
_OF_HASH = 300  # plain hash lives by that luck alone: the mean of 30 is off by 0.05, and that of 300 by 0.015


def run(context: Context) -> Result:
    """Replay every file under every planner: plan from the past, measure on the next batch."""
    if context.data is None:
        raise InvalidArgumentError(
            f"stream-real measures real data; pass --data DIR with {', '.join(_FILES)} as Parquet"
        )
    metrics: dict[str, float] = {}
    samples: dict[str, object] = {}
    rng = np.random.default_rng(context.seed)
    for name in context.track(_FILES[:1] if context.quick else _FILES, "stream real"):
        keys = _keys(context, name)
        steps: dict[str, list[list[Step]]] = {label: [] for label in _PLANNERS}
        without_drift: list[list[Step]] = []
        for number in range(context.repeats(_OF_HASH, 3)):
            renamed = rng.integers(-(2**63), 2**63 - 1, keys.max() + 1, dtype=np.int64)[keys]
            for label in _PLANNERS if number < _RENAMINGS else ("hash",):
                batches = np.array_split(renamed, _BATCHES)
                steps[label].append(list(replay(make_planner(_PLANNERS[label]), batches, _OPTIONS)))
            if number < _RENAMINGS:
                shuffled = np.array_split(rng.permutation(renamed), _BATCHES)
                without_drift.append(list(replay(make_planner("kip"), shuffled, _OPTIONS)))
        for label in _PLANNERS:
            # the first batch runs under plain hash for everybody
            metrics[f"{name}_imbalance_{label}"] = _mean(steps[label], "imbalance")
            metrics[f"{name}_migration_{label}"] = _mean(steps[label], "migration")
            samples[f"{name} {label}"] = {
                what: [[getattr(step, what) for step in each] for each in steps[label]]
                for what in ("imbalance", "migration", "bound")
            }
        hash_imbalance, kip_imbalance = metrics[f"{name}_imbalance_hash"], metrics[f"{name}_imbalance_kip"]
        metrics[f"{name}_imbalance_kip_without_drift"] = _mean(without_drift, "imbalance")  # what chance alone makes
        metrics[f"{name}_bound"] = _mean(steps["hash"], "bound")
        metrics[f"{name}_kip_better_than_hash"] = 1 - kip_imbalance / hash_imbalance
        metrics[f"{name}_kip_excess_better_than_hash"] = 1 - (kip_imbalance - 1) / (hash_imbalance - 1)
        readj = metrics[f"{name}_migration_readj"]
        metrics[f"{name}_kip_migration_over_readj"] = metrics[f"{name}_migration_kip"] / readj
    return Result(metrics, samples)


_OPTIONS = ReplayOptions(_PARTITIONS, state_window=_WINDOW, listed=LISTED_KEYS)


def _keys(context: Context, name: str) -> NDArray[np.int64]:
    """The keys of a stream, numbered."""
    table = pq.read_table(context.file(f"{name}.parquet"), columns=["key", "ts"] if name in _UNTIMED else ["key"])
    if name in _UNTIMED:
        table = table.filter(pc.greater(table["ts"].cast("int64"), 0))  # events from before the trace have no order
    numbers = table["key"].combine_chunks().dictionary_encode().indices.to_numpy()
    return np.asarray(numbers, dtype=np.int64)


def _mean(replays: list[list[Step]], what: str) -> float:
    return float(np.mean([getattr(step, what) for steps in replays for step in steps[1:]]))
