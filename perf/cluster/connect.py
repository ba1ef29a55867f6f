"""Measure connects to two nodes when half of the clients belong to a worker of the other node, and are relayed.

The clients of each node connect to it in turn. The rate is that of two nodes, Redis and the load generator on one
machine. `could make` is what a node could do with one core for each of its workers: its connects, divided by the CPU
of the node's processes. In the end each client has an answer.
"""

from __future__ import annotations

from typing import Any

from mosq.tools.bench.runner import Stopped
from perf.cluster.flows import Counted, Spread, cost
from perf.cluster.started import cluster
from perf.workers.flows import Load, spec_of

NODES = 2
LIMIT = 10_000.0
# title: (sessions outlive the connections, share of the clients that are relayed)
KINDS = {"clean, no relays": (False, 0.0), "clean, half relayed": (False, 0.5), "durable, half relayed": (True, 0.5)}


def run(clients: int, durable: bool, relayed: float) -> dict[str, Any]:
    """Return the figures of one run with fresh processes: all clients connect once."""
    with cluster(nodes=NODES, workers=NODES) as running:
        running.start()
        at = [i * NODES // clients for i in range(clients)]
        away = [relayed > 0 and i % round(1 / relayed) == 0 for i in range(clients)]
        places = [running.worker_at((node + far) % NODES) for node, far in zip(at, away, strict=True)]
        spec = spec_of(Load(durable=durable), host=running.nodes[0].host, port=running.port)
        runner = Counted(spec, running.processes())
        scene = Spread(spec, runner, running.names(places), [running.nodes[node].host for node in at], publishers=0)
        scene.greet(clean=not durable)
        try:
            with runner.phase("connect", "client") as phase:
                scene.connect(0, clients)
                phase.per = clients
            found = cost(runner)
            scene.end()
        except Stopped as stopped:
            raise SystemExit(f"the run is not complete: {stopped}") from None
    return found


def measure(clients: int, rounds: int) -> list[dict[str, Any]]:
    """Return a row for each kind of clients, with the least CPU of the rounds."""
    rows = []
    for title, (durable, relayed) in KINDS.items():
        found = min((run(clients, durable, relayed) for _ in range(rounds)), key=lambda one: float(one["cpu_us"]))
        each = max(us for name, us in found["parts_us"].items() if name.startswith("node"))
        rows.append({"clients": title, "count": clients, **found, "could_make": 1e6 / (NODES * each), "limit": LIMIT})
        parts = ", ".join(f"{name} {us:.1f}" for name, us in found["parts_us"].items())
        print(f"{title}: {found['cpu_us']:.1f} us for each ({parts}), {found['rate']:,.0f}/s at both nodes; a node "
              f"could make {rows[-1]['could_make']:,.0f}/s; other programs {found['others']:.2f} cores", flush=True)
    return rows
