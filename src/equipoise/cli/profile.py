"""Profile the load of a key: ``equipoise profile``."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.cli.output import Json, Plot, draw, require_folder, require_plot, show, working, write_json
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

if TYPE_CHECKING:
    from equipoise.spark import Report


def command(
    source: Source,
    *,
    key: Key,
    partitions: Partitions = None,
    weight: Weight = None,
    sample: SampleRows = None,
    slots: Slots = None,
    hottest: Annotated[int, typer.Option(min=1, help="Number of hot keys to show.")] = 10,
    literal_keys: Annotated[
        bool, typer.Option("--literal-keys", help="Show keys beside their fingerprints; takes one more pass.")
    ] = False,
    seed: Seed = 0,
    format: Format = None,  # noqa: A002 - Spark's own name
    option: Option = None,
    master: Master = None,
    remote: Remote = None,
    conf: Conf = None,
    plot: Plot = None,
    json: Json = None,
) -> None:
    """Predict how the load of a key spreads over partitions: by Spark's hash, and by each planner."""
    require_folder(json)
    require_plot(plot)
    names, options = key_columns(key), named_values("--option", option)
    require_source(source, format, is_local(master, remote, conf))
    with working("starting") as tell, spark_session(master, remote, conf, tell) as spark:
        from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

        from equipoise.spark import profile

        tell(f"reading {source}")
        df = read_table(spark, source, format, options)
        tell(f"sampling {source}")
        load = None if weight is None else F.expr(weight)
        report = profile(df, *names, numPartitions=partitions, weight=load, sample=sample, slots=slots, seed=seed)
        tell("looking up the hot keys")
        keys = [row.asDict() for row in report.hot_keys(hottest, literal=literal_keys).collect()]
    if json is None:
        typer.echo(report.overview())
        rows = [each | {"share": f"{each['share']:.2%}", "error": f"{each['error']:.2%}"} for each in keys]
        show(rows, None, title="Hottest keys")
        typer.echo(f"Advice on applyInPandas: {report.advice}")
    else:
        write_json(_facts(report, keys), json)
    draw(report.plot, plot)


def _facts(report: "Report", keys: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "key": list(report.key.names),
        "rows": report.sample.rows,
        "sampled_rows": len(report.sample.fingerprints),
        "partitions": report.partitions,
        "slots": report.slots,
        "hottest_share": report.hottest_share,
        "bound": report.bound,
        "advice": str(report.advice),
        "hot_keys": keys,
        "strategies": {
            name: {
                "partitions": len(strategy.loads),
                "imbalance": strategy.imbalance,
                "time_over_ideal": strategy.makespan / report.ideal_makespan,
                "loads": strategy.loads.tolist(),
            }
            for name, strategy in report.strategies.items()
        },
    }
