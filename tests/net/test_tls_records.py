"""Test TLS 1.3 after the handshake, with a broker: clients whose records the tests make, and OpenSSL's own client."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import hmac
import os
import re
import select
import socket
import subprocess
from tests.harness.effort import TIMEOUT_S
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.broker import Broker
from tests.harness.certificates import TLS_LINES, client_by_hand, client_context, server_files, server_paths
from tests.harness.packets import Connack, Connect, Pingreq, Publish, Subscribe
from tests.harness.plane import Plane
from tests.harness.wire import Wire
from tests.net.records import AES_128, AES_256, ALERT, ASKING_KEY_UPDATE, CHACHA, DATA, HANDSHAKE, KEY_UPDATE, Direction, Suite, expanded

LISTENER = "log_type all\nlistener {port} 127.0.0.1\nallow_anonymous true\n"
SUITES = {"TLS_AES_128_GCM_SHA256": AES_128, "TLS_AES_256_GCM_SHA384": AES_256, "TLS_CHACHA20_POLY1305_SHA256": CHACHA}
CONNACK, PINGRESP = b"\x20\x02\0\0", b"\xd0\0"
NEW_SESSION_TICKET = 4


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(LISTENER + TLS_LINES, server_files()) as one:
        yield one


class Client:
    """A client that shakes hands with Python's ssl and then makes its own records. `flight` holds its unsent Finished."""

    def __init__(self, port: int, folder: Path) -> None:
        keys = folder / "keys"
        keys.unlink(missing_ok=True)
        context = client_context()
        context.keylog_filename = str(keys)
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.tls, _, outgoing = client_by_hand(context, self.sock)
        self.flight = outgoing.read()
        secrets = dict(line.split()[::2] for line in keys.read_text().splitlines() if line[0] != "#")
        negotiated = self.tls.cipher()
        assert negotiated is not None
        self.suite: Suite = SUITES[negotiated[0]]
        self.sends = Direction(self.suite, bytes.fromhex(secrets["CLIENT_TRAFFIC_SECRET_0"]))
        self.reads = Direction(self.suite, bytes.fromhex(secrets["SERVER_TRAFFIC_SECRET_0"]))
        self.exporter = bytes.fromhex(secrets["EXPORTER_SECRET"])
        self.stream = b""

    def send(self, *records: bytes) -> None:
        self.sock.sendall(self.flight + b"".join(records))
        self.flight = b""

    def read(self) -> tuple[int, bytes]:
        """Return (type, content) of the next record that is no ticket; (0, b"") at the end."""
        while True:
            while len(self.stream) < 5 or len(self.stream) < 5 + int.from_bytes(self.stream[3:5]):
                more = b""
                with contextlib.suppress(ConnectionError):
                    more = self.sock.recv(65536)
                if not more:
                    return 0, b""
                self.stream += more
            n = 5 + int.from_bytes(self.stream[3:5])
            record, self.stream = self.stream[:n], self.stream[n:]
            ((kind, content),) = self.reads.open(record)
            if kind != HANDSHAKE or content[0] != NEW_SESSION_TICKET:
                return kind, content

    def data(self, n: int) -> bytes:
        """Return the next n bytes of data, from any number of records."""
        got = b""
        while len(got) < n:
            kind, content = self.read()
            assert kind == DATA, (kind, content)
            got += content
        return got

    def connected(self) -> Client:
        del self.tls         # frees 15 KiB
        self.send(self.sends.seal(Connect(client_id="raw").encode(4)))
        assert self.read() == (DATA, CONNACK)
        return self


@pytest.fixture
def client(broker: Broker, tmp_path: Path) -> Iterator[Client]:
    one = Client(broker.port, tmp_path)
    yield one
    one.sock.close()


def logged(broker: Broker, pattern: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not re.search(pattern, broker.log()):
        assert time.monotonic() < deadline, f"not in the log: {pattern}\n{broker.log()}"
        select.select([], [], [], 0.01)


PING = Pingreq().encode(4)


# ---------------------------------------------------------------- the moment of the handover


@pytest.mark.parametrize("cut", [0, 1, 4, 5, 20])
def test_data_that_arrives_with_the_finished(client: Client, cut: int) -> None:
    """Test that our code, not OpenSSL, opens data that arrives with the Finished, whole or in part."""
    records = client.sends.seal(Connect(client_id="early").encode(4)) + client.sends.seal(PING)
    client.send(records[: len(records) - cut])
    client.send(records[len(records) - cut :])
    assert client.data(6) == CONNACK + PINGRESP


def test_the_sequence_number_continues_after_the_ticket(client: Client) -> None:
    """Test that our sequence number continues after the one record that OpenSSL sealed, the ticket."""
    client.send()
    client.send(client.sends.seal(Connect(client_id="ticket").encode(4)))
    assert client.read() == (DATA, CONNACK)
    assert client.reads.sequence == 2


def test_bytes_one_at_a_time(client: Client) -> None:
    client.connected()
    for byte in client.sends.seal(PING, padding=30) + client.sends.update() + client.sends.seal(PING):
        client.send(bytes([byte]))
    assert client.data(4) == PINGRESP * 2


@pytest.mark.parametrize("suite", SUITES)
def test_each_suite(suite: str) -> None:
    """Test a client that sends itself a megabyte, with and without session resumption."""
    payload = bytes(range(256)) * 4096
    with Broker(LISTENER + TLS_LINES + f"ciphers_tls1.3 {suite}\n", server_files()) as broker:
        context, session = client_context(), None
        for turn in range(2):
            with context.wrap_socket(
                socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S), server_hostname="localhost", session=session
            ) as sock:
                assert sock.session_reused == (turn > 0)
                large = Publish(topic="a", payload=payload).encode(4)
                sock.sendall(Connect(client_id="a").encode(4) + Subscribe(mid=1, filters=(("a", 0),)).encode(4) + large)
                want, got = CONNACK + b"\x90\x03\0\x01\0" + large, b""
                while len(got) < len(want):
                    got += sock.recv(1 << 20)
                assert got == want
                session = sock.session
        assert f"cipher {suite}" in broker.log()


