"""Write a table with its keys placed evenly: ``equipoise balance``."""

import warnings
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

from equipoise.cli import completion
from equipoise.cli.output import Json, require_folder, show, working, write_json
from equipoise.cli.session import Conf, Master, Remote, named_values, spark_session
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
)
from equipoise.errors import AlreadyExistsError, InvalidArgumentError
from equipoise.metrics import load_imbalance

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from equipoise.spark import BalancedFrame

Mode = Literal["error", "overwrite", "append"]
_SHOWN = 32


def command(
    source: Source,
    target: Annotated[str, typer.Argument(help="A folder to write; Parquet, or by its suffix.")],
    *,
    key: Key,
    partitions: Partitions = None,
    planner: Annotated[str, typer.Option(help="Name of a planner.", autocompletion=completion.planners)] = "kip",
    history: Annotated[
        str | None, typer.Option(metavar="FILE", help="Record of earlier runs; with one there, nothing is sampled.")
    ] = None,
    weight: Weight = None,
    mode: Annotated[Mode, typer.Option(help="What to do where TARGET is there already.")] = "error",
    target_format: Annotated[
        str | None, typer.Option(help="How TARGET is stored; default by its suffix, else parquet.")
    ] = None,
    sample: SampleRows = 200_000,
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
    with working("starting") as tell, spark_session(master, remote, conf, tell) as spark:
        from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

        from equipoise.spark import balance

        _require_new(spark, target, mode)
        tell(f"reading {source}")
        df = read_table(spark, source, format, options)
        tell(f"planning by {planner}")
        load = None if weight is None else F.expr(weight)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", RuntimeWarning)
            balanced = balance(
                df,
                names,
                partitions,
                planner=planner,
                history=history,
                weight=load,
                sample=sample,
                slots=slots,
                seed=seed,
            )
        for each in told:
            Console(stderr=True).print(f"[yellow]warning[/] {escape(str(each.message))}", soft_wrap=True)
        tell(f"writing {target}")
        _write(balanced.dataframe(), target, target_format, mode)
        if history is not None:
            tell(f"recording the run in {history}")
            balanced.wait_for_history()
        tell("counting the rows of each partition")
        found = _per_partition(df, balanced, load)
    _show(balanced, found, target, json)


def _require_new(spark: "SparkSession", target: str, mode: Mode) -> None:
    """Refuse a target that is there before any work is done."""
    if mode == "error" and exists(spark, target):
        raise AlreadyExistsError(
            f"{target} is there already; add --mode overwrite or --mode append, or name another place"
        )


def _write(df: "DataFrame", target: str, format: str | None, mode: Mode) -> None:  # noqa: A002 - Spark's own name
    """Write; says what is left where that is interrupted."""
    chosen = format or format_of(target) or "parquet"
    writer = df.write.format(chosen).mode(mode)
    try:
        (writer.option("header", "true") if chosen == "csv" else writer).save(target)
    except KeyboardInterrupt:
        left = {
            "error": "it holds no rows, as Spark shows files only when all are written; delete it if it is there",
            "append": "it holds what it held before, as Spark shows files only when all are written",
            "overwrite": "what it held before may be gone",
        }[mode]
        told = f"interrupted while {escape(target)} was written: {left}; run the command again"
        Console(stderr=True).print(told, highlight=False, soft_wrap=True)
        raise


def _per_partition(df: "DataFrame", balanced: "BalancedFrame", load: Any) -> list[dict[str, Any]]:
    """Rows and load of each partition of the plan, counted in the source."""
    from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

    from equipoise.spark.batch.sample import resolve_weight

    rows = df.groupBy(balanced.partition.alias("partition"))
    counted = rows.agg(F.count(F.lit(1)).alias("rows"), F.sum(resolve_weight(df, load).column).alias("load"))
    by_number = {row["partition"]: row for row in counted.collect()}
    found = []
    for partition in range(balanced.plan.partitions):
        row = by_number.get(partition)
        found.append({"partition": partition, "rows": row["rows"] if row else 0, "load": row["load"] if row else 0.0})
    return found


def _show(balanced: "BalancedFrame", found: list[dict[str, Any]], target: str, json: str | None) -> None:
    loads = np.array([each["load"] for each in found])
    rows, imbalance = sum(each["rows"] for each in found), load_imbalance(loads) if loads.sum() else 1.0
    plan = balanced.plan
    if json is not None:
        facts = {"target": target, "rows": rows, "planner": plan.planner, "reason": plan.reason, "imbalance": imbalance}
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
    told = f"fullest {imbalance:.2f} x the mean; {len(plan.isolated)} isolated keys; {plan.planner}: {plan.reason}"
    Console().print(escape(told), highlight=False)


def _bar(shares: Any, partition: int) -> str:
    return "█" * round(float(20 * shares[partition] / max(shares.max(), np.finfo(float).tiny)))
