"""Test the memory of connections that have not logged in: it is counted, costs about what they sent, and is bounded."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mosq
from tests.durable.test_restart import Kept
from tests.harness.broker import Broker
from tests.harness.certificates import TLS_LINES, client_context, server_files
from tests.harness.faults import until
from tests.harness.networks import NETWORKS, STAYING_MIN, begin_logins, finish_logins
from tests.harness.packets import Connect, Publish, Subscribe
from tests.harness.wire import Wire, client_hello

HALF = b"\x10\xa0\x8d\x06\0\x04MQTT\x04\xc2\0\0"          # a CONNECT of 100 kB
N = 40
LISTENER = "listener {port} 127.0.0.1\nallow_anonymous true\n"
CLIENT_BYTES = 700      # a connection itself

Open = Callable[..., socket.socket]


@pytest.fixture
def opened() -> Iterator[Open]:
    with contextlib.ExitStack() as stack:
        def open_(port: int, first: bytes, source: str = "127.0.0.1") -> socket.socket:
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20, source_address=(source, 0)))
            sock.sendall(first)
            return sock

        yield open_


def hello(announced: int, sent: int) -> bytes:
    """Return the beginning of a ClientHello in full records."""
    message = b"\x01" + announced.to_bytes(3, "big") + b"\3\3" + bytes(announced)
    records = [b"\x16\3\1" + struct.pack("!H", len(part)) + part
               for part in (message[at:at + 16384] for at in range(0, len(message), 16384))]
    return b"".join(records)[:sent]


@pytest.mark.parametrize("sent", [20, 1_000, 10_000, 50_000])
def test_a_half_connect_costs_about_what_it_sent(opened: Open, sent: int) -> None:
    with mosq.Broker() as broker:
        for _ in range(N):
            opened(broker.port, (HALF + bytes(sent))[:sent])
        until(lambda: broker.stats()["newcomers"] == N and broker.stats()["bytes_in"] == N * sent)
        assert broker.stats()["newcomers_bytes"] <= N * (2 * max(sent, 1000) + CLIENT_BYTES)


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[mosq.Broker]:
    for name, text in server_files().items():
        (tmp_path / name).write_text(text)
    config = "listener 1883 127.0.0.1\nallow_anonymous true\n" + TLS_LINES.replace("{dir}", str(tmp_path))
    with mosq.Broker(config, port=0) as broker:
        yield broker


@pytest.mark.parametrize("sent", [5, 200, 20_000, 50_000])
def test_a_half_client_hello_costs_about_what_it_sent(secure: mosq.Broker, opened: Open, sent: int) -> None:
    for _ in range(N):
        opened(secure.port, hello(60_000, sent))
    until(lambda: secure.stats()["newcomers"] == N)
    until(lambda: secure.stats()["buffers_used_bytes"] >= N * sent)
    assert secure.stats()["newcomers_bytes"] <= N * (2 * max(sent, 1000) + 2 * CLIENT_BYTES)
    assert secure.stats()["buffers_used_bytes"] <= N * (2 * sent + 2048)


def test_a_client_hello_above_64_kb_is_refused(secure: mosq.Broker, opened: Open) -> None:
    sock = opened(secure.port, hello(70_000, 1000))
    assert sock.recv(1) == b""


def handshake(sock: socket.socket, shape: Callable[[bytes], Iterator[bytes]]) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    for part in shape(outgoing.read()):
        sock.sendall(part)
    while True:
        try:
            client.do_handshake()
            break
        except ssl.SSLWantReadError:
            incoming.write(sock.recv(65536))


def bytewise(first: bytes) -> Iterator[bytes]:
    for n in range(len(first)):
        yield first[n:n + 1]


def tiny_records(first: bytes) -> Iterator[bytes]:
    message = first[5:]
    yield b"".join(b"\x16\3\1" + struct.pack("!H", len(message[at:at + 3])) + message[at:at + 3] for at in range(0, len(message), 3))


@pytest.mark.parametrize("shape", [bytewise, tiny_records])
def test_a_client_hello_in_pieces_is_understood(secure: mosq.Broker, opened: Open, shape: Callable[[bytes], Iterator[bytes]]) -> None:
    sock = opened(secure.port, b"")
    handshake(sock, shape)


def test_a_half_handshake_is_counted_with_the_memory_of_openssl(secure: mosq.Broker, opened: Open) -> None:
    first = client_hello(client_context())
    for _ in range(N):
        opened(secure.port, first)
    until(lambda: secure.stats()["newcomers_bytes"] >= N * 10_000)
    until(lambda: secure.stats()["newcomers"] == N)
    assert secure.stats()["newcomers_bytes"] <= N * 100_000


def test_the_command_counts_the_allocations_of_openssl() -> None:
    """OpenSSL lets a program count only from its first allocation on, so the command loads it before Python's hashlib."""
    script = ("import mosq.cli.start, sys; assert '_hashlib' not in sys.modules and '_ssl' not in sys.modules; "
              "import mosq._tls; assert mosq._tls.MEMORY_COUNTED")
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


