"""Make the sections of the report about rows that are in no table: unreadable payloads, and late rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mosq.pipeline.report import gather
from mosq.pipeline.report.showing import bars, figures, lines, moment, names, number
from mosq.tools.bench.html.parts import Section, Table, words

if TYPE_CHECKING:
    from mosq.pipeline.report.gather import Tables

EXAMPLES = 20


def quarantine(tables: Tables) -> Section:
    """Return the section of unreadable payloads, by table and reason, with examples."""
    section = Section(
        "quarantine",
        "Quarantine",
        "Payloads that do not have the format of their topic in the settings, with the reason.",
        empty="every payload could be read, or no [[silver]] reads any",
    )
    frame = tables.quarantine
    if frame is None:
        return section
    from pyspark.sql import functions as f

    rows = (
        frame.groupBy("silver", "reason")
        .agg(f.count("*").alias("n"), f.count_distinct("topic").alias("topics"), f.max("time").alias("last"))
        .orderBy(f.desc("n"), "silver", "reason")
        .limit(gather.LISTED)
        .collect()
    )
    if not rows:
        return section
    last = (
        frame.orderBy(f.desc("time"))
        .select("time", "silver", "topic", "client_id", "reason", f.substring("payload", 1, 60).alias("payload"))
        .limit(EXAMPLES)
        .collect()
    )
    section.facts = [("Payloads", f"{frame.count():,}")]
    section.charts = bars("By reason", "count", [(f"{row.silver}: {row.reason}", row.n) for row in rows], 1)
    section.tables = [_by_reason(rows)]
    section.folded = [(f"The last {len(last)}", _examples(last))]
    return section


def _by_reason(rows: list[Any]) -> Table:
    return Table(
        "",
        (*names("Table", "Reason"), *figures("Payloads", "Topics"), *names("Last at")),
        tuple(
            (
                words(row.silver or ""),
                words(row.reason),
                number("count", row.n),
                number("count", row.topics),
                words(moment(row["last"])),
            )
            for row in rows
        ),
    )


def _examples(last: list[Any]) -> Table:
    return Table(
        "",
        names("Time", "Table", "Topic", "Client", "Reason", "Payload begins"),
        tuple(
            (
                words(moment(row.time)),
                words(row.silver or ""),
                words(row.topic or ""),
                words(row.client_id or ""),
                words(row.reason),
                words(_shown(row.payload)),
            )
            for row in last
        ),
    )


def _shown(payload: Any) -> str:
    text = bytes(payload or b"").decode(errors="replace")
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def late(tables: Tables) -> Section:
    """Return the section of late rows."""
    section = Section(
        "late",
        "Late rows",
        "Rows older than the watermark: their windows had been closed, so they are in no gold table.",
        empty="no row came late",
    )
    there = tables.over("late")
    if there is None:
        return section
    frame, over = there
    sums = gather.summed(frame, over, ("rows",))
    section.warnings = [
        f"{sum(one['rows'] for one in sums.values()):,} rows came late: bronze and silver have them, the windows here "
        "do not. A clock that was set back makes rows late; a longer watermark in the settings includes them."
    ]
    section.charts = lines(
        "Late rows by their own time", "count", [gather.counts(sums, over, "rows", "rows", 1)]
    )
    return section
