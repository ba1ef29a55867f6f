"""Test traces of clients over TLS and WebSockets, of both ends of a bridge, and of everything on a busy broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.harness.broker import Broker
from tests.harness.certificates import client_context, server_paths
from tests.harness.packets import Connack, Connect, Disconnect, Pingreq, Pingresp, Publish, Suback, Subscribe
from tests.trace.scene import Scene, acknowledged, names, packet_of

Scenes = Callable[..., Scene]
LISTENERS = """listener 1883 127.0.0.1
listener 1884 127.0.0.1
cafile {cafile}
certfile {certfile}
keyfile {keyfile}
listener 1885 127.0.0.1
protocol websockets
listener 1886 127.0.0.1
protocol websockets
cafile {cafile}
certfile {certfile}
keyfile {keyfile}
"""
LOCAL = {"port": 0, "allow_anonymous": True, "control_loopback": True}


@pytest.fixture
def scenes() -> Iterator[Scenes]:
    with ExitStack() as stack:
        yield lambda **options: Scene(stack, **options)


@pytest.mark.parametrize(("tls", "websocket"), [(True, False), (False, True), (True, True)], ids=["tls", "websocket", "both"])
def test_each_transport_appears_as_plain_mqtt(scenes: Scenes, tmp_path: Path, tls: bool, websocket: bool) -> None:
    scene = scenes(config=LISTENERS.format(**server_paths(tmp_path)), **LOCAL)
    port = scene.broker.ports[(1 if tls else 0) + (2 if websocket else 0)]
    scene.trace(clientid="one", payload=100)
    one = scene.socket(port=port, tls=client_context() if tls else None, websocket=websocket)
    one.send(Connect("one", username="ann", password=b"open sesame"))
    assert isinstance(one.read_packet(), Connack)
    one.send(Subscribe(1, (("a", 0),)))
    one.expect_packet(Suback(1, (0,)))
    acknowledged(one, Publish("b", b"x" * 300, 1, 5))
    scene.admin.send(Publish("a", b"hello"))
    assert isinstance(one.read_packet(), Publish)
    one.send(Pingreq())
    one.expect_packet(Pingresp())
    one.send(Disconnect())
    events = scene.until("closed")
    assert names(events) == [">CONNECT", "<CONNACK", ">SUBSCRIBE", "<SUBACK", ">PUBLISH", "<PUBACK", "<PUBLISH", ">PINGREQ", "<PINGRESP", ">DISCONNECT",
                             "closed"]  # fmt: skip
    assert {event["listener"] for event in events} == {port}
    assert packet_of(events[0])["password"] == "hidden"
    published = packet_of(events[4])
    assert (published["topic"], published["payload"], published["cut"]) == ("b", b"x" * 100, True)
    assert packet_of(events[6])["payload"] == b"hello"


BRIDGE = "enable_control_api true\ncontrol_loopback true\nconnection far\naddress 127.0.0.1:{far}\nclientid near\ntopic out/# out 1\ntopic in/# in 0\n"


def test_a_bridge_is_followed_at_the_other_broker(scenes: Scenes) -> None:
    scene = scenes()
    scene.trace(clientid="near")
    with Broker(BRIDGE.replace("{far}", str(scene.broker.port))) as near:
        events = scene.until("<SUBACK")
        assert names(events)[:2] == [">CONNECT", "<CONNACK"]
        local = scene.socket(port=near.port)
        local.send(Connect("local"))
        assert isinstance(local.read_packet(), Connack)
        acknowledged(local, Publish("out/1", b"there", 1, 3))
        events = scene.until("<PUBACK")
        assert [packet_of(event)["payload"] for event in events if names([event]) == [">PUBLISH"] and event["topic"] == "out/1"] == [b"there"]
        scene.admin.send(Publish("in/1", b"back"))
        assert [packet_of(event)["payload"] for event in scene.until("<PUBLISH") if names([event]) == ["<PUBLISH"]] == [b"back"]
    assert names(scene.until("closed"))[-1] == "closed"


def test_a_busy_broker_is_traced_with_bounds(scenes: Scenes) -> None:
    """Follow every topic while four clients publish 40,000 messages: all events are there or counted."""
    scene = scenes()
    scene.trace(topic="#", rate=100, payload=16)
    subscriber = scene.client("subscriber")
    subscriber.send(Subscribe(1, (("end/#", 0),)))
    subscriber.expect_packet(Suback(1, (0,)))
    publishers = [scene.client(f"p{n}") for n in range(4)]
    for _ in range(20):
        for publisher in publishers:
            publisher.send(*[Publish("busy/topic", b"x" * 200)] * 500)
    for n, publisher in enumerate(publishers):              # none waits for the trace
        acknowledged(publisher, Publish(f"end/{n}", b"", 1, 7))
    for _ in publishers:
        assert isinstance(subscriber.read_packet(), Publish)
    found: list[dict[str, Any]] = scene.to_the_end()
    lost = sum(scene.lost.values())
    assert scene.lost["rate"] > 0
    assert all(len(packet_of(event).get("payload", b"")) <= 16 for event in found)
    assert len(found) + lost == 40_000 + 2 * len(publishers)
