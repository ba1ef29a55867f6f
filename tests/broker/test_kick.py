"""Test that a kick disconnects the clients of users whose rights have changed, in slices: all clients that were connected
when it began, and no later ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import pytest

from tests.harness.links import Remote, line, linked, spec
from tests.harness.packets import Connack, Connect, Disconnect, Pingreq, Pingresp, Publish
from tests.harness.plane import Plane, exchange
from tests.harness.wire import Wire
from mosq.records import KickCommand, LoginAnswer

KICKED = 0x98


@pytest.fixture
def plane() -> Iterator[Plane]:
    with Plane({"authenticate": True}) as made:
        yield made


def ended(wire: Wire) -> None:
    assert wire.read_packet() == Disconnect(KICKED)
    wire.expect_closed()


def stays(wire: Wire) -> None:
    assert exchange(wire, Pingreq()) == Pingresp()


def test_two_kicks_take_turns(plane: Plane) -> None:
    """Test that a turn disconnects 128 clients of each kick. If kicks ran one after the other, the second would wait for
    the first."""
    users = {name: [plane.user(f"{name}-{i}", name, 5) for i in range(140)] for name in ("ann", "ben", "cat")}
    plane.look(0)
    plane.lines.clear()
    plane.answer(KickCommand(["ann", "nobody"]), KickCommand(["ben"]))
    for wire in users["ann"] + users["ben"]:
        ended(wire)
    for wire in users["cat"]:
        stays(wire)
    plane.until(lambda: sum("disconnected" in line for line in plane.lines) == 280)
    gone = [line.split()[1].split("-")[0] for line in plane.lines if "disconnected" in line]
    runs = [(name, len(list(run))) for name, run in groupby(gone)]
    assert sum(n for _, n in runs) == 280
    assert len(runs) > 2, runs


def test_a_client_accepted_after_a_kick_is_not_kicked(plane: Plane) -> None:
    before = plane.user("before", "ann", 5)
    late = plane.connect(Connect("late", username="ann", password=b"x"), 5)
    first = plane.ask("connect").handle
    later = plane.connect(Connect("later", username="ann", password=b"x"), 5)
    second = plane.ask("connect").handle
    # the broker reads all of them in one turn and works on kicks at its end
    plane.answer(LoginAnswer(first, 0), KickCommand(["ann"]), LoginAnswer(second, 0))
    ended(before)
    for wire in (late, later):
        hello = wire.read_packet()
        assert isinstance(hello, Connack)
        assert hello.rc == 0
    ended(late)
    stays(later)


def test_an_old_client_is_not_mistaken_for_a_new_one(plane: Plane) -> None:
    """Test more kicks than the 16 bits of a client's last kick can number; most of so many kicks find no room to run
    in slices."""
    ann = plane.user("a", "ann", 5)
    for _ in range(15):
        plane.answer(*[KickCommand(["nobody"])] * 4369)    # 2^16 - 1 of them
    plane.answer(KickCommand(["ann"]))
    ended(ann)


def test_a_kick_of_anonymous_clients_leaves_bridges_alone() -> None:
    """Test that a kick of clients without a user name does not end bridges, which have none either."""
    with Plane(bridges=[spec(line("#", "out", 0))], allow_anonymous=True) as plane:
        remote = Remote(plane)
        remote.accept_connect()
        assert linked(plane).event == "up"
        nameless = plane.connect(Connect("c"), 5)
        assert isinstance(nameless.read_packet(), Connack)
        plane.answer(KickCommand([None]))
        ended(nameless)
        sender = plane.connect(Connect("d"))
        assert isinstance(sender.read_packet(), Connack)
        sender.send(Publish("still", b"there"))
        assert remote.hears("publish")["topic"] == b"still"
