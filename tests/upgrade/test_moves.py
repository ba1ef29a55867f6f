"""Test that an upgrade moves connections and sessions in every half state, with and without persistence, over TCP and WebSockets."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from tests.harness.packets import (
    Connack, Connect, Disconnect, Packet, Pingreq, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe, Unsuback,
    Unsubscribe, Will,
)
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.upgrade.case import MEMORY, STORE, Upgraded

LISTENERS = {"tcp": "listener {port} 127.0.0.1\nallow_anonymous true\n",
             "web": "listener {port} 127.0.0.1\nprotocol websockets\nallow_anonymous true\n"}
KINDS = {"memory": MEMORY, "store": STORE, "none": STORE + "durability_topic none +/#\n"}


@pytest.fixture(params=["memory-tcp", "store-tcp", "none-tcp", "memory-web", "store-web"])
def broker(request: pytest.FixtureRequest) -> Iterator[Upgraded]:
    store, _, transport = request.param.partition("-")
    with Upgraded(LISTENERS[transport] + KINDS[store] + "max_topic_alias_broker 5\n") as started:
        started.websocket = transport == "web"
        yield started


def client(broker: Upgraded, name: str, *, level: int = 5, clean: bool = True, session: bool = False, **more: object) -> Wire:
    """Connect a client; its session lives for an hour unless `clean`."""
    wire = broker.wire(level)
    props = more.pop("props", ())
    if level == 5 and not clean:
        props = (*props, (P.SESSION_EXPIRY, 3600))
    wire.send(Connect(name, clean=clean, props=props, **more))
    answer = wire.read_packet()
    assert isinstance(answer, Connack) and answer.rc == 0 and answer.session == session, answer
    return wire


def subscribed(wire: Wire, filters: str, qos: int = 2) -> Wire:
    wire.send(Subscribe(9, ((filters, qos),)))
    assert wire.read_packet().codes == (qos,)
    return wire


def exchange(wire: Wire, sent: Packet, answer: Packet) -> None:
    wire.send(sent)
    wire.expect_packet(answer)


def test_idle_clients_stay_connected(broker: Upgraded) -> None:
    """Each level, clean or not, before and after an upgrade; then a second one."""
    wires = [client(broker, f"c{level}{clean}", level=level, clean=clean) for level in (3, 4, 5) for clean in (True, False)]
    for _ in range(2):
        broker.upgrade()
        for wire in wires:
            exchange(wire, Pingreq(), Pingresp())
    late = client(broker, "late")
    subscribed(late, "t")
    exchange(wires[0], Publish("t", b"x", 1, 5), Puback(5))
    assert late.read_packet().payload == b"x"


def test_a_qos_1_delivery_keeps_its_packet_id_and_is_not_sent_again(broker: Upgraded) -> None:
    for clean in (True, False):
        receiver = subscribed(client(broker, f"r{clean}", clean=clean), "t", 1)
        sender = client(broker, f"s{clean}")
        exchange(sender, Publish("t", b"1", 1, 1), Puback(1))
        mid = receiver.read_packet().mid
        broker.upgrade()
        receiver.expect_nothing()
        exchange(sender, Publish("t", b"2", 1, 1), Puback(1))
        second = receiver.read_packet()
        assert second.payload == b"2" and second.mid == mid + 1 and not second.dup
        receiver.send(Puback(mid), Puback(second.mid))
        receiver.expect_nothing()
        receiver.send(Disconnect())
        receiver.expect_closed()


def test_a_qos_2_delivery_continues_at_each_stage(broker: Upgraded) -> None:
    for clean in (True, False):
        receiver = subscribed(client(broker, f"r{clean}", clean=clean), "t")
        sender = client(broker, f"s{clean}")
        sender.send(Publish("t", b"a", 2, 1), Pubrel(1))
        sender.expect_packet(Pubrec(1))
        sender.expect_packet(Pubcomp(1))
        got = receiver.read_packet()
        broker.upgrade()                             # PUBLISH is sent
        exchange(receiver, Pubrec(got.mid), Pubrel(got.mid))
        broker.upgrade()                             # PUBREL is sent
        receiver.send(Pubcomp(got.mid))
        receiver.expect_nothing()
        receiver.send(Disconnect())
        receiver.expect_closed()


def test_an_inbound_qos_2_message_continues_at_each_stage(broker: Upgraded) -> None:
    receiver = subscribed(client(broker, "r", clean=False), "t")
    for clean in (True, False):
        sender = client(broker, f"s{clean}", clean=clean)
        exchange(sender, Publish("t", b"a", 2, 7), Pubrec(7))
        broker.upgrade()
        receiver.expect_nothing()                    # it was not released
        exchange(sender, Publish("t", b"a", 2, 7, dup=True), Pubrec(7))
        exchange(sender, Pubrel(7), Pubcomp(7))
        got = receiver.read_packet()
        assert got.payload == b"a" and not got.dup
        exchange(receiver, Pubrec(got.mid), Pubrel(got.mid))
        receiver.send(Pubcomp(got.mid))
        receiver.expect_nothing()


def test_the_window_and_the_queue_behind_it_continue(broker: Upgraded) -> None:
    receiver = client(broker, "r", clean=False, props=((P.RECEIVE_MAXIMUM, 2),))
    subscribed(receiver, "t", 1)
    sender = client(broker, "s")
    for n in range(1, 6):
        exchange(sender, Publish("t", b"%d" % n, 1, n), Puback(n))
    first, second = receiver.read_packet(), receiver.read_packet()
    broker.upgrade()
    receiver.expect_nothing()
    receiver.send(Puback(first.mid))
    third = receiver.read_packet()
    assert (third.payload, third.dup) == (b"3", False)
    broker.upgrade()
    receiver.send(Puback(second.mid), Puback(third.mid))
    fourth, fifth = receiver.read_packet(), receiver.read_packet()
    assert [fourth.payload, fifth.payload] == [b"4", b"5"] and not fourth.dup
    receiver.send(Puback(fourth.mid), Puback(fifth.mid))
    receiver.expect_nothing()


def test_the_queue_of_an_offline_session_is_delivered(broker: Upgraded) -> None:
    receiver = subscribed(client(broker, "r", clean=False), "t")
    receiver.send(Disconnect(props=()))
    receiver.expect_closed()
    sender = client(broker, "s")
    exchange(sender, Publish("t", b"1", 1, 1), Puback(1))
    broker.upgrade()
    exchange(sender, Publish("t", b"2", 1, 2), Puback(2))
    receiver = client(broker, "r", clean=False, session=True)
    got = [receiver.read_packet(), receiver.read_packet()]
    assert [one.payload for one in got] == [b"1", b"2"] and not any(one.dup for one in got)


def test_topic_aliases_are_valid_in_both_directions(broker: Upgraded) -> None:
    receiver = client(broker, "r", props=((P.TOPIC_ALIAS_MAXIMUM, 5),))
    subscribed(receiver, "t/#", 0)
    sender = client(broker, "s")
    sender.send(Publish("t/1", b"1", props=((P.TOPIC_ALIAS, 3),)))
    first = receiver.read_packet()
    assert first.topic == "t/1" and dict(first.props)[P.TOPIC_ALIAS] == 1
    broker.upgrade()
    sender.send(Publish("", b"2", props=((P.TOPIC_ALIAS, 3),)))
    second = receiver.read_packet()
    assert (second.topic, second.payload, dict(second.props)[P.TOPIC_ALIAS]) == ("", b"2", 1)


def test_a_will_is_sent_when_its_client_is_lost_later(broker: Upgraded) -> None:
    watcher = subscribed(client(broker, "w"), "will/#", 1)
    kept = client(broker, "a", will=Will("will/a", b"gone", 1), clean=False)
    left = client(broker, "b", will=Will("will/b", b"gone", 1))
    broker.upgrade()
    watcher.expect_nothing()
    kept.close()
    got = watcher.read_packet()
    assert (got.topic, got.payload) == ("will/a", b"gone")
    left.send(Disconnect())
    left.expect_closed()
    watcher.send(Puback(got.mid))
    watcher.expect_nothing()


def test_a_delayed_will_is_sent_after_its_delay(broker: Upgraded) -> None:
    watcher = subscribed(client(broker, "w"), "will", 1)
    lost = client(broker, "a", clean=False, will=Will("will", b"late", 1, props=((P.WILL_DELAY, 2),)))
    lost.close()
    broker.upgrade()
    assert watcher.read_packet().payload == b"late"


def test_retained_messages_are_there(broker: Upgraded) -> None:
    sender = client(broker, "s", level=4)
    exchange(sender, Publish("r/1", b"one", 1, 1, retain=True), Puback(1))
    exchange(sender, Publish("r/2", b"two", 1, 2, retain=True), Puback(2))
    broker.upgrade()
    exchange(sender, Publish("r/2", b"", 1, 3, retain=True), Puback(3))
    reader = subscribed(client(broker, "r"), "r/#", 1)
    assert reader.read_packet().payload == b"one"
    reader.expect_nothing()


def test_subscriptions_with_their_options_are_there(broker: Upgraded) -> None:
    receiver = client(broker, "r", clean=False)
    receiver.send(Subscribe(1, (("t/+", 1),), props=((P.SUBSCRIPTION_ID, 77),)))
    assert isinstance(receiver.read_packet(), Suback)
    subscribed(receiver, "gone", 1)
    exchange(receiver, Unsubscribe(2, ("gone",)), Unsuback(2, (0,)))
    broker.upgrade()
    exchange(receiver, Publish("gone", b"", 1, 3), Puback(3, 0x10))
    receiver.send(Publish("t/1", b"", 1, 4))
    got = [receiver.read_packet(), receiver.read_packet()]
    assert Puback(4) in got
    assert next(one for one in got if isinstance(one, Publish)).props == ((P.SUBSCRIPTION_ID, 77),)


def test_a_member_of_a_shared_group_keeps_what_is_in_flight(broker: Upgraded) -> None:
    one = subscribed(client(broker, "one", clean=False), "$share/g/t", 1)
    sender = client(broker, "s")
    exchange(sender, Publish("t", b"1", 1, 1), Puback(1))
    first = one.read_packet()
    broker.upgrade()
    exchange(sender, Publish("t", b"2", 1, 2), Puback(2))
    second = one.read_packet()
    assert second.payload == b"2" and not second.dup
    one.send(Puback(first.mid), Puback(second.mid))
    one.expect_nothing()


def test_half_a_packet_and_a_packet_in_pieces_arrive(broker: Upgraded) -> None:
    receiver = subscribed(client(broker, "r"), "t", 1)
    sender = client(broker, "s")
    for size in (10, 300_000):
        raw = Publish("t", b"p" * size, 1, 5).encode(5)
        for part in (raw[:4], raw[4:len(raw) // 2]):
            sender.send(part)
            broker.upgrade()
        sender.send(raw[len(raw) // 2:])
        sender.expect_packet(Puback(5))
        got = receiver.read_packet()
        assert got.payload == b"p" * size
        receiver.send(Puback(got.mid))


def test_unsent_output_arrives_whole(broker: Upgraded) -> None:
    """The receiver reads nothing until the upgrade is over: its socket is full, and the rest moves."""
    receiver = subscribed(client(broker, "r"), "t", 1)
    sender = client(broker, "s")
    for n in range(1, 31):
        exchange(sender, Publish("t", b"%03d" % n * 100_000, 1, n), Puback(n))
    broker.upgrade()
    for n in range(1, 31):
        got = receiver.read_packet()
        assert got.payload == b"%03d" % n * 100_000 and not got.dup
        receiver.send(Puback(got.mid))
    receiver.expect_nothing()


def test_a_client_before_its_connect_moves(broker: Upgraded) -> None:
    silent = broker.wire(5)
    half = broker.wire(5)
    raw = Connect("half").encode(5)
    half.send(raw[:5])
    broker.upgrade()
    silent.send(Connect("silent"))
    half.send(raw[5:])
    for wire in (silent, half):
        assert isinstance(wire.read_packet(), Connack)


def test_sessions_survive_a_restart_after_an_upgrade(broker: Upgraded) -> None:
    if "persistence" not in broker.config.read_text() or "none" in broker.config.read_text():
        return
    receiver = subscribed(client(broker, "r", clean=False), "t", 1)
    sender = client(broker, "s")
    exchange(sender, Publish("t", b"1", 1, 1), Puback(1))
    first = receiver.read_packet()
    broker.upgrade()
    receiver.send(Puback(first.mid))
    exchange(sender, Publish("t", b"2", 1, 2), Puback(2))
    assert receiver.read_packet().payload == b"2"
    receiver.expect_nothing()
    pid = broker.pid()
    os.kill(pid, signal.SIGKILL)
    broker.wait_end(pid)
    assert broker.process is not None
    broker.process.wait()
    broker.start()
    receiver = client(broker, "r", clean=False, session=True)
    again = receiver.read_packet()
    assert (again.payload, again.dup) == (b"2", True)
    receiver.send(Puback(again.mid))
    receiver.expect_nothing()
