"""Test the frames of links: an encoded frame is decoded again, and a damaged one gives an error that names the field."""

from __future__ import annotations

import random

import pytest
from cext.testing import link_api
from tests.harness.effort import tries

HELLO, ROUTE, UNROUTE, OPEN, SNAPSHOT_END, ASK, ASK_RETAINED, MESSAGE0, MESSAGE, VOID, RELEASED, RETAINED, RETAINED_END, CURRENT = range(1, 15)
WELCOME, CONFIRM, ACK, NO_MEMBER = range(15, 19)
RETAIN, OWNER, PLAIN, EXPIRES, AGAIN = 4, 8, 16, 32, 64

FRAMES: list[link_api.Fields] = [
    {"type": HELLO, "version": 1, "slot": 2, "workers": 3, "log": 2**63, "run": 7, "number": 0},
    {"type": ROUTE, "flags": 2, "online": 5, "text": b"$share/g/a/+"},
    {"type": UNROUTE, "text": b"#"},
    {"type": OPEN, "identity": 1 << 40 | 3},
    {"type": SNAPSHOT_END},
    {"type": ASK, "number": 1},
    {"type": ASK_RETAINED, "number": 2**64 - 1},
    {"type": MESSAGE0, "flags": PLAIN, "text": b"a/b", "payload": b"x" * 300},
    {"type": MESSAGE, "flags": 2 | RETAIN | OWNER | PLAIN | EXPIRES, "durability": 4, "number": 9, "identity": 4, "part": 1, "expiry": 60,
     "group": b"$share/g/a/#", "publisher": b"\0\0\0\x80c\0u\0", "text": b"a/b", "props": b"\x26\x00\x01a\x00\x01b", "payload": b"p"},
    {"type": MESSAGE, "flags": OWNER, "number": 10, "text": b"a"},
    {"type": MESSAGE, "flags": AGAIN | 1 | PLAIN, "number": 11, "text": b"a"},
    {"type": VOID, "number": 3},
    {"type": RELEASED, "identity": 5},
    {"type": RETAINED, "flags": RETAIN, "text": b"a", "payload": b""},
    {"type": RETAINED_END},
    {"type": CURRENT, "number": 4},
    {"type": WELCOME, "version": 1, "slot": 0, "log": 1, "run": 1, "number": 0},
    {"type": CONFIRM, "number": 1},
    {"type": ACK, "number": 0},
    {"type": NO_MEMBER, "number": 1},
]
WRONG: list[tuple[link_api.Fields, str]] = [
    ({"type": 0}, "type"),
    ({"type": 19}, "type"),
    ({"type": HELLO, "version": 2, "slot": 0, "workers": 2, "log": 1, "run": 1}, "version"),
    ({"type": HELLO, "version": 1, "slot": 2, "workers": 2, "log": 1, "run": 1}, "number of the worker"),
    ({"type": HELLO, "version": 1, "slot": 0, "workers": 65, "log": 1, "run": 1}, "number of the worker"),
    ({"type": HELLO, "version": 1, "slot": 0, "workers": 2, "log": 0, "run": 1}, "log or run"),
    ({"type": ROUTE, "flags": 3, "text": b"a"}, "flags, QoS, durability or expiry"),
    ({"type": ROUTE, "flags": 4, "text": b"a"}, "flags, QoS, durability or expiry"),
    ({"type": ROUTE, "text": b""}, "filter"),
    ({"type": ROUTE, "text": b"a/#/b"}, "filter"),
    ({"type": ROUTE, "text": b"$share//a"}, "filter"),
    ({"type": ROUTE, "text": b"\xff"}, "filter"),
    ({"type": ASK, "number": 0}, "number"),
    ({"type": OPEN, "identity": 0}, "identity"),
    ({"type": MESSAGE0, "flags": 1 | PLAIN, "text": b"a"}, "flags, QoS, durability or expiry"),
    ({"type": MESSAGE0, "flags": PLAIN, "text": b"a/+"}, "topic"),
    ({"type": MESSAGE0, "flags": PLAIN, "expiry": 1, "text": b"a"}, "flags, QoS, durability or expiry"),
    ({"type": MESSAGE, "flags": 128 | 1 | PLAIN, "number": 1, "text": b"a"}, "flags, QoS, durability or expiry"),
    ({"type": MESSAGE, "flags": 1, "number": 1, "text": b"a"}, "flags, QoS, durability or expiry"),
    ({"type": MESSAGE, "flags": PLAIN, "number": 1, "text": b"a"}, "flags, QoS, durability or expiry"),
    ({"type": MESSAGE, "flags": 1 | PLAIN, "number": 1, "identity": 1, "text": b"a"}, "identity"),
    ({"type": MESSAGE, "flags": 2 | PLAIN, "number": 1, "text": b"a"}, "identity"),
    ({"type": MESSAGE, "flags": 1 | PLAIN, "number": 1, "part": 1, "text": b"a"}, "identity"),
    ({"type": MESSAGE, "flags": 1 | PLAIN, "durability": 5, "number": 1, "text": b"a"}, "flags, QoS, durability or expiry"),
    ({"type": MESSAGE, "flags": 1, "number": 1, "group": b"a/#", "text": b"a"}, "filter"),
]


