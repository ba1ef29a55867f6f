"""Make the sections of the report about traffic.

Each section is a function of the tables; it returns its content, or the reason why it is empty. The sections about
sessions are in about_sessions.py, those about rows that are in no table in left_out.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mosq.journal.kinds import GAP, MESSAGE
from mosq.pipeline.report import gather
from mosq.pipeline.report.showing import bars, figures, lines, listed, moment, moment_s, names, number, seconds
from mosq.tools.bench.html import numbers
from mosq.tools.bench.html.parts import Cell, Section, Table, words

if TYPE_CHECKING:
    from mosq.pipeline.report.gather import Tables

RUN = "`mosq pipeline run` has not written it yet"

# ---------------------------------------------------------------- the source


def source(tables: Tables) -> Section:
    """Return the section of the tables, the time that they cover, and their lag."""
    from pyspark.sql import functions as f

    section = Section(
        "source",
        "Source",
        "Which tables were read, the time that they cover, and how far they are behind the broker.",
    )
    section.facts.append(("Tables", tables.place))
    if tables.bronze is not None:
        totals = tables.bronze.agg(
            f.count("*").alias("n"),
            f.min("time").alias("first"),
            f.max("time").alias("last"),
            f.sum((f.col("kind") == MESSAGE).cast("long")).alias("messages"),
            f.sum((f.col("kind") == GAP).cast("long")).alias("gaps"),
        ).first()
        section.facts += [
            ("Rows in bronze", f"{totals.n:,}, of which {totals.messages or 0:,} are messages"),
            ("From", moment(totals["first"])),
            ("To", moment(totals["last"])),
        ]
        if totals.gaps:
            section.warnings.append(
                f"{totals.gaps:,} times the broker could not write its events: figures from events are too low."
            )
    if tables.lag:
        behind = sum(one.behind for one in tables.lag)
        rows = tuple(
            (
                words(one.stream),
                number("count", one.rows),
                number("count", one.behind, "bad" if one.behind else ""),
                Cell("" if one.behind_s is None else seconds(one.behind_s)),
            )
            for one in tables.lag
        )
        heads = (*names("Stream"), *figures("Rows in bronze", "Behind", "Behind by"))
        section.tables.append(Table("How far the tables are", heads, rows))
        section.notes.append(
            f"{behind:,} records are on the disk but not in the tables yet: `mosq pipeline run --once` reads them."
            if behind
            else "All records on the disk are in the tables."
        )
    return section


def traffic(tables: Tables) -> Section:
    """Return the section of messages and bytes over time."""
    section = Section(
        "traffic",
        "Traffic",
        "Messages and bytes of payload that the broker received, over time.",
        empty=f"no gold/topics: {RUN}",
    )
    there = tables.over("topics")
    if there is None:
        return section
    frame, over = there
    sums = gather.summed(frame, over, ("messages", "bytes"))
    messages, n_bytes = (sum(one[name] for one in sums.values()) for name in ("messages", "bytes"))
    length_s = over.last_s - over.first_s + over.window_s
    busiest = max(sums, key=lambda one: sums[one]["messages"])
    section.facts = [
        ("Messages", f"{messages:,}"),
        ("Bytes", numbers.shown("bytes", n_bytes)),
        ("Time", seconds(length_s)),
        ("Mean", numbers.shown("rate", messages / length_s)),
        ("Bytes per message", numbers.digits(n_bytes / max(messages, 1))),
        (
            "Busiest",
            f"{numbers.shown('rate', sums[busiest]['messages'] / over.width_s)} from {moment_s(over.at(busiest))} on",
        ),
        ("Windows", seconds(over.window_s)),
    ]
    section.charts = [
        *lines("Messages a second", "rate", [gather.rates(sums, over, "messages", "messages", 0)]),
        *lines("Bytes a second", "bytes", [gather.rates(sums, over, "bytes", "bytes", 2)]),
    ]
    return section


def ranked(tables: Tables, name: str, key: str, heading: str, sentence: str) -> Section:
    """Return the section of topics, clients or prefixes: those with most messages, over time."""
    section = Section(name, heading, sentence, empty=f"no gold/{name}: {RUN}")
    there = tables.over(name)
    if there is None:
        return section
    frame, over = there
    from pyspark.sql import functions as f

    most = gather.top(frame, key, ("messages", "bytes"))
    totals = frame.agg(f.count_distinct(key).alias("n"), f.sum("messages").alias("messages")).first()
    section.facts = [
        (heading, f"{totals.n:,}"),
        (
            f"Share of the first {min(10, len(most))}",
            f"{sum(row.messages for row in most[:10]) / max(totals.messages, 1):.0%}",
        ),
    ]
    lead = [row[key] for row in most[: gather.LINES]]
    section.charts = [
        *bars("Messages", "count", [(str(row[key]), row.messages) for row in most]),
        *lines("Messages a second", "rate", gather.of_keys(frame, over, key, "messages", lead)),
        *bars("Bytes", "bytes", sorted(((str(row[key]), row.bytes) for row in most), key=lambda one: -one[1]), 2),
    ]
    heads = (*names(key.replace("_", " ").capitalize()), *figures("Messages", "Share", "Bytes", "Bytes per message"))
    rows = tuple(
        (
            words(str(row[key])),
            number("count", row.messages),
            Cell(f"{row.messages / max(totals.messages, 1):.1%}"),
            number("bytes", row.bytes),
            Cell(numbers.digits(row.bytes / max(row.messages, 1))),
        )
        for row in most
    )
    section.tables, section.folded = listed("", heads, rows)
    return section


# ---------------------------------------------------------------- latency and fan-out

QUANTILES = (("p50_us", "p50"), ("p90_us", "p90"), ("p99_us", "p99"), ("p999_us", "p99.9"), ("max_us", "maximum"))


def latency(tables: Tables) -> Section:
    """Return the section of the time from arrival to disk, for each stream."""
    section = Section(
        "latency",
        "Latency",
        "The time from a message's arrival until it was on the disk, and so in the stream.",
        empty=f"no gold/latency: {RUN}",
    )
    there = tables.over("latency")
    if there is None:
        return section
    frame, over = there
    from pyspark.sql import functions as f

    rows = (
        frame.groupBy("stream")
        .agg(
            f.sum("messages").alias("messages"),
            *(f.max(name).alias(name) for name, _ in QUANTILES),
            f.max_by("window_start", "p99_us").alias("worst"),
        )
        .orderBy("stream")
        .limit(gather.LISTED)
        .collect()
    )
    for row in rows[: gather.LINES]:
        found = gather.worst(frame.where(f.col("stream") == row.stream), over, [name for name, _ in QUANTILES])
        section.charts += lines(
            f"{row.stream}: the worst window",
            "time",
            [
                gather.drawn(found, over, name, label, slot)
                for slot, (name, label) in enumerate(QUANTILES)
                if label in ("p50", "p99", "maximum")
            ],
        )
    section.tables = [
        Table(
            "The worst window of each stream",
            (*names("Stream"), *figures("Messages", *(label for _, label in QUANTILES)), *names("Worst p99 at")),
            tuple(
                (
                    words(row.stream),
                    number("count", row.messages),
                    *(number("time", row[name]) for name, _ in QUANTILES),
                    words(moment(row.worst)),
                )
                for row in rows
            ),
        )
    ]
    return section


FAN_OUTS = ((0, "none"), (1, "1"), (9, "2 to 9"), (99, "10 to 99"), (999, "100 to 999"), (None, "1,000 and more"))


def fan_out(tables: Tables) -> Section:
    """Return the section of subscribers per topic."""
    section = Section(
        "fanout",
        "Fan-out",
        "How many subscribers a message to each topic reaches, by the subscriptions at the end of the time.",
        empty="no subscriptions are known: this needs the broker's events (stream_events true)",
    )
    found = tables.get("fanout")
    if found is None:
        return section
    from pyspark.sql import functions as f

    most = found.orderBy(f.desc("subscribers"), "topic").limit(gather.LISTED).collect()
    if not most:
        return section
    bounds = [most_of for most_of, _ in FAN_OUTS if most_of is not None]
    place = f.lit(len(bounds))
    for at in reversed(range(len(bounds))):
        place = f.when(f.col("subscribers") <= bounds[at], at).otherwise(place)
    by_place = {
        row.place: row
        for row in found.groupBy(place.alias("place"))
        .agg(f.count("*").alias("topics"), f.sum("messages").alias("messages"))
        .collect()
    }
    total = found.agg(
        f.sum("messages").alias("messages"), f.sum(f.col("messages") * f.col("subscribers")).alias("deliveries")
    ).first()
    section.facts = [
        ("Topics without subscribers", f"{by_place[0].topics if 0 in by_place else 0:,}"),
        ("Deliveries per message", numbers.digits(total.deliveries / max(total.messages, 1))),
    ]
    section.charts = [
        *bars("Subscribers of a topic", "count", [(row.topic, row.subscribers) for row in most]),
        *bars(
            "Messages by fan-out",
            "count",
            [(name, by_place[at].messages) for at, (_, name) in enumerate(FAN_OUTS) if at in by_place],
            1,
        ),
    ]
    by_fan_out = tuple(
        (words(name), number("count", by_place[at].topics), number("count", by_place[at].messages))
        for at, (_, name) in enumerate(FAN_OUTS)
        if at in by_place
    )
    reaching = tuple(
        (words(row.topic), number("count", row.subscribers), number("count", row.messages)) for row in most
    )
    heads = (*names("Topic"), *figures("Subscribers", "Messages"))
    first, section.folded = listed("Topics with most subscribers", heads, reaching)
    section.tables = [Table("By fan-out", (*names("Subscribers"), *figures("Topics", "Messages")), by_fan_out), *first]
    return section
