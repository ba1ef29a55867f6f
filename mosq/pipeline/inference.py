"""The schema that messages in JSON suggest, where the settings give none. A function of the texts; nothing in them may
cost more than it has bytes: what is too much, or too deep, is left out or stays text.

A number is DOUBLE: what a sample of 21 suggests must hold 21.5 as well. What is never the same, or null, is STRING,
which Spark fills with the JSON of it. Names count once, however they are written: readers of tables do not tell `a`
from `A`."""

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T  # noqa: N812

if TYPE_CHECKING:
    from collections.abc import Iterable

FIELDS_MAX = 500  # of all levels together
DEPTH_MAX = 8  # of objects and arrays in one another
NAME_MAX = 256  # characters
TEXT, NUMBER, BOOL = "string", "double", "boolean"


class _Fields(dict[str, Any]):
    """Types by name. A type is None (only null so far), a word, [type] for an array, or these for an object."""

    def __init__(self) -> None:
        super().__init__()
        self.folded: set[str] = set()  # the names in small letters


def schema(texts: "Iterable[str]") -> tuple[T.StructType, bool]:
    """Of those that are JSON objects, in the order in which names came; and whether some were left out: there were more
    than FIELDS_MAX, or they are none that a column can have."""
    found, top = _Found(), _Fields()
    for text in texts:
        try:
            # a number of many digits costs as an integer
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
    if isinstance(type, _Fields) and type:  # Parquet knows no struct without fields
        return _struct(type)
    return {NUMBER: T.DoubleType(), BOOL: T.BooleanType()}.get(type if isinstance(type, str) else "", T.StringType())


def _struct(fields: _Fields) -> T.StructType:
    return T.StructType([T.StructField(name, _spark(type)) for name, type in fields.items()])
