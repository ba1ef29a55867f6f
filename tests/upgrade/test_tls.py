"""Test what happens to TLS connections and their tickets during an upgrade: a connection whose records the broker seals itself moves."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import packets
from tests.harness.broker import free_port
from tests.harness.certificates import TLS_LINES, Authority, authority, client_by_hand, client_context, server_files
from tests.harness.packets import Connack, Connect, Disconnect, Packet, Pingreq, Pingresp, Puback, Publish, Pubcomp, Pubrec, Pubrel, Received, Subscribe, Will
from tests.harness.properties import P
from tests.harness.wire import client_hello, frame_from
from tests.upgrade.case import MEMORY, STORE, Upgraded
from tests.upgrade.test_failures import PROGRAM, STEPS

LISTENER = "listener {port} 127.0.0.1\nallow_anonymous true\n"
COMPACT = "tls_compact_records true\n"


def tls_config(port: int, more: str = COMPACT, kind: str = MEMORY) -> str:
    return LISTENER + kind + f"listener {port} 127.0.0.1\n" + (more if "allow_anonymous" in more else more + "allow_anonymous true\n") + TLS_LINES


class ByHand:
    """A client of TLS 1.3 whose records the test carries, so that it can cut them."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.tls, self.incoming, self.outgoing = client_by_hand(client_context(), self.sock)
        self._buffer = bytearray()
        self.timeout_s = 20.0

    def sealed(self, packet: Packet) -> bytes:
        self.tls.write(packet.encode(5))
        return self.outgoing.read()

    def settimeout(self, timeout_s: float) -> None:
        self.sock.settimeout(timeout_s)

    def recv(self, n: int) -> bytes:
        while True:
            try:
                return self.tls.read(n)
            except ssl.SSLWantReadError:
                self.incoming.write(self.sock.recv(n))

    def read_packet(self) -> Received:
        raw = frame_from(self, self._buffer, self.timeout_s)
        assert raw is not None
        return packets.decode(5, raw)


@pytest.mark.parametrize("kind", [MEMORY, STORE], ids=["memory", "store"])
@pytest.mark.parametrize("websocket", [False, True], ids=["tcp", "websocket"])
@pytest.mark.parametrize("cipher", ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"])
def test_a_sealed_connection_moves(kind: str, websocket: bool, cipher: str) -> None:
    port = free_port()
    more = COMPACT + f"ciphers_tls1.3 {cipher}\n" + ("protocol websockets\n" if websocket else "")
    with Upgraded(tls_config(port, more, kind), files=server_files()) as broker:
        wire = broker.wire(port=port, tls=client_context(), websocket=websocket)
        wire.send(Connect("c"), Subscribe(1, (("t", 2),)))
        assert isinstance(wire.read_packet(), Connack)
        wire.read_packet()
        for n in range(3):
            wire.send(Publish("t", b"%d" % n, 1, 10), Publish("t", b"two", 2, 11))
            one = [wire.read_packet() for _ in range(3)]
            got = next(packet for packet in one if isinstance(packet, Publish))
            assert got.payload == b"%d" % n and Puback(10) in one and Pubrec(11) in one
            broker.upgrade()
            wire.send(Puback(got.mid), Pubrel(11))
            two = [wire.read_packet() for _ in range(2)]
            got = next(packet for packet in two if isinstance(packet, Publish))
            assert got.payload == b"two" and not got.dup and Pubcomp(11) in two
            wire.send(Pubrec(got.mid))
            wire.expect_packet(Pubrel(got.mid))
            wire.send(Pubcomp(got.mid))
        assert broker.log().count("1 connections moved, 0 were closed") == 3


def test_a_cut_record_moves_with_its_connection() -> None:
    """The record is cut in each part: its header, its content, its tag."""
    port = free_port()
    with Upgraded(tls_config(port), files=server_files()) as broker:
        client = ByHand(port)
        client.sock.sendall(client.outgoing.read() + client.sealed(Connect("c")))
        assert isinstance(client.read_packet(), Connack)
        for n in (1, 4, 5, 9, -1):
            record = client.sealed(Pingreq())
            client.sock.sendall(record[:n])
            broker.upgrade()
            client.sock.sendall(record[n:])
            assert isinstance(client.read_packet(), Pingresp)
        client.sock.close()


def test_unsent_records_move_with_their_connection() -> None:
    """The client does not read while its socket, and then its output, get more than they hold."""
    port = free_port()
    with Upgraded(tls_config(port), files=server_files()) as broker:
        wire = broker.wire(port=port, tls=client_context())
        wire.send(Connect("slow"), Subscribe(1, (("t", 1),)))
        wire.read_packet(), wire.read_packet()
        sender = broker.wire()
        sender.send(Connect("s"))
        sender.read_packet()
        for n in range(15):
            sender.send(Publish("t", b"%03d" % n + bytes(600_000), 1, n + 1))
            sender.expect_packet(Puback(n + 1))
        broker.upgrade()
        broker.upgrade()
        for n in range(15):
            got = wire.read_packet()
            assert got.payload[:3] == b"%03d" % n and len(got.payload) == 600_003 and not got.dup
            wire.send(Puback(got.mid))


@pytest.mark.parametrize("n", [0, 3, 100])
def test_a_connection_moves_before_its_first_record(n: int) -> None:
    """Also without `tls_compact_records`: OpenSSL has not begun yet."""
    port = free_port()
    with Upgraded(tls_config(port, ""), files=server_files()) as broker, socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        hello = outgoing.read()
        sock.sendall(hello[:n])
        broker.upgrade()
        assert " connections moved, 0 were closed" in broker.log()
        sock.sendall(hello[n:])
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                incoming.write(sock.recv(65536))
        tls.write(Connect("c").encode(5))
        sock.sendall(outgoing.read())
        incoming.write(sock.recv(65536))


def test_a_connection_in_its_handshake_is_closed() -> None:
    port = free_port()
    with Upgraded(tls_config(port), files=server_files()) as broker, socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        sock.sendall(client_hello(client_context()))
        assert sock.recv(100)
        broker.upgrade()
        assert "0 connections moved, 1 were closed" in broker.log()
        while sock.recv(65536):
            pass


def connected(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> ssl.SSLSocket:
    sock = context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=20), server_hostname="localhost", session=session)
    sock.sendall(Connect("c").encode(5))
    assert sock.recv(1)[0] == 0x20
    return sock


