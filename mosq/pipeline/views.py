"""Define the views over the tables as SQL.

Spark and DuckDB run the same text, so that every reader gets the same numbers; tests compare them. A view reads tables
by their flat names: bronze, quarantine, silver_NAME, gold_NAME (see `flat`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

WINDOW = "window_start, window_end"
QUANTILES = {"p50_us": "0.5", "p90_us": "0.9", "p99_us": "0.99", "p999_us": "0.999"}


def _sums(*names: str) -> str:
    """Return SQL that adds columns up. DuckDB's sum of BIGINT has 128 bits, so the cast gives both the same type."""
    return ", ".join(f"CAST(sum({name}) AS BIGINT) AS {name}" for name in names)


# A stream has all messages of a topic, or none. So all streams with a topic count the same messages, except a stream
# that is read less far, was configured later or lost some. The largest count of a node is used.
_ONCE = (
    f"SELECT {WINDOW}, node, prefix, topic, client_id, max(messages) AS messages, max(bytes) AS bytes"
    f" FROM gold_traffic GROUP BY {WINDOW}, node, prefix, topic, client_id"
)


def _volume(key: str) -> str:
    return (
        f"SELECT {WINDOW}, {key}, {_sums('messages', 'bytes')} FROM ({_ONCE}) AS once GROUP BY {WINDOW}, {key}"
    )


def _latency() -> str:
    # the upper bound of the bucket that contains the quantile, but at most the largest value
    found = ", ".join(
        f"least(min(CASE WHEN upto >= {q} * total THEN bucket_us END), max(max_us)) AS {name}"
        for name, q in QUANTILES.items()
    )
    return (
        "WITH counted AS (SELECT *, sum(messages) OVER (PARTITION BY window_start, node, stream ORDER BY bucket_us) AS"
        " upto, sum(messages) OVER (PARTITION BY window_start, node, stream) AS total FROM gold_latency)"
        f" SELECT {WINDOW}, node, stream, {found}, max(max_us) AS max_us, CAST(max(total) AS BIGINT) AS messages FROM"
        f" counted GROUP BY {WINDOW}, node, stream"
    )


# A connection begins with a connect, and ends with the next event of the same client: a disconnect, a take-over, or
# another connect if the broker was killed. If only a start of the broker follows, the end is unknown. Messages belong
# to the last connect before them; messages that lie in several streams count once, as above.
_SESSIONS = """
WITH events AS (SELECT node, client_id, time, seq, kind, reason FROM bronze
  WHERE kind IN (3, 8) OR (kind = 2 AND reason < 128)),
edges AS (SELECT *, lead(kind) OVER w_next AS next_kind, lead(time) OVER w_next AS next_time,
  lead(reason) OVER w_next AS next_reason,
  count(CASE WHEN kind = 2 THEN 1 END) OVER w_upto AS n FROM events
  WINDOW w_next AS (PARTITION BY node, client_id ORDER BY seq),
  w_upto AS (PARTITION BY node, client_id ORDER BY seq ROWS UNBOUNDED PRECEDING)),
marked AS (SELECT node, client_id, kind, stream, topic, count(CASE WHEN kind = 2 THEN 1 END) OVER (PARTITION BY node,
  client_id ORDER BY time, CASE WHEN kind = 2 THEN 0 ELSE 1 END, seq ROWS UNBOUNDED PRECEDING) AS n
  FROM bronze WHERE kind = 1 OR (kind = 2 AND reason < 128)),
per_stream AS (SELECT node, client_id, n, stream, topic, count(*) AS messages FROM marked WHERE kind = 1
  GROUP BY node, client_id, n, stream, topic),
once AS (SELECT node, client_id, n, topic, max(messages) AS messages FROM per_stream
  GROUP BY node, client_id, n, topic),
sent AS (SELECT node, client_id, n, sum(messages) AS messages FROM once GROUP BY node, client_id, n),
begun AS (SELECT node, max(seq) AS start_seq FROM bronze WHERE kind = 11 GROUP BY node)
SELECT edges.node, edges.client_id, edges.time AS connected_at,
  CASE WHEN next_kind <> 2 THEN next_time END AS disconnected_at,
  CASE WHEN next_kind = 8 THEN 'taken over' WHEN next_kind = 3 THEN CAST(next_reason AS {text})
    WHEN next_kind = 2 OR edges.seq < coalesce(start_seq, -1) THEN 'unknown' END AS reason,
  CASE WHEN next_kind <> 2 THEN ({next_us} - {time_us}) / 1e6 END AS duration_s,
  CAST(coalesce(sent.messages, 0) AS BIGINT) AS messages
FROM edges LEFT JOIN begun ON begun.node = edges.node
LEFT JOIN sent ON sent.node = edges.node AND sent.client_id = edges.client_id AND sent.n = edges.n WHERE edges.kind = 2
""".strip()
_CHURN = _sums("connects", "refused", "disconnects", "takeovers", "expiries")
_TELEMETRY = (
    "node, silver, topic, client_id, field, count, min, max, sum, sum / count AS mean, last, last_time, late, misdated"
)
_COUNTERS = "restored, published, delivered, acknowledged, resent, expired, dropped, queued, gone, ended, difference"

