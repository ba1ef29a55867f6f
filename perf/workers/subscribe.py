"""Measure how soon all workers know a new subscription, on an idle broker.

SUBACK waits until each worker has confirmed the filter, so the time from SUBSCRIBE to SUBACK bounds it. The test of it:
when the SUBACK is there, a publisher at another worker (at each in turn) publishes once, and the message must arrive;
it is read for at most a second. Each sample has a filter of its own. Client and broker share the cores of this machine.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from mosq.tools.bench.usage import moment
from perf.workers.clients import Client
from perf.workers.started import broker

WORKERS = (1, 2, 4)
PAUSE_S = 0.002
ARRIVES_S = 1.0
LIMIT_MS = 1.0


def sample(subscriber: Client, publisher: Client, topic: bytes) -> tuple[float, float]:
    """Return milliseconds from SUBSCRIBE to SUBACK, and from SUBSCRIBE to the message; raises TimeoutError."""
    begin = time.perf_counter()
    subscriber.subscribe([topic])
    known = time.perf_counter()
    publisher.publish(topic)
    subscriber.read(0x30)
    return (known - begin) * 1e3, (time.perf_counter() - begin) * 1e3


def run(workers: int, samples: int) -> dict[str, Any]:
    """Return the times of one run with a fresh broker. Raises SystemExit if a message did not arrive."""
    with broker(workers) as running, contextlib.ExitStack() as stack:
        places = [0, *(range(1, workers) if workers > 1 else [0])]
        clients = [stack.enter_context(contextlib.closing(Client(running.port, name)))
                   for name in running.names(places)]
        return timed(clients[0], clients[1:], samples, running.pid)


def timed(subscriber: Client, publishers: list[Client], samples: int, *pids: int) -> dict[str, Any]:
    """Return the times of so many subscriptions, with a publisher in turn. `pids`: the broker's. Raises SystemExit if a
    message did not arrive."""
    subscriber.sock.settimeout(ARRIVES_S)
    known, arrived = [], []
    begin = moment(*pids)
    for i in range(samples):
        try:
            one, other = sample(subscriber, publishers[i % len(publishers)], b"known/%d/at/once" % i)
        except TimeoutError:
            raise SystemExit(f"message {i} of {samples} did not arrive") from None
        known.append(one)
        arrived.append(other)
        time.sleep(PAUSE_S)
    end = moment(*pids)
    others = (end.all_cpu_s - begin.all_cpu_s - (end.own.cpu_s - begin.own.cpu_s)
              - (end.broker.cpu_s - begin.broker.cpu_s)) / (end.at - begin.at)
    return {"known": known, "arrived": arrived, "others": others}


def measure(samples: int, rounds: int) -> list[dict[str, Any]]:
    """Return a row for each number of workers, from the samples of all rounds."""
    found: dict[int, list[dict[str, Any]]] = {workers: [] for workers in WORKERS}
    for _ in range(rounds):
        for workers, runs in found.items():
            runs.append(run(workers, samples))
    rows = []
    for workers, runs in found.items():
        suback, message = (quantiles([ms for one in runs for ms in one[name]]) for name in ("known", "arrived"))
        each = [{"others": one["others"], "p99": quantiles(one["known"])["p99"]} for one in runs]
        rows.append({"workers": workers, "samples": samples * rounds, "suback_ms": suback, "message_ms": message,
                     "runs": each, "limit_ms": LIMIT_MS if workers > 1 else None})
        spread = ", ".join(f"{one['p99']:.3f} ({one['others']:.2f})" for one in each)
        print(f"{workers} workers: SUBACK p50 {suback['p50']:.3f} ms, p99 {suback['p99']:.3f} ms, longest "
              f"{suback['max']:.3f} ms; message p99 {message['p99']:.3f} ms; p99 of each round (cores of other "
              f"programs): {spread}", flush=True)
    return rows


def quantiles(values: list[float]) -> dict[str, float]:
    values = sorted(values)
    return {"p50": values[len(values) // 2], "p99": values[int(len(values) * 0.99)], "max": values[-1]}
