"""Run random sessions against a real broker: valid, mutated and cut packets, take-overs, slow readers, sudden ends.

    python -m tests.fuzz.chaos --actions 20000 --seed 1 [--config TEXT]

The same seed makes the same actions. The run checks that the broker survives, still serves a well-behaved client, and stops
with status 0. `make asan` runs it with a sanitized build, through tests/broker/test_chaos.py, to find memory errors.
"""

from __future__ import annotations

import argparse
import random
import socket
import sys

from tests.harness.broker import Broker
from tests.harness.packets import (
    Connect, Disconnect, Pingreq, Puback, Pubcomp, Publish, Pubrec, Pubrel, Subscribe, Unsubscribe, Will, decode, split,
)
from tests.harness.properties import P, Props

IDS = [f"c{n}" for n in range(12)]
TOPICS = ["a", "a/b", "a/b/c", "b", "b//c", "$x/y", "deep/" * 30 + "x", "große/straße"]
FILTERS = ["#", "a/#", "a/+", "+/b", "+/+/c", "a/b", "b//c", "$share/g/a/#", "$share/g/a/b", "$share/h/#", "$SYS/#", "deep/#", "$x/+"]
TIGHT = """listener {port} 127.0.0.1
allow_anonymous true
max_inflight_messages 3
max_queued_messages 5
max_packet_size 60000
max_output_bytes 65536
max_topic_alias 3
turn_budget 1000
queue_qos0_messages true
shared_strategy least_inflight
shared_strategy random h
sys_interval 1
"""
CONFIGS = [
    "sys_interval 1\n",
    TIGHT,
    "allow_duplicate_messages false\nmax_inflight_messages 0\nmax_queued_messages 0\nupgrade_outgoing_qos true\n"
    "turn_budget 1000\nshared_strategy sticky\n",
    "memory_limit 3000000\nmax_queued_bytes 2000\nretain_available false\nglobal_max_clients 8\nshared_strategy hash_client\n",
]


