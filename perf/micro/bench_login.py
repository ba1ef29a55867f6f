"""Measure how long many clients need to log in at once if the control plane decides.

    python -m perf.micro.bench_login [CLIENTS]

The decision is made here and costs nothing, so the measurement shows the way of requests and answers. A stream of
messages goes through the broker at the same time; its delay is printed. Clients and broker share one interpreter, so
its lock is part of the delays.
"""

from __future__ import annotations

import resource
import socket
import sys
import threading
import time

from mosq.records import LoginAnswer
from tests.harness.packets import Connect, Publish, Subscribe
from tests.harness.plane import Plane


def stream(plane: Plane, ended: threading.Event, delays: list[float]) -> None:
    """Send one message a millisecond to the sender itself."""
    with socket.create_connection(("127.0.0.1", plane.ports[1])) as sock:
        sock.sendall(Connect("stream").encode(4) + Subscribe(1, (("s", 0),)).encode(4))
        sock.recv(4, socket.MSG_WAITALL)
        sock.recv(5, socket.MSG_WAITALL)
        frame = Publish("s", b"x").encode(4)
        while not ended.is_set():
            began = time.perf_counter()
            sock.sendall(frame)
            sock.recv(len(frame), socket.MSG_WAITALL)
            delays.append(time.perf_counter() - began)
            time.sleep(0.001)


def main() -> None:
    many = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with Plane({"authenticate": True}, {}, allow_anonymous=True) as plane:
        ended = threading.Event()
        delays: list[float] = []
        beside = threading.Thread(target=stream, args=(plane, ended, delays))
        beside.start()
        frames = [Connect(f"client-{n}", username=f"user-{n}", password=b"secret").encode(4) for n in range(many)]
        began = time.perf_counter()
        cpu = time.thread_time()
        socks = [socket.create_connection(("127.0.0.1", plane.port)) for _ in range(many)]
        for sock, frame in zip(socks, frames, strict=True):
            sock.sendall(frame)
        requests = plane.asks(many)
        requested = time.perf_counter()
        plane.answer(*(LoginAnswer(request.handle, 0) for request in requests))
        for sock in socks:
            assert sock.recv(4, socket.MSG_WAITALL) == b"\x20\x02\x00\x00"
        done = time.perf_counter()
        ours = time.thread_time() - cpu
        ended.set()
        beside.join()
        delays.sort()
        p50, p99 = (delays[len(delays) * part // 100] * 1e3 for part in (50, 99))
        print(f"{many} clients: requested after {requested - began:.2f} s, all in after {done - began:.2f} s "
              f"(of which this side {ours:.2f} s)\nthe stream beside it: p50 {p50:.2f} ms, p99 {p99:.2f} ms, "
              f"most {delays[-1] * 1e3:.2f} ms of {len(delays)}")
        for sock in socks:
            sock.close()


if __name__ == "__main__":
    main()
