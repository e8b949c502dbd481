"""Describe a query that has not started: how its rows are placed, by which rules, and where that can be read later."""

import html
from typing import TYPE_CHECKING

from equipoise.plan import Plan, uniform_plan
from equipoise.readable import seconds_text
from equipoise.spark.stream.options import StreamOptions

if TYPE_CHECKING:
    from equipoise.spark.stream.pipeline import Pipeline


def hash_plan(options: StreamOptions, shuffle_partitions: int) -> Plan:
    """Return the plan with which a new query starts, before a look at its first batch: plain hash."""
    count = options.first_partitions(shuffle_partitions)
    return uniform_plan(count, options.tail_groups(shuffle_partitions, None))


def advice_text(options: StreamOptions) -> str:
    """Return what the query will do about skew, in a sentence."""
    if options.plain_hash:
        return "leave the rows where plain hash puts them, because placement is 'hash'"
    looked = {
        "auto": "look at the keys of the first batch, and of later ones where that pays",
        "always": "look at the keys of every batch",
        "never": "start with plain hash, measure every batch",
    }[options.look]
    return {
        "auto": f"{looked}, and move hot keys when that saves time",
        "advise": "keep plain hash, measure every batch, and report better plans without using them",
        "observe": "keep plain hash, and measure every batch",
    }[options.policy.mode]


def described_stream(key: tuple[str, ...], options: StreamOptions, shuffle_partitions: int) -> str:
    """Return the description of a keyed stream."""
    plan = hash_plan(options, shuffle_partitions)
    lines = [f"Keyed stream by {', '.join(key)}"]
    if options.elastic is None:
        lines.append(f"  partitions: {plan.partitions}")
    else:
        lines.append(
            f"  partitions: {plan.partitions} at the start, between {options.elastic.minimum} and "
            f"{options.elastic.maximum} by the load"
        )
    lines += [f"  tail groups: {plan.tail_groups}", f"  advice: {advice_text(options)}"]
    if options.order_by:
        lines.append(f"  rows of a key sorted by: {', '.join(options.order_by)}")
    if options.targetSeconds is not None:
        lines.append(f"  target: {seconds_text(options.targetSeconds)} for each batch")
    lines.append("  measured loads and decisions: query.batch_log() after the query has started")
    return "\n".join(lines)


def described_pipeline(pipeline: "Pipeline") -> str:
    """Return the description of a query that has not started."""
    query, options = pipeline.query, pipeline.options
    before = [] if pipeline.before is None else [described_pipeline(pipeline.before), "then, on this output:"]
    lines = [*before, described_stream(query.key, options, pipeline.shuffle_partitions)]
    lines.append(f"  operator: {query.code.name}, time mode {query.time_mode}")
    if query.watermark is not None:
        lines.append(f"  watermark: {query.watermark.column}, {seconds_text(query.watermark.delay_ms / 1000)}")
    if not query.code.uncombined and options.combine != "never" and not options.order_by:
        where = "where that pays, " if options.combine == "auto" else ""
        lines.append(f"  {where}map tasks reduce their rows of a key, and the owner of the key merges the buffers")
    if pipeline.reduction is not None:
        lines.append("  rows are reduced in planned buckets before the state is updated")
    if query.output_event_time is not None:
        lines.append(f"  event time of the output: {query.output_event_time}")
    count = len(query.transformations)
    if count:
        lines.append(f"  transformations of the output: {count}, applied to each batch before the sink")
    lines.append(f"  output: {pipeline.empty().schema.simpleString()}")
    return "\n".join(lines)


def described_page(text: str) -> str:
    """Return a description as HTML, for notebooks."""
    return f"<pre>{html.escape(text)}</pre>"
