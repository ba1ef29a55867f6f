"""Measure what a client waits for: the start of a broker with a large store, and acknowledgements.

    python -m perf.durable                          # both
    python -m perf.durable --parts restart --messages 1000000 --sessions 100
    python -m perf.durable --parts puback --load 100000 --levels group,strict

restart: a store with so many messages for so many offline sessions. Measured is the time from exec to the first answer,
to the first message of a session that comes back, and to its last message, and the memory at that moment. Between the
runs the broker is killed with SIGKILL. puback: the instrument (mqload, in MOSQ_BENCH) runs 100 pairs at QoS 1 with
durable sessions, at a fixed rate, while one client publishes to an offline session, one message after the other, and
waits for each PUBACK. Each of these messages is written to the store.
"""

from __future__ import annotations

import argparse
import getpass
import os
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from perf.lock import bench_lock
from perf.login import packet, string

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST, PORT = "127.0.0.1", 18830
TOPIC, PAYLOAD_BYTES = b"perf/durable", 100
NEVER = 0xFFFFFFFF
PROBES_S = 8.0
CONFIG = """listener {port} 127.0.0.1
allow_anonymous true
user {user}
persistence true
persistence_location {dir}/
durability {level}
max_queued_messages 0
max_inflight_messages 1000
log_type error
"""


