"""The data source ``equipoise``: planned blocks as the input partitions of a streaming query.

Spark runs the reader, and with it the receiver, in a Python process beside the driver. Tasks read blocks from the
spool, so driver and executors must reach it by the same path.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from equipoise.durations import seconds_of
from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.microbatch.feeds import CallableFeed, Feed, GeneratedFeed, ReplayFeed
from equipoise.microbatch.rates import Rate
from equipoise.microbatch.receiver import Cutting, Receiver, require_cutting
from equipoise.microbatch.socket_feed import Limits, SocketFeed
from equipoise.microbatch.spool import BUCKET, SPLIT, Spool, SpoolSection

Offset = dict[str, Any]
"""Number of batches that a query has read, and the name of their spool."""

FORMAT = "equipoise"
"""Name of the format."""

FEEDS = ("socket", "connect", "replay", "generate")
"""Built-in feeds."""

_OPTIONS = {
    "schema", "key", "spool", "feed", "interval", "early", "method", "blocks", "buckets", "least", "most", "weight",
    "spoolbytes", "host", "port", "format", "patience", "path", "rate", "curve", "swing", "period", "keys", "exponent",
    "seed", "count", "connections", "idle", "waitingbytes", "linebytes", "messagerows", "messagebytes",
}  # fmt: skip


def register(
    spark: SparkSession,
    format: str = FORMAT,  # noqa: A002 - Spark's own name
    /,
    **functions: Callable[[Any], tuple[Any, Any] | None],
) -> None:
    """Make ``spark.readStream.format("equipoise")`` known to a session.

    Parameters
    ----------
    spark
        The session.
    format
        Name of the format, by position. Spark takes a name from one session of a process only, so a second session
        needs another name.
    **functions
        Your own feeds, to be named in the option ``feed``; see ``equipoise.microbatch.feeds.CallableFeed``.

    Options of the source
    ---------------------
    ``schema``
        Schema of the tuples, as DDL.
    ``key``
        Key columns, separated by commas.
    ``spool``
        A folder of this query alone, which the driver and all executors reach by this path.
    ``feed``
        ``socket`` (listens on ``host``, loopback by default, and ``port``), ``connect`` (to a sender there, for at most
        ``patience`` seconds), ``replay`` (a Parquet file at ``path``), ``generate`` (``keys``, ``exponent``, ``seed``,
        ``count``), or the name of a function that was registered. ``format`` of the network feeds: ``json`` or
        ``arrow``. The rate of ``replay`` and ``generate``: ``rate``, ``curve`` (constant, sinusoidal, step, ramp),
        ``swing``, ``period``.
    ``connections``, ``idle``, ``waitingBytes``, ``lineBytes``, ``messageRows``, ``messageBytes``
        Limits for senders of the network feeds; default 64 connections, ``5 minutes`` to complete a line
        or an Arrow message, 64 MiB of tuples that wait, 1 MiB a line, 1,000,000 rows and 32 MiB an Arrow message. See
        ``equipoise.microbatch.socket_feed.Limits``.
    ``interval``, ``early``
        Length of a batch, and the fraction of it by which it is closed before Spark asks for it; default 1 second and
        0.05.
    ``blocks``, ``buckets``, ``least``, ``most``
        Numbers of blocks and reduce buckets, 8 by default, and the bounds within which they may follow the load.
    ``method``, ``weight``
        How a batch is cut (``level`` by default), and a column with the size of a tuple.
    ``spoolBytes``
        Bytes of unprocessed tuples at which senders are slowed down; default 1 GiB.
    """
    taken = sorted(set(functions) & set(FEEDS))
    if taken:
        raise InvalidArgumentError(f"{taken[0]} is the name of a built-in feed; register the function by another name")

    class Registered(PlannedSource):
        own = functions

        @classmethod
        def name(cls) -> str:
            return format

    try:
        spark.dataSource.register(Registered)
    except AnalysisException as error:
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        raise InvalidArgumentError(
            f"another session of this process has registered the format {format!r}, and Spark takes a name from one "
            f"session only; use that session, or register(spark, {format + '_2'!r}) and format({format + '_2'!r})"
        ) from error


class PlannedSource(DataSource):
    """The data source; made by Spark."""

    own: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of the tuples, and ``BUCKET`` and ``SPLIT`` of their keys."""
        text = self.options.get("schema")
        if text is None:
            raise InvalidArgumentError(
                "the source equipoise needs the option schema, for example 'word string, n bigint'"
            )
        return f"{text}, {BUCKET} int, {SPLIT} boolean"

    def streamReader(self, schema: StructType) -> "PlannedReader":  # noqa: N802 - Spark's own name
        """Return the reader; Spark makes several, so nothing is started here."""
        return PlannedReader({name.lower(): value for name, value in self.options.items()}, schema, self.own)


