"""Measure what it costs that a message goes from one worker to another.

    python -m perf.workers [--messages 200000] [--pairs 100] [--rounds 3] [--qos 0] [--json FILE]

The same pairs of a publisher and a subscriber load a broker with one process, and one with `cluster_local 2`. A keyed
hash of the client id names the worker of a client, so about half of the pairs are across workers. CPU is that of all
processes of the broker, the parent included, between the first connection and the last message, for each delivered
message. The brokers take turns; the median of the rounds is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mosq.tools.bench.run import measure
from mosq.tools.bench.spec import Spec
from mosq.tools.bench.started import CONFIG, free_port
from mosq.tools.bench.usage import used
from perf.watched import wait_for_slow

SETTLE_S = 1.0                  # until the workers are linked


def children(pid: int) -> list[int]:
    """Return the processes that a process has started and that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            rest = (entry / "stat").read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        if rest[0] != "Z" and int(rest[1]) == pid:
            found.append(int(entry.name))
    return found


def cpu_s(pid: int) -> float:
    """Return the CPU of a broker with all its workers up to now."""
    return sum(used(one).cpu_s for one in (pid, *children(pid)))


def cost_us(workers: int, spec: dict[str, object], durable: bool) -> tuple[float, float]:
    """Return microseconds of the broker's CPU for each delivered message, and messages per second."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        config = Path(folder) / "mosq.conf"
        store = f"persistence true\npersistence_location {folder}/\n" if durable else ""
        config.write_text(f"user root\ncluster_local {workers}\nsys_interval 0\n{store}{CONFIG.format(port=port)}")
        process = subprocess.Popen([sys.executable, "-m", "mosq", "-c", str(config)], stdin=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, env=dict(os.environ))
        try:
            wait_for_slow(port)
            time.sleep(SETTLE_S)
            before = cpu_s(process.pid)
            result = measure(Spec(port=port, stall=60.0, **spec), lambda _what, _counts: None)     # type: ignore[arg-type]
            spent = cpu_s(process.pid) - before
        finally:
            process.terminate()
            process.wait()
        if not result.complete:
            raise SystemExit(f"the run with {workers} workers is not complete: {result.why}")
        delivered = sum(phase.delivered for phase in result.phases)
        seconds = sum(phase.seconds for phase in result.phases if phase.delivered)
        return spent * 1e6 / delivered, delivered / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--qos", type=int, default=0)
    parser.add_argument("--durable", action="store_true", help="with a store")
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    spec = {"scenario": "pairs", "publishers": wanted.pairs, "qos": wanted.qos, "messages": wanted.messages}
    found: dict[int, list[tuple[float, float]]] = {1: [], 2: []}
    for _ in range(wanted.rounds):
        for workers, costs in found.items():
            costs.append(cost_us(workers, spec, wanted.durable))
    for workers, costs in found.items():
        print(f"{workers} workers: {statistics.median(one for one, _ in costs):.2f} us of CPU for each message, "
              f"{statistics.median(rate for _, rate in costs) / 1000:.0f} k messages/s")
    ratio = statistics.median(one for one, _ in found[2]) / statistics.median(one for one, _ in found[1])
    print(f"2 workers cost {ratio:.2f} times one")
    if wanted.json is not None:
        figures = {"spec": spec, "durable": wanted.durable, "runs": found, "ratio": ratio}
        wanted.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
