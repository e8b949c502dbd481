"""Formats of ``writeStream``: the registry from the name of a format to its sink."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from equipoise.errors import InvalidArgumentError
from equipoise.spark.stream.delivery import Sink
from equipoise.spark.stream.sinks import console_sink, kafka_sink, parquet_sink, table_sink


@dataclass(frozen=True)
class SinkRequest:
    """What the user asked of the writer.

    Parameters
    ----------
    format
        Name of the format, in lower case.
    target
        Path of ``start(path)``, or name of ``toTable(name)``.
    options
        Options by name, as the user spelled them, without ``checkpointLocation``.
    output_mode
        ``append`` or ``update``.
    query_name
        Name of the query.
    """

    format: str
    target: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    output_mode: str = "append"
    query_name: str | None = None

    def require_target(self) -> str:
        """Return the target, or refuse to start without one."""
        if not self.target:
            raise InvalidArgumentError(
                f"the format {self.format} needs a target; give it to start(path), or to toTable(name) for a table"
            )
        return self.target


MakeSink: TypeAlias = Callable[[SinkRequest], Sink]
"""Makes the sink of a format; refuses options that it does not know."""

FORMATS: dict[str, MakeSink] = {
    "parquet": lambda asked: parquet_sink(asked.require_target(), asked.options),
    "table": lambda asked: table_sink(asked.require_target(), asked.options),
    "console": lambda asked: console_sink(asked.options),
    "kafka": lambda asked: kafka_sink(asked.options),
}
"""Sinks by the name of their format."""


def make_sink(asked: SinkRequest) -> Sink:
    """Return the sink of a format."""
    make = FORMATS.get(asked.format)
    if make is None:
        raise InvalidArgumentError(
            f"there is no format {asked.format!r}; there are {', '.join(sorted(FORMATS))}; for others write the rows "
            "of each batch with foreachBatch(f)"
        )
    return make(asked)
