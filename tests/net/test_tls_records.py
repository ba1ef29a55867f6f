"""Test TLS 1.3 after the handshake, with a broker: clients whose records the tests make, and OpenSSL's own client."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import select
import socket
import subprocess
import sys
from tests.harness.effort import TIMEOUT_S
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mosq._tls import compact_refusal
from mosq.config.model import Config, Listener
from mosq.server.opening import compact_lines
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


COMPACT = "tls_compact_records true\n"
MODES = {"openssl": "", "compact": COMPACT}


@pytest.fixture(scope="module", params=MODES)
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Yield a broker whose records OpenSSL processes, then one whose records mosq processes."""
    with Broker(LISTENER + TLS_LINES + MODES[request.param], server_files()) as one:
        yield one


@pytest.fixture(scope="module")
def compact_broker() -> Iterator[Broker]:
    with Broker(LISTENER + TLS_LINES + COMPACT, server_files()) as one:
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


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("suite", SUITES)
def test_each_suite(suite: str, mode: str) -> None:
    """Test a client that sends itself a megabyte, with and without session resumption."""
    payload = bytes(range(256)) * 4096
    with Broker(LISTENER + TLS_LINES + MODES[mode] + f"ciphers_tls1.3 {suite}\n", server_files()) as broker:
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
    with Plane(allow_anonymous=True, tls_compact_records=True, **server_paths(tmp_path)) as plane:
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


def test_keys_are_erased_with_the_connection(compact_broker: Broker, tmp_path: Path) -> None:
    """Test the secrets and keys that only our code has had, those after a KeyUpdate: each is in memory once, and not at all after
    the next KeyUpdate or the end. OpenSSL's copies of the first ones may stay in memory that it has freed."""
    assert compact_broker.process is not None
    pid, client = compact_broker.process.pid, Client(compact_broker.port, tmp_path).connected()
    before: list[bytes] = []
    for _ in range(2):
        client.send(client.sends.update(ASKING_KEY_UPDATE), client.sends.seal(PING))
        assert client.read() == (HANDSHAKE, KEY_UPDATE) and client.read() == (DATA, PINGRESP)
        secrets = [client.sends.secret, client.reads.secret]
        assert in_memory(pid, secrets) == 2 and in_memory(pid, before) == 0
        before = secrets
    keys = [expanded(client.suite, secret, b"key", client.suite.key_bytes) for secret in secrets]
    assert in_memory(pid, keys) >= 2
    client.send(client.sends.seal(b"\xe0\0"))
    while client.read() != (0, b""):
        pass
    assert in_memory(pid, secrets + keys) == 0
    client.sock.close()


# ---------------------------------------------------------------- keys change


def test_key_updates_in_both_directions(client: Client) -> None:
    client.connected()
    for _ in range(3):
        client.send(client.sends.update(), client.sends.seal(PING))
        assert client.read() == (DATA, PINGRESP)
        client.send(client.sends.update(ASKING_KEY_UPDATE), client.sends.update(ASKING_KEY_UPDATE), client.sends.seal(PING))
        got = [client.read()]
        while got[-1][0] == HANDSHAKE:
            got.append(client.read())
        answers = len(got) - 1
        assert 1 <= answers <= 2, "one answer is enough for two requests; OpenSSL sends two"
        assert got == [(HANDSHAKE, KEY_UPDATE)] * answers + [(DATA, PINGRESP)]
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


def damaged(record: bytes) -> bytes:
    """Return the record with another last byte."""
    return record[:-1] + bytes([record[-1] ^ 1])


@pytest.mark.parametrize(
    ("alert", "words"), [(20, "decryption failed or bad record mac"), (22, "(data|encrypted) length too long"), (10, "unexpected message"), (47, "bad (value|key update)")]
)
def test_a_protocol_error_sends_an_alert_and_a_log_line(broker: Broker, client: Client, alert: int, words: str) -> None:
    before = len(broker.log())
    client.connected()
    port = client.sock.getsockname()[1]
    wrong = {
        20: lambda: damaged(client.sends.seal(PING)),
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


KEY_UPDATE_FLOOD = 3000


def test_a_storm_of_key_updates_ends_the_connection(broker: Broker, client: Client) -> None:
    """Test a client that sends thousands of KeyUpdates in one write, each of which asks for an answer. The broker handles at most
    32 per second, so a client beside it is served, and a client that renews its keys now and then is not affected."""
    wire = Wire(broker.port, 4, tls=client_context())
    wire.send(Connect(client_id="beside"))
    assert isinstance(wire.read_packet(), Connack)
    client.connected()
    storm = b"".join(client.sends.update(ASKING_KEY_UPDATE) for _ in range(KEY_UPDATE_FLOOD))
    with contextlib.suppress(ConnectionError):
        client.send(storm)
    wire.send(Pingreq())
    wire.expect(PINGRESP)
    answers, end = 0, (HANDSHAKE, b"")
    while end[0] == HANDSHAKE:
        end = client.read()
        answers += 1
    assert end in ((0, b""), (ALERT, b"\x02\x0a")) and answers <= 64, "the broker handles no more than the limit of two seconds"
    logged(broker, r"OpenSSL Error\[0\]: error:[0-9A-F]+:SSL routines::(too many key updates|unexpected message)")
    wire.send(Pingreq())
    wire.expect(PINGRESP)
    wire.close()


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


# ---------------------------------------------------------------- where OpenSSL keeps the records


def test_compact_records_are_refused_with_a_reason() -> None:
    assert compact_refusal(fips=False, version=(3, 0)) == ""
    assert "FIPS" in compact_refusal(fips=True, version=(3, 0))
    assert "tested with OpenSSL 3.0, and this is 3.9" in compact_refusal(fips=False, version=(3, 9))


def test_fips_settings_of_openssl_switch_compact_records_off(tmp_path: Path) -> None:
    settings = tmp_path / "openssl.cnf"
    settings.write_text(
        "openssl_conf = main\n[main]\nalg_section = algorithms\n[algorithms]\ndefault_properties = fips=yes\n")
    code = "from mosq._tls import compact_refusal; print(compact_refusal())"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "OPENSSL_CONF": str(settings)}, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("OpenSSL allows only FIPS algorithms")


@pytest.mark.parametrize(("wanted", "why", "lines"), [(True, "it is not validated", 1), (True, "", 0), (False, "it is not validated", 0)])
def test_the_log_has_the_reason_of_the_refusal(monkeypatch: pytest.MonkeyPatch, wanted: bool, why: str, lines: int) -> None:
    monkeypatch.setattr("mosq.engine.compact_records_refusal", lambda: why)
    config = Config()
    config.listeners = [Listener(8883)]
    config.listeners[0].certfile, config.listeners[0].tls_compact_records = "server.crt", wanted
    assert compact_lines(config) == ["Warning: 'tls_compact_records' has no effect: it is not validated. OpenSSL processes the records."] * lines
