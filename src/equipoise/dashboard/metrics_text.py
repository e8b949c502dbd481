"""A snapshot in the text format of Prometheus.

Samples of the last batch are gauges; counters are sums over the batches that this server has read, which begin anew
with the server, as Prometheus expects of counters.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from equipoise.dashboard.document import Snapshot, Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
HOT_KEYS = 10
"""Hottest keys that are told, each of them a time series."""

_Labels = Mapping[str, str]
_Samples = Iterable[tuple[_Labels, float | None]]


def metrics_text(snapshot: Snapshot) -> str:
    """All samples.

    Parameters
    ----------
    snapshot
        What to tell.
    """
    families = [*_about_query(snapshot), *_about_batch(snapshot), *_about_balance(snapshot), *_about_source(snapshot)]
    return "".join(families)


def _about_query(snapshot: Snapshot) -> Iterable[str]:
    about = {"query": snapshot.query or "", "location": snapshot.location, "key": ",".join(snapshot.key)}
    yield _family("query_info", "gauge", "The query and its checkpoint.", [(about, 1)])
    each = [({"status": status}, float(status == snapshot.status)) for status in get_args(Status)]
    yield _family("status", "gauge", "1 for the status that the query has.", each)
    readable = snapshot.status not in {"damaged", "incompatible"}
    yield _family("up", "gauge", "Whether the checkpoint can be read.", [({}, float(readable))])
    totals = snapshot.totals
    yield _family("rows_total", "counter", "Rows of the batches read.", [({}, totals.rows)])
    yield _family(
        "moved_bytes_total", "counter", "State that applied plans moved, as predicted.", [({}, totals.moved_bytes)]
    )
    yield _family("plan_changes_total", "counter", "Batches after which the plan changed.", [({}, totals.plan_changes)])


def _about_batch(snapshot: Snapshot) -> Iterable[str]:
    if not snapshot.batches:
        return
    last = snapshot.batches[-1]
    for name, told, value in (
        ("batch", "Number of the last batch.", last.batch),
        ("batch_timestamp_seconds", "Processing time of the last batch.", last.time_ms / 1000),
        ("batch_rows", "Rows of the last batch.", last.rows),
        ("batch_output_rows", "Rows that the last batch gave.", last.output_rows),
        ("batch_split_rows", "Rows of split keys in the last batch.", last.split_rows),
        ("batch_seconds", "Time of the last batch.", last.seconds),
        ("batch_work_seconds", "Time of the user's code in all tasks of the last batch.", last.work_seconds),
        ("batch_target_seconds", "Time that a batch may take, where that is known.", last.target_seconds),
        ("busy_ratio", "Part of the time of all partitions that the work took.", last.busy),
        (
            "undelivered_batches",
            "1 where the last batch is committed, not delivered.",
            snapshot.undelivered is not None,
        ),
        ("state_bytes", "Bytes of state.", last.state_bytes),
        ("partitions", "Number of partitions of the last batch.", last.partitions),
        ("plan_version", "Plan of the next batch.", last.next_plan),
    ):
        yield _family(name, "gauge", told, [({}, value)])
    tasks = snapshot.tasks
    for name, told, values in (
        ("partition_rows", "Rows of each task of the last batch.", [task.rows for task in tasks]),
        ("partition_seconds", "Time of each task of the last batch.", [task.seconds for task in tasks]),
        ("partition_state_bytes", "State of each partition.", [task.state_bytes for task in tasks]),
    ):
        yield _family(name, "gauge", told, [({"partition": str(i)}, value) for i, value in enumerate(values)])


def _about_balance(snapshot: Snapshot) -> Iterable[str]:
    if snapshot.plan is not None:
        plan = snapshot.plan
        yield _family("isolated_keys", "gauge", "Keys that the plan isolates.", [({}, plan.isolated_keys)])
        yield _family("split_keys", "gauge", "Keys that the plan splits.", [({}, plan.split_keys)])
    if not snapshot.batches:
        return
    last = snapshot.batches[-1]
    scores = [
        ({"by": "rows", "placed": "plan"}, last.imbalance_rows),
        ({"by": "rows", "placed": "hash"}, last.imbalance_rows_hash),
        ({"by": "seconds", "placed": "plan"}, last.imbalance_seconds),
        ({"by": "seconds", "placed": "hash"}, last.imbalance_seconds_hash),
    ]
    yield _family("imbalance", "gauge", "Fullest partition over the mean, as placed and as by plain hash.", scores)
    bounds = [({"by": "rows"}, last.bound_rows), ({"by": "seconds"}, last.bound_seconds)]
    yield _family("imbalance_bound", "gauge", "What no plan can go below while the hottest key stays whole.", bounds)
    hot = [({"key": each.fingerprint}, each.share) for each in snapshot.hot_keys[:HOT_KEYS]]  # stored for long: no keys
    yield _family("hot_key_share", "gauge", "Share of the load of the hottest keys.", hot)


def _about_source(snapshot: Snapshot) -> Iterable[str]:
    if not snapshot.source:
        return
    last = snapshot.source[-1]
    yield _family("source_blocks", "gauge", "Blocks of the last batch of the source.", [({}, last.blocks)])
    yield _family("source_buckets", "gauge", "Reduce buckets of the last batch of the source.", [({}, last.buckets)])
    yield _family("source_load_ratio", "gauge", "Time of a batch over its interval.", [({}, last.load)])


def _family(name: str, kind: Literal["gauge", "counter"], told: str, samples: _Samples) -> str:
    """A metric with its samples; nothing where none has a value."""
    lines = [f"equipoise_{name}{_labels(labels)} {_number(value)}\n" for labels, value in samples if value is not None]
    return f"# HELP equipoise_{name} {told}\n# TYPE equipoise_{name} {kind}\n{''.join(lines)}" if lines else ""


def _labels(labels: _Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}" if labels else ""


def _escaped(value: str) -> str:
    r"""A label's value as the format wants it.

    Examples
    --------
    >>> print(_escaped('a "b" \\ c'))
    a \"b\" \\ c
    """
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return repr(float(value)) if value % 1 else str(int(value))
