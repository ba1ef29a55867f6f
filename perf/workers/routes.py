"""Measure the memory of the filters of another worker.

One client subscribes to many filters of a worker. The broker's own count of its index is `$SYS/broker/index/bytes`, a
sum over the workers. The index of the client's worker is as that of one process; each further worker has the filters as
routes. So the difference between two workers and one process is what a foreign worker needs, and the difference between
three and two is the same again. From it the bytes of the filters' text are subtracted. RSS is that of a foreign worker
after the load against before; it also contains buffers and what the allocator keeps. The client's worker has a record
of each filter that it announces, once for all others: RSS of that worker against one process.

    exact, mix      filters of `mosq bench subscribe`; mix: 60 % exact, 30 % with +, 10 % with #
    again           exact filters that clients of the other workers have subscribed to before: each of two workers has a
                    local subscription and a route, each of three has two routes
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from mosq.tools.bench.topics import Corpus
from mosq.tools.bench.usage import used
from perf.workers.clients import Client
from perf.workers.started import Running, broker

LIMIT_BYTES = 120
KINDS = ("exact", "mix", "again")
SAME = 3                        # equal values in turn: sums are up to half a second late
SYS = b"$SYS/broker/index/bytes"


def index_bytes(running: Running) -> int:
    """Return the counted bytes of all indexes, when they do not change any more."""
    name, found = running.names([0], "sys")[0], [-1]
    while len(found) < SAME or len(set(found[-SAME:])) > 1:
        time.sleep(1.0)                 # the broker publishes each second what has changed
        with contextlib.closing(Client(running.port, name)) as watcher:
            watcher.subscribe([SYS])
            found.append(int(watcher.message()[1]))
    return found[-1]


def run(workers: int, kind: str, n: int) -> dict[str, Any]:
    """Return bytes of the index and RSS of the workers, each after the load against before."""
    filters = [one.encode() for one in Corpus("exact" if kind == "again" else kind, n).filters()]
    with broker(workers, sys_s=1) as running, contextlib.ExitStack() as stack:
        names = running.names(list(range(workers)))
        clients = [stack.enter_context(contextlib.closing(Client(running.port, name))) for name in names]
        if kind == "again":
            for client in clients[1:]:
                client.subscribe(filters)
        counted, rss = index_bytes(running), memory(running)
        begin = time.monotonic()
        clients[0].subscribe(filters)
        seconds = time.monotonic() - begin
        return {"workers": workers, "seconds": seconds, "index": index_bytes(running) - counted,
                "text": sum(map(len, filters)), "rss": [a - b for a, b in zip(memory(running), rss, strict=True)]}


def memory(running: Running) -> list[int]:
    """Return the RSS of each worker, the client's first."""
    return [used(pid).rss_bytes or 0 for pid in running.pids()]


def measure(sizes: list[int], kinds: list[str]) -> list[dict[str, Any]]:
    rows = []
    for kind in kinds:
        for n in sizes:
            one, two, three = (run(workers, kind, n) for workers in (1, 2, 3))
            row = {"kind": kind, "filters": n, "text": one["text"] / n, "limit": LIMIT_BYTES,
                   "local": (one["index"] - one["text"]) / n, "foreign_rss": (two["rss"][1] - one["text"]) / n,
                   "own_rss": (two["rss"][0] - one["rss"][0]) / n, "subscribed_per_s": n / two["seconds"],
                   "runs": [one, two, three]}
            if kind == "again":         # all workers have the text before, and each gets one more entry for the filter
                row |= {"foreign": two["index"] / 2 / n, "one_more": three["index"] / 3 / n}
                row |= {"foreign_rss": two["rss"][1] / n, "own_rss": 0.0}
            else:
                row |= {"foreign": (two["index"] - one["index"] - one["text"]) / n,
                        "one_more": (three["index"] - two["index"] - one["text"]) / n}
            rows.append(row)
            print(f"{kind}, {n:,} filters of {row['text']:.0f} bytes: beyond it {row['foreign']:.0f} at a foreign "
                  f"worker, {row['one_more']:.0f} at one more (a local subscription: {row['local']:.0f}); its RSS "
                  f"{row['foreign_rss']:.0f}; announced by its own worker: RSS {row['own_rss']:.0f}", flush=True)
    return rows
