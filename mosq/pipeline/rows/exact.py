"""Read one JSON message exactly: the values of its columns, and the text of everything that no column holds.

This is the definition of the JSON rows. json_rows.py reads whole columns for the usual case, and calls this module for
the messages that it cannot read.

- A number is in a column only if the column holds it: integers exactly, a number with a fraction or an exponent as the
  nearest DOUBLE. Otherwise the message cannot be read.
- A column of type STRING takes any value. If the value is not a string, the column holds its JSON text, and the rest
  holds the value too.
- A field without a column is in the rest, as in the message. null is no value: it is in no column and not in the rest.

Invariant: a row and its rest give the JSON value of the message again. The rest of an object is merged into the object;
any other value in the rest replaces that of the column.

Cost: about 20 us for a message of ten fields; a message of LARGE bytes at most about a second.
"""

import base64
import binascii
import datetime
import re
from decimal import Context, Decimal, InvalidOperation
from json import JSONDecodeError, JSONDecoder, decoder
from json.scanner import make_scanner
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pat

from mosq.pipeline.rows.types import column

if TYPE_CHECKING:
    from collections.abc import Callable

    Read = Callable[[str, int], tuple[Any, str | None, int]]

scanstring = decoder.scanstring  # type: ignore[attr-defined]
LARGE = 8 << 20  # bytes; a larger message is not parsed
DEPTH_MAX = 200  # of the objects and arrays of a message
DIGITS_MAX = 400  # a longer number is only text: converting it would cost quadratic time
ALL_DIGITS = Context(prec=2 * DIGITS_MAX)  # Python's own context has 28 digits
EMPTY = "empty"
NOT_UTF8 = "not UTF-8"
TOO_LARGE = "json: larger than 8 MiB"
ARRAY = "json: an array, expected an object"
MALFORMED = "json: malformed"
SEVERAL = "json: more than one value"
NO_OBJECT = "json: not an object"
TWICE = "json: a name occurs twice"
DEEP = "json: nested too deep"
TYPE = "json: a field is not of the type in the schema"
HOLD = "json: a number that its column cannot hold exactly"
NOT_UNICODE = "json: text that is not Unicode"
SPACE = re.compile(r"[ \t\n\r]*")
ANY_SPACE = " \t\n\r\v\f"
BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{}]', re.DOTALL)
RANGES = {pa.int64(): 63, pa.int32(): 31, pa.int16(): 15, pa.int8(): 7}
NONZERO = re.compile(r"[-+0.]*[1-9]")
DATE = re.compile(r"\d{4}-\d\d-\d\d")
TIMESTAMP = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(?::\d\d(?:\.(?P<digits>\d{1,9}))?)?(?:[Zz]|[+-]\d\d(?::?\d\d)?)?", re.ASCII
)


class UnreadableError(ValueError):
    """Explain why a message goes to the quarantine."""


class Number:
    """Hold the text of a number."""

    __slots__ = ("text", "whole")

    def __init__(self, text: str, whole: bool) -> None:
        self.text, self.whole = text, whole


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON. Raises UnreadableError if a name occurs twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise UnreadableError(TWICE)
    return found


def no_constant(text: str) -> Any:
    """Refuse NaN and Infinity, which are not JSON."""
    raise UnreadableError(MALFORMED)


def scanner(parse_float: "Callable[[str], Any]", parse_int: "Callable[[str], Any]") -> Any:
    """Return a function that reads a value at a position of a text, and returns it and its end."""
    hooks = {"object_pairs_hook": unique, "parse_float": parse_float, "parse_int": parse_int}
    return make_scanner(JSONDecoder(**hooks, parse_constant=no_constant))  # type: ignore[arg-type]


def _fraction(text: str) -> Number:
    return Number(text, False)


def _whole(text: str) -> Number:
    return Number(text, True)


scan = scanner(_fraction, _whole)


def too_deep(text: str) -> bool:
    """Return whether objects and arrays are nested more than DEPTH_MAX times."""
    depth = 0
    for found in BRACKETS.finditer(text):
        mark = found[0]
        if mark in "[{":
            depth += 1
            if depth > DEPTH_MAX:
                return True
        elif mark in "]}":
            depth -= 1
    return False


def decoded(raw: bytes | None) -> str:
    """Return the text of a payload. Raises UnreadableError."""
    if not raw:
        raise UnreadableError(EMPTY)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise UnreadableError(NOT_UTF8) from None


