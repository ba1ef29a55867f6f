"""Test real clients over WebSocket: paho, and MQTT.js as in a browser. Each scenario runs once, with the newest version."""

from __future__ import annotations

import pytest

from tests.interop.clients import Message
from tests.interop.conftest import WEB_KINDS, Maker

EACH = pytest.mark.parametrize("kind", sorted(WEB_KINDS))


@EACH
@pytest.mark.parametrize("version", [4, 5])
def test_delivery(make: Maker, unique: str, kind: str, version: int) -> None:
    sub = make(kind, version, "sub")
    sub.subscribe(f"{unique}/+/#", 2)
    pub = make(kind, version, "pub")
    sent = [Message(f"{unique}/a/ü", "grüße 𝄞", qos) for qos in range(3)]
    sent += [Message(f"{unique}/b", "x" * size, 2) for size in (0, 125, 126, 65_535, 65_536, 200_000)]
    for message in sent:
        pub.publish(message)
    assert sub.take(len(sent)) == sent
    assert sub.left_over() == []


@EACH
def test_from_and_to_tcp(make: Maker, unique: str, kind: str) -> None:
    web, tcp = make(kind, 5, "web"), make("paho", 4, "tcp")
    web.subscribe(f"{unique}/web", 1)
    tcp.subscribe(f"{unique}/tcp", 1)
    for n in range(20):
        web.publish(Message(f"{unique}/tcp", str(n), 1))
        tcp.publish(Message(f"{unique}/web", str(n), 1))
    assert [m.payload for m in web.take(20)] == [str(n) for n in range(20)]
    assert [m.payload for m in tcp.take(20)] == [str(n) for n in range(20)]


@EACH
def test_will_and_session(make: Maker, unique: str, kind: str) -> None:
    watcher = make("paho", 5, "watcher")
    watcher.subscribe(f"{unique}/will", 1)
    lost = make(kind, 5, "lost", persistent=True, will=Message(f"{unique}/will", "gone", 1))
    lost.subscribe(f"{unique}/queue", 1)
    lost.drop()
    assert watcher.take(1) == [Message(f"{unique}/will", "gone", 1)]
    watcher.publish(Message(f"{unique}/queue", "kept", 1))
    back = make(kind, 5, "lost", persistent=True)
    assert back.take(1) == [Message(f"{unique}/queue", "kept", 1)]
    back.stop()
