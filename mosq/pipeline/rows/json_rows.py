"""Read messages in JSON as columns.

exact.py defines the rows. This module gives the same rows for the usual message: it parses a message with the scanner
of Python's json, collects the values of a field, and makes the column at once. A message that does not fit into its
columns, or that has further fields, is read again by exact.py.

Cost: about 5 us for a message of ten fields.
"""

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from mosq.pipeline.rows import exact
from mosq.pipeline.rows.found import Fields, Found
from mosq.pipeline.rows.types import column, column_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    # messages, their rows, the rests and further fields of rows, and other rows
    _Parsed = tuple[list[dict[str, Any]], list[int], dict[int, tuple[str | None, dict[str, Any]]], list[int]]

NONE = type(None)
NAME = re.compile(r'[ \t\n\r]*"([^"\\]*(?:\\.[^"\\]*)*)"[ \t\n\r]*:[ \t\n\r]*')
NEXT = re.compile(r"[ \t\n\r]*[,}]")
# a number below 1e-323 has a large exponent, or many zeros
TINY = re.compile(rb"[eE]-0*[1-9][0-9]{2}|0{200}")
EXACT_INT = 1 << 53

scan = exact.scanner(float, int)


class _Columns:
    """Make columns of values; rows whose values do not fit are added to `odd`."""

    def __init__(self, raws: list[bytes | None]) -> None:
        self.raws = raws
        self.odd: set[int] = set()

    def make(self, type: pa.DataType, values: list[Any], rows: "Sequence[int]") -> Any:
        """Return the array of values; a value that does not fit is null, and its row is odd."""
        kinds = set(map(_type, values))
        kinds.discard(NONE)
        if pat.is_list(type):
            return self._list(type, values, rows, kinds)
        if pat.is_struct(type):
            return self._struct(type, values, rows, kinds)
        if pat.is_map(type):
            return self._map(type, values, rows, kinds)
        return self._leaf(type, values, rows, kinds)

    def _only(self, kind: type, values: list[Any], rows: "Sequence[int]", kinds: set[type]) -> list[Any]:
        """Return the values with null in place of those of another kind."""
        return values if kinds <= {kind} else self._kept(lambda value: _type(value) is kind, values, rows)

    def _kept(self, fits: "Callable[[Any], bool]", values: list[Any], rows: "Sequence[int]") -> list[Any]:
        kept = []
        for value, row in zip(values, rows, strict=True):
            if value is None or fits(value):
                kept.append(value)
            else:
                kept.append(None)
                self.odd.add(row)
        return kept

    def _leaf(self, type: pa.DataType, values: list[Any], rows: "Sequence[int]", kinds: set[type]) -> Any:
        if pat.is_date(type) or pat.is_timestamp(type) or pat.is_binary(type):
            return self._converted(type, values, rows)
        allowed, fits = _fits(type)
        if not kinds <= allowed:
            values = self._kept(fits, values, rows)
        try:
            found = pa.array(values, type)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError):
            found = pa.array(self._kept(fits, values, rows), type)
        return self._finite(found, values, rows) if float in kinds and pat.is_floating(type) else found

    def _finite(self, found: Any, values: list[Any], rows: "Sequence[int]") -> Any:
        """Check values that are infinite, or 0 because the number was too small."""
        if not pc.all(pc.is_finite(found)).as_py():
            self.odd.update(rows[i] for i in _true(pc.invert(pc.is_finite(found))))
        zero = pc.equal(found, pa.scalar(0, found.type))
        if pc.any(zero).as_py():
            fractions = (i for i in _true(zero) if isinstance(values[i], float))
            self.odd.update(rows[i] for i in fractions if values[i] or TINY.search(self.raws[rows[i]] or b""))
        return found

    def _converted(self, type: pa.DataType, values: list[Any], rows: "Sequence[int]") -> Any:
        fit = exact.fit_of(type)
        found = []
        for value, row in zip(values, rows, strict=True):
            try:
                found.append(None if value is None else fit(value))
            except exact.UnreadableError:
                found.append(None)
                self.odd.add(row)
        return pa.array(found, type)

    def _list(self, type: pa.DataType, values: list[Any], rows: "Sequence[int]", kinds: set[type]) -> Any:
        values = self._only(list, values, rows, kinds)
        flat = [one for value in values if value for one in value]
        owners = [row for value, row in zip(values, rows, strict=True) if value for _ in value]
        inner = self.make(type.value_type, flat, owners)
        return pa.ListArray.from_arrays(_offsets(values), inner)

    def _struct(self, type: pa.DataType, values: list[Any], rows: "Sequence[int]", kinds: set[type]) -> Any:
        values = self._only(dict, values, rows, kinds)
        known = frozenset(field.name for field in type)
        values = self._kept(lambda value: value.keys() <= known, values, rows)
        arrays, fields = [], []
        for field, named in zip(type, column_type(type), strict=True):
            part = [None if value is None else value.get(field.name) for value in values]
            arrays.append(self.make(field.type, part, rows))
            fields.append(named)
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)

    def _map(self, type: pa.DataType, values: list[Any], rows: "Sequence[int]", kinds: set[type]) -> Any:
        values = self._only(dict, values, rows, kinds)
        owners = [row for value, row in zip(values, rows, strict=True) if value for _ in value]
        names = [name for value in values if value for name in value]
        kept = self._kept(_is_text, names, owners)
        keys = pa.array([name or "" for name in kept], pa.string())
        items = self.make(type.item_type, [one for value in values if value for one in value.values()], owners)
        found = pa.MapArray.from_arrays(_offsets(values), keys, items)
        return found.cast(column_type(type))


_type = type


