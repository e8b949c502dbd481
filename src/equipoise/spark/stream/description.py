"""Describe a query that has not started: how its rows are placed, by which rules, and where that can be read later."""

from typing import TYPE_CHECKING

from equipoise.plan import Plan, uniform_plan
from equipoise.readable import seconds_text
from equipoise.spark.rows.advice import Action, Advice
from equipoise.spark.rows.explained import Facts
from equipoise.spark.stream.options import StreamOptions

if TYPE_CHECKING:
    from equipoise.spark.stream.pipeline import Pipeline


def hash_plan(options: StreamOptions, shuffle_partitions: int) -> Plan:
    """Return the plan with which a new query starts, before a look at its first batch: plain hash."""
    count = options.first_partitions(shuffle_partitions)
    return uniform_plan(count, options.tail_groups(shuffle_partitions, None))


def stream_advice(options: StreamOptions, shuffle_partitions: int) -> Advice:
    """Return what the query will do about skew; nothing is measured before it runs."""
    plan = hash_plan(options, shuffle_partitions)
    if options.plain_hash:
        return Advice(Action.NOTHING, "placement 'hash' leaves the rows where plain hash puts them", plan=plan)
    looked = {
        "auto": "look at the keys of the first batch, and of later ones where that pays",
        "always": "look at the keys of every batch",
        "never": "start with plain hash",
    }[options.look]
    reason = {
        "auto": f"{looked}, and move hot keys when that saves time",
        "advise": "keep plain hash, and report better plans without using them",
        "observe": "keep plain hash",
    }[options.policy.mode]
    return Advice(Action.MEASURE, reason, plan=plan)


def stream_facts(options: StreamOptions, shuffle_partitions: int) -> Facts:
    """Return how the rows of a keyed stream are placed, as facts to show."""
    advice = stream_advice(options, shuffle_partitions)
    plan, elastic = hash_plan(options, shuffle_partitions), options.elastic
    bounds = "" if elastic is None else f" at the start, between {elastic.minimum} and {elastic.maximum} by the load"
    facts = [("partitions", f"{plan.partitions}{bounds}"), ("tail groups", str(plan.tail_groups))]
    if options.order_by:
        facts.append(("rows of a key", f"sorted by {', '.join(options.order_by)}"))
    if options.targetSeconds is not None:
        facts.append(("target", f"{seconds_text(options.targetSeconds)} for each batch"))
    return [*facts, ("advice", str(advice)), ("decisions", "query.batch_log() after the query has started")]


def pipeline_facts(pipeline: "Pipeline") -> Facts:
    """Return how a query that has not started will run, as facts to show; earlier stages first."""
    query, options = pipeline.query, pipeline.options
    facts = [] if pipeline.before is None else [*pipeline_facts(pipeline.before), ("", "then, on this output")]
    facts += [("key", ", ".join(query.key)), *stream_facts(options, pipeline.shuffle_partitions)]
    facts.append(("operator", f"{query.code.name}, time mode {query.time_mode}"))
    if query.watermark is not None:
        facts.append(("watermark", f"{query.watermark.column}, {seconds_text(query.watermark.delay_ms / 1000)}"))
    if not query.code.uncombined and options.combine != "never" and not options.order_by:
        where = "where that pays, " if options.combine == "auto" else ""
        facts.append(("combining", f"{where}map tasks reduce their rows of a key, and its owner merges the buffers"))
    if pipeline.reduction is not None:
        facts.append(("reduction", "rows are reduced in planned buckets before the state is updated"))
    if query.output_event_time is not None:
        facts.append(("event time", f"{query.output_event_time}, of the output"))
    count = len(query.transformations)
    if count:
        facts.append(("transformations", f"{count}, applied to the output of each batch before the sink"))
    return [*facts, ("output", pipeline.empty().schema.simpleString())]
