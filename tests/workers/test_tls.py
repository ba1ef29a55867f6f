"""Test TLS with several workers: handshakes are dealt out, and the client of a TLS connection is served by the worker of its client id."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.certified import context, site_files
from tests.harness.packets import Connect, Disconnect, Pingreq, Pingresp, Puback, Publish, Suback, Subscribe
from tests.harness.wire import Wire
from tests.workers.case import Workers, accepted, until

FILES = "cafile {dir}/ca.crt\ncertfile {dir}/server.crt\nkeyfile {dir}/server.key\n"
CONFIG = f"listener {{port}} 127.0.0.1\nallow_anonymous true\n{FILES}"
TAKEN_OVER = 0x8E


def broker_of(config: str) -> Workers:
    return Workers(3, config, {**site_files(config), "acl": "user ann\ntopic readwrite ann/#\n"})


@pytest.fixture(scope="module")
def broker() -> Iterator[Workers]:
    with broker_of(CONFIG) as running:
        yield running


def wire(broker: Workers, kind: str | None = None, websocket: bool = False) -> Wire:
    client = Wire(broker.port, 5, tls=context(kind), websocket=websocket)
    broker.opened.append(client)
    return client


def connect(broker: Workers, client_id: str, kind: str | None = None) -> Wire:
    client = wire(broker, kind)
    client.send(Connect(client_id))
    accepted(client)
    return client


def test_handshakes_are_dealt_out(broker: Workers) -> None:
    held = [broker.holder(wire(broker)) for _ in range(9)]
    assert set(held) == {1, 2, 3}


def test_no_handshake_is_dealt_out_to_a_worker_that_hangs() -> None:
    with broker_of(CONFIG + "cluster_watchdog 30\n") as broker:
        broker.kill(2, signal.SIGSTOP)
        time.sleep(2.6)                 # since its last sign of life
        held = [broker.holder(wire(broker)) for _ in range(9)]
        assert set(held) == {1, 3}


@pytest.mark.parametrize("size", [10, 20_000, 300_000])
def test_clients_are_served_wherever_their_tls_is(broker: Workers, size: int) -> None:
    for i in range(9):
        client = wire(broker)
        payload = bytes([i]) * size
        client.send(Connect(f"tls{i}").encode(5) + Subscribe(7, ((f"tls/{i}", 0),)).encode(5)
                    + Publish(f"tls/{i}", payload, 1, 9).encode(5) + Pingreq().encode(5))
        accepted(client)
        got = [client.read_packet() for _ in range(4)]
        assert {type(one) for one in got} == {Suback, Publish, Puback, Pingresp}
        assert next(one for one in got if isinstance(one, Publish)).payload == payload
        client.send(Disconnect())
        client.expect_closed()


def test_much_data_in_both_directions_to_a_slow_client(broker: Workers) -> None:
    for i in range(6):
        client = connect(broker, f"slow{i}")
        client.send(Subscribe(7, ((f"slow/{i}", 1),)))
        assert isinstance(client.read_packet(), Suback)
        wanted = 40
        for n in range(wanted):
            client.send(Publish(f"slow/{i}", bytes([n]) * 100_000, 0))
        seen = []
        while len(seen) < wanted:
            got = client.read_packet()
            assert isinstance(got, Publish)
            seen.append(got.payload[0])
        assert seen == list(range(wanted))
        client.close()


def test_a_client_id_is_taken_over(broker: Workers) -> None:
    before = connect(broker, "taken")
    for _ in range(9):
        after = connect(broker, "taken")
        last = before.read_packet()
        assert isinstance(last, Disconnect) and last.rc == TAKEN_OVER
        before.expect_closed()
        before = after


def test_the_end_of_a_client_is_noticed(broker: Workers) -> None:
    for i in range(6):
        connect(broker, f"ends{i}").close()
        broker.wait_log(f"Client ends{i} [127.0.0.1:")


def test_websockets_over_tls() -> None:
    with broker_of(CONFIG + "protocol websockets\n") as broker:
        for i in range(9):
            client = wire(broker, websocket=True)
            client.send(Connect(f"web{i}"), Subscribe(7, ((f"web/{i}", 0),)))
            accepted(client)
            assert isinstance(client.read_packet(), Suback)
            client.send(Publish(f"web/{i}", b"x" * 70_000))
            got = client.read_packet()
            assert isinstance(got, Publish) and len(got.payload) == 70_000


def test_the_name_of_a_certificate_moves_along() -> None:
    with broker_of(CONFIG + "require_certificate true\nuse_identity_as_username true\nacl_file {dir}/acl\n") as broker:
        for i in range(9):
            client = connect(broker, f"cert{i}", "ann")
            client.send(Publish("ann/x", b"", 1, 3))
            got = client.read_packet()
            assert isinstance(got, Puback) and got.rc in (0, 0x10)
        broker.wait_log(", u'ann').", 9)
        broker.wait_log(" negotiated TLSv1.3 cipher ", 9)


def test_max_connections_counts_a_relayed_client_once() -> None:
    with broker_of("listener {port} 127.0.0.1\nallow_anonymous true\nmax_connections 4\n" + FILES) as broker:
        broker.wait_log("disconnected: ")
        clients = [connect(broker, f"in{i}") for i in range(4)]
        with pytest.raises((ConnectionError, OSError)):
            wire(broker)
        for client in clients:
            client.send(Pingreq())
            client.expect_packet(Pingresp())
            client.close()
        until(lambda: broker.log().count("Client in") >= 4, broker.log)


def test_a_worker_that_starts_again_reads_the_key_of_root() -> None:
    broker = Workers(2, CONFIG, site_files(CONFIG), user="nobody")      # the parent, which root starts, changes to this user
    (broker.dir / "server.key").chmod(0o600)
    with broker:
        for number in (1, 2):
            before = broker.kill(number)
            until(lambda number=number, before=before: broker.pids().get(number, before) != before, broker.log)
            for i in range(4):
                connect(broker, f"root{number}{i}").close()
        wanted = Path(f"/proc/{broker.pids()[1]}").stat().st_uid
        assert all(f"Uid:\t{wanted}\t{wanted}\t{wanted}" in Path(f"/proc/{pid}/status").read_text() for pid in broker.pids().values())


def test_a_worker_that_is_killed_ends_its_relays() -> None:
    with broker_of(CONFIG) as broker:
        clients = {f"kill{i}": connect(broker, f"kill{i}") for i in range(24)}       # worker 2 has a part in each: 1 in 43 million
        broker.kill(2)
        alive = 0
        for client in clients.values():
            client.send(Pingreq())
            try:
                alive += client.read_frame() is not None
            except ConnectionError:
                continue
        assert 0 < alive < 24
        for name in clients:
            connect(broker, name).close()
