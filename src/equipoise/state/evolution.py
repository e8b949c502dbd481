"""Schema evolution: values of a state variable that were written with earlier schemas of it.

A value keeps its bytes until user code writes it again, and says with which schema it was written (``entries`` has the
layout). Reading projects it to the current schema by the names of the fields, in nested structs too:

- a field that the value does not have is NULL, so an added field must be nullable;
- a field that is no longer declared is left out, and is back if it is declared again;
- the order of the fields is that of the current schema;
- numbers become wider as Avro allows, which Spark uses for this: byte, short, integer and long to a wider one of these,
  to float or double, and float to double.

Any other change is refused with the name of the field.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from equipoise.errors import DamagedError
from equipoise.state.codec import RowCodec
from equipoise.state.column_codec import ColumnCodec
from equipoise.state.kinds import TEXT, Conversion, Row, RowFactory, Schema, for_array, single

_INTEGERS = ("byte", "short", "integer", "long")
_WIDTHS = (*_INTEGERS, "float", "double")
_NUMBERS: dict[str, Conversion] = {"float": single, "double": float}
_PARTS = ("elementType", "keyType", "valueType")


class ValueCodec:
    """Encodes the values of one state variable with its current schema, and decodes those of all its schemas.

    Parameters
    ----------
    schemas
        The schemas that the variable has had, the current one last.
    owner
        The variable, for messages.
    rows
        Makes the rows of nested structs; default tuples.
    """

    def __init__(self, schemas: Sequence[Schema], owner: str = "state", rows: RowFactory | None = None) -> None:
        current = RowCodec(schemas[-1], owner, rows=rows)
        self.schema = len(schemas) - 1
        self.names = current.names
        self.encode = current.encode
        self.encode_many = current.encode_many
        self.in_columns = ColumnCodec(schemas[-1])
        """Encodes and decodes rows of the current schema with the same bytes, all at once, if its types are plain."""
        self._owner = owner
        former = [_Former(schema, schemas[-1], owner, rows) for schema in schemas[:-1]]
        self._readers: list[RowCodec | _Former] = [*former, current]
        self.decode_first = self._readers[0].decode  # of values without the number of a schema: most values have none

    def decode(self, payload: bytes, schema: int) -> Row:
        """The row of a payload that was written with the schema of this number."""
        return self._reader(schema).decode(payload)

    def decode_list(self, payload: bytes, schema: int) -> list[Row]:
        """The rows of a list's chunk that was written with the schema of this number."""
        return self._reader(schema).decode_list(payload)

    def _reader(self, schema: int) -> "RowCodec | _Former":
        if schema >= len(self._readers):
            raise DamagedError(
                f"{self._owner}: a value was written with schema {schema}, and the checkpoint knows schemas 0 to "
                f"{self.schema}; restore the checkpoint from a copy"
            )
        return self._readers[schema]


class _Former:
    """Decodes values of an earlier schema as rows of the current one."""

    def __init__(self, schema: Schema, current: Schema, owner: str, rows: RowFactory | None) -> None:
        self._codec = RowCodec(schema, owner, rows=rows)
        self._project = _projected(schema, current, tuple, rows) or _unchanged

    def decode(self, data: bytes) -> Row:
        return self._project(self._codec.decode(data))

    def decode_list(self, data: bytes) -> list[Row]:
        return [self._project(row) for row in self._codec.decode_list(data)]


