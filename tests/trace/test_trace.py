"""Test traces over the wire, as docs/trace.md describes them: packets in both directions, decisions, drops, queues, bounds,
secrets, and what ends a trace."""

from __future__ import annotations

import json
from binascii import a2b_base64
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mosq.auth.dynsec.commands import Commands as DynsecCommands
from mosq.records import TraceEvent
from mosq.server.admin import traces
from mosq.server.admin.commands import Fields
from tests.dynsec.admin import PASSWORD as ADMINS, everything, password, role, state
from tests.harness.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from tests.harness.properties import P
from tests.trace.scene import Scene, acknowledged, name_of, names, own_address, packet_of

Scenes = Callable[..., Scene]
PASSWORD = b"open sesame"


@pytest.fixture
def scenes() -> Iterator[Scenes]:
    with ExitStack() as stack:
        yield lambda **options: Scene(stack, **options)


def ruled(path: Path, text: str) -> dict[str, Any]:
    file = path / "acl"
    file.write_text(f"user admin\ntopic readwrite $CONTROL/#\ntopic readwrite #\n{text}")
    return {"acl_file": str(file), "allow_anonymous": True}


def test_each_packet_of_a_client_is_in_its_trace(scenes: Scenes) -> None:
    scene = scenes()
    scene.trace(clientid="one")
    one = scene.client("one", username="ann", password=PASSWORD)
    one.send(Subscribe(1, (("a", 2),)))
    one.expect_packet(Suback(1, (2,)))
    one.send(Publish("a", b"hello", 2, 5))
    one.expect_packet(Pubrec(5))
    one.send(Pubrel(5))
    got = [one.read_packet(), one.read_packet()]
    assert Pubcomp(5) in got
    [came] = [packet for packet in got if isinstance(packet, Publish)]
    one.send(Pubrec(came.mid))
    one.expect_packet(Pubrel(came.mid))
    one.send(Pubcomp(came.mid))
    acknowledged(one, Publish("b", b"", 1, 6))
    one.send(Unsubscribe(7, ("a",)))
    assert isinstance(one.read_packet(), Unsuback)
    one.send(Pingreq())
    one.expect_packet(Pingresp())
    one.send(Disconnect())
    events = scene.until("closed")
    kinds = names(events)
    assert kinds[:4] == [">CONNECT", "<CONNACK", ">SUBSCRIBE", "<SUBACK"]
    assert kinds[4:6] == [">PUBLISH", "<PUBREC"]
    for name in (">PUBREL", "<PUBCOMP", "<PUBLISH", ">PUBREC", "<PUBREL", ">PUBCOMP", "<PUBACK", ">UNSUBSCRIBE", "<UNSUBACK",
                 ">PINGREQ", "<PINGRESP", ">DISCONNECT"):
        assert name in kinds, name
    assert {one["clientid"] for one in events} == {"one"}
    assert packet_of(events[0])["username"] == "ann"
    published = packet_of(events[4])
    assert (published["topic"], published["qos"], published["id"], published["payload"]) == ("a", 2, 5, b"hello")


def test_only_the_client_is_in_its_trace(scenes: Scenes) -> None:
    scene = scenes()
    scene.trace(clientid="one")
    other = scene.client("other")
    acknowledged(other, Publish("a", b"x", 1, 1))
    one = scene.client("one", level=4)
    one.send(Pingreq())
    assert names(scene.until("<PINGRESP")) == [">CONNECT", "<CONNACK", ">PINGREQ", "<PINGRESP"]


def test_a_topic_is_followed_from_publisher_to_subscribers(scenes: Scenes) -> None:
    scene = scenes()
    scene.trace(topic="a/+")
    subscriber = scene.client("subscriber")
    subscriber.send(Subscribe(1, (("#", 0),)))
    subscriber.expect_packet(Suback(1, (0,)))
    publisher = scene.client("publisher")
    publisher.send(Publish("other", b"1"), Publish("a/b", b"2", props=((P.TOPIC_ALIAS, 1),)),
                   Publish("", b"3", props=((P.TOPIC_ALIAS, 1),)))
    events = scene.until("<PUBLISH", payload=b"3")
    assert [(name_of(one), one["clientid"], one["topic"], packet_of(one)["payload"]) for one in events] == [
        (">PUBLISH", "publisher", "a/b", b"2"), ("<PUBLISH", "subscriber", "a/b", b"2"),
        (">PUBLISH", "publisher", "a/b", b"3"), ("<PUBLISH", "subscriber", "a/b", b"3")]


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.0/8"])
def test_an_address_is_followed(scenes: Scenes, address: str) -> None:
    scene = scenes()
    scene.trace(address=address)
    one = scene.socket()
    one.send(Connect("one"))
    event = scene.until("<CONNACK")[0]
    assert (event["address"], event["port"]) == own_address(one)
    assert event["ownAddress"] == "127.0.0.1"
    assert event["listener"] == scene.broker.port


