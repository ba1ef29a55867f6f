"""Test CONNECT with a control plane that decides: it answers in time, late, twice, with a stale handle, out of order or
never; some clients close while they wait."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.packets import Auth, Connack, Connect, Disconnect, Pingreq, Pingresp, Publish, Suback, Subscribe, Will
from tests.harness.plane import Plane
from tests.harness.properties import P
from mosq.records import AccessAnswer, ExchangeRequest, LoginAnswer, LoginWait

ASKS = {"authenticate": True}
ANN = Connect("c1", username="ann", password=b"pass\x00word")


@pytest.fixture
def plane() -> Iterator[Plane]:
    with Plane(ASKS) as made:
        yield made


@pytest.mark.parametrize("level", [3, 4, 5])
def test_accepted(plane: Plane, level: int) -> None:
    wire = plane.connect(ANN, level)
    asked = plane.ask()
    assert asked.kind == "connect"
    assert (asked.security, asked.client_id, asked.username, asked.password, asked.address) == (0, "c1", "ann", b"pass\x00word", "127.0.0.1")
    assert isinstance(wire.sock, socket.socket)
    assert asked.port == wire.sock.getsockname()[1]
    assert (asked.version, asked.method, asked.data, asked.identity) == (level, None, None, None)
    plane.answer(LoginAnswer(asked.handle, 0))
    got = wire.read_packet()
    assert isinstance(got, Connack)
    assert got.rc == 0
    wire.expect_nothing()


@pytest.mark.parametrize(("level", "rc", "told"), [
    (5, 0x87, 0x87), (5, 0x86, 0x86), (5, 0x8A, 0x8A), (5, 1, 0x87), (4, 0x87, 5), (4, 0x86, 4), (4, 0x85, 2), (4, 0x89, 3), (3, 0x87, 5), (4, 0x18, 5)])
def test_refused(plane: Plane, level: int, rc: int, told: int) -> None:
    wire = plane.connect(ANN, level)
    plane.answer(LoginAnswer(plane.ask().handle, rc))
    wire.expect_packet(Connack(rc=told))
    wire.expect_closed()
    assert plane.stats()["refused_access"] == 1
    assert plane.stats()["asks_open"] == 0


def test_anonymous_is_refused_at_once(plane: Plane) -> None:
    wire = plane.connect(Connect("c1"))
    wire.expect_packet(Connack(rc=5))
    wire.expect_closed()
    assert plane.stats()["asked"] == 0


def test_anonymous_clients_are_accepted_without_a_request() -> None:
    with Plane(ASKS, allow_anonymous=True) as plane:
        plane.connect(Connect("c1")).expect_packet(Connack())
        plane.connect(ANN)
        assert plane.ask().username == "ann"


@pytest.mark.parametrize(("allow", "rc"), [(True, 0), (False, 5)])
def test_an_undecided_anonymous_client_follows_allow_anonymous(allow: bool, rc: int) -> None:
    with Plane({**ASKS, "login_anonymous": True}, allow_anonymous=allow) as plane:
        wire = plane.connect(Connect("c1"))
        asked = plane.ask()
        assert asked.username is None
        plane.answer(LoginAnswer(asked.handle, -1))
        wire.expect_packet(Connack(rc=rc))
        named = plane.connect(ANN)
        plane.answer(LoginAnswer(plane.ask().handle, -1))
        named.expect_packet(Connack(rc=5))


def test_packets_after_connect_wait_for_the_answer(plane: Plane) -> None:
    """Test [v5 3.1.4-6]: a client may send packets before CONNACK; the broker handles them after it has accepted the client."""
    wire = plane.wire()
    wire.send(ANN, Subscribe(1, (("t", 0),)), Publish("t", b"x" * 5000), Pingreq())
    handle = plane.ask().handle
    assert plane.stats()["publish_in"] == 0
    plane.answer(LoginAnswer(handle, 0))
    wire.expect_packet(Connack())
    wire.expect_packet(Suback(1, (0,)))
    wire.expect_packet(Publish("t", b"x" * 5000))
    wire.expect_packet(Pingresp())


def test_an_assigned_client_id_is_in_the_auth_request(plane: Plane) -> None:
    wire = plane.connect(Connect("", username="ann"), 5)
    asked = plane.ask()
    assert asked.client_id.startswith("auto-")
    plane.answer(LoginAnswer(asked.handle, 0))
    got = wire.read_packet()
    assert isinstance(got, Connack)
    assert (P.ASSIGNED_ID, asked.client_id) in got.props


def test_user_name_of_the_answer(plane: Plane) -> None:
    wire = plane.connect(ANN)
    plane.answer(LoginAnswer(plane.ask().handle, 0, username="someone else"))
    wire.expect_packet(Connack())
    assert plane.engine.clients()[0]["username"] == "someone else"


def test_twice_stale_and_unknown(plane: Plane) -> None:
    first, second = plane.connect(ANN), plane.connect(Connect("c2", username="bob"))
    one, two = plane.ask(), plane.ask()
    plane.answer(LoginAnswer(two.handle, 0), LoginAnswer(two.handle, 0x87), LoginAnswer(12345 << 32 | 7, 0), AccessAnswer(one.handle, True))
    second.expect_packet(Connack())
    second.expect_nothing()
    plane.until(lambda: plane.stats()["answers_stale"] == 3)
    plane.answer(LoginAnswer(one.handle, 0x87))
    first.expect_packet(Connack(rc=5))


@pytest.mark.parametrize(("level", "told"), [(4, 3), (5, 0x88)])
def test_never_answered(level: int, told: int) -> None:
    with Plane(ASKS, settings={"auth_timeout": 1}) as plane:
        wire = plane.connect(ANN, level)
        handle = plane.ask().handle
        wire.expect_packet(Connack(rc=told))
        wire.expect_closed()
        plane.answer(LoginAnswer(handle, 0))
        plane.until(lambda: plane.stats()["answers_stale"] == 1)
        seen = plane.stats()
        assert (seen["asks_timed_out"], seen["refused_auth_timeout"], seen["asks_open"], seen["connections"]) == (1, 1, 0, 0)


def test_a_login_wait_answer_extends_the_timeout() -> None:
    with Plane(ASKS, settings={"auth_timeout": 1}) as plane:
        wire = plane.connect(ANN)
        other = plane.connect(Connect("c2", username="bob"))
        handle, unheard = plane.ask().handle, plane.ask().handle
        plane.answer(LoginWait(handle, 60))
        other.expect_packet(Connack(rc=3))
        assert plane.stats()["asks_timed_out"] == 1
        plane.answer(LoginWait(unheard, 60), LoginAnswer(handle, 0))
        wire.expect_packet(Connack())
        plane.until(lambda: plane.stats()["answers_stale"] == 1)


@pytest.mark.parametrize("seconds", [0, -1, 3601])
def test_wait_is_bounded(plane: Plane, seconds: int) -> None:
    with pytest.raises(ValueError, match="no time to wait"):
        plane.answer(LoginWait(1, seconds))


def test_a_paused_client_of_3_gets_server_unavailable(plane: Plane) -> None:
    wire = plane.connect(ANN, 4)
    plane.answer(LoginAnswer(plane.ask().handle, 0x9F))
    wire.expect_packet(Connack(rc=3))


def test_client_resets_before_the_answer(plane: Plane) -> None:
    wire = plane.connect(ANN)
    handle = plane.ask().handle
    wire.reset()
    plane.until(lambda: plane.stats()["pool_used"] == 0)
    assert plane.stats()["asks_open"] == 0
    plane.answer(LoginAnswer(handle, 0))
    plane.until(lambda: plane.stats()["answers_stale"] == 1)
    assert plane.stats()["connections"] == 0


def test_client_closes_before_the_answer(plane: Plane) -> None:
    """Test clients that close before the answer: the broker notices it then, and accepts a client that sent packets first."""
    silent, hasty = plane.connect(ANN), plane.wire()
    hasty.send(Connect("c2", username="ann"), Publish("t", b"", 0), Disconnect())
    requests = plane.asks(2)
    for wire in (silent, hasty):
        wire.close()
    plane.answer(*(LoginAnswer(request.handle, 0) for request in requests))
    plane.until(lambda: plane.stats()["pool_used"] == 0)
    seen = plane.stats()
    assert (seen["connections"], seen["publish_in"], seen["clients_total"]) == (1, 1, 0)


def test_same_id_twice(plane: Plane) -> None:
    """Test that the client that is accepted last has the session; the broker publishes the will of the first client."""
    watcher = plane.user("w", "w")
    watcher.send(Subscribe(1, (("will", 0),)))
    watcher.expect_packet(Suback(1, (0,)))
    first = plane.connect(Connect("c1", username="ann", will=Will("will", b"gone")), 5)
    second = plane.connect(Connect("c1", username="ann"), 5)
    one, two = plane.ask(), plane.ask()
    plane.answer(LoginAnswer(two.handle, 0))
    assert isinstance(second.read_packet(), Connack)
    plane.answer(LoginAnswer(one.handle, 0))
    assert isinstance(first.read_packet(), Connack)
    got = second.read_packet()
    assert isinstance(got, Disconnect)
    assert got.rc == 0x8E
    first.expect_nothing()


def test_stop_during_an_auth_request() -> None:
    with Plane(ASKS) as plane:
        wire = plane.connect(ANN)
        handle = plane.ask().handle
        plane.engine.stop()
        wire.expect_closed()
        plane.answer(LoginAnswer(handle, 0))


def test_reload_during_an_auth_request(plane: Plane) -> None:
    wire = plane.connect(ANN)
    handle = plane.ask().handle
    plane.engine.reload(plane.settings, plane.listeners, [{"authenticate": True, "acl": []}])
    plane.answer(LoginAnswer(handle, 0))      # from the plugin before the reload: the broker asks again
    again = plane.ask()
    assert (again.kind, again.handle, again.username) == ("connect", handle, "ann")
    plane.answer(LoginAnswer(handle, 0))
    wire.expect_packet(Connack())
    wire.send(Publish("t", b"", 1, 1))
    wire.read_packet()
    assert plane.stats()["drops_acl_write"] == 1


@pytest.fixture
def descriptors() -> Iterator[int]:
    """Raise the limit of open files to the hard limit; return that limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_five_thousand_at_once(descriptors: int, plane: Plane) -> None:
    """Test that the broker asks about each client and accepts answers in any order; memory for each client is bounded."""
    many = min(5000, descriptors // 2 - 200)
    wires = [plane.connect(Connect(f"c{n}", username="u", password=b"p")) for n in range(many)]
    asked = plane.asks(many)
    assert plane.stats()["asks_open"] == many
    assert plane.stats()["buffers_used_bytes"] == 0
    plane.answer(*[LoginAnswer(request.handle, 0x87 if n % 3 == 0 else 0) for n, request in enumerate(reversed(asked))])
    codes: list[int] = []
    for wire in wires:
        got = wire.read_packet()
        assert isinstance(got, Connack)
        codes.append(got.rc)
    assert sorted(set(codes)) == [0, 5]
    assert codes.count(5) == (many + 2) // 3
    assert plane.stats()["asks_open"] == 0


def test_requests_wait_for_room_in_the_ring(plane: Plane) -> None:
    """Test that 4 MiB of requests wait in the ring, and later requests wait in their clients until the control plane reads."""
    wires = [plane.connect(Connect(f"{n}-" + "x" * 60000, username="u" * 30000, password=b"p" * 9000)) for n in range(60)]
    plane.until(lambda: plane.stats()["asked"] == 60)
    for n in range(60):
        request = plane.ask()
        assert request.client_id.startswith(f"{n}-")
        plane.answer(LoginAnswer(request.handle, 0))
    for wire in wires:
        wire.expect_packet(Connack())


def test_a_connect_is_bounded(plane: Plane) -> None:
    """Test that a Remaining Length over 100,000 closes the connection without a CONNACK, as in Mosquitto."""
    wire = plane.connect(Connect("x" * 50000, username="u" * 50000))
    wire.expect_closed()
    assert plane.stats()["asked"] == 0


# ---------------------------------------------------------------- extended authentication [v5 4.12]

SCRAM = ((P.AUTH_METHOD, "SCRAM"), (P.AUTH_DATA, b"first"))


def step(rc: int, data: bytes | None, method: str = "SCRAM") -> Auth:
    return Auth(rc, ((P.AUTH_METHOD, method), *(() if data is None else ((P.AUTH_DATA, data),))))


@pytest.fixture
def extended() -> Iterator[Plane]:
    with Plane({"extended": True}) as made:
        yield made


def exchanged(plane: Plane, client_id: str = "c") -> Any:
    """Connect a client by an exchange of two steps."""
    wire = plane.connect(Connect(client_id, props=SCRAM), 5)
    asked = plane.ask("connect")
    assert (asked.username, asked.password) == (None, None)
    assert (asked.method, asked.data) == ("SCRAM", b"first")
    plane.answer(LoginAnswer(asked.handle, 0x18, data=b"challenge"))
    wire.expect_packet(step(0x18, b"challenge"))
    wire.send(step(0x18, b"response"))
    again = plane.ask("auth")
    assert tuple(again)[:8] == (asked.handle, 0, "SCRAM", b"response", False, None, None, "127.0.0.1")
    plane.answer(LoginAnswer(again.handle, 0, data=b"final", username="ann"))
    got = wire.read_packet()
    assert isinstance(got, Connack)
    assert got.rc == 0
    assert (P.AUTH_METHOD, "SCRAM") in got.props
    assert (P.AUTH_DATA, b"final") in got.props
    return wire


def test_exchange(extended: Plane) -> None:
    wire = exchanged(extended)
    wire.expect_nothing()
    assert extended.engine.clients()[0]["username"] == "ann"
    assert extended.stats()["asks_open"] == 0


def test_method_not_offered(plane: Plane) -> None:
    wire = plane.connect(Connect("c", props=SCRAM), 5)
    wire.expect_packet(Connack(rc=0x8C))


@pytest.mark.parametrize("bad", [step(0x18, b"r", "PLAIN"), step(0x19, b"r"), Pingreq(), Publish("t")])
def test_wrong_packet_in_an_exchange(extended: Plane, bad: Any) -> None:
    wire = extended.connect(Connect("c", props=SCRAM), 5)
    extended.answer(LoginAnswer(extended.ask().handle, 0x18, data=b"challenge"))
    wire.read_packet()
    wire.send(bad)
    wire.expect_closed()
    extended.until(lambda: extended.stats()["asks_open"] == 0)


def test_refused_in_an_exchange(extended: Plane) -> None:
    wire = extended.connect(Connect("c", props=SCRAM), 5)
    extended.answer(LoginAnswer(extended.ask().handle, 0x18))
    wire.expect_packet(step(0x18, None))
    wire.send(step(0x18, None))
    request = extended.ask("auth")
    assert request.username is None
    extended.answer(LoginAnswer(request.handle, 0x87))
    wire.expect_packet(Connack(rc=0x87))
    wire.expect_closed()


def test_re_authentication(extended: Plane) -> None:
    wire = exchanged(extended)
    wire.send(step(0x19, b"again"), Pingreq())
    request = extended.ask("auth")
    assert request == ExchangeRequest(request.handle, 0, "SCRAM", b"again", True, "c", "ann", "127.0.0.1")
    extended.answer(LoginAnswer(request.handle, 0x18, data=b"prove it"))
    wire.expect_packet(step(0x18, b"prove it"))
    wire.expect_packet(Pingresp())  # a client may use its session between the steps
    wire.send(step(0x18, b"proof"))
    more = extended.ask("auth")
    assert more.handle == request.handle
    extended.answer(LoginAnswer(more.handle, 0, data=b"done"))
    wire.expect_packet(step(0, b"done"))
    wire.expect_nothing()


def test_failed_re_authentication(extended: Plane) -> None:
    wire = exchanged(extended)
    wire.send(step(0x19, None))
    extended.answer(LoginAnswer(extended.ask().handle, 0x87))
    got = wire.read_packet()
    assert isinstance(got, Disconnect)
    assert got.rc == 0x87
    wire.expect_closed()


def test_an_unexpected_auth_packet(extended: Plane) -> None:
    wire = exchanged(extended)
    wire.send(step(0x18, None))
    got = wire.read_packet()
    assert isinstance(got, Disconnect)
    assert got.rc == 0x82


def test_client_stops_answering_in_an_exchange() -> None:
    with Plane({"extended": True}, settings={"connect_timeout": 1}) as plane:
        wire = plane.connect(Connect("c", props=SCRAM), 5)
        plane.answer(LoginAnswer(plane.ask().handle, 0x18))
        wire.read_packet()
        wire.expect_closed()
        plane.until(lambda: plane.stats()["asks_open"] == 0)


def test_adopted_clients_are_trusted() -> None:
    with Plane({"authenticate": True, "authorize": True, "acl": []}) as plane:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        plane.engine.adopt(theirs.detach())
        with ours:
            ours.settimeout(10)
            ours.sendall(Connect("inside", username="ann").encode(4) + Publish("t", b"", 1, 1).encode(4))
            assert ours.recv(8, socket.MSG_WAITALL) == bytes.fromhex("20020000 40020001".replace(" ", ""))
        assert plane.stats()["asked"] == 0
