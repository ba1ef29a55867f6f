"""Test payloads of Sparkplug B, whose bytes are built here by the rules of protobuf."""

from __future__ import annotations

import json
import struct
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mosq.varint import varint as write_varint
from mosq.pipeline import sparkplug

TOPIC = "spBv1.0/g/DDATA/n/d"


def varint(number: int, value: int) -> bytes:
    return write_varint(number << 3) + write_varint(value)


def text(number: int, value: bytes) -> bytes:
    return write_varint(number << 3 | 2) + write_varint(len(value)) + value


def metric(*fields: bytes) -> bytes:
    return text(2, b"".join(fields))


def rows(*fields: bytes, topic: str = TOPIC) -> list[dict[str, object]]:
    return sparkplug.metrics(topic, b"".join(fields))


def test_a_payload_with_every_kind_of_value() -> None:
    found = rows(
        varint(1, 1_700_000_000_000), varint(3, 7),
        metric(text(1, b"f"), varint(4, 9), write_varint(12 << 3 | 5) + struct.pack("<f", 1.5)),
        metric(text(1, b"d"), varint(4, 10), write_varint(13 << 3 | 1) + struct.pack("<d", 2.25)),
        metric(varint(2, 42), varint(4, 3), varint(10, 2**32 - 5)),             # Int32, -5
        metric(text(1, b"l"), varint(4, 4), varint(11, 2**64 - 1)),             # Int64, -1
        metric(text(1, b"u"), varint(4, 8), varint(11, 2**64 - 1)),             # a UInt64 that does not fit into a bigint
        metric(text(1, b"b"), varint(4, 11), varint(14, 1)),
        metric(text(1, b"s"), varint(4, 12), text(15, "ü".encode()), varint(3, 1_700_000_000_001), varint(5, 1)),
        metric(text(1, b"y"), varint(4, 17), text(16, b"\xff\0")),
        metric(text(1, b"null"), varint(4, 3), varint(7, 1), varint(10, 3)),
    )
    values = [(row["metric"], *(row[key] for key in ("long_value", "double_value", "boolean_value", "string_value", "bytes_value"))) for row in found]
    assert values == [
        ("f", None, 1.5, None, None, None), ("d", None, 2.25, None, None, None), (None, -5, None, None, None, None), ("l", -1, None, None, None, None),
        ("u", None, float(2**64 - 1), None, None, None), ("b", None, None, True, None, None), ("s", None, None, None, "ü", None),
        ("y", None, None, None, None, b"\xff\0"), ("null", None, None, None, None, None)]
    assert found[2]["alias"] == 42
    assert [found[0][key] for key in ("edge_group", "message_type", "edge_node", "device", "edge_seq", "payload_time")] == [
        "g", "DDATA", "n", "d", 7, 1_700_000_000_000_000]
    assert found[6]["metric_time"] == 1_700_000_000_001_000 and found[6]["historical"] is True
    rests = {row["metric"]: row[sparkplug.REST] for row in found if sparkplug.REST in row}
    assert rests == {"u": '{"long_value":18446744073709551615}'}
    assert all(set(row) - {sparkplug.REST} == set(sparkplug.COLUMNS) for row in found)


def test_integers_beyond_their_columns_are_in_the_rest_and_counted() -> None:
    """They were null."""
    big = 2**63
    found = rows(varint(1, 2**64 - 1), varint(3, big), metric(varint(2, 2**64 - 1), varint(3, big), varint(4, 2**31), varint(11, big)), metric(varint(2, big - 1), varint(10, 1)))
    assert [json.loads(str(row[sparkplug.REST])) for row in found] == [
        {"edge_seq": big, "payload_time": 2**64 - 1, "alias": 2**64 - 1, "metric_time": big, "datatype": 2**31, "long_value": big}, {"edge_seq": big, "payload_time": 2**64 - 1}]
    assert found[1]["alias"] == big - 1
    counted = Counter(sparkplug.notes(found))
    assert counted == {**dict.fromkeys((f"{name} beyond {type}: in _rescued" for name, type in (("alias", "BIGINT"), ("metric_time", "TIMESTAMP"), ("datatype", "INT"), ("long_value", "BIGINT"))), 1),
                       "edge_seq beyond BIGINT: in _rescued": 2, "payload_time beyond TIMESTAMP: in _rescued": 2}


@pytest.mark.parametrize("alias", [5, 2**64 - 1])
def test_an_alias_with_two_names_in_one_birth_is_counted(alias: int) -> None:
    several = [metric(text(1, name), varint(2, alias), varint(11, 2**63)) for name in (b"a", b"b", b"b")] + [metric(text(1, b"c"), varint(2, 6)), metric(text(1, b"d"))]
    assert Counter(sparkplug.notes(rows(*several, topic="spBv1.0/g/DBIRTH/n/d")))[sparkplug.TWO_NAMES] == 1
    assert Counter(sparkplug.notes(rows(*several)))[sparkplug.TWO_NAMES] == 0, "only a BIRTH names an alias"
    assert list(sparkplug.notes([])) == []


def test_a_node_has_no_device_and_unknown_fields_are_skipped() -> None:
    found = rows(text(99, b"?"), metric(text(1, b"m"), text(9, b"\x08\x01"), varint(10, 1)), topic="spBv1.0/g/NBIRTH/n")
    assert [(row["device"], row["metric"], row["long_value"]) for row in found] == [(None, "m", 1)]


@pytest.mark.parametrize(("topic", "payload", "why"), [
    ("spBv1.0/STATE/host", b"{}", "not a topic"),
    ("spBv1.0/g/STATE/n", b"{}", "STATE"),
    (TOPIC, b"", "empty"),
    (TOPIC, None, "empty"),
    (TOPIC, b"\xff\xff", "not a payload"),
    (TOPIC, text(2, text(1, b"\xff\xfe")), "not a payload"),     # a name that is not UTF-8
])
def test_unreadable_input_is_reported(topic: str, payload: bytes | None, why: str) -> None:
    with pytest.raises(sparkplug.UnreadableError, match=why):
        sparkplug.metrics(topic, payload)


@given(st.binary(min_size=1, max_size=80))
def test_hostile_bytes_end_in_rows_or_in_an_error(payload: bytes) -> None:
    try:
        found = sparkplug.metrics(TOPIC, payload)
    except sparkplug.UnreadableError:
        return
    assert all(set(row) - {sparkplug.REST} == set(sparkplug.COLUMNS) for row in found)
