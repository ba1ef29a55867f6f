"""Write the page and its CSV files into a folder: report.html, and a file for each existing table."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from mosq.pipeline import MosqPipelineError
from mosq.pipeline.report import about_devices, about_sessions, about_values, left_out, sections
from mosq.pipeline.report.showing import names
from mosq.tools.bench.html import csv_files
from mosq.tools.bench.html.page import Kind, page
from mosq.tools.bench.html.parts import Section, Table, words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame

    from mosq.pipeline.report.gather import Tables

PIPELINE = Kind("mosq pipeline report", "how_pipeline.html", "the CSV file has them")
CSV_ROWS_MAX = 200_000
PAYLOAD_MAX = 1024  # most bytes of a payload that a row shows: all rows are in memory
PAGE = "report.html"
TIMES = ("window_start", "time", "connected_at", "last_seen", "since", "gap_from")
AT_ONCE = 3  # concurrent queries: their results are small, and planning a query uses one core


def contents(tables: Tables, progress: Callable[[str], None], more: list[Section] | None = None) -> list[Section]:
    """Return the sections, alarms first; sections with nothing to show are named at the end."""
    parts = (
        ("audit", about_sessions.audit),
        ("source", sections.source),
        ("traffic", sections.traffic),
        ("values", about_values.values),
        ("topics", lambda t: sections.ranked(t, "topics", "topic", "Topics", "Topics with most messages, over time.")),
        ("clients", lambda t: sections.ranked(t, "clients", "client_id", "Clients", "Clients that publish most.")),
        (
            "prefixes",
            lambda t: sections.ranked(
                t, "prefixes", "prefix", "Prefixes", "The messages by the first levels of their topic."
            ),
        ),
        ("latency", sections.latency),
        ("fan-out", sections.fan_out),
        ("drops", about_sessions.drops),
        ("sessions", about_sessions.churn),
        ("devices", about_devices.devices),
        ("backlog", about_sessions.backlog),
        ("quarantine", left_out.quarantine),
        ("late rows", left_out.late),
    )

    def made(part: tuple[str, Callable[[Tables], Section]]) -> Section:
        progress(f"reading {part[0]}")
        return part[1](tables)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        every = [*pool.map(made, parts), *(more or [])]
    shown = [section for section in every if section.filled]
    empty = [section for section in every if not section.filled]
    if empty:
        rest = Section("missing", "Missing sections", "Sections that had nothing to show, and why.")
        rest.tables = [
            Table(
                "",
                names("Section", "Reason"),
                tuple((words(one.heading), words(one.empty)) for one in empty),
            )
        ]
        shown.append(rest)
    return shown


def write(
    out: Path, title: str, tables: Tables, progress: Callable[[str], None], more: list[Section] | None = None
) -> list[Path]:
    """Write the page and the CSV files. Raises MosqPipelineError if the folder cannot be written."""
    shown = contents(tables, progress, more)
    head = [warning for section in shown for warning in section.warnings if warning.startswith("ALARM")]
    head = head or [note for one in shown if one.id == "audit" for note in one.notes][:1]
    html = page(
        title,
        head or [f"{about_sessions.without_account(tables).capitalize()}."],
        shown,
        progress,
        PIPELINE,
    )
    written = [out / PAGE]
    try:
        out.mkdir(parents=True, exist_ok=True)
        written[0].write_text(html, encoding="utf-8", errors="replace")
        for name, frame in (*tables.gold.items(), ("quarantine", tables.quarantine)):
            if frame is not None:
                progress(f"writing {name}.csv")
                csv_files.put(out, {f"{name}.csv": (frame.columns, _rows(frame))})
                written.append(out / f"{name}.csv")
    except OSError as error:
        raise MosqPipelineError(f"cannot write {error.filename or out}: {error.strerror}") from None
    return written


def _rows(frame: DataFrame) -> Iterator[list[Any]]:
    """Yield at most CSV_ROWS_MAX rows, the newest ones if the table has a time."""
    from pyspark.sql import functions as f

    at = next((name for name in TIMES if name in frame.columns), None)
    if "payload" in frame.columns:
        frame = frame.withColumn("payload", f.substring("payload", 1, PAYLOAD_MAX))
    ordered = frame if at is None else frame.orderBy(f.desc(at))
    for batch in ordered.limit(CSV_ROWS_MAX).toArrow().to_batches():
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield [_plain(value) for value in row]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value.isoformat() if hasattr(value, "isoformat") else value
