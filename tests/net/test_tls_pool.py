"""Test handshakes in threads: connections that end in every phase of a handshake, reloads and the end of the broker while handshakes run,
the order of work, and the limit of handshakes that have begun.

The tests run with one thread, with two, and with none, where the loop does the work."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.broker import Broker
from tests.harness.certificates import TLS_LINES, authority, client_context, server_files
from tests.harness.effort import SANITIZED, TIMEOUT_S
from tests.harness.packets import Connack, Connect, Pingreq
from tests.harness.wire import Wire, client_hello

LISTENER = "log_type all\nlistener {port} 127.0.0.1\nallow_anonymous true\n"
PINGRESP = b"\xd0\0"
PER_ADDRESS = 500               # default of tls_handshakes_per_address


@pytest.fixture(scope="module", params=[0, 1, 2])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    lines = f"tls_handshake_threads {request.param}\nconnect_timeout 30\n"
    with Broker(LISTENER + TLS_LINES + lines, server_files()) as one:
        yield one


def tcp(broker: Broker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S)


def client_flights(context: ssl.SSLContext, sock: socket.socket) -> Iterator[bytes]:
    """Yield each flight that a client must send; the reader of the next one has sent the last."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    while True:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            if flight := outgoing.read():
                yield flight
            more = sock.recv(65536)
            if not more:
                return
            incoming.write(more)
        else:
            tls.write(Connect(client_id="chaos").encode(4))
            yield outgoing.read()
            return


def reset(sock: socket.socket) -> None:
    """Close with a reset instead of an orderly end."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def half(broker: Broker, hello: bytes) -> socket.socket:
    sock = tcp(broker)
    sock.sendall(hello)
    return sock


def serves(broker: Broker, client_id: str = "asks") -> None:
    wire = Wire(broker.port, 4, tls=client_context())
    wire.send(Connect(client_id=client_id))
    assert isinstance(wire.read_packet(), Connack)
    wire.send(Pingreq())
    wire.expect(PINGRESP)
    wire.close()


def chaos(broker: Broker, seed: int, n: int) -> None:
    """Open connections that end at a random place of the handshake, in order, by a reset, or with garbage."""
    rng = random.Random(seed)
    context = client_context()
    context.maximum_version = rng.choice([ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
    for _ in range(n):
        with contextlib.suppress(OSError, ssl.SSLError), tcp(broker) as sock:
            last = rng.randrange(3)
            for place, flight in enumerate(client_flights(context, sock)):
                if place < last:
                    sock.sendall(flight)
                    continue
                cut = rng.randrange(len(flight) + 1)
                sock.sendall(flight[:cut] + rng.choice([b"", b"", rng.randbytes(rng.randrange(100))]))
                break
            if rng.random() < 0.5:
                reset(sock)


def storm(broker: Broker, n_threads: int, n: int) -> list[threading.Thread]:
    threads = [threading.Thread(target=chaos, args=(broker, seed, n)) for seed in range(n_threads)]
    for thread in threads:
        thread.start()
    return threads


# ---------------------------------------------------------------- connections that end


def test_connections_that_end_in_every_phase(broker: Broker) -> None:
    wire = Wire(broker.port, 4, tls=client_context())
    wire.send(Connect(client_id="beside"))
    assert isinstance(wire.read_packet(), Connack)
    threads = storm(broker, 4, 100)
    while any(thread.is_alive() for thread in threads):
        wire.send(Pingreq())
        wire.expect(PINGRESP)
    wire.close()
    serves(broker)
    assert broker.alive()


def test_a_handshake_byte_by_byte(broker: Broker) -> None:
    with tcp(broker) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for flight in client_flights(client_context(), sock):
            for byte in flight:
                sock.sendall(bytes([byte]))
        assert sock.recv(1)
    serves(broker)


def test_data_behind_the_finished_waits_for_the_thread(broker: Broker) -> None:
    """Test data that arrives while the client's last flight is with a thread, in one piece and in two."""
    for cut in (0, 1, 7, 60):
        with tcp(broker) as sock:
            for flight in client_flights(client_context(), sock):
                sock.sendall(flight[: len(flight) - cut])
                sock.sendall(flight[len(flight) - cut :])
            assert sock.recv(1)
    serves(broker)


def test_input_that_is_no_handshake_is_answered_with_an_alert(broker: Broker) -> None:
    for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + bytes(100), b"\x16\x03\x01\0\x05hello", bytes(64)):
        with tcp(broker) as sock:
            sock.sendall(garbage)
            assert sock.recv(1) in (b"\x15", b""), "an alert, or the end"
    serves(broker)


