"""Infer a schema from JSON messages, if the settings give none.

The result depends on the texts only. No text may cost more than its bytes are worth: fields beyond the limits are left
out, and values that are nested too deep become text.

A number is DOUBLE, because a sample with 21 must not exclude 21.5. A field whose values differ in type, or are always
null, is STRING; Spark fills it with the JSON text. Names that differ only in case count once, because readers of tables
do not distinguish `a` and `A`.
"""

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T  # noqa: N812

if TYPE_CHECKING:
    from collections.abc import Iterable

FIELDS_MAX = 500  # at most, of all levels together
DEPTH_MAX = 8  # nested objects and arrays, at most
NAME_MAX = 256  # characters
TEXT, NUMBER, BOOL = "string", "double", "boolean"


class _Fields(dict[str, Any]):
    """Map names to types. A type is None (only null so far), a word, [type] for an array, or a _Fields for an object.
    """

    def __init__(self) -> None:
        super().__init__()
        self.folded: set[str] = set()  # the names in lower case


def schema(texts: "Iterable[str]") -> tuple[T.StructType, bool]:
    """Return the schema of the texts that are JSON objects, and whether fields were left out.

    Fields are in the order of their first occurrence. A field is left out if there are more than FIELDS_MAX, or if its
    name cannot be a column's.
    """
    found, top = _Found(), _Fields()
    for text in texts:
        try:
            # an integer of many digits would cost quadratic time
            value = json.loads(text, parse_int=float)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found.merged(top, value, 0)
    return _struct(top), found.left_out


class _Found:
    def __init__(self) -> None:
        self.n = 0
        self.left_out = False

    def merged(self, type: Any, value: Any, depth: int) -> Any:
        if value is None or type == TEXT:
            return type
        if isinstance(value, dict) and depth < DEPTH_MAX and isinstance(type, _Fields | None):
            return self._object(_Fields() if type is None else type, value, depth)
        if isinstance(value, list) and depth < DEPTH_MAX and isinstance(type, list | None):
            inner = type[0] if type else None
            for one in value:
                inner = self.merged(inner, one, depth + 1)
            return [inner]
        word = BOOL if isinstance(value, bool) else NUMBER if isinstance(value, float) else TEXT
        return word if type in (None, word) else TEXT

    def _object(self, type: _Fields, values: dict[str, Any], depth: int) -> _Fields:
        for name, value in values.items():
            if name in type or self._new(type, name):
                type[name] = self.merged(type.get(name), value, depth + 1)
        return type

    def _new(self, type: _Fields, name: str) -> bool:
        if name.lower() in type.folded:
            return False
        if self.n == FIELDS_MAX or not 0 < len(name) <= NAME_MAX or not name.isprintable():
            self.left_out = True
            return False
        self.n += 1
        type.folded.add(name.lower())
        return True


def _spark(type: Any) -> T.DataType:
    if isinstance(type, list):
        return T.ArrayType(_spark(type[0]))
    if isinstance(type, _Fields) and type:  # Parquet has no struct without fields
        return _struct(type)
    return {NUMBER: T.DoubleType(), BOOL: T.BooleanType()}.get(type if isinstance(type, str) else "", T.StringType())


def _struct(fields: _Fields) -> T.StructType:
    return T.StructType([T.StructField(name, _spark(type)) for name, type in fields.items()])
