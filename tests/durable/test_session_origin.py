"""Test that a stored session goes only to its own user, at its own mount point; also after a restart, and from a file without these facts."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from mosq._core import record_encode
from mosq.tools.db import kinds
from mosq.tools.db.store import write_store
from tests.durable.test_restart import FOR_LONG, KEEP, Kept, nothing_more, publish, read_publishes, subscribe
from tests.harness.broker import free_port
from tests.harness.faults import until
from tests.harness.packets import Connack, Connect, Disconnect
from tests.harness.wire import Wire

USER = "it belongs to another user name"
MOUNT = "it belongs to another mount point"


class Mounted(Kept):
    """Run a broker with listeners below `A/`, below `B/`, and without a mount point, which share one store."""

    def __init__(self) -> None:
        self.ports = {"B/": free_port(), "": free_port()}
        super().__init__("listener {port} 127.0.0.1\nmount_point A/\n" f"listener {self.ports['B/']} 127.0.0.1\nmount_point B/\n"
                         f"listener {self.ports['']} 127.0.0.1\n" "allow_anonymous true\nuser root\n" + KEEP)
        self.ports["A/"] = self.port

    def at(self, mount: str, name: str, user: str | None, present: bool, level: int = 5, clean: bool = False) -> Wire:
        wire = Wire(self.ports[mount], level)
        self.opened.append(wire)
        wire.send(Connect(name, clean, username=user, props=FOR_LONG if level == 5 else ()))
        connack = wire.read_packet()
        assert isinstance(connack, Connack) and (connack.rc, connack.session) == (0, present), connack
        return wire

    def reasons(self) -> list[str]:
        return [line.split(" is discarded: ", 1)[1].split(".")[0] for line in self.log().splitlines() if " is discarded: " in line]


@pytest.fixture
def broker() -> Iterator[Mounted]:
    with Mounted() as running:
        yield running


def leave(wire: Wire) -> None:
    wire.send(Disconnect())
    wire.expect_closed()


def with_queue(broker: Mounted, mount: str = "A/", user: str | None = "ann") -> None:
    """Leave a session with a subscription and a queued message."""
    wire = broker.at(mount, "s", user, False)
    subscribe(wire, ("t", 1))
    leave(wire)
    publish(broker.at(mount, "pub", user, False, clean=True), "t", b"secret")


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize(("mount", "user", "why"), [("B/", "ann", MOUNT), ("", "ann", MOUNT), ("A/", "bob", USER), ("A/", None, USER)])
def test_a_session_that_does_not_match_is_discarded(broker: Mounted, mount: str, user: str | None, why: str, level: int, restart: bool) -> None:
    with_queue(broker)
    if restart:
        broker.kill()
    other = broker.at(mount, "s", user, False, level)
    nothing_more(other)
    publish(broker.at("A/", "pub", "ann", False, clean=True), "t", b"later")
    nothing_more(other)
    until(lambda: broker.reasons() == [why])
    leave(other)
    nothing_more(broker.at(mount, "s", user, True, level))          # the new session is theirs


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(("mount", "user"), [("A/", "ann"), ("A/", None), ("", None), ("", "ann")])
def test_a_session_that_matches_is_resumed(broker: Mounted, mount: str, user: str | None, restart: bool) -> None:
    with_queue(broker, mount, user)
    if restart:
        broker.kill()
    assert [packet.payload for packet in read_publishes(broker.at(mount, "s", user, True), 1)] == [b"secret"]
    assert broker.reasons() == []


def test_a_connected_session_is_taken_over_only_by_its_user(broker: Mounted) -> None:
    first = broker.at("A/", "s", "ann", False)
    subscribe(first, ("t", 1))
    second = broker.at("A/", "s", "bob", False)
    assert isinstance(first.read_packet(), Disconnect)
    publish(broker.at("A/", "pub", "ann", False, clean=True), "t", b"secret")
    nothing_more(second)
    until(lambda: broker.reasons() == [USER])


def test_a_new_mount_point_ends_the_clients_of_the_old_one(broker: Mounted) -> None:
    """Test that SIGHUP with another mount point does not leave subscriptions below the former one in force."""
    wire = broker.at("A/", "s", "ann", False)
    other = broker.at("B/", "other", "ann", False)
    subscribe(wire, ("t", 1))
    broker.config.write_text(broker.config.read_text().replace("mount_point A/", "mount_point C/"))
    broker.send_signal(signal.SIGHUP)
    left = wire.read_packet()
    assert isinstance(left, Disconnect) and left.rc == 0x98
    nothing_more(broker.at("A/", "s", "ann", False))
    until(lambda: broker.reasons() == [MOUNT])
    nothing_more(other)


@pytest.mark.parametrize(("mount", "user"), [("A/", "ann"), ("", None)])
def test_a_record_without_an_origin_goes_to_the_first_client(mount: str, user: str | None) -> None:
    """Test files of older versions and imports, which do not record the mount point."""
    fields: dict[str, Any] = {"sno": 1, "connected": False, "expiry_s": 3600, "ends_wall_ms": 0, "next": 0, "id": b"s", "user": b"x"}
    message: dict[str, Any] = {"qos": 1, "retain": False, "retained_set": False, "expires_wall_ms": 0, "source_hash": 0,
                               "topic": b"A/t", "props": b"", "payload": b"old", "entries": [(1, 0, 1, 1, 0)]}
    broker = Mounted()
    write_store(str(broker.dir / "mosquitto.db.store"), [(kinds.SESSION, record_encode(kinds.SESSION, fields)),
                                                         (kinds.MSG, record_encode(kinds.MSG, message))], "test", False, str(broker.dir))
    with broker:
        wire = broker.at(mount, "s", user, True)
        assert [packet.payload for packet in read_publishes(wire, 1)] == [b"old"]
        leave(wire)
        broker.kill()
        broker.at("B/", "s", user, False)           # from then on the origin is recorded
        until(lambda: broker.reasons() == [MOUNT])
