"""Measure match, insert and remove by size, corpus and mode; the retained tree; the pool of client contexts.

    python -m perf.micro.bench_index --quick -o build/index.json        # pyperf's options, and those below

A benchmark is named OPERATION/CORPUS/FILTERS/MODE/TRAFFIC (corpora.TRAFFIC defines hot and wide). Every value is
seconds per operation; each run of matches is checked against the number of deliveries of the corpus. Progress goes to
standard error.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyperf

from cext.testing.topic_bench import IndexBench, Lines, PoolBench, RetainedBench
from perf.lock import bench_lock
from perf.micro import BATCH, CLIENT_BYTES, corpora

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    TimeFunc = Callable[[int], float]

SIZES = [1_000, 10_000, 100_000, 1_000_000]
QUICK_SIZES = [1_000, 100_000]
QUICK_CORPORA = ["realistic", "numeric"]
MODES = ["full", "letter", "hash", "tree", "scan"]
# modes whose time grows with the number of filters: this many are enough to show it
MOST = {"scan": 10_000}
RETAINED_MOST = 100_000
POOL_MOST = 100_000
PASS_S = 0.2                    # seconds after which a pass over the traffic is cut short


@dataclass(frozen=True)
class Case:
    """Hold one benchmark."""

    operation: str
    corpus: str
    n: int
    mode: str
    traffic: str = "-"

    def __str__(self) -> str:
        return f"{self.operation}/{self.corpus}/{self.n}/{self.mode}/{self.traffic}"

    @property
    def inner_loops(self) -> int:
        """Return the number of operations of one loop."""
        if self.operation == "match":
            return min(corpora.TRAFFIC[self.traffic], corpora.Corpus(self.corpus, self.n).topics())
        if self.operation in ("insert", "remove", "retain"):
            return batch(self.n)
        return self.n

    def prepare(self) -> TimeFunc:
        if self.operation.startswith("pool"):
            return pool(self)
        kinds = {"match": match, "insert": insert, "remove": insert, "retain": retain, "fetch": fetch}
        return kinds[self.operation](self)


def batch(n: int) -> int:
    """Return how many filters are inserted or removed at once in an index of n filters."""
    return max(1, min(BATCH, n // 10))


def starts(n: int) -> Iterator[int]:
    """Yield the first filters of batches, in a cycle; filters are in random order, so each batch is a sample."""
    return itertools.cycle(range(0, n - batch(n) + 1, batch(n)))


def loaded(case: Case) -> tuple[IndexBench, Lines]:
    """Return an index with all filters of a case."""
    filters = Lines(corpora.stored_filters(corpora.Corpus(case.corpus, case.n)), True)
    index = IndexBench(case.mode)
    index.add(filters)
    return index, filters


def match(case: Case) -> TimeFunc:
    """Return a function that matches the traffic of a case."""
    index, _ = loaded(case)
    traffic = corpora.Corpus(case.corpus, case.n).traffic(case.traffic)
    topics = Lines(traffic.topics)
    few = min(8, topics.n)
    each = index.match(topics, 0, few)[0] / few
    some = max(few, min(topics.n, int(PASS_S / each)))
    expected = traffic.expected(0, some)

    def run(loops: int) -> float:
        total = 0.0
        for _ in range(loops):
            seconds, deliveries = index.match(topics, 0, some)
            assert deliveries == expected, f"{case}: {deliveries} deliveries, {expected} expected"
            total += seconds
        return total * topics.n / some

    return run


def insert(case: Case) -> TimeFunc:
    """Remove a batch and insert it again: the index keeps the size n."""
    index, filters = loaded(case)
    start = starts(case.n)

    def run(loops: int) -> float:
        seconds = {"insert": 0.0, "remove": 0.0}
        for first in itertools.islice(start, loops):
            seconds["remove"] += index.remove(filters, first, batch(case.n))
            seconds["insert"] += index.add(filters, first, batch(case.n))
        return seconds[case.operation]

    return run


def retain(case: Case) -> TimeFunc:
    """Return a function that removes and sets batches of retained topics."""
    topics = Lines(corpora.Corpus(case.corpus, case.n).retained())
    tree = RetainedBench()
    tree.set(topics)
    start = starts(case.n)

    def run(loops: int) -> float:
        total = 0.0
        for first in itertools.islice(start, loops):
            assert tree.remove(topics, first, batch(case.n))[1] == batch(case.n)
            total += tree.set(topics, first, batch(case.n))
        return total

    return run


def fetch(case: Case) -> TimeFunc:
    """Fetch all topics at once; the time is per topic."""
    topics = Lines(corpora.Corpus(case.corpus, case.n).retained())
    tree = RetainedBench()
    tree.set(topics)
    everything = Lines(b"#\n")

    def run(loops: int) -> float:
        total = 0.0
        for _ in range(loops):
            seconds, values = tree.fetch(everything)
            assert values == topics.n
            total += seconds
        return total

    return run


def pool(case: Case) -> TimeFunc:
    """Connect and disconnect all clients (one case each), or replace each client while all are connected."""
    clients = PoolBench(case.n, CLIENT_BYTES, 1000 if case.mode == "on" else 0)
    if case.operation == "pool-churn":
        clients.connect()

        def churn(loops: int) -> float:
            return sum(clients.churn() for _ in range(loops))

        return churn

    def waves(loops: int) -> float:
        come = go = 0.0
        for _ in range(loops):
            come += clients.connect()
            go += clients.disconnect()
        return come if case.operation == "pool-connect" else go

    return waves


def cases(sizes: list[int], names: list[str], modes: list[str], operations: list[str]) -> list[Case]:
    """Return the cases of all combinations, without those that take too long."""
    index = [Case("match", name, n, mode, traffic) for name in names for mode in modes for n in sizes
             for traffic in corpora.TRAFFIC]
    # for the other modes the ablation measures enough
    index += [Case(op, name, n, modes[0]) for op in ("insert", "remove") for name in names for n in sizes]
    found = [case for case in index if case.n <= MOST.get(case.mode, case.n)]
    found += [Case(op, name, n, "-") for op in ("retain", "fetch") for name in names for n in sizes
              if n <= RETAINED_MOST]
    found += [Case(op, "-", n, mode) for op in ("pool-connect", "pool-disconnect", "pool-churn") for n in sizes
              for mode in ("on", "off") if n <= POOL_MOST]
    return [case for case in found if not operations or case.operation in operations]


class Once:
    """Prepare a case at its first measurement: a worker of pyperf skips all cases but its own."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.run: TimeFunc | None = None

    def __call__(self, loops: int) -> float:
        if self.run is None:
            self.run = self.case.prepare()
        return self.run(loops)


