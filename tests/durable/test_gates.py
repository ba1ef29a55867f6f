"""Kill the broker while deliveries and wills wait for a plugin: none is lost, none comes twice, and plugins are asked about them again.

A kill is a copy of the store while the broker runs (as_killed): a start finds in it what a kill at that moment would have left.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mosq.records import AccessAnswer, Content, MessageAnswer
from mosq.tools.db import kinds
from mosq.tools.db.read import state_of
from mosq.tools.db.state import State
from mosq.tools.db.store import StoreSource
from tests.durable.test_clean import SEGMENT_BYTES, another_segment, as_killed, fill
from tests.durable.test_restart import FOR_LONG
from tests.harness.broker import free_port
from tests.harness.packets import Connack, Connect, Disconnect, Pingreq, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, Will
from tests.harness.plane import Plane
from tests.harness.wire import Wire

READ, WRITE, SUBSCRIBE = 1, 2, 4
CHANGED = {"transform_out": ("t/#",)}
DECIDED = {"authorize": True}


class Kills:
    """Start one data plane after the other, each on the store that a kill of the one before has left."""

    def __init__(self, folder: Path, security: dict[str, Any], segment_bytes: int = 0) -> None:
        self.folder, self.security, self.segment_bytes, self.n, self.looks, self.port = folder, security, segment_bytes, 0, 0, free_port()

    @property
    def store(self) -> Path:
        return self.folder / f"store{self.n}"

    def start(self) -> Plane:
        return Plane(self.security, store=str(self.store), segment_bytes=self.segment_bytes, allow_anonymous=True,
                     settings={"auth_timeout": 60}, port=self.port)

    def kill(self) -> None:
        before = self.store
        self.n += 1
        as_killed(before, self.store)

    def state(self) -> State:
        self.looks += 1
        return state_of(StoreSource(str(as_killed(self.store, self.folder / f"look{self.looks}"))))[0]


def answer(plane: Plane, *wanted: tuple[Any, ...]) -> None:
    """Answer requests: (kind, topic, answer) of each, in any order."""
    left = list(wanted)
    for asked in plane.asks(len(wanted)):
        found = next(one for one in left if one[:2] == (asked.kind, asked.topic))
        left.remove(found)
        plane.answer(AccessAnswer(asked.handle, found[2]) if asked.kind == "acl" else MessageAnswer(asked.kind, asked.handle, found[2]))


def returning(plane: Plane, name: str, **more: Any) -> Wire:
    wire = plane.connect(Connect(name, clean=False, props=FOR_LONG, **more), 5)
    connack = wire.read_packet()
    assert isinstance(connack, Connack) and connack.rc == 0
    return wire


def left(plane: Plane, wire: Wire) -> None:
    n = plane.stats()["clients_connected"]
    wire.send(Disconnect())
    wire.expect_closed()
    plane.until(lambda: plane.stats()["clients_connected"] < n)


def offline(plane: Plane, qos: int = 1) -> None:
    sub = returning(plane, "sub")
    sub.send(Subscribe(1, (("t/#", qos),)))
    if plane.securities[0] is not CHANGED:
        answer(plane, ("acl", "t/#", True))
    sub.read_packet()
    left(plane, sub)


def acknowledged(plane: Plane, wire: Wire, topic: str, payload: bytes, qos: int = 1) -> None:
    """Publish, and wait for the last acknowledgement. The read accesses and changes of subscribers are not answered."""
    wire.send(Publish(topic, payload, qos, 1))
    if plane.securities[0] is not CHANGED:
        asked = plane.ask("acl")
        assert asked.access == WRITE
        plane.answer(AccessAnswer(asked.handle, True))
    if qos == 2:
        assert isinstance(wire.read_packet(), Pubrec)
        wire.send(Pubrel(1))
    assert isinstance(wire.read_packet(), Puback if qos == 1 else Pubcomp)


def received(wire: Wire, *expected: tuple[str, bytes]) -> list[Publish]:
    """Read these messages in this order and complete their handshakes; check that no other one comes."""
    got: list[Publish] = []
    while len(got) != len(expected):
        packet = wire.read_packet()
        if isinstance(packet, Publish):
            assert (packet.topic, packet.payload) == expected[len(got)], (packet, expected)
            wire.send(Puback(packet.mid) if packet.qos == 1 else Pubrec(packet.mid))
            got.append(packet)
    for packet in got:
        if packet.qos == 2:
            wire.send(Pubcomp(packet.mid))
    wire.send(Pingreq())
    while not isinstance(packet := wire.read_packet(), Pingresp):
        assert isinstance(packet, Pubrel), packet
    return got


@pytest.mark.parametrize("security", [CHANGED, DECIDED], ids=["message_out", "authorize"])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_delivery_that_waits_for_a_plugin_survives(tmp_path: Path, security: dict[str, Any], qos: int) -> None:
    """Test also that no publisher waits for a plugin of a subscriber."""
    kills = Kills(tmp_path, security)
    kind, yes = ("acl", True) if security is DECIDED else ("message_out", Content("t/1", b"one", qos, False))
    with kills.start() as plane:
        offline(plane, qos)
        acknowledged(plane, returning(plane, "pub"), "t/1", b"one", qos)
        plane.ask(kind)
        kills.kill()
    with kills.start() as plane:
        answer(plane, (kind, "t/1", yes))
        plane.until(lambda: plane.stats()["asks_open"] == 0)
        got, = received(returning(plane, "sub"), ("t/1", b"one"))
        assert (got.qos, got.dup) == (qos, qos == 1)
        kills.kill()
    with kills.start() as plane:
        received(returning(plane, "sub"))
        plane.asks_nothing()


def test_what_a_plugin_denies_after_a_kill_does_not_come(tmp_path: Path) -> None:
    kills = Kills(tmp_path, DECIDED)
    with kills.start() as plane:
        offline(plane)
        acknowledged(plane, returning(plane, "pub"), "t/1", b"one")
        kills.kill()
    with kills.start() as plane:
        answer(plane, ("acl", "t/1", False))
        plane.until(lambda: plane.stats()["drops_acl_read"] == 1)
        returning(plane, "other")                # a later batch
        kills.kill()
    with kills.start() as plane:
        received(returning(plane, "sub"))
        plane.asks_nothing()


def test_a_kill_between_the_answers_keeps_the_order_and_asks_about_the_rest(tmp_path: Path) -> None:
    kills = Kills(tmp_path, CHANGED)
    with kills.start() as plane:
        offline(plane, 2)
        pub = returning(plane, "pub")
        for n in range(4):
            acknowledged(plane, pub, f"t/{n}", b"%d" % n, 2)
        asked = plane.asks(4)
        # the first one leaves the gate; the third one is changed and waits behind the second one
        plane.answer(MessageAnswer("message_out", asked[0].handle, Content("t/0", b"first", 2, False)),
                     MessageAnswer("message_out", asked[2].handle, Content("t/2", b"changed", 2, False)))
        plane.until(lambda: plane.stats()["asks_open"] == 2)
        returning(plane, "other")                # its CONNACK waits for a later batch
        state = kills.state()
        assert (state.by_kind[kinds.GATED], state.by_kind[kinds.GATED_DONE]) == (4, 1)
        assert [len(s.gate) for s in state.sessions.values() if s.id == b"sub"] == [3]
        kills.kill()
    with kills.start() as plane:
        again = plane.asks(3)
        assert [(one.topic, one.payload) for one in again] == [(f"t/{n}", b"%d" % n) for n in (1, 2, 3)]
        plane.asks_nothing()
        plane.answer(*(MessageAnswer("message_out", one.handle, Content(one.topic, one.payload, 2, False)) for one in reversed(again)))
        received(returning(plane, "sub"), ("t/0", b"first"), ("t/1", b"1"), ("t/2", b"2"), ("t/3", b"3"))


def test_one_record_has_the_deliveries_of_a_message_to_several_sessions(tmp_path: Path) -> None:
    kills = Kills(tmp_path, CHANGED)
    with kills.start() as plane:
        for n in range(5):
            sub = returning(plane, f"sub{n}")
            sub.send(Subscribe(1, (("t/#", 1),)))
            sub.read_packet()
        acknowledged(plane, returning(plane, "pub"), "t/1", b"one")
        assert kills.state().by_kind[kinds.GATED] == 1
        kills.kill()
    with kills.start() as plane:
        answer(plane, *[("message_out", "t/1", Content("t/1", b"one", 1, False))] * 5)
        for n in range(5):
            received(returning(plane, f"sub{n}"), ("t/1", b"one"))


def test_no_record_is_left_of_a_session_that_ends(tmp_path: Path) -> None:
    kills = Kills(tmp_path, CHANGED)
    with kills.start() as plane:
        offline(plane)
        pub = returning(plane, "pub")
        acknowledged(plane, pub, "t/1", b"one")
        plane.ask("message_out")
        wire = plane.connect(Connect("sub", clean=True), 5)
        assert isinstance(wire.read_packet(), Connack)
        returning(plane, "other")                # its CONNACK waits for a later batch
        assert not any(s.gate for s in kills.state().sessions.values())
        kills.kill()
    with kills.start() as plane:
        received(returning(plane, "sub"))
        plane.asks_nothing()


def test_a_store_that_is_taken_into_use_gets_deliveries_that_wait(tmp_path: Path) -> None:
    kills = Kills(tmp_path, CHANGED)
    with Plane(CHANGED, allow_anonymous=True, settings={"auth_timeout": 60}, port=kills.port) as plane:
        offline(plane)
        pub = returning(plane, "pub")
        for qos in (0, 1):
            pub.send(Publish(f"t/{qos}", b"m", qos, qos))
        assert isinstance(pub.read_packet(), Puback)
        plane.engine.attach(str(kills.store), "group", 2)
        returning(plane, "other")                # its CONNACK waits for a later batch
        kills.kill()
    with kills.start() as plane:
        answer(plane, ("message_out", "t/1", Content("t/1", b"m", 1, False)))
        received(returning(plane, "sub"), ("t/1", b"m"))


def test_cleaning_keeps_deliveries_that_wait(tmp_path: Path) -> None:
    kills = Kills(tmp_path, CHANGED, SEGMENT_BYTES)
    with kills.start() as plane:
        offline(plane)
        pub = returning(plane, "pub")
        for n in range(3):
            acknowledged(plane, pub, f"t/{n}", b"%d" % n)
        plane.asks(3)
        another_segment(plane)
        before = kills.state().by_kind[kinds.GATED]
        fill(plane, lambda n: n > 3 * SEGMENT_BYTES // 4000)
        assert before == 3 and min(lsn for s in kills.state().sessions.values() for lsn in s.gate.values()) > SEGMENT_BYTES
        kills.kill()
    with kills.start() as plane:
        answer(plane, *(("message_out", f"t/{n}", Content(f"t/{n}", b"%d" % n, 1, False)) for n in range(3)))
        received(returning(plane, "sub"), *((f"t/{n}", b"%d" % n) for n in range(3)))


# ---------------------------------------------------------------- wills

def dying(plane: Plane, topic: str = "t/w", payload: bytes = b"last words", is_stored: bool = False) -> Wire:
    """Connect a client with a will. The request of its CONNECT is not answered."""
    will = Will(topic, payload, 1)
    if is_stored:
        wire = returning(plane, "dying", will=will)
    else:
        wire = plane.connect(Connect("dying", clean=True, will=will), 5)
        assert isinstance(wire.read_packet(), Connack)
    assert plane.ask("acl").topic == topic
    return wire


def dead(plane: Plane, wire: Wire) -> Any:
    """Cut the connection; return the request about its will."""
    n = plane.stats()["clients_connected"]
    wire.close()
    plane.until(lambda: plane.stats()["clients_connected"] < n)
    return plane.ask("acl")


def will_comes(kills: Kills, *wills: tuple[str, bytes]) -> None:
    """Start the broker, allow the wills that it asks about, and check that they come, and that the start after that has nothing to ask."""
    with kills.start() as plane:
        answer(plane, *(("acl", topic, True) for topic, _ in wills))
        answer(plane, *(("acl", topic, True) for topic in dict.fromkeys(topic for topic, _ in wills)))        # of the subscriber
        plane.until(lambda: plane.stats()["asks_open"] == 0)
        received(returning(plane, "sub"), *wills)
        returning(plane, "other")                # a later batch: the acknowledgements are on record
        kills.kill()
    with kills.start() as plane:
        received(returning(plane, "sub"))
        plane.asks_nothing()


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("allowed", [False, True])
def test_a_will_that_waits_for_a_plugin_survives(tmp_path: Path, is_stored: bool, allowed: bool) -> None:
    kills = Kills(tmp_path, DECIDED)
    with kills.start() as plane:
        offline(plane)
        dead(plane, dying(plane, is_stored=is_stored))
        returning(plane, "other")                # a later batch
        kills.kill()
    with kills.start() as plane:
        answer(plane, ("acl", "t/w", allowed))
        if allowed:
            answer(plane, ("acl", "t/w", True))          # of the subscriber
        plane.until(lambda: plane.stats()["asks_open"] == 0)
        sub = returning(plane, "sub")
        received(sub, *[("t/w", b"last words")] * allowed)
        kills.kill()
    with kills.start() as plane:
        received(returning(plane, "sub"))
        plane.asks_nothing()


def test_the_answer_about_a_will_does_not_end_that_of_the_next_client(tmp_path: Path) -> None:
    kills = Kills(tmp_path, DECIDED)
    with kills.start() as plane:
        offline(plane)
        for n in range(2):
            wire = plane.connect(Connect("dying", clean=True, will=Will(f"t/{n}", b"%d" % n, 1)), 5)
            assert isinstance(wire.read_packet(), Connack)
            plane.ask("acl")
            if n == 0:
                before = plane.stats()["clients_connected"]
                wire.close()
                plane.until(lambda: plane.stats()["clients_connected"] < before)        # noqa: B023
                asked = plane.ask("acl")
        plane.answer(AccessAnswer(asked.handle, False))
        plane.until(lambda: plane.stats()["asks_open"] == 2)
        returning(plane, "other")
        kills.kill()
    with kills.start() as plane:
        answer(plane, ("acl", "t/1", True))
        answer(plane, ("acl", "t/1", True))
        plane.until(lambda: plane.stats()["asks_open"] == 0)
        received(returning(plane, "sub"), ("t/1", b"1"))


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_waiting_will_survives_the_end_of_its_session(tmp_path: Path, is_stored: bool) -> None:
    kills = Kills(tmp_path, DECIDED)
    with kills.start() as plane:
        offline(plane)
        dead(plane, dying(plane, is_stored=is_stored))
        again = plane.connect(Connect("dying", clean=True), 5)
        assert isinstance(again.read_packet(), Connack)
        left(plane, again)
        returning(plane, "other")
        kills.kill()
    will_comes(kills, ("t/w", b"last words"))


@pytest.mark.parametrize("is_stored", [False, True])
def test_two_wills_of_a_client_wait(tmp_path: Path, is_stored: bool) -> None:
    kills = Kills(tmp_path, DECIDED)
    with kills.start() as plane:
        offline(plane)
        for payload in (b"first", b"second"):
            dead(plane, dying(plane, payload=payload, is_stored=is_stored))
        returning(plane, "other")
        kills.kill()
    assert len(kills.state().waiting_wills) == 2
    with kills.start() as plane:                 # nothing is answered in this life, and a third will joins
        plane.asks(2)
        dead(plane, dying(plane, payload=b"third", is_stored=is_stored))
        returning(plane, "other")
        kills.kill()
    will_comes(kills, *(("t/w", payload) for payload in (b"first", b"second", b"third")))


def fill_with_sessions(plane: Plane) -> None:
    """Fill segments with records of sessions, about which no plugin is asked: first some that stay, then some that replace each other."""
    for name in [*map(str, range(SEGMENT_BYTES // 4000 + 1)), *["same"] * (3 * SEGMENT_BYTES // 4000)]:
        left(plane, returning(plane, name.ljust(4000, "-")))


def test_cleaning_keeps_waiting_wills(tmp_path: Path) -> None:
    kills = Kills(tmp_path, DECIDED, SEGMENT_BYTES)
    with kills.start() as plane:
        offline(plane)
        dead(plane, dying(plane, is_stored=True))
        fill_with_sessions(plane)
        kills.kill()
    first = kills.state().waiting_wills[1]
    assert first > SEGMENT_BYTES                 # a copy: cleaning has dropped the segment of the first record
    with kills.start() as plane:                 # the will is restored and waits again
        plane.ask("acl")
        fill_with_sessions(plane)
        kills.kill()
    assert kills.state().waiting_wills[1] > first + SEGMENT_BYTES
    will_comes(kills, ("t/w", b"last words"))


@pytest.mark.parametrize("is_stored", [False, True])
@pytest.mark.parametrize("dies_before", [False, True])
def test_a_stop_keeps_wills_about_which_a_plugin_must_decide(tmp_path: Path, is_stored: bool, dies_before: bool) -> None:
    kills = Kills(tmp_path, DECIDED)
    with kills.start() as plane:
        offline(plane)
        wire = dying(plane, is_stored=is_stored)
        if dies_before:
            dead(plane, wire)
    will_comes(kills, ("t/w", b"last words"))


def test_a_will_about_which_the_rules_decide_at_the_next_start(tmp_path: Path) -> None:
    kills = Kills(tmp_path, DECIDED)
    with kills.start() as plane:
        offline(plane)
        dead(plane, dying(plane))
        returning(plane, "other")
        kills.kill()
    kills.security = {}                          # the plugin was removed
    for wills in ([("t/w", b"last words")], []):
        with kills.start() as plane:
            plane.asks_nothing()
            received(returning(plane, "sub"), *wills)
            kills.kill()


def changed(plane: Plane, n: int) -> list[str]:
    """Answer n requests, one after the other; return the payloads that they are about."""
    found = []
    for _ in range(n):
        asked = plane.ask("message_out")
        plane.answer(MessageAnswer("message_out", asked.handle, Content(asked.topic, asked.payload, asked.qos, asked.retain)))
        found.append(asked.payload.decode())
    return found


def test_deliveries_wait_for_a_plugin_without_a_limit_of_the_queue(tmp_path: Path) -> None:
    """`max_queued_messages 0` has no limit; a thousand deliveries were kept, and the others dropped."""
    with Plane(CHANGED, store=str(tmp_path / "store"), allow_anonymous=True, settings={"auth_timeout": 60, "max_queued_messages": 0}) as plane:
        offline(plane)
        pub = plane.user("pub")
        for i in range(0, 3000, 100):
            pub.send(*(Publish("t/a", b"%d" % n, 1, 1 + n) for n in range(i, i + 100)))
            assert all(isinstance(pub.read_packet(), Puback) for _ in range(100))
        assert changed(plane, 3000) == [str(i) for i in range(3000)]
        plane.until(lambda: plane.stats()["auth_requests_pending"] == 0)
        assert plane.stats()["drops_queue_messages"] == 0
