"""The handle of a stateful processor, with the interface of Spark's ``StatefulProcessorHandle``.

The driver runs the processor's ``init`` once with a ``RecordingHandle``, which collects its declarations.
``merge_specs`` combines them with the variables of the checkpoint to one table. Executors run ``init`` with a
``StateHandle`` over that table and then set one group after the other and one key after the other.

Variables are numbered by tags. A tag is never used twice in a checkpoint, so entries that an earlier variable has left
are never mistaken for values of another.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from equipoise.arguments import whole
from equipoise.errors import InvalidArgumentError, MismatchError
from equipoise.state.codec import KeyCodec
from equipoise.state.entries import entry_prefix
from equipoise.state.evolution import ValueCodec, difference, same_layout, same_types, spelled
from equipoise.state.kinds import RowFactory
from equipoise.state.timers import Timers, due_timers, time_mode
from equipoise.state.variables import DeletedVariable, ListState, MapState, NoKey, Scope, ValueState

if TYPE_CHECKING:
    from equipoise.state.transaction import GroupView

Kind = Literal["value", "list", "map"]
_LAST_TAG = 255


class VariableSpec(msgspec.Struct, frozen=True):
    """One state variable, as stored in the checkpoint.

    Parameters
    ----------
    name, kind
        Its name in ``init``, and its kind: value, list or map.
    tag
        Its number in the keys of entries, 1 to 255.
    schema, key_schema
        ``StructType.jsonValue()`` of its values, and of the user's keys of a map.
    ttl_ms
        Time to live of its values, if any.
    removed
        Whether ``deleteIfExists`` was called for it: its entries may be purged.
    former_tags
        Tags of removed variables that had the same name.
    former_schemas
        Earlier schemas of its values, the first one first; values that were written with them keep their bytes.
    """

    name: str
    kind: Kind
    tag: int
    schema: dict[str, Any]
    key_schema: dict[str, Any] | None = None
    ttl_ms: int | None = None
    removed: bool = False
    former_tags: tuple[int, ...] = ()
    former_schemas: tuple[dict[str, Any], ...] = ()

    @property
    def schemas(self) -> tuple[dict[str, Any], ...]:
        """All schemas of its values by their numbers, the current one last."""
        return (*self.former_schemas, self.schema)

    def values(self, rows: RowFactory | None = None) -> ValueCodec:
        """Return the codec of its values."""
        return ValueCodec(self.schemas, f"{self.kind} state {self.name!r}", rows)

    def keys(self, rows: RowFactory | None = None) -> KeyCodec:
        """Return the codec of the user's keys of a map."""
        return KeyCodec(self.key_schema or {}, f"keys of map state {self.name!r}", rows)


class _Handle(Timers, ABC):
    """The methods of both handles that user code calls; those for timers are in ``Timers``."""

    def __init__(
        self,
        scope: Scope,
        mode: str,
        rows: RowFactory | None = None,
        error: type[InvalidArgumentError] = InvalidArgumentError,
    ) -> None:
        super().__init__(scope, time_mode(mode))
        self._rows = rows
        self._error = error
        self._in_init = True

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> ValueState:  # noqa: N802, N803 - Spark's own name
        """A variable that holds one row for each grouping key; in ``init`` only."""
        spec = self._declare(stateName, "value", schema, None, ttlDurationMs)
        return self._deleted("value", stateName) if spec is None else ValueState(*self._arguments(spec))

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> ListState:  # noqa: N802, N803 - Spark's own name
        """A variable that holds a list of rows for each grouping key; in ``init`` only."""
        spec = self._declare(stateName, "list", schema, None, ttlDurationMs)
        return self._deleted("list", stateName) if spec is None else ListState(*self._arguments(spec))

    def getMapState(  # noqa: N802 - Spark's own name
        self,
        stateName: str,  # noqa: N803 - Spark's own name
        userKeySchema: Any,  # noqa: N803 - Spark's own name
        valueSchema: Any,  # noqa: N803 - Spark's own name
        ttlDurationMs: int | None = None,  # noqa: N803 - Spark's own name
    ) -> MapState:
        """A variable that holds a map from rows to rows for each grouping key; in ``init`` only."""
        spec = self._declare(stateName, "map", valueSchema, userKeySchema, ttlDurationMs)
        if spec is None:
            deleted: MapState = self._deleted("map", stateName)
            return deleted
        scope, name, tag, ttl_ms, values = self._arguments(spec)
        make_row = tuple if self._rows is None else self._rows(values.names)
        return MapState(scope, name, tag, ttl_ms, values, spec.keys(self._rows), make_row)

    def _arguments(self, spec: VariableSpec) -> tuple[Scope, str, int, int | None, ValueCodec]:
        return self._scope, spec.name, spec.tag, spec.ttl_ms, spec.values(self._rows)

    def _deleted(self, kind: Kind, name: str) -> Any:
        return DeletedVariable(kind, name, self._error)

    def _require_declarable(self, name: str, kind: Kind) -> None:
        if not self._in_init:
            raise InvalidArgumentError(
                f"get{kind.capitalize()}State({name!r}) was called after init; state variables are declared in init "
                "only"
            )

    def _require_deletable(self, name: str) -> None:
        if not self._in_init:
            raise self._error(
                f"Error deleting state: deleteIfExists({name!r}) was called after init, with the variable in use; "
                "delete variables in init, or clear() the values of this one"
            )

    @abstractmethod
    def _declare(self, name: str, kind: Kind, schema: Any, key_schema: Any, ttl_ms: int | None) -> VariableSpec | None:
        """The variable of this name, with its tag; None for one that ``init`` is going to delete."""


