"""The batch log of a query: as rows, as a DataFrame, as a picture."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from equipoise.pictures import batch_log_figure
from equipoise.spark.stream.state_reader import active_session
from equipoise.state.batch_log import batch_log_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SCHEMA = (
    "batch bigint, time timestamp, watermark timestamp, delivered boolean, rows bigint, output_rows bigint, "
    "combined_rows bigint, sent_rows bigint, keys bigint, seconds double, work_seconds double, "
    "target_seconds double, imbalance_rows double, "
    "imbalance_seconds double, "
    "imbalance_rows_hash double, imbalance_seconds_hash double, bound_rows double, bound_seconds double, "
    "state_bytes bigint, unchanged_rows double, promised_rows double, imbalance_rows_unchanged double, "
    "imbalance_load double, imbalance_load_unchanged double, promised_seconds double, got_seconds double, "
    "moved_bytes bigint, moved_seconds double, caught_up_seconds double, move_rate double, "
    "look string, look_rows bigint, look_seconds double, "
    "look_cost double, look_gain double, look_stake double, look_chance double, "
    "combine string, combine_scope string, hot_keys array<bigint>, hot_rows array<bigint>, "
    "plan bigint, action string, applied boolean, reason string, trust double, bound double, "
    "imbalance_before double, imbalance_after double, gain_seconds double, move_seconds double, "
    "catch_up_seconds double, move_bytes double, keys_moved bigint, groups_moved bigint, partition_rows array<bigint>, "
    "partition_seconds array<double>, partition_state array<bigint>"
)


@dataclass(frozen=True)
class BatchLog:
    """The batches of a query: measures, plan, decision and its reason, imbalance before and after, moves.

    It has every method of the DataFrame that ``dataframe()`` returns, except ``plot``.

    Parameters
    ----------
    rows
        One for each batch, oldest first; times are in milliseconds since 1970.
    spark
        The session of the DataFrame; ``None`` for the active one.

    Examples
    --------
    ``batch_log(checkpoint).select("batch", "imbalance_rows", "reason").show()``
    """

    rows: list[dict[str, Any]] = field(repr=False)
    spark: SparkSession | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._dataframe, name)

    def __getitem__(self, item: Any) -> Any:
        return self._dataframe[item]

    def dataframe(self) -> DataFrame:
        """Return the batches as a DataFrame.

        Columns
        -------
        ``batch``, ``time``, ``watermark``
            Number of the batch, its processing time, and the watermark that it ran under.
        ``delivered``
            Whether the batch has reached the sink. False for the last batch while it is being delivered, or if the
            query ended before; then the next start delivers it.
        ``rows``, ``output_rows``, ``keys``
            Rows in and out, and the keys with rows.
        ``combined_rows``, ``sent_rows``
            Rows that map tasks reduced before the exchange, and the rows that crossed it; a partial buffer is one row.
        ``combine``, ``combine_scope``
            Why keys were combined or not, and which: ``all``, ``hot`` or ``none``.
        ``hot_keys``, ``hot_rows``
            Fingerprints of the keys with most rows, and their rows, combined or not.
        ``seconds``, ``work_seconds``, ``target_seconds``
            Time of the batch, time of the user's code in all tasks together, and the time a batch may take: the
            interval of the trigger or ``targetSeconds``, NULL without either.
        ``imbalance_rows``, ``imbalance_seconds``
            Rows and work of the fullest task over the mean. Rows are those that it received.
        ``imbalance_rows_hash``, ``imbalance_seconds_hash``
            The same with plain hash, for the same rows.
        ``bound_rows``, ``bound_seconds``
            The least that any plan could have reached while the hottest key stays whole.
        ``state_bytes``, ``partition_state``
            Bytes of state before the batch, in total and of each partition.
        ``partition_rows``, ``partition_seconds``
            Rows that each task received, and its time.
        ``promised_rows``, ``unchanged_rows``
            ``imbalance_rows`` as predicted before the batch ran, and as predicted for the plan before: by the rows seen
            of it, else by the rows on record.
        ``imbalance_rows_unchanged``
            ``imbalance_rows`` of the same rows under the plan before, as measured.
        ``imbalance_load``, ``imbalance_load_unchanged``
            The same by the measure of load that plans are made with, ``Policy.load``.
        ``promised_seconds``, ``got_seconds``
            Time that a new plan saves in its first batch against the plan before, less the time by which receiving
            state lengthens it, as predicted and as measured; below 0 if it lost time, 0 without a new plan.
        ``moved_bytes``, ``moved_seconds``, ``caught_up_seconds``, ``move_rate``
            State that all tasks received because the plan changed, the time that the slowest of them took to receive
            its part, the time by which that lengthened the longest task, and the bytes that a task received in a
            second; NULL if too few were received to tell.
        ``look``, ``look_rows``, ``look_seconds``
            Why the driver looked at the batch or did not; rows seen, and the time it took.
        ``look_cost``, ``look_gain``, ``look_stake``, ``look_chance``
            What that decision rests on, from the batches before: seconds that a look takes and saves, seconds that a
            batch loses if other keys are hot, and the chance of such a batch. NULL before the first look.
        ``plan``
            Version of the plan that placed the batch.
        ``action``, ``applied``, ``reason``
            The decision about this plan, made before the batch ran; whether it was applied, and its reason.
        ``imbalance_before``, ``bound``
            Imbalance and its bound by the load on record, which covers more than one batch and counts what
            ``Policy.load`` says, or by the rows seen of the batch. The decision rests on them.
        ``imbalance_after``, ``gain_seconds``
            If a plan was made: its predicted imbalance, and the seconds it saves over the horizon.
        ``move_bytes``, ``move_seconds``, ``catch_up_seconds``, ``keys_moved``, ``groups_moved``
            What the plan moves, how long that takes the partition that receives most, and by how much it lengthens the
            longest task.
        """
        return self._dataframe

    @cached_property
    def _dataframe(self) -> DataFrame:
        names = [part.split()[0] for part in _SCHEMA.split(", ")]
        rows = [tuple(each.get(name) for name in names) for each in self.rows]
        milliseconds = _SCHEMA.replace("time timestamp", "time bigint")
        milliseconds = milliseconds.replace("watermark timestamp", "watermark bigint")
        df = active_session(self.spark).createDataFrame(rows, milliseconds)
        return df.selectExpr(
            *(f"timestamp_millis({name}) AS {name}" if name in {"time", "watermark"} else name for name in names)
        )

    def plot(self) -> "Figure":
        """Time, balance and state batch by batch, with new plans marked."""
        return batch_log_figure(self.rows)


def batch_log(path: str, *, spark: SparkSession | None = None) -> BatchLog:
    """Return the log of all batches of a query, which may be running.

    Parameters
    ----------
    path
        The query's ``checkpointLocation``.
    spark
        The session of the DataFrame; default the active one.
    """
    return BatchLog(batch_log_rows(path), spark)
