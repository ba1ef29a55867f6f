"""Test that acknowledged changes survive kill -9.

Each test sends something to a broker, waits for the acknowledgement, kills the broker, starts it again on the same store, and checks.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.broker import Broker
from tests.harness.packets import (
    Connack, Connect, Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe, Unsuback, Unsubscribe, Will,
)
from tests.harness.plane import Plane
from tests.harness.properties import P
from tests.harness.wire import Wire

KEEP = "persistence true\npersistence_location {dir}\n"
FOR_LONG = ((P.SESSION_EXPIRY, 3600),)


class Kept(Broker):
    """Run a broker with a store that can be killed."""

    def __init__(self, config: str, env: dict[str, str] | None = None) -> None:
        super().__init__(config, env=env)
        self.opened: list[Wire] = []

    def kill(self) -> None:
        self.die()
        self.start()

    def wire(self, level: int = 5) -> Wire:
        self.opened.append(Wire(self.port, level))
        return self.opened[-1]

    def close(self) -> None:
        for wire in self.opened:
            wire.close()
        super().close()

    def client(self, name: str, *, clean: bool = False, level: int = 5, session: bool | None = None, **more: object) -> Wire:
        wire = self.wire(level)
        wire.send(Connect(name, clean=clean, props=FOR_LONG if level == 5 else (), **more))     # type: ignore[arg-type]
        connack = wire.read_packet()
        assert isinstance(connack, Connack) and connack.rc == 0
        if session is not None:
            assert connack.session is session
        return wire


@pytest.fixture
def broker() -> Iterator[Kept]:
    with Kept(KEEP) as running:
        yield running


def subscribe(wire: Wire, *filters: tuple[str, int], props: tuple[object, ...] = ()) -> None:
    wire.send(Subscribe(1, filters, props))      # type: ignore[arg-type]
    suback = wire.read_packet()
    assert isinstance(suback, Suback) and all(code < 3 for code in suback.codes)


def publish(wire: Wire, topic: str, payload: bytes, qos: int = 1, mid: int = 7, retain: bool = False) -> None:
    """Publish; return when the message is completely acknowledged."""
    wire.send(Publish(topic, payload, qos, mid, retain))
    if qos == 1:
        assert isinstance(wire.read_packet(), Puback)
    else:
        assert isinstance(wire.read_packet(), Pubrec)
        wire.send(Pubrel(mid))
        assert isinstance(wire.read_packet(), Pubcomp)


def read_publishes(wire: Wire, n: int) -> list[Publish]:
    got = [wire.read_packet() for _ in range(n)]
    assert all(isinstance(packet, Publish) for packet in got), got
    return got       # type: ignore[return-value]


def qos_0_continues(broker: Kept) -> None:
    """Check that QoS 0 continues, and clients that need no store."""
    sub = broker.client("clean", clean=True, level=4)
    subscribe(sub, ("other", 0))
    broker.client("clean too", clean=True, level=4).send(Publish("other", b"on", 0))
    assert read_publishes(sub, 1)[0].payload == b"on"


def nothing_more(wire: Wire) -> None:
    wire.expect_nothing()


def offline_subscriber(broker: Kept, *filters: tuple[str, int], name: str = "sub") -> None:
    wire = broker.client(name)
    subscribe(wire, *filters)
    wire.send(Disconnect())
    wire.expect_closed()


@pytest.mark.parametrize("qos", [1, 2])
def test_queued_messages_of_an_offline_session_survive(broker: Kept, qos: int) -> None:
    offline_subscriber(broker, ("a/+", qos))
    pub = broker.client("pub", clean=True)
    for i in range(50):
        publish(pub, f"a/{i}", b"%d" % i, qos, i + 1)
    broker.kill()
    sub = broker.client("sub", session=True)
    got = []
    while len(got) < 50:
        packet = sub.read_packet()
        if isinstance(packet, Publish):
            got.append((packet.topic, packet.payload, packet.qos, packet.dup, packet.mid))
            sub.send(Puback(packet.mid) if qos == 1 else Pubrec(packet.mid))
        else:
            assert isinstance(packet, Pubrel)
            sub.send(Pubcomp(packet.mid))
    assert got == [(f"a/{i}", b"%d" % i, qos, False, i + 1) for i in range(50)]


def test_sent_messages_are_sent_again_with_dup_and_the_same_id(broker: Kept) -> None:
    sub = broker.client("sub")
    subscribe(sub, ("a", 1))
    pub = broker.client("pub", clean=True)
    pub.send(*(Publish("a", b"%d" % i, 1, i + 1) for i in range(3)))
    first = read_publishes(sub, 3)
    assert [isinstance(pub.read_packet(), Puback) for _ in range(3)]      # not acknowledged by a subscriber: they are in the store
    broker.kill()
    again = read_publishes(broker.client("sub", session=True), 3)
    assert [(p.mid, p.payload) for p in again] == [(p.mid, p.payload) for p in first]
    assert all(p.dup for p in again)


def test_acknowledged_messages_are_not_sent_again(broker: Kept) -> None:
    offline_subscriber(broker, ("a", 1))
    pub = broker.client("pub", clean=True)
    for i in range(4):
        publish(pub, "a", b"%d" % i)
    sub = broker.client("sub", session=True)
    got = read_publishes(sub, 4)
    sub.send(Puback(got[0].mid), Puback(got[2].mid))
    subscribe(sub, ("b", 0))     # its SUBACK arrives when all earlier records are in the store
    broker.kill()
    assert [p.payload for p in read_publishes(broker.client("sub", session=True), 2)] == [b"1", b"3"]


def test_a_message_that_is_acknowledged_at_once_is_not_written() -> None:
    with Kept(KEEP + "durability_interval 100\n") as broker:
        sub = broker.client("sub")
        subscribe(sub, ("a", 1))
        pub = broker.client("pub", clean=True)
        for i in range(3):
            pub.send(Publish("a", b"x", 1, i + 1))
            (got,) = read_publishes(sub, 1)
            sub.send(Puback(got.mid))
            assert isinstance(pub.read_packet(), Puback)
        subscribe(sub, ("b", 1))     # its SUBACK arrives when all earlier records are in the store
        broker.kill()
        nothing_more(broker.client("sub", session=True))


def test_after_pubrec_only_pubrel_is_sent_again(broker: Kept) -> None:
    offline_subscriber(broker, ("a", 2))
    pub = broker.client("pub", clean=True)
    publish(pub, "a", b"x", 2)
    sub = broker.client("sub", session=True)
    (got,) = read_publishes(sub, 1)
    sub.send(Pubrec(got.mid))
    assert isinstance(sub.read_packet(), Pubrel)
    broker.kill()
    sub = broker.client("sub", session=True)
    released = sub.read_packet()
    assert isinstance(released, Pubrel) and released.mid == got.mid
    sub.send(Pubcomp(got.mid))
    nothing_more(sub)


def test_a_publisher_that_releases_after_the_crash(broker: Kept) -> None:
    """Test [v5 4.3.3]: a message accepted with PUBREC is delivered once, whatever the publisher repeats."""
    offline_subscriber(broker, ("a", 2))
    pub = broker.client("pub")
    pub.send(Publish("a", b"x", 2, 9))
    assert isinstance(pub.read_packet(), Pubrec)
    broker.kill()
    pub = broker.client("pub", session=True)
    pub.send(Publish("a", b"x", 2, 9, dup=True))
    assert isinstance(pub.read_packet(), Pubrec)
    pub.send(Pubrel(9))
    assert isinstance(pub.read_packet(), Pubcomp)
    broker.kill()
    pub = broker.client("pub", session=True)
    pub.send(Pubrel(9))
    assert isinstance(pub.read_packet(), Pubcomp)
    sub = broker.client("sub", session=True)
    (got,) = read_publishes(sub, 1)
    sub.send(Pubrec(got.mid))
    assert isinstance(sub.read_packet(), Pubrel)
    sub.send(Pubcomp(got.mid))
    nothing_more(sub)


def test_subscriptions_with_their_options(broker: Kept) -> None:
    sub = broker.client("sub")
    subscribe(sub, ("a/#", 1 | 8), props=((P.SUBSCRIPTION_ID, 77),))
    subscribe(sub, ("gone", 1))
    subscribe(sub, ("$share/g/s", 1))
    sub.send(Unsubscribe(2, ("gone",)))
    assert isinstance(sub.read_packet(), Unsuback)
    broker.kill()
    sub = broker.client("sub", session=True)
    pub = broker.client("pub", clean=True)
    publish(pub, "gone", b"no")
    publish(pub, "a/b", b"yes", retain=True)
    publish(pub, "s", b"shared")
    first, second = (sub.read_packet() for _ in range(2))
    assert isinstance(first, Publish) and first.payload == b"yes" and first.retain
    assert (P.SUBSCRIPTION_ID, 77) in first.props
    assert isinstance(second, Publish) and second.payload == b"shared"


def test_retained_messages(broker: Kept) -> None:
    pub = broker.client("pub", clean=True)
    publish(pub, "r/1", b"old", retain=True)
    publish(pub, "r/1", b"new", retain=True)
    publish(pub, "r/2", b"x", retain=True)
    publish(pub, "r/2", b"", retain=True)
    publish(pub, "r/3", b"twice", 2, retain=True)
    broker.kill()
    broker.kill()
    sub = broker.client("sub", clean=True)
    sub.send(Subscribe(1, (("r/#", 1),)))
    got = [sub.read_packet() for _ in range(3)]
    assert isinstance(got[0], Suback)
    assert sorted((p.topic, p.payload) for p in got[1:]) == [("r/1", b"new"), ("r/3", b"twice")]   # type: ignore[union-attr]
    nothing_more(sub)


def test_a_clean_start_ends_the_old_session(broker: Kept) -> None:
    offline_subscriber(broker, ("a", 1))
    publish(broker.client("pub", clean=True), "a", b"x")
    broker.client("sub", clean=True, session=False)
    broker.kill()
    sub = broker.client("sub")
    publish(broker.client("pub", clean=True), "a", b"y")
    nothing_more(sub)


def test_a_session_that_ends_with_its_connection_is_not_stored(broker: Kept) -> None:
    wire = broker.wire()
    wire.send(Connect("short", clean=True))
    wire.read_packet()
    subscribe(wire, ("a", 1))
    broker.kill()
    broker.client("short", session=False)


def test_a_session_expires_after_a_kill_without_its_client(broker: Kept) -> None:
    wire = broker.wire()
    wire.send(Connect("brief", clean=False, props=((P.SESSION_EXPIRY, 1),)))
    wire.read_packet()
    subscribe(wire, ("a", 1))
    wire.send(Disconnect())
    wire.expect_closed()
    broker.kill()
    subscriber = broker.client("watch", clean=True)
    subscribe(subscriber, ("$SYS/broker/clients/expired", 0))
    while True:      # $SYS reports it at each sys_interval
        got = subscriber.read_packet(15)
        if isinstance(got, Publish) and got.payload == b"1":
            break
    broker.client("brief", session=False)


def test_the_will_of_a_connected_client_is_sent_after_a_kill(broker: Kept) -> None:
    offline_subscriber(broker, ("w", 1))
    broker.client("dying", will=Will("w", b"last words", 1))
    subscribe(broker.client("other"), ("x", 1))          # its SUBACK arrives after all earlier records are in the store
    broker.kill()
    (got,) = read_publishes(broker.client("sub", session=True), 1)
    assert got.payload == b"last words"


def test_packet_ids_continue(broker: Kept) -> None:
    offline_subscriber(broker, ("a", 1))
    pub = broker.client("pub", clean=True)
    publish(pub, "a", b"1")
    broker.kill()
    publish(broker.client("pub", clean=True), "a", b"2")
    got = read_publishes(broker.client("sub", session=True), 2)
    assert [(p.payload, p.mid) for p in got] == [(b"1", 1), (b"2", 2)]


def test_an_orderly_stop_loses_nothing(broker: Kept) -> None:
    offline_subscriber(broker, ("a", 1))
    publish(broker.client("pub", clean=True), "a", b"x")
    assert broker.stop() == 0
    broker.start()
    (got,) = read_publishes(broker.client("sub", session=True), 1)
    assert got.payload == b"x" and not got.dup


def test_mqtt_3_sessions_too(broker: Kept) -> None:
    sub = broker.client("old", level=4)
    subscribe(sub, ("a", 1))
    sub.send(Disconnect())
    sub.expect_closed()
    publish(broker.client("pub", clean=True), "a", b"x")
    broker.kill()
    assert read_publishes(broker.client("old", level=4, session=True), 1)[0].payload == b"x"


def test_another_broker_on_the_same_store_is_refused(broker: Kept) -> None:
    other = Broker(f"persistence true\npersistence_location {broker.dir}\n")
    try:
        with pytest.raises(RuntimeError) as refused:
            other.start()
        assert str(broker.dir) in str(refused.value) and str(broker.process and broker.process.pid) in str(refused.value)
    finally:
        other.close()


class Early(Plane):
    """Have a client at the door before the first turn of the loop."""

    def before_run(self) -> None:
        self.early = self.wire(5)
        self.early.send(Connect("dying", clean=False, props=FOR_LONG))


@pytest.mark.parametrize("delay_s", [0, 3600])
def test_a_restored_will_without_delay_is_sent_before_clients_are_let_in(broker: Kept, delay_s: int) -> None:
    """Test a client that returns at once: it cancels only a will whose delay is not over [v5 3.1.3-9]."""
    watcher = broker.client("watcher")
    subscribe(watcher, ("w", 1))
    watcher.send(Disconnect())
    watcher.expect_closed()
    broker.client("dying", will=Will("w", b"last words", 1, props=((P.WILL_DELAY, delay_s),) if delay_s else ()))
    broker.die()
    with Early(store=str(broker.dir / "mosquitto.db.store"), allow_anonymous=True) as plane:
        connack = plane.early.read_packet()
        assert isinstance(connack, Connack) and connack.session
        watcher = plane.connect(Connect("watcher", clean=False, props=FOR_LONG), 5)
        assert isinstance(watcher.read_packet(), Connack)
        if delay_s:
            watcher.expect_nothing()
        else:
            got = watcher.read_packet()
            assert isinstance(got, Publish) and got.payload == b"last words"
    broker.start()


# ---------------------------------------------------------------- packet ids

def receive(wire: Wire, ack: bool = True) -> int:
    """Return the packet id of the next message."""
    got = wire.read_packet()
    assert isinstance(got, Publish)
    assert isinstance(got.mid, int)
    if ack:
        wire.send(Puback(got.mid))
        wire.expect_nothing()
    return got.mid


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("is_away", [True, False])
def test_packet_ids_continue_after_a_restart(broker: Kept, how: str, is_away: bool) -> None:
    """Test messages that are all acknowledged: the next id is not one of theirs."""
    wire = broker.client("c")
    subscribe(wire, ("t", 1))
    sender = broker.client("p", clean=True)
    for mid in (1, 2, 3):
        publish(sender, "t", b"x")
        assert receive(wire) == mid
    if is_away:
        wire.send(Disconnect())
        wire.expect_closed()
    if how == "stop":
        broker.restart()
    else:
        broker.kill()
    wire = broker.client("c", session=True)
    publish(broker.client("p", clean=True), "t", b"x")
    while (mid := receive(wire, ack=False)) < 4:
        assert how == "kill"            # the acknowledgement may be lost with the process: the message comes again
        wire.send(Puback(mid))
    assert mid == 4


def test_packet_ids_continue_behind_unacknowledged_messages(broker: Kept) -> None:
    """Test messages acknowledged out of order before a kill: ids in flight stay unique, and each acknowledgement finds its message."""
    wire = broker.client("c")
    subscribe(wire, ("t", 1))
    sender = broker.client("p", clean=True)
    for i in range(6):
        publish(sender, "t", b"%d" % i)
    assert [receive(wire, ack=False) for _ in range(6)] == [1, 2, 3, 4, 5, 6]
    wire.send(Puback(4), Puback(6))
    wire.expect_nothing()
    wire.send(Disconnect())
    broker.restart()
    wire = broker.client("c", session=True)
    publish(broker.client("p", clean=True), "t", b"new")
    assert [receive(wire, ack=False) for _ in range(5)] == [1, 2, 3, 5, 7]
    wire.send(*(Puback(mid) for mid in (5, 1, 7, 3, 2)))
    wire.expect_nothing()
    broker.kill()
    wire = broker.client("c", session=True)
    publish(broker.client("p", clean=True), "t", b"last")
    while (mid := receive(wire, ack=False)) < 8:
        wire.send(Puback(mid))          # its acknowledgement was lost with the process
    assert mid == 8
