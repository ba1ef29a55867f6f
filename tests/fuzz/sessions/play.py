"""Play sequences against one broker process, and check the invariants during each and after it.

The broker lives on from one sequence to the next. After each, its sessions and retained messages are removed, and the counters must
be what they were at the start.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from collections.abc import Iterator
from typing import Any

from tests.fuzz.sessions.checks import Known, Violation
from tests.fuzz.sessions.steps import IDS, MOUNT_IDS, Step
from tests.harness import packets
from tests.harness.broker import Broker, free_port
from tests.harness.effort import TIMEOUT_S
from tests.harness.faults import Faults
from tests.harness.packets import Connect, Pingreq, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, split
from tests.harness.properties import Malformed
from tests.harness.websocket import handshake
from tests.harness.wire import Wire
from tests.net.frames import BINARY, frame, read_server

WAIT_S = TIMEOUT_S       # an answer that takes longer counts as none
NOTHING_S = 0.002       # wait of a read step for messages that may not come
HIDDEN_AFTER = 20       # attempts to remove retained messages that no subscription finds
MOUNT = "mounted/"
CONTROL = "$CONTROL/mosq/broker/v1"
ENOSPC, EIO = 28, 5
HEAD = """listener {port} 127.0.0.1
listener {ws} 127.0.0.1
protocol websockets
listener {mount} 127.0.0.1
mount_point mounted/
"""
CONFIGS = {
    "plain": "",
    "durable": "persistence true\npersistence_location {dir}/\nstream s a/#\n",
    "tight": "max_inflight_messages 3\nmax_queued_messages 5\nmax_packet_size 60000\nmax_output_bytes 65536\nturn_budget 1000\n"
             "queue_qos0_messages true\nshared_strategy least_inflight\nmatch_cache 4\n",
    "odd": "allow_duplicate_messages false\nmax_inflight_messages 0\nmax_queued_messages 0\nupgrade_outgoing_qos true\nturn_budget 1000\n"
           "shared_strategy sticky\nindex tree\nqueue_overflow drop_oldest\n",
    "durable-tight": "persistence true\npersistence_location {dir}/\nqueue_memory 20000\nmax_inflight_messages 2\ndurability async\n",
}
VARIANT = ["", "max_inflight_messages 1\n", "max_queued_messages 2\nmax_queued_bytes 1000\n", "retain_available false\n",
           "acl_file {dir}/acl\n", "max_packet_size 1000\nmemory_limit 2000000000\n"]      # the limit includes the sanitizer's own memory
ACL = "topic deny a/b\ntopic readwrite #\ntopic readwrite $x/#\ntopic read $SYS/#\ntopic readwrite $CONTROL/#\n"
BALANCED = {"clients": ("clients_connected", "clients_total"), "queues": ("store_messages", "store_bytes", "retained"),
            "subscriptions": ("subscriptions", "shared_subscriptions", "filters")}


class Peer:
    """One fuzzing client: a connection, and how far its bytes have been read."""

    def __init__(self, port: int, way: str, level: int, client_id: str) -> None:
        self.way, self.level, self.client_id = way, level, client_id
        self.aliases: dict[int, str] = {}
        self.raw = self.unread = b""        # undecoded frames; bytes of an incomplete packet
        self.ended = False
        self.valid = True       # no mutated packet was sent, so the broker must answer
        self.sock = socket.create_connection(("127.0.0.1", port), WAIT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if way == "ws":
            self.sock.sendall(handshake()[0])
            while b"\r\n\r\n" not in self.raw:
                if not (more := self.sock.recv(4096)):
                    raise Violation("upgrade: the broker closed the connection")
                self.raw += more
            self.raw = self.raw.partition(b"\r\n\r\n")[2]
        self.sock.setblocking(False)

    def send(self, data: bytes, cuts: list[int]) -> None:
        """Send the bytes in pieces, as far as the broker takes them: a client that does not read may be blocked."""
        at = 0
        for cut in [*cuts, len(data)]:
            piece = data[at:cut]
            if self.ended or not piece:
                continue
            try:
                self.sock.send(frame(BINARY, piece) if self.way == "ws" else piece)
            except BlockingIOError:
                self.end()              # a part of a frame or of a packet would follow
            except OSError:
                self.ended = True
            at = cut

    def packets(self, wait_s: float) -> Iterator[bytes]:
        """Return the packets that have come; wait for the first bytes."""
        if not self.ended and select.select([self.sock], [], [], wait_s)[0]:
            try:
                more = self.sock.recv(1 << 20)
            except OSError:
                more = b""
            if not more:
                self.ended = True
            elif self.way == "ws":
                got, self.raw = read_server(self.raw + more)
                self.unread += b"".join(one.payload for one in got if one.opcode == BINARY)
            else:
                self.unread += more
        while n := split(self.unread):
            one, self.unread = self.unread[:n], self.unread[n:]
            yield one

    def end(self, reset: bool = False) -> None:
        self.ended = True
        if reset:
            with contextlib.suppress(OSError):
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.sock.close()


class Player:
    """One broker with honest clients, on which sequences are played."""

    def __init__(self, config: str, argv: list[str] | None = None) -> None:
        self.ports = {"ws": free_port(), "mount": free_port()}
        self.base = HEAD + CONFIGS[config]
        self.faults = Faults()
        self.later_s = 0
        self.broker = Broker(self._config(0), {"acl": ACL}, command=argv, env=self.faults.env)
        self.ports["tcp"] = self.broker.port

    def _config(self, variant: int) -> str:
        text = "allow_anonymous true\nenable_control_api true\ncontrol_loopback true\nsys_interval 0\nlog_type error\nlog_type warning\n" + VARIANT[variant] + self.base
        return text.replace("{ws}", str(self.ports["ws"])).replace("{mount}", str(self.ports["mount"]))

    def __enter__(self) -> Player:
        self.broker.start()
        self.honest = self._wire("honest", Subscribe(1, (("honest/#", 1),)))
        self.asker = self._wire("asker", Subscribe(1, ((CONTROL + "/response", 0),)))
        self.before = self.stats()
        return self

    def _wire(self, client_id: str, *more: Any) -> Wire:
        wire = Wire(self.broker.port, 4, WAIT_S)
        try:
            wire.send(Connect(client_id, keepalive=0), *more)
            for _ in range(1 + len(more)):
                wire.read_packet()
        except BaseException:
            wire.close()
            raise
        return wire

    def __exit__(self, *_: object) -> None:
        for wire in (self.honest, self.asker):
            wire.close()
        with contextlib.suppress(RuntimeError):
            self.broker.close()
        self.faults.close()

    # ---- one sequence

    def play(self, steps: list[Step]) -> None:
        """Play a sequence; raise Violation if an invariant does not hold."""
        known, peers = Known(), {}
        self.hides = self.disk_fails = False
        reloaded = False
        try:
            try:
                for step in steps:
                    reloaded |= step[0] == "reload"
                    self._step(step, known, peers)
            finally:
                for peer in peers.values():
                    peer.end()
                self.faults.set(full=0, write_errno=0)
            self.hides = known.strange
            self._clean(known, reloaded)
            self._honest_client_is_served()
            self._counters_balance()
        except (OSError, Malformed, AssertionError, UnicodeDecodeError) as error:
            if self.broker.alive():
                last = self.broker.log().splitlines()[-1:]
                raise Violation(f"service: {type(error).__name__}: {error}; log: {last}"[:400]) from error
        self.check_process()

    def check_process(self) -> None:
        """Raise Violation if the broker has ended or a sanitizer has reported."""
        assert self.broker.process is not None
        if not self.broker.alive() or "runtime error" in (log := self.broker.log()) or "AddressSanitizer" in log:
            with contextlib.suppress(Exception):
                self.broker.process.wait(20)
            raise Violation(f"crash: status {self.broker.process.poll()}: {first_error(self.broker.log())}")

    def _step(self, step: Step, known: Known, peers: dict[int, Peer]) -> None:
        kind, arguments = step[0], step[1:]
        if kind == "later":
            self.later_s += arguments[0]
            self.faults.set(later_s=self.later_s, wall_ms=self.later_s * 1000)
        elif kind == "reload":
            self._reload(arguments[0])
        elif kind == "disk":
            self.disk_fails = bool(arguments[0])
            self.faults.set(full=arguments[0] == "full", write_errno=EIO if arguments[0] == "error" else 0)
        elif kind == "open":
            self._open(peers, known, *arguments)
        elif (peer := peers.get(arguments[0])) is not None and not peer.ended:
            self._act(kind, peer, known, *arguments[1:])

    def _reload(self, variant: int) -> None:
        text = self._config(variant).replace("{port}", str(self.broker.port)).replace("{dir}", str(self.broker.dir))
        new = self.broker.config.with_suffix(".new")
        new.write_text(text)
        new.replace(self.broker.config)     # a reload that has begun must not read half a file
        self.broker.send_signal(1)

    def _open(self, peers: dict[int, Peer], known: Known, n: int, way: str, level: int, client_id: str, packet: str, will: str) -> None:
        if n in peers:
            peers[n].end()
        data = bytes.fromhex(packet)
        prefix = MOUNT if way == "mount" else ""
        if will:                        # the payload is the last field, since no client has a user name
            topic = will.encode()
            at = data.rindex(len(topic).to_bytes(2, "big") + topic) + 2 + len(topic)
            known.published.add((prefix + will, data[at + 2:]))
        peers[n] = Peer(self.ports[way], way, level, client_id or f"?{n}")
        if not client_id:               # an assigned id begins without subscriptions
            known.filters.pop(f"?{n}", None)
        peers[n].send(data, [])

    def _act(self, kind: str, peer: Peer, known: Known, *arguments: Any) -> None:
        prefix = MOUNT if peer.way == "mount" else ""
        if kind == "send":
            data, cuts, valid, filters, topics = arguments
            known.subscribe(peer.client_id, filters)
            known.published |= {(prefix + topic, bytes.fromhex(payload)) for topic, payload in topics}
            if not valid:
                known.strange, peer.valid = True, False
                known.unknown.add(peer.client_id)
            peer.send(bytes.fromhex(data), cuts)
        elif kind == "read":
            self._read(peer, known, arguments[0], NOTHING_S)
        elif kind == "sync":
            peer.send(Pingreq().encode(4), [])
            end = time.monotonic() + WAIT_S
            sure = peer.valid and not self.disk_fails   # a CONNACK may wait for the disk, and packets behind it too
            while not peer.ended and not self._read(peer, known, "a", WAIT_S if sure else NOTHING_S) and sure:
                if time.monotonic() > end:
                    raise Violation(f"sync: client {peer.client_id!r} got no PINGRESP in {WAIT_S:g} s")
        elif kind == "close":
            if arguments[0] == "disconnect":
                peer.send(b"\xe0\0", [])
            peer.end(arguments[0] == "reset")

    def _read(self, peer: Peer, known: Known, answers: str, wait_s: float) -> bool:
        """Check and acknowledge what has come; return True if a PINGRESP was in it."""
        pong, n = False, 0
        for data in peer.packets(wait_s):
            try:
                packet = packets.decode(peer.level, data)
            except (Malformed, UnicodeDecodeError) as error:
                raise Violation(f"malformed: client {peer.client_id!r} got {data[:40].hex()}: {error}") from error
            pong |= data[0] == 0xD0
            if isinstance(packet, Publish):
                prefix = MOUNT if peer.way == "mount" else ""
                known.check(peer.client_id, prefix, packet, peer.aliases)
                if packet.qos:
                    how, n = answers[n % len(answers)], n + 1
                    assert isinstance(packet.mid, int)
                    peer.send(acknowledged(packet.qos, packet.mid, how, peer.level), [])
            elif isinstance(packet, Pubrec) and packet.rc < 0x80:
                peer.send(Pubrel(packet.mid).encode(peer.level), [])
            elif isinstance(packet, Pubrel):
                peer.send(Pubcomp(packet.mid).encode(peer.level), [])
        return pong

    # ---- after a sequence

    def _clean(self, known: Known, reloaded: bool) -> None:
        """Remove the sessions and retained messages of the sequence."""
        if reloaded:
            self._reload(0)
            self._await_reload()
            self._control("getStats")       # the control plane answers after the reload
        ids = [*filter(None, IDS), *MOUNT_IDS, *(known.unknown - {one for one in known.unknown if one.startswith("?")})]
        for client_id in ids:
            for port in {self.ports["mount" if client_id in MOUNT_IDS else "tcp"]}:
                wire = Wire(port, 4, WAIT_S)
                wire.send(Connect(client_id, keepalive=0))
                wire.read_packet()
                wire.send(b"\xe0\0")
                wire.read_frame()
                wire.close()
        self.later_s += 10                  # the delayed wills of cleared sessions, and the end of slow connections
        self.faults.set(later_s=self.later_s, wall_ms=self.later_s * 1000)
        self._strangers()
        self._clear_retained()

    def _await_reload(self) -> None:
        """A CONNECT waits until the reload is in force. Before, memory_limit may refuse the connection."""
        end = time.monotonic() + WAIT_S
        while True:
            try:
                self._wire("clear").close()
                return
            except (AssertionError, OSError):
                if time.monotonic() > end:
                    raise

    def _strangers(self) -> None:
        """Remove sessions whose ids a mutated CONNECT or the broker has made."""
        for client in self._control("listClients", count=1000)["clients"]:
            if client["clientid"] not in ("honest", "asker"):
                self._control("kickClient", quiet=True, clientid=client["clientid"])
                wire = Wire(self.broker.port, 4, WAIT_S)
                wire.send(Connect(client["clientid"], keepalive=0))
                wire.read_packet()
                wire.send(b"\xe0\0")
                wire.close()

    def _clear_retained(self) -> None:
        wire = Wire(self.broker.port, 4, WAIT_S)
        wire.send(Connect("clear", keepalive=0), Subscribe(1, (("#", 0), ("$x/#", 0))), Pingreq())
        topics: set[str] = set()
        end, rounds = time.monotonic() + WAIT_S, 0
        while (now := self.stats())["retained"] != self.before["retained"] or not rounds:
            rounds += 1
            while not isinstance(got := wire.read_packet(), packets.Pingresp):
                if isinstance(got, Publish) and got.retain:
                    topics.add(got.topic)
            wire.send(*(Publish(topic, b"", retain=True) for topic in topics), Pingreq())
            if self.hides and rounds > HIDDEN_AFTER:    # a mutated topic that begins with $: no wildcard finds it
                hidden = now["retained"] - self.before["retained"]
                self.before["store_bytes"] += now["store_bytes"] - self.before["store_bytes"]
                for name in ("retained", "store_messages"):
                    self.before[name] += hidden
                break
            if time.monotonic() > end:
                raise Violation(f"retained: messages of {sorted(topics)[:5]} cannot be removed")
        wire.send(b"\xe0\0")
        wire.close()

    def _honest_client_is_served(self) -> None:
        sent = [Publish("honest/x", b"%d" % n, 1, n) for n in range(1, 4)]
        self.honest.send(*sent)
        got, acks = [], 0
        while len(got) < 3 or acks < 3:
            packet = self.honest.read_packet()
            if isinstance(packet, Publish):
                got.append(packet.payload)
                self.honest.send(Puback(packet.mid))
            else:
                acks += 1
        if got != [one.payload for one in sent]:
            raise Violation(f"order: the honest client got {got}")

    def _counters_balance(self) -> None:
        end = time.monotonic() + WAIT_S
        while (now := self.stats()) != self.before:
            if time.monotonic() > end:
                wrong = {name: (self.before[name], value) for name, value in now.items() if value != self.before[name]}
                raise Violation(f"balance: counters before and after: {wrong}; clients: {self._control('listClients')['clients']}"[:1500])
            time.sleep(0.005)
            self._strangers()           # a CONNECT of the sequence may have been processed after the first cleaning
            self._clear_retained()

    def stats(self) -> dict[str, int]:
        data = self._control("getStats")
        return {name: data[group][name] for group, names in BALANCED.items() for name in names}

    def _control(self, command: str, quiet: bool = False, **arguments: Any) -> dict[str, Any]:
        request = json.dumps({"commands": [{"command": command, **arguments}]}).encode()
        self.asker.send(Publish(CONTROL, request))
        while True:
            got = self.asker.read_packet()
            if isinstance(got, Publish) and got.topic == CONTROL + "/response":
                found = json.loads(got.payload)
                if "responses" not in found:        # the broker asks to send the request again after a reload
                    self.asker.send(Publish(CONTROL, request))
                    continue
                [answer] = found["responses"]
                if "error" in answer and not quiet:
                    raise Violation(f"control: {answer}")
                data: dict[str, Any] = answer.get("data", {})
                return data


def acknowledged(qos: int, mid: int, how: str, level: int) -> bytes:
    right, wrong = (Puback, Pubrec) if qos == 1 else (Pubrec, Puback)
    if how == "n":
        return b""
    if how == "w":
        return wrong(mid).encode(level)
    if how == "e":
        return right(mid, 0x80).encode(level)
    return right(mid).encode(level) * (2 if how == "d" else 1)


def first_error(log: str) -> str:
    """Return the line of a log that names the error, with the first frame of this project."""
    lines = log.splitlines()
    found = next((line for line in lines if "ERROR: " in line or "runtime error" in line or "Traceback" in line), lines[-1] if lines else "")
    at = next((line.strip() for line in lines if line.lstrip().startswith("#") and "/cext/" in line), "")
    return f"{found.strip()[:150]} {at[:150]}"
