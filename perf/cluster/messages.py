"""Measure what a message costs from one node to the next, beside the relay, which only copies frames.

CPU is that of all nodes, of Redis, and of its replica, which confirms. The relay and each number of nodes take turns;
with one node, all clients are at one worker. At a fixed rate each message wakes all processes on its way, so its cost
is that of system calls: the multiple of the relay, which has the fewest of them, shows that.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mosq.tools.bench.started import relay
from perf.cluster.flows import across, spread
from perf.cluster.rabbitmq import rabbitmq
from perf.cluster.started import cluster
from perf.workers.flows import Load, flow, quiet

if TYPE_CHECKING:
    from collections.abc import Iterable

RELAY, RABBITMQ = "relay", "RabbitMQ, 2 nodes"


@dataclass(frozen=True)
class Case:
    """A load. `rate`: messages per second, 0 = as many as possible."""

    qos: int
    durable: bool
    rate: float
    pairs: int


CASES = {
    "QoS 0": Case(0, durable=False, rate=0.0, pairs=100),
    "QoS 1, durable": Case(1, durable=True, rate=0.0, pairs=100),
    "QoS 1, durable, 20 k/s": Case(1, durable=True, rate=20_000.0, pairs=10),
}


def run(broker: str, nodes: int, case: Case, seconds: float) -> dict[str, Any]:
    """Return the figures of one run with fresh processes."""
    load = Load(qos=case.qos, durable=case.durable, seconds=seconds, rate=case.rate)
    if broker == RELAY:
        with relay() as where:
            names = [f"relay-{n}" for n in range(2 * case.pairs)]
            pid, port = int(str(where["broker_pid"])), int(str(where["port"]))
            return flow(port, pid, Load(seconds=seconds, rate=case.rate), names, case.pairs)
    if broker == RABBITMQ:
        with rabbitmq() as rabbits:
            at = [i % 2 for i in range(case.pairs)]
            hosts = [rabbits.hosts[one] for one in (*at, *(1 - one for one in at))]
            names = [f"rabbit-{n}" for n in range(2 * case.pairs)]
            return spread(rabbits.port, rabbits.processes(), load, names, hosts)
    with cluster(nodes=nodes, workers=nodes) as running:
        running.start()
        return across(running, load, case.pairs, nodes=nodes)


def measure(cases: Iterable[str], nodes: list[int], peers: bool, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Return a row for each case and broker: all runs, and medians. A run whose messages are not exact is kept with
    its reason; RabbitMQ is left out of QoS 0."""
    rows = []
    for title in cases:
        case = CASES[title]
        brokers = [(RELAY, 0), *((f"{n} nodes" if n > 1 else "1 node", n) for n in nodes)]
        brokers += [(RABBITMQ, 2)] if peers and case.qos else []
        found: dict[str, list[dict[str, Any]]] = {name: [] for name, _ in brokers}
        for turn in range(rounds):
            for name, n in brokers[:: 1 if turn % 2 else -1]:
                found[name].append(run(name, n, case, seconds))
        rows += rows_of(title, found)
    return rows


def rows_of(title: str, found: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the rows of a case from its runs by broker."""
    base = statistics.median(one["cpu_us"] for one in quiet(found[RELAY]))
    rows = []
    for name, runs in found.items():
        counted = quiet(runs)
        costs = sorted(one["cpu_us"] for one in counted)
        middle = counted[[one["cpu_us"] for one in counted].index(statistics.median_low(costs))]
        rows.append({
            "load": title, "broker": name, "cpu_us": statistics.median(costs), "spread": [costs[0], costs[-1]],
            "ratio": statistics.median(costs) / base, "parts_us": middle.get("parts_us", {}),
            "messages_per_s": statistics.median(one["rate"] for one in counted),
            "p50_us": middle["p50_us"], "p99_us": middle["p99_us"], "others": middle["others"], "runs": runs})
        show(rows[-1])
    return rows


def show(row: dict[str, Any]) -> None:
    parts = ", ".join(f"{name} {us:.2f}" for name, us in row["parts_us"].items())
    print(f"{row['load']}, {row['broker']}: {row['cpu_us']:.2f} us ({row['spread'][0]:.2f} to {row['spread'][1]:.2f}), "
          f"{row['ratio']:.2f} x relay; {parts or 'one process'}; {row['messages_per_s'] / 1000:.1f} k/s; p50 "
          f"{row['p50_us'] / 1000:.2f} ms, p99 {row['p99_us'] / 1000:.2f} ms; other programs {row['others']:.2f} cores",
          flush=True)
