"""Test the lines of a trace: decoded packets, also cut ones, and names that must not control the terminal."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from mosq.tools.trace.decode import decoded
from mosq.tools.trace.show import json_line, line, losses
from tests.harness.packets import Connect, Packet, Puback, Publish, Suback, Subscribe, Will
from tests.harness.properties import P

PACKETS: list[Packet] = [
    Connect("one", username="ann", password=b"x", will=Will("w", b"bye", 1), props=((P.SESSION_EXPIRY, 5), (P.USER, ("a", "b")))),
    Publish("a/b", b"hello", 1, 7, props=((P.CONTENT_TYPE, "text"), (P.SUBSCRIPTION_ID, 3))), Subscribe(3, (("a/#", 1), ("b", 2))), Suback(3, (1, 0x87)),
    Puback(7, 0x10),
]


def event(frame: bytes, **more: Any) -> dict[str, Any]:
    return {"event": "received", "time": 1_700_000_000_000_001, "clientid": "one", "version": 5, "address": "::1", "port": 5, "size": len(frame),
            "head": len(frame), "frame": b64encode(frame).decode(), **more}


@pytest.mark.parametrize("packet", PACKETS)
@pytest.mark.parametrize("level", [3, 4, 5])
def test_a_packet_may_be_cut_at_each_byte(packet: Packet, level: int) -> None:
    frame = packet.encode(level)
    whole = decoded(frame, level, len(frame))
    assert "cut" not in whole
    for n in range(len(frame)):
        part = decoded(frame[:n], level, len(frame))
        assert part["cut"]
        line(event(frame[:n], version=level, size=len(frame)))


def test_lines_have_the_fields() -> None:
    assert line(event(PACKETS[1].encode(5), head=len(PACKETS[1].encode(5)) - 5)).endswith(
        " one > PUBLISH q1 id 7 topic 'a/b' {contentType=text, subscriptionIdentifier=[3]} 5 bytes 'hello'")
    assert line(event(PACKETS[3].encode(5))).endswith(" one > SUBACK id 3 granted 1 0x87 (not authorized)")
    assert "password hidden" in line(event(PACKETS[0].encode(5)))
    assert line({"event": "dropped", "time": 0, "clientid": "a", "topic": "t", "reason": "expired"}).endswith(" a * dropped 't': expired")


@pytest.mark.parametrize("name", ["\x1b[2J", "a\nb", "[bold]x", "\u202ex", "\x9b2J", "\x7f", "\U000e0041", "é名"])
def test_names_cannot_control_the_terminal(name: str) -> None:
    text = line(event(Publish(name, name.encode()).encode(4), clientid=name, version=4))
    assert text.isprintable()
    text = json_line(event(Publish(name, name.encode()).encode(4), clientid=name, version=4))
    assert text.isprintable()
    assert json.loads(text)["clientid"] == json.loads(text)["packet"]["topic"] == name


def test_losses_name_their_cause() -> None:
    assert losses({"rate": 0, "ring": 0}) == ""
    assert losses({"rate": 3, "reader": 2}) == "3 events lost above the rate, 2 events lost because this reader was slow"


@pytest.mark.parametrize("frame", [b"", b"\x00", b"\x10", b"\x30\xff\xff\xff\xff\xff", b"\xf0\x03\x00\x01\x99", bytes(range(256))])
def test_any_bytes_are_decoded(frame: bytes) -> None:
    line(event(frame))