class Broker:
    """Control a mosq whose store is in a folder."""

    def __init__(self, directory: Path, level: str = "group") -> None:
        self.config = directory / "mosq.conf"
        self.config.write_text(CONFIG.format(port=PORT, dir=directory, level=level, user=getpass.getuser()))

    def start(self) -> None:
        """Start the broker; return when it accepts connections."""
        self.process = subprocess.Popen([sys.executable, "-m", "mosq", "-c", str(self.config)])
        while True:
            try:
                socket.create_connection((HOST, PORT)).close()
                return
            except ConnectionRefusedError:
                if self.process.poll() is not None:
                    sys.exit("the broker did not start: see above")
                time.sleep(0.001)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def rss_mb(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


def opened(client_id: bytes, clean: bool = False) -> socket.socket:
    """Return a connected MQTT 3.1.1 client with a session."""
    sock = socket.create_connection((HOST, PORT))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(packet(0x10, string(b"MQTT") + bytes((4, 2 if clean else 0, 0, 0)) + string(client_id)))
    if sock.recv(4, socket.MSG_WAITALL)[3:] != b"\0":
        sys.exit("the broker refused a client")
    return sock


# ---------------------------------------------------------------- restart

def records(messages: int, sessions: int) -> Iterator[tuple[int, bytes]]:
    """Yield the records of a store: sessions, and messages for them in turn."""
    from mosq._core import record_encode
    from mosq.tools.db import kinds

    for sno in range(1, sessions + 1):
        yield kinds.SESSION, record_encode(kinds.SESSION, {
            "sno": sno, "connected": False, "expiry_s": NEVER, "ends_wall_ms": 0, "next": 0, "id": b"c%d" % sno,
            "user": None})
    for i in range(messages):
        position = i // sessions
        yield kinds.MSG, record_encode(kinds.MSG, {
            "qos": 1, "retain": False, "retained_set": False, "expires_wall_ms": 0, "source_hash": 0, "props": b"",
            "topic": b"a/b/%d" % (i % 1000), "payload": b"x" * PAYLOAD_BYTES,
            "entries": [(i % sessions + 1, position, position % 65535 + 1, 1, 0)]})


def drained(sock: socket.socket, n: int) -> tuple[float, float]:
    """Return the time of the first of n messages, and of the last; each is acknowledged."""
    held, count, first = b"", 0, 0.0
    while count < n:
        held += sock.recv(1 << 16)
        first = first or time.perf_counter()
        acks, at = [], 0
        while len(held) - at > 2:
            size, start = held[at + 1], at + 2
            if size > 127:
                size, start = size & 127 | held[at + 2] << 7, at + 3
            if len(held) < start + size:
                break
            topic_n = struct.unpack_from("!H", held, start)[0]
            acks.append(b"\x40\x02" + held[start + 2 + topic_n:start + 4 + topic_n])
            at = start + size
        held = held[at:]
        count += len(acks)
        sock.sendall(b"".join(acks))
    return first, time.perf_counter()


def restart(directory: Path, messages: int, sessions: int, times: int) -> None:
    """Measure and print the start with a large store, as medians."""
    from mosq.tools.db.store import write_store

    print(f"writing a store of {messages:,} messages for {sessions} sessions ...", flush=True)
    write_store(str(directory / "mosquitto.db.store"), records(messages, sessions), "perf", False, str(directory))
    rows = []
    for i in range(times):
        broker = Broker(directory)
        begun = time.perf_counter()
        broker.start()
        up = time.perf_counter()
        with opened(b"c%d" % (i + 1)) as sock:
            first, last = drained(sock, messages // sessions)
        rows.append((up - begun, first - begun, last - begun, broker.rss_mb()))
        broker.kill()
    up, first, last, rss = (statistics.median(column) for column in zip(*rows, strict=True))
    print("| messages | sessions | answers after | first message after | all of one session after | memory |")
    print("|---|---|---|---|---|---|")
    print(f"| {messages:,} | {sessions} | {up:.2f} s | {first:.2f} s | {last:.2f} s | {rss} MB |")


# ---------------------------------------------------------------- PUBACK

def probes(sock: socket.socket) -> list[float]:
    """Return the sorted times of PUBACKs in seconds."""
    out, end = [], time.perf_counter() + PROBES_S
    while (begun := time.perf_counter()) < end:
        sock.sendall(packet(0x32, string(TOPIC) + b"\0\1" + b"x" * PAYLOAD_BYTES))
        if sock.recv(4, socket.MSG_WAITALL)[:1] != b"\x40":
            sys.exit("the broker ended the client that publishes")
        out.append(time.perf_counter() - begun)
    return sorted(out)


def puback(directory: Path, level: str, load: int, mqload: str) -> None:
    """Measure and print the time of PUBACKs at a level of durability."""
    broker = Broker(directory, level)
    broker.start()
    with opened(b"away") as away:
        away.sendall(packet(0x82, b"\0\1" + string(TOPIC) + b"\1"))
        away.recv(5, socket.MSG_WAITALL)
    other = None
    if load:
        other = subprocess.Popen(
            [mqload, "pairs", "--port", str(PORT), "--pubs", "100", "--qos", "1", "--clean", "0", "--window", "0",
             "--rate", str(load), "--warmup", "1", "--seconds", str(int(PROBES_S) + 2),
             "--broker-pid", str(broker.process.pid)])
        time.sleep(2)
    with opened(b"probe", clean=True) as sock:
        took = probes(sock)
    if other and other.wait() != 0:
        sys.exit("mqload failed: see above")
    broker.kill()
    p50, p99 = (took[int(len(took) * q)] * 1000 for q in (0.5, 0.99))
    print(f"| {level} | {load:,} | {len(took):,} | {p50:.2f} ms | {p99:.2f} ms | {took[-1] * 1e3:.1f} ms |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="restart,puback")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--load", type=int, default=100_000, help="messages per second beside the probe")
    parser.add_argument("--levels", default="group,strict")
    parser.add_argument("--dir", help="folder of the store, on the disk to be measured (default: a temporary folder)")
    options = parser.parse_args()
    mqload = os.environ.get("MQLOAD") or str(Path(os.environ.get("MOSQ_BENCH", "../shared/bench"), "mqload"))
    with bench_lock():
        if "restart" in options.parts.split(","):
            directory = Path(tempfile.mkdtemp(dir=options.dir))
            restart(directory, options.messages, options.sessions, options.times)
            shutil.rmtree(directory)
        if "puback" in options.parts.split(","):
            print("| durability | msg/s beside it | PUBACKs | p50 | p99 | max |\n|---|---|---|---|---|---|")
            for level in options.levels.split(","):
                directory = Path(tempfile.mkdtemp(dir=options.dir))
                puback(directory, level, options.load, mqload)
                shutil.rmtree(directory)


if __name__ == "__main__":
    main()
