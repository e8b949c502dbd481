"""``writeStream`` of a keyed stream operator, with the methods of Spark's ``DataStreamWriter``."""

from collections.abc import Callable
from typing import Any, NoReturn

from pyspark.sql import DataFrame

from equipoise.errors import InvalidArgumentError
from equipoise.spark.stream.delivery import Sink
from equipoise.spark.stream.pipeline import Pipeline
from equipoise.spark.stream.query import StatefulQuery
from equipoise.spark.stream.sinks import SinkRequest, sink_of
from equipoise.spark.stream.starting import start_query

CHECKPOINT = "checkpointLocation"
_SESSION_CHECKPOINT = "spark.sql.streaming.checkpointLocation"
_DEFAULT_FORMAT = "parquet"


class StreamWriter:
    """Starts the query of a keyed stream operator.

    Parameters
    ----------
    pipeline
        The query.

    Examples
    --------
    ``stream.writeStream.format("parquet").option("checkpointLocation", "checkpoint").start("out")``
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._format = _DEFAULT_FORMAT
        self._function: Callable[[DataFrame, int], None] | None = None
        self._trigger: dict[str, Any] = {}
        self._name: str | None = None
        self._mode: str | None = None
        self._options: dict[str, str] = {}

    def format(self, source: str) -> "StreamWriter":
        """Choose the sink: ``parquet``, ``table``, ``kafka``, ``console`` or ``memory``; replaces ``foreachBatch``."""
        if not isinstance(source, str):
            raise InvalidArgumentError(f"format must be the name of a format, got {source!r}")
        self._format, self._function = source.lower(), None
        return self

    def foreachBatch(self, func: Callable[[DataFrame, int], None]) -> "StreamWriter":  # noqa: N802 - Spark's own name
        """Hand each batch to a function of (DataFrame, batch number).

        After a crash or a stop the function may receive the last batch again, with the same rows if the
        transformations of the stream are deterministic.
        """
        if not callable(func):
            raise InvalidArgumentError(f"foreachBatch needs a function of (DataFrame, batch number), got {func!r}")
        self._function = func
        return self

    def option(self, key: str, value: Any) -> "StreamWriter":
        """Set an option of the query or of the sink; names are not case-sensitive."""
        known = next((name for name in self._options if name.lower() == str(key).lower()), None)
        if known is not None:
            del self._options[known]
        if value is not None:
            self._options[str(key)] = str(value).lower() if isinstance(value, bool) else str(value)
        return self

    def options(self, **options: Any) -> "StreamWriter":
        """Set several options."""
        for key, value in options.items():
            self.option(key, value)
        return self

    def outputMode(self, outputMode: str) -> "StreamWriter":  # noqa: N802, N803 - Spark's own names
        """Set the output mode, ``"append"`` or ``"update"``; default ``"update"``, while Spark's is ``"append"``.

        With ``"update"``, aggregates deliver a key with every batch that changes it. With ``"append"`` they deliver it
        once, when the watermark has passed the event time in the key, drop late rows, and forget the key. Other
        operators deliver the rows that they yield, in either mode. The writer of ``applyInPandasWithState`` must have
        the operator's mode; there the default is ``"append"``, as in Spark.
        """
        self._mode = output_mode(outputMode)
        return self

    def queryName(self, queryName: str) -> "StreamWriter":  # noqa: N802, N803 - Spark's own names
        """Name the query on Spark's pages."""
        if not isinstance(queryName, str) or not queryName.strip():
            raise InvalidArgumentError(f"queryName must be a text that is not empty, got {queryName!r}")
        self._name = queryName
        return self

    def trigger(
        self,
        *,
        processingTime: str | None = None,  # noqa: N803 - Spark's own name
        once: bool | None = None,
        continuous: str | None = None,
        availableNow: bool | None = None,  # noqa: N803 - Spark's own name
        realTime: str | None = None,  # noqa: N803 - Spark's own name
    ) -> "StreamWriter":
        """Choose when batches run: at an interval, or until all available rows are processed.

        Parameters
        ----------
        processingTime
            Interval from one batch to the next, for example ``"5 seconds"``.
        once
            Process all available rows in one batch and end.
        availableNow
            Process all available rows in as many batches as the source makes and end.
        continuous, realTime
            Refused: state is committed batch by batch.
        """
        for name, value in (("continuous", continuous), ("realTime", realTime)):
            if value is not None:
                raise InvalidArgumentError(
                    f"trigger({name}=...) runs without micro-batches, and state is committed batch by batch; use "
                    "trigger(processingTime=...)"
                )
        given = {"processingTime": processingTime, "once": once, "availableNow": availableNow}
        chosen = {name: value for name, value in given.items() if value is not None}
        if len(chosen) != 1:
            raise InvalidArgumentError(
                f"trigger needs exactly one of processingTime, once and availableNow, got {', '.join(chosen) or 'none'}"
            )
        if any(value is not True for name, value in chosen.items() if name != "processingTime"):
            raise InvalidArgumentError(f"{next(iter(chosen))} must be True; leave the trigger out for none")
        self._trigger = chosen
        return self

    def start(
        self,
        path: str | None = None,
        format: str | None = None,  # noqa: A002 - Spark's own name
        outputMode: str | None = None,  # noqa: N803 - Spark's own name
        partitionBy: str | list[str] | None = None,  # noqa: N803 - Spark's own name
        queryName: str | None = None,  # noqa: N803 - Spark's own name
        **options: Any,
    ) -> StatefulQuery:
        """Start the query, or continue it from its checkpoint.

        Parameters
        ----------
        path
            Target of the format: a folder for ``parquet``, a name for ``table``.
        format, outputMode, queryName, **options
            As the methods of these names.
        partitionBy
            Refused; see ``partitionBy``.
        """
        self._set(format, outputMode, partitionBy, queryName, options)
        target = path if path is not None else self._taken("path")
        return self._start(self._format, target)

    def toTable(  # noqa: N802 - Spark's own name
        self,
        tableName: str,  # noqa: N803 - Spark's own name
        format: str | None = None,  # noqa: A002 - Spark's own name
        outputMode: str | None = None,  # noqa: N803 - Spark's own name
        partitionBy: str | list[str] | None = None,  # noqa: N803 - Spark's own name
        queryName: str | None = None,  # noqa: N803 - Spark's own name
        **options: Any,
    ) -> StatefulQuery:
        """Start the query into a table of the catalog, which is created if it does not exist.

        The table has one more column, ``batch``, by which it is partitioned.

        Parameters
        ----------
        tableName
            The table.
        format
            Format of the table's files; only ``parquet``.
        outputMode, partitionBy, queryName, **options
            As for ``start``. The option ``path`` says where a new table keeps its files.
        """
        files = (format or self._format).lower()
        if files not in {_DEFAULT_FORMAT, "table"}:
            raise InvalidArgumentError(
                f"toTable copies Parquet files and cannot write a table of format {files!r}; write the rows of each "
                "batch with foreachBatch(f) and the format's own transaction number, for example Delta's txnAppId and "
                "txnVersion"
            )
        self._set(None, outputMode, partitionBy, queryName, options)
        return self._start("table", tableName)

    def foreach(self, f: Any) -> NoReturn:  # noqa: ARG002 - Spark's own signature
        """Refuse: rows are delivered as whole batches."""
        raise InvalidArgumentError(
            "foreach(f) is not supported, because output is delivered in batches; use foreachBatch(f)"
        )

    def partitionBy(self, *cols: Any) -> NoReturn:  # noqa: N802 - Spark's own name
        """Refuse: files are copied as the tasks wrote them."""
        raise InvalidArgumentError(
            f"partitionBy({', '.join(map(str, cols))}) rewrites files, and the sinks copy the committed ones; write "
            "the rows of each batch with foreachBatch(f)"
        )

    def clusterBy(self, *cols: Any) -> NoReturn:  # noqa: N802 - Spark's own name
        """Refuse, as ``partitionBy``."""
        self.partitionBy(*cols)

    def _set(
        self,
        format: str | None,  # noqa: A002 - Spark's own name
        mode: str | None,
        partition_by: str | list[str] | None,
        name: str | None,
        options: dict[str, Any],
    ) -> None:
        if partition_by is not None:
            self.partitionBy(*([partition_by] if isinstance(partition_by, str) else partition_by))
        if format is not None:
            self.format(format)
        if mode is not None:
            self.outputMode(mode)
        if name is not None:
            self.queryName(name)
        self.options(**options)

    def _start(self, kind: str, target: str | None) -> StatefulQuery:
        wanted = self._pipeline.output_mode
        mode = self._mode or ("update" if wanted is None else "append")
        if wanted not in {None, mode}:
            raise InvalidArgumentError(
                f"applyInPandasWithState has outputMode {wanted!r}, and the writer has {mode!r}; call "
                f"outputMode({wanted!r}) on the writer"
            )
        checkpoint, pipeline = self._checkpoint(), self._pipeline.in_output_mode(mode)
        return start_query(pipeline, self._sink(kind, target), checkpoint, self._trigger, self._name)

    def _sink(self, kind: str, target: str | None) -> Sink:
        others = {name: value for name, value in self._options.items() if name.lower() != CHECKPOINT.lower()}
        if self._function is None:
            pipeline = self._pipeline
            schema = pipeline.empty().schema
            return sink_of(SinkRequest(pipeline.spark, schema, kind, target, others, self._name))
        if others or target:
            raise InvalidArgumentError(
                f"foreachBatch has no {'option ' + ', '.join(others) if others else 'path'}; give it to the writer "
                "inside the function"
            )
        return self._function

    def _taken(self, name: str) -> str | None:
        """Return an option and forget it."""
        known = next((each for each in self._options if each.lower() == name), None)
        return None if known is None else self._options.pop(known)

    def _checkpoint(self) -> str:
        """Return the checkpoint of the options, or that of the session for the name of the query, as Spark does."""
        given = next((value for name, value in self._options.items() if name.lower() == CHECKPOINT.lower()), None)
        if given is not None:
            return given
        base = self._pipeline.spark.conf.get(_SESSION_CHECKPOINT, None)
        if base and self._name:
            return f"{base.rstrip('/')}/{self._name}"
        if base:
            raise InvalidArgumentError(
                f"the session has {_SESSION_CHECKPOINT}, and the query has no name, so it would not find its "
                f"checkpoint again; call queryName(name), or option({CHECKPOINT!r}, path)"
            )
        raise InvalidArgumentError(
            f"the query has no checkpoint, which holds its state; call option({CHECKPOINT!r}, path)"
        )


def output_mode(mode: str) -> str:
    """Return an output mode in lower case; refuse ``complete``."""
    known = mode.lower() if isinstance(mode, str) else mode
    if known == "complete":
        raise InvalidArgumentError(
            "outputMode 'complete' delivers the rows of all keys with every batch; use 'update', and read all keys "
            "with read_state, or from the table that the query writes"
        )
    if known not in {"append", "update"}:
        raise InvalidArgumentError(f"outputMode must be 'append' or 'update', got {mode!r}")
    return str(known)
