"""Measure the waits of clients that behave well: one thread for each kind of wait, in a process of its own.

ping     PINGREQ to PINGRESP on a connection that was open before the attack
publish  PUBLISH with QoS 1 to PUBACK, on another such connection
login    a new connection until its CONNACK
http     a new connection with GET /api/v1/health until the first bytes of the answer
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING

from perf.attacks import wire
from perf.attacks.scene import HOST, Client, tls_context

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

PAUSE_S = {"ping": 0.003, "publish": 0.005, "login": 0.05, "http": 0.05}
WORST_S = 90.0  # longest wait that is measured
TOPIC = b"victim/topic"
HEALTH = b"/api/v1/health"


class Victim:
    """One kind of wait. The fields are valid after the thread has ended."""

    def __init__(self, kind: str, port: int, tls: bool, user: str) -> None:
        self.kind, self.port, self.tls, self.user = kind, port, tls, user
        self.waits: list[float] = []
        self.lost = ""  # why the broker did not serve the client
        self.refused: list[str] = []  # answers to newcomers that were refused
        self.stop = threading.Event()

    def open(self) -> Client:
        sock = socket.create_connection((HOST, self.port), WORST_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.tls:
            sock = tls_context().wrap_socket(sock, server_hostname="localhost")
        return Client(sock)

    def log_in(self, name: str) -> Client:
        client = self.open()
        user = self.user or None
        client.sock.sendall(wire.connect(name, user=user, password=user))
        answer = client.read()
        if answer[:1] != b"\x20" or answer[3]:
            raise ConnectionRefusedError(f"CONNACK {answer!r}")
        return client

    def prepare(self) -> None:
        self.act: Callable[[], None] = getattr(self, self.kind)
        if self.kind in ("ping", "publish"):
            self.client = self.log_in(f"victim-{self.kind}")

    def ping(self) -> None:
        self.client.sock.sendall(wire.PINGREQ)
        self.client.read_type(13)

    def publish(self) -> None:
        self.client.sock.sendall(wire.publish(TOPIC, b"x" * 20, qos=1, mid=1))
        self.client.read_type(4)

    def login(self) -> None:
        client = self.log_in("victim-login")
        client.sock.sendall(wire.DISCONNECT)
        client.close()

    def http(self) -> None:
        with contextlib.closing(self.open()) as client:
            client.sock.sendall(b"GET " + HEALTH + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            answer = client.sock.recv(1 << 16)
            if not answer.startswith(b"HTTP/1.1 200"):
                raise ConnectionError(f"GET {HEALTH.decode()} was answered with {answer[:40]!r}")

    def run(self) -> None:
        while not self.stop.is_set():
            begin = time.perf_counter()
            try:
                self.act()
            except OSError as error:
                if self.kind in ("ping", "publish") or not isinstance(error, ConnectionError):
                    self.lost = f"{self.kind}: {error or type(error).__name__}"
                    self.waits.append(time.perf_counter() - begin)
                    return
                self.refused.append(str(error))
            self.waits.append(time.perf_counter() - begin)
            time.sleep(PAUSE_S[self.kind])


def victims(kinds: dict[str, int], tls: bool, user: str, parent: Connection) -> None:
    """Run the victims (kind to port) until the parent writes; then send {kind: (worst s, median s, number)}, losses and
    refusals.

    Writes "ready" first. A wait that has begun is measured to its end."""
    every = [Victim(kind, port, tls and kind != "http", user) for kind, port in kinds.items()]
    try:
        for one in every:
            one.prepare()
    except OSError as error:
        parent.send(f"a victim cannot connect: {error}")
        return
    threads = [threading.Thread(target=one.run, daemon=True) for one in every]
    for thread in threads:
        thread.start()
    parent.send("ready")
    parent.recv()
    for one in every:
        one.stop.set()
    for thread in threads:
        thread.join(WORST_S + 5)
    waits = {
        one.kind: (max(one.waits), sorted(one.waits)[len(one.waits) // 2], len(one.waits)) for one in every if one.waits
    }
    refusals = [
        f"{one.kind} refused {len(one.refused)} of {len(one.waits)} times: {one.refused[0]}"
        for one in every
        if one.refused
    ]
    parent.send((waits, [one.lost for one in every if one.lost], refusals))
