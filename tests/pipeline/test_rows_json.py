"""Test the rows of JSON messages: against a naive reader in Python, with tables of cases, and with random bytes."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mosq.pipeline.rows import exact, types
from mosq.pipeline.rows.found import OTHERS, Fields, Found
from mosq.pipeline.rows.json_rows import JsonReader

SCHEMA = types.schema(
    "n BIGINT, x DOUBLE, f FLOAT, b BOOLEAN, s STRING, small TINYINT, big DECIMAL(38), tags ARRAY<STRING>, nums ARRAY<DOUBLE>,"
    " o STRUCT<a: BIGINT, `b c`: STRUCT<d: DOUBLE>>, many ARRAY<STRUCT<k: STRING, v: BIGINT>>, m MAP<STRING, BIGINT>, `time` BIGINT")


def read(*payloads: bytes | None, schema: pa.Schema = SCHEMA) -> tuple[Found, Fields]:
    fields = Fields()
    return JsonReader(schema, fields).read(pa.array(payloads, pa.binary())), fields


def rows(found: Found, n: int, schema: pa.Schema = SCHEMA) -> dict[int, tuple[dict[str, Any], str | None]]:
    """Return the columns' values and the rest of each readable row."""
    at = list(range(n)) if found.at is None else found.at.to_pylist()
    rescued = [None] * len(at) if found.rescued is None else found.rescued.to_pylist()
    for array, field in zip(found.columns, types.columns(schema), strict=True):
        assert array.type == field.type and len(array) == len(at)
        array.validate(full=True)
    columns = [array.to_pylist() for array in found.columns]
    values = [dict(zip(schema.names, one, strict=True)) for one in zip(*columns, strict=True)]
    assert at == sorted(at)
    return dict(zip(at, zip(values, rescued, strict=True), strict=True))


def loads(text: str) -> Any:
    return json.loads(text, parse_float=Decimal, parse_int=Decimal)


def merged(value: Any, rest: Any) -> Any:
    """Return a value with its rest: the rest of an object is merged, any other replaces the value."""
    if isinstance(value, dict) and isinstance(rest, dict):
        return value | {name: merged(value.get(name), one) for name, one in rest.items()}
    return rest


def plain(value: Any, type: pa.DataType | None) -> Any:
    """Return a JSON value without nulls in objects, and with numbers as the column gives them."""
    if isinstance(value, list):
        inner = type.value_type if type is not None and pa.types.is_list(type) else None
        return [plain(one, inner) for one in value]
    if isinstance(value, dict):
        return {name: plain(one, field_type(type, name)) for name, one in value.items() if one is not None}
    if type is not None and pa.types.is_floating(type) and isinstance(value, Decimal):
        return pa.scalar(float(value), type).as_py()
    return value


def field_type(type: pa.DataType | None, name: str) -> pa.DataType | None:
    if type is None or not pa.types.is_nested(type) or pa.types.is_list(type):
        return None
    return type.item_type if pa.types.is_map(type) else next((field.type for field in type if field.name == name), None)


def unfolded(value: Any, type: pa.DataType) -> Any:
    """Return a column's value as JSON has it: objects for maps, and the names of the message."""
    if value is None:
        return None
    if pa.types.is_map(type):
        return {name: unfolded(one, type.item_type) for name, one in value}
    if pa.types.is_list(type):
        return [unfolded(one, type.value_type) for one in value]
    if pa.types.is_struct(type):
        found = {field.name: unfolded(value[types.column(field.name, top=False)], field.type) for field in type}
        return {name: one for name, one in found.items() if one is not None}
    return value


def restored(value: dict[str, Any], rest: str | None, schema: pa.Schema = SCHEMA) -> Any:
    found = {field.name: unfolded(value[field.name], field.type) for field in schema}
    whole = merged({name: one for name, one in found.items() if one is not None}, {} if rest is None else loads(rest))
    return plain(whole, pa.struct(list(schema)))


# ---- the naive reader