class StateHandle(_Handle):
    """The handle of a task: variables over the entries of one group after the other.

    Parameters
    ----------
    declared
        The table of variables from ``merge_specs`` on the driver. Schemas and TTLs are taken from it.
    mode
        Time mode of the query: ``none``, ``processingTime`` or ``eventTime``.
    processing_ms, watermark_ms
        Processing time and watermark of the batch.
    batch
        Number of the batch, larger in every later batch of the query.
    rows
        Makes the rows of nested structs and of ``MapState.getValue``; default tuples.
    error
        Class of the error for the use of a deleted variable.
    """

    def __init__(
        self,
        declared: Mapping[str, VariableSpec],
        *,
        mode: str = "none",
        processing_ms: int = -1,
        watermark_ms: int = -1,
        batch: int = 0,
        rows: RowFactory | None = None,
        error: type[InvalidArgumentError] = InvalidArgumentError,
    ) -> None:
        super().__init__(Scope(processing_ms, whole("batch", batch, 0)), mode, rows, error)
        self._declared = {name: spec for name, spec in declared.items() if not spec.removed}
        self._watermark_ms = watermark_ms
        self._got: set[str] = set()
        self._to_delete: dict[str, Kind] = {}

    def timer_values(self) -> tuple[int, int]:
        """Processing time and watermark as user code sees them: -1 and -1 with time mode none, as in Spark."""
        return (-1, -1) if self._mode == "none" else (self._scope.now_ms, self._watermark_ms)

    def finish_init(self) -> None:
        """End ``init``: refuse variables that the driver does not know, unless ``init`` has deleted them."""
        self._in_init = False
        for name, kind in self._to_delete.items():
            raise _unknown(name, kind, "no such variable")

    def set_group(self, view: "GroupView") -> None:
        """Switch to this group; ``init`` is over, and there is no current key yet."""
        if self._in_init:
            self.finish_init()
        self._scope.view = view
        self._scope.prefix = NoKey()

    def set_key(self, fingerprint: int, key: bytes) -> None:
        """Switch to this grouping key of the group."""
        self._scope.prefix = entry_prefix(fingerprint, key)

    def due_timers(self) -> Iterator[tuple[int, bytes, int]]:
        """Fingerprint, grouping key and time of the group's due timers, by the clock of the time mode."""
        if self._mode == "none":
            return iter(())
        clock = self._scope.now_ms if self._mode == "processingTime" else self._watermark_ms
        return due_timers(self._scope.view, clock)

    def deleteIfExists(self, stateName: str) -> None:  # noqa: N802, N803 - Spark's own name
        """Accept the deletion: the driver has already removed the variable from the table."""
        self._require_deletable(stateName)
        if stateName in self._declared:
            raise InvalidArgumentError(
                f"init deletes the {self._declared[stateName].kind} state {stateName!r}, but the driver keeps it "
                "in use; init must declare and delete the same variables on the driver and on executors"
            )
        self._to_delete.pop(stateName, None)

    def _declare(self, name: str, kind: Kind, schema: Any, key_schema: Any, ttl_ms: int | None) -> VariableSpec | None:  # noqa: ARG002 - the name belongs to the protocol
        self._require_declarable(name, kind)
        _once(name, self._got)
        self._got.add(name)
        spec = self._declared.get(name)
        if spec is None:
            self._to_delete[name] = kind
        elif spec.kind != kind:
            raise _unknown(name, kind, f"a {spec.kind} state")
        return spec


