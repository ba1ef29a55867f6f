"""Test that the origin of a message survives the broker: its shared group, and its publisher."""

from __future__ import annotations

import pytest

from tests.durable.test_restart import FOR_LONG, KEEP, Kept, nothing_more, publish, read_publishes, subscribe
from tests.harness.packets import Connack, Connect, Disconnect, Puback, Publish, Suback, Subscribe
from tests.harness.wire import Wire

NO_LOCAL = 4


def member(broker: Kept, name: str, *filters: str) -> Wire:
    wire = broker.client(name)
    subscribe(wire, *((f, 1) for f in filters))
    return wire


def away(*wires: Wire) -> None:
    for wire in wires:
        wire.send(Disconnect())
        wire.expect_closed()


def payloads(wire: Wire, n: int) -> list[bytes]:
    got = read_publishes(wire, n)
    wire.send(*(Puback(p.mid) for p in got))
    return [p.payload for p in got]


@pytest.mark.parametrize("twice", [False, True])
def test_messages_of_a_group_reach_another_member_after_a_kill(twice: bool) -> None:
    """Test also a second kill, and messages that were sent and not acknowledged."""
    with Kept(KEEP) as broker:
        one = member(broker, "one", "$share/g/a/#", "$share/h/+/b", "plain")
        pub = broker.client("pub", clean=True)
        for n in range(2):
            publish(pub, "a/b", b"%d" % n)      # through both groups
        publish(pub, "a/c", b"g")
        publish(pub, "plain", b"own")
        assert len(read_publishes(one, 6)) == 6           # sent, not acknowledged
        two, three = member(broker, "two", "$share/g/a/#"), member(broker, "three", "$share/h/+/b")
        away(two, three)
        broker.kill()
        if twice:
            broker.kill()
        broker.client("one", clean=True, session=False)
        two, three = broker.client("two", session=True), broker.client("three", session=True)
        assert payloads(two, 3) == [b"0", b"1", b"g"]
        assert payloads(three, 2) == [b"0", b"1"]
        nothing_more(two)
        nothing_more(three)
        subscribe(broker.client("last"), ("x", 1))       # the hand-over is on record
        broker.kill()
        for name in ("two", "three"):
            nothing_more(broker.client(name, session=True))


def test_a_former_member_keeps_its_messages_of_the_group() -> None:
    with Kept(KEEP) as broker:
        one = member(broker, "one", "$share/g/a")
        publish(broker.client("pub", clean=True), "a", b"x")
        assert len(read_publishes(one, 1)) == 1
        two = member(broker, "two", "$share/g/a")
        one.send(b"\xa2\x0f\x00\x02\x00\x00\x0a$share/g/a")
        one.read_packet()
        away(two)
        broker.kill()
        assert payloads(broker.client("one", session=True), 1) == [b"x"]
        nothing_more(broker.client("two", session=True))


def test_no_local_of_retained_messages() -> None:
    """Test [v5 3.8.3.1-3]: the publisher is known by a hash that is the same in each process."""
    with Kept(KEEP) as broker:
        publish(broker.client("me"), "r", b"mine", retain=True)
        broker.kill()
        broker.kill()
        for name, n in (("me", 0), ("you", 1)):
            wire = broker.client(name)
            wire.send(Subscribe(1, (("r", 1 | NO_LOCAL),)))
            assert isinstance(wire.read_packet(), Suback)
            read_publishes(wire, n)
            nothing_more(wire)


def may_write(broker: Kept, *users: str) -> None:
    lines = "".join(f"user {user}\ntopic write r/#\n" for user in users)
    (broker.dir / "acl").write_text(lines + "user reader\ntopic read r/#\n")


@pytest.mark.parametrize("cleaned", [False, True])
def test_the_source_of_a_retained_message_is_checked_again(cleaned: bool) -> None:
    """Test check_retain_source: retained messages of a publisher that may no longer write are not delivered."""
    config = KEEP + "check_retain_source true\nacl_file {dir}/acl\nlistener {port} 127.0.0.1\nallow_anonymous true\n"
    broker = Kept(config)
    may_write(broker, "good", "bad")
    (broker.dir / "acl").chmod(0o644)
    with broker:
        for user in ("good", "bad"):
            wire = broker.wire()
            wire.send(Connect(f"id {user}", username=user, props=FOR_LONG))
            assert isinstance(wire.read_packet(), Connack)
            publish(wire, f"r/{user}", b"x", retain=True)
            publish(wire, f"r/{user}/brief", b"x", retain=True)
        broker.kill()
        if cleaned:                     # each start begins a segment, and the oldest is cleaned
            for _ in range(3):
                subscribe(broker.client("other"), ("x", 1))
                broker.kill()
        may_write(broker, "good")
        broker.kill()
        wire = broker.wire()
        wire.send(Connect("reader", username="reader"), Subscribe(1, (("r/#", 1),)))
        got = [wire.read_packet() for _ in range(4)]
        assert sorted(p.topic for p in got if isinstance(p, Publish)) == ["r/good", "r/good/brief"]
        nothing_more(wire)
