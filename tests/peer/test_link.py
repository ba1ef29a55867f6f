"""Test a bridge, packet by packet: the test is the remote broker."""

from __future__ import annotations

import pytest

from tests.harness.links import Remote, line, linked, spec
from tests.harness.packets import Connack, Connect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe
from tests.harness.plane import Plane
from tests.harness.wire import Wire
from mosq.records import BridgeEvent

LEVELS = pytest.mark.parametrize("level", [3, 4, 5])


def up(plane: Plane, level: int = 4, n_in: int = 0, present: bool = False, props: tuple = ()) -> Remote:
    remote = Remote(plane, level=level)
    remote.accept_connect(present, props)
    remote.grant(n_in)
    assert linked(plane).event == "up"
    return remote


def client(plane: Plane, *filters: tuple[str, int], level: int = 4) -> Wire:
    wire = plane.connect(Connect(f"c{len(plane.wires)}"), level)
    assert isinstance(wire.read_packet(), Connack)
    if filters:
        wire.send(Subscribe(1, filters))
        wire.read_packet()
    return wire


@LEVELS
def test_connect_has_the_configured_fields(level: int) -> None:
    link = spec(version=level, keepalive_s=17, clean_start=True, remote_username="u", remote_password=b"p\xff", notifications=True,
                receive_maximum=7, topic_alias_max=3, session_expiry_s=99)
    with Plane(bridges=[link], allow_anonymous=True) as plane:
        remote = Remote(plane, level=level)
        got = remote.accept_connect()
        assert (got["version"], got["bridge"], got["clean_start"], got["keepalive"]) == (level, 0, 1, 17)
        assert (got["client_id"], got["username"], got["password"]) == (b"remote.b", b"u", b"p\xff")
        assert (got["will_topic"], got["will_payload"], got["will_qos"], got["will_retain"]) == (
            b"$SYS/broker/connection/remote.b/state", b"0", 1, 1)
        if level == 5:
            props = got["props"]
            assert (props[17], props[33], props[34], props.get(39)) == (99, 7, 3, None)


@pytest.mark.parametrize("level", [3, 4])
def test_try_private_sets_the_bridge_bit(level: int) -> None:
    with Plane(bridges=[spec(version=level)], allow_anonymous=True) as plane:
        assert Remote(plane, level=level, private=True).accept_connect()["bridge"] == 1


@LEVELS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_outgoing_messages_get_their_remote_name(level: int, qos: int) -> None:
    with Plane(bridges=[spec(line("#", "out", 2, "l/", "r/"), version=level)], allow_anonymous=True) as plane:
        remote = up(plane, level)
        wire = client(plane)
        wire.send(Publish("l/a/b", b"x", qos, 5, retain=True), Pubrel(5) if qos == 2 else b"", Publish("other", b"y", qos, 6))
        got = remote.hears("publish")
        assert (got["topic"], got["payload"], got["qos"], got["retain"], got["dup"]) == (b"r/a/b", b"x", qos, 1, 0)


@LEVELS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_incoming_messages_get_their_local_name(level: int, qos: int) -> None:
    with Plane(bridges=[spec(line("#", "in", qos, "l/", "r/"), version=level)], allow_anonymous=True) as plane:
        remote = Remote(plane, level=level)
        remote.accept_connect()
        assert remote.grant() == [("r/#", qos | (0x0C if level == 5 else 0))]
        wire = client(plane, ("#", 2))
        remote.send(Publish("r/a/b", b"x", qos, 5))
        if qos == 1:
            assert remote.hears("puback")["pid"] == 5
        if qos == 2:
            assert remote.hears("pubrec")["pid"] == 5
            remote.send(Pubrel(5))
            assert remote.hears("pubcomp")["pid"] == 5
        got = wire.read_packet()
        assert isinstance(got, Publish)
        assert (got.topic, got.payload, got.qos) == ("l/a/b", b"x", qos)


