"""The ablation of the index, in this process: all variants of a corpus and size stand side by side and take turns."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from cext.topic.bench import IndexBench, Lines, PoolBench

from perf.ablation.rows import Row
from perf.ablation.variants import VARIANTS
from perf.lock import bench_lock
from perf.micro import corpora
from perf.micro.bench_index import BATCH, CLIENT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = [1, 1_000, 10_000, 100_000, 1_000_000]
QUICK_SIZES = [1, 1_000, 100_000]
LOAD_S = 10.0                   # a variant that takes longer to load is left out at this size
TURN_S = 0.02                   # a variant's turn takes about so long
LEAST_LINES = 1_000             # in one turn: fewer would measure the call
POOL_SIZES = [1, 10_000]


class Subject:
    """One variant over one corpus."""

    def __init__(self, options: dict[str, object], filters: Lines, traffic: dict[str, corpora.Traffic]) -> None:
        self.filters = filters
        self.index = IndexBench(**options)      # type: ignore[arg-type]
        self.times = {name: -(-LEAST_LINES // len(t)) for name, t in traffic.items()}
        self.traffic = traffic
        self.topics: dict[str, Lines] = {}
        self.some: dict[str, int] = {}

    def load(self) -> bool:
        """False: it would take too long."""
        began = time.monotonic()
        step = min(self.filters.n, 5_000)
        for first in range(0, self.filters.n, step):
            self.index.add(self.filters, first, min(step, self.filters.n - first))
            if time.monotonic() - began > LOAD_S:
                return False
        for name, traffic in self.traffic.items():
            self.topics[name] = lines = Lines(traffic.topics * self.times[name])
            few = min(8, lines.n)
            self.some[name] = max(few, min(lines.n, int(TURN_S * few / max(self.index.match(lines, 0, few)[0], 1e-9))))
        return True

    def match(self, name: str, rep: int) -> float:
        """ns; each turn begins elsewhere in the traffic."""
        lines, some = self.topics[name], self.some[name]
        first = rep * some % (lines.n - some + 1)
        seconds, deliveries = self.index.match(lines, first, some)
        promised = (self.traffic[name].deliveries * self.times[name])[first:first + some]
        assert deliveries == sum(promised), f"{deliveries} deliveries, {sum(promised)} promised"
        return seconds / some * 1e9

    def change(self, rep: int) -> tuple[float, float]:
        """ns of an insertion and of a removal, in random places; the size stays."""
        n = self.filters.n
        batch = max(1, min(BATCH, n // 10))
        insert = remove = 0.0
        began = time.monotonic()
        done = 0
        while done < 5 * LEAST_LINES and time.monotonic() - began < 2 * TURN_S:
            first = (rep * 5 * LEAST_LINES + done) % (n - batch + 1)
            remove += self.index.remove(self.filters, first, batch)
            insert += self.index.add(self.filters, first, batch)
            done += batch
        return insert / done * 1e9, remove / done * 1e9


def compare(name: str, n: int, names: list[str], reps: int) -> Iterator[Row]:
    corpus = corpora.Corpus(name, n)
    filters = Lines(corpora.kept(corpus), True)
    traffic = {kind: corpus.traffic(kind) for kind in corpora.TRAFFIC}
    subjects: dict[str, Subject] = {}
    for variant in VARIANTS:
        if variant.index is None or variant.name not in names:
            continue
        subject = Subject(variant.index, filters, traffic)
        if subject.load():
            subjects[variant.name] = subject
            yield Row("index", "bytes per filter", name, n, variant.name, 0, subject.index.stats()["bytes"] / n)
        else:
            note = f"over {LOAD_S:.0f} s to load"
            yield from (Row("index", measure, name, n, variant.name, 0, 0, note) for measure in ("match, hot", "match, wide", "insert"))
    turn = list(subjects)
    for rep in range(reps):
        for measure in [f"match, {kind}" for kind in traffic] + ["insert"]:
            turn = turn[1:] + turn[:1]          # nobody is always first
            for variant_name in turn:
                subject = subjects[variant_name]
                if measure == "insert":
                    insert, remove = subject.change(rep)
                    yield Row("index", "insert", name, n, variant_name, rep, insert)
                    yield Row("index", "remove", name, n, variant_name, rep, remove)
                else:
                    yield Row("index", measure, name, n, variant_name, rep, subject.match(measure.partition(", ")[2], rep))


def compare_pool(n: int, reps: int) -> Iterator[Row]:
    subjects = {"default": 1000, "default again": 1000, "no pool": 0}
    for rep in range(reps):
        for variant, grow in subjects.items():
            pool = PoolBench(n, CLIENT_BYTES, grow)
            waves = max(3, 20_000 // n)
            come = sum(pool.connect() + pool.disconnect() for _ in range(waves))
            pool.connect()
            stay = sum(pool.churn() for _ in range(waves))
            yield Row("index", "pool, all come and go", "clients", n, variant, rep, come / waves / n * 1e9)
            yield Row("index", "pool, one goes and one comes", "clients", n, variant, rep, stay / waves / n * 1e9)


def run(sizes: list[int], places: list[str], names: list[str], reps: int) -> Iterator[Row]:
    began = time.monotonic()
    for n in sizes:
        for place in places:
            print(f"[index {time.monotonic() - began:4.0f} s] {place} {n}", file=sys.stderr, flush=True)
            with bench_lock():
                yield from compare(place, n, names, reps)
    if "no pool" in names:
        for n in POOL_SIZES:
            with bench_lock():
                yield from compare_pool(n, reps)