FIRST = (HALF + bytes(20_000))[:20_000]


def has_ended(sock: socket.socket) -> bool:
    """Wait for the end of the connection. The system resets one whose bytes the broker had not read."""
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_flood_ends_its_own_connections(opened: Open) -> None:
    """The connections of a network that holds much end, the oldest first, and not the older ones of other networks."""
    with mosq.Broker(login_memory=200_000) as broker, contextlib.ExitStack() as stack:
        others = begin_logins(stack, broker.port)
        until(lambda: broker.stats()["newcomers"] == NETWORKS)
        early = opened(broker.port, FIRST)
        until(lambda: broker.stats()["newcomers"] == NETWORKS + 1)
        for _ in range(N):
            opened(broker.port, FIRST)
        assert has_ended(early)
        until(lambda: broker.stats()["refused_evicted"] >= N // 2)
        assert broker.stats()["newcomers_bytes"] <= 200_000
        assert finish_logins(others) >= STAYING_MIN


def test_the_oldest_connection_ends_if_no_network_holds_much(opened: Open) -> None:
    with mosq.Broker(login_memory=200_000) as broker:
        early = opened(broker.port, FIRST, "127.0.1.1")
        until(lambda: broker.stats()["newcomers"] == 1)
        for n in range(N):
            opened(broker.port, FIRST, f"127.0.{n + 2}.1")
        assert has_ended(early)
        until(lambda: broker.stats()["refused_evicted"] >= N // 2)
        assert broker.stats()["newcomers_bytes"] <= 200_000


def test_clients_behind_a_proxy_count_by_their_own_networks(opened: Open) -> None:
    """A PROXY header replaces the address: the flood of one client ends its own connections, and not those of others behind the proxy."""
    config = "listener 1883 127.0.0.1\nenable_proxy_protocol 1\nallow_anonymous true\n"
    with mosq.Broker(config, port=0, login_memory=200_000) as broker, contextlib.ExitStack() as stack:
        others = begin_logins(stack, broker.port, by_proxy=True)
        until(lambda: broker.stats()["newcomers"] == NETWORKS)
        for _ in range(N):
            opened(broker.port, b"PROXY TCP4 203.0.113.1 192.0.2.1 1000 1883\r\n" + FIRST)
        until(lambda: broker.stats()["refused_evicted"] >= N // 2)
        assert finish_logins(others) >= STAYING_MIN


def test_an_evicted_connection_has_a_log_line(opened: Open) -> None:
    with Broker(LISTENER + "login_memory 200000\nlog_connections_max 5\n") as broker:
        for _ in range(N):
            opened(broker.port, FIRST)
        until(lambda: broker.log().count("Client connection from 127.0.0.1 denied: login_memory exceeded before its login.") == 5)


def test_a_login_ends_the_count(opened: Open) -> None:
    with mosq.Broker() as broker:
        wire = Wire(broker.port)
        wire.send(Connect("c"))
        wire.read_packet()
        assert (broker.stats()["newcomers"], broker.stats()["newcomers_bytes"]) == (0, 0)
        wire.close()


def resident(broker: Broker) -> int:
    assert broker.process is not None
    return int(Path(f"/proc/{broker.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.timing
@pytest.mark.parametrize("kind", ["hello", "handshake"])
def test_the_process_stays_within_memory_limit_before_a_login(opened: Open, kind: str) -> None:
    limit = 48_000_000
    first = hello(100_000, 99_000) if kind == "hello" else client_hello(client_context())
    with Broker(LISTENER + TLS_LINES + f"memory_limit {limit}\nconnect_timeout 600\n", server_files()) as broker:
        for _ in range(600):
            with contextlib.suppress(OSError):
                opened(broker.port, first)
        assert resident(broker) <= 1.2 * limit


@pytest.mark.timing
def test_the_process_stays_within_memory_limit_with_sessions() -> None:
    """Sessions, their queues and filters are not all counted one by one; the memory of the process is."""
    limit = 48_000_000
    with Kept(LISTENER + f"memory_limit {limit}\nmax_queued_messages 0\n") as broker:
        wires = 0
        refused = 0
        while wires < 60_000 and refused < 10:
            wire = Wire(broker.port, 4)
            wire.send(Connect(f"{wires}" + "c" * 2000, clean=False), Subscribe(1, ((f"{wires}", 1),)))
            frame = wire.read_frame()
            refused += frame is None or frame[3] != 0
            wires += 1
            wire.close()
        assert refused
        assert resident(broker) <= 1.2 * limit
        pub = Wire(broker.port, 4)
        pub.send(Publish("x"))
        pub.close()
