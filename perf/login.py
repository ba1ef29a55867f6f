"""Measure the effect of thousands of logins on a stream of messages through the same broker.

All clients log in at once, each with its own password. Measured are the time until all have an answer, and the latency
of the stream.

    python -m perf.login                            # 10,000 clients, $7$ with 1,000 iterations, 1,000 msg/s
    python -m perf.login --clients 2000 --again     # and once more, when the broker remembers their verdicts
    python -m perf.login --program 'mosquitto -c'   # another broker that reads mosquitto.conf

Clients, stream and broker share the machine. The clients run at a low priority, because they would be elsewhere.
"""

from __future__ import annotations

import argparse
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from mosq.auth.hashes import PBKDF2, new_hash
from perf.lock import bench_lock

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

HOST = "127.0.0.1"
CLIENTS_NICE = 5
START_WITHIN_S, LOGIN_WITHIN_S = 10.0, 120.0
BASELINE_S = 3.0
TOPIC = b"stream"
Sample = tuple[float, float]            # send time, duration; both in seconds


def string(value: bytes) -> bytes:
    return struct.pack("!H", len(value)) + value


def packet(kind: int, body: bytes) -> bytes:
    head, n = bytearray((kind,)), len(body)
    while n >= 0x80:
        head.append(n & 0x7F | 0x80)
        n >>= 7
    head.append(n)
    return bytes(head) + body


def connect_packet(client_id: str, user: str, password: bytes) -> bytes:
    return packet(0x10, string(b"MQTT") + bytes((4, 0xC2, 0, 60)) + string(client_id.encode()) + string(user.encode())
                  + string(password))


def password_of(i: int) -> bytes:
    return b"password-%d" % i


