"""Test outward connections: open without waiting, with options, over TLS; end at any time."""

from __future__ import annotations

import errno
import socket
import ssl
import struct
import subprocess
from tests.harness.effort import TIMEOUT_S
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from cext.testing.outward_api import Outwards
from mosq._tls import outward_new, outward_release

from tests.harness.certificates import Authority, authority, server_paths

LOCAL = "127.0.0.1"
TELL_PROTOCOL, TELL_CIPHER = 0, 1


def until(link: Outwards, holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + TIMEOUT_S
    while not (found := holds()):
        assert time.monotonic() < deadline, (link.opened(), link.lost(), link.wrong())
        link.turn(20)
    return found


def open_result(link: Outwards) -> int:
    until(link, lambda: link.opened() is not None)
    found = link.opened()
    assert found is not None
    return found


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with closing(socket.create_server((LOCAL, 0))) as made:
        made.settimeout(TIMEOUT_S)
        yield made


Accept = Callable[[], tuple[socket.socket, Any]]


@pytest.fixture
def accept(server: socket.socket) -> Iterator[Accept]:
    """Yield a function that accepts one connection and returns (socket, address)."""
    made: list[socket.socket] = []

    def one() -> tuple[socket.socket, Any]:
        peer, address = server.accept()
        made.append(peer)
        return peer, address

    yield one
    for peer in made:
        peer.close()


def port_of(server: socket.socket) -> int:
    return int(server.getsockname()[1])


def test_opens_then_carries_data_in_both_directions(server: socket.socket) -> None:
    link = Outwards()
    assert link.connect(LOCAL, port_of(server)) == 0
    assert link.opened() is None        # the result never arrives during the call
    peer, address = server.accept()
    with peer:
        assert open_result(link) == 0
        with socket.socket(fileno=socket.dup(link.fileno())) as same:
            assert address == same.getsockname()
        link.send(b"there")
        link.turn(0)
        assert peer.recv(10) == b"there"
        peer.sendall(b"and back")
        until(link, lambda: link.read() == b"and back")
    until(link, lambda: link.lost() is not None)
    assert (link.lost(), link.freed()) == (0, 1)


def test_ipv6() -> None:
    with closing(socket.create_server(("::1", 0), family=socket.AF_INET6)) as server:
        link = Outwards()
        assert link.connect("::1", server.getsockname()[1]) == 0
        server.settimeout(TIMEOUT_S)
        peer, _ = server.accept()
        with peer:
            assert open_result(link) == 0


def test_a_port_without_a_listener(server: socket.socket) -> None:
    port = port_of(server)
    server.close()
    link = Outwards()
    err = link.connect(LOCAL, port) or open_result(link)
    assert err == errno.ECONNREFUSED
    assert link.lost() is None


@contextmanager
def deaf() -> Iterator[int]:
    """Yield a port where connect() is never answered: the listener's queue is full."""
    with closing(socket.create_server((LOCAL, 0), backlog=0)) as server, contextmanager(_full)(server):
        yield port_of(server)


def _full(server: socket.socket) -> Iterator[None]:
    waiting = []
    try:
        for _ in range(3):
            one = socket.socket()
            one.setblocking(False)
            waiting.append(one)
            one.connect_ex(server.getsockname())
        yield
    finally:
        for one in waiting:
            one.close()


def test_closed_while_it_connects() -> None:
    with deaf() as port:
        link = Outwards()
        assert link.connect(LOCAL, port) == 0
        link.turn(0)
        assert link.opened() is None
        link.close()
        assert (link.opened(), link.lost(), link.freed()) == (None, None, 1)
        assert link.connect(LOCAL, port) == 0           # the end of the loop drops it


def test_finished_while_it_connects(server: socket.socket) -> None:
    link = Outwards()
    assert link.connect(LOCAL, port_of(server)) == 0
    link.finish()
    until(link, lambda: link.freed())
    assert link.opened() == errno.ECONNABORTED or link.lost() is not None


def test_closed_by_its_owner_when_it_opens(server: socket.socket) -> None:
    link = Outwards()
    assert link.connect(LOCAL, port_of(server), close_at_opened=True) == 0
    assert open_result(link) == 0
    assert (link.lost(), link.freed()) == (None, 1)


def test_reset_after_it_opened(server: socket.socket, accept: Accept) -> None:
    link = Outwards()
    assert link.connect(LOCAL, port_of(server)) == 0
    peer, _ = accept()
    assert open_result(link) == 0
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    until(link, lambda: link.lost() is not None)
    assert link.lost() == errno.ECONNRESET


def test_options_of_its_socket(server: socket.socket, accept: Accept) -> None:
    link = Outwards()
    assert link.connect(LOCAL, port_of(server), bind="127.0.0.7", keepalive=(11, 12, 3), user_timeout_ms=4321) == 0
    _, address = accept()
    assert address[0] == "127.0.0.7"
    assert open_result(link) == 0
    with socket.socket(fileno=socket.dup(link.fileno())) as same:
        assert same.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        tcp = {name: same.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
               for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT", "TCP_NODELAY")}
    assert tcp == {"TCP_KEEPIDLE": 11, "TCP_KEEPINTVL": 12, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 4321, "TCP_NODELAY": 1}


def test_socket_options_are_not_set_by_default(server: socket.socket) -> None:
    link = Outwards()
    assert link.connect(LOCAL, port_of(server), nodelay=False) == 0
    with socket.socket(fileno=socket.dup(link.fileno())) as same:
        assert same.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
        assert same.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
        assert same.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0


@pytest.mark.parametrize(("bind", "err"), [("192.0.2.1", errno.EADDRNOTAVAIL), ("::1", errno.EAFNOSUPPORT)])
def test_a_bind_address_of_another_machine(server: socket.socket, bind: str, err: int) -> None:
    link = Outwards()
    assert link.connect(LOCAL, port_of(server), bind=bind) == err
    assert (link.opened(), link.freed()) == (None, 0)
    assert link.connect(LOCAL, port_of(server)) == 0     # the link is in its first state again


# ---------------------------------------------------------------- TLS

class Server(threading.Thread):
    """Answer one TLS client with its own text in capitals; `seen` describes the socket after the handshake."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(daemon=True)
        self.context = context
        self.names: list[str | None] = []
        context.sni_callback = lambda _, name, __: self.names.append(name)
        self.listening = socket.create_server((LOCAL, 0))
        self.listening.settimeout(TIMEOUT_S)
        self.port = port_of(self.listening)
        self.alpn: str | None = None
        self.version: str | None = None
        self.certificate: dict[str, Any] | None = None
        self.failure: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            with self.listening, self.listening.accept()[0] as peer:
                peer.settimeout(TIMEOUT_S)
                with self.context.wrap_socket(peer, server_side=True) as secure:
                    self.alpn, self.version = secure.selected_alpn_protocol(), secure.version()
                    self.certificate = secure.getpeercert()
                    while content := secure.recv(65536):
                        secure.sendall(content.upper())
        except OSError as error:
            self.failure = error


@pytest.fixture
def files(tmp_path: Path) -> Path:
    server_paths(tmp_path)
    return tmp_path


def server_context(files: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files / "server.crt", files / "server.key")
    return context


@contextmanager
def secured(server_port: int, host: bytes = b"localhost", **spec: object) -> Iterator[Outwards]:
    secure = outward_new(spec)
    link = Outwards()
    try:
        assert link.connect(LOCAL, server_port, host, tls_context=secure) == 0
        yield link
        link.close()
    finally:
        outward_release(secure)


def echo(link: Outwards, content: bytes = b"hello") -> None:
    assert open_result(link) == 0, link.wrong()
    link.send(content)
    until(link, lambda: link.read() == content.upper())


def refused(link: Outwards) -> str:
    assert open_result(link) == errno.EPROTO
    assert link.freed() == 1
    return link.wrong()


@pytest.mark.parametrize("size", [5, 300_000])
def test_tls(files: Path, size: int) -> None:
    server = Server(server_context(files))
    with secured(server.port, cafile=f"{files}/ca.crt") as link:
        echo(link, b"x" * size)
        assert link.tell(TELL_PROTOCOL) == "TLSv1.3"
    server.join()
    assert server.names == ["localhost"]
    assert server.failure is None


def test_tls_to_a_numeric_address_has_no_sni(files: Path) -> None:
    server = Server(server_context(files))
    with secured(server.port, b"127.0.0.1", cafile=f"{files}/ca.crt") as link:
        echo(link)
    assert server.names == [None]


def test_tls_capath(files: Path, tmp_path: Path) -> None:
    (folder := tmp_path / "trusted").mkdir()
    (folder / "ca.pem").write_text(authority().pem)
    subprocess.run(["openssl", "rehash", folder], check=True, capture_output=True)
    server = Server(server_context(files))
    with secured(server.port, capath=str(folder)) as link:
        echo(link)


def test_tls_certificates_of_the_system(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", f"{files}/ca.crt")
    server = Server(server_context(files))
    with secured(server.port, use_os_certs=True) as link:
        echo(link)


def test_tls_by_another_authority(files: Path) -> None:
    (files / "other.crt").write_text(Authority().pem)
    server = Server(server_context(files))
    with secured(server.port, cafile=f"{files}/other.crt") as link:
        assert "certificate verify failed" in refused(link)


@pytest.mark.parametrize("host", [b"broker.example", b"127.0.0.2"])
def test_tls_another_name_unless_insecure(files: Path, host: bytes) -> None:
    server = Server(server_context(files))
    with secured(server.port, host, cafile=f"{files}/ca.crt") as link:
        assert "mismatch" in refused(link)
    server = Server(server_context(files))
    with secured(server.port, host, cafile=f"{files}/ca.crt", insecure=True) as link:
        echo(link)


def test_tls_insecure_is_about_the_name_only(files: Path) -> None:
    (files / "other.crt").write_text(Authority().pem)
    server = Server(server_context(files))
    with secured(server.port, cafile=f"{files}/other.crt", insecure=True) as link:
        assert "certificate verify failed" in refused(link)


def test_tls_client_certificate(files: Path) -> None:
    _, certificate, key = authority().issue("bridge one")
    (files / "client.crt").write_text(certificate)
    (files / "client.key").write_text(key)
    context = server_context(files)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(files / "ca.crt")
    server = Server(context)
    with secured(server.port, cafile=f"{files}/ca.crt", certfile=f"{files}/client.crt", keyfile=f"{files}/client.key") as link:
        echo(link)
    assert server.certificate is not None
    assert (("commonName", "bridge one"),) in server.certificate["subject"]


@pytest.mark.parametrize(("option", "top", "opens"), [
    ("tlsv1.3", ssl.TLSVersion.TLSv1_2, False), ("tlsv1.3", ssl.TLSVersion.TLSv1_3, True), ("tlsv1.2", ssl.TLSVersion.TLSv1_2, True)])
def test_tls_version(files: Path, option: str, top: ssl.TLSVersion, opens: bool) -> None:
    context = server_context(files)
    context.maximum_version = top
    server = Server(context)
    with secured(server.port, cafile=f"{files}/ca.crt", tls_version=option) as link:
        if opens:
            echo(link)
            assert link.tell(TELL_PROTOCOL) == {ssl.TLSVersion.TLSv1_2: "TLSv1.2", ssl.TLSVersion.TLSv1_3: "TLSv1.3"}[top]
        else:
            assert "protocol version" in refused(link)


@pytest.mark.parametrize(("option", "top", "cipher"), [
    ("ciphers", ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES128-SHA256"), ("ciphers_tls1.3", ssl.TLSVersion.TLSv1_3, "TLS_CHACHA20_POLY1305_SHA256")])
def test_tls_ciphers(files: Path, option: str, top: ssl.TLSVersion, cipher: str) -> None:
    context = server_context(files)
    context.maximum_version = top
    context.set_ciphers("ALL")
    server = Server(context)
    with secured(server.port, **{"cafile": f"{files}/ca.crt", option: cipher}) as link:
        echo(link)
        assert link.tell(TELL_CIPHER) == cipher


def test_tls_alpn(files: Path) -> None:
    context = server_context(files)
    context.set_alpn_protocols(["h2", "x-amzn-mqtt-ca"])
    server = Server(context)
    with secured(server.port, cafile=f"{files}/ca.crt", alpn="x-amzn-mqtt-ca") as link:
        echo(link)
    assert server.alpn == "x-amzn-mqtt-ca"


@contextmanager
def s_server(*options: object) -> Iterator[int]:
    """Run OpenSSL's server, for tests that Python's ssl cannot serve; yield its port, and stop it at the end of the block."""
    with closing(socket.create_server((LOCAL, 0))) as free:
        port = port_of(free)
    command = ["openssl", "s_server", "-accept", f"{LOCAL}:{port}", "-rev", *map(str, options)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith(b"ACCEPT"):
                    break
            yield port
        finally:
            process.kill()


def reversed_by(link: Outwards) -> None:
    assert open_result(link) == 0, link.wrong()
    link.send(b"abc\n")
    until(link, lambda: link.read() == b"cba\n")


@pytest.mark.parametrize("version", ["", "tlsv1.3"])
def test_tls_pre_shared_key(version: str) -> None:
    with s_server("-nocert", "-psk", "0badc0de", "-psk_identity", "one") as port:
        with secured(port, identity="one", psk="0BADC0DE", tls_version=version) as link:
            reversed_by(link)
        with secured(port, identity="one", psk="0badc0df", tls_version=version) as link:
            refused(link)


def test_tls_a_certificate_does_not_replace_the_pre_shared_key(files: Path) -> None:
    for ciphers in ("", "ALL"):
        for version in ("", "tlsv1.3"):
            server = Server(server_context(files))
            with secured(server.port, identity="one", psk="0badc0de", tls_version=version, ciphers=ciphers) as link:
                refused(link)


def ocsp(files: Path, revoked: bool, days: int = 1) -> Path:
    """Return an OCSP response about the server's certificate, signed by its authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.x509 import ocsp as words
    import datetime

    now = datetime.datetime.now(datetime.UTC)
    certificate = x509.load_pem_x509_certificate((files / "server.crt").read_bytes())
    made = words.OCSPResponseBuilder().add_response(
        certificate, authority().certificate, hashes.SHA1(),
        words.OCSPCertStatus.REVOKED if revoked else words.OCSPCertStatus.GOOD, now - datetime.timedelta(days=3),
        now + datetime.timedelta(days=days), now - datetime.timedelta(days=2) if revoked else None, None,
    ).responder_id(words.OCSPResponderEncoding.HASH, authority().certificate).sign(authority().key, hashes.SHA256())
    (files / "response").write_bytes(made.public_bytes(serialization.Encoding.DER))
    return files / "response"


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_tls_ocsp_required(files: Path, version: str) -> None:
    options = ["-cert", files / "server.crt", "-key", files / "server.key", version]
    spec = {"cafile": f"{files}/ca.crt", "require_ocsp": True}
    with s_server(*options) as port, secured(port, **spec) as link:
        assert "invalid status response" in refused(link)
    with s_server(*options, "-status_file", ocsp(files, revoked=False)) as port, secured(port, **spec) as link:
        reversed_by(link)
    with s_server(*options, "-status_file", ocsp(files, revoked=True)) as port, secured(port, **spec) as link:
        assert "invalid status response" in refused(link)
    with s_server(*options, "-status_file", ocsp(files, revoked=False, days=-1)) as port, secured(port, **spec) as link:
        assert "invalid status response" in refused(link)


def test_tls_ends_within_the_handshake(server: socket.socket, accept: Accept, files: Path) -> None:
    secure = outward_new({"cafile": f"{files}/ca.crt"})
    for said, err in ((b"", errno.ECONNRESET), (b"HTTP/1.0 400 what?\r\n\r\n", errno.EPROTO)):
        link = Outwards()
        assert link.connect(LOCAL, port_of(server), b"localhost", tls_context=secure) == 0
        peer, _ = accept()
        until(link, lambda peer=peer: select_readable(peer))    # type: ignore[misc]
        peer.recv(65536)
        peer.sendall(said)
        peer.shutdown(socket.SHUT_WR)
        assert open_result(link) == err
        peer.close()
    link = Outwards()                       # the owner must end a link whose peer does not answer
    assert link.connect(LOCAL, port_of(server), b"localhost", tls_context=secure) == 0
    peer, _ = accept()
    until(link, lambda: select_readable(peer))
    assert link.opened() is None
    link.close()
    assert link.freed() == 1
    peer.close()
    outward_release(secure)


def select_readable(peer: socket.socket) -> bool:
    import select
    return bool(select.select([peer], [], [], 0)[0])


@pytest.mark.parametrize(("spec", "said"), [
    ({}, "needs bridge_cafile"),
    ({"cafile": "/nowhere/ca"}, r'check bridge_cafile "/nowhere/ca".*No such file'),
    ({"cafile": "{dir}/ca.crt", "certfile": "{dir}/server.crt"}, "go together"),
    ({"cafile": "{dir}/ca.crt", "certfile": "{dir}/server.crt", "keyfile": "{dir}/ca.crt"}, "check bridge_keyfile"),
    ({"cafile": "{dir}/ca.crt", "certfile": "{dir}/server.crt", "keyfile": "{dir}/other.key"}, "inconsistent"),
    ({"cafile": "{dir}/ca.crt", "tls_version": "tlsv1"}, "bridge_tls_version"),
    ({"cafile": "{dir}/ca.crt", "ciphers": "NONE-OF-THEM"}, "bridge_ciphers"),
    ({"cafile": "{dir}/ca.crt", "ciphers_tls1.3": "NONE"}, "bridge_ciphers_tls1.3"),
    ({"cafile": "{dir}/ca.crt", "alpn": "x" * 256}, "bridge_alpn"),
    ({"identity": "one", "psk": "xyz"}, "hexadecimal"),
    ({"identity": "one", "psk": ""}, "none is empty"),
    ({"identity": "x" * 256, "psk": "00"}, "bridge_identity"),
])
def test_tls_options_that_contradict_each_other(files: Path, spec: dict[str, str], said: str) -> None:
    (files / "other.key").write_text(authority().issue("other")[2])
    with pytest.raises((OSError, ValueError), match=said):
        outward_new({name: value.format(dir=files) for name, value in spec.items()})