def naive_fits(value: Any, type: pa.DataType) -> bool:
    """Return whether a value can be in a column, by the rules of exact.py."""
    if value is None:
        return True
    if pa.types.is_list(type):
        return isinstance(value, list) and all(naive_fits(one, type.value_type) for one in value)
    if pa.types.is_map(type):
        return isinstance(value, dict) and all(unicode(name) and naive_fits(one, type.item_type) for name, one in value.items())
    if pa.types.is_struct(type):
        return isinstance(value, dict) and all(field.name not in value or naive_fits(value[field.name], field.type) for field in type)
    if pa.types.is_string(type):
        return not isinstance(value, str) or unicode(value)
    if pa.types.is_boolean(type):
        return isinstance(value, bool)
    if not isinstance(value, Decimal):
        return False
    if pa.types.is_integer(type):
        bound = 1 << type.bit_width - 1
        return value == value.to_integral_value() and -bound <= value < bound
    if pa.types.is_decimal(type):
        return value == value.to_integral_value() and value.copy_abs() < 10 ** type.precision
    found = pa.scalar(float(value), type).as_py()
    if found in (float("inf"), float("-inf")) or (found == 0 and value != 0):
        return False
    return not isinstance(value, Whole) or int(found) == int(value)


def unicode(text: str) -> bool:
    return not any("\ud800" <= one <= "\udfff" for one in text)


class Twice(Exception):
    pass


class Whole(Decimal):
    """A number that the message writes without fraction and exponent."""


def naive_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise Twice
    return dict(pairs)


def naive(payload: bytes) -> Any:
    """Return the object of a message, or None if it goes to the quarantine."""
    try:
        value = json.loads(payload.decode(), parse_float=Decimal, parse_int=Whole, object_pairs_hook=naive_pairs, parse_constant=lambda text: 1 / 0)
    except (ValueError, Twice, ZeroDivisionError):
        return None
    if not isinstance(value, dict) or payload.startswith(b"\xef\xbb\xbf"):
        return None
    return value if naive_fits(value, pa.struct(list(SCHEMA))) else None


def check(payloads: list[bytes]) -> None:
    """Check that each message is in one table, and that its row gives back its value."""
    found, _ = read(*payloads)
    there = rows(found, len(payloads))
    assert set(there) | set(found.bad) == set(range(len(payloads))) and not set(there) & set(found.bad)
    for i, payload in enumerate(payloads):
        value = naive(payload)
        assert (i in there) == (value is not None), (payload, found.bad.get(i))
        if value is not None:
            assert restored(*there[i]) == plain(value, pa.struct(list(SCHEMA))), payload


# ---- messages

numbers = st.one_of(
    st.integers(-200, 200).map(str), st.integers(-(2**65), 2**65).map(str), st.integers(-(10**40), 10**40).map(str), st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["9007199254740993", "-9007199254740993", "9007199254740992", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1e400", "-1e400",
                     "1e-400", "0e-400", "-0", "-0.0", "1.0", "5e2", "2.50", "0.1000000000000000055511151231257827", "1E+2", "16777217", "3.5e38", "1e-50", "127", "128", "-129",
                     "99999999999999999999999999999999999999", "100000000000000000000000000000000000000", "0.99999999999999999999", "9007199254740993.0", "1e99999"]))
texts = st.one_of(st.text(max_size=5), st.sampled_from(["", "\ud800", "ü", "\0", '"', "a" * 30])).map(json.dumps)
names = st.sampled_from([*SCHEMA.names, "N", "unknown", "ü", "a", "b c", "d", "k", "v", "", "_rescued"]).map(json.dumps)
spaces = st.sampled_from(["", "", "", " ", "\n\t", "\r"])
leaves = st.one_of(st.sampled_from(["null", "true", "false", "NaN", "-Infinity", "nul"]), numbers, numbers, texts)


