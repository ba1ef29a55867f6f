"""Infer a schema from JSON messages, if the settings give none.

The result depends on the texts only. No text may cost more than its bytes are worth: fields beyond the limits get no
column, so their values stay in the rest of each row.

Integers are BIGINT, or DECIMAL(38, 0) if one of them is larger. Integers and other numbers together are DOUBLE, if it
holds all integers exactly. A field whose values have no common type is STRING. A field that is always null, or an empty
object or array, gets no column before it has a value. Names that differ only in case count once, because readers of
tables do not distinguish `a` and `A`.
"""

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pat

from mosq.pipeline.rows import exact, types

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FIELDS_MAX = 500  # at most, of all levels together
DEPTH_MAX = 8  # nested objects and arrays, at most
NAME_MAX = 256  # characters
SAMPLE_ROWS = 1000
SAMPLE_CHARS = 65_536  # longer messages are not used to infer a schema
TEXT, BOOL, WHOLE, LARGE, DOUBLE = "STRING", "BOOLEAN", "BIGINT", "DECIMAL(38, 0)", "DOUBLE"
LEFT_OUT = ""
INEXACT, INEXACT_LARGE = "BIGINT beyond DOUBLE", "DECIMAL beyond DOUBLE"  # an integer that no DOUBLE holds was seen
NUMBERS = (WHOLE, INEXACT, LARGE, INEXACT_LARGE, DOUBLE)


