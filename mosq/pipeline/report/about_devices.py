"""Make the section of the report about devices: which are offline, gaps in their telemetry, and unusual rates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mosq.pipeline.report import gather
from mosq.pipeline.report.showing import figures, listed, moment, names, number, seconds
from mosq.tools.bench.html.parts import Cell, Head, Section, words

if TYPE_CHECKING:
    from mosq.pipeline.report.gather import Tables


def devices(tables: Tables) -> Section:
    """Return the section of the devices as the last batch found them."""
    section = Section(
        "devices",
        "Devices",
        "Clients that are offline, intervals of more than three usual ones, and windows with an unusual number of "
        "messages. docs/pipeline.md explains how they are found.",
        empty="no device sent a message",
    )
    there = tables.get("devices")
    n = 0 if there is None else there.count()
    if not n:
        return section
    section.facts = [("Clients on a topic", f"{n:,}")]
    _presence(tables, section)
    _gaps(tables, section)
    _rates(tables, section)
    return section


def _presence(tables: Tables, section: Section) -> None:
    frame = tables.get("presence")
    if frame is None:
        return
    from pyspark.sql import functions as f

    totals = frame.agg(f.count("*").alias("n"), f.count_if(f.col("online")).alias("online")).first()
    if not totals.n:
        return
    section.facts += [("Clients online", f"{totals.online:,}"), ("Clients offline", f"{totals.n - totals.online:,}")]
    rows = frame.where(~f.col("online")).orderBy(f.desc("since"), "client_id").limit(gather.LISTED).collect()
    if rows:
        heads = (*names("Client", "Node", "State", "Since"), *figures("Connects"))
        cells = (
            (
                words(row.client_id),
                words(row.node),
                words(row.state),
                words(moment(row.since)),
                number("count", row.connects),
            )
            for row in rows
        )
        _add(section, "Offline clients, the last ones first", heads, tuple(cells))


def _gaps(tables: Tables, section: Section) -> None:
    frame = tables.get("gaps")
    if frame is None:
        return
    from pyspark.sql import functions as f

    totals = frame.agg(f.count("*").alias("n"), f.count_if(f.col("gap_to").isNull()).alias("silent")).first()
    section.facts += [("Gaps in telemetry", f"{totals.n:,}"), ("Silent now", f"{totals.silent:,}")]
    rows = frame.orderBy(f.desc("gap_s"), "topic", "client_id").limit(gather.LISTED).collect()
    if rows:
        heads = (*names("Topic", "Client", "Node", "From", "To"), *figures("Gap", "Usual interval", "Missing"))
        _add(section, "Longest gaps", heads, tuple(map(_gap, rows)))


def _gap(row: Any) -> tuple[Cell, ...]:
    return (
        words(row.topic),
        words(row.client_id),
        words(row.node),
        words(moment(row.gap_from)),
        words("still silent", tone="bad") if row.gap_to is None else words(moment(row.gap_to)),
        Cell(seconds(row.gap_s)),
        Cell(seconds(row.usual_s)),
        number("count", row.missing),
    )


def _rates(tables: Tables, section: Section) -> None:
    frame = tables.get("rates")
    if frame is None:
        return
    from pyspark.sql import functions as f

    section.facts.append(("Windows with an unusual rate", f"{frame.count():,}"))
    distance = f.abs(f.col("messages") - f.col("usual")) / (f.col("high") - f.col("usual"))
    rows = frame.orderBy(f.desc(distance), "window_start", "topic").limit(gather.LISTED).collect()
    if rows:
        heads = (*names("Window", "Topic", "Client", "Node"), *figures("Messages", "Usual", "Low", "High"))
        cells = (
            (
                words(moment(row.window_start)),
                words(row.topic),
                words(row.client_id),
                words(row.node),
                *(number("count", value) for value in (row.messages, row.usual, row.low, row.high)),
            )
            for row in rows
        )
        _add(section, "Most unusual rates", heads, tuple(cells))


def _add(section: Section, title: str, heads: tuple[Head, ...], rows: tuple[tuple[Cell, ...], ...]) -> None:
    """Add a table of the first rows, and a folded one of all if there are more."""
    first, folded = listed(title, heads, rows)
    section.tables += first
    section.folded += [(f"{title}: {label[0].lower()}{label[1:]}", table) for label, table in folded]
