"""Repetitions brought together: medians with their spread, histograms added, and the figures that are shown of a
row."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mosq.tools.bench.report import FOREIGN_SHARE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mosq.tools.bench.html.model import Folder, Key, Row

# what a percentile curve is drawn through, as shares of messages that took longer
TAILS = (1.0, 0.9, 0.75, 0.5, 0.35, 0.25, 0.18, 0.1, 0.05, 0.025, 0.01, 0.005, 0.0025, 0.001, 0.0005, 0.00025, 0.0001)
SUMMARY = (("p50_us", 0.5), ("p90_us", 0.1), ("p99_us", 0.01), ("p999_us", 0.001), ("p9999_us", 0.0001))


@dataclass(frozen=True)
class Spread:
    median: float           # or what the figure takes of its repetitions instead
    least: float
    most: float
    n: int


def spread(values: Iterable[float | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return Spread(statistics.median(known), min(known), max(known), len(known)) if known else None


@dataclass(frozen=True)
class Group:
    """The repetitions of one measurement that came to their end."""

    key: Key
    rows: tuple[Row, ...]

    @property
    def row(self) -> Row:
        return self.rows[0]

    def of(self, figure: Figure) -> Spread | None:
        found = spread(figure.value(row) for row in self.rows)
        together = figure.together(self.rows) if found and figure.together else None
        return found if found is None or together is None else replace(found, median=together)

    @property
    def marks(self) -> str:
        """What to beware of: a letter each, explained where they are shown."""
        found = ""
        if mostly(limited(row.limit, row.seconds) for row in self.rows):
            found += "g"
        if mostly(disturbed(row.foreign_share, row.seconds) for row in self.rows):
            found += "f"
        if any(faults(row) for row in self.rows):
            found += "x"
        return found


TOLD_S = 0.05                   # CPU of others comes in ticks of 10 ms, on each core: below it nothing can be told


def mostly(found: Iterable[bool]) -> bool:
    told = list(found)
    return 2 * sum(told) > len(told)


def limited(limit: str, seconds: float) -> bool:
    """By the generator."""
    return limit == "generator" and seconds >= TOLD_S


def disturbed(share: float, seconds: float) -> bool:
    """Others used so much of a core that times suffer."""
    return share > FOREIGN_SHARE and seconds >= TOLD_S and share * seconds > TOLD_S


MARKS = {"g": "the load generator was the bottleneck: the broker can carry more than this",
         "f": "other programs used more than a quarter of a core: rates and latencies suffer",
         "x": "messages were lost, duplicated, out of order, refused or never sent"}
FAULTS = ("lost", "duplicates", "out_of_order", "refused", "unsent", "unacknowledged", "closed")


def faults(row: Row) -> int:
    return sum(row.counts[name] for name in FAULTS)


@dataclass(frozen=True)
class Figure:
    """One quantity of a row. kind says in which units it is shown (see numbers.py)."""

    name: str
    kind: str
    value: Callable[[Row], float | None]
    better: int = -1            # -1: less is better, 1: more is
    together: Callable[[Iterable[Row]], float | None] | None = None     # of the repetitions; None: their median


def cpu_us(row: Row) -> float | None:
    return row.broker.get("cpu_us_per") or None         # 0: the run was too short to see it


def rate(row: Row) -> float | None:
    return None if row.fixed_rate else row.rate or None


def of_core(row: Row) -> float | None:
    cpu = cpu_us(row)
    return 1e6 / cpu if cpu else None


def delay(name: str) -> Callable[[Row], float | None]:
    return lambda row: row.times.us.get(name)


def memory(row: Row) -> float | None:
    return row.broker.get("rss_after_bytes") or None


def _generator_us(row: Row) -> float | None:
    return row.generator.get("cpu_us_per")


CPU = Figure("CPU per message", "cpu", cpu_us)
RATE = Figure("Throughput", "rate", rate, 1)
OF_CORE = Figure("Messages a second of one core", "rate", of_core, 1)
P50, P90, P99, P999, MOST, MEAN, DEVIATION = (
    Figure(name, "time", delay(key)) for name, key in (
        ("p50", "p50_us"), ("p90", "p90_us"), ("p99", "p99_us"), ("p99.9", "p999_us"), ("maximum", "max_us"),
        ("mean", "mean_us"), ("deviation", "stdev_us")))
RSS = Figure("Memory", "bytes", memory)
GENERATOR = Figure("CPU per message of the generator", "cpu", _generator_us)
RUN_TIME = Figure("Run time", "time", lambda row: row.seconds * 1e6 or None)


# ---------------------------------------------------------------- as the paper tells them

def _seconds(rows: Iterable[Row]) -> float:
    return statistics.fmean(row.seconds * 1e6 for row in rows)


def _most(rows: Iterable[Row]) -> float | None:
    return max((us for row in rows if (us := row.times.us.get("max_us")) is not None), default=None)


def _mean_of_all(rows: Iterable[Row]) -> float | None:
    return _moments(rows)[0]


def _deviation_of_all(rows: Iterable[Row]) -> float | None:
    return _moments(rows)[1]


def _moments(rows: Iterable[Row]) -> tuple[float | None, float | None]:
    """Mean and deviation of the messages of all repetitions, as if they were one; without what did not tell both."""
    told = [(row.times.count, row.times.us.get("mean_us"), row.times.us.get("stdev_us")) for row in rows]
    known = [(count, mean, deviation) for count, mean, deviation in told if mean is not None]
    total = sum(count for count, _, _ in known)
    if not total:
        return None, None
    middle = sum(count * mean for count, mean, _ in known) / total
    if any(deviation is None for _, _, deviation in known):
        return middle, None
    squares = sum(count * ((deviation or 0.0) ** 2 + (mean - middle) ** 2) for count, mean, deviation in known)
    return middle, math.sqrt(squares / total)


PAPER = tuple(Figure(name, "time", figure.value, together=together) for name, figure, together in (
    ("mean run time", RUN_TIME, _seconds), ("mean delay of all", MEAN, _mean_of_all),
    ("deviation of all delays", DEVIATION, _deviation_of_all), ("largest delay", MOST, _most)))


def sized(name: str) -> Figure:
    return Figure(name, "bytes", lambda row: row.sizes.get(name))


def groups(folder: Folder) -> list[Group]:
    """In the order in which they were measured; without what broke off."""
    found: dict[Key, list[Row]] = {}
    for row in folder.rows:
        if row.complete:
            found.setdefault(row.key, []).append(row)
    return [Group(key, tuple(rows)) for key, rows in found.items()]


def tail(rows: Iterable[Row]) -> list[tuple[float, float]]:
    """(share of messages that took longer, microseconds), of all repetitions together."""
    rows = list(rows)
    merged: dict[int, tuple[int, int]] = {}
    for row in rows:
        buckets = row.times.buckets
        for at in range(0, len(buckets), 3):
            first, last, n = buckets[at:at + 3]
            merged[first] = (last, merged.get(first, (0, 0))[1] + n)
    total = sum(n for _, n in merged.values())
    if not total:
        return _of_summaries(rows)
    points, seen, ladder = [], 0, list(TAILS)
    for first in sorted(merged):
        last, n = merged[first]
        seen += n
        while ladder and seen >= (1 - ladder[0]) * total and seen:
            share = ladder.pop(0)
            if share * total >= 1:          # one message at least is beyond
                points.append((share, (first + last - 1) / 2e3))
    return points


def _of_summaries(rows: list[Row]) -> list[tuple[float, float]]:
    points = []
    for name, share in SUMMARY:
        known = spread(row.times.us.get(name) for row in rows)
        if known and share * sum(row.times.count for row in rows) >= 1:
            points.append((share, known.median))
    return points
