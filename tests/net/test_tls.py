"""Test TLS listeners: handshakes, client certificates, pre-shared keys, resumption, reload, and input that is no
handshake."""

from __future__ import annotations

import contextlib
import re
import select
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tests.harness.broker import Broker
from tests.harness.certificates import TLS_LINES, Authority, authority, client_by_hand, client_context, key_new, key_pem, server_files, server_paths
from tests.harness.effort import AT_ONCE_S, TIMEOUT_S
from tests.harness.packets import Connack, Connect, Publish, Subscribe
from tests.harness.plane import Plane
from tests.harness.wire import Wire

LISTENER = "log_type all\nlistener {port} 127.0.0.1\nallow_anonymous true\n"
PSK = LISTENER + "psk_hint hint\npsk_file {dir}/psk\n"
ANN_KEY = "0123456789abcdef"


def running(extra: str = "", files: dict[str, str] | None = None) -> Broker:
    return Broker(LISTENER + TLS_LINES + extra, {**server_files(), **(files or {})})


def tcp(broker: Broker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), timeout=TIMEOUT_S)


def secured(broker: Broker, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> ssl.SSLSocket:
    return context.wrap_socket(tcp(broker), server_hostname="localhost", session=session)


def connect(broker: Broker, context: ssl.SSLContext, client_id: str = "c", level: int = 5) -> Wire:
    wire = Wire(broker.port, level, tls=context)
    wire.send(Connect(client_id=client_id))
    got = wire.read_packet()
    assert isinstance(got, Connack) and got.rc == 0, got
    return wire


def logged(broker: Broker, pattern: str) -> re.Match[str]:
    deadline = time.monotonic() + TIMEOUT_S
    while not (found := re.search(pattern, broker.log())):
        assert time.monotonic() < deadline, f"not in the log: {pattern}\n{broker.log()}"
        select.select([], [], [], 0.01)
    return found


def refused(broker: Broker, context: ssl.SSLContext) -> None:
    """Check that the broker refuses a client: a TLS 1.3 client sees the failure of the handshake only when it reads."""
    with contextlib.suppress(ssl.SSLError, ConnectionError), secured(broker, context) as sock:
        sock.sendall(Connect(client_id="never").encode(4))
        assert sock.recv(100) == b"", "the broker accepted the client"


@pytest.fixture(scope="module", params=["openssl", "compact"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """Yield a broker whose records OpenSSL processes, then one whose records mosq processes."""
    with running("connect_timeout 1\n" + ("tls_compact_records true\n" if request.param == "compact" else "")) as one:
        yield one


# ---------------------------------------------------------------- traffic


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_versions_and_their_log_line(broker: Broker, version: ssl.TLSVersion) -> None:
    context = client_context()
    context.minimum_version = context.maximum_version = version
    wire = connect(broker, context, f"id{version}")
    assert isinstance(wire.sock, ssl.SSLSocket)
    cipher = wire.sock.cipher()
    assert cipher is not None
    logged(broker, rf"Client id{version} negotiated {wire.sock.version()} cipher {cipher[0]}")
    wire.close()


def test_bytes_one_at_a_time(broker: Broker) -> None:
    """Test a client that sends each byte of the handshake and of the records alone."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with tcp(broker) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def exchange() -> None:
            for byte in outgoing.read():
                sock.sendall(bytes([byte]))

        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                exchange()
                incoming.write(sock.recv(65536))
        tls.write(Connect(client_id="drops").encode(4))
        exchange()
        while True:
            try:
                assert tls.read(100) == b"\x20\x02\0\0"
                break
            except ssl.SSLWantReadError:
                incoming.write(sock.recv(65536))


def test_a_large_message_and_the_message_after_it_in_its_records(broker: Broker) -> None:
    payload = bytes(range(256)) * 4000
    wire = connect(broker, client_context(), "large")
    wire.send(Subscribe(mid=1, filters=(("large/#", 0),)))
    wire.read_packet()
    wire.send(*[Publish(topic=f"large/{i}", payload=payload if i % 2 else b"little") for i in range(6)])
    for i in range(6):
        got = wire.read_packet()
        assert isinstance(got, Publish)
        assert (got.topic, got.payload) == (f"large/{i}", payload if i % 2 else b"little")
    wire.close()


def test_the_output_of_a_turn_is_sent_in_one_record(broker: Broker) -> None:
    """Test that fifty messages that arrived in one record are forwarded in one record."""
    context = client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    publisher = connect(broker, client_context(), "publisher")
    with tcp(broker) as sock:
        tls, incoming, outgoing = client_by_hand(context, sock)

        def read(want: int) -> bytes:
            got = b""
            while len(got) < want:
                try:
                    got += tls.read(65536)
                except ssl.SSLWantReadError:
                    sock.sendall(outgoing.read())
                    incoming.write(sock.recv(65536))
            return got

        tls.write(Connect(client_id="counts").encode(4) + Subscribe(mid=1, filters=(("count", 0),)).encode(4))
        sock.sendall(outgoing.read())
        read(4 + 5)
        one = Publish(topic="count", payload=b"x" * 20).encode(4)
        publisher.send(*[Publish(topic="count", payload=b"x" * 20)] * 50)
        raw = b""
        while len(raw) < 5 or len(raw) < 5 + int.from_bytes(raw[3:5]):
            raw += sock.recv(65536)
        assert raw[0] == 23
        assert len(raw) == 5 + int.from_bytes(raw[3:5])
        incoming.write(raw)
        assert read(50 * len(one)) == one * 50
    publisher.close()


def test_a_reader_that_pauses_gets_everything(broker: Broker) -> None:
    """Test output that the socket does not take: encrypted data waits, and no byte is lost or out of order."""
    reader = connect(broker, client_context(), "slow")
    reader.send(Subscribe(mid=1, filters=(("slow", 0),)))
    reader.read_packet()
    writer = connect(broker, client_context(), "fast")
    payloads = [bytes([i]) * 100_000 for i in range(60)]
    for payload in payloads:
        writer.send(Publish(topic="slow", payload=payload, qos=1, mid=1))
        writer.read_packet()
    for payload in payloads:
        got = reader.read_packet()
        assert isinstance(got, Publish)
        assert got.payload == payload
    reader.close()
    writer.close()


def test_close_notify_is_answered(broker: Broker) -> None:
    with secured(broker, client_context()) as sock:
        sock.sendall(Connect(client_id="polite").encode(4))
        assert sock.recv(4) == b"\x20\x02\0\0"
        plain = sock.unwrap()  # raises unless the broker sends close_notify too
        assert plain.recv(1) == b""
        plain.close()
    logged(broker, r"Client polite \[127.0.0.1:\d+\] disconnected")


def test_resumption(broker: Broker) -> None:
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = client_context()
        context.minimum_version = context.maximum_version = version
        session = None
        for turn in range(3):
            with secured(broker, context, session) as sock:
                sock.sendall(Connect(client_id="again").encode(4))
                assert sock.recv(4) == b"\x20\x02\0\0"
                assert sock.session_reused == (turn > 0)
                session = sock.session


# ---------------------------------------------------------------- clients' certificates


def names_in(tmp_path: Path, extra: str, common_name: str | None) -> str:
    _, *pem = authority().issue(common_name)
    with running("require_certificate true\n" + extra) as one:
        connect(one, client_context(tmp_path, (pem[0], pem[1])), "named").close()
        return logged(one, r"as named \(.*\)\.").group()


def test_the_common_name_is_the_user_name(tmp_path: Path) -> None:
    assert "u'Zoë'" in names_in(tmp_path, "use_identity_as_username true\nallow_anonymous false\n", "Zoë")


def test_the_subject_is_the_user_name(tmp_path: Path) -> None:
    assert r"u'CN=ann,O=Acme\, Inc'" in names_in(tmp_path, "use_subject_as_username true\n", "ann")


def test_the_certificate_gives_no_user_name_without_these_options(tmp_path: Path) -> None:
    assert "u'" not in names_in(tmp_path, "", "ann")


@pytest.mark.parametrize(("level", "answer"), [(4, b"\x20\x02\x00\x04"), (5, b"\x20\x03\x00\x86\x00")])
def test_no_common_name(tmp_path: Path, level: int, answer: bytes) -> None:
    _, *pem = authority().issue(None)
    with running("require_certificate true\nuse_identity_as_username true\n") as one:
        wire = Wire(one.port, level, tls=client_context(tmp_path, (pem[0], pem[1])))
        wire.send(Connect(client_id="x"))
        wire.expect(answer)
        wire.expect_closed()
        wire.close()


def test_a_missing_certificate_is_refused_where_it_names_the_user() -> None:
    with running("use_identity_as_username true\n") as one:
        wire = Wire(one.port, 4, tls=client_context())
        wire.send(Connect(client_id="x", username="ann"))
        wire.expect(b"\x20\x02\x00\x04")
        wire.close()


def test_only_clients_with_a_trusted_certificate_are_accepted(tmp_path: Path) -> None:
    _, *good_pem = authority().issue("good")
    bad, *bad_pem = authority().issue("bad")
    _, *late_pem = authority().issue("late", expired=True)
    _, *other_pem = Authority().issue("other")
    with running("require_certificate true\ncrlfile {dir}/crl\n", {"crl": authority().revoke(bad)}) as one:
        connect(one, client_context(tmp_path, (good_pem[0], good_pem[1]))).close()
        for pem in (bad_pem, late_pem, other_pem):
            refused(one, client_context(tmp_path, (pem[0], pem[1])))
        refused(one, client_context())
        for words in ("certificate verify failed", "peer did not return a certificate"):
            logged(one, rf"OpenSSL Error\[0\]: error:[0-9A-F]+:SSL routines::{words}")
        logged(one, r"Client 127.0.0.1 \[127.0.0.1:\d+\] disconnected: Protocol error\.")
    with running("require_certificate true\ndisable_client_cert_date_checks true\n") as one:
        connect(one, client_context(tmp_path, (late_pem[0], late_pem[1]))).close()
        refused(one, client_context(tmp_path, (other_pem[0], other_pem[1])))


# ---------------------------------------------------------------- the broker's own chain


def test_a_missing_chain_is_completed_from_the_authorities(tmp_path: Path) -> None:
    """Test a certificate whose issuer is among the authorities: the broker sends the issuer too, as OpenSSL would, but looks
    it up once."""
    middle = Authority("middle", by=authority())
    _, certificate, key = middle.issue("localhost")
    with running(files={"ca.crt": authority().pem + middle.pem, "server.crt": certificate, "server.key": key}) as one:
        connect(one, client_context()).close()
    with running(files={"ca.crt": authority().pem, "server.crt": certificate + middle.pem, "server.key": key}) as one:
        connect(one, client_context()).close()
    alone = running(files={"ca.crt": authority().pem, "server.crt": certificate, "server.key": key})
    with alone as one, pytest.raises(ssl.SSLCertVerificationError):
        connect(one, client_context())


# ---------------------------------------------------------------- reload


def test_a_reload_ends_revoked_clients_only(tmp_path: Path) -> None:
    _, *stays = authority().issue("stays")
    gone, *goes = authority().issue("goes")
    with running("require_certificate true\ncrlfile {dir}/crl\n", {"crl": authority().revoke()}) as one:
        staying = connect(one, client_context(tmp_path, (stays[0], stays[1])), "stays")
        going = connect(one, client_context(tmp_path, (goes[0], goes[1])), "goes")
        (one.dir / "crl").write_text(authority().revoke(gone))
        one.send_signal(signal.SIGHUP)
        assert going.read_frame(TIMEOUT_S) == b"\xe0\x01\x98"
        going.expect_closed()
        staying.expect_nothing()
        refused(one, client_context(tmp_path, (goes[0], goes[1])))
        connect(one, client_context(tmp_path, (stays[0], stays[1])), "new").close()
        staying.close()
        going.close()


def test_a_new_certificate_after_a_reload_keeps_old_connections() -> None:
    with running() as one:
        old = connect(one, client_context(), "old")
        other = Authority("other")
        _, certificate, key = other.issue("localhost")
        (one.dir / "server.crt").write_text(certificate)
        (one.dir / "server.key").write_text(key)
        one.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                connect(one, client_context(trust=other), "new").close()
                break
            except ssl.SSLError:
                assert time.monotonic() < deadline
        old.expect_nothing()
        old.close()
        refused(one, client_context())


def test_tls_sessions_survive_a_reload_with_the_same_certificate() -> None:
    with running() as one:
        context = client_context()
        with secured(one, context) as sock:
            sock.sendall(Connect(client_id="again").encode(4))
            sock.recv(4)
            session = sock.session
        one.send_signal(signal.SIGHUP)
        logged(one, "Reloading config")
        connect(one, client_context(), "asks").close()
        with secured(one, context, session) as sock:
            assert sock.session_reused


def test_a_bad_reload_changes_nothing() -> None:
    with running() as one:
        (one.dir / "server.key").write_text("nonsense")
        one.send_signal(signal.SIGHUP)
        logged(one, r"Unable to load server key file .*server.key")
        connect(one, client_context()).close()


# ---------------------------------------------------------------- invalid files


@pytest.mark.parametrize(
    ("files", "extra", "words"),
    [
        ({"server.crt": "nonsense"}, "", r'Unable to load server certificate ".*server.crt". Check certfile.'),
        ({"server.key": "nonsense"}, "", r'Unable to load server key file ".*server.key". Check keyfile.'),
        ({"server.key": key_pem(key_new())}, "", r"Server certificate/key are inconsistent"),
        ({"server.key": key_pem(key_new(), b"secret")}, "", r"The key is encrypted.*expected a key without one"),
        ({"ca.crt": "nonsense"}, "", r'Unable to load CA certificates. Check cafile ".*ca.crt"'),
        ({"crl": "nonsense"}, "crlfile {dir}/crl\n", r'Unable to load certificate revocation file ".*crl"'),
        ({}, "ciphers NONSENSE\n", r'Unable to set TLS ciphers. Check cipher list "NONSENSE"'),
        ({}, "ciphers_tls1.3 NONSENSE\n", r"Unable to set TLS 1.3 ciphersuites"),
        ({}, "tls_version tlsv1.4\n", r"tls_version"),
    ],
)
def test_bad_files(files: dict[str, str], extra: str, words: str) -> None:
    one = running(extra, files)
    with pytest.raises(RuntimeError, match=words):
        one.start()
    assert one.process is not None and one.process.returncode not in (0, None)
    assert "secret" not in one.log()
    one.close()


def test_versions_and_ciphers_are_limits() -> None:
    with running("tls_version tlsv1.3\nciphers_tls1.3 TLS_CHACHA20_POLY1305_SHA256\n") as one:
        old = client_context()
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        refused(one, old)
        with secured(one, client_context()) as sock:
            cipher = sock.cipher()
            assert cipher is not None and cipher[0] == "TLS_CHACHA20_POLY1305_SHA256"


def test_keys_are_logged_with_tls_keylog() -> None:
    from tests.harness.broker import command

    with contextlib.ExitStack() as stack:
        one = running()
        stack.callback(one.close)
        one.start()
        one.stop()
        log = one.dir / "keys"
        with (one.dir / "log").open("ab") as out:
            one.process = subprocess.Popen([*command(), "-c", str(one.config), "--tls-keylog", str(log)], stdout=out, stderr=out)
        logged(one, "TLS key logging is for DEBUGGING only.")
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            with contextlib.suppress(OSError):
                connect(one, client_context()).close()
                break
            assert time.monotonic() < deadline
        assert re.search(r"^SERVER_TRAFFIC_SECRET_0 [0-9a-f]{64} ", log.read_text(), re.MULTILINE)
        assert log.stat().st_mode & 0o077 == 0


# ---------------------------------------------------------------- input that is no handshake


@pytest.mark.parametrize(
    "garbage",
    [
        Connect(client_id="plain").encode(4),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\xff\xff" + b"\x01" * 70000,
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
        b"\x80" * 300,
        bytes(range(256)) * 20,
    ],
    ids=["mqtt", "http", "huge", "short hello", "sslv2", "noise"],
)
def test_garbage_is_closed_and_logged(broker: Broker, garbage: bytes) -> None:
    before = len(broker.log())
    with tcp(broker) as sock:
        port = sock.getsockname()[1]
        with contextlib.suppress(ConnectionError):
            sock.sendall(garbage)
            while sock.recv(65536):
                pass
    logged(broker, rf"\[127.0.0.1:{port}\] disconnected: ")
    assert "OpenSSL Error[0]: error:" in broker.log()[before:]
    assert broker.alive()


def test_a_handshake_that_never_ends_is_cut_off(broker: Broker) -> None:
    """Test that connect_timeout covers the handshake, also if the client sends single bytes now and then."""
    outgoing = ssl.MemoryBIO()
    tls = client_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = outgoing.read()
    began = time.monotonic()
    with tcp(broker) as sock:
        for byte in hello[:-1]:
            ready, _, _ = select.select([sock], [], [], 0.1)
            if ready:
                break
            sock.sendall(bytes([byte]))
        assert sock.recv(1) == b""
    assert time.monotonic() - began < AT_ONCE_S


def test_silence_after_the_handshake_is_cut_off(broker: Broker) -> None:
    with secured(broker, client_context()) as sock:
        assert sock.recv(1) == b""


def test_a_modified_record_ends_the_connection(broker: Broker) -> None:
    with tcp(broker) as sock:
        tls, _, outgoing = client_by_hand(client_context(), sock)
        tls.write(Connect(client_id="broken").encode(4))
        raw = bytearray(outgoing.read())
        raw[-1] ^= 1
        sock.sendall(raw)
        port = sock.getsockname()[1]
        while sock.recv(65536):
            pass
    logged(broker, rf"\[127.0.0.1:{port}\] disconnected: Protocol error")


def test_renegotiation_is_refused(broker: Broker) -> None:
    done = subprocess.run(
        ["openssl", "s_client", "-connect", f"127.0.0.1:{broker.port}", "-tls1_2", "-legacy_renegotiation"],
        input=b"R\n",
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert b"no renegotiation" in done.stderr + done.stdout
    connect(broker, client_context(), "after").close()


def test_idle_connections_hold_no_buffer(tmp_path: Path) -> None:
    with Plane(allow_anonymous=True, **server_paths(tmp_path)) as plane:
        for i in range(20):
            wire = Wire(plane.port, 4, tls=client_context())
            plane.wires.append(wire)
            wire.send(Connect(client_id=f"idle{i}"))
            wire.expect(b"\x20\x02\0\0")
        assert plane.stats()["buffers_used_bytes"] == 0
        wire.send(b"\x30")       # an unfinished packet holds a buffer
        plane.until(lambda: plane.stats()["buffers_used_bytes"] > 0)


# ---------------------------------------------------------------- other programs


def test_paho(broker: Broker) -> None:
    got: list[bytes] = []
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id="paho")
    client.tls_set_context(client_context())
    client.on_connect = lambda c, *_: c.subscribe("paho", 1)
    client.on_subscribe = lambda c, *_: c.publish("paho", b"hello", 1)
    client.on_message = lambda c, _, message: (got.append(message.payload), c.disconnect())
    client.connect("localhost", broker.port)
    client.loop_forever()
    assert got == [b"hello"]


def published(broker: Broker, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = ["mosquitto_pub", "-h", "localhost", "-p", str(broker.port), "-i", "pub", "-t", "a", "-m", "x", "-q", "1", *arguments]
    return subprocess.run(command, capture_output=True, timeout=TIMEOUT_S, check=False)


def test_mosquitto_pub(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "ca").write_text(authority().pem)
    assert published(broker, "--cafile", str(tmp_path / "ca")).returncode == 0
    (tmp_path / "ca").write_text(Authority().pem)
    assert published(broker, "--cafile", str(tmp_path / "ca")).returncode != 0


# ---------------------------------------------------------------- pre-shared keys


@pytest.mark.parametrize("version", ["tlsv1.2", "tlsv1.3"])
def test_pre_shared_keys(version: str) -> None:
    files = {"psk": f"# identities\nann:{ANN_KEY}\nbob:ff\n"}
    with Broker(PSK + "use_identity_as_username true\nallow_anonymous false\n", files) as one:
        for identity, key, good in (("ann", ANN_KEY, True), ("ann", "00", False), ("bob", "ff", True), ("eve", ANN_KEY, False)):
            done = published(one, "--psk-identity", identity, "--psk", key, "--tls-version", version)
            assert (done.returncode == 0) == good, (identity, done.stderr, one.log())
        assert re.findall(r"as pub \(.*u'(\w+)'\)", one.log()) == ["ann", "bob"]
        assert ANN_KEY not in one.log()
        refused(one, client_context())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("ann\n", r"psk file .*line 1: expected IDENTITY:KEY"),
        ("# x\nann:\n", r'Empty psk for identity "ann": .*line 2'),
        ("ann:xyz\n", r'psk for identity "ann" contains non-hexadecimal characters'),
        ("ann:" + "00" * 257, r"line 1: an identity may have 256 bytes, and its key 256"),
    ],
)
def test_bad_psk_files(content: str, words: str) -> None:
    one = Broker(PSK, {"psk": content})
    with pytest.raises(RuntimeError, match=words):
        one.start()
    one.close()