def test_one_port_of_an_address_is_followed(scenes: Scenes) -> None:
    scene = scenes()
    one, other = scene.socket(), scene.socket()
    scene.trace(address=f"127.0.0.1:{own_address(one)[1]}")
    other.send(Connect("other"))
    assert isinstance(other.read_packet(), Connack)
    one.send(Connect("one"))
    assert {event["clientid"] for event in scene.until("<CONNACK")} == {"one"}


# ---------------------------------------------------------------- secrets and bounds of content

def test_secrets_are_in_no_trace(scenes: Scenes) -> None:
    scene = scenes()
    scene.trace(address="127.0.0.1", payload=4)
    one = scene.socket()
    one.send(Connect("one", username="ann", password=PASSWORD, will=Will("w", b"testament" * 10)))
    assert isinstance(one.read_packet(), Connack)
    one.send(Publish("$CONTROL/x/v1", PASSWORD), Publish("a", b"12345678"), Auth(0x18, ((P.AUTH_METHOD, "m"), (P.AUTH_DATA, PASSWORD))))
    events = scene.until("closed")
    raw = b"".join(a2b_base64(one["frame"]) for one in events if "frame" in one)
    assert PASSWORD not in raw
    assert b"testament" not in raw
    assert b"1234" in raw
    assert b"12345" not in raw
    published = next(one for one in events if packet_of(one).get("topic") == "a")
    assert published["size"] == len(Publish("a", b"12345678").encode(5))
    assert packet_of(events[0])["password"] == "hidden"


def test_a_bad_connect_shows_no_field(scenes: Scenes) -> None:
    scene = scenes()
    scene.trace(address="127.0.0.1")
    one = scene.socket()
    one.send(Connect("one", username="ann", password=PASSWORD, flags=0xC3))
    events = scene.until("closed")
    assert name_of(events[0]) == ">CONNECT"
    assert len(a2b_base64(events[0]["frame"])) <= 12


@pytest.mark.parametrize("topic", [b"$CONTROL/x/v1", b"a"])
def test_a_bad_publish_shows_no_payload(scenes: Scenes, topic: bytes) -> None:
    scene = scenes()
    scene.trace(address="127.0.0.1")
    one = scene.client("one")
    body = bytes((0, len(topic))) + topic + b"\x01\x7e" + PASSWORD        # a property that does not exist
    one.send(bytes((0x30, len(body))) + body)
    events = scene.until("closed")
    published = next(one for one in events if name_of(one) == ">PUBLISH")
    assert a2b_base64(published["frame"]) == bytes((0x30, len(body), 0, len(topic))) + topic
    assert (packet_of(published)["topic"], packet_of(published)["cut"]) == (topic.decode(), True)


def test_a_client_that_traces_is_in_no_trace(scenes: Scenes) -> None:
    scene = scenes()
    scene.trace(address="127.0.0.1")
    scene.client("one")
    scene.batch()
    assert all(one["clientid"] == "one" for one in scene.to_the_end())


# ---------------------------------------------------------------- decisions

def test_decisions_name_the_rule(scenes: Scenes, tmp_path: Path) -> None:
    scene = scenes(**ruled(tmp_path, "user ann\ntopic write a/#\ntopic deny a/secret\ntopic read b/+\npattern read own/%u/%c\n"))
    scene.trace(clientid="one")
    one = scene.client("one", username="ann")
    one.send(Subscribe(1, (("b/#", 0), ("own/#", 0))))
    one.expect_packet(Suback(1, (0, 0)))
    one.send(Publish("a/x", b""), Publish("a/secret", b""), Publish("c", b""), Pingreq())
    one.expect_packet(Pingresp())
    scene.admin.send(Publish("b/1", b""), Publish("own/ann/one", b""), Publish("b/1/2", b""))
    events = scene.until("dropped", topic="b/1/2")
    found = [(e["access"], e["topic"], e["verdict"], e["rule"]) for e in events if e["event"] == "access"]
    assert found == [
        ("write", "a/x", "allowed", "user ann: topic write a/#"),
        ("write", "a/secret", "denied", "user ann: topic deny a/secret"),
        ("write", "c", "denied", "no rule of the acl_file"),
        ("read", "b/1", "allowed", "user ann: topic read b/+"),
        ("read", "own/ann/one", "allowed", "pattern read own/%u/%c"),
        ("read", "b/1/2", "denied", "no rule of the acl_file")]
    assert [e["reason"] for e in events if e["event"] == "dropped"] == ["acl_write", "acl_write", "acl_read"]


