"""Test that each client gets to the worker of its client id, however its CONNECT arrives."""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Iterator

import pytest

from tests.harness.packets import Connect, Disconnect, Pingreq, Pingresp, Puback, Publish, Suback, Subscribe
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.wire.test_limits import entered_at_last
from tests.workers.case import Workers, accepted, pinged

TAKEN_OVER = 0x8E
QUOTA = 0x89


@pytest.fixture(scope="module")
def broker() -> Iterator[Workers]:
    with Workers(3, "max_keepalive 0\n") as running:
        yield running


def test_client_ids_are_spread_and_stay_with_their_worker(broker: Workers) -> None:
    first = {f"spread{i}": broker.connect(f"spread{i}") for i in range(60)}
    places = {name: broker.holder(client) for name, client in first.items()}
    assert set(places.values()) == {1, 2, 3}
    for client in first.values():
        client.close()
    for name in list(places)[:12]:
        again = broker.connect(name)
        assert broker.holder(again) == places[name]
        again.close()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_connect_that_arrives_byte_by_byte(broker: Workers, number: int) -> None:
    name = broker.id_on(number)
    client = Wire(broker.port, 5)
    for byte in Connect(name).encode(5) + Subscribe(7, (("own/#", 1),)).encode(5):
        client.send(bytes([byte]))
    accepted(client)
    assert isinstance(client.read_packet(), Suback)
    assert broker.holder(client) == number
    client.close()


@pytest.mark.parametrize("size", [10, 20_000, 90_000, 300_000])
def test_packets_that_follow_connect_at_once_are_not_lost(broker: Workers, size: int) -> None:
    for i in range(8):          # some of them move
        client = Wire(broker.port, 5)
        payload = bytes([i]) * size
        client.send(Connect(f"eager{i}").encode(5) + Subscribe(7, ((f"eager/{i}", 0),)).encode(5)
                    + Publish(f"eager/{i}", payload, 1, 9).encode(5) + Pingreq().encode(5))
        accepted(client)
        got = [client.read_packet() for _ in range(4)]
        assert {type(one) for one in got} == {Suback, Publish, Puback, Pingresp}
        assert next(one for one in got if isinstance(one, Publish)).payload == payload
        client.close()


def test_a_large_connect_moves(broker: Workers) -> None:
    for i in range(6):
        client = Wire(broker.port, 5)
        client.send(Connect(f"large{i}", username="u" * 60_000, password=b"p" * 30_000))
        accepted(client)
        pinged(client)
        client.close()


def test_an_assigned_client_id_belongs_to_the_worker_that_assigned_it(broker: Workers) -> None:
    for _ in range(6):
        client = Wire(broker.port, 5)
        client.send(Connect("", props=((P.SESSION_EXPIRY, 60),)))
        name = dict(accepted(client).props)[P.ASSIGNED_ID]
        at = broker.holder(client)
        client.close()
        again = Wire(broker.port, 5)
        again.send(Connect(str(name), clean=False))
        assert accepted(again).session
        assert broker.holder(again) == at
        again.close()


def test_a_client_id_is_taken_over_whichever_worker_accepts(broker: Workers) -> None:
    before = broker.connect("taken")
    for _ in range(12):
        after = broker.connect("taken")
        last = before.read_packet()
        assert isinstance(last, Disconnect) and last.rc == TAKEN_OVER
        before.expect_closed()
        before.close()
        before = after
    pinged(before)
    before.close()


def test_a_client_that_leaves_at_once_after_connect(broker: Workers) -> None:
    for i in range(40):
        client = Wire(broker.port, 5)
        client.send(Connect(f"brief{i}"))
        if i % 2:
            client.reset()
        else:
            client.close()
    for i in range(12):
        pinged(client := broker.connect(f"brief{i}"))
        client.close()


