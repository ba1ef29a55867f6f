"""Make the sections of the report about clients and their sessions: the audit, drops, connections, and waiting
messages.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from mosq.pipeline.audit import COUNTERS
from mosq.pipeline.report import gather
from mosq.pipeline.report.showing import bars, figures, lines, moment, names, number, seconds
from mosq.stat_names import DROPS
from mosq.tools.bench.html.parts import Cell, Section, Table, words

if TYPE_CHECKING:
    from pyspark.sql import Column

    from mosq.pipeline.report.gather import Tables

EVENTS = "it needs the broker's events: stream_events true"
ALARMS_LISTED = 20


def reason_of(code: int) -> str:
    """Return the words for a reason for drops."""
    return DROPS[code].replace("_", " ") if 0 <= code < len(DROPS) else f"reason {code}"


# ---------------------------------------------------------------- does it add up


def wrong() -> Column:
    """Return the condition of a wrong row, as the jobs define it.

    A row is wrong if it does not add up (`difference`), if a counter is below zero, or if an ended session has queued
    messages.
    """
    from pyspark.sql import functions as f

    return reduce(
        or_,
        [f.col(name) < 0 for name in COUNTERS],
        (f.col("difference") != 0) | (f.col("ended") & (f.col("queued") != 0)),
    )


def without_account(tables: Tables) -> str:
    """Return why no session has an account: a broker that writes events has rows about connections."""
    if tables.get("audit") is None or tables.over("churn") is None:
        return f"no accounts of sessions: {EVENTS}"
    return "no accounts of sessions: the broker's events name no persistent session"


def audit(tables: Tables) -> Section:
    """Return the section of the audit: alarms first, then the outcome of all messages."""
    section = Section(
        "audit",
        "Audit: does every message add up?",
        "For each persistent session: the messages that were published to it, and their outcome: acknowledged, "
        "expired, dropped, gone or still waiting.",
    )
    last, every = tables.get("audit"), tables.get("backlog")
    if last is None:
        section.empty = without_account(tables)
        return section
    from pyspark.sql import functions as f

    totals = last.agg(f.count("*").alias("n"), *(f.sum(name).alias(name) for name in COUNTERS)).first()
    if not totals.n:
        section.empty = without_account(tables)
        return section
    # a row that was once wrong is an alarm, even if a later one is right
    rows = (last if every is None else every).where(wrong())
    alarms = (
        rows.groupBy("node", "client_id", "session")
        .agg(
            f.count("*").alias("rows"),
            f.min("time").alias("since"),
            *(f.max_by(name, "time").alias(name) for name in (*COUNTERS, "difference")),
        )
        .orderBy("since", "client_id")
        .limit(gather.LISTED + 1)
        .collect()
    )
    section.facts = [("Sessions", f"{totals.n:,}"), *((name.capitalize(), f"{totals[name]:,}") for name in COUNTERS)]
    if alarms:
        shown = "more than " if len(alarms) > gather.LISTED else ""
        section.warnings = [
            f"ALARM: messages of {shown}{min(len(alarms), gather.LISTED):,} of {totals.n:,} sessions do not add up.",
            *(
                f"{row.client_id} (node {row.node}, session {row.session}): {_why(row)}"
                for row in alarms[:ALARMS_LISTED]
            ),
        ]
        section.tables.append(_missing(alarms[: gather.LISTED]))
    else:
        lost = totals["dropped"] + totals["expired"] + totals["gone"]
        section.notes = [
            f"All {totals.n:,} sessions add up: each message was acknowledged, expired, dropped, is gone or waits. "
            + (f"{lost:,} messages were not delivered: {totals['dropped']:,} dropped, {totals['expired']:,} expired, "
               f"{totals['gone']:,} gone." if lost else "No message was dropped, expired or gone.")
        ]
    section.charts = bars(
        "Outcome of the published messages",
        "count",
        [(name, totals[name]) for name in ("acknowledged", "queued", "expired", "dropped", "gone")],
    )
    return section


def _missing(alarms: list[Any]) -> Table:
    """Return the sessions whose messages do not add up, one row each."""
    return Table(
        "Sessions that do not add up",
        (*names("Client", "Node"), *figures("Session", *map(str.capitalize, COUNTERS), "Missing")),
        tuple(
            (
                words(row.client_id, tone="bad"),
                words(row.node),
                Cell(str(row.session)),
                *(number("count", row[name]) for name in COUNTERS),
                number("count", row.difference, "bad"),
            )
            for row in alarms
        ),
    )


def _why(row: Any) -> str:
    if row.difference:
        return f"{row.difference:+,} between published messages and their outcomes; since {moment(row.since)}"
    low = [name for name in COUNTERS if row[name] < 0]
    return f"{', '.join(low)} below zero" if low else f"has ended, and {row.queued:,} still wait"


# ---------------------------------------------------------------- drops and connections


def drops(tables: Tables) -> Section:
    """Return the section of dropped messages by reason, time and client."""
    section = Section(
        "drops",
        "Drops",
        "Messages that did not reach a client, by reason.",
        empty=f"no message was dropped, or there are no events: {EVENTS}",
    )
    there = tables.over("drops")
    if there is None:
        return section
    frame, over = there
    from pyspark.sql import functions as f

    by_reason = (
        frame.groupBy("reason", "client_id")
        .agg(f.sum("drops").alias("drops"))
        .groupBy("reason")
        .agg(
            f.sum("drops").alias("drops"),
            f.count("*").alias("clients"),
            f.max_by("client_id", "drops").alias("worst"),
            f.max("drops").alias("most"),
        )
        .orderBy(f.desc("drops"), "reason")
        .collect()
    )
    clients = gather.top(frame, "client_id", ("drops",))
    over_time = gather.of_keys(frame, over, "reason", "drops", [row.reason for row in by_reason[: gather.LINES]])
    section.facts = [("Drops", f"{sum(row.drops for row in by_reason):,}")]
    section.charts = [
        *bars("By reason", "count", [(reason_of(row.reason), row.drops) for row in by_reason], 1),
        *lines(
            "Drops a second",
            "rate",
            [type(one)(reason_of(int(one.label)), one.slot, False, one.points) for one in over_time],
        ),
        *bars("By client", "count", [(row.client_id or "", row.drops) for row in clients], 3),
    ]
    section.tables = [
        Table(
            "",
            (*names("Reason"), *figures("Drops", "Clients"), *names("Client with most"), *figures("Its drops")),
            tuple(
                (
                    words(reason_of(row.reason)),
                    number("count", row.drops),
                    number("count", row.clients),
                    words(row.worst or ""),
                    number("count", row.most),
                )
                for row in by_reason
            ),
        )
    ]
    return section


STEPS = (
    ("connects", "connects"),
    ("disconnects", "disconnects"),
    ("takeovers", "take-overs"),
    ("expiries", "sessions ended"),
)


def churn(tables: Tables) -> Section:
    """Return the section of connections: their number over time, how long they lasted and how they ended."""
    section = Section(
        "churn",
        "Connections",
        "Which clients connected and left, how long connections lasted, and why they ended.",
        empty=f"no client connected or left, or there are no events: {EVENTS}",
    )
    there, sessions = tables.over("churn"), tables.get("sessions")
    if there is not None:
        frame, over = there
        sums = gather.summed(frame, over, [name for name, _ in STEPS])
        section.facts = [(label.capitalize(), f"{sum(one[name] for one in sums.values()):,}") for name, label in STEPS]
        section.charts = lines(
            "Each window" if over.width_s == over.window_s else f"Each {seconds(over.width_s)}",
            "count",
            [
                gather.counts(sums, over, name, label, slot)
                for slot, (name, label) in enumerate(STEPS)
                if any(one[name] for one in sums.values())
            ],
        )
    if sessions is None:
        return section
    from pyspark.sql import functions as f

    at = [0.5, 0.9, 0.99]
    rows = (
        sessions.groupBy(f.coalesce("reason", f.lit("still connected")).alias("reason"))
        .agg(
            f.count("*").alias("n"),
            f.count_distinct("client_id").alias("clients"),
            f.percentile_approx("duration_s", at).alias("s"),
            f.max("duration_s").alias("longest"),
            f.sum("messages").alias("messages"),
        )
        .orderBy(f.desc("n"), "reason")
        .limit(gather.LISTED)
        .collect()
    )
    if rows:
        section.charts += bars("Connections by their end", "count", [(_end(row.reason), row.n) for row in rows], 4)
        section.tables = [_ends(rows, len(at))]
    return section


def _ends(rows: list[Any], quantiles: int) -> Table:
    """Return the reasons why connections ended, one row each, with the quantiles of their duration."""
    return Table(
        "Connections by their end",
        (*names("End"), *figures("Connections", "Clients", "Messages", "median", "90 %", "99 %", "longest")),
        tuple(
            (
                words(_end(row.reason)),
                number("count", row.n),
                number("count", row.clients),
                number("count", row.messages),
                *(
                    Cell(seconds(value) if value is not None else "")
                    for value in (*(row.s or [None] * quantiles), row.longest)
                ),
            )
            for row in rows
        ),
    )


# reasons of disconnects: MQTT's, and the broker's own for ends without an MQTT reason code
ENDS = {
    0x00: "disconnected",
    0x04: "disconnected, with will",
    0x40: "closed without DISCONNECT",
    0x41: "socket error",
    0x81: "malformed packet",
    0x82: "protocol error",
    0x87: "not authorized",
    0x8B: "broker shut down",
    0x8D: "keepalive ran out",
    0x8E: "taken over",
    0x95: "packet too large",
    0x97: "quota exceeded",
    0x98: "kicked",
}


def _end(reason: str) -> str:
    """Return the words for a reason; in the table the reason codes of MQTT are numbers."""
    if not reason.lstrip("-").isdigit():
        return reason
    code = int(reason) & 0xFF
    return ENDS.get(code, f"reason 0x{code:02X}")


def backlog(tables: Tables) -> Section:
    """Return the section of queued messages over time."""
    section = Section(
        "backlog",
        "Offline backlog",
        "Messages that wait for sessions whose clients are offline or slow.",
    )
    there = tables.over("backlog", "time")
    if there is None:
        return section
    frame, over = there
    from pyspark.sql import functions as f

    of_bin = frame.groupBy(over.bin(), "client_id", "session").agg(f.max("queued").alias("queued"))
    together = {
        row.bin: {"queued": float(row.queued)}
        for row in of_bin.groupBy("bin").agg(f.sum("queued").alias("queued")).collect()
    }
    most = (
        frame.groupBy("client_id")
        .agg(f.max("queued").alias("most"), f.max_by("queued", "time").alias("now"), f.max("time").alias("time"))
        .orderBy(f.desc("most"), "client_id")
        .limit(gather.LISTED)
        .collect()
    )
    lead = [row.client_id for row in most[: gather.LINES] if row.most]
    own: dict[str, dict[int, dict[str, float]]] = {}
    for row in (
        of_bin.where(f.col("client_id").isin(lead))
        .groupBy("bin", "client_id")
        .agg(f.max("queued").alias("queued"))
        .collect()
    ):
        own.setdefault(row.client_id, {})[row.bin] = {"queued": float(row.queued)}
    section.facts = [
        ("Sessions with accounts", f"{frame.select('client_id', 'session').distinct().count():,}"),
        ("Most waiting of one session", f"{most[0].most:,} ({most[0].client_id})"),
    ]
    section.charts = [
        *lines(
            "Waiting messages of all sessions", "count", [gather.drawn(together, over, "queued", "all", 0)]
        ),
        *lines(
            "Waiting messages of the sessions with most",
            "count",
            [gather.drawn(own.get(one, {}), over, "queued", one, slot) for slot, one in enumerate(lead)],
        ),
    ]
    section.tables = [
        Table(
            "",
            (*names("Client"), *figures("at most", "last"), *names("Last account at")),
            tuple(
                (words(row.client_id), number("count", row.most), number("count", row.now), words(moment(row.time)))
                for row in most
            ),
        )
    ]
    return section
