"""Measure what TLS handshakes cost a broker with 1 and with 2 workers, and how many it could make on this machine's
cores.

    full    several load generators connect one client after the other: a full handshake, CONNECT, CONNACK, DISCONNECT
            (tlsload.c). A client's side of that is not cheap, so the generators take half of the two cores
    half    a recorded ClientHello, for which the broker signs, and a close (perf.tls.flood): cheap for the generator

So the rate of a run is not what the broker can make with clients on other machines. That follows from CPU:

    could make = 1 / the CPU of the busiest thread, or of all threads divided by the cores, for each handshake; the
    larger workers / CPU = the same if each worker had one core: what N workers on N cores make, and one worker on one
    core

It holds if threads do not wait for each other. "cores" shows that both workers really work: their CPU by the time of
the run. On two cores a worker runs handshakes in one thread (`tls_handshake_threads`), and everything else in its
loop, so one worker alone uses more than one core if it can. The generators have the priority of the broker: with a
lower one, the broker would serve each step of a handshake as soon as it arrives, and change threads for each.
"""

from __future__ import annotations

import multiprocessing
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from mosq.tools.bench.usage import moment
from perf.tls.__main__ import HERE, KEYS, certify
from perf.tls.flood import flood
from perf.watched import threads_s
from perf.workers.started import Running, broker

WORKERS = (1, 2)
LIMIT = 1.8
CORES = 2                       # of the broker
GENERATORS = 16
HALF_S = 1.5


def threads(running: Running) -> dict[tuple[int, str], float]:
    """Return the CPU of each thread of the broker."""
    return {(pid, name): value for pid in {running.pid, *running.pids()} for name, value in threads_s(pid).items()}


def run(workers: int, how: str, load: Path, folder: Path, count: int) -> dict[str, Any]:
    """Return the figures of one run with a fresh broker."""
    tls = f"certfile {folder}/s.crt\nkeyfile {folder}/s.key\n"
    with broker(workers, tls) as running, multiprocessing.Pool(1) as pool:
        command = [str(load), str(running.port), str(running.pid), "full"]
        subprocess.run([*command, "20"], check=True, capture_output=True, timeout=60)      # what happens once
        before, all_before, begin = threads(running), moment(None).all_cpu_s, time.monotonic()
        if how == "half":
            made = pool.apply(flood, (running.port, HALF_S, 0))
        else:
            loads = [subprocess.Popen([*command, str(count)], stdout=subprocess.DEVNULL) for _ in range(GENERATORS)]
            if sum(one.wait() != 0 for one in loads):
                raise SystemExit("a load generator failed")
            made = GENERATORS * (count + 1)
        seconds, after, all_s = time.monotonic() - begin, threads(running), moment(None).all_cpu_s - all_before
        spent = {key: value - before.get(key, 0.0) for key, value in after.items()}
        each = sorted((sum(value for (pid, _), value in spent.items() if pid == worker) for worker in running.pids()),
                      reverse=True)
        whole, busiest = sum(spent.values()) / made, max(spent.values()) / made
        return {"cpu_us": whole * 1e6, "thread_us": busiest * 1e6, "cores": [one / seconds for one in each],
                "other_cores": (all_s - sum(spent.values())) / seconds, "rate": made / seconds,
                "simple": workers / whole, "capacity": 1 / max(busiest, whole / CORES)}


def measure(rounds: int, count: int) -> list[dict[str, Any]]:
    """Return a row for each kind of handshake and certificate, and number of workers."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="mosq-workers-tls-") as name:
        folder = Path(name)
        load = folder / "tlsload"
        subprocess.run(["cc", "-O2", "-Wall", "-o", str(load), str(HERE / "tlsload.c"), "-lssl", "-lcrypto"],
                       check=True)
        for kind, key in KEYS.items():
            certify(folder, key, authority=False)
            for how in ("full", "half"):
                found: dict[int, list[dict[str, Any]]] = {workers: [] for workers in WORKERS}
                for turn in range(rounds):
                    for workers in WORKERS[:: 1 if turn % 2 else -1]:
                        found[workers].append(run(workers, how, load, folder, count))
                rows += [_row(f"{how}, {kind}", workers, runs, found[1]) for workers, runs in found.items()]
    return rows


def _row(title: str, workers: int, runs: list[dict[str, Any]], base: list[dict[str, Any]]) -> dict[str, Any]:
    names = ("cpu_us", "thread_us", "other_cores", "rate", "simple", "capacity")
    row: dict[str, Any] = {name: statistics.median(one[name] for one in runs) for name in names}
    row |= {"handshake": title, "workers": workers, "limit": LIMIT if workers > 1 else None, "runs": runs,
            "cores": [statistics.median(one["cores"][i] for one in runs) for i in range(workers)]}
    for name in ("rate", "simple", "capacity"):
        row[f"{name}_ratio"] = row[name] / statistics.median(one[name] for one in base)
    cores = ", ".join(f"{one:.2f}" for one in row["cores"])
    print(f"{title}, {workers} workers: {row['cpu_us']:.0f} us for each handshake ({row['thread_us']:.0f} in the "
          f"busiest thread), cores {cores} and {row['other_cores']:.2f} of other processes; made {row['rate']:.0f}/s, "
          f"could make {row['capacity']:.0f}/s ({row['capacity_ratio']:.2f} x), "
          f"workers / CPU {row['simple_ratio']:.2f} x", flush=True)
    return row