def test_decisions_name_the_role(scenes: Scenes, tmp_path: Path) -> None:
    file = tmp_path / "dynsec.json"
    file.write_text(json.dumps(state(
        roles=[role("odd: [b]", ("publishClientSend", "b", True)), everything("tracer", "$CONTROL/mosq/#"), role("writer", ("publishClientSend", "a/#", True))],
        clients=[{"username": "ann", "roles": [{"rolename": "odd: [b]"}, {"rolename": "writer"}], **password("secret")},
                 {"username": "boss", "roles": [{"rolename": "tracer"}, {"rolename": "admin"}], **password(ADMINS)}])))  # fmt: skip
    scene = scenes(password=ADMINS.encode(), user="boss", dynamic_security=str(file))
    scene.trace(clientid="one")
    one = scene.client("one", username="ann", password=b"secret")

    def decided(topic: str) -> tuple[str, str]:
        one.send(Publish(topic, b""), Pingreq())
        one.expect_packet(Pingresp())
        [event] = [event for event in scene.until("access", topic=topic) if event["event"] == "access"]
        return event["verdict"], event["rule"]

    assert decided("a/x") == ("allowed", "role writer: publishClientSend allow a/#")
    assert decided("b") == ("allowed", "role odd: [b]: publishClientSend allow b")
    # the PUBACK comes before the roles change, the response afterwards
    scene.admin.send(Subscribe(8, (("$CONTROL/dynamic-security/v1/response", 0),)),
                     Publish("$CONTROL/dynamic-security/v1", b'{"commands":[{"command":"deleteRole","rolename":"all"}]}', 1, 9))
    while not (isinstance(got := scene.admin.read_packet(), Publish) and got.topic == "$CONTROL/dynamic-security/v1/response"):
        pass
    assert decided("a/y") == ("allowed", "role writer: publishClientSend allow a/#")       # its number is another one now


def test_a_role_that_changes_at_this_moment_is_not_named_wrongly() -> None:
    """Events of traces have the numbers of roles, and the events before a change look like those after it."""
    taken: list[Any] = []
    directory: Any = SimpleNamespace(role_names=("a", "b", "c"))
    directory.compiled = lambda: setattr(directory, "role_names", ("a", "c"))
    engine: Any = SimpleNamespace(set_roles=lambda rules, places: taken.append("in force"))
    handler = DynsecCommands(directory, lambda: [0], lambda: engine, lambda kind, line: None, lambda: None)
    handler.add_to(SimpleNamespace(add=lambda topic, answer: None, traces=SimpleNamespace(take=taken.append)))      # type: ignore[arg-type]
    handler.put_in_force()
    assert taken == [("a", "b", "c"), "in force", ["a", "?", "?"]]


def test_the_decisions_of_one_packet_are_bounded(scenes: Scenes, tmp_path: Path) -> None:
    """Each decision is found again for the trace. For half a million filters of a SUBSCRIBE that would hold the loop for a second."""
    file = tmp_path / "dynsec.json"
    file.write_text(json.dumps(state(
        roles=[everything("tracer", "$CONTROL/mosq/#"), role("any", ("subscribePattern", "#", True))],
        clients=[{"username": "ann", "roles": [{"rolename": "any"}], **password("secret")},
                 {"username": "boss", "roles": [{"rolename": "tracer"}, {"rolename": "admin"}], **password(ADMINS)}])))  # fmt: skip
    scene = scenes(password=ADMINS.encode(), user="boss", dynamic_security=str(file))
    scene.trace(clientid="one")
    one = scene.client("one", username="ann", password=b"secret")
    one.send(Subscribe(1, tuple((f"f/{i}", 0) for i in range(1000))))
    one.expect_packet(Suback(1, (0,) * 1000))
    one.send(Disconnect())
    events = scene.until("closed")
    assert [event["topic"] for event in events if event["event"] == "access"] == [f"f/{i}" for i in range(100)]