def difference(old: Any, new: Any, where: str) -> str:
    """Describe why values of one type cannot be read as another; empty if they can be.

    Parameters
    ----------
    old, new
        Types from the JSON of a schema.
    where
        Name of the field, for the description.
    """
    if isinstance(old, str) and isinstance(new, str):
        return "" if old == new or _wider(old, new) else f"{where} was {old} and is {new}"
    if not isinstance(old, Mapping) or not isinstance(new, Mapping) or old.get("type") != new.get("type"):
        return f"{where} was {spelled(old)} and is {spelled(new)}"
    if old["type"] != "struct":
        if old.get("keyType") != new.get("keyType"):
            return f"{where}.keyType was {spelled(old['keyType'])} and is {spelled(new['keyType'])}"
        parts = [part for part in _PARTS if part in old]
        return next(filter(None, (difference(old[part], new[part], f"{where}.{part}") for part in parts)), "")
    types = {field["name"]: field["type"] for field in old["fields"]}
    for field in new["fields"]:
        name = f"{where}.{field['name']}"
        if field["name"] in types:
            found = difference(types[field["name"]], field["type"], name)
        else:
            found = "" if field.get("nullable", True) else f"{name} is new and not nullable, and earlier values lack it"
        if found:
            return found
    return ""


def same_layout(old: Any, new: Any) -> bool:
    """Whether values of one type can be read as another as they are, without a projection."""
    return not difference(old, new, "") and _step(old, new, None) is None


def same_types(old: Any, new: Any) -> bool:
    """Whether two types are equal but for nullability and metadata."""
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return bool(old == new)
    if old["type"] != "struct" or new["type"] != "struct":
        return old["type"] == new["type"] and all(same_types(old.get(part), new.get(part)) for part in _PARTS)
    pairs = [[(field["name"], field["type"]) for field in each["fields"]] for each in (old, new)]
    return len(pairs[0]) == len(pairs[1]) and all(
        one == other and same_types(a, b) for (one, a), (other, b) in zip(*pairs, strict=True)
    )


def _wider(old: str, new: str) -> bool:
    if old in _WIDTHS and new in _WIDTHS:
        return _WIDTHS.index(old) < _WIDTHS.index(new)
    text = [TEXT.fullmatch(each) for each in (old, new)]
    return all(text) and text[0][2] == text[1][2]  # type: ignore[index]  # both match


def _step(old: Any, new: Any, rows: RowFactory | None) -> Conversion | None:
    """Return the conversion of values of one type to a type that can read them; None where there is nothing to do."""
    if not isinstance(new, Mapping):
        return _NUMBERS[new] if old in _INTEGERS and new in _NUMBERS else None
    if new["type"] == "array":
        return for_array(_step(old["elementType"], new["elementType"], rows))
    if new["type"] == "map":
        step = _step(old["valueType"], new["valueType"], rows)
        return None if step is None else partial(_projected_map, step)
    make = tuple if rows is None else rows([field["name"] for field in new["fields"]])
    return _projected(old, new, make, rows)


def _projected(
    old: Schema, new: Schema, make: Callable[[Iterable[Any]], Row], rows: RowFactory | None
) -> Callable[[Row], Row] | None:
    """Return the projection of rows by the names of their fields; None where the rows are the same."""
    places = {field["name"]: (place, field["type"]) for place, field in enumerate(old["fields"])}
    found = [places.get(field["name"], (None, None)) for field in new["fields"]]
    steps = [
        None if place is None else _step(kind, field["type"], rows)
        for (place, kind), field in zip(found, new["fields"], strict=True)
    ]
    if [place for place, _ in found] == list(range(len(old["fields"]))) and not any(steps):
        return None
    wanted = [(place, step) for (place, _), step in zip(found, steps, strict=True)]

    def project(values: Row) -> Row:
        return make([None if place is None else _converted(values[place], step) for place, step in wanted])

    return project


def _projected_map(step: Conversion, values: dict[Any, Any]) -> dict[Any, Any]:
    return {key: _converted(value, step) for key, value in values.items()}


def _converted(value: Any, step: Conversion | None) -> Any:
    return value if value is None or step is None else step(value)


def _unchanged(row: Row) -> Row:
    return row


def spelled(declared: Any) -> str:
    """Return the name of a type, for messages."""
    return str(declared.get("type")) if isinstance(declared, Mapping) else str(declared)
