"""Measure a store whose files are in Redis: CPU of this process, of Redis and of its replica for each message.

    python -m perf.redisfiles [--seconds 5] [--message 120] [--batches 2,15,60] [--replica]

The CPU is that of a load in C that fills batches of one size without a pause. The time of a commit is measured
behind it, with one batch at a time. Needs redis-server; the processes share the machine's cores, so the sums of CPU
are valid, and the rates and times are those of this machine.
"""

import argparse
import os
import time
from contextlib import ExitStack

from cext.testing.store_bench import run
from mosq._core import PyStore
from mosq._redis import LogFiles
from tests.harness.faults import until
from tests.redis.server import Server

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
FSYNC = "appendfsync everysec"      # the default of Redis


def cpu_s(server: Server) -> float:
    """Return the CPU time of a Redis."""
    with open(f"/proc/{server.process.pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def commits(log: LogFiles, message: int, n: int, seconds: float) -> list[float]:
    """Write one batch of n messages after the other, and return the sorted times in seconds."""
    store = PyStore("/d", disk=log)
    store.recover()
    store.start()
    body = bytes(message)
    waits = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(n):
            store.append(1, body)
        start = time.monotonic()
        lsn = store.seal()
        while store.written() < lsn:
            store.wait()
            if store.clean_chunk():
                store.clean_done()
        waits.append(time.monotonic() - start)
    assert store.close() is None
    return sorted(waits)


def measure(servers: list[Server], message: int, n: int, seconds: float) -> str:
    """Write batches of n messages for about the given time twice, and return a line of the table."""
    servers[0].call("FLUSHALL")
    log = servers[0].files(replicas=len(servers) - 1)
    wall, *_ = run(b"/d", 200 * n, message, n, False, False, disk=log)
    total = int(200 * n * seconds / wall)
    before = list(map(cpu_s, servers))
    wall, loop, thread, _ = run(b"/d", total, message, n, False, False, disk=log)
    used = [loop, thread, *(b - a for a, b in zip(before, map(cpu_s, servers), strict=True))]
    log.close()
    servers[0].call("FLUSHALL")
    log = servers[0].files(replicas=len(servers) - 1)
    waits = commits(log, message, n, seconds)
    log.close()
    parts = " + ".join(f"{1e6 * one / total:.2f}" for one in used)
    p50, p99 = (1e3 * waits[len(waits) * part // 100] for part in (50, 99))
    return (f"{n * (message + 12) / 1000:6.1f} KB  {total / wall / 1000:8.1f} k/s  "
            f"{1e6 * sum(used) / total:6.2f} us = {parts}   {p50:.2f} ms, {p99:.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--message", type=int, default=120, help="bytes of a record")
    parser.add_argument("--batches", default="2,15,60", help="sizes of batches in KB")
    parser.add_argument("--replica", action="store_true", help="with a replica that must confirm each batch")
    given = parser.parse_args()
    with ExitStack() as stack:
        servers = [stack.enter_context(Server(FSYNC))]
        if given.replica:
            servers.append(stack.enter_context(Server(FSYNC, f"replicaof 127.0.0.1 {servers[0].port}")))
            until(lambda: servers[0].replicas_online() == 1)
        replica = " + replica" if given.replica else ""
        print(f" batch          rate  CPU per message = loop + storage thread + Redis{replica}   commit: p50, p99")
        for size in map(float, given.batches.split(",")):
            n = max(1, int(1000 * size / (given.message + 12)))
            print(measure(servers, given.message, n, given.seconds), flush=True)


if __name__ == "__main__":
    main()