def test_both_directions_do_not_loop() -> None:
    with Plane(bridges=[spec(line("#", "both", 1, "l/", "r/"))], allow_anonymous=True) as plane:
        remote = up(plane, n_in=1)
        remote.send(Publish("r/a", b"x", 1, 5, retain=True))
        remote.hears("puback")
        wire = client(plane)
        wire.send(Publish("l/b", b"y"))
        assert remote.hears("publish")["topic"] == b"r/b"        # r/a is not sent


def test_messages_outside_of_the_topic_lines_are_dropped() -> None:
    with Plane(bridges=[spec(line("#", "in", 1, "l/", "r/"), line("$CONTROL/#", "in", 1))], allow_anonymous=True) as plane:
        remote = up(plane, n_in=2)
        wire = client(plane, ("#", 0), ("$CONTROL/#", 0))
        remote.send(Publish("other", b"x", 1, 5), Publish("$CONTROL/mosq/index/v1", b"a", 1, 6), Publish("r/good", b"z", 1, 7))
        assert [remote.hears("puback")["pid"] for _ in range(3)] == [5, 6, 7]
        got = wire.read_packet()
        assert isinstance(got, Publish)
        assert (got.topic, got.payload) == ("l/good", b"z")


def test_connect_5_sends_the_properties_in_the_order_of_mosquitto() -> None:
    link = spec(version=5, receive_maximum=7, topic_alias_max=3, session_expiry_s=99, packet_max_in=50_000)
    with Plane(bridges=[link], allow_anonymous=True) as plane:
        raw = Remote(plane, level=5).read_frame()
        assert raw is not None
        assert b"\x22\x00\x03" b"\x11\x00\x00\x00\x63" b"\x21\x00\x07" b"\x27\x00\x00\xc3\x50" in raw


@LEVELS
@pytest.mark.parametrize("qos", [1, 2])
def test_unwanted_messages_are_acknowledged_with_success(level: int, qos: int) -> None:
    with Plane(bridges=[spec(line("a", "out", 2), version=level)], allow_anonymous=True) as plane:
        remote = up(plane, level)
        wire = client(plane, ("#", 0))
        remote.send(Publish("other", b"x", qos, 180))
        answer = remote.hears("puback" if qos == 1 else "pubrec")
        assert (answer["pid"], answer["rc"]) == (180, 0)
        if qos == 2:
            remote.send(Pubrel(180))
            assert remote.hears("pubcomp")["pid"] == 180
        wire.expect_nothing()
        assert plane.stats()["drops_acl_write"] == 1


@LEVELS
def test_a_refusal_is_reported_with_its_code(level: int) -> None:
    with Plane(bridges=[spec(version=level)], allow_anonymous=True) as plane:
        remote = Remote(plane, level=level)
        remote.hears("connect")
        remote.send(Connack(False, 0x84 if level == 5 else 1))
        event = linked(plane)
        assert event.event == "refused"
        assert event.detail.split()[0] == ("132" if level == 5 else "1")
        assert remote.heard()[0] == "closed"
        up(plane, level)


@pytest.mark.parametrize(("code", "reason"), [(1, "unacceptable protocol version"), (2, "identifier rejected"), (3, "broker unavailable"),
                                              (4, "bad user name or password"), (5, "not authorised"), (6, "unknown reason"), (128, "unknown reason")])
def test_refusals_of_3_are_logged(code: int, reason: str) -> None:
    with Plane(bridges=[spec()], allow_anonymous=True) as plane:
        remote = Remote(plane)
        remote.hears("connect")
        remote.send(bytes((0x20, 2, 0, code)))
        assert linked(plane) == BridgeEvent("b", "refused", f"{code} {reason}")
        plane.until(lambda: f"Connection Refused: {reason}" in plane.lines)


