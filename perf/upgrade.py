"""Measure upgrades under load: python -m perf.upgrade [--upgrades 5] [--clients 5000] [--qos 1]

A broker gets half of its clients over TCP and half over WebSockets. Two generators send through it at a fixed rate,
one over each transport, and check that each message arrives once and in order. During that the broker is upgraded again
and again. A latency counts from the time at which a message is due, so the longest one contains the pause. FINDINGS.md
has the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mosq.server.signals import UPGRADE
from mosq.tools.bench.started import free_port
from tests.harness.packets import Connect
from tests.harness.websocket import WebSocket

CONFIG = """user root
pid_file {dir}/pid
max_inflight_messages 1000
max_queued_messages 0
{more}listener {port} 127.0.0.1
allow_anonymous true
listener {web} 127.0.0.1
protocol websockets
allow_anonymous true
"""
STORE = "persistence true\npersistence_location {dir}/\n"
PAIRS, RATE = 10, 10000         # of each generator
WAIT_S = 30
COUNTS = ("delivered", "lost", "duplicates", "out_of_order", "closed")


def idle_clients(port: int, web: int, n: int) -> list[socket.socket | WebSocket]:
    """Connect clients that only answer to be there."""
    opened: list[socket.socket | WebSocket] = []
    for number in range(n):
        tcp = socket.create_connection(("127.0.0.1", web if number % 2 else port), timeout=WAIT_S)
        one = WebSocket(tcp) if number % 2 else tcp
        one.sendall(Connect(f"idle{number}", keepalive=600).encode(5))
        assert one.recv(100)[0] == 0x20
        opened.append(one)
    return opened


def generator(port: int, qos: int, seconds: float, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "mosq", "bench", "pairs", "-p", str(port), "--publishers", str(PAIRS), "--rate",
         str(RATE), "--qos", str(qos), "--seconds", str(seconds), "--stall", "30", "--json", "-", *more],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def memory_kib(pid: int) -> int:
    """Return the process's share of memory."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def children(pid: int) -> list[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def upgrade(folder: Path, pid: int) -> tuple[int, int]:
    """Upgrade, and return the new process and the largest memory of both together, in KiB."""
    os.kill(pid, UPGRADE)
    begun, most = time.monotonic(), 0
    while (now := int((folder / "pid").read_text() or pid)) == pid:
        most = max(most, memory_kib(pid) + sum(memory_kib(child) for child in children(pid)))
        if time.monotonic() - begun > WAIT_S:
            raise SystemExit("the broker was not upgraded:\n" + (folder / "log").read_text()[-2000:])
        time.sleep(0.002)
    return now, most


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--upgrades", type=int, default=5)
    options.add_argument("--clients", type=int, default=5000)
    options.add_argument("--qos", type=int, default=1)
    options.add_argument("--store", action="store_true")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        port, web = free_port(), free_port()
        more = STORE.format(dir=folder) if given.store else ""
        (folder / "conf").write_text(CONFIG.format(dir=folder, port=port, web=web, more=more))
        with (folder / "log").open("w") as log:
            broker = subprocess.Popen([sys.executable, "-m", "mosq", "-c", str(folder / "conf")],
                                      stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        while not (folder / "pid").exists():
            time.sleep(0.01)
        try:
            measure(given, folder, port, web)
        finally:
            os.kill(int((folder / "pid").read_text()), signal.SIGTERM)
            broker.wait(WAIT_S)


def measure(given: argparse.Namespace, folder: Path, port: int, web: int) -> None:
    opened = idle_clients(port, web, given.clients - 4 * PAIRS)
    pid = int((folder / "pid").read_text())
    seconds = given.upgrades + 3.0
    loads = [generator(port, given.qos, seconds), generator(web, given.qos, seconds, "--ws", "--prefix", "web")]
    time.sleep(2)
    before, most = memory_kib(pid), 0
    for _ in range(given.upgrades):
        pid, both = upgrade(folder, pid)
        most = max(most, both)
        time.sleep(0.7)
    results = [json.loads(load.communicate(timeout=120)[0]) for load in loads]
    log = (folder / "log").read_text()
    lines = [line.partition("taken over: ")[2] for line in log.splitlines() if "has taken over" in line]
    for one in opened:
        one.settimeout(WAIT_S)
        one.sendall(b"\xc0\0")
        assert one.recv(10)[:1] == b"\xd0"
    pauses = sorted(int(line.rpartition("; ")[2].split()[0]) for line in lines)
    store = "with" if given.store else "without"
    print(f"QoS {given.qos}, {store} a store, {given.clients} clients, {len(lines)} upgrades")
    print(f"  in the log: {lines[-1]}; median {pauses[len(pauses) // 2]} ms, longest {pauses[-1]} ms")
    for result, over in zip(results, ("TCP", "WebSocket"), strict=True):
        phase = result["phases"][-1]
        counts = ", ".join(f"{phase[name]} {name}" for name in COUNTS)
        latency = phase["latency"]
        longest, p99 = latency["max_us"] / 1000, latency["p99_us"] / 1000
        print(f"  {over}: {counts}; latency: longest {longest:.0f} ms, p99 {p99:.1f} ms"
              + ("" if result["complete"] else f"; not complete: {result['why']}"))
    print(f"  memory before {before} KiB, of both at most {most} KiB: {most / before:.2f}")


if __name__ == "__main__":
    main()