def with_defaults(fields: link_api.Fields) -> link_api.Fields:
    empty: link_api.Fields = dict.fromkeys(("flags", "durability", "version", "slot", "workers", "part", "online", "expiry", "log", "run", "number", "identity"), 0)
    return empty | dict.fromkeys(("group", "publisher", "text", "props", "payload"), b"") | fields


@pytest.mark.parametrize("fields", FRAMES, ids=[f"{i}-{frame['type']}" for i, frame in enumerate(FRAMES)])
def test_a_frame_is_decoded_as_it_was_encoded(fields: link_api.Fields) -> None:
    data = link_api.encode(fields)
    assert link_api.decode(data + b"more") == (len(data), with_defaults(fields))
    for n in range(len(data)):
        assert link_api.decode(data[:n]) == 0


@pytest.mark.parametrize(("fields", "error"), WRONG)
def test_a_wrong_field_is_named(fields: link_api.Fields, error: str) -> None:
    unknown = fields["type"] in (0, 19)         # a type without a table of fields
    assert link_api.decode(b"\x01\0\0\0" + bytes([int(fields["type"])]) if unknown else link_api.encode(fields)) == error


def test_lengths_are_checked() -> None:
    data = link_api.encode(FRAMES[8])
    assert link_api.decode(data, len(data) - 5) == "length"
    assert link_api.decode(b"\0\0\0\0\x05") == "length"
    longer = (len(link_api.encode({"type": SNAPSHOT_END})) - 3).to_bytes(4, "little") + b"\x05\0"
    assert link_api.decode(longer) == "length"
    cut = (len(data) - 5 - 20).to_bytes(4, "little") + data[4:-20]
    assert isinstance(link_api.decode(cut), str)


def test_damaged_frames_never_decode_beyond_their_end() -> None:
    chance = random.Random(1)
    for _ in range(tries(20_000)):
        data = bytearray(link_api.encode(chance.choice(FRAMES)))
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        answer = link_api.decode(bytes(data), 4000)
        if isinstance(answer, tuple):
            taken, fields = answer
            assert taken <= len(data)
            assert link_api.decode(link_api.encode(fields)) == (taken, fields)


def test_weights_choose_a_worker_that_was_not_tried() -> None:
    assert {link_api.choose([1, 0, 2], 0, r) for r in range(6)} == {0, 2}
    assert {link_api.choose([1, 0, 2], 1, r) for r in range(6)} == {2}
    assert link_api.choose([1, 0, 2], 5, 3) == -1


@pytest.mark.timing
def test_an_announced_filter_takes_120_bytes_at_most() -> None:
    """A route of another log takes nothing here: it is an entry of the broker's index."""
    assert link_api.bytes_per_own_route(20_000) <= 120
