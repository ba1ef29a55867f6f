"""Combine repetitions: medians with their spread, added histograms, and the figures of a row."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mosq.tools.bench.report import FOREIGN_SHARE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mosq.tools.bench.html.model import Folder, Key, Row

# points of a percentile curve, as shares of messages that took longer
TAILS = (1.0, 0.9, 0.75, 0.5, 0.35, 0.25, 0.18, 0.1, 0.05, 0.025, 0.01, 0.005, 0.0025, 0.001, 0.0005, 0.00025, 0.0001)
SUMMARY = (("p50_us", 0.5), ("p90_us", 0.1), ("p99_us", 0.01), ("p999_us", 0.001), ("p9999_us", 0.0001))


@dataclass(frozen=True)
class Spread:
    """Hold the range of n repetitions."""

    median: float           # the median, or the result of `Figure.together`
    least: float
    most: float
    n: int


def spread(values: Iterable[float | None]) -> Spread | None:
    """Return the spread of the known values, or None if there is none."""
    known = [value for value in values if value is not None]
    return Spread(statistics.median(known), min(known), max(known), len(known)) if known else None


@dataclass(frozen=True)
class Group:
    """Hold the complete repetitions of one measurement."""

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
        """Return letters that mark doubts; the page explains them."""
        found = ""
        if mostly(limited(row.limit, row.seconds) for row in self.rows):
            found += "g"
        if mostly(disturbed(row.foreign_share, row.seconds) for row in self.rows):
            found += "f"
        if any(faults(row) for row in self.rows):
            found += "x"
        return found


LEAST_S = 0.05                   # least duration in seconds: CPU of others is counted in ticks of 10 ms on each core


def mostly(found: Iterable[bool]) -> bool:
    """Return whether more than half of the values are true."""
    flags = list(found)
    return 2 * sum(flags) > len(flags)


def limited(limit: str, seconds: float) -> bool:
    """Return whether the generator limited the rate."""
    return limit == "generator" and seconds >= LEAST_S


def disturbed(share: float, seconds: float) -> bool:
    """Return whether other programs used so much of a core that times suffer."""
    return share > FOREIGN_SHARE and seconds >= LEAST_S and share * seconds > LEAST_S


MARKS = {"g": "the load generator was the bottleneck: the broker can carry more than this",
         "f": "other programs used more than a quarter of a core: rates and latencies suffer",
         "x": "messages were lost, duplicated, out of order, refused or never sent"}
FAULTS = ("lost", "duplicates", "out_of_order", "refused", "unsent", "unacknowledged", "closed")


def faults(row: Row) -> int:
    """Return the number of messages with faults."""
    return sum(row.counts[name] for name in FAULTS)


@dataclass(frozen=True)
class Figure:
    """Hold one quantity of a row. `kind` selects its units (see numbers.py)."""

    name: str
    kind: str
    value: Callable[[Row], float | None]
    better: int = -1            # -1: less is better; 1: more is better
    together: Callable[[Iterable[Row]], float | None] | None = None     # combines repetitions; None: their median


def cpu_us(row: Row) -> float | None:
    """Return the broker's CPU in microseconds per message, or None if unknown."""
    return row.broker.get("cpu_us_per") or None         # 0: the run was too short to measure it


def rate(row: Row) -> float | None:
    """Return messages per second, or None for a run at a fixed rate."""
    return None if row.fixed_rate else row.rate or None


def of_core(row: Row) -> float | None:
    """Return the messages per second that one core could carry."""
    cpu = cpu_us(row)
    return 1e6 / cpu if cpu else None


def delay(name: str) -> Callable[[Row], float | None]:
    """Return a function for one figure of the durations, in microseconds."""
    return lambda row: row.times.us.get(name)


def memory(row: Row) -> float | None:
    """Return the broker's memory at the end in bytes, or None if unknown."""
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


# ---------------------------------------------------------------- as the paper defines them

def _seconds(rows: Iterable[Row]) -> float:
    return statistics.fmean(row.seconds * 1e6 for row in rows)


def _most(rows: Iterable[Row]) -> float | None:
    return max((us for row in rows if (us := row.times.us.get("max_us")) is not None), default=None)


def _mean_of_all(rows: Iterable[Row]) -> float | None:
    return _moments(rows)[0]


def _deviation_of_all(rows: Iterable[Row]) -> float | None:
    return _moments(rows)[1]


def _moments(rows: Iterable[Row]) -> tuple[float | None, float | None]:
    """Return mean and deviation of the messages of all repetitions, as if they were one run.

    Rows without a mean are left out; without a deviation in any row the deviation is None.
    """
    rows_known = [(row.times.count, row.times.us.get("mean_us"), row.times.us.get("stdev_us")) for row in rows]
    known = [(count, mean, deviation) for count, mean, deviation in rows_known if mean is not None]
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
    """Return the figure for a size such as bytes_per_client."""
    return Figure(name, "bytes", lambda row: row.sizes.get(name))


def groups(folder: Folder) -> list[Group]:
    """Return the measurements in the order in which they ran, without incomplete runs."""
    found: dict[Key, list[Row]] = {}
    for row in folder.rows:
        if row.complete:
            found.setdefault(row.key, []).append(row)
    return [Group(key, tuple(rows)) for key, rows in found.items()]


def tail(rows: Iterable[Row]) -> list[tuple[float, float]]:
    """Return (share of messages that took longer, microseconds), over all repetitions."""
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
            if share * total >= 1:          # at least one message took longer
                points.append((share, (first + last - 1) / 2e3))
    return points


def _of_summaries(rows: list[Row]) -> list[tuple[float, float]]:
    points = []
    for name, share in SUMMARY:
        known = spread(row.times.us.get(name) for row in rows)
        if known and share * sum(row.times.count for row in rows) >= 1:
            points.append((share, known.median))
    return points
