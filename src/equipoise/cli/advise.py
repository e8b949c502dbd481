"""Advice on a keyed operation: ``equipoise advise``."""

from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape

from equipoise.cli.output import Json, require_folder, show, working, write_json
from equipoise.cli.session import Conf, Master, Remote, is_local, named_values, spark_session
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
    key_columns,
    read_table,
    require_source,
)
from equipoise.errors import InvalidArgumentError

OperationName = Literal["applyInPandas", "applyInArrow", "cogroup", "window", "agg", "aggregate", "join"]
"""Names of ``equipoise.spark.Operation``, known without Spark."""


def command(
    source: Source,
    *,
    key: Key,
    operation: Annotated[
        OperationName, typer.Option("--operation", "-o", help="Operation on the rows of a key.")
    ] = "applyInPandas",
    other: Annotated[str | None, typer.Option(help="The right side of a join: file, folder or table.")] = None,
    partitions: Partitions = None,
    weight: Weight = None,
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
    """Say what would speed up a keyed operation, or why nothing would."""
    require_folder(json)
    if operation == "join" and other is None:
        raise InvalidArgumentError("advice on a join needs its right side; name it with --other")
    if operation != "join" and other is not None:
        raise InvalidArgumentError(
            f"--other is for joins, and the operation is {operation}; add --operation join or drop it"
        )
    if operation == "join" and weight is not None:
        raise InvalidArgumentError("the load of a join is its rows; drop --weight")
    names, options = key_columns(key), named_values("--option", option)
    for place in (source, other):
        if place is not None:
            require_source(place, format, is_local(master, remote, conf))
    with working("starting") as tell, spark_session(master, remote, conf, tell) as spark:
        from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

        from equipoise.spark import advise
        from equipoise.spark.rows.advice import number_facts

        tell(f"reading {source}")
        df = read_table(spark, source, format, options)
        second = None if other is None else read_table(spark, other, format, options)
        tell(f"sampling {source}")
        advice = advise(
            df,
            *names,
            operation=operation,
            numPartitions=partitions,
            other=second,
            weight=None if weight is None else F.expr(weight),
            sample=sample,
            slots=slots,
            seed=seed,
        )
    if json is not None:
        write_json({"action": advice.action.value, "reason": advice.reason, "numbers": dict(advice.numbers)}, json)
        return
    Console().print(f"[bold]{advice.action.value}[/]: {escape(advice.reason)}", highlight=False)
    if advice.numbers:
        show([{"": name, "value": value} for name, value in number_facts(advice.numbers)], None)
