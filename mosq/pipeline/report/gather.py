"""Reduce tables of any size to the few rows that a page shows.

Each function is one query of Spark with a bounded result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mosq.tools.bench.html.figures import Spread
from mosq.tools.bench.html.parts import Line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

POINTS = 60  # most points of a line over time
LINES = 6  # most lines of a chart
LISTED = 50  # most rows of a table
BARS = 15


@dataclass
class Lag:
    """Hold a stream's rows in bronze, its newer rows on the disk, and the waiting time of the oldest newer row."""

    stream: str
    rows: int
    behind: int
    behind_s: float | None


@dataclass
class Tables:
    """Hold the tables that exist; a missing one is None.

    The keys of `gold`: topics, clients, prefixes, latency, drops, churn, sessions, presence, devices, last_values,
    gaps, rates, backlog, audit, fanout, late, telemetry (docs/pipeline.md).
    """

    gold: Mapping[str, DataFrame]
    bronze: DataFrame | None = None
    quarantine: DataFrame | None = None
    lag: Sequence[Lag] = ()
    place: str = ""

    def get(self, name: str) -> DataFrame | None:
        return self.gold.get(name)

    def over(self, name: str, column: str = "window_start") -> tuple[DataFrame, Span] | None:
        """Return a table and the time that it covers, or None if it is missing or empty."""
        frame = self.get(name)
        covered = None if frame is None else span(frame, column)
        return None if frame is None or covered is None else (frame, covered)


@dataclass
class Span:
    """Hold the time that the windows of a table cover, cut into at most POINTS bins of whole windows."""

    first_s: float
    last_s: float
    width_s: float
    window_s: float
    column: str = "window_start"

    def bin(self) -> Column:
        from pyspark.sql import functions as f

        return f.floor((f.col(self.column).cast("double") - self.first_s) / self.width_s).cast("int").alias("bin")

    def at(self, bin: int) -> float:
        return self.first_s + bin * self.width_s

    def bins(self) -> range:
        return range(int((self.last_s - self.first_s) // self.width_s) + 1)


def span(frame: DataFrame, column: str = "window_start") -> Span | None:
    """Return the time that a table covers, or None if the table is empty."""
    from pyspark.sql import functions as f

    at = f.col(column).cast("double")
    window = f.max(f.col("window_end").cast("double") - at) if column == "window_start" else f.lit(1.0)
    ends = frame.agg(f.min(at).alias("first"), f.max(at).alias("last"), window.alias("window")).first()
    if ends is None or ends.first is None:
        return None
    width = ends.window or 1.0
    while (ends.last - ends.first) / width >= POINTS:
        width *= 2
    return Span(ends.first, ends.last, width, ends.window or 1.0, column)


def once(value: float) -> Spread:
    """Return a spread of a single value."""
    return Spread(value, value, value, 1)


def summed(frame: DataFrame, over: Span, names: Sequence[str]) -> dict[int, dict[str, int]]:
    """Return the sums of these columns in each bin."""
    from pyspark.sql import functions as f

    rows = frame.groupBy(over.bin()).agg(*(f.sum(name).alias(name) for name in names)).collect()
    return {row.bin: {name: row[name] or 0 for name in names} for row in rows}


def rates(sums: dict[int, dict[str, int]], over: Span, name: str, label: str, slot: int) -> Line:
    """Return a line per second; a bin without rows is 0."""
    return Line(
        label,
        slot,
        False,
        tuple((over.at(bin), once(sums.get(bin, {}).get(name, 0) / over.width_s)) for bin in over.bins()),
    )


def counts(sums: dict[int, dict[str, int]], over: Span, name: str, label: str, slot: int) -> Line:
    """Return a line of counts per bin."""
    return Line(label, slot, False, tuple((over.at(bin), once(sums.get(bin, {}).get(name, 0))) for bin in over.bins()))


def top(frame: DataFrame, key: str, names: Sequence[str], most: int = LISTED) -> list[Any]:
    """Return the keys with the largest sums of the first name."""
    from pyspark.sql import functions as f

    rows: list[Any] = (
        frame.groupBy(key)
        .agg(*(f.sum(name).alias(name) for name in names))
        .orderBy(f.desc(names[0]), key)
        .limit(most)
        .collect()
    )
    return rows


def of_keys(frame: DataFrame, over: Span, key: str, name: str, keys: Sequence[Any]) -> list[Line]:
    """Return a line per second for each of these keys."""
    from pyspark.sql import functions as f

    rows = frame.where(f.col(key).isin(list(keys))).groupBy(over.bin(), key).agg(f.sum(name).alias("n")).collect()
    found: dict[Any, dict[int, dict[str, int]]] = {}
    for row in rows:
        found.setdefault(row[key], {})[row.bin] = {name: row.n}
    return [rates(found.get(one, {}), over, name, str(one), slot) for slot, one in enumerate(keys)]


def worst(frame: DataFrame, over: Span, names: Sequence[str]) -> dict[int, dict[str, float]]:
    """Return the largest values in each bin."""
    from pyspark.sql import functions as f

    rows = frame.groupBy(over.bin()).agg(*(f.max(name).alias(name) for name in names)).collect()
    return {row.bin: {name: row[name] for name in names if row[name] is not None} for row in rows}


def drawn(found: dict[int, dict[str, float]], over: Span, name: str, label: str, slot: int) -> Line | None:
    """Return a line of the bins that have a value, or None if there is none."""
    points = tuple((over.at(bin), once(float(found[bin][name]))) for bin in over.bins() if name in found.get(bin, {}))
    return Line(label, slot, False, points) if points else None
