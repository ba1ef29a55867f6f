"""Measure the time from the command to the first connection, and from SIGTERM to the end.

    python -m perf.micro.bench_start [rounds]

It runs the command `mosq` beside this Python. Bare Python is measured in turn, because the machine may be slow: the
difference counts.
"""

from __future__ import annotations

import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import mosq
from mosq.tools.bench.started import free_port

COMMAND = Path(sys.executable).with_name("mosq")


def ms(since_s: float) -> float:
    return (time.monotonic() - since_s) * 1000


def bare() -> float:
    """Return the milliseconds that Python takes to begin and end."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-S", "-c", ""], check=True)
    return ms(began)


def embedded() -> float:
    """Return the milliseconds until a program has its own broker."""
    began = time.monotonic()
    with mosq.Broker():
        return ms(began)


def once() -> tuple[float, float]:
    """Return the milliseconds until a client is connected, and until the process has ended."""
    port = free_port()
    began = time.monotonic()
    with subprocess.Popen([COMMAND, "-p", str(port)], stderr=subprocess.PIPE) as broker:
        while broker.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.0005)
        up = ms(began)
        assert broker.stderr is not None
        while b" running\n" not in broker.stderr.readline():
            pass
        began = time.monotonic()
        broker.send_signal(signal.SIGTERM)
        broker.wait()
        return up, ms(began)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    runs = [(bare(), *once(), embedded()) for _ in range(rounds)]
    print("| | best ms | median ms | worst ms |\n|---|---|---|---|")
    names = ("bare Python", "start to listening", "stop", "a broker in a program")
    for name, column in zip(names, zip(*runs, strict=True), strict=True):
        print(f"| {name} | {min(column):.1f} | {statistics.median(column):.1f} | {max(column):.1f} |")


if __name__ == "__main__":
    main()
