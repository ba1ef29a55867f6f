"""Compare a broker with 2 workers with FlashMQ with 2 threads, and each with itself with one, in runs that take turns.

    pairs       100 pairs; clients have names of their own, so about half of the pairs of 2 workers are across workers
    fan-out     one publisher, 1,000 subscribers

CPU is that of all processes and threads of the broker for each delivered message; the load generator uses the same
cores. FlashMQ's workers are threads with one memory: a message to another thread's client needs no link.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from typing import TYPE_CHECKING, Any

from perf.lab.broker import Broker
from perf.lab.peers import Found, find
from perf.workers.flows import Load, calm, flow, quiet
from perf.workers.started import broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

THREADS = (1, 2)
MEDIANS = ("rate", "cores", "generator_us", "p99_us")
# title: (QoS, publishers, subscribers)
LOADS = {"100 pairs QoS 0": (0, 100, 100), "100 pairs QoS 1": (1, 100, 100), "fan-out QoS 0, 1 to 1000": (0, 1, 1000)}


@contextlib.contextmanager
def started(peer: Found | None, threads: int) -> Iterator[tuple[int, int]]:
    """Run a broker, mosq without a peer; yield its port and its process."""
    if peer is None:
        with broker(threads) as running:
            yield running.port, running.pid
        return
    text = peer.peer.text.replace("thread_count 1", f"thread_count {threads}")
    with Broker(dataclasses.replace(peer, peer=dataclasses.replace(peer.peer, text=text))) as running:
        yield running.port, running.pid


def run(peer: Found | None, threads: int, load: Load, publishers: int, subscribers: int) -> dict[str, Any]:
    """Return the figures of one run with a fresh broker, mosq without a peer."""
    with started(peer, threads) as (port, pid):
        return flow(port, pid, load, [f"peer-{n}" for n in range(publishers + subscribers)], publishers)


def measure(folders: list[Path], rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Return a row for each load, broker and number of workers. Raises SystemExit if there is no FlashMQ."""
    flashmq = next((one for one in find(folders) if one.peer.family == "flashmq"), None)
    if flashmq is None:
        raise SystemExit("there is no flashmq on PATH; --peers names a folder with it")
    brokers = [(peer, threads) for threads in THREADS for peer in (None, flashmq)]
    rows = []
    for title, (qos, publishers, subscribers) in LOADS.items():
        found: list[list[dict[str, Any]]] = [[] for _ in brokers]
        for turn in range(rounds):
            for i in list(range(len(brokers)))[:: 1 if turn % 2 else -1]:
                load = Load(qos=qos, seconds=seconds)
                found[i].append(calm(run, *brokers[i], load, publishers, subscribers))
        for (peer, threads), runs in zip(brokers, found, strict=True):
            counted = quiet(runs)
            costs = sorted(one["cpu_us"] for one in counted)
            rows.append({
                "load": title, "broker": peer.name if peer else "mosq", "workers": threads,
                "cpu_us": statistics.median(costs), "spread": [costs[0], costs[-1]], "runs": runs,
                **{name: statistics.median(one[name] for one in counted) for name in MEDIANS}})
            row = rows[-1]
            print(f"{title}, {row['broker']}, {threads}: {row['cpu_us']:.2f} us ({costs[0]:.2f} to {costs[-1]:.2f}), "
                  f"{row['rate'] / 1000:.0f} k/s, {row['cores']:.2f} cores", flush=True)
    return rows