def arrays(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(st.lists(inner, max_size=3), spaces).map(lambda one: "[" + one[1] + ("," + one[1]).join(one[0]) + "]")


def objects(inner: st.SearchStrategy[str], keys: st.SearchStrategy[str] = names) -> st.SearchStrategy[str]:
    pairs = st.lists(st.tuples(keys, inner), max_size=4)
    return st.tuples(pairs, spaces).map(lambda one: "{" + (one[1] + ",").join(one[1] + name + one[1] + ":" + one[1] + value for name, value in one[0]) + one[1] + "}")


values = st.recursive(leaves, lambda inner: arrays(inner) | objects(inner), max_leaves=6)
# values that fit as a rule
fitting = {
    "n": st.integers(-(2**63), 2**63 - 1).map(str) | st.integers(-9, 9).map(str), "x": st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.integers(-100, 100).map(str),
    "f": st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr), "b": st.sampled_from(["true", "false"]), "s": st.text(st.characters(codec="utf-8"), max_size=5).map(json.dumps),
    "small": st.integers(-128, 127).map(str), "big": st.integers(-(10**38) + 1, 10**38 - 1).map(str), "tags": arrays(texts), "nums": arrays(st.floats(allow_nan=False, allow_infinity=False).map(repr) | st.just("null")),
    "o": st.one_of(objects(values, st.sampled_from(["a", "b c", "z"]).map(json.dumps)), st.sampled_from(['{"a": 1, "b c": {"d": 2.5}}', '{"a": 1, "b c": {"d": 2, "e": 3}}', "{}", '{"a": null}'])),
    "many": arrays(st.sampled_from(['{"k": "a", "v": 1}', '{"k": "a"}', "{}", "null", '{"k": "a", "z": 1}', '{"v": 1.5}'])),
    "m": objects(st.integers(-5, 5).map(str) | st.just("null"), st.text(max_size=2).map(json.dumps)), "time": st.integers(0, 2**60).map(str)}
good = st.dictionaries(st.sampled_from(list(fitting)), st.none(), max_size=6).flatmap(
    lambda chosen: st.tuples(*(st.one_of(fitting[name], fitting[name], values).map(lambda value, name=name: json.dumps(name) + ":" + value) for name in chosen))).map(
    lambda pairs: "{" + ", ".join(pairs) + "}")


def bytes_of(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


messages = st.one_of(good, good, objects(values), values, st.tuples(spaces, good, st.sampled_from(["", " ", "x", ",", ",1", "]", "{}"])).map("".join)).map(bytes_of)


@settings(max_examples=100, deadline=None)
@given(st.lists(messages, min_size=1, max_size=8))
@example([b'{"f": 16777217}', b'{"x": 0.99999999999999999999}', b'{"n": 0.99999999999999999999}'])
@example([b'{"n": 5.0}', b'{"n": 1e3}', b'{"x": 1e-400}', b'{"x": 0e-400}', b'{"s": 1.10, "n": 1}', b'{"m": {"a": 1, "a": 2}}'])
@example([b'{"x": 2.8437168183838413e+16}', b'{"x": 28437168183838413}'])
# Python's decimals have 28 digits as a rule
@example([b'{"big": 10000000000000000000000000000} ', b' {"big": 99999999999999999999999999995000000000}', b'{"big": 1.0, "n": 0e99999999999}', b'{"big": 0e99999999999}'])
@example([b'{"big": 99999999999999999999999999999999999999.0}', b'{"big": 99999999999999999999999999999999999999.5}', b'{"big": 12345678901234567890123456789.5}'])
@example([b'{"unknown": {"a": 1, "a": 2}}', b'{"tags": [1, "a"]}', b'{"many": [{"k": {"v": 1.50}}]}', b'{"o": {"z": 100000000000000000000000000000000000000000}}'])
def test_a_row_and_its_rest_give_back_the_message(payloads: list[bytes]) -> None:
    check(payloads)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=60), st.tuples(messages, st.integers(0, 10**6), st.binary(max_size=2), st.integers(0, 3)).map(
    lambda one: one[0][: one[1] % (len(one[0]) + 1)] + one[2] + one[0][one[1] % (len(one[0]) + 1) + one[3]:])), min_size=1, max_size=6))
def test_damaged_messages_are_in_one_table(payloads: list[bytes]) -> None:
    check(payloads)


# ---- cases