def test_a_bridge_of_5_uses_3_1_1_after_a_connack_of_3_refuses_it() -> None:
    link = spec(line("#", "out", 1), version=5)
    with Plane(bridges=[link], allow_anonymous=True) as plane:
        remote = Remote(plane, level=5, private=True)
        assert remote.hears("connect")["version"] == 5
        remote.send(b"\x20\x02\x00\x01")
        assert linked(plane) == BridgeEvent("b", "refused", "1 MQTT v5.0 is not supported (will retry)")
        plane.until(lambda: "Warning: Remote bridge b does not support MQTT v5.0, reconnecting using MQTT v3.1.1." in plane.lines)
        for _ in range(2):              # it stays with 3.1.1
            remote = Remote(plane, private=True)
            got = remote.accept_connect()
            assert (got["version"], got["bridge"]) == (4, 1)
            assert linked(plane).event == "up"
            publish(client(plane), "t", b"x", 1)
            remote.send(Puback(remote.hears("publish")["pid"]))
            remote.close()
            assert linked(plane).event == "down"
        reload(plane, {**link, "keepalive_s": 61})
        assert Remote(plane, level=5, private=True).hears("connect")["version"] == 5


# ---------------------------------------------------------------- packet ids


def pids_of(remote: Remote, n: int) -> list[tuple[str, int]]:
    found = []
    for _ in range(n):
        kind, fields = remote.heard()
        found.append((kind, fields["pid"]))
        if kind == "subscribe":
            remote.send(Suback(fields["pid"], (1,)))
    return found


@pytest.mark.parametrize("level", [4, 5])        # 3.1 has no Session Present: no second SUBSCRIBE
def test_packet_ids_are_one_sequence_over_all_connections(level: int) -> None:
    link = spec(line("a", "both", 1), line("b", "out", 1), version=level, attempt_unsubscribe=True, notifications=True)
    with Plane(bridges=[link], allow_anonymous=True) as plane:
        wire = client(plane)
        for first in (1, 5):
            remote = Remote(plane, level=level)
            remote.accept_connect()
            assert pids_of(remote, 3) == [("publish", first), ("subscribe", first + 1), ("unsubscribe", first + 2)]
            publish(wire, "a", b"x", 1)
            assert pids_of(remote, 1) == [("publish", first + 3)]
            remote.send(Puback(first + 3))
            plane.until(lambda: plane.engine.bridges()[0]["pending"] == 0)
            remote.close()
            assert [linked(plane).event for _ in range(2)] == ["up", "down"]
        reload(plane, {**link, "keepalive_s": 61})
        remote = Remote(plane, level=level)
        remote.accept_connect()
        assert pids_of(remote, 3) == [("publish", 1), ("subscribe", 2), ("unsubscribe", 3)]


def test_queued_messages_keep_their_packet_ids_over_a_reload() -> None:
    link = spec(line("a", "both", 1))
    with Plane(bridges=[link], allow_anonymous=True) as plane:
        wire = client(plane)
        for _ in range(3):
            publish(wire, "a", b"x", 1)
        reload(plane, {**link, "keepalive_s": 61})
        remote = Remote(plane)
        remote.accept_connect()
        assert pids_of(remote, 4) == [("subscribe", 4), ("publish", 1), ("publish", 2), ("publish", 3)]
        publish(wire, "a", b"x", 1)
        assert pids_of(remote, 1) == [("publish", 5)]
        for pid in (5, 2, 1, 3):        # also across the gap
            remote.send(Puback(pid))
        plane.until(lambda: plane.engine.bridges()[0]["pending"] == 0)


def test_each_suback_is_of_its_line_in_any_order() -> None:
    with Plane(bridges=[spec(*(line(f"t/{i}", "in", 1) for i in range(5)))], allow_anonymous=True) as plane:
        remote = Remote(plane)
        remote.accept_connect()
        pids = [remote.hears("subscribe")["pid"] for _ in range(5)]
        for i in (3, 0, 4, 1, 2):
            remote.send(Suback(pids[i], (0x80,)))
            plane.until(lambda i=i: f"Warning: Bridge b: the remote broker refused the subscription to t/{i} (128)." in plane.lines)
        remote.send(Suback(pids[0], (0x80,)), Suback(60_000, (0x80,)))       # no line waits for them
        plane.stats()
        assert sum("refused the subscription" in text for text in plane.lines) == 5