def test_max_fragment_length_keeps_records_small(broker: Broker) -> None:
    """Test that a client with max_fragment_length [RFC 6066 4] stays with OpenSSL, because it would refuse larger records."""
    large = Publish(topic="f", payload=b"x" * 5000).encode(4)
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{broker.port}", "-maxfraglen", "512", "-quiet"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(Connect(client_id="f").encode(4) + Subscribe(mid=1, filters=(("f", 0),)).encode(4) + large)
        process.stdin.flush()
        want = CONNACK + b"\x90\x03\0\x01\0" + large
        assert process.stdout.read(len(want)) == want
        process.kill()


def test_an_idle_client_holds_keys_and_no_ssl(tmp_path: Path) -> None:
    """Test the memory of an idle client without an SSL object, which takes 13 KiB.

    The test proves nothing if the allocator has no statistics, as under a sanitizer.
    """
    class Info(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]

    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Info
    with Plane(allow_anonymous=True, **server_paths(tmp_path)) as plane:
        clients = [Client(plane.port, tmp_path).connected() for _ in range(3)]
        before = mallinfo().uordblks
        clients += [Client(plane.port, tmp_path).connected() for _ in range(30)]
        assert (mallinfo().uordblks - before) / 30 < 8000, "and Python's part of each"
        assert plane.stats()["buffers_used_bytes"] == 0
        for one in clients:
            one.sock.close()


def memory_of(pid: int) -> Iterator[bytes]:
    """Yield the contents of each writable mapping of the process."""
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in maps:
            begin, end = (int(text, 16) for text in line.split()[0].split("-"))
            if " rw" not in line or end - begin > 1 << 30:
                continue
            memory.seek(begin)
            with contextlib.suppress(OSError):
                yield memory.read(end - begin)


def in_memory(pid: int, secrets: list[bytes]) -> int:
    """Return how often the secrets occur in the memory of the process."""
    return sum(content.count(secret) for content in memory_of(pid) for secret in secrets)


def roots(client: Client) -> set[bytes]:
    """Return the handshake secret and the master secret, which the secrets of application data derive from [RFC 8446 7.1].

    OpenSSL does not export them. They lie in memory near the client's secrets, 64 bytes apart, and one derives from the other."""
    suite, n = client.suite, client.suite.secret_bytes
    found: set[bytes] = set()
    silence = hashlib.new(suite.digest).digest()
    for content in memory_of(os.getpid()):
        at = content.find(client.sends.secret)
        while at >= 0:
            around = content[max(0, at - 1024) : at + 1024]
            for i in range(len(around) - 64 - n):
                secret, following = around[i : i + n], around[i + 64 : i + 64 + n]
                salt = expanded(suite, secret, b"derived", n, silence)
                if hmac.digest(salt, bytes(n), suite.digest) == following:
                    found |= {secret, following}
            at = content.find(client.sends.secret, at + 1)
    return found


def test_master_and_handshake_secrets_are_erased(broker: Broker, client: Client) -> None:
    """Test that the handover to our code erases the handshake, master and exporter secrets."""
    assert broker.process is not None
    handshake_and_master = roots(client)
    assert len(handshake_and_master) == 2
    client.connected()
    assert in_memory(broker.process.pid, [*handshake_and_master, client.exporter]) == 0


def test_secrets_are_erased_with_the_connection(broker: Broker, client: Client) -> None:
    """Test that the handover erases OpenSSL's copies; the end of the connection erases ours."""
    assert broker.process is not None
    secrets = [client.sends.secret, client.reads.secret]
    client.connected()
    assert in_memory(broker.process.pid, secrets) == 2
    client.send(client.sends.update(ASKING_KEY_UPDATE), client.sends.seal(PING))
    assert client.read() == (HANDSHAKE, KEY_UPDATE) and client.read() == (DATA, PINGRESP)
    assert in_memory(broker.process.pid, secrets) == 0
    secrets = [client.sends.secret, client.reads.secret]
    assert in_memory(broker.process.pid, secrets) == 2
    keys = [expanded(client.suite, secret, b"key", client.suite.key_bytes) for secret in secrets]
    assert in_memory(broker.process.pid, keys) >= 2
    client.send(client.sends.seal(b"\xe0\0"))
    while client.read() != (0, b""):
        pass
    assert in_memory(broker.process.pid, secrets + keys) == 0