def log_in(port: int, client_id: str, user: str, password: bytes) -> socket.socket:
    sock = socket.create_connection((HOST, port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(connect_packet(client_id, user, password))
    answer = sock.recv(4, socket.MSG_WAITALL)
    if answer != b"\x20\x02\x00\x00":
        raise RuntimeError(f"{user} was refused: {answer!r}")
    return sock


def stream(port: int, per_second: int, parent: Connection) -> None:
    """Run a publisher and a subscriber in one process until the parent stops them; then send all samples."""
    reader = log_in(port, "reader", "stream", b"stream")
    reader.sendall(packet(0x82, b"\0\1" + string(TOPIC) + b"\0"))
    reader.recv(5, socket.MSG_WAITALL)
    writer = log_in(port, "writer", "stream", b"stream")
    samples: list[Sample] = []
    frame = len(packet(0x30, string(TOPIC) + struct.pack("!d", 0.0)))
    late, buffer = [], b""
    parent.send("ready")
    due = time.perf_counter()
    while not parent.poll():
        now = time.perf_counter()
        if now >= due:
            late.append(now - due)
            writer.sendall(packet(0x30, string(TOPIC) + struct.pack("!d", now)))
            due += 1 / per_second
            continue
        if select.select([reader], [], [], due - now)[0]:
            buffer += reader.recv(65536)
            now = time.perf_counter()
            while len(buffer) >= frame:
                (sent,) = struct.unpack("!d", buffer[frame - 8:frame])
                samples.append((sent, now - sent))
                buffer = buffer[frame:]
    parent.send((samples, max(late)))


def crowd(port: int, clients: int) -> tuple[float, float, dict[int, int]]:
    """Return when the clients began, when the last had an answer, and how many got which answer."""
    epoll = select.epoll()
    socks: dict[int, socket.socket] = {}
    answers: dict[int, int] = {}
    packets = [connect_packet(f"c{i}", f"user{i}", password_of(i)) for i in range(clients)]
    began = time.perf_counter()

    def serve(timeout_s: float) -> None:
        for fd, _ in epoll.poll(timeout_s):
            answer = socks[fd].recv(16)
            code = answer[3] if len(answer) == 4 else -1
            answers[code] = answers.get(code, 0) + 1
            epoll.unregister(fd)

    for i, connect in enumerate(packets):
        sock = socket.create_connection((HOST, port))
        sock.sendall(connect)
        socks[sock.fileno()] = sock
        epoll.register(sock, select.EPOLLIN)
        if i % 100 == 0:
            serve(0)
    while sum(answers.values()) < clients and time.perf_counter() < began + LOGIN_WITHIN_S:
        serve(0.1)
    ended = time.perf_counter()
    for sock in socks.values():
        sock.close()
    return began, ended, answers


def quantiles(samples: list[Sample], begin: float, end: float) -> str:
    """Format the latencies of samples that were sent between two times."""
    taken = sorted(latency for sent, latency in samples if begin <= sent < end)
    if len(taken) < 100:
        return "too few samples"
    p50, p99 = (taken[int(len(taken) * share)] * 1000 for share in (0.5, 0.99))
    return f"p50 {p50:7.2f} ms   p99 {p99:7.2f} ms   worst {taken[-1] * 1000:7.2f} ms   ({len(taken)} messages)"


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def write_users(path: Path, clients: int, iterations: int) -> None:
    """Write a password file with a user for each client."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        hashes = pool.map(lambda i: new_hash(PBKDF2, password_of(i), iterations), range(clients))
        lines = [f"user{i}:{hash}\n" for i, hash in enumerate(hashes)]
    path.write_text(f"stream:{new_hash(PBKDF2, b'stream', iterations)}\n" + "".join(lines))
    path.chmod(0o600)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def hash_s(iterations: int) -> float:
    """Return the CPU time of one hash on this machine."""
    def once() -> float:
        begin = time.thread_time()
        new_hash(PBKDF2, b"password", iterations)
        return time.thread_time() - begin
    return statistics.median(once() for _ in range(50))


def measure(program: str, clients: int, iterations: int, per_second: int, again: bool) -> None:
    """Start a broker, run the measurement and print it."""
    with tempfile.TemporaryDirectory() as folder:
        users, conf, port = Path(folder, "passwd"), Path(folder, "mosq.conf"), free_port()
        write_users(users, clients, iterations)
        Path(folder).chmod(0o755)
        conf.write_text(f"listener {port} {HOST}\npassword_file {users}\nuser root\nlog_type error\n")
        broker = subprocess.Popen([*shlex.split(program), str(conf)])
        try:
            wait_for(port)
            run(port, broker.pid, clients, iterations, per_second, 2 if again else 1)
        finally:
            broker.terminate()
            broker.wait(10)


def wait_for(port: int) -> None:
    give_up = time.perf_counter() + START_WITHIN_S
    while True:
        try:
            socket.create_connection((HOST, port)).close()
            return
        except ConnectionRefusedError:
            if time.perf_counter() > give_up:
                raise
            time.sleep(0.01)


def run(port: int, broker: int, clients: int, iterations: int, per_second: int, rounds: int) -> None:
    """Measure the stream alone, then beside each crowd, and print the results."""
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.Process(target=stream, args=(port, per_second, theirs))
    child.start()
    ours.recv()
    os.nice(CLIENTS_NICE)
    begin = time.perf_counter()
    time.sleep(BASELINE_S)
    windows = [("alone", begin, time.perf_counter())]
    alone_s = hash_s(iterations)
    print(f"one hash: {alone_s * 1000:.3f} ms of CPU; {clients} of them on {os.cpu_count()} cores: "
          f"{clients * alone_s / (os.cpu_count() or 1):.1f} s")
    for i in range(rounds):
        before = cpu_s(broker)
        began, ended, answers = crowd(port, clients)
        used = cpu_s(broker) - before
        windows.append((f"crowd {i + 1}", began, ended))
        print(f"crowd {i + 1}: {ended - began:.2f} s until {clients} had an answer, {answers} (code: clients); "
              f"CPU of the broker {used:.2f} s, {used / clients * 1e6:.0f} us a client")
        time.sleep(0.5)
    ours.send("stop")
    samples, late_s = ours.recv()
    child.join()
    for name, begin, end in windows:
        print(f"stream, {name:8} {quantiles(samples, begin, end)}")
    print(f"the stream's own sending was late by {late_s * 1000:.1f} ms at most")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m perf.login", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--iterations", type=int, default=1_000)
    parser.add_argument("--rate", type=int, default=1_000, help="messages a second of the stream")
    parser.add_argument("--again", action="store_true", help="let the same clients log in a second time")
    parser.add_argument("--program", default=f"{sys.executable} -m mosq -c",
                        help="command of the broker, followed by the configuration file")
    arguments = parser.parse_args()
    with bench_lock():
        measure(arguments.program, arguments.clients, arguments.iterations, arguments.rate, arguments.again)


if __name__ == "__main__":
    main()
