"""Run one broker and play the steps of sessions on it; return what each client has received after each step.

No step waits for a fixed time. After a step, the client that acted gets a PINGRESP, then all clients and a client that only watches get
one or two: both brokers have then processed what the step caused.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from typing import Any

from tests.differential.heard import CLOSED, SILENT, Got, Item, Names, named, ordered, read
from tests.differential.shadow import FORMER, Heard
from tests.fuzz.sessions.maker import Step
from tests.harness.broker import Broker
from tests.harness.effort import TIMEOUT_S
from tests.harness.packets import Connack, Connect, Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel
from tests.harness.wire import frame_from

PINGREQ, PINGRESP = b"\xc0\x00", b"\xd0\x00"
RELOADING = "Reloading config."
SILENT_S = TIMEOUT_S / 3        # only a broker that gives no answer at all makes a client wait so long


class Ended(Exception):
    """A broker has ended."""


class Client:
    def __init__(self, port: int, level: int, names: Names) -> None:
        self.level, self.names = level, names
        self.aliases: dict[int, str] = {}
        self.buffer = bytearray()
        self.got: list[Got] = []            # packets of this step
        self.pending: list[Any] = []        # received packets that wait for an acknowledgement
        self.acted: list[tuple[Any, str]] = []      # what the last step has acknowledged, and how
        self.ended = self.connected = False
        self.sock = socket.create_connection(("127.0.0.1", port), SILENT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):      # the broker may have closed; read() reports it
            self.sock.settimeout(SILENT_S)
            self.sock.sendall(data)

    def read(self) -> bytes | None:
        """Return the next packet and keep it; None: the connection has ended."""
        try:
            raw = frame_from(self.sock, self.buffer, SILENT_S)
        except TimeoutError:
            self.end(SILENT)
            return None
        except OSError:
            raw = None
        if raw is None:
            self.end(CLOSED)
        elif raw != PINGRESP:
            self.got.append((read(self.level, raw, self.aliases), raw))
        return raw

    def await_pong(self) -> None:
        while not self.ended and self.read() != PINGRESP:
            pass

    def end(self, how: str = "") -> None:
        self.ended = True
        if how:
            self.got.append((how, b""))
        self.sock.close()

    def taken(self) -> list[Item]:
        """Return what this step has brought; it waits for acknowledgements from now on."""
        items = named(ordered(self.got, self.names), self.names)
        self.pending += [one.packet for one in items if waits(one.packet)]
        self.got = []
        return items


def waits(packet: Any) -> bool:
    return isinstance(packet, Pubrel) or (isinstance(packet, Publish) and packet.qos > 0) or (isinstance(packet, Pubrec) and packet.rc < 0x80)


class Side:
    """One broker with one configuration. `base` is in front of the text of a reload's variant."""

    def __init__(self, command: list[str], base: str, files: dict[str, str]) -> None:
        self.base = base
        self.broker = Broker(self._text(""), files, command=command)
        self.clients: dict[int, Client] = {}        # a connection that client n has left open is n + FORMER, n + 2 * FORMER, ...
        self.names: dict[str, Names] = {}
        self.variant = ""

    def _text(self, variant: str) -> str:
        return "set_tcp_nodelay true\nlog_dest stderr\nlog_type information\nlog_type error\nlog_type warning\n" + variant + self.base

    def start(self) -> None:
        self.broker.start()
        self._watch()

    def _watch(self) -> None:
        self.watch = Client(self.broker.port, 4, Names())
        self.watch.send(Connect("watch", keepalive=60).encode(4))
        if self.watch.read() is None:
            raise Ended(self.report())

    def report(self) -> str:
        status = self.broker.process.poll() if self.broker.process else None
        return f"status {status}; the end of the log:\n{self.broker.log()[-1500:]}"

    def close(self) -> None:
        for client in [*self.clients.values(), self.watch]:
            client.end()
        with contextlib.suppress(RuntimeError):
            self.broker.close()

    # ---- a session

    def play(self, step: Step) -> Heard:
        """Play a step; return what each client has received."""
        kind = step[0]
        if kind == "reload":
            self.reload(step[1])
        elif kind == "open":
            self._open(*step[1:])
        elif (client := self.clients.get(step[1])) is not None and not client.ended:
            if kind == "send":
                client.send(bytes.fromhex(step[2]) + PINGREQ)
                client.await_pong()
            elif kind == "answer":
                self._answer(client, step[2])
            else:
                self._close(client, step[2])
        return self._settle(1 if kind in ("send", "answer") else 2)

    def finish(self) -> Heard:
        """End the clients of a session."""
        for client in self.clients.values():
            if not client.ended:
                client.send(b"\xe0\x00")
        for client in self.clients.values():
            client.end()
        self.clients, self.names = {}, {}
        return self._settle(2)

    def _open(self, n: int, level: int, client_id: str, packet: str) -> None:
        if n in self.clients and not self.clients[n].ended:
            self.clients[next(i for i in itertools.count(n + FORMER, FORMER) if i not in self.clients)] = self.clients[n]
        names = self.names.setdefault(client_id, Names()) if client_id else Names()       # an empty id never resumes a session
        client = self.clients[n] = Client(self.broker.port, level, names)
        client.send(bytes.fromhex(packet))
        if client.read() is None:
            return
        first = client.got[0][0]
        client.connected = isinstance(first, Connack) and first.rc == 0
        while not client.ended and not client.connected:
            client.read()

    def _answer(self, client: Client, answers: str) -> None:
        data, kept = b"", []
        client.acted = []
        for i, packet in enumerate(client.pending):
            how = answers[i % len(answers)]
            if how == "k":
                kept.append(packet)
            else:
                data += acknowledged(packet, how, client.level)
                client.acted.append((packet, how))
        client.pending = kept
        client.send(data + PINGREQ)
        client.await_pong()

    def _close(self, client: Client, how: str) -> None:
        if how in ("disconnect", "with will"):
            client.send(Disconnect(4 if how == "with will" else 0).encode(client.level))
            while not client.ended:
                client.read()
            return
        if how == "reset":
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        client.end()

    def _settle(self, rounds: int) -> Heard:
        """Let the broker complete what a step has caused; it may process the end of a connection only after one round."""
        live = [self.watch, *(client for client in self.clients.values() if not client.ended)]
        for _ in range(rounds):
            for client in live:
                client.send(PINGREQ)
            for client in live:
                client.await_pong()
        if self.watch.ended or not self.broker.alive():
            raise Ended(self.report())
        heard: Heard = {}
        for n, client in self.clients.items():
            heard[n] = client.taken()
        return heard

    def reload(self, variant: str) -> None:
        """Let the broker read its configuration again, twice: when it begins the second time, it has completed the first."""
        self.variant = variant
        text = self._text(variant).replace("{port}", str(self.broker.port)).replace("{dir}", str(self.broker.dir))
        new = self.broker.config.with_suffix(".new")
        new.write_text(text)
        new.chmod(0o644)
        new.replace(self.broker.config)
        for _ in range(2):
            before, end = self.broker.log().count(RELOADING), time.monotonic() + TIMEOUT_S
            self.broker.send_signal(1)
            while self.broker.log().count(RELOADING) == before:
                if not self.broker.alive() or time.monotonic() > end:
                    raise Ended(f"no reload; {self.report()}")
                self._watch_settles()
            self._watch_settles()       # Mosquitto forgets a signal that comes during a reload

    def _watch_settles(self) -> None:
        for _ in range(2):
            self.watch.send(PINGREQ)
            self.watch.await_pong()


def acknowledged(packet: Any, how: str, level: int) -> bytes:
    right = Pubcomp if isinstance(packet, Pubrel) else Pubrel if isinstance(packet, Pubrec) else Puback if packet.qos == 1 else Pubrec
    one: bytes = right(packet.mid, 0x92 if how == "e" and right in (Pubrel, Pubcomp) else 0x80 if how == "e" else 0).encode(level)
    return one * (2 if how == "d" else 1)