class RecordingHandle(_Handle):
    """The handle of the driver: collects the declarations of ``init``. It has no state.

    Parameters
    ----------
    parse
        Returns the JSON form of a schema, from a ``StructType`` or from DDL text.
    mode
        Time mode of the query.
    nullable
        Whether to refuse fields of values that are not nullable, as Spark does with Avro as the encoding of its state.

    Attributes
    ----------
    specs
        Declared variables by name, numbered in this order.
    removed
        Names given to ``deleteIfExists``.
    """

    def __init__(self, parse: Callable[[Any], dict[str, Any]], *, mode: str = "none", nullable: bool = False) -> None:
        super().__init__(Scope(-1, 0), mode)
        self._parse = parse
        self._nullable = nullable
        self.specs: dict[str, VariableSpec] = {}
        self.removed: set[str] = set()

    def deleteIfExists(self, stateName: str) -> None:  # noqa: N802, N803 - Spark's own name
        """Remove a variable of earlier runs with all its values, and its declaration if ``init`` has made one."""
        self.removed.add(stateName)
        self.specs.pop(stateName, None)

    def _declare(self, name: str, kind: Kind, schema: Any, key_schema: Any, ttl_ms: int | None) -> VariableSpec:
        if not isinstance(name, str) or not name:
            raise InvalidArgumentError(f"a state variable needs a name, got {name!r}")
        ttl_ms = None if ttl_ms is None else whole(f"ttlDurationMs of {name!r}", ttl_ms, 0) or None
        if ttl_ms is not None and self._mode != "processingTime":
            raise InvalidArgumentError(
                f"state variable {name!r} has ttlDurationMs {ttl_ms}, which needs timeMode processingTime, but "
                f"this query has timeMode {self._mode}; change the mode or leave the TTL out"
            )
        _once(name, self.specs)
        if name in self.removed:
            raise InvalidArgumentError(
                f"init deletes the state variable {name!r} and then declares it, so each start would empty it; leave "
                f"out deleteIfExists({name!r}) to keep its values, or declare it under a new name to begin without them"
            )
        tag = _tag_after(len(self.specs))
        parsed_key = None if key_schema is None else self._parse(key_schema)
        spec = VariableSpec(name, kind, tag, self._parse(schema), parsed_key, ttl_ms)
        if self._nullable and ttl_ms is None:  # Spark does not look into the values of variables with a TTL
            _require_nullable(spec)
        self.specs[name] = spec
        return spec


def merge_specs(
    old: Mapping[str, VariableSpec], new: Mapping[str, VariableSpec], removed: Collection[str] = ()
) -> dict[str, VariableSpec]:
    """Merge the table of a checkpoint with the declarations ``new`` and the deletions ``removed`` of ``init``.

    A known variable keeps its tag. Its TTL may change, for values that are written from then on, and the schema of its
    values as ``evolution`` describes; any other change of kind or schema raises ``MismatchError``. A variable that is
    no longer declared stays in the table, so that its values are available when it is declared again.
    """
    merged = dict(old)
    for name in removed:
        if name in old:
            merged[name] = msgspec.structs.replace(old[name], removed=True)
    last = max((tag for spec in old.values() for tag in (spec.tag, *spec.former_tags)), default=0)
    for name, spec in new.items():
        known = merged.get(name)
        if known is not None and not known.removed:
            _require_readable(known, spec)
            same = known.schema == spec.schema or same_layout(known.schema, spec.schema)
            schemas = known.former_schemas if same else known.schemas
            tag, former = known.tag, known.former_tags
        else:
            tag, schemas = _tag_after(last), ()
            last = tag
            former = () if known is None else (*known.former_tags, known.tag)
        merged[name] = msgspec.structs.replace(spec, tag=tag, former_tags=former, former_schemas=schemas)
    return merged


def removed_tags(table: Mapping[str, VariableSpec]) -> frozenset[int]:
    """Tags of removed variables: their entries may be dropped wherever they are found."""
    current = {spec.tag for spec in table.values() if spec.removed}
    return frozenset(current.union(*(spec.former_tags for spec in table.values())))


def _once(name: str, seen: Collection[str]) -> None:
    if name in seen:
        raise InvalidArgumentError(f"init declares the state variable {name!r} twice; give each its own name")


def _tag_after(tag: int) -> int:
    if tag >= _LAST_TAG:
        raise InvalidArgumentError(
            f"a checkpoint holds at most {_LAST_TAG} state variables, removed ones included; "
            "put several fields into one variable, or start a new checkpoint"
        )
    return tag + 1


def _unknown(name: str, kind: Kind, known: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"init declares the {kind} state {name!r}, but the driver has recorded {known} under this name; "
        "init must declare the same variables on the driver and on executors"
    )


def _require_nullable(spec: VariableSpec) -> None:
    fields = [field["name"] for field in spec.schema["fields"] if not field.get("nullable", True)]
    if fields:
        raise InvalidArgumentError(
            f"state variable {spec.name!r} has fields that are not nullable ({', '.join(fields)}), which Spark refuses "
            "with Avro as the encoding of its state (TRANSFORM_WITH_STATE_SCHEMA_MUST_BE_NULLABLE); declare them "
            "nullable, or unset spark.sql.streaming.stateStore.encodingFormat"
        )


def _require_readable(known: VariableSpec, spec: VariableSpec) -> None:
    changes = [difference(schema, spec.schema, "value") for schema in known.schemas[::-1]]
    if known.kind != spec.kind:
        change = f"it was a {known.kind} state and is declared a {spec.kind} state now"
    elif not same_types(known.key_schema, spec.key_schema):
        change = f"its keys were ({_columns(known.key_schema)}) and are ({_columns(spec.key_schema)})"
    else:
        change = next(filter(None, changes), "")
    if change:
        raise MismatchError(
            f"state variable {spec.name!r} of this checkpoint cannot be read as it is declared now: {change}; "
            "declare it as before, or use a new name or a new checkpoint"
        )


def _columns(schema: dict[str, Any] | None) -> str:
    fields = schema["fields"] if schema else ()
    return ", ".join(f"{field['name']} {spelled(field['type'])}" for field in fields)
