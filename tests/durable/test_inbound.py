"""Test the bounds of the QoS 2 messages that wait for PUBREL, by number and by bytes, also after a restart.

A refused message is never acknowledged: a 5.0 client gets a reason code, and the connection of a 3.1.1 client ends.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.durable.test_restart import KEEP, Kept, read_publishes, subscribe
from tests.harness.faults import until
from tests.harness.packets import Connack, Connect, Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel
from tests.harness.properties import P
from tests.harness.wire import Wire

PAYLOAD = b"x" * 1000
LIMIT = KEEP + "max_inbound_qos2_bytes 4500\n"


@pytest.fixture
def bounded() -> Iterator[Kept]:
    with Kept(LIMIT) as running:
        yield running


def hold(wire: Wire, *mids: int) -> list[int]:
    """Publish without PUBREL; return the reason codes of PUBREC."""
    wire.send(*(Publish("t", PAYLOAD, 2, mid) for mid in mids))
    answers = [wire.read_packet() for _ in mids]
    assert [packet.mid for packet in answers if isinstance(packet, Pubrec)] == list(mids)
    return [packet.rc for packet in answers if isinstance(packet, Pubrec)]


def release(wire: Wire, *mids: int) -> None:
    wire.send(*(Pubrel(mid) for mid in mids))
    for mid in mids:
        assert wire.read_packet() == Pubcomp(mid)


def test_bytes_over_the_limit_are_refused_with_quota_exceeded(bounded: Kept) -> None:
    wire = bounded.client("a")
    assert hold(wire, 1, 2, 3, 4, 5, 6) == [0, 0, 0, 0, 0x97, 0x97]
    release(wire, 1)
    assert hold(wire, 7) == [0]
    until(lambda: "Client a has exceeded max_inbound_qos2_bytes" in bounded.log())


def test_bytes_of_a_repeated_packet_id_count_once(bounded: Kept) -> None:
    wire = bounded.client("a")
    for n in range(10):
        wire.send(Publish("t", b"%d" % n + PAYLOAD, 2, 1))
        assert wire.read_packet() == Pubrec(1)
    assert hold(wire, 2, 3, 4) == [0, 0, 0]


def test_one_message_above_the_limit_is_accepted(bounded: Kept) -> None:
    wire = bounded.client("a")
    wire.send(Publish("t", b"x" * 10_000, 2, 1))
    assert wire.read_packet() == Pubrec(1)
    assert hold(wire, 2) == [0x97]
    release(wire, 1)
    assert hold(wire, 2) == [0]


def test_bytes_over_the_limit_end_a_3_1_1_connection_without_a_loss(bounded: Kept) -> None:
    sub = bounded.client("sub", clean=True)
    subscribe(sub, ("t", 0))
    wire = bounded.client("a", level=4)
    assert hold(wire, 1, 2, 3, 4) == [0, 0, 0, 0]
    wire.send(Publish("t", PAYLOAD, 2, 5))
    wire.expect_closed()
    wire = bounded.client("a", level=4, session=True)
    release(wire, 1, 2, 3, 4)
    assert hold(wire, 5) == [0]
    release(wire, 5)
    read_publishes(sub, 5)
    until(lambda: "Client a has exceeded max_inbound_qos2_bytes" in bounded.log())


@pytest.mark.parametrize("level", [4, 5])
def test_the_limit_counts_bytes_from_before_a_restart(bounded: Kept, level: int) -> None:
    wire = bounded.client("a", level=level)
    assert hold(wire, 1, 2, 3, 4) == [0, 0, 0, 0]
    bounded.kill()
    wire = bounded.client("a", level=level, session=True)
    wire.send(Publish("t", PAYLOAD, 2, 9))
    if level == 5:
        assert wire.read_packet() == Pubrec(9, 0x97)
    else:
        wire.expect_closed()
        wire = bounded.client("a", level=level, session=True)
    release(wire, 1, 2)
    assert hold(wire, 9) == [0]


def test_a_client_above_receive_maximum_is_disconnected_by_default() -> None:
    with Kept(KEEP) as broker:
        wire = broker.client("a")
        assert hold(wire, *range(1, 21)) == [0] * 20
        wire.send(Publish("t", PAYLOAD, 2, 21))
        assert wire.expect_packet(Disconnect(0x93))
        broker.kill()
        wire = broker.client("a", session=True)          # the number belongs to the connection [v5 4.9]
        assert hold(wire, *range(21, 41)) == [0] * 20
        wire.send(Publish("t", PAYLOAD, 2, 41))
        wire.expect_packet(Disconnect(0x93))
        wire = broker.client("a", session=True)
        release(wire, *range(1, 41))


def test_a_client_that_lost_its_state_is_not_locked_out() -> None:
    """Test that messages which a client never releases do not end its later connections, and that their number is bounded."""
    with Kept(KEEP) as broker:
        for n in range(12):
            wire = broker.client("a", session=n > 0)
            assert hold(wire, *range(1 + 20 * n, 21 + 20 * n)) == [0] * 20
            if n == 6:
                broker.kill()
        until(lambda: "has not released QoS 2 messages of earlier connections" in broker.log())
        assert "receive-maximum" not in broker.log()
        wire = broker.client("a", session=True)
        release(wire, *range(1 + 20 * 11, 1 + 20 * 12))


@pytest.mark.parametrize("level", [4, 5])
def test_bytes_that_a_client_never_releases_do_not_lock_it_out(bounded: Kept, level: int) -> None:
    wire = bounded.client("a", level=level)
    assert hold(wire, 1, 2, 3, 4) == [0] * 4
    bounded.client("a", level=level, session=True)
    wire = bounded.client("a", level=level, session=True)
    assert hold(wire, 9, 10) == [0, 0]
    release(wire, 9, 10)


def test_a_3_1_1_client_may_send_as_many_as_its_queue_holds() -> None:
    """3.1.1 has no Receive Maximum. The bound is the one at which Mosquitto drops inbound messages."""
    with Kept("max_inflight_messages 5\nmax_queued_messages 10\n") as broker:
        wire = broker.client("a", level=4)
        assert hold(wire, *range(1, 16)) == [0] * 15
        wire.send(Publish("t", PAYLOAD, 2, 16))
        wire.expect_closed()
        wire = broker.client("a", level=4, session=True)
        release(wire, *range(1, 16))


def receive_maximum(broker: Kept) -> int:
    wire = broker.wire()
    wire.send(Connect("probe"))
    connack = wire.read_packet()
    assert isinstance(connack, Connack)
    found = dict(connack.props)[P.RECEIVE_MAXIMUM]
    assert isinstance(found, int)
    return found


def test_a_reload_does_not_change_the_receive_maximum_of_a_connection() -> None:
    with Kept("max_inflight_messages 5\n") as broker:
        wire = broker.client("a")
        broker.config.write_text(broker.config.read_text().replace("messages 5", "messages 2"))
        broker.send_signal(signal.SIGHUP)
        until(lambda: receive_maximum(broker) == 2)
        assert hold(wire, 1, 2, 3, 4, 5) == [0] * 5


@pytest.mark.parametrize("qos", [1, 2])
def test_memory_limit_ends_a_3_1_1_connection_without_an_acknowledgement(qos: int) -> None:
    with Kept("memory_limit 1500000\nmax_queued_messages 0\n") as broker:
        keeper = broker.client("keeper")
        subscribe(keeper, ("t", 2))
        keeper.send(Disconnect())
        keeper.expect_closed()
        wire = broker.client("a", level=4, clean=True)
        accepted = 0
        while accepted < 100:
            wire.send(Publish("t", b"x" * 50_000, qos, accepted + 1))
            if wire.read_frame() is None:
                break
            accepted += 1
            if qos == 2:
                release(wire, accepted)
        assert 5 < accepted < 40
        keeper = broker.client("keeper", session=True)
        got: list[Publish] = []
        while len(got) < accepted:                       # every acknowledged message arrives
            packet = keeper.read_packet()
            if isinstance(packet, Publish):
                got.append(packet)
                keeper.send(Puback(packet.mid) if qos == 1 else Pubrec(packet.mid))
            else:
                assert isinstance(packet, Pubrel)
                keeper.send(Pubcomp(packet.mid))