@LEVELS
def test_messages_queued_for_an_offline_bridge_are_sent_in_order(level: int) -> None:
    with Plane(bridges=[spec(line("#", "out", 1), version=level)], allow_anonymous=True) as plane:
        wire = client(plane)
        for n in range(30):
            wire.send(Publish("t", b"%d" % n, 1, n + 1))
            wire.read_packet()
        remote = up(plane, level)
        for n in range(30):
            got = remote.hears("publish")
            assert (got["payload"], got["dup"]) == (b"%d" % n, 0)
            remote.send(Puback(got["pid"]))


@pytest.mark.parametrize("present", [False, True])
def test_outgoing_qos_2_after_a_lost_connection(present: bool) -> None:
    with Plane(bridges=[spec(line("#", "out", 2))], allow_anonymous=True) as plane:
        wire = client(plane)
        remote = up(plane)
        for n in range(3):
            wire.send(Publish("t", b"%d" % n, 2, n + 1))
            wire.read_packet()
            wire.send(Pubrel(n + 1))
            wire.read_packet()
        first, second, third = (remote.hears("publish") for _ in range(3))
        remote.send(Pubrec(first["pid"]))
        assert remote.hears("pubrel")["pid"] == first["pid"]
        remote.close()
        assert linked(plane).event == "down"
        remote = up(plane, present=present)
        assert remote.hears("pubrel")["pid"] == first["pid"]       # also if the remote broker has forgotten the session
        remote.send(Pubcomp(first["pid"]))
        for old in (second, third):
            got = remote.hears("publish")
            assert (got["payload"], got["pid"], got["dup"]) == (old["payload"], old["pid"], 1)
        for old in (second, third):
            remote.send(Pubrec(old["pid"]))
            assert remote.hears("pubrel")["pid"] == old["pid"]
            remote.send(Pubcomp(old["pid"]))
        plane.until(lambda: plane.engine.bridges()[0]["pending"] == 0)


@pytest.mark.parametrize("present", [False, True])
def test_incoming_qos_2_arrives_once_after_a_lost_connection(present: bool) -> None:
    with Plane(bridges=[spec(line("#", "in", 2))], allow_anonymous=True) as plane:
        wire = client(plane, ("#", 2))
        remote = up(plane, n_in=1)
        remote.send(Publish("t", b"x", 2, 9))
        remote.hears("pubrec")
        remote.close()
        assert linked(plane).event == "down"
        remote = Remote(plane)
        remote.accept_connect(present)
        if present:
            remote.send(Publish("t", b"x", 2, 9, dup=True))
            assert remote.hears("pubrec")["pid"] == 9
            remote.send(Pubrel(9))
            assert remote.hears("pubcomp")["pid"] == 9
        else:
            remote.grant()
            remote.send(Publish("t", b"other", 2, 9))
            assert remote.hears("pubrec")["pid"] == 9
        got = wire.read_packet()
        assert isinstance(got, Publish)
        assert got.payload == b"x"
        assert isinstance(got.mid, int)
        wire.send(Pubrec(got.mid))
        wire.read_packet()
        wire.expect_nothing()


# ---------------------------------------------------------------- negotiated limits


def publish(wire: Wire, topic: str, payload: bytes = b"", qos: int = 0, retain: bool = False) -> None:
    """Publish a message; return when the broker has handled it."""
    wire.send(Publish(topic, payload, qos, 77 if qos else 0, retain))
    if qos == 2:
        wire.read_packet()
        wire.send(Pubrel(77))
    if qos:
        wire.read_packet()


def test_limits_of_the_remote_broker_lower_qos_and_retain() -> None:
    with Plane(bridges=[spec(line("#", "both", 2), version=5)], allow_anonymous=True) as plane:
        wire = client(plane)
        publish(wire, "before", b"x", 2)
        remote = Remote(plane, level=5)
        remote.accept_connect(props=((36, 1), (37, 0)))
        assert remote.grant() == [("#", 1 | 0x0C)]
        publish(wire, "after", b"y", 2, retain=True)
        for topic in (b"before", b"after"):
            got = remote.hears("publish")
            assert (got["topic"], got["qos"], got["retain"]) == (topic, 1, 0)
            remote.send(Puback(got["pid"]))
        plane.until(lambda: plane.engine.bridges()[0]["pending"] == 0)


