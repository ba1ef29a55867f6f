"""Write the figures as CSV.

The files are runs.csv (a row for each phase of each run), medians.csv (repetitions together), curves.csv (latency),
locust.csv and against.csv. Numbers are plain, times in microseconds. Texts are guarded so that a spreadsheet does not
run them as formulas.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

from mosq.tools.bench.html import figures
from mosq.tools.bench.spec import BenchError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from mosq.tools.bench.html.against import Change
    from mosq.tools.bench.html.lab import Lab
    from mosq.tools.bench.html.model import Key, Row

FORMULA = ("=", "+", "-", "@", "\t", "\r")
GUARD = "'"
KEY = ("suite", "test", "case", "x", "broker", "variant", "phase")
TIMES = ("mean_us", "stdev_us", "p50_us", "p90_us", "p99_us", "p999_us", "p9999_us", "max_us")
FIGURES = {"rate": figures.RATE, "cpu_us_per": figures.CPU, "generator_cpu_us_per": figures.GENERATOR,
           "run_time_us": figures.RUN_TIME, "rss_after_bytes": figures.RSS, "mean_us": figures.MEAN,
           "stdev_us": figures.DEVIATION, "p50_us": figures.P50, "p90_us": figures.P90, "p99_us": figures.P99,
           "p999_us": figures.P999, "max_us": figures.MOST}
Value = str | float | None


def write(folder: str, lab: Lab, changes: list[Change] | None) -> None:
    """Write all CSV files of the report. Raises BenchError if the folder cannot be written."""
    files: dict[str, tuple[tuple[str, ...], Iterable[tuple[Value, ...]]]] = {
        "runs.csv": (_run_heads(), (_run(row) for row in lab.folder.rows)),
        "medians.csv": ((*KEY, "title", "unit", "repetitions", "marks",
                         *(f"{name}{part}" for name in FIGURES for part in ("", "_least", "_most"))), _medians(lab)),
        "curves.csv": ((*KEY, "share_slower", "us"), _curves(lab))}
    if lab.folder.locust is not None:
        files["locust.csv"] = (("type", "name", "requests", "failures", "rate", "mean_us", "p50_us", "p95_us",
                                "p99_us", "max_us"),
                               ((entry.type, entry.name, entry.requests, entry.failures, entry.rate,
                                 *(entry.us.get(f"{name}_us") for name in ("mean", "p50", "p95", "p99", "max")))
                                for entry in lab.folder.locust.entries))
    if changes is not None:
        files["against.csv"] = (("verdict", "suite", "test", "case", "broker", "figure", "before", "after",
                                 "change", "noise"),
                                ((change.verdict, change.suite, change.test, change.place, change.broker,
                                  change.figure.name if change.figure else change.words,
                                  change.before.median if change.before else None,
                                  change.after.median if change.after else None, change.share, change.noise)
                                 for change in changes))
    try:
        put(Path(folder), files)
    except OSError as error:
        raise BenchError(f"cannot write {error.filename or folder}: {error.strerror}") from None


def put(folder: Path, files: Mapping[str, tuple[Sequence[str], Iterable[Iterable[Value]]]]) -> None:
    """Write the files. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (heads, rows) in files.items():
        with (folder / name).open("w", newline="", encoding="utf-8", errors="replace") as file:
            writer = csv.writer(file)
            writer.writerow(heads)
            writer.writerows([_safe(value) for value in row] for row in rows)


def _safe(value: Value) -> Value:
    return f"{GUARD}{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _key(key: Key) -> tuple[Value, ...]:
    return tuple(getattr(key, name) for name in KEY)


def _run_heads() -> tuple[str, ...]:
    return (*KEY, "title", "rep", "complete", "unit", "seconds", "per", "rate", "at_fixed_rate", "limit",
            "foreign_cpu_share", "cpu_us_per", "rss_after_bytes", "generator_cpu_us_per", *figures.FAULTS,
            *(f"{times}_{name}" for times in ("latency", "ack", "connect") for name in ("count", *TIMES)))


def _run(row: Row) -> tuple[Value, ...]:
    return (*_key(row.key), row.title, row.rep, int(row.complete), row.unit, row.seconds, row.per, row.rate,
            int(row.fixed_rate), row.limit, row.foreign_share, row.broker.get("cpu_us_per"),
            row.broker.get("rss_after_bytes"), row.generator.get("cpu_us_per"),
            *(row.counts[name] for name in figures.FAULTS),
            *(value for times in (row.latency, row.ack, row.connect)
              for value in (times.count, *(times.us.get(name) for name in TIMES))))


def _medians(lab: Lab) -> Iterator[tuple[Value, ...]]:
    for group in lab.groups:
        values: list[Value] = []
        for figure in FIGURES.values():
            value = group.of(figure)
            values += [value.median, value.least, value.most] if value else [None] * 3
        yield (*_key(group.key), group.row.title, group.row.unit, len(group.rows), group.marks, *values)


def _curves(lab: Lab) -> Iterator[tuple[Value, ...]]:
    for group in lab.groups:
        for share, us in figures.tail(group.rows):
            yield (*_key(group.key), share, us)
