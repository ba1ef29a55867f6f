"""Measure how soon all workers know a new subscription, on an idle broker.

SUBACK waits until each worker has confirmed the filter, so the time from SUBSCRIBE to SUBACK bounds it. The test of it:
when the SUBACK is there, a publisher at another worker (at each in turn) publishes once, and the message must arrive;
it is read for at most a second. Each sample has a filter of its own. Client and broker share the cores of this machine.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

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


def measure(samples: int) -> list[dict[str, Any]]:
    """Return a row for each number of workers. Raises SystemExit if a message did not arrive."""
    rows = []
    for workers in WORKERS:
        with broker(workers) as running, contextlib.ExitStack() as stack:
            places = [0, *(range(1, workers) if workers > 1 else [0])]
            clients = [stack.enter_context(contextlib.closing(Client(running.port, name)))
                       for name in running.names(places)]
            subscriber, publishers = clients[0], clients[1:]
            subscriber.sock.settimeout(ARRIVES_S)
            known, arrived, missing = [], [], 0
            for i in range(samples):
                try:
                    one, other = sample(subscriber, publishers[i % len(publishers)], b"known/%d/at/once" % i)
                except TimeoutError:
                    missing += 1
                    continue
                known.append(one)
                arrived.append(other)
                time.sleep(PAUSE_S)
        if missing:
            raise SystemExit(f"{missing} of {samples} messages did not arrive")
        suback, message = quantiles(known), quantiles(arrived)
        rows.append({"workers": workers, "samples": samples, "arrived": len(arrived), "suback_ms": suback,
                     "message_ms": message, "limit_ms": LIMIT_MS if workers > 1 else None})
        print(f"{workers} workers: SUBACK p50 {suback['p50']:.3f} ms, p99 {suback['p99']:.3f} ms, longest "
              f"{suback['max']:.3f} ms; message p99 {message['p99']:.3f} ms; {len(arrived)} arrived", flush=True)
    return rows


def quantiles(values: list[float]) -> dict[str, float]:
    values = sorted(values)
    return {"p50": values[len(values) // 2], "p99": values[int(len(values) * 0.99)], "max": values[-1]}