def test_websocket_connections_move_with_their_state() -> None:
    with Workers(3, "listener {port} 127.0.0.1\nprotocol websockets\nallow_anonymous true\n") as broker:
        for i in range(12):
            client = Wire(broker.port, 5, websocket=True)
            raw = Connect(f"web{i}").encode(5) + Subscribe(7, ((f"web/{i}", 0),)).encode(5)
            client.send(raw[:5])            # two frames of WebSocket
            client.send(raw[5:])
            accepted(client)
            assert isinstance(client.read_packet(), Suback)
            client.send(Publish(f"web/{i}", b"x" * 70_000))
            got = client.read_packet()
            assert isinstance(got, Publish) and len(got.payload) == 70_000
            client.close()


def test_the_address_of_a_proxy_header_moves_along() -> None:
    with Workers(3, "listener {port} 127.0.0.1\nenable_proxy_protocol 1\nallow_anonymous true\n") as broker:
        for i in range(8):
            client = Wire(broker.port, 5)
            client.send(b"PROXY TCP4 10.1.2.3 10.0.0.1 4321 1883\r\n" + Connect(f"behind{i}").encode(5))
            accepted(client)
            client.close()
            broker.wait_log(f"New client connected from 10.1.2.3:4321 as behind{i} ")


def test_a_unix_socket_serves_all_workers() -> None:
    with Workers(3, "listener {port} 127.0.0.1\nlistener 0 {dir}/sock\nallow_anonymous true\n") as broker:
        path = broker.dir / "sock"
        for i in range(9):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                client.sendall(Connect(f"near{i}").encode(5) + Pingreq().encode(5))
                got = b""
                while not got.endswith(Pingresp().encode(5)):
                    part = client.recv(100)
                    assert part
                    got += part
        broker.kill(1)
        assert broker.stop() == 0
        assert not path.exists()


def test_max_connections_counts_over_all_workers() -> None:
    with Workers(3, "listener {port} 127.0.0.1\nmax_connections 20\nallow_anonymous true\nlog_type all\n") as broker:
        broker.wait_log("disconnected: connection closed by client.")
        # a connection that goes to another worker counts twice for a moment
        inside = [entered_at_last(broker.port, f"in{i}") for i in range(20)]       # one worker has all: 1 in a thousand million
        assert len({broker.holder(client) for client in inside}) > 1
        refused = Wire(broker.port, 5)
        refused.expect_closed()
        refused.close()
        for client in inside:
            pinged(client)
            client.close()


def test_global_max_clients_counts_over_all_workers() -> None:
    with Workers(3, "global_max_clients 20\n") as broker:
        inside = [broker.connect(f"in{i}") for i in range(20)]
        assert len({broker.holder(client) for client in inside}) > 1
        late = Wire(broker.port, 5)
        late.send(Connect("late"))
        late.expect_closed() if (got := late.read_packet()).rc == 0x89 else pytest.fail(str(got))  # type: ignore[union-attr]
        for client in (*inside, late):
            client.close()


def test_the_time_that_a_connection_waits_for_a_worker_counts_for_connect_timeout() -> None:
    with Workers(2, "connect_timeout 1\ncluster_watchdog 30\n") as broker:
        name = broker.id_on(2)
        broker.kill(2, signal.SIGSTOP)
        late = Wire(broker.port, 5)
        broker.opened.append(late)
        late.send(Connect(name))
        time.sleep(1.5)                 # the timeout is over
        soon = Wire(broker.port, 5)
        broker.opened.append(soon)
        soon.send(Connect(name))
        broker.kill(2, signal.SIGCONT)
        late.expect_closed()
        accepted(soon)


def test_a_worker_serves_pairs_of_its_own_clients(broker: Workers) -> None:
    name, other = broker.id_on(2, "pair"), broker.id_on(2, "peer")
    subscriber, publisher = broker.connect(name), broker.connect(other)
    subscriber.send(Subscribe(3, (("pair/#", 2),)))
    assert isinstance(subscriber.read_packet(), Suback)
    publisher.send(Publish("pair/a", b"hello", 1, 4))
    assert isinstance(publisher.read_packet(), Puback)
    got = subscriber.read_packet()
    assert isinstance(got, Publish) and got.payload == b"hello"
    for client in (subscriber, publisher):
        client.close()
