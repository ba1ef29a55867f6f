"""Attack the TLS of a listener: half and full handshakes, KeyUpdate, renegotiation."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import select
import struct
from typing import TYPE_CHECKING, Any

from perf.attacks import wire
from perf.attacks.attack import attack
from perf.attacks.scene import Client, tls_context
from tests.harness.hellos import retried
from tests.harness.wire import client_hello

if TYPE_CHECKING:
    import socket

    from perf.attacks.scene import Scene


@attack(
    "half-hello",
    "3,000 connections from 250 addresses announce a ClientHello of 120 kB and send 100 kB",
    "7",
    listeners=("tls",),
    tls=True,
)
def half_hello(scene: Scene) -> None:
    body = b"\x01" + (120_000).to_bytes(3, "big") + b"\x03\x03" + bytes(100_000)
    records = b"".join(
        b"\x16\x03\x01" + struct.pack("!H", len(part)) + part
        for part in (body[i : i + 16_000] for i in range(0, len(body), 16_000))
    )
    scene.crowd(3000, lambda _: records, "tls", 250)
    scene.hold()


@attack(
    "half-hello-small", "3,000 connections send the first 200 bytes of a ClientHello", "7", listeners=("tls",), tls=True
)
def half_hello_small(scene: Scene) -> None:
    part = client_hello(tls_context())[:200]
    scene.crowd(3000, lambda _: part, "tls")
    scene.hold()


@attack(
    "half-handshakes",
    "1,500 connections send a whole ClientHello, so the broker signs, and nothing more",
    "low",
    listeners=("tls",),
    tls=True,
)
def half_handshakes(scene: Scene) -> None:
    whole = client_hello(tls_context())
    scene.crowd(1500, lambda _: whole, "tls")
    scene.hold()


@attack("half-handshakes-many", "the same from 250 addresses", "low", listeners=("tls",), tls=True)
def half_handshakes_many(scene: Scene) -> None:
    whole = client_hello(tls_context())
    scene.crowd(1500, lambda _: whole, "tls", 250)
    scene.hold()


@attack(
    "half-handshakes-retry",
    "1,300 connections from 4 addresses send a ClientHello without key share, then a second one, so the broker signs",
    "low",
    listeners=("tls",),
    tls=True,
)
def half_handshakes_retry(scene: Scene) -> None:
    flights = [retried() for _ in range(1300)]
    socks = scene.crowd(1300, lambda i: flights[i][0], "tls", 4)
    poll = select.epoll()
    number = {sock.fileno(): i for i, sock in enumerate(socks)}
    for sock in socks:
        poll.register(sock, select.EPOLLIN)
    n = 0
    while n < len(socks) and not scene.over():
        ready = poll.poll(0.2)
        if not ready:
            break  # the others were refused
        for fd, _ in ready:
            poll.unregister(fd)
            n += 1
    for sock in socks:
        with contextlib.suppress(OSError):
            sock.send(flights[number[sock.fileno()]][1])
    scene.note(f"{n} answers to the first")
    scene.hold()


@attack("handshakes", "full handshakes one after the other, as many as fit", "low", listeners=("tls",), tls=True)
def handshakes(scene: Scene) -> None:
    context, n = tls_context(), 0
    while not scene.over():
        with contextlib.suppress(OSError), scene.open("tls", timeout_s=scene.left()) as sock:
            context.wrap_socket(sock, server_hostname="localhost").close()
            n += 1
    scene.note(f"{n} handshakes")


class OpenSsl:
    """Call the functions of OpenSSL that Python's ssl does not offer."""

    def __init__(self, sock: socket.socket, version: int) -> None:
        self.lib = ctypes.CDLL(ctypes.util.find_library("ssl") or "libssl.so.3")
        for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
            getattr(self.lib, name).restype = ctypes.c_void_p
        context = self.call("SSL_CTX_new", ctypes.c_void_p(self.lib.TLS_client_method()))
        self.call("SSL_CTX_ctrl", ctypes.c_void_p(context), 124, ctypes.c_long(version), None)  # highest version
        self.ssl = ctypes.c_void_p(self.call("SSL_new", ctypes.c_void_p(context)))
        self.call("SSL_set_fd", self.ssl, sock.fileno())
        if self.call("SSL_connect", self.ssl) != 1:
            raise ConnectionError("the TLS handshake failed")

    def call(self, name: str, *arguments: Any) -> Any:
        return getattr(self.lib, name)(*arguments)

    def write(self, content: bytes) -> int:
        return int(self.call("SSL_write", self.ssl, content, len(content)))

    def read(self) -> int:
        return int(self.call("SSL_read", self.ssl, ctypes.create_string_buffer(4096), 4096))


@attack(
    "key-updates", "a client asks for new keys of TLS 1.3 before every PINGREQ", "low", listeners=("tls",), tls=True
)
def key_updates(scene: Scene) -> None:
    sock = scene.open("tls", timeout_s=10)
    sock.settimeout(None)
    tls = OpenSsl(sock, 0x0304)
    tls.write(wire.connect("updates"))
    n = 0
    while not scene.over() and tls.read() > 0:
        for _ in range(50):
            tls.call("SSL_key_update", tls.ssl, 1)
            if tls.write(wire.PINGREQ) <= 0:
                break
            n += 1
    scene.note(f"{n} updates" + ("" if scene.over() else ", ended by the broker"))


@attack(
    "renegotiation",
    "a client of TLS 1.2 starts one handshake after the other on its connection",
    "low",
    listeners=("tls",),
    tls=True,
)
def renegotiation(scene: Scene) -> None:
    sock = scene.open("tls", timeout_s=10)
    sock.settimeout(None)
    tls = OpenSsl(sock, 0x0303)
    n = 0
    while not scene.over() and tls.call("SSL_renegotiate", tls.ssl) == 1 and tls.call("SSL_do_handshake", tls.ssl) == 1:
        n += 1
    scene.note(f"{n} renegotiations" + ("" if scene.over() else ", then ended by the broker"))


@attack("tls-small-records", "a client sends MQTT in records of one byte", listeners=("tls",), tls=True)
def tls_small_records(scene: Scene) -> None:
    client: Client = scene.client(wire.connect("small"), "tls")
    content = wire.publish(b"a", b"x" * 20)
    with contextlib.suppress(OSError):
        while not scene.over():
            for at in range(len(content)):
                client.sock.send(content[at : at + 1])
