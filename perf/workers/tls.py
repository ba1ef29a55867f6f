"""Measure what TLS handshakes cost a broker with 1 and with 2 workers, and how many it could make on this machine's cores.

Several load generators connect one client after the other: a full handshake, CONNECT, CONNACK, DISCONNECT (tlsload.c).
They have the lowest priority, and still take cores from the broker: a client's side of a handshake is not cheap. So the
rate of the run is not what the broker can make. What it can make, with clients on other machines, follows from CPU:

    rate = 1 / the CPU of the busiest thread, or of all threads divided by the cores, for each handshake; the larger one

That holds if threads do not wait for each other. "cores" shows that both workers really use a core each: their CPU by
the time of the run. One worker runs handshakes in one thread (`tls_handshake_threads` on 2 cores), and everything else
in its loop. `simple` is workers / CPU for each handshake, which holds if each worker has one core and no more.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from perf.tls.__main__ import HERE, KEYS, certify
from perf.watched import threads_s
from perf.workers.started import Running, broker

WORKERS = (1, 2)
LIMIT = 1.8
CORES = 2                       # of the broker
GENERATORS = 6
LOWEST = 19


def threads(running: Running) -> dict[tuple[int, str], float]:
    """Return the CPU of each thread of the broker."""
    return {(pid, name): value for pid in {running.pid, *running.pids()} for name, value in threads_s(pid).items()}


def run(workers: int, load: Path, folder: Path, count: int) -> dict[str, Any]:
    """Return the figures of one run with a fresh broker."""
    tls = f"certfile {folder}/s.crt\nkeyfile {folder}/s.key\n"
    with broker(workers, tls) as running:
        command = [str(load), str(running.port), str(running.pid), "full"]
        subprocess.run([*command, "20"], check=True, capture_output=True, timeout=60)      # what happens once
        before, own, begin = threads(running), _generators_s(), time.monotonic()
        loads = [subprocess.Popen([*command, str(count)], stdout=subprocess.DEVNULL, preexec_fn=_lowest)
                 for _ in range(GENERATORS)]
        if any(one.wait() for one in loads):
            raise SystemExit("a load generator failed")
        seconds, after = time.monotonic() - begin, threads(running)
        spent = {key: value - before.get(key, 0.0) for key, value in after.items()}
        made = GENERATORS * (count + 1)
        each = sorted((sum(value for (pid, _), value in spent.items() if pid == worker) for worker in running.pids()),
                      reverse=True)
        whole, busiest = sum(spent.values()) / made, max(spent.values()) / made
        return {"cpu_us": whole * 1e6, "thread_us": busiest * 1e6, "cores": [one / seconds for one in each],
                "generator_cores": (_generators_s() - own) / seconds, "rate": made / seconds, "simple": workers / whole,
                "capacity": 1 / max(busiest, whole / CORES), "shares": [one / sum(each) for one in each]}


def _lowest() -> None:
    os.nice(LOWEST)


def _generators_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


def measure(rounds: int, count: int) -> list[dict[str, Any]]:
    """Return a row for each kind of certificate and number of workers."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="mosq-workers-tls-") as name:
        folder = Path(name)
        load = folder / "tlsload"
        subprocess.run(["cc", "-O2", "-Wall", "-o", str(load), str(HERE / "tlsload.c"), "-lssl", "-lcrypto"], check=True)
        for kind, key in KEYS.items():
            certify(folder, key, authority=False)
            found: dict[int, list[dict[str, Any]]] = {workers: [] for workers in WORKERS}
            for turn in range(rounds):
                for workers in WORKERS[:: 1 if turn % 2 else -1]:
                    found[workers].append(run(workers, load, folder, count))
            for workers, runs in found.items():
                rows.append(_row(kind, workers, runs, found[1]))
    return rows


def _row(kind: str, workers: int, runs: list[dict[str, Any]], base: list[dict[str, Any]]) -> dict[str, Any]:
    names = ("cpu_us", "thread_us", "generator_cores", "rate", "simple", "capacity")
    row: dict[str, Any] = {name: statistics.median(one[name] for one in runs) for name in names}
    row |= {"certificate": kind, "workers": workers, "limit": LIMIT if workers > 1 else None, "runs": runs,
            "cores": [statistics.median(one["cores"][i] for one in runs) for i in range(workers)]}
    for name in ("rate", "simple", "capacity"):
        row[f"{name}_ratio"] = row[name] / statistics.median(one[name] for one in base)
    print(f"{kind}, {workers} workers: {row['cpu_us']:.0f} us for each handshake ({row['thread_us']:.0f} of them in the "
          f"busiest thread), cores {', '.join(f'{one:.2f}' for one in row['cores'])} and {row['generator_cores']:.2f} of "
          f"the generators; made {row['rate']:.0f}/s ({row['rate_ratio']:.2f} x), could make {row['capacity']:.0f}/s "
          f"({row['capacity_ratio']:.2f} x), workers / CPU {row['simple']:.0f}/s ({row['simple_ratio']:.2f} x)", flush=True)
    return row
