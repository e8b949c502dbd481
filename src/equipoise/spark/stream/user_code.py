"""User code of a keyed stream operator: how to run it, and which state variables it has."""

import copy
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from equipoise.errors import InvalidArgumentError
from equipoise.spark.rows.aggregator import Aggregator
from equipoise.spark.rows.schemas import Schemas
from equipoise.spark.stream.aggregator import AggregatorProcessor
from equipoise.spark.stream.group_state import GroupStateProcessor, GroupStateRunner
from equipoise.spark.stream.row_runner import RowRunner
from equipoise.spark.stream.runners import ProcessorRunner, RunnerFactory
from equipoise.spark.stream.vectorised import STATE, VectorProcessor, VectorRunner
from equipoise.state.handle import RecordingHandle, VariableSpec

if TYPE_CHECKING:
    import pyarrow as pa

Processor = StatefulProcessor | VectorProcessor | Aggregator
"""The three shapes of user code."""

Form = Literal["pandas", "rows"]
"""Form of the rows for a ``StatefulProcessor``: frames (``transformWithStateInPandas``) or ``Row`` objects
(``transformWithState``)."""


class UserCode:
    """User code, inspected on the driver.

    Parameters
    ----------
    schemas
        Parses the schemas that the code declares.
    processor
        The user's object.
    output_columns
        Names of the output columns.
    time_mode
        Time mode of the query.
    form
        How a ``StatefulProcessor`` receives rows: ``"pandas"`` as DataFrames, ``"rows"`` as ``Row`` objects.
    """

    def __init__(
        self,
        schemas: Schemas,
        processor: Processor,
        output_columns: list[str],
        time_mode: str,
        form: Form = "pandas",
    ) -> None:
        self.name = type(processor).__name__
        self.state_arrow: pa.Schema | None = None
        self.removed: set[str] = set()
        self._initial: list[str] | None = None
        self.aggregator: Aggregator | None = None  # only one that can merge
        if form == "rows" and not isinstance(processor, StatefulProcessor):
            raise InvalidArgumentError(
                f"transformWithState needs a StatefulProcessor, got {described_object(processor)}"
            )
        if isinstance(processor, Aggregator):
            schema = schemas.parsed(processor.bufferSchema)
            self._initial = _names(schema)
            self.aggregator = processor if processor.can_merge else None
            processor = AggregatorProcessor(processor, schema, output_columns)
        if isinstance(processor, StatefulProcessor):
            self.runner: RunnerFactory = partial(_runner_of(processor, form), processor)
            handle = RecordingHandle(schemas.parsed, mode=time_mode, nullable=schemas.nullable_state)
            tried = copy.copy(processor)  # the processor itself travels to the tasks as the user made it
            tried.init(handle)  # type: ignore[arg-type]  # the same methods, without state behind them
            tried.close()
            self.variables: dict[str, VariableSpec] = handle.specs
            self.removed = handle.removed
        elif isinstance(processor, VectorProcessor):
            if not hasattr(processor, "stateSchema"):
                raise InvalidArgumentError(
                    f"{type(processor).__name__} has no stateSchema, the schema of the state of a key; add one, for "
                    'example stateSchema = "n long"'
                )
            self._initial = _names(schemas.parsed(processor.stateSchema))
            self.runner = partial(VectorRunner, processor)
            self.variables = {STATE: VariableSpec(STATE, "value", 1, schemas.parsed(processor.stateSchema))}
            self.state_arrow = schemas.arrow(processor.stateSchema)
        else:
            raise InvalidArgumentError(
                "processor must be a StatefulProcessor, a VectorProcessor or an Aggregator, got "
                f"{described_object(processor)}"
            )

    def initial_columns(self, key: Sequence[str], given: Sequence[str]) -> list[str]:
        """Return the columns of an initial state to use: all for a ``StatefulProcessor``, else those of the state."""
        if self._initial is None:
            return list(given)
        missing = [name for name in self._initial if name not in given]
        if missing:
            raise InvalidArgumentError(
                f"initialState lacks the column {missing[0]!r} of the state; it has {', '.join(given)}; add the "
                "column, or rename one"
            )
        return [*key, *self._initial]


def _runner_of(processor: StatefulProcessor, form: Form) -> type[ProcessorRunner]:
    if isinstance(processor, GroupStateProcessor):
        return GroupStateRunner
    return RowRunner if form == "rows" else ProcessorRunner


def _names(schema: dict[str, Any]) -> list[str]:
    return [field["name"] for field in schema["fields"]]


def described_object(given: object) -> str:
    """Return how to name a wrong argument in a message."""
    if isinstance(given, type):
        return f"the class {given.__name__}; give an instance, {given.__name__}(...)"
    return f"a {type(given).__name__}"
