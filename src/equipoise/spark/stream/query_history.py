"""What became of every batch of a query: as rows, as a DataFrame, as a picture."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from equipoise.pictures import history_figure
from equipoise.spark.stream.state_reader import active_session, history_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SCHEMA = (
    "batch bigint, time timestamp, watermark timestamp, rows bigint, output_rows bigint, seconds double, "
    "work_seconds double, imbalance_rows double, imbalance_seconds double, state_bytes bigint, plan bigint, "
    "next_plan bigint, action string, applied boolean, reason string, bound double, imbalance_before double, "
    "imbalance_after double, move_bytes double, keys_moved bigint, groups_moved bigint, partition_rows array<bigint>, "
    "partition_seconds array<double>"
)


@dataclass(frozen=True)
class QueryHistory:
    """What became of every batch: measures, plan, decision and its reason, imbalance before and after, moves.

    Parameters
    ----------
    rows
        One for each batch, oldest first; times are in milliseconds since 1970.
    spark
        The session of the DataFrame; ``None`` for the active one.
    """

    rows: list[dict[str, Any]] = field(repr=False)
    spark: SparkSession | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def dataframe(self) -> DataFrame:
        """The batches as a DataFrame."""
        names = [part.split()[0] for part in _SCHEMA.split(", ")]
        rows = [tuple(each[name] for name in names) for each in self.rows]
        milliseconds = _SCHEMA.replace("time timestamp", "time bigint")
        milliseconds = milliseconds.replace("watermark timestamp", "watermark bigint")
        df = active_session(self.spark).createDataFrame(rows, milliseconds)
        return df.selectExpr(
            *(f"timestamp_millis({name}) AS {name}" if name in {"time", "watermark"} else name for name in names)
        )

    def plot(self) -> "Figure":
        """Time, balance and state batch by batch, with new plans marked."""
        return history_figure(self.rows)


def history(path: str, *, spark: SparkSession | None = None) -> QueryHistory:
    """What became of every batch of a query, which may be running.

    Parameters
    ----------
    path
        The query's ``checkpointLocation``.
    spark
        The session of the DataFrame; default the active one.
    """
    return QueryHistory(history_rows(path), spark)