class _Fields(dict[str, Any]):
    """Map names to types. A type is None (only null so far), a word, [type] for an array, or a _Fields for an object.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folded: set[str] = set()  # the names of the columns in lower case


def infer(texts: "Iterable[str]") -> tuple[pa.Schema, bool]:
    """Return the schema of the texts that are JSON objects, and whether fields were left out.

    Fields are in the order of their first occurrence. A field is left out if there are more than FIELDS_MAX, if it lies
    too deep, or if its name cannot be a column's.
    """
    found, top = _Found(), _Fields()
    for text in texts:
        try:
            start = exact.checked(text.encode())
            value, _ = exact.scan(*start)
        except (ValueError, RecursionError):
            continue
        found.merged(top, value, 0)
    return pa.schema(_struct(top)), found.left_out


def _number(value: Any) -> str:
    if isinstance(value, float) or (isinstance(value, exact.Number) and not value.whole):
        return DOUBLE
    if isinstance(value, exact.Number) and len(value.text) > types.PRECISION_MAX + 1:
        return TEXT
    number = value if isinstance(value, int) else int(value.text)
    if abs(number) >= 10**types.PRECISION_MAX:
        return TEXT
    fits = int(float(number)) == number
    if -(1 << 63) <= number < 1 << 63:
        return WHOLE if fits else INEXACT
    return LARGE if fits else INEXACT_LARGE


def _joined_words(a: str, b: str) -> str:
    if a == b:
        return a
    if a not in NUMBERS or b not in NUMBERS:
        return TEXT
    both = {a, b}
    if DOUBLE in both:
        return DOUBLE if not both & {INEXACT, INEXACT_LARGE} else TEXT
    large, inexact = both & {LARGE, INEXACT_LARGE}, both & {INEXACT, INEXACT_LARGE}
    if large:
        return INEXACT_LARGE if inexact else LARGE
    return INEXACT


class _Found:
    def __init__(self) -> None:
        self.n = 0
        self.left_out = False

    def merged(self, type: Any, value: Any, depth: int) -> Any:
        if value is None or type == TEXT:
            return type
        if isinstance(value, dict | list):
            if depth >= DEPTH_MAX:
                self.left_out = True
                return type if type is None else TEXT
            if isinstance(value, dict) and isinstance(type, _Fields | None):
                return self._object(_Fields() if type is None else type, value, depth)
            if isinstance(value, list) and isinstance(type, list | None):
                inner = type[0] if type else None
                for one in value:
                    inner = self.merged(inner, one, depth + 1)
                return [inner]
            return TEXT
        word = BOOL if isinstance(value, bool) else TEXT if isinstance(value, str) else _number(value)
        if type is None:
            return word
        return _joined_words(type, word) if isinstance(type, str) else TEXT

    def _object(self, type: _Fields, values: dict[str, Any], depth: int) -> _Fields:
        for name, value in values.items():
            if value is not None and (name in type or self._new(type, name, depth)):
                type[name] = self.merged(type.get(name), value, depth + 1)
        return type

    def _new(self, type: _Fields, name: str, depth: int) -> bool:
        folded = types.column(name, top=depth == 0).lower()
        if folded in type.folded or self.n == FIELDS_MAX or not possible(name):
            self.left_out = True
            return False
        self.n += 1
        type.folded.add(folded)
        return True


def possible(name: str) -> bool:
    """Return whether a column can have this name."""
    return 0 < len(name) <= NAME_MAX and name.isprintable()


def _arrow(type: Any) -> pa.DataType | None:
    """Return a type of Arrow, or None if no value gave one."""
    if isinstance(type, list):
        inner = _arrow(type[0])
        return None if inner is None else pa.list_(inner)
    if isinstance(type, _Fields):
        fields = _struct(type)
        return pa.struct(fields) if fields else None  # Parquet has no struct without fields
    if type is None:
        return None
    word = {INEXACT: WHOLE, INEXACT_LARGE: LARGE}.get(type, type)
    return pa.decimal128(types.PRECISION_MAX, 0) if word == LARGE else types.PLAIN[word]


def _struct(fields: _Fields) -> list[pa.Field]:
    found = [(name, _arrow(type)) for name, type in fields.items()]
    return [pa.field(name, type) for name, type in found if type is not None]


# ---- fields that come later


class Types:
    """Find the type of a field from its values."""

    def __init__(self) -> None:
        self.found, self.type = _Found(), None

    def add(self, value: Any) -> None:
        """Take a value of JSON; a number may be an exact.Number."""
        self.type = self.found.merged(self.type, value, 1)


def type_of(name: str, found: Types) -> str:
    """Return the type of a field as text, or "" if it cannot be a column."""
    type = _arrow(found.type) if possible(name) else None
    return LEFT_OUT if type is None else types.ddl(type)


def joined(a: str, b: str) -> str:
    """Return the common type of two types of one field."""
    if a == b or LEFT_OUT in (a, b):
        return a or b
    return types.ddl(_common(types.schema(f"x {a}").field(0).type, types.schema(f"x {b}").field(0).type))


def _common(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    if a == b:
        return a
    if pat.is_list(a) and pat.is_list(b):
        return pa.list_(_common(a.value_type, b.value_type))
    if pat.is_struct(a) and pat.is_struct(b):
        known = {field.name: field.type for field in a}
        folded = {types.column(name, top=False).lower() for name in known}
        for field in b:
            if field.name in known:
                known[field.name] = _common(known[field.name], field.type)
            elif (column := types.column(field.name, top=False).lower()) not in folded:
                known[field.name] = field.type
                folded.add(column)
        return pa.struct([pa.field(name, type) for name, type in known.items()])
    words = {types.ddl(a), types.ddl(b)}
    if words <= {WHOLE, LARGE}:
        return pa.decimal128(types.PRECISION_MAX, 0)
    return pa.float64() if words <= {WHOLE, DOUBLE} else pa.string()


def _size(type: pa.DataType) -> int:
    if pat.is_list(type):
        return _size(type.value_type)
    return sum(1 + _size(field.type) for field in type) if pat.is_struct(type) else 0


def grown(schema: pa.Schema, fields: "Mapping[str, tuple[str, int]]") -> pa.Schema:
    """Return the schema with the fields (name: type, n) that can be columns beside those that it has."""
    taken = {types.column(name).lower() for name in schema.names}
    size = _size(pa.struct(list(schema)))
    added = []
    for name, (text, _) in sorted(fields.items(), key=lambda one: (-one[1][1], one[0])):
        folded = types.column(name).lower()
        if text == LEFT_OUT or folded in taken:
            continue
        field = pa.field(name, types.schema(f"x {text}").field(0).type)
        if size + 1 + _size(field.type) <= FIELDS_MAX:
            size += 1 + _size(field.type)
            taken.add(folded)
            added.append(field)
    return pa.schema([*schema, *added])


def sample_texts(payloads: "Iterable[bytes | None]", n: int = SAMPLE_ROWS) -> list[str]:
    """Return up to n payloads that may give a schema."""
    found: list[str] = []
    for raw in payloads:
        if len(found) == n:
            break
        if raw and len(raw) <= SAMPLE_CHARS:
            try:
                found.append(raw.decode())
            except UnicodeDecodeError:
                continue
    return found