# ---------------------------------------------------------------- queues and drops

def test_queued_and_dropped_messages(scenes: Scenes) -> None:
    scene = scenes(max_queued_messages=2)
    slow = scene.client("slow", clean=False, props=((P.SESSION_EXPIRY, 100), (P.RECEIVE_MAXIMUM, 1)))
    slow.send(Subscribe(1, (("t", 1),)))
    slow.expect_packet(Suback(1, (1,)))
    scene.trace(clientid="slow")
    publisher = scene.client("publisher")
    for number in range(1, 7):
        acknowledged(publisher, Publish("t", b"%d" % number, 1, number))
    events = scene.until("dropped")
    assert names(events)[0] == "<PUBLISH"
    assert "queued" in names(events)
    assert next(e["reason"] for e in events if e["event"] == "dropped") == "queue_messages"


def test_messages_for_an_offline_client_are_queued(scenes: Scenes) -> None:
    scene = scenes()
    away = scene.client("away", clean=False, props=((P.SESSION_EXPIRY, 100),))
    away.send(Subscribe(1, (("t", 1),)))
    away.expect_packet(Suback(1, (1,)))
    scene.trace(clientid="away")
    away.send(Disconnect())
    scene.until("closed")
    acknowledged(scene.client("publisher"), Publish("t", b"x", 1, 1))
    [event] = scene.until("queued")
    assert (event["clientid"], event["topic"], event["qos"], event["queue"]) == ("away", "t", 1, 1)


# ---------------------------------------------------------------- bounds

def test_events_above_the_rate_are_counted(scenes: Scenes) -> None:
    scene = scenes()
    scene.trace(topic="#", rate=10)
    publisher = scene.client("publisher")
    publisher.send(*[Publish("t", b"x")] * 500)
    acknowledged(publisher, Publish("end", b"", 1, 1))
    events = scene.to_the_end()
    assert len(events) + scene.lost["rate"] == 501
    assert scene.lost["rate"] > 0


