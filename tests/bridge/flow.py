"""Send numbered messages through a bridge that is cut repeatedly, and count the arrivals.

    python -m tests.bridge.flow --messages 1000000 --cuts 100 [--qos 1] [--direction out|in] [--bytes]

`near` has the bridge, `far` is the other broker, with a proxy between them. A publisher sends to TOPICS topics with its own window; a subscriber at
the other end receives all messages, and lost, doubled and disordered ones within a topic are reported. `--bytes`: each cut comes after a number of
bytes, so in the middle of packets; else after a share of the messages.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import random
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass, field

from tests.harness.packets import Connack, Connect, Publish, Suback, Subscribe
from tests.harness.proxy import Proxy
from tests.harness.properties import Cursor, read_varint

TOPICS = 16
WINDOW = 200
QUIET_S = 60.0


@dataclass
class Count:
    """Count the arrivals."""

    n: int = 0                          # distinct messages
    doubled: int = 0
    reordered: int = 0                  # first arrivals after a later message of their topic
    seen: bytearray = field(default_factory=bytearray)
    last: dict[bytes, int] = field(default_factory=dict)

    def take(self, topic: bytes, number: int) -> None:
        if self.seen[number]:
            self.doubled += 1           # QoS 1 may repeat a message: that is no new arrival
            return
        self.seen[number] = 1
        self.n += 1
        if number < self.last.get(topic, -1):
            self.reordered += 1
        else:
            self.last[topic] = number


class Plain:
    """Connect a minimal client, because this part of the test must not be the slow one."""

    def __init__(self, port: int, client_id: str) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=QUIET_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.send(Connect(client_id, keepalive=0).encode(4))
        assert self.frames()[0] == Connack().encode(4)

    def send(self, raw: bytes) -> None:
        self.sock.sendall(raw)

    def frames(self) -> list[bytes]:
        """Return whole frames; wait for one."""
        found: list[bytes] = []
        while not found:
            more = self.sock.recv(1 << 18)
            if not more:
                raise ConnectionError("the broker closed")
            self.buffer += more
            at = 0
            while (size := _size(self.buffer, at)) and at + size <= len(self.buffer):
                found.append(self.buffer[at:at + size])
                at += size
            self.buffer = self.buffer[at:]
        return found


def _size(buffer: bytes, at: int) -> int:
    """Return the size of the frame that begins there; 0: not known yet."""
    try:
        length, after = read_varint(buffer, at + 1)
    except IndexError:
        return 0
    return after - at + length


def publish(port: int, n: int, qos: int, prefix: str, stop: threading.Event) -> None:
    client = Plain(port, "flow-publisher")
    unacknowledged = 0
    for first in range(0, n, WINDOW // 2):
        batch = bytearray()
        for number in range(first, min(n, first + WINDOW // 2)):
            batch += Publish(f"{prefix}{number % TOPICS}", b"%d" % number, qos, number % 65535 + 1).encode(4)
            unacknowledged += 1
        client.send(bytes(batch))
        while unacknowledged > WINDOW // 2 or (first + WINDOW // 2 >= n and unacknowledged):
            out = bytearray()
            for frame in client.frames():
                if frame[0] == 0x50:
                    out += b"\x62\x02" + frame[2:4]
                else:
                    unacknowledged -= 1
            if out:
                client.send(bytes(out))
        if stop.is_set():
            break
    client.sock.close()


def collect(port: int, n: int, qos: int, prefix: str, ready: threading.Event, count: Count, on: threading.Condition) -> None:
    client = Plain(port, "flow-collector")
    client.send(Subscribe(1, ((f"{prefix}+", qos),)).encode(4))
    assert client.frames()[0] == Suback(1, (qos,)).encode(4)
    ready.set()
    while count.n < n:
        out = bytearray()
        for frame in client.frames():
            kind = frame[0] >> 4
            if kind == 6:
                out += b"\x70\x02" + frame[2:4]
                continue
            body = Cursor(frame[read_varint(frame, 1)[1]:])
            topic = body.take(body.u16())
            mid = body.u16()
            out += (b"\x40\x02" if qos == 1 else b"\x50\x02") + mid.to_bytes(2, "big")
            count.take(topic, int(body.rest()))
        client.send(bytes(out))
        with on:
            on.notify_all()
    with contextlib.suppress(OSError):      # a repeated message arrives late
        client.sock.settimeout(0.3)
        while frames := client.frames():
            for frame in frames:
                if frame[0] >> 4 == 3:
                    body = Cursor(frame[read_varint(frame, 1)[1]:])
                    topic = body.take(body.u16())
                    body.u16()
                    count.take(topic, int(body.rest()))
    client.sock.close()


def run(near_port: int, far_port: int, proxy: Proxy, n: int, cuts: int, qos: int, direction: str = "out", by_bytes: bool = False,
        seed: int = 1) -> Count:
    """Run from the broker with the bridge to the other one ("out"), or the other way ("in"); topics `flow/N` must be bridged."""
    prefix = "flow/"
    publisher, collector = (near_port, far_port) if direction == "out" else (far_port, near_port)
    count, ready, stop, changed = Count(seen=bytearray(n)), threading.Event(), threading.Event(), threading.Condition()
    failures: list[BaseException] = []

    def guarded(target: object, *arguments: object) -> None:
        try:
            target(*arguments)          # type: ignore[operator]
        except BaseException as error:
            failures.append(error)
            ready.set()
            with changed:
                changed.notify_all()

    threads = [threading.Thread(target=guarded, args=(collect, collector, n, qos, prefix, ready, count, changed), daemon=True),
               threading.Thread(target=guarded, args=(publish, publisher, n, qos, prefix, stop), daemon=True)]
    threads[0].start()
    ready.wait(QUIET_S)
    threads[1].start()
    rng = random.Random(seed)
    done, next_at = 0, n // (cuts + 1)
    while count.n < n and not failures:
        with changed:
            before = count.n
            changed.wait(1.0)
        if done < cuts and count.n >= next_at:
            if by_bytes:
                proxy.cut_after = rng.randrange(50, max(100, 30 * n // (cuts + 1)))
            if proxy.cut():
                done += 1
                next_at = count.n + (n - count.n) // (cuts - done + 1)
        if count.n == before and not threads[0].is_alive():
            break
    stop.set()
    if failures:
        raise failures[0]
    for thread in threads:
        thread.join(QUIET_S)
    return count


def main() -> int:
    from tests.bridge.conftest import World, block, wait_for

    words = argparse.ArgumentParser(prog="python -m tests.bridge.flow", description=__doc__.splitlines()[0])
    words.add_argument("--messages", type=int, default=1_000_000)
    words.add_argument("--cuts", type=int, default=100)
    words.add_argument("--qos", type=int, choices=(1, 2), default=1)
    words.add_argument("--direction", choices=("out", "in"), default="out")
    words.add_argument("--bytes", action="store_true")
    words.add_argument("--far", choices=("mosq", "mosquitto"), default="mosq")
    options = words.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    room = "log_type none\nmax_queued_messages 0\nmax_inflight_messages 1000\n"
    world = World()
    began = time.monotonic()
    with world.stack:
        far = world.mosq(extra=room) if options.far == "mosq" else world.mosquitto(room)
        proxy = world.proxy(far.port)
        near = world.mosq(block(proxy.port, topics=(f"flow/# {options.direction} {options.qos}", "joined out 0")), room)
        wait_for(near, far, world)
        count = run(near.port, far.port, proxy, options.messages, options.cuts, options.qos, options.direction, options.bytes)
        took_s = time.monotonic() - began
        cuts = proxy.n_cuts
    counts = collections.OrderedDict(messages=options.messages, arrived=count.n, lost=options.messages - count.n, doubled=count.doubled,
                                     reordered=count.reordered, cuts=cuts, seconds=round(took_s, 1))
    print(" ".join(f"{name}={value}" for name, value in counts.items()))
    return 0 if count.n == options.messages and not count.reordered and not (options.qos == 2 and count.doubled) else 1


if __name__ == "__main__":
    sys.exit(main())