class Chaos:
    def __init__(self, port: int, seed: int) -> None:
        self.port, self.random = port, random.Random(seed)
        self.sockets: list[tuple[socket.socket, int]] = []
        self.unread: dict[socket.socket, bytes] = {}  # bytes of an incomplete packet

    def act(self) -> None:
        roll = self.random.random()
        if not self.sockets or (roll < 0.08 and len(self.sockets) < 40):
            self.open()
        elif roll < 0.14:
            self.close(self.random.choice(self.sockets))
        else:
            self.talk(*self.random.choice(self.sockets))

    def open(self) -> None:
        r, level = self.random, self.random.choice((3, 4, 5))
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=5)
        if r.random() < 0.2:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        sock.setblocking(False)
        self.sockets.append((sock, level))
        will = Will(r.choice(TOPICS), r.randbytes(20), r.randrange(3), r.random() < 0.5, self.will_props(level)) if r.random() < 0.4 else None
        self.send(sock, level, Connect(r.choice(IDS), r.random() < 0.5, r.choice((0, 1, 60)), will, props=self.connect_props(level)))

    def connect_props(self, level: int) -> Props:
        if level < 5:
            return ()
        r = self.random
        every: Props = ((P.SESSION_EXPIRY, r.choice((0, 1, 100))), (P.RECEIVE_MAXIMUM, r.choice((1, 2, 100))),
                        (P.TOPIC_ALIAS_MAXIMUM, r.choice((0, 2))), (P.MAXIMUM_PACKET_SIZE, r.choice((30, 200, 100000))))
        return tuple(p for p in every if r.random() < 0.5)

    def will_props(self, level: int) -> Props:
        return ((P.WILL_DELAY, self.random.choice((0, 1))),) if level >= 5 and self.random.random() < 0.5 else ()

    def packet(self, level: int) -> object:
        r, mid = self.random, self.random.randrange(1, 6)
        kind = r.randrange(12)
        if kind < 5:
            props: Props = ()
            if level >= 5 and r.random() < 0.4:
                every: Props = ((P.TOPIC_ALIAS, r.randrange(1, 4)), (P.EXPIRY, r.choice((0, 1, 50))), (P.USER, ("k", "v" * r.randrange(50))))
                props = tuple(p for p in every if r.random() < 0.5)
            size = r.choice((0, 1, 10, 200, 5000, 40000)) if r.random() < 0.3 else 5
            return Publish(r.choice(TOPICS), r.randbytes(size), r.randrange(3), mid, r.random() < 0.3, r.random() < 0.1, props)
        if kind < 8:
            options = r.choice((0, 1, 2)) | (r.choice((0, 4, 8, 16, 32)) if level >= 5 else 0)
            props = ((P.SUBSCRIPTION_ID, r.randrange(1, 300)),) if level >= 5 and r.random() < 0.4 else ()
            return Subscribe(mid, tuple((r.choice(FILTERS), options) for _ in range(r.randrange(1, 4))), props)
        if kind == 8:
            return Unsubscribe(mid, (r.choice(FILTERS),))
        if kind == 9:
            return r.choice((Pingreq(), Disconnect(r.choice((0, 4)) if level >= 5 else 0)))
        return r.choice((Puback, Pubrec, Pubrel, Pubcomp))(mid)

    def talk(self, sock: socket.socket, level: int) -> None:
        r = self.random
        if r.random() < 0.5:
            self.listen(sock, level, answer=r.random() < 0.8)
        for _ in range(r.choice((1, 1, 1, 20))):
            packet = self.packet(level)
            data = bytearray(packet.encode(level))  # type: ignore[attr-defined]
            if r.random() < 0.01:
                for _ in range(r.randrange(1, 4)):
                    data[r.randrange(len(data))] = r.randrange(256)
            if r.random() < 0.01:
                del data[r.randrange(len(data)):]
            if not self.send_bytes(sock, bytes(data)):
                return

    def listen(self, sock: socket.socket, level: int, answer: bool) -> None:
        """Read the available packets; acknowledge most of them."""
        try:
            data = sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close((sock, level))
            return
        data = self.unread.pop(sock, b"") + data
        while (n := split(data)) and n <= len(data):
            if not answer:
                pass
            elif data[0] >> 4 == 3 and data[0] & 6:
                got = decode(level, data[:n])
                assert isinstance(got, Publish)
                assert isinstance(got.mid, int)
                self.send(sock, level, (Puback if got.qos == 1 else Pubrec)(got.mid))
            elif data[0] >> 4 in (5, 6):
                mid = int.from_bytes(data[2:4], "big")
                self.send(sock, level, (Pubrel if data[0] >> 4 == 5 else Pubcomp)(mid))
            data = data[n:]
        self.unread[sock] = data

    def send(self, sock: socket.socket, level: int, packet: object) -> bool:
        return self.send_bytes(sock, packet.encode(level))  # type: ignore[attr-defined]

    def send_bytes(self, sock: socket.socket, data: bytes) -> bool:
        try:
            sock.send(data)
        except BlockingIOError:
            return False
        except OSError:
            self.close(next((pair for pair in self.sockets if pair[0] is sock), None))
            return False
        return True

    def close(self, pair: tuple[socket.socket, int] | None) -> None:
        if pair in self.sockets:
            self.sockets.remove(pair)
            self.unread.pop(pair[0], None)
            pair[0].close()

    def end(self) -> None:
        for sock, _ in self.sockets:
            sock.close()


def witness(port: int) -> None:
    """Check that a well-behaved client gets its own message. If no further session is allowed, it takes one over."""
    for client_id in ("witness", *IDS):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
            sock.sendall(Connect(client_id).encode(4) + Subscribe(1, (("witness/#", 0),)).encode(4) + Publish("witness/x", b"alive").encode(4))
            seen = b""
            while b"alive" not in seen:
                data = sock.recv(65536)
                if not data:
                    break
                seen += data
            else:
                return
    raise AssertionError("the broker accepts no client")


def run(config: str, actions: int, seed: int, progress: bool = False) -> None:
    with Broker(config) as broker:
        chaos = Chaos(broker.port, seed)
        try:
            for n in range(actions):
                chaos.act()
                if progress and n % 1000 == 0:
                    print(f"\r{n}/{actions}", end="", file=sys.stderr, flush=True)
        finally:
            chaos.end()
        witness(broker.port)
        assert broker.process is not None
        broker.process.terminate()
        assert broker.process.wait(20) == 0, broker.log()[-4000:]
        assert "ERROR" not in broker.log() and "runtime error" not in broker.log(), broker.log()[-4000:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actions", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--config", help="text of a mosquitto.conf; default: each of the built-in ones")
    options = parser.parse_args()
    for config in [options.config] if options.config else CONFIGS:
        run(config, options.actions, options.seed, progress=True)
    print("\nalive", file=sys.stderr)


if __name__ == "__main__":
    main()
