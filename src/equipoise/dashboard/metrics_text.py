"""A snapshot in the text format of Prometheus.

Figures of the last batch are gauges. Counters are sums over the batches that this server has read; they start at 0 with
the server, as Prometheus expects of counters.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from equipoise.dashboard.document import Snapshot, Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
HOT_KEYS = 10
"""Number of hottest keys, each of them a time series."""
PATIENCE = 60.0
"""Seconds without a batch after which a query of another machine may be taken for dead; see ``is_up``."""

_Labels = Mapping[str, str]
_Samples = Iterable[tuple[_Labels, float | None]]


def metrics_text(snapshot: Snapshot, now: float) -> str:
    """Return all samples.

    Parameters
    ----------
    snapshot
        The query.
    now
        Time in seconds since 1970.
    """
    families = [
        *_about_query(snapshot, now),
        *_about_batch(snapshot),
        *_about_balance(snapshot),
        *_about_source(snapshot),
    ]
    return "".join(families)


def is_up(snapshot: Snapshot, now: float) -> bool:
    """Whether the query runs.

    On the machine of the query its process is looked up. From another machine only its batches can be seen: it counts
    as running while the last batch is not older than ``PATIENCE``, nor than three times its target or the longest time
    between two of the last ten batches.

    Parameters
    ----------
    snapshot, now
        As for ``metrics_text``.
    """
    if snapshot.status != "elsewhere" or not snapshot.batches:
        return snapshot.status == "running"
    latest = snapshot.batches[-10:]
    usual = max(each.since_previous or 0.0 for each in latest)
    allowed = max(PATIENCE, 3 * usual, 3 * (latest[-1].target_seconds or 0.0))
    return now - latest[-1].time_ms / 1000 <= allowed


def _about_query(snapshot: Snapshot, now: float) -> Iterable[str]:
    about = {"query": snapshot.query or "", "location": snapshot.location, "key": ",".join(snapshot.key)}
    yield _family("query_info", "gauge", "The query and its checkpoint.", [(about, 1)])
    each = [({"status": status}, float(status == snapshot.status)) for status in get_args(Status)]
    yield _family("status", "gauge", "1 for the status that the query has.", each)
    described = "1 if the query runs; of a query of another machine, if it committed a batch lately."
    yield _family("up", "gauge", described, [({}, float(is_up(snapshot, now)))])
    totals = snapshot.totals
    yield _family("rows_total", "counter", "Rows of the batches read.", [({}, totals.rows)])
    yield _family(
        "moved_bytes_total",
        "counter",
        "Bytes of state moved by applied plans, as predicted.",
        [({}, totals.moved_bytes)],
    )
    yield _family("plan_changes_total", "counter", "Batches that had a new plan.", [({}, totals.plan_changes)])
    for name, described, value in (
        ("promised_seconds", "Time that new plans were predicted to save.", totals.promised_seconds),
        ("got_seconds", "Time that new plans saved, as measured; less than 0 if they lost time.", totals.got_seconds),
        ("spent_seconds", "Time that looking at batches and moving state took.", totals.spent_seconds),
    ):
        yield _family(name, "gauge", described, [({}, value)])


def _about_batch(snapshot: Snapshot) -> Iterable[str]:
    if not snapshot.batches:
        return
    last = snapshot.batches[-1]
    for name, described, value in (
        ("batch", "Number of the last batch.", last.batch),
        ("batch_timestamp_seconds", "Processing time of the last batch.", last.time_ms / 1000),
        ("batch_rows", "Rows of the last batch.", last.rows),
        ("batch_output_rows", "Output rows of the last batch.", last.output_rows),
        (
            "batch_combined_rows",
            "Rows of the last batch that map tasks reduced before the exchange.",
            last.combined_rows,
        ),
        ("batch_seconds", "Time of the last batch.", last.seconds),
        ("batch_work_seconds", "Time of the user's code in all tasks of the last batch.", last.work_seconds),
        ("batch_target_seconds", "Time that a batch may take, if known.", last.target_seconds),
        ("busy_ratio", "Fraction of the time of all partitions that the work took.", last.busy),
        (
            "undelivered_batches",
            "1 if the last batch is committed and not delivered.",
            snapshot.undelivered is not None,
        ),
        ("state_bytes", "Bytes of state.", last.state_bytes),
        ("partitions", "Number of partitions of the last batch.", last.partitions),
        ("plan_version", "Plan of the last batch.", last.plan),
        ("batch_promised_seconds", "Predicted saving of the last batch by a new plan.", last.promised_seconds),
        ("batch_got_seconds", "The same as measured; less than 0 if it lost time.", last.got_seconds),
        ("trust_ratio", "Part of the promised gain that earlier plans have brought.", last.trust),
        ("look_rows", "Rows of the last batch that were seen before it ran.", last.look_rows),
        ("look_seconds", "Time of the look at the last batch.", last.look_seconds),
    ):
        yield _family(name, "gauge", described, [({}, value)])
    tasks = snapshot.tasks
    for name, described, values in (
        ("partition_rows", "Rows of each task of the last batch.", [task.rows for task in tasks]),
        ("partition_seconds", "Time of each task of the last batch.", [task.seconds for task in tasks]),
        ("partition_state_bytes", "State of each partition.", [task.state_bytes for task in tasks]),
    ):
        yield _family(name, "gauge", described, [({"partition": str(i)}, value) for i, value in enumerate(values)])


def _about_balance(snapshot: Snapshot) -> Iterable[str]:
    if snapshot.plan is not None:
        plan = snapshot.plan
        yield _family("isolated_keys", "gauge", "Keys that the plan isolates.", [({}, plan.isolated_keys)])
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
    promises = [
        ({"placed": "plan", "what": "promised"}, last.promised_rows),
        ({"placed": "plan", "what": "measured"}, last.imbalance_rows),
        ({"placed": "plan before", "what": "promised"}, last.unchanged_rows),
        ({"placed": "plan before", "what": "measured"}, last.imbalance_rows_unchanged),
    ]
    described = "Rows of the fullest partition over the mean, as predicted before the last batch and as measured."
    yield _family("promise", "gauge", described, promises)
    bounds = [({"by": "rows"}, last.bound_rows), ({"by": "seconds"}, last.bound_seconds)]
    yield _family(
        "imbalance_bound", "gauge", "Imbalance that no plan can beat while the hottest key stays whole.", bounds
    )
    hot = [
        ({"key": each.fingerprint}, each.share) for each in snapshot.hot_keys[:HOT_KEYS]
    ]  # Prometheus stores labels: never literal keys
    yield _family("hot_key_share", "gauge", "Share of the load of the hottest keys.", hot)


def _about_source(snapshot: Snapshot) -> Iterable[str]:
    if not snapshot.source:
        return
    last = snapshot.source[-1]
    yield _family("source_blocks", "gauge", "Blocks of the last batch of the source.", [({}, last.blocks)])
    yield _family("source_buckets", "gauge", "Reduce buckets of the last batch of the source.", [({}, last.buckets)])
    yield _family("source_load_ratio", "gauge", "Time of a batch over its interval.", [({}, last.load)])


def _family(name: str, kind: Literal["gauge", "counter"], described: str, samples: _Samples) -> str:
    """Return a metric with its samples; empty if none has a value."""
    lines = [f"equipoise_{name}{_labels(labels)} {_number(value)}\n" for labels, value in samples if value is not None]
    return f"# HELP equipoise_{name} {described}\n# TYPE equipoise_{name} {kind}\n{''.join(lines)}" if lines else ""


def _labels(labels: _Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}" if labels else ""


def _escaped(value: str) -> str:
    r"""Escape a label value.

    Examples
    --------
    >>> print(_escaped('a "b" \\ c'))
    a \"b\" \\ c
    """
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return repr(float(value)) if value % 1 else str(int(value))
