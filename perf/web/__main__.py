"""Measure the cost of WebSocket relative to plain TCP: the same traffic both ways, in turns, as CPU per message.

    python -m perf.web                                   # mosq of this checkout
    python -m perf.web --mosquitto /usr/sbin/mosquitto   # and this broker, if its build has WebSocket

Each round starts every broker again and loads its plain and its WebSocket listener one after the other, in an order
that changes with each round; the table shows medians of the rounds. wsload.c describes the load.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from perf.lock import bench_lock

HERE = Path(__file__).parent
PROMISED = 1.3
LOADS = {"100 pairs, 10 messages of 64 bytes per write": ["100", "10", "10", "64"],
         "100 pairs, 1 message of 64 bytes per write": ["100", "1", "10", "64"],
         "100 pairs, 10 messages of 1,000 bytes per write": ["100", "10", "10", "1000"],
         "10 pairs, 1 message of 100,000 bytes per write": ["10", "1", "2", "100000"]}
CONFIG = "log_dest none\nallow_anonymous true\nset_tcp_nodelay true\nmax_queued_messages 0\n" \
         "user root\nlistener {plain} 127.0.0.1\nlistener {ws} 127.0.0.1\nprotocol websockets\n"


def free_ports() -> tuple[int, int]:
    with socket.socket() as a, socket.socket() as b:
        a.bind(("127.0.0.1", 0))
        b.bind(("127.0.0.1", 0))
        return a.getsockname()[1], b.getsockname()[1]


class Broker:
    """Run a broker on core 0 with a plain and a WebSocket listener."""

    def __init__(self, command: str, folder: Path) -> None:
        self.ports = dict(zip(("plain", "ws"), free_ports(), strict=True))
        path = folder / "m.conf"
        path.write_text(CONFIG.format(**self.ports))
        self.process = subprocess.Popen(["taskset", "-c", "0", *shlex.split(command), "-c", str(path)],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        for port in self.ports.values():
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    if self.process.poll() is not None or time.monotonic() > deadline:
                        raise RuntimeError(f"{command} does not listen with `protocol websockets`") from None
                    time.sleep(0.01)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def measure(load: Path, broker: Broker, way: str, what: list[str], seconds: float) -> tuple[float, float]:
    """Return (microseconds of the broker's CPU per message, messages per second)."""
    command = ["taskset", "-c", str((os.cpu_count() or 1) - 1), str(load), str(broker.ports[way]), way,
               str(broker.process.pid), *what, str(seconds)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout)
    return found["cpu_ns"] / found["messages"] / 1000, found["messages"] / found["seconds"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mosq", default=f"{sys.executable} -m mosq", help="command of mosq (default: this one)")
    parser.add_argument("--mosquitto", action="append", default=[], help="command of another broker; may repeat")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    args = parser.parse_args()
    brokers = {"mosq": args.mosq, **{Path(shlex.split(c)[0]).name: c for c in args.mosquitto}}
    kept = True
    with tempfile.TemporaryDirectory() as name:
        load = Path(name) / "wsload"
        subprocess.run(["cc", "-O2", "-Wall", "-o", str(load), str(HERE / "wsload.c")], check=True)
        print("| load | broker | plain us | WebSocket us | ratio (of medians) | ratios of the rounds |")
        print("|---|---|---|---|---|---|")
        for title, what in LOADS.items():
            cpu: dict[tuple[str, str], list[float]] = {}
            for turn in range(args.rounds):
                with bench_lock():
                    for at in range(len(brokers)):
                        key = list(brokers)[(at + turn) % len(brokers)]
                        broker = Broker(brokers[key], Path(name))
                        try:
                            for way in ("plain", "ws")[:: 1 if turn % 2 else -1]:
                                cpu.setdefault((key, way), []).append(measure(load, broker, way, what, args.seconds)[0])
                        finally:
                            broker.stop()
            for key in brokers:
                plain, ws = cpu[key, "plain"], cpu[key, "ws"]
                ratio = statistics.median(ws) / statistics.median(plain)
                each = sorted(b / a for a, b in zip(plain, ws, strict=True))
                print(f"| {title} | {key} | {statistics.median(plain):.2f} | {statistics.median(ws):.2f} | "
                      f"{ratio:.2f} | {each[0]:.2f} to {each[-1]:.2f} |", flush=True)
                kept &= key != "mosq" or ratio <= PROMISED
    print(f"\npromised: WebSocket at most {PROMISED} x the CPU of plain TCP: {'kept' if kept else 'NOT KEPT'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
