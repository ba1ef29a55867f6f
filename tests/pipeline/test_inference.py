"""Test the schema that messages suggest, and its text for Spark. Nothing here needs a session."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mosq.pipeline import inference, tables


def suggested(*messages: Any) -> str:
    schema, _ = inference.schema(one if isinstance(one, str) else json.dumps(one) for one in messages)
    return ", ".join(f"{field.name} {tables.ddl(field.dataType)}" for field in schema.fields)


@pytest.mark.parametrize(("messages", "wanted"), [
    ([{"b": 1, "a": "x"}, {"c": True, "b": 2.5}], "b double, a string, c boolean"),
    ([{"a": None}, {"a": 1}, {"a": None}], "a double"),
    ([{"a": None, "b": {}, "c": []}], "a string, b string, c array<string>"),
    ([{"a": 1}, {"a": "x"}, {"a": {"b": 1}}], "a string"),
    ([{"a": {"b": 1}}, {"a": 1}], "a string"),
    ([{"a": [1, None]}, {"a": {}}], "a string"),
    ([{"a": [{"x": 1}, {"y": [True]}]}], "a array<struct<x:double,y:array<boolean>>>"),
    ([{"a": True}, {"a": 1}], "a string"),
    # a name counts once, in any case of letters
    ([{"a": 1, "A": "x", "b": {"c": 1, "C": 2}}, {"A": 5, "b": {"C": 3}}], "a double, b struct<c:double>"),
    (["[1]", "5", "{", '{"a": 1', "'", "", "\ud800", '{"a": NaN}'], "a double"),
    ([{"a": "[" * 100}, "[" * 100_000, '{"a":' * 100_000], "a string"),
    ([{"x y": {"a`b": 1, "größe": 2, "t.c": 3}}], "x y struct<`a``b`:double,`größe`:double,`t.c`:double>"),
    (['{"\\ud800": 1, "a\\u001b[2J": 2, "": 3, "ok": 4}', {"n" * 257: 1}], "ok double"),
    ([json.dumps({"a": 0}).replace("0", "9" * 60_000)], "a double"),
])
def test_inferred_schemas(messages: list[Any], wanted: str) -> None:
    assert suggested(*messages) == wanted


def test_excess_fields_are_left_out_and_reported() -> None:
    schema, left_out = inference.schema(json.dumps({f"device-{i}-{j}": {"v": 1} for j in range(1000)}) for i in range(100))
    assert left_out and sum(1 + len(getattr(field.dataType, "fields", ())) for field in schema.fields) == inference.FIELDS_MAX
    schema, left_out = inference.schema([json.dumps({f"n{i}": i for i in range(inference.FIELDS_MAX)})])
    assert not left_out and len(schema.fields) == inference.FIELDS_MAX


def test_deep_fields_are_text_below_a_level() -> None:
    deep: Any = 1
    for _ in range(30):
        deep = {"a": deep}
    assert suggested(deep) == "a " + "struct<a:" * (inference.DEPTH_MAX - 1) + "string" + ">" * (inference.DEPTH_MAX - 1)
    assert suggested({"a": [[[[[[[[[[[1]]]]]]]]]]]}).count("array<") == inference.DEPTH_MAX - 1
