"""Test a plugin that authorizes topics and changes messages: some packets wait for its answer, others proceed, and answers
may be late."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.packets import Connect, Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe, Unsuback, Unsubscribe, Will
from tests.harness.plane import Plane
from tests.harness.properties import P
from tests.harness.wire import Wire
from mosq.records import AccessAnswer, ClientNotice, Content, LogLine, MessageAnswer, MessageRequest, PublishCommand

READ, WRITE, SUBSCRIBE, UNSUBSCRIBE = 1, 2, 4, 8
PLUGIN = {"authorize": True}


@pytest.fixture
def plane() -> Iterator[Plane]:
    with Plane(PLUGIN, settings={"auth_timeout": 5}, allow_anonymous=True) as made:
        yield made


def verdict(plane: Plane, allowed: bool | None, access: int, topic: str, client_id: str | None = None) -> tuple[Any, ...]:
    """Answer the next auth request; it must ask about this access and topic."""
    asked = plane.ask("acl")
    assert (asked.access, asked.topic) == (access, topic)
    assert client_id in (None, asked.client_id)
    plane.answer(AccessAnswer(asked.handle, allowed))
    return asked


def subscriber(plane: Plane, client_id: str, *filters: str, qos: int = 1, level: int = 4, clean: bool = True) -> Wire:
    wire = plane.user(client_id, level=level, clean=clean)
    wire.send(Subscribe(1, tuple((text, qos) for text in filters)))
    for text in filters:
        verdict(plane, True, SUBSCRIBE, text, client_id)
    wire.expect_packet(Suback(1, (qos,) * len(filters)))
    return wire


def publisher(plane: Plane, *topics: str, level: int = 4) -> Wire:
    """Connect a client that may publish to these topics."""
    wire = plane.user("pub", level=level)
    for n, topic in enumerate(topics):
        wire.send(Publish(topic, b"", 1, 100 + n))
        verdict(plane, True, WRITE, topic, "pub")
        assert isinstance(wire.read_packet(), Puback)
    return wire


@pytest.mark.parametrize(("level", "allowed", "rc"), [(4, True, 0), (4, False, 0), (5, False, 0x87), (5, True, 0x10)])
def test_publish(plane: Plane, level: int, allowed: bool, rc: int) -> None:
    wire = plane.user("c", level=level)
    wire.send(Publish("a/b", b"hello", 1, 7, retain=True))
    asked = verdict(plane, allowed, WRITE, "a/b")
    assert (asked.security, asked.client_id, asked.username, asked.address) == (0, "c", "ann", "127.0.0.1")
    assert (asked.qos, asked.retain, asked.payload) == (1, True, None)
    got = wire.read_packet()
    assert isinstance(got, Puback)
    assert (got.mid, got.rc) == (7, rc)
    wire.send(Publish("a/b", b"again", 1, 8))  # the verdict is cached now
    got = wire.read_packet()
    assert isinstance(got, Puback)
    assert (got.mid, got.rc) == (8, rc)
    plane.asks_nothing()
    assert plane.stats()["retained"] == allowed
    assert plane.stats()["publish_in"] == 2
    assert plane.stats()["drops_acl_write"] == (0 if allowed else 2)


def test_a_request_delays_only_its_own_client(plane: Plane) -> None:
    one, other = plane.user("one"), plane.user("other")
    one.send(Publish("t", b"", 1, 1), Publish("t", b"", 1, 2))
    first = plane.ask()
    other.send(Publish("u", b"", 1, 9))
    verdict(plane, True, WRITE, "u", "other")
    other.expect_packet(Puback(9))
    other.expect_nothing()
    plane.answer(AccessAnswer(first.handle, True))
    one.expect_packet(Puback(1))
    one.expect_packet(Puback(2))


def test_qos2(plane: Plane) -> None:
    wire = plane.user("c", level=5)
    wire.send(Publish("t", b"x", 2, 1))
    verdict(plane, True, WRITE, "t")
    wire.expect_packet(Pubrec(1))
    wire.send(Pubrel(1))
    wire.expect_packet(Pubcomp(1))
    wire.send(Publish("u", b"x", 2, 2))
    verdict(plane, False, WRITE, "u")
    wire.expect_packet(Pubrec(2, 0x87))


def test_a_missing_answer_denies(plane: Plane) -> None:
    with Plane(PLUGIN, settings={"auth_timeout": 1}, allow_anonymous=True) as plane:
        wire = plane.user("c", level=5)
        wire.send(Publish("t", b"", 1, 1))
        late = plane.ask()
        wire.expect_packet(Puback(1, 0x87))
        plane.answer(AccessAnswer(late.handle, True))
        plane.until(lambda: plane.stats()["answers_stale"] == 1)
        wire.send(Publish("t", b"", 1, 2))  # the broker asks again
        verdict(plane, True, WRITE, "t")
        wire.expect_packet(Puback(2, 0x10))


def test_an_undecided_answer_leaves_the_decision_to_the_rules() -> None:
    with Plane({"authorize": True, "acl": [("ann", "topic", "write", "mine/#")]}, allow_anonymous=True) as plane:
        wire = plane.user("c", level=5)
        for n, (topic, rc) in enumerate([("mine/x", 0x10), ("other", 0x87)]):
            wire.send(Publish(topic, b"", 1, n + 1))
            verdict(plane, None, WRITE, topic)
            wire.expect_packet(Puback(n + 1, rc))


def test_an_undecided_answer_without_rules_denies(plane: Plane) -> None:
    wire = plane.user("c", level=5)
    wire.send(Publish("t", b"", 1, 1))
    verdict(plane, None, WRITE, "t")
    wire.expect_packet(Puback(1, 0x87))


def test_client_resets_during_a_publish_request(plane: Plane) -> None:
    wire = plane.user("c")
    wire.send(Publish("t", b"", 1, 1))
    asked = plane.ask()
    wire.reset()
    plane.until(lambda: plane.stats()["pool_used"] == 0)
    plane.answer(AccessAnswer(asked.handle, True))
    plane.until(lambda: plane.stats()["asks_open"] == 0)
    assert plane.stats()["publish_in"] == 0


def test_more_topics_than_remembered_verdicts(plane: Plane) -> None:
    wire = plane.user("c")
    for n in range(300):
        wire.send(Publish(f"t/{n}", b"", 1, n + 1))
        verdict(plane, True, WRITE, f"t/{n}")
        wire.expect_packet(Puback(n + 1))
    long = "x" * 2000  # too long for the cache: the broker asks each time
    for n in (1, 2):
        wire.send(Publish(long, b"", 1, n))
        verdict(plane, True, WRITE, long)
        wire.expect_packet(Puback(n))


def test_large_payload_waits_too(plane: Plane) -> None:
    watcher = subscriber(plane, "s", "big", qos=0)
    wire = plane.user("c")
    wire.send(Publish("big", b"y" * 300_000, 1, 1))
    verdict(plane, True, WRITE, "big")
    wire.expect_packet(Puback(1))
    verdict(plane, True, READ, "big", "s")
    watcher.expect_packet(Publish("big", b"y" * 300_000))


# ---------------------------------------------------------------- SUBSCRIBE, UNSUBSCRIBE

def test_each_filter_causes_a_request(plane: Plane) -> None:
    wire = plane.user("c", level=5)
    wire.send(Subscribe(5, (("a", 0), ("b/#", 1), ("$share/g/c", 2))))
    one, two, three = plane.asks(3)
    assert [x.topic for x in (one, two, three)] == ["a", "b/#", "c"]
    assert [x.qos for x in (one, two, three)] == [0, 1, 2]
    plane.answer(AccessAnswer(three.handle, True))
    plane.answer(AccessAnswer(one.handle, True), AccessAnswer(two.handle, False))
    wire.expect_packet(Suback(5, (0, 0x87, 2)))
    wire.send(Subscribe(6, (("b/#", 1),)))
    wire.expect_packet(Suback(6, (0x87,)))
    plane.asks_nothing()
    assert plane.stats()["subscriptions"] + plane.stats()["shared_subscriptions"] == 2


def test_unsubscribe(plane: Plane) -> None:
    wire = subscriber(plane, "c", "a", "b", level=5)
    wire.send(Unsubscribe(6, ("a", "b", "none")))
    for topic, allowed in (("a", True), ("b", False), ("none", True)):
        verdict(plane, allowed, UNSUBSCRIBE, topic)
    wire.expect_packet(Unsuback(6, (0, 0x87, 0x11)))
    assert plane.stats()["subscriptions"] == 1


def test_very_many_filters(plane: Plane) -> None:
    wire = plane.user("c")
    wire.send(Subscribe(1, tuple((f"f/{n}", 0) for n in range(500))))
    for n in range(500):
        verdict(plane, n % 5 != 0, SUBSCRIBE, f"f/{n}")
    wire.expect_packet(Suback(1, tuple(0x80 if n % 5 == 0 else 0 for n in range(500))))
    assert plane.stats()["asked"] == 500


def test_client_resets_during_subscribe_requests(plane: Plane) -> None:
    wire = plane.user("c")
    wire.send(Subscribe(1, (("a", 0), ("b", 0))))
    one, two = plane.asks(2)
    plane.answer(AccessAnswer(one.handle, True))
    wire.reset()
    plane.until(lambda: plane.stats()["pool_used"] == 0)
    plane.answer(AccessAnswer(two.handle, True))
    plane.until(lambda: plane.stats()["asks_open"] == 0)
    assert plane.stats()["subscriptions"] == 0


def test_an_invalid_filter_among_pending_requests(plane: Plane) -> None:
    wire = plane.user("c", level=5)
    wire.send(Subscribe(1, (("a", 0), ("a#", 0))))
    verdict(plane, True, SUBSCRIBE, "a")
    got = wire.read_packet()
    assert isinstance(got, Disconnect)
    assert got.rc == 0x81


# ---------------------------------------------------------------- deliveries

def test_delivery_waits_in_order(plane: Plane) -> None:
    """Test that the broker asks once for each topic. An allowed message waits for earlier ones to its client; other
    clients do not wait."""
    wire = publisher(plane, *"xyz")
    watcher, other = subscriber(plane, "s", "#"), subscriber(plane, "o", "#", qos=0)
    wire.send(*(Publish(topic, b"%d" % n, 1, n + 1) for n, topic in enumerate("xyxzyx")))
    seen: dict[str, Any] = {}
    for asked in plane.asks(6):
        assert asked.access == READ
        seen[asked.client_id + asked.topic] = asked
    plane.asks_nothing()
    plane.answer(*(AccessAnswer(seen["o" + topic].handle, True) for topic in "xyz"))
    assert [got.payload for got in (other.read_packet() for _ in range(6)) if isinstance(got, Publish)] == [b"%d" % n for n in range(6)]
    plane.answer(AccessAnswer(seen["sz"].handle, True), AccessAnswer(seen["sy"].handle, False))
    watcher.expect_nothing()
    plane.answer(AccessAnswer(seen["sx"].handle, True))
    for n, topic in ((0, "x"), (2, "x"), (3, "z"), (5, "x")):
        got = watcher.read_packet()
        assert isinstance(got, Publish)
        assert (got.topic, got.payload, got.qos) == (topic, b"%d" % n, 1)
        watcher.send(Puback(got.mid))
    watcher.expect_nothing()
    assert plane.stats()["drops_acl_read"] == 2


def test_the_plugin_gate_is_bounded() -> None:
    with Plane(PLUGIN, settings={"max_queued_messages": 5}, allow_anonymous=True) as plane:
        watcher = subscriber(plane, "s", "t", qos=0)
        wire = publisher(plane, "t")
        asked = plane.ask()
        wire.send(*(Publish("t", b"%d" % n) for n in range(10)))
        wire.expect_nothing()
        assert plane.stats()["drops_queue_messages"] == 6
        plane.answer(AccessAnswer(asked.handle, True))
        assert [watcher.read_packet() for _ in range(5)] == [Publish("t"), *(Publish("t", b"%d" % n) for n in range(4))]


def test_delivery_to_an_offline_session(plane: Plane) -> None:
    subscriber(plane, "s", "t", clean=False).close()
    plane.until(lambda: plane.stats()["clients_connected"] == 0)
    publisher(plane, "t")
    asked = plane.ask()
    assert (asked.client_id, asked.username, asked.address, asked.access) == ("s", "ann", "", READ)
    plane.answer(AccessAnswer(asked.handle, True))
    back = plane.wire()
    back.send(Connect("s", clean=False, username="ann"))
    back.read_packet()
    got = back.read_packet()
    assert isinstance(got, Publish)
    assert got.topic == "t"


def test_another_user_does_not_get_the_session(plane: Plane) -> None:
    """Test that a verdict for the previous user of a session has no effect for its next user."""
    subscriber(plane, "s", "t", clean=False).close()
    plane.until(lambda: plane.stats()["clients_connected"] == 0)
    publisher(plane, "t")
    old = plane.ask()
    back = plane.user("s", "eve", clean=False)
    plane.answer(AccessAnswer(old.handle, True))
    back.expect_nothing()
    plane.asks_nothing()
    plane.until(lambda: plane.stats()["store_messages"] == 0)


def test_queued_messages_are_checked_again_at_resume() -> None:
    """Test that the broker checks queued messages again, as Mosquitto does, because the rules may be other ones."""
    rules = [("ann", "topic", "readwrite", "#")]
    for now, expected in (([("ann", "topic", "readwrite", "t/1")], ["t/1"]), (rules, ["t/0", "t/1", "t/2"])):
        with Plane({"acl": rules}, allow_anonymous=True) as plane:
            watcher = plane.user("s", clean=False)
            watcher.send(Subscribe(1, (("t/#", 1),)))
            watcher.expect_packet(Suback(1, (1,)))
            watcher.close()
            plane.until(lambda: plane.stats()["clients_connected"] == 0)
            wire = plane.user("c")
            wire.send(*(Publish(f"t/{n}", b"", 1, n + 1) for n in range(3)))
            for n in range(3):
                wire.expect_packet(Puback(n + 1))
            plane.engine.reload(plane.settings, plane.listeners, [{"acl": now}])
            back = plane.user("s", clean=False)
            for topic in expected:
                got = back.read_packet()
                assert isinstance(got, Publish)
                assert got.topic == topic
                back.send(Puback(got.mid))
            back.expect_nothing()


def test_session_ends_while_deliveries_wait(plane: Plane) -> None:
    watcher = subscriber(plane, "s", "t")
    publisher(plane, "t")
    asked = plane.ask()
    watcher.close()
    plane.until(lambda: plane.stats()["clients_total"] == 1)
    plane.answer(AccessAnswer(asked.handle, True))
    plane.until(lambda: plane.stats()["asks_open"] == 0)
    assert plane.stats()["store_messages"] == 0


def test_retained_messages_cause_requests(plane: Plane) -> None:
    wire = plane.user("pub")
    for n in range(250):
        wire.send(Publish(f"r/{n}", b"x", 1, n + 1, retain=True))
        verdict(plane, True, WRITE, f"r/{n}")
        wire.expect_packet(Puback(n + 1))
    watcher = plane.user("s")
    watcher.send(Subscribe(1, (("r/#", 0),)))
    verdict(plane, True, SUBSCRIBE, "r/#")
    watcher.expect_packet(Suback(1, (0,)))
    for _ in range(250):
        asked = plane.ask()
        plane.answer(AccessAnswer(asked.handle, not asked.topic.endswith("7")))
    for _ in range(225):
        got = watcher.read_packet()
        assert isinstance(got, Publish)
        assert got.retain
    watcher.expect_nothing()


def test_will(plane: Plane) -> None:
    """Test that the broker asks about the will's topic at CONNECT, so that the verdict is there when the will is
    published."""
    watcher = subscriber(plane, "s", "will/#", qos=0)
    for client_id, allowed in (("no", False), ("yes", True)):
        wire = plane.user(client_id, will=Will(f"will/{client_id}", b"gone"))
        verdict(plane, allowed, WRITE, f"will/{client_id}", client_id)
        plane.until(lambda: plane.stats()["asks_open"] == 0)
        wire.reset()
    verdict(plane, True, READ, "will/yes", "s")
    watcher.expect_packet(Publish("will/yes", b"gone"))
    plane.until(lambda: plane.stats()["drops_acl_write"] == 1)
    plane.asks_nothing()


def test_will_without_a_verdict(plane: Plane) -> None:
    watcher = subscriber(plane, "s", "w", qos=0)
    wire = plane.user("c", will=Will("w", b"gone"))
    at_connect = plane.ask()
    wire.reset()
    asked = plane.ask()
    assert (asked.client_id, asked.access, asked.topic) == ("c", WRITE, "w")
    plane.answer(AccessAnswer(asked.handle, True), AccessAnswer(at_connect.handle, True))
    verdict(plane, True, READ, "w", "s")
    watcher.expect_packet(Publish("w", b"gone"))


def test_reload_forgets_verdicts(plane: Plane) -> None:
    wire = publisher(plane, "t")
    plane.engine.reload(plane.settings, plane.listeners, [PLUGIN])
    wire.send(Publish("t", b"", 1, 1))
    verdict(plane, False, WRITE, "t")
    wire.expect_packet(Puback(1))
    plane.engine.reload(plane.settings, plane.listeners, [{}])
    wire.send(Publish("t", b"", 1, 2))
    wire.expect_packet(Puback(2))
    plane.asks_nothing()


def test_a_verdict_from_before_a_reload_does_not_count(plane: Plane) -> None:
    wire = publisher(plane, "other")
    wire.send(Publish("t", b"", 1, 1))
    handle = plane.ask().handle
    plane.engine.reload(plane.settings, plane.listeners, [PLUGIN])
    plane.answer(AccessAnswer(handle, True))
    verdict(plane, False, WRITE, "t")
    wire.expect_packet(Puback(1))
    wire.send(Publish("t", b"", 1, 2))      # the cache holds the new verdict
    wire.expect_packet(Puback(2))
    plane.asks_nothing()


def test_stop_with_pending_requests(plane: Plane) -> None:
    subscriber(plane, "s", "#")
    subscriber(plane, "off", "#", clean=False).close()
    wire = publisher(plane, "t")
    wire.send(Publish("u", b"", 1, 1))
    plane.user("w", will=Will("w")).send(Subscribe(1, (("x", 0),)))
    plane.ask()


# ---------------------------------------------------------------- changes

def test_message_in() -> None:
    with Plane({"transform_in": ("in/#",)}, allow_anonymous=True) as plane:
        watcher = plane.user("s")
        watcher.send(Subscribe(1, (("#", 2),)))
        watcher.expect_packet(Suback(1, (2,)))
        wire = plane.user("c", level=5)
        wire.send(Publish("plain", b"1", 0))
        watcher.expect_packet(Publish("plain", b"1"))
        wire.send(Publish("in/a", b"raw", 1, 1, props=((P.CONTENT_TYPE, "text"),)), Publish("in/b", b"drop", 1, 2), Publish("in/c", b"same", 2, 3))
        asked = plane.ask()
        assert asked.kind == "message_in"
        assert asked == MessageRequest("message_in", asked.handle, 0, "c", "ann", "in/a", b"raw", 1, False, b"\x03\x00\x04text")
        plane.answer(MessageAnswer("message_in", asked.handle, Content("out/a", b"cooked", 0, False)))
        wire.expect_packet(Puback(1))
        watcher.expect_packet(Publish("out/a", b"cooked"))
        plane.answer(MessageAnswer("message_in", plane.ask().handle, None))
        wire.expect_packet(Puback(2))
        asked = plane.ask()
        plane.answer(MessageAnswer("message_in", asked.handle, Content(asked.topic, asked.payload, asked.qos, asked.retain)))
        wire.expect_packet(Pubrec(3))
        wire.send(Pubrel(3))
        wire.expect_packet(Pubcomp(3))
        got = watcher.read_packet()
        assert isinstance(got, Publish)
        assert (got.topic, got.payload, got.qos) == ("in/c", b"same", 2)
        assert plane.stats()["drops_transform"] == 1


def test_message_in_drops_qos2() -> None:
    with Plane({"transform_in": ("#",)}, allow_anonymous=True) as plane:
        wire = plane.user("c", level=5)
        wire.send(Publish("t", b"x" * 50_000, 2, 1))
        plane.answer(MessageAnswer("message_in", plane.ask().handle, None))
        wire.expect_packet(Pubrec(1))
        wire.send(Pubrel(1))
        wire.expect_packet(Pubcomp(1))
        assert plane.stats()["store_messages"] == 0


@pytest.mark.parametrize(("level", "qos"), [(5, 1), (5, 2), (4, 1), (4, 2)])
def test_a_message_that_no_plugin_decides_about_is_not_accepted(level: int, qos: int) -> None:
    with Plane({"transform_in": ("#",)}, settings={"auth_timeout": 1}, allow_anonymous=True) as plane:
        wire = plane.user("c", level=level)
        wire.send(Publish("t", b"x", qos, 1))
        plane.ask()
        if level == 5:
            wire.expect_packet((Puback if qos == 1 else Pubrec)(1, 0x97))
        else:
            wire.expect_closed()        # the client sends it again
        assert plane.stats()["drops_transform"] == 1


def test_message_in_after_the_verdict() -> None:
    with Plane({"transform_in": ("#",), "authorize": True}, allow_anonymous=True) as plane:
        wire = plane.user("c", level=5)
        wire.send(Publish("no", b"x", 1, 1), Publish("yes", b"x", 1, 2))
        verdict(plane, False, WRITE, "no")
        wire.expect_packet(Puback(1, 0x87))
        verdict(plane, True, WRITE, "yes")
        plane.answer(MessageAnswer("message_in", plane.ask("message_in").handle, Content("yes", b"", 0, False)))
        wire.expect_packet(Puback(2, 0x10))


def test_message_out() -> None:
    with Plane({"transform_out": ("t/#",)}, allow_anonymous=True) as plane:
        watchers = [plane.user(name) for name in ("a", "b")]
        for watcher in watchers:
            watcher.send(Subscribe(1, (("#", 1),)))
            watcher.expect_packet(Suback(1, (1,)))
        wire = plane.user("c")
        wire.send(Publish("t/1", b"raw", 1, 1), Publish("u", b"after", 0))
        for _ in range(2):
            asked = plane.ask("message_out")
            assert (asked.username, asked.topic, asked.payload, asked.qos) == ("ann", "t/1", b"raw", 1)
            content = Content("t/1", b"for " + asked.client_id.encode(), 0, False) if asked.client_id == "a" else None
            plane.answer(MessageAnswer("message_out", asked.handle, content))
        watchers[0].expect_packet(Publish("t/1", b"for a"))
        for watcher in watchers:
            watcher.expect_packet(Publish("u", b"after"))
            watcher.expect_nothing()


# ---------------------------------------------------------------- events

def test_events() -> None:
    with Plane({"events": True}, allow_anonymous=True) as plane:
        wire = plane.user("c", level=5)
        wire.send(Subscribe(1, (("a/#", 0),)))
        wire.read_packet()
        wire.send(Unsubscribe(2, ("a/#", "b")))
        wire.read_packet()
        wire.send(Disconnect())
        assert plane.event("connected") == ClientNotice(0, "connected", "c", "ann", "127.0.0.1")
        assert plane.event("subscribed") == ClientNotice(0, "subscribed", "c", "ann", "a/#")
        assert plane.event("unsubscribed") == ClientNotice(0, "unsubscribed", "c", "ann", "a/#")
        assert plane.event("disconnected") == ClientNotice(0, "disconnected", "c", "ann", "", None, 0x100, False)
        assert not plane.events


def test_the_control_plane_publishes() -> None:
    with Plane({"acl": [("ann", "topic", "read", "$SYS/#")]}, allow_anonymous=True) as plane:
        watcher = plane.user("s", level=5)
        watcher.send(Subscribe(1, (("$SYS/broker/log/#", 2), ("plain", 0))))
        watcher.read_packet()
        plane.answer(PublishCommand("$SYS/broker/log/N", b"a line", 2, False), PublishCommand("plain", b"no right to read", 0, True))
        got = watcher.read_packet()
        assert isinstance(got, Publish)
        assert (got.topic, got.payload, got.qos, got.retain) == ("$SYS/broker/log/N", b"a line", 2, False)
        assert got.props == ((P.EXPIRY, 20),)
        assert plane.stats()["retained"] == 1
        for bad in (PublishCommand("a/+", b"", 0, False), PublishCommand("a", b"", 3, False), LogLine(1, 2, "nonsense")):
            with pytest.raises(ValueError, match="no "):
                plane.engine.answer([bad])


def test_denials_are_logged_at_a_limited_rate() -> None:
    with Plane({"acl": []}, settings={"log_denied_per_second": 3}, allow_anonymous=True) as plane:
        wire = plane.user("c")
        for n in range(10):
            wire.send(Publish("secret/topic", b"payload", 0))
        wire.expect_nothing()
        plane.until(lambda: any("more denials" in line for line in plane.lines))
        denied = [line for line in plane.lines if line.startswith("Denied")]
        assert denied == ["Denied PUBLISH from c (d0, q0, r0, m0, 'secret/topic', ... (7 bytes))"] * 3
        assert "7 more denials were not logged." in plane.lines


def test_rules_of_two_securities() -> None:
    """Test that the rules of a listener apply to its clients, also while the clients are offline."""
    rules = ({"acl": [(None, "topic", "readwrite", "a/#")]}, {"acl": [(None, "topic", "readwrite", "b/#")]})
    with Plane(*rules, allow_anonymous=True) as plane:
        wires = [plane.connect(Connect(f"c{n}", clean=False), security=n) for n in (0, 1)]
        for wire in wires:
            wire.read_packet()
            wire.send(Subscribe(1, (("#", 1),)))
            wire.expect_packet(Suback(1, (1,)))
        wires[1].close()
        plane.until(lambda: plane.stats()["clients_connected"] == 1)
        wires[0].send(Publish("a/1", b"", 0), Publish("b/1", b"", 0))
        wires[0].expect_packet(Publish("a/1"))
        wires[0].expect_nothing()
        other = plane.connect(Connect("d"), security=1)
        other.read_packet()
        other.send(Publish("a/2", b"", 1, 1), Publish("b/2", b"", 1, 2))
        assert [other.read_packet() for _ in range(2)] == [Puback(1), Puback(2)]
        back = plane.connect(Connect("c1", clean=False), security=1)
        back.read_packet()
        got = back.read_packet()
        assert isinstance(got, Publish)
        assert got.topic == "b/2"
        assert plane.stats()["drops_acl_write"] == 2
