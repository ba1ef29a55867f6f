"""Make the section of the report about values: what the devices measured, as gold/telemetry adds it up."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from mosq.pipeline.report import gather
from mosq.pipeline.report.showing import figures, lines, listed, names, number
from mosq.tools.bench.html.figures import Spread
from mosq.tools.bench.html.parts import Chart, Line, Section, words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mosq.pipeline.report.gather import Span, Tables

ALL = "all topics"
BETWEEN = "\n"  # rule and field: the name of a rule has none


def values(tables: Tables) -> Section:
    """Return the section of the values that rules add up, for each field."""
    section = Section(
        "values",
        "Values",
        "Numbers in the messages, by rule and field, over time: the mean of each topic, or of all topics with the "
        "least and the greatest value.",
        empty="no rule [[silver]] adds up values: name its time_column or its values in the settings",
    )
    there = tables.over("telemetry")
    if there is None:
        return section
    frame, over = there
    from pyspark.sql import functions as f

    rows = (
        frame.groupBy("silver", "field")
        .agg(
            f.sum("count").alias("n"),
            f.count_distinct("topic").alias("topics"),
            f.min("min").alias("least"),
            (f.sum("sum") / f.sum("count")).alias("mean"),
            f.max("max").alias("most"),
        )
        .orderBy("silver", "field")
        .limit(gather.LISTED)
        .collect()
    )
    section.facts = [("Values", f"{sum(row.n for row in rows):,}"), ("Fields", f"{len(rows):,}")]
    section.charts = _charts(frame, over, rows[: gather.LINES])
    heads = (*names("Rule", "Field"), *figures("Values", "Topics", "Least", "Mean", "Greatest"))
    cells = tuple(
        (
            words(row.silver),
            words(row.field),
            number("count", row.n),
            number("count", row.topics),
            *(number("value", value) for value in (row.least, row["mean"], row.most)),
        )
        for row in rows
    )
    section.tables, section.folded = listed("", heads, cells)
    return section


def _charts(frame: Any, over: Span, rows: list[Any]) -> list[Chart]:
    """Return a chart for each field: a line for each topic if they are few."""
    from pyspark.sql import functions as f

    field = f.concat_ws(BETWEEN, "silver", "field")
    few = [f"{row.silver}{BETWEEN}{row.field}" for row in rows if row.topics <= gather.LINES]
    shown = [f"{row.silver}{BETWEEN}{row.field}" for row in rows]
    topic = f.when(field.isin(few), f.col("topic"))
    sums = (f.sum("sum") / f.sum("count")).alias("mean"), f.min("min").alias("least"), f.max("max").alias("most")
    found: dict[tuple[str, str], dict[str, list[Any]]] = {}
    points = frame.where(field.isin(shown)).groupBy(over.bin(), "silver", "field", topic.alias("topic")).agg(*sums)
    for row in points.orderBy("bin", "topic").collect():
        found.setdefault((row.silver, row.field), {}).setdefault(row.topic or "", []).append(row)
    return [
        chart
        for (rule, name), by_topic in sorted(found.items())
        for chart in lines(f"{rule}: {name}", "value", _lines(over, by_topic))
    ]


def _lines(over: Span, by_topic: dict[str, list[Any]]) -> Iterable[Line]:
    for slot, (topic, rows) in enumerate(sorted(by_topic.items())):
        known = [row for row in rows if all(map(math.isfinite, (row["mean"], row.least, row.most)))]
        points = tuple((over.at(row.bin), _spread(row, band=not topic)) for row in known)
        yield Line(topic or ALL, slot, False, points)


def _spread(row: Any, band: bool) -> Spread:
    return Spread(row["mean"], row.least, row.most, 2) if band else gather.once(row["mean"])
