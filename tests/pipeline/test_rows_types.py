"""Test the schemas of silver: as text, as JSON Schema, and inferred from messages."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from mosq.pipeline.rows import inference, types


@pytest.mark.parametrize(("text", "wanted"), [
    ("temperature DOUBLE, unit string", "temperature DOUBLE, unit STRING"),
    ("a long, b INTEGER, c short, d byte, e REAL, f dec(5,2), g numeric", "a BIGINT, b INT, c SMALLINT, d TINYINT, e FLOAT, f DECIMAL(5, 2), g DECIMAL(10, 0)"),
    ("tags ARRAY<STRING>, s STRUCT<a: BIGINT, b ARRAY<STRUCT<c:DOUBLE>>>, m map<string, map<string,int>>",
     "tags ARRAY<STRING>, s STRUCT<a: BIGINT, b: ARRAY<STRUCT<c: DOUBLE>>>, m MAP<STRING, MAP<STRING, INT>>"),
    ("`x y` DATE, `a``b` TIMESTAMP, größe BINARY, 1st BOOLEAN", "`x y` DATE, `a``b` TIMESTAMP, `größe` BINARY, `1st` BOOLEAN"),
    (" \n a\tDOUBLE ", "a DOUBLE"),
])
def test_a_schema_is_read_and_written(text: str, wanted: str) -> None:
    found = types.schema(text)
    assert types.ddl(found) == wanted and types.schema(wanted) == found


@pytest.mark.parametrize(("text", "why"), [
    ("", "expected a name after ''; got the end"),
    ("a", "expected a type (BIGINT, "),
    ("a DOUBLE,", "expected a name after 'a DOUBLE,'; got the end"),
    ("a DOUBLE b INT", "expected `,` after 'a DOUBLE'; got `b`"),
    ("a FLOATS", "got `FLOATS`"),
    ("a ARRAY", "expected `<`"),
    ("a ARRAY<INT", "expected `>`"),
    ("a MAP<INT, INT>", "the keys of a MAP are STRING"),
    ("a DECIMAL(39)", "DECIMAL(39, 0): expected 1 to 38 digits"),
    ("a DECIMAL(5, 6)", "DECIMAL(5, 6)"),
    ("a DECIMAL(x)", "expected a number"),
    ("a-b DOUBLE", "unexpected '-b DOUBLE'; a name with other characters stands in `backticks`"),
    ("`` DOUBLE", "a name is empty"),
    ("a DOUBLE, A INT", "each name once; a occurs twice"),
    ("time INT, time_ INT", "each name once; time_ occurs twice"),
    ("`a b` INT, a_b INT", "each name once; a_b occurs twice"),
    ("s STRUCT<t: ARRAY<STRUCT<x: INT, X: INT>>>", "each name once in t; x occurs twice"),
    ("a " + "ARRAY<" * 60 + "INT" + ">" * 60, "more than 50 levels"),
])
def test_an_error_in_a_schema_is_explained(text: str, why: str) -> None:
    with pytest.raises(types.SchemaError) as error:
        types.schema(text)
    assert why in str(error.value)


def test_columns_have_names_that_delta_accepts() -> None:
    found = types.silver_schema(types.schema("`Time` INT, `a b;c` STRUCT<`x=y`: INT, time: INT>, payload STRING, `_rescued` INT, `t.u` INT"))
    assert found.names == ["date", "node", "stream", "shard", "seq", "time", "topic", "client_id", "Time_", "a_b_c", "payload", "_rescued_", "t.u", "_rescued"]
    assert [field.name for field in found.field("a_b_c").type] == ["x_y", "time"]


def test_a_json_schema_is_a_schema() -> None:
    content = {"type": "object", "properties": {
        "temperature": {"type": ["number", "null"]}, "count": {"type": "integer"}, "ok": {"type": "boolean"}, "at": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"}, "name": {"type": "string", "maxLength": 5}, "tags": {"type": "array", "items": {"type": "string"}},
        "gps": {"type": "object", "properties": {"lat": {"type": "number"}}}, "counts": {"type": "object", "additionalProperties": {"type": "integer"}}}}
    assert types.ddl(types.from_json_schema(content)) == (
        "temperature DOUBLE, count BIGINT, ok BOOLEAN, at TIMESTAMP, day DATE, name STRING, tags ARRAY<STRING>, gps STRUCT<lat: DOUBLE>, counts MAP<STRING, BIGINT>")


@pytest.mark.parametrize(("content", "why"), [
    ([], "the schema: expected an object of JSON Schema"),
    ({"type": "string"}, 'the schema: expected "type": "object"'),
    ({"type": "object"}, 'the schema: expected "properties"'),
    ({"type": "object", "properties": {"a": {"type": ["string", "integer"]}}}, "a: expected one type of integer, number"),
    ({"type": "object", "properties": {"a": {"$ref": "#/b"}}}, "a: expected one type"),
    ({"type": "object", "properties": {"a": {"type": "array"}}}, "items of a: expected an object"),
    ({"type": "object", "properties": {"a": {"type": "object"}}}, 'a: expected "properties"'),
    ({"type": "object", "properties": {"a": {"type": "integer"}, "A": {"type": "integer"}}}, "a occurs twice"),
    ({"type": "object", "properties": {"": {"type": "integer"}}}, "a name is empty"),
])
def test_an_error_in_a_json_schema_is_explained(content: Any, why: str) -> None:
    with pytest.raises(types.SchemaError) as error:
        types.from_json_schema(content)
    assert why in str(error.value)


# ---- inference

def suggested(*messages: Any) -> str:
    schema, _ = inference.infer(one if isinstance(one, str) else json.dumps(one) for one in messages)
    return types.ddl(schema)


@pytest.mark.parametrize(("messages", "wanted"), [
    ([{"b": 1, "a": "x"}, {"c": True, "b": 2.5}], "b DOUBLE, a STRING, c BOOLEAN"),
    ([{"a": 2**53 + 1}, {"a": -5}], "a BIGINT"),
    ([{"a": 2**53 + 1}, {"a": 1.5}], "a STRING"),           # no type of numbers holds both
    ([{"a": 1.5}, {"a": 2**53 + 1}], "a STRING"),
    ([{"a": 2**63}, {"a": 1}], "a DECIMAL(38, 0)"),
    ([{"a": 1}, {"a": -(2**63) - 1}, {"a": 2**53 + 1}], "a DECIMAL(38, 0)"),
    ([{"a": 10**38}], "a STRING"),
    ([{"a": 1e300}, {"a": 2**60}], "a DOUBLE"),
    (['{"a": 1e400}'], "a DOUBLE"),                         # the message itself goes to the quarantine
    ([{"a": None}, {"a": 1}, {"a": None}], "a BIGINT"),
    ([{"a": None, "b": {}, "c": [], "d": [{}], "e": {"f": None}, "g": 1}], "g BIGINT"),
    ([{"a": None, "b": {}, "c": []}], ""),
    ([{"a": 1}, {"a": "x"}, {"a": {"b": 1}}], "a STRING"),
    ([{"a": {"b": 1}}, {"a": 1}], "a STRING"),
    ([{"a": [1, None]}, {"a": {}}], "a STRING"),
    ([{"a": [{"x": 1}, {"y": [True]}]}], "a ARRAY<STRUCT<x: BIGINT, y: ARRAY<BOOLEAN>>>"),
    ([{"a": True}, {"a": 1}], "a STRING"),
    # a name counts once, in any case of letters
    ([{"a": 1, "A": "x", "b": {"c": 1, "C": 2}}, {"A": 5, "b": {"C": 3}}], "a BIGINT, b STRUCT<c: BIGINT>"),
    (["[1]", "5", "{", '{"a": 1', "'", "", '{"a": NaN}', '{"a": 1, "a": 2}', '{"b": 1}'], "b BIGINT"),
    ([{"a": "[" * 100}, "[" * 100_000, '{"a":' * 100_000], "a STRING"),
    ([{"x y": {"a`b": 1, "größe": 2, "t.c": 3}, "x_y": 1}], "`x y` STRUCT<`a``b`: BIGINT, `größe`: BIGINT, `t.c`: BIGINT>"),
    (['{"\\ud800": 1, "a\\u001b[2J": 2, "": 3, "ok": 4}', {"n" * 257: 1}], "ok BIGINT"),
    (['{"a": ' + "9" * 60_000 + "}"], "a STRING"),
])
def test_inferred_schemas(messages: list[Any], wanted: str) -> None:
    assert suggested(*messages) == wanted


def test_excess_fields_are_left_out_and_reported() -> None:
    schema, left_out = inference.infer(json.dumps({f"device-{i}-{j}": {"v": 1} for j in range(1000)}) for i in range(100))
    assert left_out and sum(1 + len(field.type) for field in schema) == inference.FIELDS_MAX
    schema, left_out = inference.infer([json.dumps({f"n{i}": i for i in range(inference.FIELDS_MAX)})])
    assert not left_out and len(schema) == inference.FIELDS_MAX


def test_fields_below_a_level_are_left_out() -> None:
    deep: Any = 1
    for _ in range(30):
        deep = {"a": deep, "b": 1}
    schema, left_out = inference.infer([json.dumps(deep)])
    assert left_out and types.ddl(schema).count("b BIGINT") + types.ddl(schema).count("b: BIGINT") == inference.DEPTH_MAX
    assert suggested({"a": [[[[[[[[[[[1]]]]]]]]]]], "b": 1}) == "b BIGINT"


@pytest.mark.parametrize(("a", "b", "wanted"), [
    ("BIGINT", "BIGINT", "BIGINT"), ("", "DOUBLE", "DOUBLE"), ("BIGINT", "DOUBLE", "DOUBLE"), ("BIGINT", "DECIMAL(38, 0)", "DECIMAL(38, 0)"), ("DOUBLE", "DECIMAL(38, 0)", "STRING"),
    ("BOOLEAN", "BIGINT", "STRING"), ("ARRAY<BIGINT>", "ARRAY<DOUBLE>", "ARRAY<DOUBLE>"), ("STRUCT<a: BIGINT, c: BIGINT>", "STRUCT<A: BIGINT, c: DOUBLE, b: STRING>", "STRUCT<a: BIGINT, c: DOUBLE, b: STRING>"),
    ("STRUCT<a: BIGINT>", "BIGINT", "STRING"),
])
def test_tasks_agree_on_the_type_of_a_field(a: str, b: str, wanted: str) -> None:
    assert inference.joined(a, b) == wanted
    if "STRUCT" not in wanted:
        assert inference.joined(b, a) == wanted


def test_a_schema_grows_by_new_fields_within_its_limits() -> None:
    had = types.schema("a BIGINT, `time` INT")
    grown = inference.grown(had, {"b": ("DOUBLE", 5), "A": ("STRING", 9), "c": ("", 3), "time_": ("INT", 1), "d": ("STRUCT<x: INT>", 6), "B": ("INT", 1)})
    assert types.ddl(grown) == "a BIGINT, time INT, d STRUCT<x: INT>, b DOUBLE"
    many = inference.grown(had, {f"n{i}": ("STRUCT<x: INT>", 1) for i in range(1000)})
    assert len(many) == 2 + (inference.FIELDS_MAX - 2) // 2
    assert isinstance(many, pa.Schema) and inference.grown(many, {"more": ("STRUCT<x: INT>", 1)}) == many