def checked(raw: bytes | None) -> tuple[str, int]:
    """Return the text of a message that is one JSON object, and the position of the object.

    Raises UnreadableError.
    """
    if raw is not None and len(raw) > LARGE:
        raise UnreadableError(TOO_LARGE)
    text = decoded(raw)
    if text.lstrip(ANY_SPACE).startswith("["):
        raise UnreadableError(ARRAY)
    if text.count("[") + text.count("{") > DEPTH_MAX and too_deep(text):
        raise UnreadableError(DEEP)
    try:
        at = SPACE.match(text).end()  # type: ignore[union-attr]
        value, end = scan(text, at)
    except (StopIteration, JSONDecodeError):
        raise UnreadableError(MALFORMED) from None
    rest = SPACE.match(text, end).end()  # type: ignore[union-attr]
    if rest < len(text):
        raise UnreadableError(SEVERAL if _another(text, rest) else MALFORMED)
    if not isinstance(value, dict):
        raise UnreadableError(NO_OBJECT)
    return text, at


def _another(text: str, at: int) -> bool:
    if text[at] != ",":
        return False
    try:
        scan(text, SPACE.match(text, at + 1).end())  # type: ignore[union-attr]
    except (StopIteration, ValueError):
        return False
    return True


# ---- values of a column's type


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a pair of surrogates
        raise UnreadableError(NOT_UNICODE) from None
    return value


def _decimal(value: Any) -> Decimal:
    if not isinstance(value, Number):
        raise UnreadableError(TYPE)
    if len(value.text) > DIGITS_MAX:
        raise UnreadableError(HOLD)
    try:
        return Decimal(value.text)
    except InvalidOperation:  # an exponent of many digits
        raise UnreadableError(HOLD) from None


def _integer(value: Any) -> int:
    found = _decimal(value)
    if not found:
        return 0
    if not -DIGITS_MAX < found.adjusted() < DIGITS_MAX:
        raise UnreadableError(HOLD if found.adjusted() > 0 else TYPE)
    if found != (whole := int(found)):
        raise UnreadableError(TYPE)
    return whole


def _whole_of(bits: int) -> "Callable[[Any], Any]":
    def fit(value: Any) -> int:
        found = _integer(value)
        if not -(1 << bits) <= found < 1 << bits:
            raise UnreadableError(HOLD)
        return found

    return fit


def _decimal_of(type: Any) -> "Callable[[Any], Any]":
    step = Decimal(1).scaleb(-type.scale)

    def fit(value: Any) -> Decimal:
        found = _decimal(value)
        if not found:
            return Decimal(0)
        if not -type.scale <= found.adjusted() < type.precision - type.scale:
            raise UnreadableError(HOLD)
        whole = found.quantize(step, context=ALL_DIGITS)
        if found != whole:
            raise UnreadableError(HOLD)
        return whole

    return fit


def _double_of(bits: int) -> "Callable[[Any], Any]":
    import numpy as np

    def fit(value: Any) -> float:
        if not isinstance(value, Number):
            raise UnreadableError(TYPE)
        found = float(value.text)
        if bits == 32:
            with np.errstate(over="ignore"):
                found = float(np.float32(found))
        if found in (float("inf"), float("-inf")) or (found == 0 and NONZERO.match(value.text)):
            raise UnreadableError(HOLD)
        if value.whole and (len(value.text) > DIGITS_MAX or int(found) != int(value.text)):
            raise UnreadableError(HOLD)
        return found

    return fit


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise UnreadableError(TYPE)
    return value


def date(value: Any) -> datetime.date:
    """Return the date of a text such as 2026-09-21. Raises UnreadableError."""
    if not isinstance(value, str) or not DATE.fullmatch(value):
        raise UnreadableError(TYPE)
    try:
        return datetime.date.fromisoformat(value)
    except ValueError:
        raise UnreadableError(TYPE) from None


def timestamp(value: Any) -> datetime.datetime:
    """Return the time of a text of ISO 8601, UTC if it names no zone. Raises UnreadableError."""
    found = TIMESTAMP.fullmatch(value) if isinstance(value, str) else None
    if found is None or (found["digits"] or "")[6:].strip("0"):
        raise UnreadableError(TYPE)
    try:
        time = datetime.datetime.fromisoformat(value)
        if time.tzinfo is None:
            return time.replace(tzinfo=datetime.UTC)
        return time.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        raise UnreadableError(TYPE) from None


def binary(value: Any) -> bytes:
    """Return the bytes of a text in base64. Raises UnreadableError."""
    try:
        found = base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        found = None
    if found is None or base64.b64encode(found).decode() != value:
        raise UnreadableError(TYPE)
    return found


def fit_of(type: pa.DataType) -> "Callable[[Any], Any]":
    """Return the function that gives the value of a column, or raises UnreadableError."""
    if type in RANGES:
        return _whole_of(RANGES[type])
    if pat.is_decimal(type):
        return _decimal_of(type)
    if pat.is_floating(type):
        return _double_of(type.bit_width)
    if pat.is_boolean(type):
        return _bool
    if pat.is_date(type):
        return date
    return timestamp if pat.is_timestamp(type) else binary


# ---- the text of a message


def _after(text: str, at: int) -> int:
    return SPACE.match(text, at).end()  # type: ignore[union-attr]