def pass_on(command: list[str], args: argparse.Namespace) -> None:
    """Pass our own arguments to the workers of pyperf."""
    command += [f"--{name}={value}" for name in ("sizes", "corpora", "modes", "operations")
                if (value := getattr(args, name))]
    if args.quick:
        command.append("--quick")


def main() -> None:
    runner: Any = pyperf.Runner(values=3, processes=2, min_time=0.05, program_args=("-m", "perf.micro.bench_index"),
                                add_cmdline_args=pass_on, show_name=False)
    add = runner.argparser.add_argument
    add("--quick", action="store_true", help=f"{QUICK_CORPORA} of {QUICK_SIZES} filters, one process each")
    add("--sizes", help="numbers of filters, such as 1000,100000")
    add("--corpora", help=f"corpora, of {','.join(corpora.SHAPES)}")
    add("--modes", help=f"modes, of {','.join(MODES)}; insert and remove are measured in the first")
    add("--operations", help="operations, of match,insert,remove,retain,fetch,pool-connect,pool-disconnect,pool-churn")
    args = runner.parse_args()
    if args.quick:
        args.processes, args.values = 1, 3

    def choice(text: str | None, default: list[str]) -> list[str]:
        return text.split(",") if text else default

    sizes = [int(n) for n in choice(args.sizes, [str(n) for n in (QUICK_SIZES if args.quick else SIZES)])]
    names = choice(args.corpora, QUICK_CORPORA if args.quick else list(corpora.SHAPES))
    todo = cases(sizes, names, choice(args.modes, MODES), choice(args.operations, []))
    if args.worker:
        for case in todo:
            runner.bench_time_func(str(case), Once(case), inner_loops=case.inner_loops)
        return
    began = time.monotonic()
    for i, case in enumerate(todo, 1):
        with bench_lock(), contextlib.redirect_stdout(io.StringIO()):     # pyperf prints the same in more words
            bench = runner.bench_time_func(str(case), Once(case), inner_loops=case.inner_loops)
        cost = f"{bench.median() * 1e9:9,.0f} ns" if bench else "failed"
        print(f"[{i}/{len(todo)} {time.monotonic() - began:4.0f} s] {case}: {cost}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
