"""Measure a cluster: nodes on this machine, Redis, and a replica of it that confirms each batch.

    python -m perf.cluster messages         # CPU of a message from node to node, beside the relay and RabbitMQ
    python -m perf.cluster takeover         # 100,000 sessions with a million messages, whose node dies
    python -m perf.cluster takeover --sessions 100 --each 2000      # CPU of queueing, and of draining after that
    python -m perf.cluster connect          # connects of which half are relayed to the other node
    python -m perf.cluster subscribe        # how soon all nodes know a new subscription
    python -m perf.cluster --json perf/results/cluster/messages.json messages       # keep the figures of one of these

CPU is the sum of all nodes, Redis and its replica, counted by the kernel, so it is valid while other programs use the
machine, too. Times mostly measure the scheduler: all processes and the load generator share the same cores. Needs
redis-server, the package `redis`, and for `--peers` rabbitmq-server. `python -m perf.results` then writes
perf/RESULTS.md. Each module of this package explains its measurement.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from perf.cluster.messages import CASES
from perf.kept import keep
from perf.lock import bench_lock


def numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m perf.cluster", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    what = parser.add_subparsers(dest="what", required=True)
    messages = what.add_parser("messages")
    messages.add_argument("--cases", type=lambda text: text.split(";"), default=list(CASES), help="separated by ;")
    messages.add_argument("--nodes", type=numbers, default=[1, 2, 3], help="numbers of nodes, separated by commas")
    messages.add_argument("--peers", action="store_true", help="with RabbitMQ in turn")
    messages.add_argument("--rounds", type=int, default=3)
    messages.add_argument("--seconds", type=float, default=2.0)
    takeover = what.add_parser("takeover")
    takeover.add_argument("--sessions", type=int, default=100_000)
    takeover.add_argument("--each", type=int, default=10, help="messages for each session")
    takeover.add_argument("--workers", type=int, default=2, help="workers of each node")
    takeover.add_argument("--back", type=int, default=5_000, help="sessions that come back and get their messages")
    takeover.add_argument("--rounds", type=int, default=1)
    connect = what.add_parser("connect")
    connect.add_argument("--clients", type=int, default=6_000)
    connect.add_argument("--rounds", type=int, default=3)
    subscribe = what.add_parser("subscribe")
    subscribe.add_argument("--nodes", type=numbers, default=[2, 3], help="numbers of nodes, separated by commas")
    subscribe.add_argument("--samples", type=int, default=1_000, help="of each round")
    subscribe.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    given = vars(arguments())
    what, file = given.pop("what"), given.pop("json")
    with bench_lock():
        rows = importlib.import_module(f"perf.cluster.{what}").measure(**given)
    if file is not None:
        keep(file, rows)


if __name__ == "__main__":
    main()
