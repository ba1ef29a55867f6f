"""Measure the ablation of the index in this process: all variants of a corpus and size take turns."""

from __future__ import annotations

import random
import sys
import time
from typing import TYPE_CHECKING, Any

from cext.testing.topic_bench import IndexBench, Lines, PoolBench
from perf.ablation.rows import Row
from perf.ablation.variants import AGAIN, DEFAULT, VARIANTS
from perf.lock import bench_lock
from perf.micro import BATCH, CLIENT_BYTES, corpora

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = [1, 1_000, 10_000, 100_000, 1_000_000]
QUICK_SIZES = [1, 1_000, 100_000]
LOAD_S = 5.0                    # most seconds to load a variant; a slower one is left out at this size
TURN_S = 0.02                   # approximate seconds of a variant's turn
TURNS = 3                       # turns between two loads
CHANGES = 5_000                 # most changes in one turn
LEAST_LINES = 1_000             # least topics in one turn; fewer would measure the call
POOL_SIZES = [1, 10_000]


class Subject:
    """Hold one variant over one corpus."""

    def __init__(self, options: dict[str, Any], filters: Lines, traffic: dict[str, tuple[Lines, bytes]]) -> None:
        self.filters = filters
        self.index = IndexBench(**options)
        self.traffic = traffic

    def load(self) -> bool:
        """Load the filters; return False if it takes longer than LOAD_S."""
        began = time.monotonic()
        step = min(self.filters.n, 5_000)
        for first in range(0, self.filters.n, step):
            self.index.add(self.filters, first, min(step, self.filters.n - first))
            if time.monotonic() - began > LOAD_S:
                return False
        return True

    def match(self, kind: str) -> float:
        """Return ns per match; the first pass over the traffic warms the caches and does not count."""
        lines, deliveries = self.traffic[kind]
        some = min(8, lines.n)
        some = max(some, min(lines.n, int(TURN_S * some / max(self.index.match(lines, 0, some)[0], 1e-9))))
        expected = sum(deliveries[:some])
        total, passes = 0.0, -1
        while total < TURN_S:
            seconds, found = self.index.match(lines, 0, some)
            assert found == expected, f"{found} deliveries, {expected} expected"
            passes += 1
            total += seconds if passes else 0.0
        return total / passes / some * 1e9

    def change(self, turn: int) -> tuple[float, float]:
        """Return ns of an insertion and of a removal at random places; the size of the index stays the same."""
        n = self.filters.n
        batch = max(1, min(BATCH, n // 10))
        insert = remove = 0.0
        done = 0
        while insert + remove < TURN_S and done < CHANGES:
            first = (turn * CHANGES + done) % (n - batch + 1)
            remove += self.index.remove(self.filters, first, batch)
            insert += self.index.add(self.filters, first, batch)
            done += batch
        return insert / done * 1e9, remove / done * 1e9


def traffic_of(corpus: corpora.Corpus) -> dict[str, tuple[Lines, bytes]]:
    """Return topics and the deliveries of each; a short list is repeated, or the call itself would be measured."""
    found = {}
    for kind in corpora.TRAFFIC:
        traffic = corpus.traffic(kind)
        times = -(-LEAST_LINES // len(traffic))
        found[kind] = Lines(traffic.topics * times), traffic.deliveries * times
    return found


def compare(name: str, n: int, names: list[str], lives: int) -> Iterator[Row]:
    """Yield rows; before each life all variants are loaded again in another order, because places in memory are random.
    """
    corpus = corpora.Corpus(name, n)
    filters = Lines(corpora.stored_filters(corpus), True)
    traffic = traffic_of(corpus)
    chosen = [v for v in VARIANTS if v.index is not None and v.name in names and n <= v.most]
    for life in range(lives):
        random.Random(life).shuffle(chosen)
        subjects: dict[str, Subject] = {}
        for variant in list(chosen):
            subject = Subject(variant.index or {}, filters, traffic)
            if subject.load():
                subjects[variant.name] = subject
                yield Row("index", "bytes per filter", name, n, variant.name, life, subject.index.stats()["bytes"] / n)
            else:
                chosen.remove(variant)
                note = f"over {LOAD_S:.0f} s to load"
                yield from (Row("index", measure, name, n, variant.name, life, 0, note)
                            for measure in ("match, hot", "match, wide", "insert", "remove"))
        for turn in range(TURNS):
            for measure in [f"match, {kind}" for kind in traffic] + ["insert"]:
                yield from take_turns(subjects, measure, name, n, life * TURNS + turn)


def take_turns(subjects: dict[str, Subject], measure: str, place: str, n: int, rep: int) -> Iterator[Row]:
    """Yield the rows of one measure for all variants, in random order."""
    names = list(subjects)
    random.Random(rep).shuffle(names)           # so that no variant is always the first
    for name in names:
        if measure == "insert":
            insert, remove = subjects[name].change(rep)
            yield Row("index", "insert", place, n, name, rep, insert)
            yield Row("index", "remove", place, n, name, rep, remove)
        else:
            yield Row("index", measure, place, n, name, rep, subjects[name].match(measure.partition(", ")[2]))


def compare_pool(n: int, reps: int) -> Iterator[Row]:
    """Yield the rows of the pool of client contexts with n clients."""
    subjects = [(DEFAULT, 1000), (AGAIN, 1000), ("no pool", 0)]
    for rep in range(reps):
        random.Random(rep).shuffle(subjects)
        for variant, grow in subjects:
            pool = PoolBench(n, CLIENT_BYTES, grow)
            waves = max(3, 20_000 // n)
            come = sum(pool.connect() + pool.disconnect() for _ in range(waves))
            pool.connect()
            stay = sum(pool.churn() for _ in range(waves))
            yield Row("index", "pool, all come and go", "clients", n, variant, rep, come / waves / n * 1e9)
            yield Row("index", "pool, one goes and one comes", "clients", n, variant, rep, stay / waves / n * 1e9)


def run(sizes: list[int], places: list[str], names: list[str], lives: int) -> Iterator[Row]:
    """Yield the rows of all sizes and corpora."""
    began = time.monotonic()
    for n in sizes:
        for place in places:
            print(f"[index {time.monotonic() - began:4.0f} s] {place} {n}", file=sys.stderr, flush=True)
            with bench_lock():
                yield from compare(place, n, names, lives)
    if "no pool" in names:
        for n in POOL_SIZES:
            with bench_lock():
                yield from compare_pool(n, lives * TURNS)