# ---------------------------------------------------------------- keys change


def test_key_updates_in_both_directions(client: Client) -> None:
    client.connected()
    for _ in range(3):
        client.send(client.sends.update(), client.sends.seal(PING))
        assert client.read() == (DATA, PINGRESP)
        client.send(client.sends.update(ASKING_KEY_UPDATE), client.sends.update(ASKING_KEY_UPDATE), client.sends.seal(PING))
        assert client.read() == (HANDSHAKE, KEY_UPDATE)
        assert client.read() == (DATA, PINGRESP)
    assert client.reads.sequence == 1


@pytest.mark.parametrize("letter", [b"k\n", b"K\n"])
def test_key_updates_of_openssl(broker: Broker, letter: bytes) -> None:
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{broker.port}", "-tls1_3"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0) as process:
        assert process.stdin is not None and process.stdout is not None
        got = b""

        def until(words: bytes) -> None:
            nonlocal got
            while words not in got:
                ready, _, _ = select.select([process.stdout], [], [], TIMEOUT_S)
                assert ready, got
                more = process.stdout.read(65536)
                assert more, got
                got += more
            got = got.partition(words)[2]

        until(b"Verify return code")
        process.stdin.write(Connect(client_id="s_client").encode(4))
        until(CONNACK)
        for _ in range(3):
            process.stdin.write(letter)
            until(b"KEYUPDATE\n")
            process.stdin.write(PING)
            until(PINGRESP)
        process.kill()


# ---------------------------------------------------------------- errors that end the connection


@pytest.mark.parametrize(
    ("alert", "words"), [(20, "decryption failed or bad record mac"), (22, "data length too long"), (10, "unexpected message"), (47, "bad value")]
)
def test_a_protocol_error_sends_an_alert_and_a_log_line(broker: Broker, client: Client, alert: int, words: str) -> None:
    before = len(broker.log())
    client.connected()
    port = client.sock.getsockname()[1]
    wrong = {
        20: lambda: client.sends.seal(PING)[:-1] + b"\0",
        22: lambda: b"\x17\x03\x03\x41\x01",
        10: lambda: client.sends.seal(b"\x01\0\0\0", HANDSHAKE),
        47: lambda: client.sends.seal(KEY_UPDATE[:4] + b"\x02", HANDSHAKE),
    }
    client.send(wrong[alert](), client.sends.seal(PING))
    assert client.read() == (ALERT, bytes([2, alert]))
    assert client.read() == (0, b"")
    logged(broker, rf"OpenSSL Error\[0\]: error:[0-9A-F]+:SSL routines::{words}")
    logged(broker, rf"Client raw \[127.0.0.1:{port}\] disconnected: Protocol error")
    assert "SECRET" not in broker.log()[before:]


def test_a_flood_of_empty_records_ends_the_connection(client: Client) -> None:
    client.connected()
    with contextlib.suppress(ConnectionError):
        for _ in range(20):
            client.send(*(client.sends.seal(b"") for _ in range(10)))
    found = [client.read() for _ in range(2)]
    assert found[0] in ((ALERT, b"\x02\x0a"), (0, b"")) and found[1] == (0, b"")


def test_an_alert_of_the_client_is_logged(broker: Broker, client: Client) -> None:
    client.connected()
    client.send(client.sends.seal(b"\x02\x2a", ALERT))
    assert client.read() == (0, b"")
    logged(broker, r"OpenSSL Error\[0\]: error:[0-9A-F]+:SSL routines::sslv3 alert bad certificate")


def test_close_notify_is_answered_by_close_notify(client: Client) -> None:
    client.connected()
    client.send(client.sends.seal(b"\x01\0", ALERT))
    assert client.read() == (ALERT, b"\x01\0")
    assert client.read() == (0, b"")


def test_disconnect_is_answered_by_close_notify(client: Client) -> None:
    client.connected()
    client.send(client.sends.seal(b"\xe0\0"))
    assert client.read() == (ALERT, b"\x01\0")
    assert client.read() == (0, b"")


def test_an_error_of_one_connection_leaves_others_intact(broker: Broker, client: Client) -> None:
    """Test that an error of one connection leaves the shared contexts valid."""
    wire = Wire(broker.port, 4, tls=client_context())
    wire.send(Connect(client_id="other"))
    assert isinstance(wire.read_packet(), Connack)
    client.connected()
    for _ in range(3):
        client.send(client.sends.seal(PING))
        assert client.read() == (DATA, PINGRESP)
        wire.send(Pingreq())
        wire.expect(PINGRESP)
    client.send(b"\x17\x03\x03\0\x20" + bytes(32))
    while client.read() != (0, b""):
        pass
    wire.send(Pingreq())
    wire.expect(PINGRESP)
    wire.close()