def _leaf(type: pa.DataType) -> "Read":
    fit = fit_of(type)

    def read(text: str, at: int) -> tuple[Any, str | None, int]:
        value, end = scan(text, at)
        return None if value is None else fit(value), None, end

    return read


def _read_string(text: str, at: int) -> tuple[Any, str | None, int]:
    value, end = scan(text, at)
    if value is None:
        return None, None, end
    if isinstance(value, str):
        return _text(value), None, end
    return text[at:end], text[at:end], end


def _list(type: pa.DataType, path: str, nested: "Nested | None") -> "Read":
    inner = reader(type.value_type, path, nested)

    def read(text: str, at: int) -> tuple[Any, str | None, int]:
        if text[at] != "[":
            return _null(text, at)
        values: list[Any] = []
        begin, at, odd = at, _after(text, at + 1), False
        while text[at] != "]":
            value, rest, at = inner(text, at)
            values.append(value)
            odd = odd or rest is not None
            at = _next(text, at)
        return values, text[begin : at + 1] if odd else None, at + 1

    return read


def _null(text: str, at: int) -> tuple[Any, str | None, int]:
    value, end = scan(text, at)
    if value is not None:
        raise UnreadableError(TYPE)
    return None, None, end


def _map(type: pa.DataType, path: str, nested: "Nested | None") -> "Read":
    inner = reader(type.item_type, path, nested)

    def read(text: str, at: int) -> tuple[Any, str | None, int]:
        if text[at] != "{":
            return _null(text, at)
        pairs: list[tuple[str, Any]] = []
        rests: list[str] = []
        at = _after(text, at + 1)
        while text[at] != "}":
            name, begin, at = _name(text, at)
            value, rest, at = inner(text, at)
            pairs.append((_text(name), value))
            if rest is not None:
                rests.append(f"{begin}:{rest}")
            at = _next(text, at)
        return pairs, _object(rests), at + 1

    return read


def _next(text: str, at: int) -> int:
    """Return the position of the next member of an array or object, or of its end; `at` is behind a member."""
    at = _after(text, at)
    return _after(text, at + 1) if text[at] == "," else at


def _name(text: str, at: int) -> tuple[str, str, int]:
    """Return a name, its text, and the position of its value."""
    name, end = scanstring(text, at + 1)
    return name, text[at:end], _after(text, _after(text, end) + 1)


def _object(rests: list[str]) -> str | None:
    return "{" + ",".join(rests) + "}" if rests else None


Unknown = dict[str, Any]  # values of fields that have no column
Nested = set[str]  # the paths of such fields within objects that have a column, such as gps.alt


def _struct(
    type: pa.DataType, *, unknown: Unknown | None = None, path: str = "", nested: Nested | None = None
) -> "Read":
    top = unknown is not None
    known = {
        field.name: (column(field.name, top=top), reader(field.type, f"{path}{field.name}.", nested)) for field in type
    }

    def read(text: str, at: int) -> tuple[Any, str | None, int]:
        if text[at] != "{":
            return _null(text, at)
        values: dict[str, Any] = {}
        rests: list[str] = []
        at = _after(text, at + 1)
        while text[at] != "}":
            name, begin, at = _name(text, at)
            if name in known:
                put, inner = known[name]
                values[put], rest, at = inner(text, at)
            else:
                value, end = scan(text, at)
                rest = None if value is None else text[at:end]
                at = end
                if unknown is not None and rest is not None:
                    unknown[name] = value
                elif nested is not None and rest is not None:
                    nested.add(path + name)
            if rest is not None:
                rests.append(f"{begin}:{rest}")
            at = _next(text, at)
        return values, _object(rests), at + 1

    return read


def reader(type: pa.DataType, path: str = "", nested: Nested | None = None) -> "Read":
    """Return a function that reads a value of a type at a position of a text that was checked.

    `nested` gets the paths of the fields without a column in the value; they begin with `path`. The function returns
    the value, the text of its rest (None: nothing is left), and the end of the value. It raises UnreadableError.
    """
    if pat.is_string(type):
        return _read_string
    if pat.is_list(type):
        return _list(type, path, nested)
    if pat.is_map(type):
        return _map(type, path, nested)
    return _struct(type, path=path, nested=nested) if pat.is_struct(type) else _leaf(type)


class Exact:
    """Read messages of a schema, one by one."""

    def __init__(self, schema: pa.Schema) -> None:
        self.unknown: Unknown = {}  # of the last message
        self.nested: Nested = set()
        self._read = _struct(pa.struct(list(schema)), unknown=self.unknown, nested=self.nested)

    def read(self, raw: bytes | None) -> tuple[dict[str, Any], str | None]:
        """Return the values of the columns, and the rest or None. Raises UnreadableError."""
        self.unknown.clear()
        self.nested.clear()
        values, rest, _ = self._read(*checked(raw))
        return values, rest
