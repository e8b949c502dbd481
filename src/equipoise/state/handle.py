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
from equipoise.state.codec import KeyCodec, RowCodec
from equipoise.state.entries import entry_prefix
from equipoise.state.timers import Timers, due_timers, time_mode
from equipoise.state.variables import ListState, MapState, NoKey, Scope, ValueState

if TYPE_CHECKING:
    from equipoise.state.transaction import GroupView

Kind = Literal["value", "list", "map"]
_LAST_TAG = 255
_WIDTHS = ("byte", "short", "integer", "long")


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
    """

    name: str
    kind: Kind
    tag: int
    schema: dict[str, Any]
    key_schema: dict[str, Any] | None = None
    ttl_ms: int | None = None
    removed: bool = False
    former_tags: tuple[int, ...] = ()


class _Handle(Timers, ABC):
    """The methods of both handles that user code calls; those for timers are in ``Timers``."""

    def __init__(self, scope: Scope, mode: str) -> None:
        super().__init__(scope, time_mode(mode))

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> ValueState:  # noqa: N802, N803 - Spark's own name
        """A variable that holds one row for each grouping key; in ``init`` only."""
        spec = self._declare(stateName, "value", schema, None, ttlDurationMs)
        return ValueState(self._scope, spec.name, spec.tag, spec.ttl_ms, _values(spec))

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> ListState:  # noqa: N802, N803 - Spark's own name
        """A variable that holds a list of rows for each grouping key; in ``init`` only."""
        spec = self._declare(stateName, "list", schema, None, ttlDurationMs)
        return ListState(self._scope, spec.name, spec.tag, spec.ttl_ms, _values(spec))

    def getMapState(  # noqa: N802 - Spark's own name
        self,
        stateName: str,  # noqa: N803 - Spark's own name
        userKeySchema: Any,  # noqa: N803 - Spark's own name
        valueSchema: Any,  # noqa: N803 - Spark's own name
        ttlDurationMs: int | None = None,  # noqa: N803 - Spark's own name
    ) -> MapState:
        """A variable that holds a map from rows to rows for each grouping key; in ``init`` only."""
        spec = self._declare(stateName, "map", valueSchema, userKeySchema, ttlDurationMs)
        keys = KeyCodec(spec.key_schema or {}, f"keys of map state {stateName!r}")
        return MapState(self._scope, spec.name, spec.tag, spec.ttl_ms, _values(spec), keys)

    @abstractmethod
    def _declare(self, name: str, kind: Kind, schema: Any, key_schema: Any, ttl_ms: int | None) -> VariableSpec:
        """The variable of this name, with its tag."""


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
    """

    def __init__(
        self,
        declared: Mapping[str, VariableSpec],
        *,
        mode: str = "none",
        processing_ms: int = -1,
        watermark_ms: int = -1,
        batch: int = 0,
    ) -> None:
        super().__init__(Scope(processing_ms, whole("batch", batch, 0)), mode)
        self._declared = declared
        self._watermark_ms = watermark_ms
        self._in_init = True
        self._got: set[str] = set()

    def timer_values(self) -> tuple[int, int]:
        """Processing time and watermark as user code sees them: -1 and -1 with time mode none, as in Spark."""
        return (-1, -1) if self._mode == "none" else (self._scope.now_ms, self._watermark_ms)

    def set_group(self, view: "GroupView") -> None:
        """Switch to this group; ``init`` is over, and there is no current key yet."""
        self._in_init = False
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
        """Do nothing: the driver has already removed the variable from the table."""
        self._require_init("deleteIfExists", stateName)

    def _declare(self, name: str, kind: Kind, schema: Any, key_schema: Any, ttl_ms: int | None) -> VariableSpec:  # noqa: ARG002 - the name belongs to the protocol
        self._require_init(f"get{kind.capitalize()}State", name)
        spec = self._declared.get(name)
        if spec is None or spec.removed or spec.kind != kind:
            known = "no such variable" if spec is None or spec.removed else f"a {spec.kind} state"
            raise InvalidArgumentError(
                f"init declares the {kind} state {name!r}, but the driver has recorded {known} under this name; "
                "init must declare the same variables on the driver and on executors"
            )
        _once(name, self._got)
        self._got.add(name)
        return spec

    def _require_init(self, call: str, name: str) -> None:
        if not self._in_init:
            raise InvalidArgumentError(
                f"{call}({name!r}) was called after init; state variables are declared in init only"
            )