@pytest.mark.parametrize("more", [COMPACT, ""], ids=["compact", "openssl"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_ticket_of_the_old_process_is_accepted(more: str, version: ssl.TLSVersion) -> None:
    port = free_port()
    context = client_context()
    context.maximum_version = version
    with Upgraded(tls_config(port, more), files=server_files()) as broker:
        session = None
        for turn in range(3):
            with connected(port, context, session) as sock:
                assert sock.session_reused == (turn > 0)
                session = sock.session
            broker.upgrade()


def test_a_ticket_is_refused_under_another_certificate() -> None:
    port = free_port()
    context = client_context()
    with Upgraded(tls_config(port), files=server_files()) as broker:
        with connected(port, context) as sock:
            session = sock.session
        _, certificate, key = authority().issue("localhost")
        (broker.dir / "server.crt").write_text(certificate)
        (broker.dir / "server.key").write_text(key)
        broker.upgrade()
        with connected(port, context, session) as sock:
            assert not sock.session_reused


def test_other_tls_connections_are_closed_with_a_reason() -> None:
    """The listener's records are OpenSSL's: without the option, and of TLS 1.2 with it."""
    plain, compact = free_port(), free_port()
    old = client_context()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    config = tls_config(plain, "") + tls_config(compact).split(MEMORY)[1]
    with Upgraded(config, files=server_files()) as broker:
        wires = [broker.wire(port=plain, tls=client_context()), broker.wire(port=compact, tls=old), broker.wire(port=compact, tls=client_context())]
        for n, wire in enumerate(wires):
            wire.send(Connect(f"c{n}"))
            assert isinstance(wire.read_packet(), Connack)
        broker.upgrade()
        for wire in wires[:2]:
            assert wire.read_packet() == Disconnect(0x8B)
            wire.expect_closed()
        wires[2].send(Pingreq())
        wires[2].expect_packet(Pingresp())
        assert "1 connections moved, 2 were closed" in broker.log()


@pytest.mark.parametrize(("change", "moves"), [
    (lambda text: text.replace(COMPACT, ""), False),
    (lambda text: text, True),
])
def test_the_new_configuration_decides_what_moves(change: Callable[[str], str], moves: bool) -> None:
    port = free_port()
    with Upgraded(tls_config(port), files=server_files()) as broker:
        wire = broker.wire(port=port, tls=client_context())
        wire.send(Connect("c"))
        assert isinstance(wire.read_packet(), Connack)
        broker.config.write_text(change(broker.config.read_text()))
        broker.upgrade()
        if moves:
            wire.send(Pingreq())
            wire.expect_packet(Pingresp())
        else:
            assert wire.read_packet() == Disconnect(0x8B)


def certified(config: str, tmp_path: Path, issuer: Authority) -> tuple[ssl.SSLContext, object]:
    certificate, pem, key = issuer.issue("joe")
    return client_context(tmp_path, (pem, key)), certificate


def test_a_client_certificate_moves_and_is_verified_again(tmp_path: Path) -> None:
    """The user name comes from the certificate. After an upgrade a reload revokes it; then an upgrade itself does."""
    port = free_port()
    more = COMPACT + "require_certificate true\nuse_identity_as_username true\nallow_anonymous false\ncrlfile {dir}/crl\n"
    with Upgraded(tls_config(port, more), files={**server_files(), "crl": authority().revoke()}) as broker:
        context, certificate = certified(more, tmp_path, authority())
        wire = broker.wire(port=port, tls=context)
        wire.send(Connect("c"))
        assert isinstance(wire.read_packet(), Connack)
        broker.upgrade()
        wire.send(Pingreq())
        wire.expect_packet(Pingresp())
        (broker.dir / "crl").write_text(authority().revoke(certificate))
        broker.upgrade()
        assert wire.read_packet() == Disconnect(0x98)


@pytest.mark.parametrize("key", ["0badc0de", "0badc0df"], ids=["same", "other"])
def test_a_pre_shared_key_that_changed_ends_its_connection(key: str) -> None:
    port = free_port()
    config = LISTENER + MEMORY + f"listener {port} 127.0.0.1\nallow_anonymous true\n{COMPACT}psk_hint h\npsk_file {{dir}}/psk\n"
    with Upgraded(config, files={"psk": "ann:0badc0de\n"}) as broker:
        command = ["openssl", "s_client", "-quiet", "-connect", f"127.0.0.1:{port}", "-psk_identity", "ann", "-psk", "0badc0de"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as client:
            assert client.stdin and client.stdout
            client.stdin.write(Connect("c").encode(4))
            client.stdin.flush()
            assert client.stdout.read(4) == bytes([0x20, 2, 0, 0])
            (broker.dir / "psk").write_text(f"ann:{key}\n")
            broker.upgrade()
            assert "1 connections moved, 0 were closed" in broker.log()
            if key == "0badc0de":
                client.stdin.write(Pingreq().encode(4))
                client.stdin.flush()
                assert client.stdout.read(2) == Pingresp().encode(4)
                client.stdin.close()
            else:
                assert client.stdout.read() == b""
            client.terminate()


@pytest.mark.parametrize("kind", [MEMORY, STORE], ids=["memory", "store"])
@pytest.mark.parametrize("step", ["restore", "wait_go"])
def test_a_failed_upgrade_closes_no_connection_that_cannot_move(kind: str, step: str, tmp_path: Path) -> None:
    """The upgrade after it closes them; each will is sent once, and the sessions are there."""
    port, program = free_port(), tmp_path / "program.py"
    program.write_text(PROGRAM)
    with Upgraded(tls_config(port, "", kind), files=server_files(), command=[sys.executable, str(program)]) as broker:
        watcher = broker.wire()
        watcher.send(Connect("w"), Subscribe(1, (("will", 1),)))
        assert isinstance(watcher.read_packet(), Connack) and watcher.read_packet()
        wires = [broker.wire(port=port, tls=client_context()) for _ in range(3)]
        for n, wire in enumerate(wires):
            wire.send(Connect(f"c{n}", clean=False, props=((P.SESSION_EXPIRY, 3600),), will=Will("will", b"%d" % n, 1)), Subscribe(1, (("t", 1),)))
            assert isinstance(wire.read_packet(), Connack) and wire.read_packet()
        program.write_text(STEPS.replace("{step}", step).replace("{act}", "sys.exit(1)"))
        broker.fail()
        for wire in wires:
            wire.send(Pingreq())
            wire.expect_packet(Pingresp())
        watcher.expect_nothing()
        program.write_text(PROGRAM)
        broker.upgrade()
        assert "1 connections moved, 3 were closed" in broker.log()
        assert "Upgrade: closed 3 connections with TLS whose records the broker or the new process does not seal" in broker.log()
        for wire in wires:
            assert wire.read_packet() == Disconnect(0x8B)
            wire.expect_closed()
        wills = []
        for _ in wires:
            got = watcher.read_packet()
            watcher.send(Puback(got.mid))
            wills.append(got.payload)
        assert sorted(wills) == [b"0", b"1", b"2"]
        watcher.expect_nothing()
        late = broker.wire(port=port, tls=client_context())
        late.send(Connect("c1", clean=False, props=((P.SESSION_EXPIRY, 3600),)))
        answer = late.read_packet()
        assert isinstance(answer, Connack) and answer.session
        watcher.send(Publish("t", b"kept", 1, 7))
        assert late.read_packet().payload == b"kept"