def test_the_window_of_the_remote_broker() -> None:
    with Plane(bridges=[spec(line("#", "out", 1), version=5)], allow_anonymous=True) as plane:
        wire = client(plane)
        for n in range(5):
            publish(wire, "t", b"%d" % n, 1)
        remote = up(plane, 5, props=((33, 2),))
        pids = [remote.hears("publish")["pid"] for _ in range(2)]
        plane.stats()
        with pytest.raises(TimeoutError):
            remote.read_frame(0)
        remote.send(Puback(pids[0]))
        assert remote.hears("publish")["payload"] == b"2"


def test_messages_too_large_for_either_side_are_dropped() -> None:
    with Plane(bridges=[spec(line("#", "out", 1), version=5, packet_max=200)], allow_anonymous=True) as plane:
        remote = up(plane, 5, props=((39, 100),))
        wire = client(plane)
        for size in (150, 250, 10):
            publish(wire, "t", b"x" * size, 1)
        assert len(remote.hears("publish")["payload"]) == 10
        assert plane.stats()["drops_packet_size"] == 2


def test_topic_aliases_in_both_directions() -> None:
    with Plane(bridges=[spec(line("#", "both", 0, "l/", "r/"), version=5, topic_alias_max=1)], allow_anonymous=True) as plane:
        remote = up(plane, 5, n_in=1, props=((34, 10),))
        wire = client(plane, ("#", 0))
        for topic in ("l/a", "l/a", "l/b"):
            publish(wire, topic, b"x", 1)
        got = [remote.hears("publish") for _ in range(3)]
        assert [(each["topic"], each["props"].get(35)) for each in got] == [(b"r/a", 1), (b"", 1), (b"r/b", None)]
        for _ in range(3):
            wire.read_packet()
        remote.send(Publish("r/c", b"1", props=((35, 1),)), Publish("", b"2", props=((35, 1),)))
        for payload in (b"1", b"2"):
            incoming = wire.read_packet()
            assert isinstance(incoming, Publish)
            assert (incoming.topic, incoming.payload) == ("l/c", payload)


def test_outgoing_retain_off() -> None:
    with Plane(bridges=[spec(line("#", "out", 0), outgoing_retain=False, notifications=True)], allow_anonymous=True) as plane:
        wire = client(plane)
        publish(wire, "kept", b"x", 1, retain=True)
        remote = Remote(plane)
        assert remote.accept_connect()["will_retain"] == 0
        notice, kept = remote.hears("publish"), remote.hears("publish")
        assert (notice["retain"], kept["topic"], kept["retain"]) == (0, b"kept", 0)
        publish(wire, "kept", b"y", 1, retain=True)
        assert remote.hears("publish")["retain"] == 0


# ---------------------------------------------------------------- retained messages


def test_local_retained_messages_are_sent_once() -> None:
    with Plane(bridges=[spec(line("a/#", "both", 1))], allow_anonymous=True) as plane:
        wire = client(plane)
        publish(wire, "a/ours", b"x", 1, retain=True)
        remote = up(plane, n_in=1)
        remote.send(Publish("a/theirs", b"y", 1, 3, retain=True))
        assert sorted(remote.heard()[0] for _ in range(2)) == ["puback", "publish"]
        remote.send(Puback(1))
        plane.until(lambda: plane.engine.bridges()[0]["pending"] == 0)
        remote.close()
        assert linked(plane).event == "down"
        remote = up(plane, n_in=1)           # the remote broker lost its session: retained messages are sent again
        again = remote.hears("publish")
        assert again["topic"] == b"a/ours"
        remote.send(Puback(again["pid"]))
        remote.close()
        linked(plane)
        remote = up(plane, present=True)     # the session is present: nothing is sent or requested twice
        publish(wire, "a/new", b"z", 1)
        assert remote.hears("publish")["topic"] == b"a/new"


