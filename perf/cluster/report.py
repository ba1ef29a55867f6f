"""Write the section of perf/RESULTS.md about a cluster from the figures in perf/results/cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perf.tables import Row, digits, files, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# load: figures of two nodes with their limits: name, the most, and how it is shown
LIMITS: dict[str, list[tuple[str, float, str]]] = {
    "QoS 0": [("ratio", 2.3, "{} x relay")],
    "QoS 1, durable": [("cpu_us", 8.0, "{} us")],
    "QoS 1, durable, 20 k/s": [("cpu_us", 12.0, "{} us"), ("p99_us", 20_000.0, "p99 {} us")],
}


def section(folder: Path) -> Iterator[str]:
    """Yield the parts of the section."""
    every = files(folder)
    machine = every[0][1]["machine"] if every else {}
    yield ("## A cluster\n\n`python -m perf.cluster` runs nodes, Redis, a replica that confirms, and the load "
           f"generator on one machine: {machine.get('cores')} cores, {machine.get('processor')}, "
           f"Linux {machine.get('kernel')}. CPU is that of all nodes, Redis and its replica. Sums of CPU are valid "
           "although other programs used the machine; times and rates mostly measure the scheduler. Redis is as "
           "shipped, with `appendonly yes`, without rewriting of that file. The modules of [cluster](cluster) "
           "describe each measurement.\n")
    yield from parts_of(folder, PARTS)


def limit(value: float, bound: float, text: str = "{}", least: bool = False) -> str:
    """Return a limit, and whether it is met."""
    met = value >= bound if least else value <= bound
    return f"{'least' if least else 'most'} {text.format(f'{bound:,g}')}: {'met' if met else '**missed**'}"


def shares(figures: Row, places: int = 2) -> str:
    """Return the CPU of each process."""
    return ", ".join(f"{name} {us:,.{places}f}" for name, us in figures.get("parts_us", {}).items())


def _messages(row: Row) -> list[str]:
    limits = LIMITS[row["load"]] if row["broker"] == "2 nodes" else []
    return [row["load"], row["broker"], digits(row["cpu_us"]), " to ".join(digits(one) for one in row["spread"]),
            f"{row['ratio']:.1f}", "; ".join(limit(row[name], most, text) for name, most, text in limits), shares(row),
            f"{row['messages_per_s'] / 1000:,.0f}", f"{row['p50_us'] / 1000:,.1f}", f"{row['p99_us'] / 1000:,.0f}",
            f"{row.get('others', 0.0):.1f}"]


def _takeover(row: Row) -> list[str]:
    queue, drain, times, limits = row["queue"], row["drain"], row["times"], row["limits"]
    few = row["messages"] >= 100 * row["sessions"]      # else the connects are most of the cost
    return [f"{row['sessions']:,}", f"{row['messages']:,}", str(row["workers"]),
            f"{digits(queue['cpu_us'])} ({limit(queue['cpu_us'], limits['queue'])})", shares(queue),
            f"{times['recovered']:.2f}", f"{times['served']:.2f} ({limit(times['served'], limits['take-over'])})",
            digits(drain["cpu_us"]) + (f" ({limit(drain['cpu_us'], limits['drain'])})" if few else ""), shares(drain)]


def _connect(row: Row) -> list[str]:
    return [row["clients"], f"{row['count']:,}", digits(row["cpu_us"]), shares(row, 1), f"{row['rate']:,.0f}",
            f"{row['could_make']:,.0f}", limit(row["could_make"], row["limit"], least=True), f"{row['others']:.1f}"]


def _subscribe(row: Row) -> list[str]:
    known, arrived = row["suback_ms"], row["message_ms"]
    return [str(row["nodes"]), f"{row['samples']:,}", *(f"{known[name]:.2f}" for name in ("p50", "p99", "max")),
            limit(known["p99"], row["limit"]), *(f"{arrived[name]:.2f}" for name in ("p50", "p99")),
            ", ".join(f"{one:.1f}" for one in row["others"])]


PARTS: tuple[tuple[str, str, str, list[str], Callable[[Row], list[str]]], ...] = (
    ("messages", "Messages from node to node",
     "64 B; 100 pairs at full speed, 10 at a fixed rate. The publisher of each pair is at one node, its subscriber at "
     "the next; with one node, both are at one worker. *x relay* is the multiple of the relay in the same run. "
     "A durable message that its subscriber acknowledges before the commit needs no record in Redis. "
     "At a fixed rate each message wakes all processes on its way. RabbitMQ has its MQTT plugin and durable queues.",
     ["load", "broker", "us", "in rounds", "x relay", "limit", "us by process", "k messages/s", "p50, ms", "p99, ms",
      "cores of other programs"], _messages),
    ("takeover", "Take-over by another node",
     "Messages are queued for sessions that are away, at workers of the node that is then killed. Seconds count from "
     "the moment at which the other node observes the death: until all stores are read, and until all workers serve. "
     "*drain*: sessions connect to the other node and get their messages; with few messages for each session, the "
     "connects are most of its cost.",
     ["sessions", "messages", "workers of a node", "queue, us", "by process", "read, s", "served, s", "drain, us",
      "by process"], _takeover),
    ("connect", "Connects",
     "Clients connect to two nodes; half of them belong to a worker of the other node, and are relayed. CPU for each "
     "client. *could make*: clients that a node could connect each second with one core for each worker.",
     ["clients", "number", "us", "by process", "made/s", "could make/s", "limit", "cores of other programs"], _connect),
    ("subscribe", "A subscription is known everywhere",
     "From SUBSCRIBE to SUBACK, which all nodes have confirmed, and to a message that another node's client publishes "
     "at once. Milliseconds, an idle cluster.",
     ["nodes", "samples", "SUBACK p50", "p99", "longest", "limit of p99", "message p50", "p99",
      "cores of other programs"], _subscribe),
)
