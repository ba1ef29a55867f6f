"""Encode and decode the bodies of records, byte for byte, and refuse invalid bodies."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mosq._core import KINDS, meta_value, record_decode, record_encode, record_verdict
from tests.session.records import (
    ACKS, CLIENT_WILL, CLIENT_WILL_GONE, END, GATED, GATED_DONE, INBOX, INBOX_DONE, LINK_MARK, LINK_WILL, META, MSG, PUBLISHER, RELEASED, RETAINED_FROM, RETAINED_GONE, ROWS, SESSION, STREAMS, SUB, UNDELIVERED, UNSUB, WAITING_WILL, WAITING_WILL_GONE, WILL, WILL_GONE,
    WRONG, Row,
)

U16, U32, U64 = (st.integers(0, (1 << bits) - 1) for bits in (16, 32, 64))
MESSAGE = {"qos": st.integers(0, 2), "retain": st.booleans(), "retained_set": st.booleans(), "expires_wall_ms": U64, "source_hash": U64,
           "topic": st.binary(max_size=40), "props": st.binary(max_size=300), "payload": st.binary(max_size=300)}
SUB_ID = st.integers(0, 0x0FFFFFFF)
ENTRY = st.tuples(U32, U32, U16, st.sampled_from([q | r | s for q in (0, 1, 2) for r in (0, 0x80) for s in (0, 0x40)]), SUB_ID)
NAME = st.binary(min_size=1, max_size=40)
CLIENT_WILL_FIELDS = {**MESSAGE, "id": NAME, "user": st.none() | st.binary(max_size=40), "security": U32, "mount": st.binary(max_size=40),
                      "expiry_s": st.none() | U32}
FIELDS = {
    SESSION: st.fixed_dictionaries({"sno": U32, "connected": st.booleans(), "expiry_s": U32, "ends_wall_ms": U64, "next": U32,
                                    "id": st.binary(max_size=40), "user": st.none() | st.binary(max_size=40)}, optional={"security": st.integers(1, 2**32 - 1)}),
    SUB: st.fixed_dictionaries({"sno": U32, "options": st.integers(0, 255), "sub_id": SUB_ID, "filter": NAME}),
    UNSUB: st.fixed_dictionaries({"sno": U32, "filter": NAME}),
    END: st.fixed_dictionaries({"sno": U32}),
    MSG: st.fixed_dictionaries({**MESSAGE, "entries": st.lists(ENTRY, max_size=8)}),
    ACKS: st.fixed_dictionaries({"acks": st.lists(st.tuples(U32, U32), max_size=8)}),
    RELEASED: st.fixed_dictionaries({"acks": st.lists(st.tuples(U32, U32, U16), max_size=8)}),
    INBOX: st.fixed_dictionaries({"sno": U32, "pid": U16, "refused": st.just(False), "journalled": st.booleans(), **MESSAGE})
    | st.fixed_dictionaries({"sno": U32, "pid": U16, "refused": st.just(True)}),
    INBOX_DONE: st.fixed_dictionaries({"sno": U32, "pid": U16}),
    RETAINED_GONE: st.fixed_dictionaries({"topic": NAME}),
    WILL: st.fixed_dictionaries({"sno": U32, "due_wall_ms": U64, "delay_s": U32, **MESSAGE}),
    WILL_GONE: st.fixed_dictionaries({"sno": U32}),
    CLIENT_WILL: st.fixed_dictionaries(CLIENT_WILL_FIELDS),
    WAITING_WILL: st.fixed_dictionaries({**CLIENT_WILL_FIELDS, "number": st.integers(1, 2**64 - 1), "handle": U64}),
    LINK_WILL: st.fixed_dictionaries({**CLIENT_WILL_FIELDS, "number": st.integers(1, 2**64 - 1), "handle": U64}),
    UNDELIVERED: st.fixed_dictionaries({**CLIENT_WILL_FIELDS, "number": st.integers(1, 2**64 - 1), "unjournalled": st.booleans(),
                                        "sessions": st.lists(U32, max_size=4), "group": st.binary(max_size=20)}),
    WAITING_WILL_GONE: st.fixed_dictionaries({"number": U64}),
    CLIENT_WILL_GONE: st.fixed_dictionaries({"id": NAME}),
    GATED: st.fixed_dictionaries({**MESSAGE, "entries": st.lists(ENTRY, max_size=8)}),
    GATED_DONE: st.fixed_dictionaries({"acks": st.lists(st.tuples(U32, U32), max_size=8)}),
    PUBLISHER: st.fixed_dictionaries({"security": U32, "pid": U16, "id": NAME, "user": st.binary(max_size=40)}),
    RETAINED_FROM: st.fixed_dictionaries({"security": U32, "topic": NAME, "id": NAME, "user": NAME}),
    STREAMS: st.fixed_dictionaries({"streams": st.lists(st.fixed_dictionaries({"name": NAME, "seqs": st.lists(U64, min_size=1, max_size=64)}), max_size=3)}),
    META: st.dictionaries(st.sampled_from([b"format", b"f", b"made"]), st.sampled_from([b"", b"1", b"a=b"])),
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{KINDS[row.kind]}-{len(row.body)}")
def test_body(row: Row) -> None:
    assert record_encode(row.kind, row.fields) == row.body
    assert record_decode(row.kind, row.body) == row.fields


def test_a_mark_may_have_holes() -> None:
    fields = {"worker": 1, "log": 9, "run": 3, "number": 5, "holes": [2, 4]}
    body = record_encode(LINK_MARK, fields)
    assert len(body) == 8 * 6 and record_decode(LINK_MARK, body) == fields


@pytest.mark.parametrize(("kind", "body", "said"), WRONG)
def test_invalid_bodies_are_refused(kind: int, body: bytes, said: str) -> None:
    assert said in (record_verdict(kind, body) or "right")
    with pytest.raises(ValueError, match=said):
        record_decode(kind, body)


@pytest.mark.parametrize("row", [row for row in ROWS if row.kind not in (ACKS, GATED_DONE, RELEASED, META, PUBLISHER, RETAINED_FROM, STREAMS, UNSUB, SUB, RETAINED_GONE,
                                                                       CLIENT_WILL_GONE, WAITING_WILL_GONE)],
                         ids=lambda row: f"{KINDS[row.kind]}-{len(row.body)}")
def test_every_cut(row: Row) -> None:
    # a cut of a payload at the end gives a shorter payload; all bytes before it are required
    fixed = len(row.body) - len(row.fields.get("payload", b""))
    for n in range(fixed):
        assert record_verdict(row.kind, row.body[:n]) is not None, n


@given(st.data())
def test_round_trip(data: Any) -> None:
    kind = data.draw(st.sampled_from(sorted(FIELDS)))
    fields = data.draw(FIELDS[kind])
    body = record_encode(kind, fields)
    assert record_decode(kind, body) == fields


@given(st.integers(0, 19), st.binary(max_size=80))
def test_any_bytes(kind: int, body: bytes) -> None:
    """Test that an accepted body equals the encoding of its decoded fields."""
    if kind != META and record_verdict(kind, body) is None:
        assert record_encode(kind, record_decode(kind, body)) == body


def test_meta() -> None:
    body = b"format=1\nmade=\nf=2"
    assert [meta_value(body, key) for key in (b"format", b"made", b"f", b"orma", b"")] == [b"1", b"", b"2", None, None]


@pytest.mark.parametrize(("kind", "fields"), [
    (SESSION, {**ROWS[0].fields, "id": b"x" * 65536}), (SESSION, {**ROWS[0].fields, "user": b"x" * 65536}),
    (SUB, {**ROWS[3].fields, "filter": b"x" * 65536}), (MSG, {**ROWS[6].fields, "topic": b"x" * 65536}), (99, {}),
])
def test_fields_that_exceed_a_record_are_refused(kind: int, fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        record_encode(kind, fields)