# ---------------------------------------------------------------- notices


@LEVELS
def test_notifications_in_both_brokers(level: int) -> None:
    topic = "$SYS/broker/connection/remote.b/state"
    with Plane(bridges=[spec(version=level, notifications=True)], allow_anonymous=True) as plane:
        wire = client(plane, ("$SYS/broker/connection/#", 1))
        assert wire.read_packet() == Publish(topic, b"0", 1, 1, retain=True)
        remote = Remote(plane, level=level)
        assert remote.accept_connect()["will"] == 1
        got = remote.hears("publish")
        assert (got["topic"], got["payload"], got["qos"], got["retain"]) == (topic.encode(), b"1", 1, 1)
        remote.send(Puback(got["pid"]))
        assert linked(plane).event == "up"
        incoming = wire.read_packet()
        assert isinstance(incoming, Publish)
        assert incoming.payload == b"1"
        plane.engine.bridge("b", "close")
        if level == 5:
            assert remote.hears("disconnect")["rc"] == 4         # 4: with will; 0 would drop our will
        assert remote.heard()[0] == "closed"                     # in 3.x a DISCONNECT would drop the will
        assert linked(plane) == BridgeEvent("b", "down", "closed")
        incoming = wire.read_packet()
        assert isinstance(incoming, Publish)
        assert incoming.payload == b"0"


def test_notifications_in_the_local_broker_only() -> None:
    with Plane(bridges=[spec(notifications=True, notifications_local_only=True, notification_topic="state/of/it")], allow_anonymous=True) as plane:
        wire = client(plane, ("state/#", 0))
        wire.read_packet()
        remote = Remote(plane)
        assert remote.accept_connect()["will"] == 0
        assert linked(plane).event == "up"
        assert wire.read_packet() == Publish("state/of/it", b"1")
        plane.engine.bridge("b", "close")
        assert remote.heard()[0] == "disconnect"
        assert wire.read_packet() == Publish("state/of/it", b"0")


# ---------------------------------------------------------------- the connection


def test_a_remote_broker_that_stops_answering_pings() -> None:
    with Plane(bridges=[spec(keepalive_s=1)], allow_anonymous=True) as plane:
        remote = up(plane)
        remote.hears("pingreq")
        remote.send(b"\xd0\x00")
        remote.hears("pingreq")
        assert linked(plane) == BridgeEvent("b", "down", "exceeded timeout")


def test_a_remote_broker_that_never_sends_connack() -> None:
    with Plane(bridges=[spec(connect_timeout_ms=100)], allow_anonymous=True) as plane:
        remote = Remote(plane)
        remote.hears("connect")
        assert linked(plane) == BridgeEvent("b", "down", "exceeded timeout")


@pytest.mark.parametrize(("level", "raw"), [
    (4, b"\x30\x03\x00\x01a"), (4, b"\x20\x02\x02\x00"), (4, b"\x20\x03\x00\x06\x00"), (5, b"\x20\x03\x01\x80\x00"), (4, b"\xd0\x00"),
    (5, b"\x20\x06\x00\x00\x03\x21\x00\x00"), (4, b"\x10\x00"),
])
def test_invalid_bytes_in_place_of_connack(level: int, raw: bytes) -> None:
    with Plane(bridges=[spec(line("#", "in"), version=level)], allow_anonymous=True) as plane:
        remote = Remote(plane, level=level)
        remote.hears("connect")
        remote.send(raw)
        assert linked(plane).event == "down"
        assert remote.heard()[0] == "closed"


@pytest.mark.parametrize("raw", [b"\x90\x00", b"\x82\x06\x00\x01\x00\x01a\x00", b"\xc0\x01a", b"\xe0\x00", b"\x10\x00", b"\xf0\x00", b"\x00\x00",
                                 b"\x40\x02\x00\x00", b"\x30\x01a"])
