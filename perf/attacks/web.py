"""Attack WebSockets and the HTTP API."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from perf.attacks import wire
from perf.attacks.attack import attack
from perf.attacks.scene import UPGRADE

if TYPE_CHECKING:
    from perf.attacks.scene import Scene

HTTP = ("ping", "publish", "http")


@attack(
    "ws-half-upgrades",
    "2,000 connections from 250 addresses send 3 kB of an upgrade without its end",
    "7",
    listeners=("ws",),
)
def ws_half_upgrades(scene: Scene) -> None:
    content = (UPGRADE % (b"X-A: " + b"a" * 3000))[:-4]
    scene.crowd(2000, lambda _: content, "ws", 250)
    scene.hold()


@attack("ws-pings", "8 WebSocket clients send pings of 125 bytes", listeners=("ws",))
def ws_pings(scene: Scene) -> None:
    clients = [scene.client(wire.connect(f"ws{i}"), "ws") for i in range(8)]
    content = wire.ws_frame(9, b"p" * 125) * 2000
    scene.flood(clients, lambda i: content)


@attack("ws-pings-unread", "8 WebSocket clients send pings and read no pong", listeners=("ws",))
def ws_pings_unread(scene: Scene) -> None:
    clients = [scene.client(wire.connect(f"ws{i}"), "ws") for i in range(8)]
    content = wire.ws_frame(9, b"p" * 125) * 2000
    scene.flood(clients, lambda i: content, read=False)


@attack(
    "ws-fragments",
    "8 WebSocket clients send a PUBLISH in fragments of one byte, and empty fragments",
    listeners=("ws",),
)
def ws_fragments(scene: Scene) -> None:
    clients = [scene.client(wire.connect(f"ws{i}"), "ws") for i in range(8)]
    packet = wire.publish(b"a/b", b"x" * 100)
    parts = [wire.ws_frame(2, packet[:1], fin=False)]
    parts += [
        wire.ws_frame(0, packet[k : k + 1], fin=False) + wire.ws_frame(0, b"", fin=False)
        for k in range(1, len(packet) - 1)
    ]
    content = (b"".join(parts) + wire.ws_frame(0, packet[-1:])) * 50
    scene.flood(clients, lambda i: content)


@attack(
    "http-half",
    "200 half requests, and whole requests of another client",
    "9",
    listeners=("http",),
    victims=HTTP,
    mosquitto=False,
)
def http_half(scene: Scene) -> None:
    scene.crowd(200, lambda _: b"GET /api/v1/version HTTP/1.1\r\nHost: a\r\nX-A: ", "http")
    scene.hold()


@attack(
    "http-half-many",
    "the same from 250 addresses, without even a first line",
    "9",
    listeners=("http",),
    victims=HTTP,
    mosquitto=False,
)
def http_half_many(scene: Scene) -> None:
    scene.crowd(500, lambda _: b"GET /", "http", 250)
    scene.hold()


@attack(
    "http-half-body",
    "100 requests that announce a body of 1 GB and send 60 kB",
    "9",
    listeners=("http",),
    victims=HTTP,
    mosquitto=False,
)
def http_half_body(scene: Scene) -> None:
    content = b"POST /api/v1/version HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n" + bytes(60_000)
    scene.crowd(100, lambda _: content, "http", 50)
    scene.hold()


def _file(scene: Scene) -> None:
    (scene.folder / "www" / "big.bin").write_bytes(bytes(20_000_000))


@attack(
    "http-slow-readers",
    "100 clients request a file of 20 MB and read nothing",
    "9",
    listeners=("http",),
    victims=HTTP,
    prepare=_file,
    mosquitto=False,
)
def http_slow_readers(scene: Scene) -> None:
    scene.crowd(100, lambda _: b"GET /big.bin HTTP/1.1\r\nHost: a\r\n\r\n", "http", 50)
    scene.hold()


@attack(
    "http-pipeline",
    "20 clients send thousands of requests without reading the answers",
    "9",
    listeners=("http",),
    victims=HTTP,
    mosquitto=False,
)
def http_pipeline(scene: Scene) -> None:
    content = b"GET /api/v1/listeners HTTP/1.1\r\nHost: a\r\n\r\n" * 500
    socks = scene.crowd(20, lambda _: content, "http")
    while not scene.over():
        for sock in socks:
            with contextlib.suppress(OSError):
                sock.send(content)
        time.sleep(0.005)


@attack(
    "http-paths",
    "paths that leave http_dir or look different after they are resolved",
    "3",
    listeners=("http",),
    victims=HTTP,
    mosquitto=False,
    prepare=lambda scene: _secret(scene),
)
def http_paths(scene: Scene) -> None:
    for path in (
        b"/../secret.txt",
        b"/%2e%2e/secret.txt",
        b"/..%2fsecret.txt",
        b"//../secret.txt",
        b"/www/../../secret.txt",
        b"/x/..;/../secret.txt",
        b"/\\..\\secret.txt",
        b"/./.././secret.txt",
        b"http://a/../secret.txt",
    ):
        with contextlib.suppress(OSError), scene.open("http", timeout_s=2) as sock:
            sock.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            if b"top secret" in sock.recv(65536):
                scene.breach(f"GET {path.decode()} read a file outside http_dir")


def _secret(scene: Scene) -> None:
    (scene.folder / "secret.txt").write_text("top secret")
