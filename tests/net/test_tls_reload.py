"""Test a reload that takes away a right while a handshake with it is under way: the broker checks the right again at the end."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.harness.broker import Broker
from tests.harness.certificates import TLS_LINES, authority, client_context, server_files
from tests.harness.effort import TIMEOUT_S
from tests.harness.packets import Connect

LISTENER = "log_type all\nlistener {port} 127.0.0.1\nallow_anonymous true\n"
REVOKING = LISTENER + TLS_LINES + "require_certificate true\ncrlfile {dir}/crl\n"
PSK = LISTENER + "psk_hint hint\npsk_file {dir}/psk\n"
KEY, OTHER_KEY = "0123456789abcdef", "fedcba9876543210"
CONNACK = b"\x20\x02\0\0"
NO_LONGER = "is no longer valid since a reload that came during its TLS handshake."
VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])
THREADS = pytest.mark.parametrize("threads", [0, 1])


def tcp(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)


class Begun:
    """A client whose last flight of the handshake, which completes it for the broker, is not sent yet."""

    def __init__(self, broker: Broker, context: ssl.SSLContext, session: ssl.SSLSession | None = None) -> None:
        self.sock, self.incoming, self.outgoing = tcp(broker.port), ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost", session=session)
        self.step()
        self.sock.sendall(self.outgoing.read())
        while not self.outgoing.pending:         # the broker's flight may come in parts
            self.incoming.write(self.sock.recv(65536))
            self.step()

    def step(self) -> None:
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()

    def finish(self) -> bytes:
        """Complete the handshake and send CONNECT; return the answer, b"" = the broker closed the connection."""
        with contextlib.closing(self.sock):
            self.sock.sendall(self.outgoing.read())
            while True:
                try:
                    self.tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    if not self.more():
                        return b""
            self.tls.write(Connect(client_id="begun").encode(4))
            with contextlib.suppress(ConnectionError):
                self.sock.sendall(self.outgoing.read())
            while True:
                with contextlib.suppress(ssl.SSLWantReadError):
                    return self.tls.read(4)
                if not self.more():
                    return b""

    def more(self) -> bool:
        got = b""
        with contextlib.suppress(ConnectionError):
            got = self.sock.recv(65536)
        self.incoming.write(got)
        return bool(got)


def client(folder: Path, pem: list[str], version: ssl.TLSVersion) -> ssl.SSLContext:
    folder.mkdir()
    context = client_context(folder, (pem[0], pem[1]))
    context.minimum_version = context.maximum_version = version
    return context


def visit(broker: Broker, context: ssl.SSLContext) -> ssl.SSLSession:
    """Connect and log in; return the session. Raise if the broker refuses."""
    with context.wrap_socket(tcp(broker.port), server_hostname="localhost") as sock:
        sock.sendall(Connect(client_id="visitor").encode(4))
        if sock.recv(4) != CONNACK:
            raise ConnectionError("refused")
        assert sock.session is not None
        return sock.session


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        select.select([], [], [], 0.02)


def in_force(broker: Broker, context: ssl.SSLContext) -> None:
    """Reload, and wait until a new client with this certificate is refused."""
    broker.send_signal(signal.SIGHUP)

    def refused() -> bool:
        try:
            visit(broker, context)
        except (ssl.SSLError, ConnectionError):
            return True
        return False

    eventually(refused)


# ---------------------------------------------------------------- certificates


@THREADS
@VERSIONS
def test_a_client_revoked_during_its_handshake_is_ended(tmp_path: Path, version: ssl.TLSVersion, threads: int) -> None:
    _, *staying = authority().issue("stays")
    gone, *going = authority().issue("goes")
    config = REVOKING + f"tls_handshake_threads {threads}\n"
    with Broker(config, {**server_files(), "crl": authority().revoke()}) as broker:
        stays, goes = client(tmp_path / "stays", staying, version), client(tmp_path / "goes", going, version)
        good, bad = Begun(broker, stays), Begun(broker, goes)
        (broker.dir / "crl").write_text(authority().revoke(gone))
        in_force(broker, goes)
        assert bad.finish() == b""
        eventually(lambda: NO_LONGER in broker.log())
        assert good.finish() == CONNACK


@VERSIONS
def test_a_client_revoked_during_its_resumption_is_ended(tmp_path: Path, version: ssl.TLSVersion) -> None:
    gone, *going = authority().issue("goes")
    with Broker(REVOKING, {**server_files(), "crl": authority().revoke()}) as broker:
        goes = client(tmp_path / "goes", going, version)
        bad = Begun(broker, goes, visit(broker, goes))
        (broker.dir / "crl").write_text(authority().revoke(gone))
        in_force(broker, goes)
        assert bad.finish() == b""
        eventually(lambda: NO_LONGER in broker.log())


def test_a_certificate_requirement_that_comes_during_a_handshake_is_in_force(tmp_path: Path) -> None:
    with Broker(LISTENER + TLS_LINES, server_files()) as broker:
        bare = Begun(broker, client_context())
        broker.config.write_text(broker.config.read_text() + "require_certificate true\n")
        in_force(broker, client_context())
        assert bare.finish() == b""
        eventually(lambda: NO_LONGER in broker.log())


# ---------------------------------------------------------------- pre-shared keys


def published(port: int, version: str, *arguments: str) -> subprocess.Popen[bytes]:
    command = ["mosquitto_pub", "-h", "localhost", "-p", str(port), "-i", "pub", "-t", "a", "-m", "x", "-q", "1",
               "--psk-identity", "ann", "--psk", KEY, "--tls-version", version, *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def relayed(broker: Broker) -> Iterator[tuple[int, Callable[[], None], Callable[[], None]]]:
    """Yield the port of a relay for one client, a function that waits until the relay holds the client's last flight of the handshake, and one
    that lets it go."""
    has_it, let_go = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(TIMEOUT_S)

        def relay() -> None:
            inside, _ = listening.accept()
            with inside, tcp(broker.port) as outside:
                outside.sendall(inside.recv(65536))
                sides, flights = {inside: outside, outside: inside}, 0
                while True:
                    for side in select.select(list(sides), [], [], TIMEOUT_S)[0]:
                        try:
                            got = side.recv(65536)
                            if got and side is inside and not flights:
                                flights = 1
                                has_it.set()
                                let_go.wait(TIMEOUT_S)
                            if not got:
                                return
                            sides[side].sendall(got)
                        except ConnectionError:
                            return

        thread = threading.Thread(target=relay, daemon=True)
        thread.start()

        def wait() -> None:
            assert has_it.wait(TIMEOUT_S)

        try:
            yield listening.getsockname()[1], wait, let_go.set
        finally:
            let_go.set()
            thread.join()


@pytest.mark.parametrize("version", ["tlsv1.2", "tlsv1.3"])
@pytest.mark.parametrize("after", ["# none\n", f"ann:{OTHER_KEY}\n", f"bob:{KEY}\n"], ids=["removed", "changed", "renamed"])
def test_an_identity_removed_during_its_handshake_is_ended(version: str, after: str) -> None:
    with Broker(PSK, {"psk": f"ann:{KEY}\n"}) as broker, relayed(broker) as (port, wait, let_go):
        client = published(port, version)
        wait()
        (broker.dir / "psk").write_text(after)
        broker.send_signal(signal.SIGHUP)
        eventually(lambda: published(broker.port, version).wait(TIMEOUT_S) != 0)
        let_go()
        assert client.wait(TIMEOUT_S) != 0
        eventually(lambda: NO_LONGER in broker.log())


def test_a_reload_ends_connected_clients_whose_identity_was_removed() -> None:
    with Broker(PSK, {"psk": f"ann:{KEY}\nbob:{KEY}\n"}) as broker:
        ann, bob = (
            subprocess.Popen(["mosquitto_sub", "-h", "localhost", "-p", str(broker.port), "-i", name, "-t", "a", "-V", "5", "-x", "0",
                              "--psk-identity", name, "--psk", KEY], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for name in ("ann", "bob"))
        try:
            eventually(lambda: "as ann " in broker.log() and "as bob " in broker.log())
            (broker.dir / "psk").write_text(f"bob:{KEY}\n")
            broker.send_signal(signal.SIGHUP)
            eventually(lambda: "Client ann [" in broker.log())
            assert "Client bob [" not in broker.log() and bob.poll() is None
        finally:
            for one in (ann, bob):
                one.kill()
                one.wait()
