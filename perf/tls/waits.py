"""Divide the slow answers during a flood of TLS handshakes into their parts: which thread waited for a processor?

    python -m perf.tls.waits                        # the broker as it is
    python -m perf.tls.waits --loop-first           # the loop's thread as SCHED_FIFO: it never waits for a processor
    python -m perf.tls.waits --victim-first         # the victim as SCHED_FIFO
    python -m perf.tls.waits --flood-idle           # the flood as SCHED_IDLE
    python -m perf.tls.waits --tls-other            # the handshake threads as SCHED_OTHER, not SCHED_BATCH
    python -m perf.tls.waits --tls-idle             # the handshake threads as SCHED_IDLE
    python -m perf.tls.waits --split                # the loop on one processor, the handshake threads on another
    python -m perf.tls.waits --loop                 # handshakes in the loop
    python -m perf.tls.waits --plain                # 500 connections per second whose first byte is no TLS

As perf.tls.flood, but the victim reads /proc/TID/schedstat of itself and of the threads of the broker before and after
each PINGREQ. So each answer time divides into: the loop was runnable and waited for a processor, the loop ran, the
victim was runnable and waited, and the rest (the kernel's network, idle processors that wake up). As root.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from perf.lock import bench_lock
from perf.tls.__main__ import KEYS, certify
from perf.tls.flood import CONNECT, LOOP, RATE, broker, flood

TURNS = 8
FIND_PINGS = 200


@dataclass
class Sample:
    """One answer: durations in microseconds."""

    answer: float
    loop_ran: float
    loop_waited: float
    victim_waited: float


def schedstat(fd: int) -> tuple[int, int, int]:
    ran, waited, slices = os.pread(fd, 100, 0).split()
    return int(ran), int(waited), int(slices)


class Victim:
    """A client that sends PINGREQ each millisecond."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(CONNECT)
        self.sock.recv(4)
        self.own = os.open("/proc/thread-self/schedstat", os.O_RDONLY)

    def ping(self) -> float:
        begin = time.perf_counter()
        self.sock.sendall(b"\xc0\0")
        self.sock.recv(2)
        return (time.perf_counter() - begin) * 1e6

    def find_loop(self, pid: int) -> int:
        """Return the thread of the broker that serves this client: the one that runs most often."""
        tasks = [int(one) for one in os.listdir(f"/proc/{pid}/task")]
        files = {tid: os.open(f"/proc/{pid}/task/{tid}/schedstat", os.O_RDONLY) for tid in tasks}
        before = {tid: schedstat(fd)[2] for tid, fd in files.items()}
        for _ in range(FIND_PINGS):
            self.ping()
            time.sleep(0.001)
        return max(tasks, key=lambda tid: schedstat(files[tid])[2] - before[tid])

    def measure(self, loop: int, seconds: float) -> list[Sample]:
        found, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end:
            l0, v0 = schedstat(loop), schedstat(self.own)
            answer = self.ping()
            l1, v1 = schedstat(loop), schedstat(self.own)
            found.append(Sample(answer, (l1[0] - l0[0]) / 1e3, (l1[1] - l0[1]) / 1e3, (v1[1] - v0[1]) / 1e3))
            time.sleep(0.001)
        return found


def line(label: str, samples: list[Sample]) -> str:
    samples = sorted(samples, key=lambda one: one.answer)
    n = len(samples)
    slow = samples[int(n * 0.98):int(n * 0.999)]        # around the 99th percentile

    def of(name: str) -> str:
        return f"{statistics.mean(getattr(one, name) for one in slow):5.0f}"

    waits = sorted(one.loop_waited for one in samples)
    without = sorted(one.answer - one.victim_waited for one in samples)
    p99 = int(n * 0.99)
    return (f"  {label:9} p50 {samples[n // 2].answer:5.0f}  p99 {samples[p99].answer:5.0f}"
            f"  max {samples[-1].answer:6.0f}  p99 without the victim's wait {without[p99]:5.0f}"
            f"  loop waits p90 {waits[int(n * 0.9)]:4.0f} p99 {waits[p99]:4.0f} mean {statistics.mean(waits):5.1f}"
            f" | of slow answers: loop waits {of('loop_waited')} runs {of('loop_ran')},"
            f" victim waits {of('victim_waited')}, all {of('answer')}")


def yielding(policy: str) -> None:
    if policy == "idle":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.nice(19)


def arrange(loop: int, threads: list[int], args: argparse.Namespace) -> None:
    """Set the policies and processors that the arguments name."""
    if args.loop_first:
        os.sched_setscheduler(loop, os.SCHED_FIFO, os.sched_param(2))
    if args.tls_idle or args.tls_other:
        for tid in threads:
            os.sched_setscheduler(tid, os.SCHED_IDLE if args.tls_idle else os.SCHED_OTHER, os.sched_param(0))
    if args.split:
        os.sched_setaffinity(loop, {0})
        for tid in threads:
            os.sched_setaffinity(tid, {1})
    if args.victim_first:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))     # not the flood


def measure(command: str, folder: Path, args: argparse.Namespace) -> None:
    with broker(command, folder, LOOP if args.loop else "") as (plain, tls, pid):
        one = Victim(plain)
        loop = one.find_loop(pid)
        names = {tid: Path(f"/proc/{pid}/task/{tid}/comm").read_text().strip()
                 for tid in map(int, os.listdir(f"/proc/{pid}/task"))}
        threads = [tid for tid, name in names.items() if name == "mosq-tls"]
        files = {tid: os.open(f"/proc/{pid}/task/{tid}/schedstat", os.O_RDONLY) for tid in [loop, *threads]}
        arrange(loop, threads, args)
        flood(tls, 0.3, RATE)
        alone: list[Sample] = []
        under: list[Sample] = []
        n, used = 0, dict.fromkeys(files, 0)
        with multiprocessing.Pool(1, yielding, ("idle" if args.flood_idle else "nice",)) as pool:
            flooder = os.open(f"/proc/{pool._pool[0].pid}/schedstat", os.O_RDONLY)  # type: ignore[attr-defined]
            flood_ran = 0
            for _ in range(args.turns):
                alone += one.measure(files[loop], 1)
                before, flood_before = {tid: schedstat(fd) for tid, fd in files.items()}, schedstat(flooder)
                answered = pool.apply_async(flood, (tls, 1, RATE), {"plain": True} if args.plain else {})
                under += one.measure(files[loop], 1)
                n += answered.get()
                for tid, fd in files.items():
                    used[tid] += schedstat(fd)[0] - before[tid][0]
                flood_ran += schedstat(flooder)[0] - flood_before[0]
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    print(line("alone", alone))
    print(line("in flood", under))
    in_flood, before_it = (sorted(one.answer for one in found)[int(len(found) * 0.99)] for found in (under, alone))
    share = {("loop" if tid == loop else "thread"): f"{ns / 1e7 / args.turns:.0f} %" for tid, ns in used.items()}
    print(f"  ratio {in_flood / before_it:.1f}; {n / args.turns:.0f} handshakes/s; of a processor: {share}, "
          f"flood {flood_ran / 1e7 / args.turns:.0f} %", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mosq", default=f"{sys.executable} -m mosq")
    for name in ("--loop", "--loop-first", "--victim-first", "--flood-idle", "--tls-idle", "--tls-other", "--split",
                 "--plain"):
        parser.add_argument(name, action="store_true")
    parser.add_argument("--turns", type=int, default=TURNS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        certify(folder, KEYS["rsa"], authority=False)
        with bench_lock():
            measure(args.mosq, folder, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