# ---------------------------------------------------------------- reload and end


def test_reloads_while_handshakes_run(broker: Broker) -> None:
    """Test that a reload exchanges certificates under a storm; a handshake that has begun ends with the old ones."""
    threads = storm(broker, 2, 60)
    files = [server_files(), {"server.crt": authority().issue("localhost")[1]}]
    _, certificate, key = authority().issue("localhost")
    files[1] = {"server.crt": certificate, "server.key": key}
    turn = 0
    while any(thread.is_alive() for thread in threads):
        for name in ("server.crt", "server.key"):
            (broker.dir / name).write_text(files[turn % 2][name])
        broker.send_signal(signal.SIGHUP)
        serves(broker)
        turn += 1
    assert broker.alive()


@pytest.mark.parametrize("n_threads", [0, 1, 2])
def test_the_broker_ends_while_handshakes_run(n_threads: int) -> None:
    with Broker(LISTENER + TLS_LINES + f"tls_handshake_threads {n_threads}\n", server_files()) as broker:
        hello = client_hello(client_context())
        threads = storm(broker, 2, 1000)
        halves = [half(broker, hello) for _ in range(100)]
        assert broker.stop() == 0
        for thread in threads:
            thread.join()
        for sock in halves:
            sock.close()


# ---------------------------------------------------------------- limits


def test_half_handshakes_beyond_the_limit_end_without_harm_to_others(broker: Broker) -> None:
    """Test that the newest end while the others wait for their clients only shortly, and that the limit counts what has ended no more."""
    hello = client_hello(client_context())
    halves = [half(broker, hello) for _ in range(PER_ADDRESS)]
    for sock in halves:
        assert sock.recv(1) == b"\x16", "the broker answers each ClientHello within the limit"
    more = [half(broker, hello) for _ in range(10)]
    for sock in (*more, *halves):
        sock.close()
    serves(broker)


@pytest.mark.skipif(SANITIZED, reason="the sanitizer's memory is part of the process")
def test_a_half_record_holds_no_ssl(broker: Broker, tmp_path: Path) -> None:
    """Test that a ClientHello that is not complete costs its bytes: OpenSSL begins with the first whole record."""
    assert broker.process is not None
    status = Path(f"/proc/{broker.process.pid}/status")

    def memory_kib() -> int:
        return int(status.read_text().partition("VmRSS:")[2].split()[0])

    hello = client_hello(client_context())
    serves(broker)
    before = memory_kib()
    halves = [half(broker, hello[:-1]) for _ in range(300)]
    serves(broker)
    assert (memory_kib() - before) / 300 < 6, "KiB per connection, and an SSL alone takes 13"
    for sock in halves:
        sock.close()


def test_threads_run_where_the_option_says(broker: Broker) -> None:
    assert broker.process is not None
    serves(broker)
    names = [path.read_text() for path in Path(f"/proc/{broker.process.pid}/task").glob("*/comm")]
    wanted = int(broker.config.read_text().partition("tls_handshake_threads ")[2].split()[0])
    assert sum(name == "mosq-tls\n" for name in names) == wanted


def test_the_threads_push_no_other_thread_from_a_processor(broker: Broker) -> None:
    assert broker.process is not None
    serves(broker)
    threads = [path.parent.name for path in Path(f"/proc/{broker.process.pid}/task").glob("*/comm") if path.read_text() == "mosq-tls\n"]
    assert [os.sched_getscheduler(int(one)) for one in threads] == [os.SCHED_BATCH] * len(threads)
    assert all(os.getpriority(os.PRIO_PROCESS, int(one)) >= 5 for one in threads)


def test_a_flood_from_one_address_delays_another_by_one_handshake() -> None:
    """Test the order of work: while a thousand ClientHellos of one address wait, a client with another address is served first."""
    with Broker(LISTENER + TLS_LINES + "tls_handshake_threads 1\n", server_files()) as broker:
        hello = client_hello(client_context())
        serves(broker)
        halves = [half(broker, hello) for _ in range(400)]
        tls = client_context().wrap_socket(
            socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S, source_address=("127.0.0.2", 0)),
            server_hostname="localhost")
        tls.sendall(Connect(client_id="other").encode(4))
        assert tls.recv(4) == b"\x20\x02\0\0"
        tls.close()
        deadline = time.monotonic() + TIMEOUT_S
        for sock in halves:
            assert sock.recv(1) == b"\x16" and time.monotonic() < deadline
            sock.close()
