"""User code of a keyed stream operator: how to run it, and which state variables it has."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from equipoise.errors import EquipoiseError, InvalidArgumentError, UserFunctionError
from equipoise.spark.rows.aggregator import Aggregator
from equipoise.spark.rows.column_aggregator import ColumnAggregator
from equipoise.spark.rows.column_vectors import ColumnVectors
from equipoise.spark.rows.schemas import Schemas
from equipoise.spark.rows.user_functions import raised_at, traced
from equipoise.spark.rows.vector_aggregator import VectorAggregator
from equipoise.spark.stream.aggregator import STATE as BUFFER
from equipoise.spark.stream.aggregator import AggregatorProcessor, FinalAggregatorProcessor
from equipoise.spark.stream.batch_spec import BatchSpec
from equipoise.spark.stream.group_state import GroupStateProcessor, GroupStateRunner
from equipoise.spark.stream.runners import FinalAggregateRunner, ProcessorRunner, RowRunner, Runner, RunnerFactory
from equipoise.spark.stream.vector_aggregates import VectorAggregateRunner, VectorAggregatorProcessor
from equipoise.spark.stream.vectorised import STATE, VectorProcessor, VectorRunner
from equipoise.state.handle import RecordingHandle, VariableSpec

if TYPE_CHECKING:
    import pyarrow as pa

Processor = StatefulProcessor | VectorProcessor | Aggregator | VectorAggregator
"""The four shapes of user code."""

AGGREGATOR_BUFFER = 16.0
"""Rows that cost as much as a buffer of an ``Aggregator``: a call of ``reduce`` and one of ``merge`` for each."""

VECTOR_BUFFER = 2.0
"""Rows that cost as much as a buffer of a ``VectorAggregator``."""

COLUMN_BUFFER = 1.2
"""Rows that cost as much as a buffer which Spark has made."""

Form = Literal["pandas", "rows"]
"""Form of the rows for a ``StatefulProcessor``: frames (``transformWithStateInPandas``) or ``Row`` objects
(``transformWithState``)."""


class TaskCode:
    """The user's processor as bytes, and the runner that each task makes of its own copy of it.

    The bytes are made when the query is defined. What ``init`` on the driver or another task does to its copy does
    not reach a task.

    Parameters
    ----------
    runner
        Makes a runner of a processor and the specification of a batch.
    processor
        The user's processor, or ours around it.
    name
        Name of the user's class, for messages.
    """

    def __init__(self, runner: Callable[[Any, BatchSpec], Runner], processor: object, name: str) -> None:
        self._runner = runner
        try:
            self._pickled: bytes = cloudpickle.dumps(processor)  # type: ignore[no-untyped-call]  # it has no annotations
        except Exception as error:  # pickling runs code of the user and of libraries
            raise InvalidArgumentError(
                f"{name} cannot be pickled, and tasks work on copies of it: {error}; create locks, clients and open "
                "files in init, which runs in each task, or in process"
            ) from error

    def copy(self) -> Any:
        """Return a new copy of the processor."""
        return cloudpickle.loads(self._pickled)

    def __call__(self, batch_spec: BatchSpec) -> Runner:
        """Return the runner of a task, with a new copy of the processor."""
        return self._runner(self.copy(), batch_spec)


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
    final_by
        Position in the key of the event time by which an ``Aggregator`` finishes a key; ``None``: it yields a row
        whenever a key changes.
    """

    def __init__(
        self,
        schemas: Schemas,
        processor: Processor,
        output_columns: list[str],
        time_mode: str,
        form: Form = "pandas",
        final_by: int | None = None,
    ) -> None:
        self.name = type(processor).__name__
        self.state_arrow: pa.Schema | None = None
        self.declared_in = f"{self.name}.bufferSchema"
        self.removed: set[str] = set()
        self._initial: list[str] | None = None
        self.aggregator: Aggregator | None = None  # only one that can merge
        self.uncombined = f"{self.name} has no merge"
        self.buffer_cost = _buffer_cost(processor)
        self.hot_only = self.buffer_cost == AGGREGATOR_BUFFER
        self.vector: VectorAggregator | None = None
        self.aggregate = processor if isinstance(processor, Aggregator | VectorAggregator) else None
        if form == "rows" and not isinstance(processor, StatefulProcessor):
            raise InvalidArgumentError(
                f"transformWithState needs a StatefulProcessor, got {described_object(processor)}"
            )
        if isinstance(processor, ColumnAggregator) and final_by is None:
            processor = ColumnVectors(processor)
        if isinstance(processor, Aggregator):
            schema = schemas.parsed(processor.bufferSchema)
            self._initial = _names(schema)
            made = AggregatorProcessor if final_by is None else FinalAggregatorProcessor
            processor = made(processor, schema, output_columns)
        if isinstance(processor, StatefulProcessor):
            code = TaskCode(_runner_of(processor, form, final_by), processor, self.name)
            self.runner: RunnerFactory = code
            if isinstance(processor, AggregatorProcessor) and processor.aggregator.can_merge:
                self.aggregator, self.uncombined = code.copy().aggregator, ""
            handle = RecordingHandle(schemas.parsed, mode=time_mode, nullable=schemas.nullable_state)
            self.declared_in = _place_of_declaration(self.name, processor)
            with _declaring(self.declared_in):
                tried = code.copy()
                tried.init(handle)
                tried.close()
            self.variables: dict[str, VariableSpec] = handle.specs
            self.removed = handle.removed
        elif isinstance(processor, VectorAggregator):
            self._take_vectors(schemas, processor, time_mode)
        elif isinstance(processor, VectorProcessor):
            if not hasattr(processor, "stateSchema"):
                raise InvalidArgumentError(
                    f"{type(processor).__name__} has no stateSchema, the schema of the state of a key; add one, for "
                    'example stateSchema = "n long"'
                )
            self.declared_in = f"{self.name}.stateSchema"
            self._initial = _names(schemas.parsed(processor.stateSchema))
            self.runner = TaskCode(VectorRunner, processor, self.name)
            self.variables = {STATE: VariableSpec(STATE, "value", 1, schemas.parsed(processor.stateSchema))}
            self.state_arrow = schemas.arrow(processor.stateSchema)
        else:
            raise InvalidArgumentError(
                "processor must be a StatefulProcessor, a VectorProcessor, an Aggregator or a VectorAggregator, got "
                f"{described_object(processor)}"
            )

    def _take_vectors(self, schemas: Schemas, processor: VectorAggregator, time_mode: str) -> None:
        self._initial = _names(schemas.parsed(processor.bufferSchema))
        code = TaskCode(VectorAggregateRunner, VectorAggregatorProcessor(processor), self.name)
        self.runner, self.vector, self.uncombined = code, code.copy().aggregator, ""
        handle = RecordingHandle(schemas.parsed, mode=time_mode, nullable=schemas.nullable_state)
        handle.getValueState(BUFFER, processor.bufferSchema)
        self.variables, self.state_arrow = handle.specs, schemas.arrow(processor.bufferSchema)

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