@pytest.mark.parametrize(("payload", "why"), [
    (b'{"x": 20} trailing', exact.MALFORMED), (b'{"x": 20}{"x": 21}', exact.MALFORMED), (b'{"x": 20},{"x": 21}', exact.SEVERAL), (b'{"x": 20}] x', exact.MALFORMED),
    (b'{"x": 20}]', exact.MALFORMED), (b'{"x": 20},0] x', exact.SEVERAL), (b'[{"x": 20}, {"x": 21}]', exact.ARRAY), (b'  [', exact.ARRAY), (b'{"x": "warm"}', exact.TYPE),
    (b"21.5", exact.NO_OBJECT), (b'"a"', exact.NO_OBJECT), (b"null", exact.NO_OBJECT), (b"", exact.EMPTY), (None, exact.EMPTY), (b"   ", exact.MALFORMED), (b'{"x": "\xff"}', exact.NOT_UTF8),
    (b"{", exact.MALFORMED), (b'{"x": 1,}', exact.MALFORMED), (b"{'x': 1}", exact.MALFORMED), (b'{"x": 01}', exact.MALFORMED), (b'{"x": NaN}', exact.MALFORMED),
    (b'{"u": Infinity}', exact.MALFORMED), (b'\xef\xbb\xbf{"x": 1}', exact.MALFORMED), (b'{"x": 1, "x": 1}', exact.TWICE), (b'{"u": [{"a": 1, "a": 2}]}', exact.TWICE),
    (b'{"x": 9007199254740993}', exact.HOLD), (b'{"x": 1e400}', exact.HOLD), (b'{"x": 1e-400}', exact.HOLD), (b'{"n": 21.5}', exact.TYPE), (b'{"n": true}', exact.TYPE),
    (b'{"b": 1}', exact.TYPE), (b'{"n": 9223372036854775808}', exact.HOLD), (b'{"small": 128}', exact.HOLD), (b'{"n": "1"}', exact.TYPE), (b'{"tags": {"a": 1}}', exact.TYPE),
    (b'{"o": [1]}', exact.TYPE), (b'{"o": {"a": "x"}}', exact.TYPE), (b'{"s": "\\ud800"}', exact.NOT_UNICODE), (b'{"m": {"\\udc00": 1}}', exact.NOT_UNICODE),
    (b'{"u": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", exact.DEEP), (b'{"a":' * 100_000, exact.DEEP), (b'{"n": ' + b"9" * 100_000 + b"}", exact.HOLD),
    (b'{"x": ' + b"9" * 100_000 + b"}", exact.HOLD), (b'{"big": 1e999999999999999999999}', exact.HOLD), (b'{"n": 1e999999999}', exact.HOLD), (b'{"n": 1e-999999999}', exact.TYPE),
    (b'{"s": "' + b"x" * exact.LARGE + b'"}', exact.TOO_LARGE), (b"[" + b"1," * (32 << 20), exact.TOO_LARGE),
])
def test_a_message_that_cannot_be_read_has_a_reason(payload: bytes | None, why: str) -> None:
    found, _ = read(b'{"n": 1}', payload, b'{"n": 2}')
    assert found.bad == {1: why}
    assert found.at.to_pylist() == [0, 2] and found.columns[0].to_pylist() == [1, 2]


@pytest.mark.parametrize(("payload", "values", "rest"), [
    (b' {"n": 1, "x": 2, "tags": ["]", "[{"], "u": [[{}]]} ', {"n": 1, "x": 2.0, "tags": ["]", "[{"]}, '{"u":[[{}]]}'),
    (b'{"N": 12345678901234567890123, "u" : 1.10, "v": 1e400, "n": 3, "w": null}', {"n": 3}, '{"N":12345678901234567890123,"u":1.10,"v":1e400}'),
    (b'{"o": {"a": 1, "A": 2, "b c": {"d": 3, "e" : 9007199254740993}}}', {"o": {"a": 1, "b_c": {"d": 3.0}}}, '{"o":{"A":2,"b c":{"e":9007199254740993}}}'),
    (b'{"s": {"a": [1.0]}, "tags": ["x", 5]}', {"s": '{"a": [1.0]}', "tags": ["x", "5"]}, '{"s":{"a": [1.0]},"tags":["x", 5]}'),
    (b'{"many": [{"k": "a", "z": 1}, {"v": 2}]}', {"many": [{"k": "a", "v": None}, {"k": None, "v": 2}]}, '{"many":[{"k": "a", "z": 1}, {"v": 2}]}'),
    (b'{"\\u006e": 5, "\\ud800": 6}', {"n": 5}, '{"\\ud800":6}'),
    (b'{"big": 12345678901234567890123456789012345678, "n": -9223372036854775808, "m": {"a": 1, "b": null}}',
     {"big": Decimal(12345678901234567890123456789012345678), "n": -2**63, "m": [("a", 1), ("b", None)]}, None),
    (b'{"u": ' + b"9" * 5000 + b"}", {}, '{"u":' + "9" * 5000 + "}"),
    (b"{}", {}, None),
    (b'{"u": ' + b"[" * 190 + b"]" * 190 + b"}", {}, '{"u":' + "[" * 190 + "]" * 190 + "}"),
])
def test_a_readable_message_is_exact(payload: bytes, values: dict[str, Any], rest: str | None) -> None:
    found, _ = read(payload)
    assert not found.bad
    [(value, rescued)] = rows(found, 1).values()
    assert {name: one for name, one in value.items() if one is not None} == values and rescued == rest


def test_texts_become_times_and_bytes() -> None:
    schema = types.schema("d DATE, t TIMESTAMP, y BINARY, p DECIMAL(5, 2)")
    payloads = [b'{"d": "2026-09-21", "t": "2026-09-21T12:00:00.123456Z", "y": "AP8=", "p": 1.25}', b'{"t": "2026-09-21 14:00:00+02:00", "p": 999}', b'{"t": "2026-09-21T12:00"}']
    bad = [b'{"d": "2026-02-30"}', b'{"d": "20260921"}', b'{"t": "2026-09-21"}', b'{"t": "2026-09-21T12:00:00.1234567Z"}', b'{"t": 1790000000}', b'{"y": "AP9="}', b'{"y": "?"}',
           b'{"p": 1.255}', b'{"p": 1000}', b'{"p": 1e-99}', b'{"t": "0001-01-01T00:00+14:00"}']
    found, _ = read(*payloads, *bad, schema=schema)
    noon = datetime.datetime(2026, 9, 21, 12, tzinfo=datetime.UTC)
    assert [column.to_pylist() for column in found.columns] == [
        [datetime.date(2026, 9, 21), None, None], [noon.replace(microsecond=123456), noon, noon], [b"\0\xff", None, None], [Decimal("1.25"), Decimal("999.00"), None]]
    assert [found.bad[i] for i in range(3, 3 + len(bad))] == [exact.TYPE] * 7 + [exact.HOLD] * 3 + [exact.TYPE]


def test_ten_thousand_schemas_are_counted_and_lose_nothing() -> None:
    payloads = [json.dumps({f"field-{i}": i, "n": i}).encode() for i in range(10_000)]
    found, fields = read(*payloads)
    assert found.rescued.to_pylist() == [f'{{"field-{i}":{i}}}' for i in range(10_000)]
    assert len(fields.n) == 1001 and sum(fields.n.values()) == 10_000 and fields.content()[OTHERS] == ("", 9000)
    assert fields.content()["field-7"] == ("BIGINT", 1)


def test_new_fields_within_objects_are_counted() -> None:
    found, fields = read(b'{"o": {"a": 1, "new": 2, "b c": {"e": null, "d": 1.5}}}', b'{"o": {"b c": {"e": 1}}, "many": [{"z": 1}, {"z": 2}], "q": 1}', b'{"o": {"new": "x"}, "m": {"any": 1}}',
                         b'{"o": {"new": 1, "a": "bad"}}')
    assert found.rescued.to_pylist() == ['{"o":{"new":2}}', '{"o":{"b c":{"e":1}},"many":[{"z": 1}, {"z": 2}],"q":1}', '{"o":{"new":"x"}}']
    assert fields.content() == {"o.new": ("", 2), "o.b c.e": ("", 1), "many.z": ("", 1), "q": ("BIGINT", 1)}
