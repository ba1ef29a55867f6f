"""Measure the cost of a bridge, and the effect of a dead remote broker on local clients.

    python -m perf.bridge                       # both parts
    python -m perf.bridge --parts cost          # CPU per message of the broker with the bridge, by a local delivery's
    python -m perf.bridge --parts calls         # system calls per message: with the bridge, and at its other end
    python -m perf.bridge --parts dead          # local latency at 20,000 msg/s while bridges cannot connect
    python -m perf.bridge --program 'mosquitto -c'     # another broker that reads mosquitto.conf; the far one is mosq

    local:  publisher -> near -> subscriber         bridge out: publisher -> near -> bridge -> far
    bridge in: publisher -> far -> bridge -> near -> subscriber     CPU is near's, over all of its threads

All processes share the machine; each figure is the median of `--rounds`, taken in turns. The cost is taken at 60,000
msg/s. With few messages in a turn, the comparison would show how often the loop wakes, and a broker acknowledges at
once while this subscriber acknowledges in batches. `calls` compares the same work at any rate: the same two brokers,
sockets and messages, once with the bridge in the measured broker, once in the other, so that the bridge is an ordinary
client of the measured broker.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import select
import shlex
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
    from multiprocessing.connection import Connection

HOST = "127.0.0.1"
START_WITHIN_S = 10.0
TICK_S = 0.001                  # interval of the batches in which messages are sent
TOPIC = b"bench/t"
PAYLOAD_BYTES = 64
COST_RATE, DEAD_RATE = 60_000, 20_000
WAYS = ("local", "out", "in")
OTHER_WAY = {"out": "in", "in": "out"}
DEAD = ("refused", "silent", "full", "name")


Taken = tuple[float, float]             # when a message arrived, and how long it took


# ---------------------------------------------------------------- brokers

@contextlib.contextmanager
def broker(program: list[str], config: str, port: int, python_path: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """Start a broker with a configuration; it accepts connections when the block begins."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mosquitto.conf"
        path.write_text(f"user root\nlog_dest none\nlistener {port} {HOST}\nallow_anonymous true\n"
                        f"max_queued_messages 0\nmax_inflight_messages 1000\n{config}")
        paths = os.pathsep.join(filter(None, (python_path, os.environ.get("PYTHONPATH", ""))))
        env = {**os.environ, "PYTHONPATH": paths}
        process = subprocess.Popen([*program, str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
        try:
            deadline = time.monotonic() + START_WITHIN_S
            while True:
                try:
                    socket.create_connection((HOST, port), timeout=1).close()
                    break
                except OSError:
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise RuntimeError("the broker did not start") from None
                    time.sleep(0.01)
            yield process
        finally:
            process.terminate()
            process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def cpu_s(pid: int) -> float:
    """Return the CPU time of all threads."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def bridge(port: int | str, direction: str, qos: int, name: str = "b") -> str:
    """Return the configuration of a bridge to a port of this machine, or to a name."""
    where = port if isinstance(port, str) else f"{HOST}:{port}"
    return (f"connection {name}\naddress {where}\ntopic {TOPIC.decode()} {direction} {qos}\nnotifications false\n"
            "restart_timeout 1\n")


# ---------------------------------------------------------------- clients

def log_in(port: int, client_id: str) -> socket.socket:
    """Return a connected MQTT 3.1.1 client."""
    sock = socket.create_connection((HOST, port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(packet(0x10, string(b"MQTT") + bytes((4, 2, 0, 0)) + string(client_id.encode())))
    if sock.recv(4, socket.MSG_WAITALL) != b"\x20\x02\x00\x00":
        raise RuntimeError("the broker refused the login")
    return sock


def publish_packet(qos: int, mid: int, payload: bytes) -> bytes:
    return packet(0x30 | qos << 1, string(TOPIC) + (struct.pack("!H", mid) if qos else b"") + payload)


def publisher(port: int, rate: int, qos: int, parent: Connection) -> None:
    """Publish so many messages a second until the parent stops it; each payload begins with its send time."""
    sock = log_in(port, "publisher")
    batch = max(1, round(rate * TICK_S))
    rest = bytes(PAYLOAD_BYTES - 8)
    sent = mid = 0
    parent.send("ready")
    due = time.perf_counter()
    while not parent.poll():
        now = time.perf_counter()
        if now < due:
            time.sleep(due - now)
        due = max(due + TICK_S, time.perf_counter() - 0.05)
        out = bytearray()
        for _ in range(batch):
            mid = mid % 65535 + 1
            out += publish_packet(qos, mid, struct.pack("!d", time.perf_counter()) + rest)
        sock.sendall(out)
        sent += batch
        if qos and select.select([sock], [], [], 0)[0]:
            sock.recv(1 << 16)
    parent.send(sent)


def subscriber(port: int, qos: int, parent: Connection) -> None:
    """Count messages and measure the time of each, until the parent stops it."""
    sock = log_in(port, "subscriber")
    sock.sendall(packet(0x82, b"\0\1" + string(TOPIC) + bytes((qos,))))
    sock.recv(5, socket.MSG_WAITALL)
    size = len(publish_packet(qos, 1, bytes(PAYLOAD_BYTES)))
    at = size - PAYLOAD_BYTES
    taken: list[Taken] = []
    buffer = b""
    parent.send("ready")
    while not parent.poll():
        if not select.select([sock], [], [], 0.1)[0]:
            continue
        buffer += sock.recv(1 << 18)
        now = time.perf_counter()
        whole = len(buffer) // size
        acks = bytearray()
        for i in range(whole):
            first = i * size
            taken.append((now, now - struct.unpack_from("!d", buffer, first + at)[0]))
            if qos:
                acks += b"\x40\x02" + buffer[first + at - 2:first + at]
        buffer = buffer[whole * size:]
        if acks:
            sock.sendall(acks)
    parent.send(taken)


@contextlib.contextmanager
def child(target: object, *arguments: object) -> Iterator[Connection]:
    """Run a process; a caller that leaves the block without its result has failed."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=target, args=(*arguments, theirs), daemon=True)    # type: ignore[arg-type]
    process.start()
    try:
        ours.recv()
        yield ours
    finally:
        process.kill()
        process.join()


def stop(of: Connection) -> object:
    """Stop the process at the other end, and return its result."""
    of.send("stop")
    return of.recv()


# ---------------------------------------------------------------- parts

def cost(program: list[str], ours: list[str], way: str, qos: int, rate: int, seconds: float) -> float:
    """Return microseconds of the near broker's CPU per message; way is one of WAYS."""
    near_port, far_port = free_port(), free_port()
    near_config = "" if way == "local" else bridge(far_port, way, qos)
    with contextlib.ExitStack() as stack:
        if way != "local":
            stack.enter_context(broker(ours, "", far_port))
        near = stack.enter_context(broker(program, near_config, near_port))
        reader = stack.enter_context(child(subscriber, far_port if way == "out" else near_port, qos))
        writer = stack.enter_context(child(publisher, far_port if way == "in" else near_port, rate, qos))
        time.sleep(2.5 if way != "local" else 0.5)      # the bridge is connected
        before, began = cpu_s(near.pid), time.perf_counter()
        time.sleep(seconds)
        used, ended = cpu_s(near.pid) - before, time.perf_counter()
        stop(writer)
        taken = stop(reader)
        assert isinstance(taken, list)
        arrived = sum(1 for when, _ in taken if began <= when < ended)
        if arrived < 0.5 * rate * seconds:
            print(f"  {way}: only {arrived / (ended - began):.0f} msg/s arrived: the machine is busy",
                  file=sys.stderr)
    return 1e6 * used / float(max(1, arrived))


def calls(way: str, host: str, qos: int, rate: int, seconds: float) -> float:
    """Return system calls of the near broker per message, counted by strace; host: the broker with the bridge, near or
    far.
    """
    ours = [sys.executable, "-m", "mosq", "-c"]
    near_port, far_port = free_port(), free_port()
    with contextlib.ExitStack() as stack:
        if host == "near":
            stack.enter_context(broker(ours, "", far_port))
        near = stack.enter_context(broker(ours, bridge(far_port, way, qos) if host == "near" else "", near_port))
        if host == "far":
            stack.enter_context(broker(ours, bridge(near_port, OTHER_WAY[way], qos), far_port))
        reader = stack.enter_context(child(subscriber, far_port if way == "out" else near_port, qos))
        writer = stack.enter_context(child(publisher, far_port if way == "in" else near_port, rate, qos))
        time.sleep(2.0)
        began = time.perf_counter()
        counted = subprocess.run(["timeout", "-s", "INT", str(seconds), "strace", "-c", "-f", "-p", str(near.pid)],
                                 capture_output=True, text=True, check=False).stderr
        ended = time.perf_counter()
        stop(writer)
        taken = stop(reader)
        assert isinstance(taken, list)
    total = next(int(line.split()[-2]) if line.split()[-2].isdigit() else int(line.split()[-3])
                 for line in counted.splitlines() if line.endswith(" total"))
    return total / max(1, sum(1 for when, _ in taken if began <= when < ended))


def show_calls(options: argparse.Namespace) -> None:
    """Measure and print the system calls per message."""
    rate = options.rate or DEAD_RATE
    print(f"System calls per message, {rate} msg/s:")
    for qos in options.qos:
        for way in ("out", "in"):
            found: dict[str, list[float]] = {"near": [], "far": []}
            for _ in range(options.rounds):
                for host, values in found.items():
                    values.append(calls(way, host, qos, rate, options.seconds))
            has, serves = (statistics.median(values) for values in found.values())
            print(f"  QoS {qos} {way:3}: bridge {has:.3f}   the other end {serves:.3f}   ({has / serves:.2f} x)",
                  flush=True)


@contextlib.contextmanager
def unreachable(kind: str, stack: contextlib.ExitStack) -> Iterator[tuple[int | str, str]]:
    """Yield an address that cannot be reached, and a folder from which Python must load a module first."""
    if kind == "name":
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "sitecustomize.py").write_text(
            "import socket, threading\nreal = socket.getaddrinfo\n"
            "def getaddrinfo(host, *more, flags=0, **named):\n"
            "    if 'never' in str(host) and not flags & socket.AI_NUMERICHOST:\n        threading.Event().wait()\n"
            "    return real(host, *more, flags=flags, **named)\nsocket.getaddrinfo = getaddrinfo\n")
        yield "never.example", str(folder)
        return
    if kind in ("none", "refused"):
        yield free_port(), ""
        return
    server = stack.enter_context(socket.create_server((HOST, 0), backlog=0 if kind == "full" else 100))
    if kind == "full":
        for _ in range(3):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(server.getsockname())
    yield int(server.getsockname()[1]), ""


def dead(program: list[str], kind: str, rate: int, seconds: float) -> list[float]:
    """Return the sorted latencies of local messages in seconds, while bridges of a kind of DEAD cannot connect."""
    port = free_port()
    with contextlib.ExitStack() as stack:
        where, python_path = stack.enter_context(unreachable(kind, stack))
        config = "" if kind == "none" else "".join(bridge(where, "out", 0, f"b{i}").replace(TOPIC.decode(), "away/#")
                                                   for i in range(4))
        stack.enter_context(broker(program, config, port, python_path))
        reader = stack.enter_context(child(subscriber, port, 0))
        writer = stack.enter_context(child(publisher, port, rate, 0))
        time.sleep(seconds)
        stop(writer)
        taken = stop(reader)
        assert isinstance(taken, list)
    return sorted(latency for _, latency in taken[len(taken) // 10:])


def show_cost(program: list[str], ours: list[str], options: argparse.Namespace) -> None:
    """Measure and print the CPU per message."""
    rate = options.rate or COST_RATE
    print(f"CPU per message of the broker with the bridge, {rate} msg/s, {PAYLOAD_BYTES} bytes:")
    for qos in options.qos:
        found: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(options.rounds):
            for way in WAYS:
                found[way].append(cost(program, ours, way, qos, rate, options.seconds))
        local = statistics.median(found["local"])
        print(f"  QoS {qos}: " + "   ".join(
            f"{way} {statistics.median(values):5.2f} us ({statistics.median(values) / local:.2f} x)"
            for way, values in found.items()), flush=True)


def show_dead(program: list[str], options: argparse.Namespace) -> None:
    """Measure and print the local latencies."""
    rate = options.rate or DEAD_RATE
    print(f"Latency of local messages, {rate} msg/s, four bridges that cannot connect:")
    found: dict[str, list[list[float]]] = {kind: [] for kind in ("none", *DEAD)}
    for _ in range(options.rounds):
        for kind in found:
            found[kind].append(dead(program, kind, rate, options.seconds + 3))
    words = {"none": "without bridges", "refused": "refused", "silent": "accepts, never answers",
             "full": "connect is never answered", "name": "name is never looked up"}
    base = 0.0
    for kind, rounds in found.items():
        p50, p99 = (statistics.median(one[int(len(one) * share)] for one in rounds) * 1000 for share in (0.5, 0.99))
        base = base or p99
        worst = statistics.median(one[-1] for one in rounds) * 1000
        print(f"  {words[kind]:28} p50 {p50:6.3f} ms   p99 {p99:6.3f} ms ({p99 / base:.2f} x)   worst {worst:6.2f} ms",
              flush=True)


def main() -> int:
    words = argparse.ArgumentParser(prog="python -m perf.bridge", description=str(__doc__).split("\n", 1)[0])
    words.add_argument("--parts", default="cost,dead")
    words.add_argument("--program", default=f"{sys.executable} -m mosq -c", type=shlex.split)
    words.add_argument("--rate", type=int, default=0, help="msg/s; default: 60,000, and 20,000 for latency")
    words.add_argument("--seconds", type=float, default=4.0)
    words.add_argument("--rounds", type=int, default=3)
    words.add_argument("--qos", default="0,1", type=lambda text: [int(one) for one in text.split(",")])
    options = words.parse_args()
    ours = [sys.executable, "-m", "mosq", "-c"]
    program = options.program if isinstance(options.program, list) else ours
    with bench_lock():
        if "cost" in options.parts:
            show_cost(program, ours, options)
        if "calls" in options.parts:
            show_calls(options)
        if "dead" in options.parts:
            show_dead(program, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
