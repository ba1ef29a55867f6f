"""Measure how soon all nodes know a new subscription, on an idle cluster: perf.workers.subscribe with nodes.

SUBACK waits until each worker has confirmed the filter. The test of it: when the SUBACK is there, a publisher at
another node publishes once, and the message must arrive.
"""

from __future__ import annotations

import contextlib
from typing import Any

from perf.cluster.started import cluster
from perf.workers.clients import Client
from perf.workers.subscribe import quantiles, timed

LIMIT_MS = 20.0


def run(nodes: int, samples: int) -> dict[str, Any]:
    """Return the times of one run with fresh processes."""
    with cluster(nodes=nodes, workers=nodes) as running, contextlib.ExitStack() as stack:
        running.start()
        names = running.names([running.worker_at(node) for node in range(nodes)])
        clients = [stack.enter_context(contextlib.closing(Client(running.port, name, running.nodes[node].host)))
                   for node, name in enumerate(names)]
        return timed(clients[0], clients[1:], samples, *running.processes().values())


def measure(nodes: list[int], samples: int, rounds: int) -> list[dict[str, Any]]:
    """Return a row for each number of nodes, from the samples of all rounds."""
    rows = []
    for n in nodes:
        runs = [run(n, samples) for _ in range(rounds)]
        suback, message = (quantiles([ms for one in runs for ms in one[name]]) for name in ("known", "arrived"))
        others = [one["others"] for one in runs]
        rows.append({"nodes": n, "samples": samples * rounds, "suback_ms": suback, "message_ms": message,
                     "limit": LIMIT_MS, "others": others})
        print(f"{n} nodes: SUBACK p50 {suback['p50']:.2f} ms, p99 {suback['p99']:.2f} ms, longest {suback['max']:.2f} "
              f"ms; message p99 {message['p99']:.2f} ms; other programs "
              f"{', '.join(f'{one:.2f}' for one in others)} cores", flush=True)
    return rows
