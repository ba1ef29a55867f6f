"""Measure what TLS handshakes cost clients that are connected already, and how many a broker makes per second.

    python -m perf.tls.flood                                        # mosq of this checkout
    python -m perf.tls.flood --loop                                 # and with handshakes in the loop, in turns
    python -m perf.tls.flood --other "/tmp/old/.venv/bin/mosq"      # and another one, in turns

A victim on a plain listener sends PINGREQ each millisecond, in turns of a second alone and a second during 500 half
handshakes per second, so that other work on the machine disturbs both alike. A half handshake is a recorded
ClientHello, for which the broker makes its private-key operation (RSA 2048), and a close. So the flood costs the
client's side almost nothing, and that side has the lowest priority: it stands for clients on other machines. Then
handshakes are begun as fast as the broker answers, 32 at a time.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import select
import shlex
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mosq.tools.bench.started import free_port
from mosq.tools.tied import tied
from perf.lock import bench_lock
from perf.tls.__main__ import KEYS, certify

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS, TURNS, RATE, AT_ONCE = 5.0, 8, 500, 32
CONFIG = """\
log_dest none
user root
allow_anonymous true
set_tcp_nodelay true
listener {plain} 127.0.0.1
listener {tls} 127.0.0.1
certfile {dir}/s.crt
keyfile {dir}/s.key
"""
LOOP = "tls_handshake_threads 0\n"
CONNECT = b"\x10\x12\x00\x04MQTT\x04\x02\x00\x00\x00\x06victim"


@contextlib.contextmanager
def broker(command: str, folder: Path, extra: str = "") -> Iterator[tuple[int, int, int]]:
    """Run a broker for the block; yield its plain port, its TLS port and its process. Raises TimeoutError."""
    plain, tls = free_port(), free_port()
    (folder / "f.conf").write_text(CONFIG.format(plain=plain, tls=tls, dir=folder) + extra)
    process = subprocess.Popen(tied([*shlex.split(command), "-c", str(folder / "f.conf")]),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", tls)).close()
                break
            except OSError:
                time.sleep(0.02)
        else:
            raise TimeoutError(f"{command} does not listen")
        yield plain, tls, process.pid
    finally:
        process.terminate()
        process.wait()


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl._create_unverified_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("no ClientHello")


def victim(port: int, seconds: float) -> list[float]:
    """Return the answer times of PINGREQs in milliseconds."""
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(CONNECT)
        sock.recv(4)
        found, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end:
            begin = time.perf_counter()
            sock.sendall(b"\xc0\0")
            sock.recv(2)
            found.append((time.perf_counter() - begin) * 1000)
            time.sleep(0.001)
    return found


def flood(port: int, seconds: float, rate: float, plain: bool = False) -> int:
    """Begin handshakes at a rate, or as fast as they are answered with 0; return the number of answers."""
    hello, poll, n, begun = b"\xc0" if plain else client_hello(), select.epoll(), 0, 0
    open_: dict[int, socket.socket] = {}
    begin = time.perf_counter()
    while (now := time.perf_counter()) < begin + seconds:
        while len(open_) < AT_ONCE if not rate else begun < (now - begin) * rate:
            sock = socket.create_connection(("127.0.0.1", port))
            sock.sendall(hello)
            poll.register(sock, select.EPOLLIN)
            open_[sock.fileno()] = sock
            begun += 1
        for number, _ in poll.poll(0.002):
            sock = open_.pop(number)
            poll.unregister(sock)
            n += sock.recv(65536)[:1] == b"\x16"
            sock.close()
    for sock in open_.values():
        sock.close()
    return n


def measure(command: str, folder: Path, extra: str) -> dict[str, float]:
    with broker(command, folder, extra) as (plain, tls, _), multiprocessing.Pool(1, os.nice, (19,)) as pool:
        flood(tls, 0.3, RATE)
        alone, under, n = [], [], 0
        for _ in range(TURNS):
            alone += victim(plain, 1)
            answered = pool.apply_async(flood, (tls, 1, RATE))
            under += victim(plain, 1)
            n += answered.get()
        alone.sort()
        under.sort()
        rate = n / TURNS
        per_second = pool.apply(flood, (tls, SECONDS, 0)) / SECONDS
    p99 = [times[int(len(times) * 0.99)] for times in (alone, under)]
    return {"p99 alone": p99[0], "p99 in flood": p99[1], "ratio": p99[1] / p99[0], "worst in flood": under[-1],
            "flood/s": rate, "handshakes/s": per_second}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mosq", default=f"{sys.executable} -m mosq", help="command of mosq (default: this one)")
    parser.add_argument("--other", default="", help="command of another broker")
    parser.add_argument("--loop", action="store_true", help="also measure mosq with tls_handshake_threads 0")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    loop = args.mosq if args.loop else ""
    named = (("mosq", args.mosq), ("loop", loop), ("other", args.other))
    brokers = {name: command for name, command in named if command}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in brokers}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certify(folder, KEYS["rsa"], authority=False)
        for turn in range(args.rounds):
            with bench_lock():
                for one in list(brokers)[:: 1 if turn % 2 else -1]:
                    found[one].append(measure(brokers[one], folder, LOOP if one == "loop" else ""))
    for one, runs in found.items():
        print(one, {key: f"{statistics.median(run[key] for run in runs):.2f}" for key in runs[0]},
              "ratios:", " ".join(f"{run['ratio']:.2f}" for run in runs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