@dataclass(frozen=True)
class BlockPartition(InputPartition):
    """A block as an input partition."""

    batch: int
    section: SpoolSection


class PlannedReader(DataSourceStreamReader):
    """Hands out sealed batches, one for each micro-batch.

    Parameters
    ----------
    options
        Options of the source, by lower-case name.
    schema
        Columns to return.
    functions
        Feeds that the user has registered.
    """

    def __init__(
        self, options: Mapping[str, str], schema: StructType, functions: Mapping[str, Callable[[Any], Any]]
    ) -> None:
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            raise InvalidArgumentError(
                f"the source equipoise has no option {', '.join(unknown)}; it has {', '.join(sorted(_OPTIONS))}"
            )
        if "spool" not in options:
            raise InvalidArgumentError("the source equipoise needs the option spool, a folder to keep tuples in")
        self._options, self._functions = dict(options), dict(functions)
        self._columns = schema.names
        fields = [field for field in schema.fields if field.name not in {BUCKET, SPLIT}]
        self._schema: pa.Schema = to_arrow_schema(StructType(fields), timezone="UTC")
        self._cutting = _cutting(options)
        require_cutting(self._schema, self._cutting)
        self._spool = Spool(options["spool"])
        self._receiver: Receiver | None = None
        self._name: str | None = None
        self._released = 0
        self._end: Offset | None = None

    def __getstate__(self) -> dict[str, Any]:
        kept = self.__dict__ | {"_receiver": None, "_functions": {}, "_spool": None}
        return kept | {"_folder": self._options["spool"]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._spool = Spool(state["_folder"])

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's own name
        """Return the oldest batch in the spool."""
        sealed = self._receiving().sealed
        return self._at(min([*self._spool.numbers(), sealed]))

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:  # noqa: ARG002, N802 - Spark's own name
        """Return the next batch if it is sealed; one batch at a time, even if several wait."""
        known = start or self._end  # Spark 4.1 passes no start, but has asked for the blocks up to it
        sealed = self._receiving(known).sealed
        upto = min(sealed, (known["batch"] if known is not None else self._released) + 1)
        if upto != self._released:
            self._spool.release(upto)
            self._released = upto
        return self._at(upto)

    def reportLatestOffset(self) -> Offset:  # noqa: N802 - Spark's own name
        """Return the last sealed batch, for Spark's measures of the backlog."""
        return self._at(self._receiving().sealed)

    def partitions(self, start: Offset, end: Offset) -> Sequence[BlockPartition]:
        """Return the blocks that were written when the batches were sealed."""
        self._receiving(end)
        self._end = end
        return [
            BlockPartition(number, section)
            for number in range(start["batch"], end["batch"])
            for section in self._spool.batch(number).blocks
        ]

    def _at(self, batch: int) -> Offset:
        return {"batch": batch, "spool": self._name}

    def _require(self, read: Offset, name: str | None, sealed: int) -> None:
        """Refuse a spool other than the one that the query has read, or one that lacks batches that were read.

        Otherwise tuples would be counted twice or not at all.
        """
        if read["batch"] > sealed or read.get("spool") != name:
            raise MismatchError(
                f"the query has read {read['batch']} batches of its spool, and the spool {self._spool.folder}, which "
                f"has sealed {sealed}, is another one, or was emptied, or is an older copy: give the query its own, or "
                "begin with a new checkpoint and a new spool"
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a block, key by key."""
        assert isinstance(partition, BlockPartition)  # noqa: S101 - this tells the type checker
        yield from self._spool.block(partition.batch, partition.section).select(self._columns).to_batches()

    def commit(self, end: Offset) -> None:
        """Delete the batches that were processed."""
        self._receiving(end).forget(end["batch"])

    def stop(self) -> None:
        """End the receiver; tuples that are not processed stay in the spool."""
        if self._receiver is not None:
            self._receiver.stop()

    def _receiving(self, read: Offset | None = None) -> Receiver:
        """Return the receiver; start it after checking the spool, because a receiver acknowledges tuples."""
        if self._receiver is not None:
            if read is not None:
                self._require(read, self._name, self._receiver.sealed)
            return self._receiver
        if read is not None:
            self._require(read, self._spool.name(), self._spool.sealed())
        feed = _feed(self._options, self._schema, self._functions)
        receiver = Receiver(self._spool, feed, self._schema, self._cutting)
        receiver.start()
        self._receiver, self._name = receiver, self._spool.name()
        self._released = self._spool.released()
        return receiver


def _cutting(options: Mapping[str, str]) -> Cutting:
    keys = tuple(name.strip() for name in options.get("key", "").split(",") if name.strip())
    given: dict[str, Any] = {
        name: read(options[option])
        for name, option, read in (
            ("early", "early", _number("early", float)),
            ("method", "method", str),
            ("blocks", "blocks", _number("blocks", int)),
            ("buckets", "buckets", _number("buckets", int)),
            ("least", "least", _number("least", int)),
            ("most", "most", _number("most", int)),
            ("weight", "weight", str),
            ("spool_bytes", "spoolbytes", _number("spoolBytes", int)),
        )
        if option in options
    }
    return Cutting(keys, seconds_of("interval", options.get("interval", 1.0)), **given)


def _feed(options: Mapping[str, str], schema: pa.Schema, functions: Mapping[str, Callable[[Any], Any]]) -> Feed:
    name = options.get("feed", "")
    if name in functions:
        return CallableFeed(functions[name], schema)
    if name in {"socket", "connect"}:
        return SocketFeed(
            schema,
            options.get("host", "127.0.0.1"),
            _number("port", int)(options.get("port", "9999")),
            options.get("format", "json"),
            connect=name == "connect",
            patience=_number("patience", float)(options.get("patience", "30")),
            limits=_limits(options),
        )
    if name == "replay":
        if "path" not in options:
            raise InvalidArgumentError("the feed replay needs the option path, a Parquet file")
        return ReplayFeed(options["path"], schema, _rate(options))
    if name == "generate":
        return GeneratedFeed(
            schema,
            _rate(options),
            keys=_number("keys", int)(options.get("keys", "10000")),
            exponent=_number("exponent", float)(options.get("exponent", "1.0")),
            seed=_number("seed", int)(options.get("seed", "0")),
            count=_number("count", int)(options["count"]) if "count" in options else None,
        )
    known = ", ".join([*FEEDS, *functions])
    raise InvalidArgumentError(
        f"feed must be one of {known}, got {name!r}; register functions with equipoise.spark.register"
    )


def _limits(options: Mapping[str, str]) -> Limits:
    names = {"connections": "connections", "waiting_bytes": "waitingBytes", "line_bytes": "lineBytes"}
    names |= {"message_rows": "messageRows", "message_bytes": "messageBytes"}
    given: dict[str, Any] = {
        name: _number(option, int)(options[option.lower()])
        for name, option in names.items()
        if option.lower() in options
    }
    if "idle" in options:
        given["idle"] = seconds_of("idle", options["idle"])
    return Limits(**given)


def _rate(options: Mapping[str, str]) -> Rate:
    number = {name: _number(name, float)(options[name]) for name in ("swing", "period") if name in options}
    return Rate(_number("rate", float)(options.get("rate", "1000")), options.get("curve", "constant"), **number)


def _number(name: str, kind: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise InvalidArgumentError(f"option {name} must be a number, got {text!r}") from None

    return read
