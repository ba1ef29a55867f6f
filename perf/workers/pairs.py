"""Measure what a message costs that goes from one worker to another, and one that does not.

Pairs of a publisher and a subscriber load a broker of one process, and one of `cluster_local 2`. CPU is that of all
processes of the broker for each delivered message, after a warm-up. The configurations take turns.

    within  publisher and subscriber of each pair are at one worker; both workers have half of the pairs
    one     the same, and all pairs are at one worker
    half    half of the pairs are across workers
    across  all pairs are
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from perf.workers.flows import Load, calm, flow, quiet
from perf.workers.started import broker

if TYPE_CHECKING:
    from collections.abc import Iterable

SINGLE = "one process"
# (places of the publisher, of the subscriber) of the pairs, in turn
PLACES = {
    SINGLE: [(0, 0)],
    "within": [(0, 0), (1, 1)],
    "one": [(0, 0)],
    "half": [(0, 0), (0, 1), (1, 1), (1, 0)],
    "across": [(0, 1), (1, 0)],
}
# load: (QoS, sessions on the disk, largest cost as a multiple of one process's)
LOADS: dict[str, tuple[int, bool, dict[str, float]]] = {
    "QoS 0": (0, False, {"one": 1.05, "half": 1.6}),
    "QoS 1": (1, False, {}),
    "QoS 1, durable": (1, True, {"across": 2.0}),
    "QoS 2, durable": (2, True, {}),
}


def run(load: Load, placement: str, pairs: int) -> dict[str, Any]:
    """Return the figures of one run with a fresh broker."""
    places = PLACES[placement]
    chosen = [places[i % len(places)] for i in range(pairs)]
    with broker(1 if placement == SINGLE else 2) as running:
        names = running.names([one for one, _ in chosen] + [other for _, other in chosen])
        return flow(running.port, running.pid, load, names, pairs)


def measure(loads: Iterable[str], rounds: int, pairs: int, seconds: float, rate: float = 0.0) -> list[dict[str, Any]]:
    """Return a row for each load and placement: all runs, medians, and the ratio to one process."""
    rows = []
    for title in loads:
        qos, durable, _ = LOADS[title]
        load = Load(qos=qos, durable=durable, seconds=seconds, rate=rate)
        found: dict[str, list[dict[str, Any]]] = {placement: [] for placement in PLACES}
        for turn in range(rounds):
            for placement in list(PLACES)[:: 1 if turn % 2 else -1]:
                found[placement].append(calm(run, load, placement, pairs))
        rows += rows_of(title, found, rate)
    return rows


def rows_of(title: str, found: dict[str, list[dict[str, Any]]], rate: float) -> list[dict[str, Any]]:
    """Return the rows of a load from its runs by placement; those of one process are the base."""
    rows = []
    base = statistics.median(one["cpu_us"] for one in quiet(found[SINGLE]))
    for placement, runs in found.items():
        costs = sorted(one["cpu_us"] for one in quiet(runs))
        rows.append({
            "load": title, "rate": rate, "placement": placement, "cpu_us": statistics.median(costs),
            "ratio": statistics.median(costs) / base, "ratios": [costs[0] / base, costs[-1] / base],
            "counted": len(costs), "messages_per_s": statistics.median(one["rate"] for one in quiet(runs)),
            "limit": LOADS[title][2].get(placement), "runs": runs})
        show(rows[-1])
    return rows


def show(row: dict[str, Any]) -> None:
    limit = f", at most {row['limit']}" if row["limit"] else ""
    least, most = row["ratios"]
    print(f"{row['load']}, {row['placement']}: {row['cpu_us']:.2f} us, {row['ratio']:.2f} x one process "
          f"({least:.2f} to {most:.2f}{limit}), {row['messages_per_s'] / 1000:.0f} k/s", flush=True)