def test_invalid_bytes_on_an_open_connection(raw: bytes) -> None:
    with Plane(bridges=[spec(line("#", "in"))], allow_anonymous=True) as plane:
        remote = up(plane, n_in=1)
        remote.send(raw)
        assert linked(plane).event == "down"
        up(plane, n_in=1)


@LEVELS
def test_a_pingreq_of_the_remote_broker_is_answered(level: int) -> None:
    with Plane(bridges=[spec(version=level)], allow_anonymous=True) as plane:
        remote = up(plane, level)
        remote.send(b"\xc0\x00")
        assert remote.read_frame() == b"\xd0\x00"


@pytest.mark.parametrize(("raw", "answer"), [(b"\x32\x0c\x00\x06++++++\x00\x04\x00x", None), (b"\x36\x06\x00\x01t\x00\x01\x00", None),
                                             (b"\x82\x00", b"\xe0\x01\x82")])
def test_a_malformed_packet_ends_the_connection_without_disconnect(raw: bytes, answer: bytes | None) -> None:
    with Plane(bridges=[spec(line("#", "in", 1), version=5)], allow_anonymous=True) as plane:
        remote = up(plane, 5, n_in=1)
        remote.send(raw)
        assert remote.read_frame() == answer
        assert linked(plane).event == "down"


def test_a_disconnect_of_the_remote_broker() -> None:
    with Plane(bridges=[spec(version=5)], allow_anonymous=True) as plane:
        remote = up(plane, 5)
        remote.send(b"\xe0\x01\x8b")
        assert linked(plane).event == "down"
        plane.look(0)
        assert "Bridge b: the remote broker ended the connection (reason code 139)." in plane.lines


def test_a_failure_code_in_an_acknowledgement_ends_nothing() -> None:
    with Plane(bridges=[spec(line("#", "out", 1), version=5)], allow_anonymous=True) as plane:
        remote = up(plane, 5)
        wire = client(plane)
        publish(wire, "a", b"x", 1)
        remote.send(Puback(remote.hears("publish")["pid"], 0x95))
        publish(wire, "b", b"x", 1)
        assert remote.hears("publish")["topic"] == b"b"


def test_no_client_takes_the_session_of_a_bridge() -> None:
    with Plane(bridges=[spec(line("#", "out"))], allow_anonymous=True) as plane:
        up(plane)
        wire = plane.connect(Connect("local.b"))
        got = wire.read_packet()
        assert isinstance(got, Connack)
        assert got.rc == 2
        assert plane.engine.bridges()[0]["state"] == "up"


def test_invalid_bridge_commands_are_refused() -> None:
    with Plane(bridges=[spec()], allow_anonymous=True) as plane:
        with pytest.raises(KeyError):
            plane.engine.bridge("other", "close")
        plane.engine.bridge("b", "close")
        up(plane)
        with pytest.raises(OSError, match="already"):
            Remote(plane)
        with pytest.raises(ValueError, match="address"):
            plane.engine.bridge("b", "connect")


def test_unsubscribe_from_outgoing_topics_only() -> None:
    with Plane(bridges=[spec(line("a", "out"), line("b", "in"), line("b", "out"), attempt_unsubscribe=True)], allow_anonymous=True) as plane:
        remote = Remote(plane)
        remote.accept_connect()
        assert [item.decode() for item in remote.hears("unsubscribe")["items"]] == ["a"]
        remote.grant()
        assert linked(plane).event == "up"
        plane.stats()
        with pytest.raises(TimeoutError):
            remote.read_frame(0)


def test_a_refused_subscription_is_logged() -> None:
    with Plane(bridges=[spec(line("a", "in"))], allow_anonymous=True) as plane:
        remote = Remote(plane)
        remote.accept_connect()
        fields = remote.hears("subscribe")
        remote.send(Suback(fields["pid"], (0x80,)))
        plane.until(lambda: "Warning: Bridge b: the remote broker refused the subscription to a (128)." in plane.lines)


# ---------------------------------------------------------------- lazy bridges, clean sessions


