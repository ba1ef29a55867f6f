"""Time every single operation at a given number of filters, to find the slowest ones.

    python -m perf.micro.latency --quick --out build/latency.json

`load` is the insertion of all filters into an empty index, `unload` their removal (tables grow and shrink there);
insert, remove and match are measured at the full size, in random places. The machine is shared: another program that
gets the core during an operation shows in the maximum. So everything is done several times and the least maximum
counts, because a pause of our own would recur. The number of times that the core was taken away is noted.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cext.testing.topic_bench import IndexBench, Lines, PoolBench
from perf.lock import bench_lock
from perf.micro import CLIENT_BYTES, corpora

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cext.testing.topic_bench import Latencies

QUANTILES = (0.5, 0.99, 0.9999)
TIMED = 10_000                  # operations in one call


def quantile(buckets: Counter[int], q: float) -> int:
    """Return the bucket that contains the quantile q: its values are at least that, and at most 1/32 more."""
    rank = q * buckets.total()
    for ns in sorted(buckets):
        rank -= buckets[ns]
        if rank <= 0:
            return ns
    return 0


class Phase:
    """Add up the buckets of many runs."""

    def __init__(self) -> None:
        self.buckets: Counter[int] = Counter()
        self.max_ns = 0
        self.switches = 0

    def count(self, latencies: Latencies) -> None:
        buckets, max_ns = latencies
        self.buckets.update(dict(buckets))
        self.max_ns = max(self.max_ns, max_ns)

    def row(self) -> dict[str, Any]:
        return {"operations": self.buckets.total(), "switches": self.switches, "max_ns": self.max_ns,
                **{f"p{q * 100:g}_ns": quantile(self.buckets, q) for q in QUANTILES}}


class Phases(dict[str, Phase]):
    def count(self, name: str, run: Callable[..., Latencies], *args: Any) -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        latencies = run(*args)
        phase = self.setdefault(name, Phase())
        phase.count(latencies)
        phase.switches += resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - before


def of_index(name: str, n: int, mode: str, operations: int) -> Phases:
    """Return the latencies of all operations on an index."""
    corpus = corpora.Corpus(name, n)
    filters = Lines(corpora.stored_filters(corpus), True)
    topics = Lines(corpus.traffic("wide").topics)
    index = IndexBench(mode)
    phases = Phases()
    batch = min(TIMED, n // 10)
    phases.count("load", index.add_latencies, filters)
    for done in range(0, operations, batch):
        first = done % (n - batch + 1)
        phases.count("remove", index.remove_latencies, filters, first, batch)
        phases.count("insert", index.add_latencies, filters, first, batch)
    for _ in range(0, operations, topics.n):
        phases.count("match", index.match_latencies, topics)
    phases.count("unload", index.remove_latencies, filters)
    return phases


def of_pool(n: int, mode: str, operations: int) -> Phases:
    """Return the latencies of the pool of client contexts."""
    pool = PoolBench(n, CLIENT_BYTES, 1000 if mode == "on" else 0)
    phases = Phases()
    for _ in range(0, operations, n):
        phases.count("pool take", pool.connect_latencies)
        phases.count("pool give", pool.disconnect_latencies)
    return phases


def measure(sizes: list[int], names: list[str], mode: str, operations: int, reps: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each corpus, size, operation and repetition."""
    jobs = [(name, n) for n in sizes for name in names]
    for rep in range(reps):
        for name, n in jobs:
            print(f"latency #{rep} {name} {n}", file=sys.stderr, flush=True)
            with bench_lock():
                phases = of_index(name, n, mode, operations)
            for operation, phase in phases.items():
                yield {"corpus": name, "filters": n, "mode": mode, "operation": operation, "rep": rep, **phase.row()}
        for mode_of_pool in ("on", "off"):
            for operation, phase in of_pool(10_000, mode_of_pool, operations).items():
                yield {"corpus": "-", "filters": 10_000, "mode": mode_of_pool, "operation": operation, "rep": rep,
                       **phase.row()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="measure 100 k filters once")
    parser.add_argument("--sizes", help="numbers of filters (default: 1000000)")
    parser.add_argument("--corpora", default=",".join(corpora.SHAPES))
    parser.add_argument("--mode", default="full")
    parser.add_argument("--operations", type=int, default=200_000,
                        help="timed operations of each kind (default: %(default)s)")
    parser.add_argument("--reps", type=int)
    parser.add_argument("--out", default="build/latency.json")
    args = parser.parse_args()
    sizes = [int(n) for n in (args.sizes or ("100000" if args.quick else "1000000")).split(",")]
    reps = args.reps or (1 if args.quick else 3)
    rows = list(measure(sizes, args.corpora.split(","), args.mode, args.operations, reps))
    Path(args.out).parent.mkdir(parents=True, exist_ok=True)
    Path(args.out).write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