def _place_of_declaration(name: str, processor: StatefulProcessor) -> str:
    """Return where the user declares the state, for messages."""
    if isinstance(processor, GroupStateProcessor):
        return "stateStructType"
    return f"{name}.{'bufferSchema' if isinstance(processor, AggregatorProcessor) else 'init'}"


@contextmanager
def _declaring(place: str) -> Iterator[None]:
    """Name the class and the method in an error of ``init`` on the driver."""
    try:
        yield
    except EquipoiseError as error:
        raise type(error)(f"{place}: {error}") from error
    except Exception as error:
        raise UserFunctionError(
            f"{type(error).__name__} in {place}{raised_at(error, place)}: {error}\n"
            "The driver called it to learn the state variables, before any row. Correct it and run again.\n"
            f"{traced(error)}"
        ) from error


def _buffer_cost(processor: Processor) -> float:
    if isinstance(processor, ColumnAggregator):
        return COLUMN_BUFFER
    return VECTOR_BUFFER if isinstance(processor, VectorAggregator) else AGGREGATOR_BUFFER


def require_processor(given: object) -> None:
    """Refuse anything but a ``StatefulProcessor``."""
    if not isinstance(given, StatefulProcessor):
        raise InvalidArgumentError(f"statefulProcessor must be a StatefulProcessor, got {described_object(given)}")


def _runner_of(
    processor: StatefulProcessor, form: Form, final_by: int | None
) -> Callable[[Any, BatchSpec], ProcessorRunner]:
    if final_by is not None:
        return partial(FinalAggregateRunner, final_by)
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
