"""Test the handling of $CONTROL: a message on a topic of the control plane is passed on, and the answer reaches the client."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from mosq.server.admin import control
from mosq.server.admin.control import Requester, ControlTopics
from mosq.records import AccessAnswer, ClientNotice, CommandAnswer, CommandRequest, KickCommand, PublishCommand
from tests.harness.packets import Connect, Pingreq, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe
from tests.harness.plane import Plane
from tests.harness.properties import P

if TYPE_CHECKING:
    from mosq.server.admin.control import Work

TOPIC, ANSWER = "$CONTROL/test/v1", "$CONTROL/test/v1/response"
OWN = "$CONTROL/mosq/test/v1"
SETTINGS = {"control_topics": (TOPIC, OWN)}
RULES = [("ann", "topic", "write", TOPIC), (None, "topic", "readwrite", "#")]


@pytest.fixture
def plane() -> Iterator[Plane]:
    with Plane(settings=SETTINGS, allow_anonymous=True) as made:
        yield made


@pytest.mark.parametrize("level", [3, 4, 5])
def test_a_request_is_answered_to_its_client_only(plane: Plane, level: int) -> None:
    other = plane.user("other")
    other.send(Subscribe(1, (("$CONTROL/#", 0),)))
    other.expect_packet(Suback(1, (0,)))
    wire = plane.user("c", level=level)
    wire.send(Publish(TOPIC, b"question", 1, 7, retain=True))
    wire.expect_packet(Puback(7))
    asked = plane.ask("control")
    assert asked == CommandRequest(asked.handle, 0, "c", "ann", "127.0.0.1", TOPIC, b"question", None)
    plane.answer(CommandAnswer(asked.handle, [(ANSWER, b"1"), (ANSWER, b"")]))
    wire.expect_packet(Publish(ANSWER, b"1"))
    wire.expect_packet(Publish(ANSWER, b""))
    wire.expect_nothing()
    other.expect_nothing()
    assert plane.stats()["retained"] == 0


def test_correlation_data_is_returned(plane: Plane) -> None:
    wire = plane.user("c", level=5)
    wire.send(Publish(TOPIC, b"q", props=((P.CORRELATION, b"id"), (P.USER, ("a", "b")))))
    asked = plane.ask("control")
    plane.answer(CommandAnswer(asked.handle, [(ANSWER, b"a")], asked.correlation))
    wire.expect_packet(Publish(ANSWER, b"a", props=((P.CORRELATION, b"id"),)))


@pytest.mark.parametrize("level", [4, 5])
def test_a_request_at_qos_2_is_handed_over_once(plane: Plane, level: int) -> None:
    wire = plane.user("c", level=level)
    wire.send(Publish(TOPIC, b"q", 2, 7))
    wire.expect_packet(Pubrec(7))
    wire.send(Publish(TOPIC, b"q", 2, 7, dup=True))
    wire.expect_packet(Pubrec(7))
    wire.send(Pubrel(7))
    wire.expect_packet(Pubcomp(7))
    assert plane.ask("control").payload == b"q"
    plane.asks_nothing()


def test_other_control_topics_are_not_handed_over(plane: Plane) -> None:
    """Test as in Mosquitto: a client that may publish learns that there is no subscriber."""
    wire = plane.user("c", level=4)
    for topic in (TOPIC + "/x", TOPIC[:-1], ANSWER, "$CONTROL/", "$CONTROL/" + "x" * 65_517):
        wire.send(Publish(topic, b"q", 1, 7))
        wire.expect_packet(Publish(f"{topic}/response", b'{"error": "endpoint not available"}'))
        wire.expect_packet(Puback(7))
    for topic in ("$CONTROL", "$CONTROLX/y", "$CONTROL/" + "x" * 65_526):
        wire.send(Publish(topic, b"q", 1, 7))
        wire.expect_packet(Puback(7))
    plane.asks_nothing()


def test_late_and_unknown_answers_change_nothing(plane: Plane) -> None:
    wire = plane.user("c")
    wire.send(Publish(TOPIC, b"q", 1, 7))
    wire.expect_packet(Puback(7))
    handle = plane.ask("control").handle
    wire.close()
    plane.until(lambda: plane.stats()["clients_connected"] == 0)
    plane.user("d")
    plane.answer(CommandAnswer(handle, [(ANSWER, b"a")]), CommandAnswer(12345 << 32 | 1, [(ANSWER, b"a")]))
    plane.until(lambda: plane.stats()["answers_stale"] == 2)
    plane.wires[-1].expect_nothing()


@pytest.mark.parametrize(("user", "rc"), [("ann", 0), ("bob", 0x87)])
def test_acl_rules_decide_about_requests(user: str, rc: int) -> None:
    """Test that `#` does not include $CONTROL."""
    with Plane({"acl": RULES}, settings=SETTINGS, allow_anonymous=True) as plane:
        wire = plane.user("c", user, 5)
        wire.send(Publish(TOPIC, b"q", 1, 7), Publish(OWN, b"q", 1, 8))
        wire.expect_packet(Puback(7, rc))
        wire.expect_packet(Puback(8, 0x87))
        if rc == 0:
            assert plane.ask("control").payload == b"q"
        plane.asks_nothing()


@pytest.mark.parametrize("allowed", [True, False])
def test_a_plugin_decides_about_requests(allowed: bool) -> None:
    with Plane({"authorize": True, "transform_in": ("#", "$CONTROL/#")}, settings=SETTINGS, allow_anonymous=True) as plane:
        wire = plane.user("c", level=5)
        wire.send(Publish(TOPIC, b"q", 1, 7))
        asked = plane.ask("acl")
        assert (asked.access, asked.topic) == (2, TOPIC)
        plane.answer(AccessAnswer(asked.handle, allowed))
        wire.expect_packet(Puback(7, 0 if allowed else 0x87))
        if allowed:
            assert plane.ask("control").payload == b"q"
        plane.asks_nothing()
        assert plane.stats()["publish_in"] == 1


def test_a_reload_changes_the_topics(plane: Plane) -> None:
    wire = plane.user("c", level=5)
    plane.engine.reload({**plane.settings, "control_topics": (ANSWER,)}, plane.listeners, plane.securities)
    wire.send(Publish(ANSWER, b"new", 1, 7), Publish(TOPIC, b"old", 1, 8))
    wire.expect_packet(Puback(7))
    asked = plane.ask("control")
    assert (asked.topic, asked.payload) == (ANSWER, b"new")
    plane.asks_nothing()


@pytest.mark.parametrize("security", [{}, {"authorize": True}])
def test_requests_wait_for_room_in_the_ring(security: dict[str, Any]) -> None:
    """Test a slow control plane: no message is lost, and no other client waits."""
    with Plane(security, settings={**SETTINGS, "max_packet_size": 6 << 20}, allow_anonymous=True) as plane:
        wire, other = plane.user("c", level=4), plane.user("other", level=4)
        wire.send(Publish(TOPIC, b"0", 1, 9))
        if security:
            plane.answer(AccessAnswer(plane.ask("acl").handle, True))
        wire.expect_packet(Puback(9))
        assert plane.ask("control").payload == b"0"
        sending = threading.Thread(target=wire.send, args=[
            Publish(TOPIC, bytes([48 + n]) * size, 1, n) for n, size in enumerate((3 << 20, 3 << 20, 5 << 20, 3), 1)])
        sending.start()          # more than sockets can hold; the broker does not read it
        wire.expect_packet(Puback(1))
        other.send(Pingreq())
        other.expect_packet(Pingresp())
        for n, size in enumerate((3 << 20, 3 << 20, 5 << 20, 3), 1):
            payload = plane.ask("control").payload
            assert (payload[:1], len(payload)) == (b"%d" % n, size)
            if n > 1:
                wire.expect_packet(Puback(n))
        sending.join()
        assert plane.stats()["publish_in"] == 5
        assert plane.stats()["drops_memory"] == 0


def test_a_client_that_waits_for_room_may_disconnect() -> None:
    with Plane(settings={**SETTINGS, "max_packet_size": 6 << 20, "auth_timeout": 1}, allow_anonymous=True) as plane:
        wire, stays = plane.user("c", level=4), plane.user("stays", level=4)
        wire.send(*[Publish(TOPIC, b"1" * (3 << 20), 1, n) for n in (1, 2)])
        wire.expect_packet(Puback(1))
        stays.send(Publish(TOPIC, b"2" * (3 << 20), 1, 3))
        before = plane.stats()["asks_timed_out"]
        while plane.stats()["asks_timed_out"] < before + 2:      # each client tries again
            time.sleep(0.05)
        wire.close()
        while plane.ask("control").payload[:1] == b"1":       # perhaps also the second message of the disconnected client, which had arrived
            pass
        stays.expect_packet(Puback(3))
        plane.until(lambda: plane.stats()["asks_open"] == 0)


@pytest.mark.parametrize("topics", [("$SYS/x",), ("$CONTROL/",), ("a",)])
def test_invalid_control_topics(topics: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="control_topics"):
        Plane(settings={"control_topics": topics})


# ---------------------------------------------------------------- answers

def request(topic: str, payload: bytes) -> CommandRequest:
    return CommandRequest(5, 0, "c", "ann", "::1", topic, payload, b"corr")


def test_the_registry() -> None:
    said: list[tuple[int, str]] = []
    topics = ControlTopics(lambda kind, text: said.append((kind, text)), lambda: None)

    def echo(requester: Requester, payload: bytes) -> list[tuple[str, bytes]]:
        return [(ANSWER, f"{requester.client_id} {requester.username} {requester.address} {requester.security}".encode()), (ANSWER, payload)]

    topics.add(TOPIC, echo)
    topics.add(OWN, echo, private=True)
    with pytest.raises(ValueError, match="already"):
        topics.add(TOPIC, echo)
    with pytest.raises(ValueError, match="no control topic"):
        topics.add("a", echo)
    assert topics.names() == (TOPIC, OWN)
    other = ClientNotice(0, "connected", "c", None, "")
    answers, left = topics.take([request(TOPIC, b"1"), other, request(OWN, b"2"), request(ANSWER, b"3")])
    who = b"c ann ::1 0"
    assert answers == [PublishCommand(ANSWER, who, 0, False), PublishCommand(ANSWER, b"1", 0, False),
                       CommandAnswer(5, [(ANSWER, who), (ANSWER, b"2")], b"corr")]
    assert left == [other]
    assert not said


def test_a_failing_handler_is_logged_without_the_payload() -> None:
    said: list[tuple[int, str]] = []
    topics = ControlTopics(lambda kind, text: said.append((kind, text)), lambda: None)

    def fails(requester: Requester, payload: bytes) -> list[tuple[str, bytes]]:
        raise KeyError(payload)

    topics.add(TOPIC, fails)
    assert topics.take([request(TOPIC, b"secret")]) == ([], [])
    assert said == [(1, f"Error: A request on {TOPIC} could not be answered: KeyError.")]


def test_long_work_is_done_in_slices_and_answered_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr(control, "monotonic", lambda: next(clock) * 0.001)     # a step takes a millisecond
    woken: list[int] = []
    topics = ControlTopics(lambda kind, text: None, lambda: woken.append(1))
    steps = 0

    def long(requester: Requester, payload: bytes) -> Work:
        nonlocal steps
        requester.further_answers.append(KickCommand([payload.decode()]))
        for _ in range(int(payload)):
            steps += 1
            yield True
        return [(ANSWER, payload)]

    topics.add(TOPIC, long)
    topics.add(OWN, lambda requester, payload: [(ANSWER, payload)], private=True)
    assert topics.take([request(TOPIC, b"40"), request(TOPIC, b"2")]) == ([], [])
    assert 0 < steps <= 10
    assert len(woken) == 1
    answers, _ = topics.take([request(OWN, b"between")])        # answered at most one turn later
    answers += topics.take([])[0]
    assert answers == [CommandAnswer(5, [(ANSWER, b"between")], b"corr")]
    turns = 0
    answers = []
    while len(answers) < 4:
        answers += topics.take([])[0]
        turns += 1
    assert answers == [PublishCommand(ANSWER, b"40", 0, False), KickCommand(["40"]), PublishCommand(ANSWER, b"2", 0, False), KickCommand(["2"])]
    assert 1 < turns < 10
    before = len(woken)
    assert topics.take([]) == ([], [])
    assert len(woken) == before


def test_waiting_work_blocks_its_topic_only_and_outlives_a_reload() -> None:
    woken: list[int] = []
    is_ready = False

    def waits(requester: Requester, payload: bytes) -> Work:
        while not is_ready:
            yield False
        return [(ANSWER, payload)]

    def registry() -> ControlTopics:
        topics = ControlTopics(lambda kind, text: None, lambda: woken.append(1))
        topics.add(TOPIC, waits)
        topics.add(OWN, lambda requester, payload: [(ANSWER, payload)], private=True)
        return topics

    old, new = registry(), registry()
    answers, _ = old.take([request(TOPIC, b"1"), request(OWN, b"2"), request(TOPIC, b"3")])
    assert answers == [CommandAnswer(5, [(ANSWER, b"2")], b"corr")]
    assert not woken                    # the awaited answer wakes the loop
    new.take_over(old)
    assert woken
    newer = registry()
    newer.take_over(new)
    is_ready = True
    answers, _ = newer.take([request(TOPIC, b"4")])
    assert answers == [PublishCommand(ANSWER, control.RELOADED, 0, False),     # 3: the client may have lost the right to publish
                       PublishCommand(ANSWER, b"1", 0, False), PublishCommand(ANSWER, b"4", 0, False)]
    assert newer.take([])[0] == []


def test_waiting_requests_of_a_topic_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "LINE_BYTES_MAX", 2 * control.REQUEST_BYTES + 300)
    topics = ControlTopics(lambda kind, text: None, lambda: None)

    def waits(requester: Requester, payload: bytes) -> Work:
        yield False
        return []

    topics.add(TOPIC, waits)
    assert topics.take([request(TOPIC, b"x" * 160), request(TOPIC, b"y" * 40)]) == ([], [])
    [answer] = topics.take([request(TOPIC, b"z")])[0]
    assert isinstance(answer, PublishCommand)
    assert answer.topic == ANSWER
    assert b'"error":"Too many commands at once"' in answer.payload
    assert topics.take([request(TOPIC, b"z")])[0] == []         # the first two are done


def test_requests_without_a_payload_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "LINE_BYTES_MAX", 100 * control.REQUEST_BYTES)
    topics = ControlTopics(lambda kind, text: None, lambda: None)

    def waits(requester: Requester, payload: bytes) -> Work:
        yield False
        return []

    topics.add(TOPIC, waits)
    answers, _ = topics.take([request(TOPIC, b"")] * 1000)
    assert 900 < len(answers) < 1000
    assert {answer.payload for answer in answers} == {control.BUSY}


def test_kicks_of_a_handler_that_fails_later_are_done() -> None:
    topics = ControlTopics(lambda kind, text: None, lambda: None)

    def fails(requester: Requester, payload: bytes) -> Work:
        requester.further_answers.append(KickCommand(["ann"]))
        yield True
        raise KeyError(payload)

    topics.add(TOPIC, fails)
    assert topics.take([request(TOPIC, b"1")])[0] == [KickCommand(["ann"])]


def test_a_client_without_connect_cannot_send_a_request(plane: Plane) -> None:
    wire = plane.wire()
    wire.send(Publish(TOPIC, b"q"))
    wire.expect_closed()
    plane.asks_nothing()
    plane.connect(Connect("x"))