def test_decisions_count_as_events(scenes: Scenes, tmp_path: Path) -> None:
    scene = scenes(**ruled(tmp_path, "user ann\ntopic readwrite #\n"))
    publisher = scene.client("one", username="ann")
    scene.trace(clientid="one", count=5)
    acknowledged(publisher, Publish("t", b"", 1, 1))
    publisher.send(*[Publish("t", b"x")] * 10)
    events = []
    while scene.ended is None:
        events += scene.batch()
    assert (names(events), scene.ended) == ([">PUBLISH", "access", "<PUBACK", ">PUBLISH", "access"], "count")
    scene.trace(clientid="one", rate=3)
    publisher.send(*[Publish("t", b"x")] * 500)
    acknowledged(publisher, Publish("end", b"", 1, 1))
    events = scene.to_the_end()
    assert len(events) + scene.lost["rate"] in range(501, 1004)         # a packet above the rate has no decision
    seconds = {one["time"] // 1_000_000 for one in events}
    assert len(events) <= 3 * (len(seconds) + 1)


def test_decisions_of_a_huge_subscribe_are_bounded(scenes: Scenes, tmp_path: Path) -> None:
    file = tmp_path / "dynsec.json"
    file.write_text(json.dumps(state(roles=[everything("tracer", "$CONTROL/mosq/#")], clients=[
        {"username": "boss", "roles": [{"rolename": "tracer"}, {"rolename": "admin"}], **password(ADMINS)}])))
    scene = scenes(password=ADMINS.encode(), user="boss", dynamic_security=str(file))
    one = scene.client("one", username="boss", password=ADMINS.encode())
    scene.trace(clientid="one", rate=50)
    one.send(Subscribe(1, tuple((f"a/{n}", 0) for n in range(5000))))
    assert isinstance(one.read_packet(), Suback)
    events = scene.to_the_end()
    assert (names(events)[0], "access" in names(events)) == (">SUBSCRIBE", True)
    seconds = {one["time"] // 1_000_000 for one in events}
    assert len(events) <= 50 * (len(seconds) + 1)


def test_a_reader_that_does_not_read_delays_no_client(scenes: Scenes) -> None:
    scene = scenes()
    scene.trace(topic="#", rate=100_000, payload=16384)
    publisher = scene.client("publisher")
    for number in range(1, 21):
        publisher.send(*[Publish("t", bytes(8000))] * 20)
        acknowledged(publisher, Publish("end", b"", 1, number))
    events = scene.to_the_end()
    assert len(events) + scene.lost["reader"] + scene.lost["ring"] == 20 * 21
    assert scene.lost["reader"] > 0


def test_events_are_left_in_the_data_plane_while_no_reader_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control plane spent most of a core on events that it then counted as missed."""
    calls = 0

    class Engine:
        def trace(self, spec: dict[str, Any]) -> tuple[int, int]:
            return 7, 0

        def trace_events(self) -> list[TraceEvent]:
            nonlocal calls
            calls += 1
            numbers = {name: 0 for name in TraceEvent.__annotations__ if name != "kind"}
            texts = {"client_id": "c", "address": "", "own_address": "", "topic": "t", "text": ""}
            return [TraceEvent(**numbers | texts | {"event": 2, "slots": 1, "head": b"", "payload": bytes(10_000)})] * 20

        def trace_losses(self, slot: int) -> tuple[int, int]:
            return 0, 0

    now = 1000.0
    monkeypatch.setattr(traces.time, "monotonic", lambda: now)
    found = traces.Traces(Engine)       # type: ignore[arg-type]
    owner = SimpleNamespace(handle=1, client_id="owner", correlation=None)
    fields = Fields({"topic": "#", "rate": 100_000, "payload": 16384, "trace": 7})
    found.start(owner, fields)          # type: ignore[arg-type]
    for _ in range(200):
        assert found.serve() == []
    trace = found.running[7]
    assert trace.is_full and calls < 10
    assert trace.passed + trace.missed == calls * 20
    at_once = calls
    now += traces.FULL_S
    found.serve()
    assert calls == at_once + 1, "the end of a trace is among the events"
    found.read(owner, fields)           # type: ignore[arg-type]
    assert len(found.serve()) == 1 and not trace.is_full
    found.serve()
    assert calls == at_once + 2


def test_a_trace_ends_after_its_events(scenes: Scenes) -> None:
    scene = scenes()
    scene.trace(topic="#", count=3)
    scene.client("publisher").send(*[Publish("t", b"x")] * 5)
    events = []
    while scene.ended is None:
        events += scene.batch()
    assert (len(events), scene.ended) == (3, "count")


def test_a_trace_ends_by_its_time(scenes: Scenes) -> None:
    scene = scenes()
    scene.trace(topic="#", seconds=1)
    while scene.ended is None:
        assert scene.batch() == []
    assert scene.ended == "time"


def test_a_trace_ends_with_its_owner(scenes: Scenes) -> None:
    scene = scenes()
    other = scene.client("other")
    for _ in range(4):
        assert "data" in scene.ask("startTrace", other, topic="#")
    assert scene.ask("startTrace", topic="#")["error"] == "Too many traces at once"
    assert scene.ask("readTrace", trace=1)["error"] == "No such trace"
    other.send(Disconnect())
    other.expect_closed()
    while "error" in scene.ask("startTrace", topic="#"):
        pass
    assert len(scene.ask("listTraces")["data"]["traces"]) == 1


@pytest.mark.parametrize(("fields", "wrong"), [
    ({}, "Expected one of"), ({"topic": "a", "clientid": "b"}, "Expected one of"), ({"topic": "a#"}, "Invalid topic"),
    ({"topic": "$share/g/a"}, "Invalid topic"), ({"address": "x"}, "Invalid address"), ({"address": "1.2.3.4:99999"}, "Invalid address"),
    ({"topic": "a", "rate": 0}, "Invalid rate"), ({"topic": "a", "payload": 20000}, "Invalid payload"), ({"topic": 3}, "Invalid/missing topic"),
])
def test_a_wrong_request_is_refused(scenes: Scenes, fields: dict[str, Any], wrong: str) -> None:
    assert wrong in scenes().ask("startTrace", **fields)["error"]


def test_a_trace_needs_a_rule(scenes: Scenes, tmp_path: Path) -> None:
    scene = scenes(**ruled(tmp_path, "user ann\ntopic readwrite $CONTROL/mosq/broker/#\n"))
    ann = scene.client("ann", username="ann")
    ann.send(Publish("$CONTROL/mosq/trace/v1", b'{"commands":[{"command":"startTrace","topic":"#"}]}', 1, 1))
    ann.expect_packet(Puback(1, 0x87))