class RecordingHandle(_Handle):
    """The handle of the driver: collects the declarations of ``init``. It has no state.

    Parameters
    ----------
    parse
        Returns the JSON form of a schema, from a ``StructType`` or from DDL text.
    mode
        Time mode of the query.

    Attributes
    ----------
    specs
        Declared variables by name, numbered in this order.
    removed
        Names given to ``deleteIfExists``.
    """

    def __init__(self, parse: Callable[[Any], dict[str, Any]], *, mode: str = "none") -> None:
        super().__init__(Scope(-1, 0), mode)
        self._parse = parse
        self.specs: dict[str, VariableSpec] = {}
        self.removed: set[str] = set()

    def deleteIfExists(self, stateName: str) -> None:  # noqa: N802, N803 - Spark's own name
        """Remove a variable of earlier runs, with all its values."""
        self.removed.add(stateName)
        self._not_both(stateName)

    def _declare(self, name: str, kind: Kind, schema: Any, key_schema: Any, ttl_ms: int | None) -> VariableSpec:
        if not isinstance(name, str) or not name:
            raise InvalidArgumentError(f"a state variable needs a name, got {name!r}")
        if ttl_ms is not None:
            ttl_ms = whole(f"ttlDurationMs of {name!r}", ttl_ms, 1)
            if self._mode != "processingTime":
                raise InvalidArgumentError(
                    f"state variable {name!r} has ttlDurationMs {ttl_ms}, which needs timeMode processingTime, but "
                    f"this query has timeMode {self._mode}; change the mode or leave the TTL out"
                )
        _once(name, self.specs)
        tag = _tag_after(len(self.specs))
        parsed_key = None if key_schema is None else self._parse(key_schema)
        self.specs[name] = VariableSpec(name, kind, tag, self._parse(schema), parsed_key, ttl_ms)
        self._not_both(name)
        return self.specs[name]

    def _not_both(self, name: str) -> None:
        if name in self.removed and name in self.specs:
            raise InvalidArgumentError(
                f"init declares the state variable {name!r} and deletes it, so each start would empty it; "
                "leave out one of the two calls"
            )


def merge_specs(
    old: Mapping[str, VariableSpec], new: Mapping[str, VariableSpec], removed: Collection[str] = ()
) -> dict[str, VariableSpec]:
    """Merge the table of a checkpoint with the declarations ``new`` and the deletions ``removed`` of ``init``.

    A known variable keeps its tag. Its TTL may change, for values that are written from then on, and its integers may
    become wider; any other change of kind or schema raises ``MismatchError``. A variable that is no longer declared
    stays in the table, so that its values are available when it is declared again.
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
            tag, former = known.tag, known.former_tags
        else:
            tag = last = _tag_after(last)
            former = () if known is None else (*known.former_tags, known.tag)
        merged[name] = msgspec.structs.replace(spec, tag=tag, former_tags=former)
    return merged


def removed_tags(table: Mapping[str, VariableSpec]) -> frozenset[int]:
    """Tags of removed variables: their entries may be dropped wherever they are found."""
    current = {spec.tag for spec in table.values() if spec.removed}
    return frozenset(current.union(*(spec.former_tags for spec in table.values())))


def _values(spec: VariableSpec) -> RowCodec:
    return RowCodec(spec.schema, f"{spec.kind} state {spec.name!r}")


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


def _require_readable(known: VariableSpec, spec: VariableSpec) -> None:
    if known.kind != spec.kind:
        change = f"it was a {known.kind} state and is declared a {spec.kind} state now"
    else:
        change = _change(known.schema, spec.schema, "value") or _change(known.key_schema, spec.key_schema, "key")
    if change:
        raise MismatchError(
            f"state variable {spec.name!r} of this checkpoint cannot be read as it is declared now: {change}; "
            "declare it as before, or use a new name or a new checkpoint"
        )


def _change(old: Any, new: Any, where: str) -> str:
    """Describe the difference that prevents reading values of one type as another; empty if there is none."""
    if isinstance(old, str) and isinstance(new, str):
        wider = old in _WIDTHS and new in _WIDTHS and _WIDTHS.index(old) <= _WIDTHS.index(new)
        return "" if old == new or wider else f"{where} was {old} and is {new}"
    if old is None and new is None:
        return ""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping) or old.get("type") != new.get("type"):
        return f"{where} was {_spelled(old)} and is {_spelled(new)}"
    if old["type"] != "struct":
        parts = ("elementType", "keyType", "valueType")
        return next(filter(None, (_change(old.get(part), new.get(part), f"{where}.{part}") for part in parts)), "")
    before, after = [[field["name"] for field in each["fields"]] for each in (old, new)]
    if before != after:
        return f"the fields of {where} were ({', '.join(before)}) and are ({', '.join(after)})"
    pairs = zip(old["fields"], new["fields"], strict=True)
    return next(filter(None, (_change(a["type"], b["type"], f"{where}.{a['name']}") for a, b in pairs)), "")


def _spelled(declared: Any) -> str:
    return str(declared.get("type")) if isinstance(declared, Mapping) else str(declared)
