"""Write a table with its keys placed by load: ``equipoise balance``."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

from equipoise.adapt import Policy
from equipoise.cli import completion
from equipoise.cli.output import Json, require_folder, show, working, write_json
from equipoise.cli.session import (
    Conf,
    Master,
    Remote,
    is_local,
    is_of_spark,
    named_values,
    spark_message,
    spark_session,
)
from equipoise.cli.tables import (
    Format,
    Key,
    Option,
    Partitions,
    SampleRows,
    Seed,
    Slots,
    Source,
    Weight,
    exists,
    format_of,
    key_columns,
    read_table,
    require_source,
)
from equipoise.errors import AlreadyExistsError, InvalidArgumentError
from equipoise.metrics import load_imbalance
from equipoise.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from equipoise.spark import BalancedGroups

Mode = Literal["error", "overwrite", "append"]
_SHOWN = 32


def command(
    source: Source,
    target: Annotated[str, typer.Argument(help="A folder to write; Parquet, or by its suffix.")],
    *,
    key: Key,
    partitions: Partitions = None,
    planner: Annotated[str, typer.Option(help="Name of a planner.", autocompletion=completion.planners)] = "kip",
    record: Annotated[
        str | None, typer.Option(metavar="FILE", help="Load record of earlier runs; if it exists, nothing is sampled.")
    ] = None,
    weight: Weight = None,
    mode: Annotated[Mode, typer.Option(help="What to do if TARGET exists.")] = "error",
    target_format: Annotated[
        str | None, typer.Option(help="How TARGET is stored; default by its suffix, else parquet.")
    ] = None,
    sample: SampleRows = None,
    slots: Slots = None,
    seed: Seed = 0,
    format: Format = None,  # noqa: A002 - Spark's own name
    option: Option = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    json: Json = None,
) -> None:
    """Read a table, place its keys so that the partitions carry even loads, and write it: a file for each partition."""
    require_folder(json)
    names, options = key_columns(key), named_values("--option", option)
    if source.rstrip("/") == target.rstrip("/"):
        raise InvalidArgumentError(f"{target} cannot be read and replaced at the same time; write to another place")
    policy = Policy(planner=planner)
    local = is_local(master, remote, conf)
    require_source(source, format, local)
    if local and mode == "error" and Path(target).exists():
        raise _already_exists(target)
    with working("starting") as tell, spark_session(master, remote, conf, tell) as spark:
        from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

        from equipoise.spark import balance

        _require_new(spark, target, mode)
        _require_format(spark, target_format)
        tell(f"reading {source}")
        df = read_table(spark, source, format, options)
        tell(f"planning by {planner}")
        load = None if weight is None else F.expr(weight)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RuntimeWarning)
            groups = balance(
                df,
                *names,
                numPartitions=partitions,
                policy=policy,
                record=record,
                weight=load,
                sample=sample,
                slots=slots,
                seed=seed,
            )
            placed = groups.dataframe()
        for each in caught:
            Console(stderr=True).print(f"[yellow]warning[/] {escape(str(each.message))}", soft_wrap=True)
        tell(f"writing {target}")
        _write(placed, target, target_format, mode)
        if record is not None:
            tell(f"recording the run in {record}")
            groups.wait_for_record()
        tell("counting the rows of each partition")
        found = _per_partition(df, groups, load)
        plan, advice = groups.plan, groups.advice
    _show(plan, "" if advice is None else str(advice), found, target, json)


def _require_new(spark: "SparkSession", target: str, mode: Mode) -> None:
    """Refuse an existing target before any work is done."""
    if mode == "error" and exists(spark, target):
        raise _already_exists(target)


def _require_format(spark: "SparkSession", format: str | None) -> None:  # noqa: A002 - Spark's own name
    """Refuse a format that the session does not know, before any work is done."""
    if format is None:
        return
    try:
        spark.read.format(format).schema("a int").load().schema  # noqa: B018 - Spark Connect looks it up only now
    except Exception as error:
        if not is_of_spark(error):
            raise
        if "[DATA_SOURCE_NOT_FOUND]" in spark_message(error):  # other errors say only that there is no path to read
            raise InvalidArgumentError(
                f"Spark knows no format {format!r} for --target-format; give parquet, csv, json or orc, or add the "
                "package of the format with --conf spark.jars.packages=..."
            ) from error


def _already_exists(target: str) -> AlreadyExistsError:
    return AlreadyExistsError(f"{target} exists; add --mode overwrite or --mode append, or name another place")


def _write(df: "DataFrame", target: str, format: str | None, mode: Mode) -> None:  # noqa: A002 - Spark's own name
    """Write the rows; if that is interrupted, say what is left."""
    chosen = format or format_of(target) or "parquet"
    writer = df.write.format(chosen).mode(mode)
    try:
        (writer.option("header", "true") if chosen == "csv" else writer).save(target)
    except KeyboardInterrupt:
        left = {
            "error": "it holds no rows, because Spark publishes files when all are written; delete it if it exists",
            "append": "it is unchanged, because Spark publishes files when all are written",
            "overwrite": "what it held before may be gone",
        }[mode]
        message = f"interrupted while {escape(target)} was written: {left}; run the command again"
        Console(stderr=True).print(message, highlight=False, soft_wrap=True)
        raise


def _per_partition(df: "DataFrame", groups: "BalancedGroups", load: Any) -> list[dict[str, Any]]:
    """Return the rows and the load of each partition of the plan, counted in the source."""
    from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

    from equipoise.spark.batch.sample import resolve_weight

    rows = df.groupBy(groups.partition.alias("partition"))
    counted = rows.agg(F.count(F.lit(1)).alias("rows"), F.sum(resolve_weight(df, load).column).alias("load"))
    by_number = {row["partition"]: row for row in counted.collect()}
    found = []
    for partition in range(groups.plan.partitions if groups.plan else 0):
        row = by_number.get(partition)
        found.append({"partition": partition, "rows": row["rows"] if row else 0, "load": row["load"] if row else 0.0})
    return found


def _show(plan: Plan, advice: str, found: list[dict[str, Any]], target: str, json: str | None) -> None:
    loads = np.array([each["load"] for each in found])
    rows, imbalance = sum(each["rows"] for each in found), load_imbalance(loads) if loads.sum() else 1.0
    if json is not None:
        facts = {"target": target, "rows": rows, "planner": plan.planner, "advice": advice, "imbalance": imbalance}
        write_json(facts | {"isolated_keys": len(plan.isolated), "partitions": found}, json)
        return
    shares = loads / max(loads.sum(), np.finfo(float).tiny)
    shown = sorted(range(len(found)), key=lambda each: -loads[each])[:_SHOWN]
    table = [
        {"partition": each, "rows": f"{found[each]['rows']:,}", "load": f"{shares[each]:.2%}", "": _bar(shares, each)}
        for each in (shown if len(found) > _SHOWN else range(len(found)))
    ]
    which = f"the {_SHOWN} fullest of {len(found)} partitions" if len(found) > _SHOWN else "its partitions"
    show(table, None, title=f"{target}: {rows:,} rows; {which}")
    summary = f"fullest {imbalance:.2f} x the mean; {len(plan.isolated)} keys isolated by {plan.planner}; {advice}"
    Console().print(escape(summary), highlight=False)


def _bar(shares: Any, partition: int) -> str:
    return "█" * round(float(20 * shares[partition] / max(shares.max(), np.finfo(float).tiny)))