VIEWS = {
    "topics": _volume("topic"),
    "clients": _volume("client_id"),
    "prefixes": _volume("prefix"),
    "traffic": f"SELECT {WINDOW}, node, stream, prefix, topic, client_id, messages, bytes FROM gold_traffic",
    "latency": _latency(),
    "drops": f"SELECT {WINDOW}, node, reason, client_id, drops FROM gold_drops",
    "churn": f"SELECT {WINDOW}, {_CHURN}, count(*) AS clients FROM gold_churn GROUP BY {WINDOW}",
    "late": f"SELECT {WINDOW}, {_sums('rows')} FROM gold_late GROUP BY {WINDOW}",
    "backlog": f"SELECT time, node, client_id, session, {_COUNTERS} FROM gold_backlog",
    "audit": (
        f"SELECT node, client_id, session, time, {_COUNTERS} FROM (SELECT *, row_number() OVER (PARTITION BY node,"
        " client_id, session ORDER BY seq DESC) AS age FROM gold_backlog) AS aged WHERE age = 1"
    ),
    "sessions": _SESSIONS,
    "telemetry": (
        f"SELECT {WINDOW}, {_TELEMETRY} FROM (SELECT *, row_number() OVER (PARTITION BY window_start, node, silver,"
        " topic, client_id, field ORDER BY count DESC, stream) AS place FROM gold_telemetry) AS placed WHERE place = 1"
    ),
    "fanout": "SELECT node, topic, subscribers, messages FROM gold_fanout",
}
SPARK = {"text": "STRING", "next_us": "unix_micros(next_time)", "time_us": "unix_micros(edges.time)"}
DUCKDB = {"text": "VARCHAR", "next_us": "epoch_us(next_time)", "time_us": "epoch_us(edges.time)"}
# views that read another table than the gold table of their own name
SOURCES = {"topics": "traffic", "clients": "traffic", "prefixes": "traffic", "audit": "backlog", "sessions": "bronze"}


def source(view: str) -> str:
    """Return the table that a view reads: bronze, or gold/NAME."""
    name = SOURCES.get(view, view)
    return name if name == "bronze" else f"gold/{name}"


def flat(table: str) -> str:
    """Return the name of a table in SQL: silver/NAME is silver_NAME, gold/NAME is gold_NAME."""
    return table.replace("/", "_")


def sql(view: str, dialect: dict[str, str]) -> str:
    """Return the query of a view in a dialect (SPARK, DUCKDB)."""
    return VIEWS[view].format(**dialect)


def possible(tables: "Collection[str]") -> list[str]:
    """Return the views whose table exists."""
    return [view for view in VIEWS if source(view) in tables]