def _true(mask: Any) -> list[int]:
    """Return the positions that are true."""
    found: list[int] = pc.indices_nonzero(mask).to_pylist()
    return found


def _offsets(values: list[Any]) -> Any:
    sizes = np.fromiter((0 if value is None else len(value) for value in values), np.int32, len(values))
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    mask = np.fromiter((value is None for value in values), bool, len(values))
    if not mask.any():
        return pa.array(offsets)
    return pa.array(offsets, mask=np.append(mask, False))


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _fits(type: pa.DataType) -> "tuple[frozenset[type], Callable[[Any], bool]]":
    """Return the kinds of values that fit into a column as a rule, and a test of one value."""
    if type in exact.RANGES:
        most = 1 << exact.RANGES[type]
        return frozenset((int,)), lambda value: _type(value) is int and -most <= value < most
    if pat.is_decimal(type):
        end = 10 ** (type.precision - type.scale)
        return frozenset((int,)), lambda value: _type(value) is int and -end < value < end
    if pat.is_floating(type):
        most = EXACT_INT if type.bit_width == 64 else 1 << 24
        return frozenset((int, float)), lambda value: (
            _type(value) is float or (_type(value) is int and -most <= value <= most)
        )
    if pat.is_boolean(type):
        return frozenset((bool,)), lambda value: _type(value) is bool
    return frozenset((str,)), lambda value: _type(value) is str and _is_text(value)


def rest(text: str, known: frozenset[str]) -> tuple[str | None, dict[str, Any]]:
    """Return the text of the fields of an object that are not known, or None, and their values without nulls.

    The text was parsed before, so it is one object.
    """
    left: list[str] = []
    values: dict[str, Any] = {}
    at = 1
    while (found := NAME.match(text, at)) is not None:
        name = found[1]
        if "\\" in name:
            name, _ = exact.scanstring(text, found.start(1))
        value, end = scan(text, found.end())
        if name not in known and value is not None:
            left.append(f'"{found[1]}":{text[found.end() : end]}')
            values[name] = value
        at = NEXT.match(text, end).end()  # type: ignore[union-attr]
    return "{" + ",".join(left) + "}" if left else None, values


class JsonReader:
    """Read messages of a schema."""

    def __init__(self, schema: pa.Schema, fields: Fields) -> None:
        self.schema, self.fields = schema, fields
        self.known = frozenset(schema.names)
        self.exact = exact.Exact(schema)
        self.names = [column(name) for name in schema.names]
        self.types = [column_type(field.type) for field in schema]

    def read(self, payloads: Any) -> Found:
        """Return the columns of the fields of a batch of payloads."""
        raws = payloads.to_pylist()
        values, rows, rests, others = self._parsed(raws)
        make = _Columns(raws)
        arrays = [make.make(field.type, [value.get(field.name) for value in values], rows) for field in self.schema]
        for row in rests.keys() - make.odd:
            self.fields.add(rests[row][1])
        if make.odd:
            keep = pa.array([row not in make.odd for row in rows], pa.bool_())
            arrays = [array.filter(keep) for array in arrays]
            rows = [row for row in rows if row not in make.odd]
            others = sorted(make.odd.union(others))
        rescued = pa.array([rests[row][0] if row in rests else None for row in rows], pa.string()) if rests else None
        if not others:
            return Found(arrays, None, rescued)
        return self._with_others(arrays, rows, rescued, (others, raws))

    def _parsed(self, raws: list[bytes | None]) -> "_Parsed":
        """Return the messages that are objects, their rows, the rests of those with further fields, and other rows."""
        values: list[dict[str, Any]] = []
        rows: list[int] = []
        rests: dict[int, tuple[str | None, dict[str, Any]]] = {}
        others: list[int] = []
        known = self.known
        for row, raw in enumerate(raws):
            if raw and len(raw) <= exact.LARGE:
                try:
                    text = raw.decode()
                    value, end = scan(text, 0)
                    if (
                        end == len(text)
                        and _type(value) is dict
                        and (end < exact.DEPTH_MAX or text.count("[") + text.count("{") <= exact.DEPTH_MAX)
                    ):
                        if not value.keys() <= known:
                            rests[row] = rest(text, known)
                        values.append(value)
                        rows.append(row)
                        continue
                except (ValueError, StopIteration, RecursionError):
                    pass
            others.append(row)
        return values, rows, rests, others

    def _with_others(
        self, arrays: list[Any], rows: list[int], rescued: Any, others: tuple[list[int], list[bytes | None]]
    ) -> Found:
        """Read the other rows one by one, and put all in the order of the batch."""
        bad: dict[int, str] = {}
        read: list[dict[str, Any]] = []
        read_rows: list[int] = []
        rests: list[str | None] = []
        for row in others[0]:
            try:
                value, left = self.exact.read(others[1][row])
            except exact.UnreadableError as error:
                bad[row] = str(error)
                continue
            read.append(value)
            read_rows.append(row)
            rests.append(left)
            if self.exact.unknown:
                self.fields.add(self.exact.unknown)
            if self.exact.nested:
                self.fields.add_nested(self.exact.nested)
        if not read:
            return Found(arrays, pa.array(rows, pa.int64()), rescued, bad)
        at = pa.array([*rows, *read_rows], pa.int64())
        order = pc.sort_indices(at)
        whole = []
        for array, name, type in zip(arrays, self.names, self.types, strict=True):
            exactly = pa.array([value.get(name) for value in read], type)
            whole.append(pa.concat_arrays([array.cast(type), exactly]).take(order))
        if rescued is None:
            rescued = pa.nulls(len(rows), pa.string())
        rescued = pa.concat_arrays([rescued, pa.array(rests, pa.string())]).take(order)
        return Found(whole, at.take(order), rescued, bad)