def test_a_lazy_bridge_connects_at_its_threshold_and_becomes_idle() -> None:
    with Plane(bridges=[spec(line("#", "out", 0), threshold=3, idle_ms=50)], allow_anonymous=True) as plane:
        wire = client(plane)
        for n in range(5):
            publish(wire, "t", b"%d" % n)
        assert linked(plane).event == "wanted"
        remote = up(plane)
        assert [remote.hears("publish")["payload"] for _ in range(5)] == [b"%d" % n for n in range(5)]
        assert linked(plane).event == "idle"
        plane.engine.bridge("b", "close")
        assert linked(plane).event == "down"
        for _ in range(3):
            publish(wire, "t")
        assert linked(plane).event == "wanted"


def test_local_clean_queues_nothing_for_an_offline_bridge() -> None:
    with Plane(bridges=[spec(line("#", "both", 1), local_clean=True)], allow_anonymous=True) as plane:
        wire = client(plane)
        publish(wire, "t", b"before", 1)
        remote = up(plane, n_in=1)
        publish(wire, "t", b"up", 1)
        assert remote.hears("publish")["payload"] == b"up"
        remote.close()
        assert linked(plane).event == "down"
        publish(wire, "t", b"down", 1)
        assert plane.engine.bridges()[0]["pending"] == 0
        remote = up(plane, present=True)
        publish(wire, "t", b"again", 1)
        assert remote.hears("publish")["payload"] == b"again"


# ---------------------------------------------------------------- a new configuration


def reload(plane: Plane, *links: dict) -> None:
    plane.engine.reload(plane.settings, plane.listeners, plane.securities, list(links))


def test_a_reload_changes_a_bridge_lazily_or_at_once() -> None:
    with Plane(bridges=[spec(line("a", "both", 1))], allow_anonymous=True) as plane:
        wire = client(plane)
        remote = up(plane, n_in=1)
        reload(plane, spec(line("b", "both", 1)))
        publish(wire, "a", b"1", 1)
        assert remote.hears("publish")["topic"] == b"a"
        remote.close()
        assert linked(plane).event == "down"
        publish(wire, "b", b"2", 1)
        remote = Remote(plane)
        remote.accept_connect(present=True)
        assert remote.grant() == [("b", 1)]
        assert [item.decode() for item in remote.hears("unsubscribe")["items"]] == ["a"]
        assert sorted(remote.hears("publish")["topic"] for _ in range(2)) == [b"a", b"b"]
        linked(plane)
        reload(plane, spec(line("b", "both", 1), reload_lazy=False))
        assert linked(plane).event == "down"


def test_a_reload_adds_and_removes_bridges() -> None:
    with Plane(allow_anonymous=True) as plane:
        assert plane.engine.bridges() == []
        reload(plane, spec(line("#", "out", 1)), spec(name="other"))
        assert [each["name"] for each in plane.engine.bridges()] == ["b", "other"]
        wire = client(plane)
        publish(wire, "t", b"x", 1)
        remote = up(plane)
        assert remote.hears("publish")["topic"] == b"t"
        reload(plane, spec(name="other"))
        assert remote.heard()[0] == "disconnect"
        assert [each["name"] for each in plane.engine.bridges()] == ["other"]
        got = plane.connect(Connect("local.b")).read_packet()
        assert isinstance(got, Connack)
        assert got.rc == 0
        reload(plane)
        assert plane.engine.bridges() == []


@pytest.mark.parametrize(("link", "says"), [
    (spec(line("a/#/b", "out")), "not a topic filter for this broker"),
    (spec(line("#", "in", 0, "l/", "r+/")), "not a topic filter for the remote"),
    (spec(version=6), "version"), (spec(keepalive_s=70000), "keepalive_s"), (spec(bind="nowhere"), "bind"),
    (spec(notifications=True, notification_topic="a/#"), "no topic for notifications"), (spec(local_clientid=""), "local_clientid"),
])
def test_invalid_bridges_are_refused(link: dict, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Plane(bridges=[link])
    with Plane(bridges=[spec()]) as plane:
        with pytest.raises(ValueError, match=says):
            reload(plane, link)
        assert plane.engine.bridges()[0]["name"] == "b"
