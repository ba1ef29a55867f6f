"""Define the finished gold tables as SQL over the partial rows on disk.

Spark and DuckDB use the same text, so that every reader gets the same numbers; tests compare them.
"""

from typing import TYPE_CHECKING

from mosq.pipeline.tables import GLOB

if TYPE_CHECKING:
    from pathlib import Path

WINDOW = "window_start, window_end"
VOLUME = "CAST(sum(messages) AS BIGINT) AS messages, CAST(sum(bytes) AS BIGINT) AS bytes"
QUANTILES = {"p50_us": "0.5", "p90_us": "0.9", "p99_us": "0.99", "p999_us": "0.999"}
TRAFFIC = f"{WINDOW}, stream, prefix, topic, client_id"
_TRAFFIC = f"SELECT {TRAFFIC}, {VOLUME} FROM {{traffic}} GROUP BY {TRAFFIC}"
# A stream has all messages of a topic, or none. So all streams with a topic count the same messages, except a stream
# that is read less far, was configured later or lost some. The largest count is used.
_ONCE = (
    f"SELECT {WINDOW}, prefix, topic, client_id, max(messages) AS messages, max(bytes) AS bytes"
    f" FROM ({_TRAFFIC}) AS per_stream GROUP BY {WINDOW}, prefix, topic, client_id"
)


def _volume(key: str) -> str:
    return f"SELECT {WINDOW}, {key}, {VOLUME} FROM ({_ONCE}) AS once GROUP BY {WINDOW}, {key}"


def _latency() -> str:
    # the upper bound of the bucket that contains the quantile, but at most the largest value
    found = ", ".join(
        f"least(min(CASE WHEN upto >= {q} * total THEN bucket_us END), max(max_us)) AS {name}"
        for name, q in QUANTILES.items()
    )
    return (
        "WITH buckets AS (SELECT window_start, window_end, stream, bucket_us, sum(messages) AS n, max(max_us) AS"
        " max_us FROM {latency} GROUP BY window_start, window_end, stream, bucket_us), counted AS (SELECT *, sum(n)"
        " OVER (PARTITION BY window_start, stream ORDER BY bucket_us) AS upto, sum(n) OVER (PARTITION BY window_start,"
        f" stream) AS total FROM buckets) SELECT {WINDOW}, stream, {found}, max(max_us) AS max_us, CAST(max(total) AS"
        f" BIGINT) AS messages FROM counted GROUP BY {WINDOW}, stream"
    )


# A connection begins with a connect, and ends with the next event of the same client: a disconnect, a take-over, or
# another connect if the broker was killed. If only a start of the broker follows, the end is unknown. Messages belong
# to the last connect before them; messages that lie in several streams count once, as above.
_SESSIONS = """
WITH events AS (SELECT client_id, time, seq, kind, reason FROM {bronze}
  WHERE kind IN (3, 8) OR (kind = 2 AND reason < 128)),
edges AS (SELECT *, lead(kind) OVER w_next AS next_kind, lead(time) OVER w_next AS next_time,
  lead(reason) OVER w_next AS next_reason,
  count(CASE WHEN kind = 2 THEN 1 END) OVER w_upto AS n FROM events
  WINDOW w_next AS (PARTITION BY client_id ORDER BY seq),
  w_upto AS (PARTITION BY client_id ORDER BY seq ROWS UNBOUNDED PRECEDING)),
marked AS (SELECT client_id, kind, stream, topic, count(CASE WHEN kind = 2 THEN 1 END) OVER (PARTITION BY client_id
  ORDER BY time, CASE WHEN kind = 2 THEN 0 ELSE 1 END, seq ROWS UNBOUNDED PRECEDING) AS n
  FROM {bronze} WHERE kind = 1 OR (kind = 2 AND reason < 128)),
per_stream AS (SELECT client_id, n, stream, topic, count(*) AS messages FROM marked WHERE kind = 1
  GROUP BY client_id, n, stream, topic),
once AS (SELECT client_id, n, topic, max(messages) AS messages FROM per_stream GROUP BY client_id, n, topic),
sent AS (SELECT client_id, n, sum(messages) AS messages FROM once GROUP BY client_id, n),
begun AS (SELECT coalesce(max(seq), -1) AS start_seq FROM {bronze} WHERE kind = 11)
SELECT edges.client_id, edges.time AS connected_at, CASE WHEN next_kind <> 2 THEN next_time END AS disconnected_at,
  CASE WHEN next_kind = 8 THEN 'taken over' WHEN next_kind = 3 THEN CAST(next_reason AS {text})
    WHEN next_kind = 2 OR edges.seq < start_seq THEN 'unknown' END AS reason,
  CASE WHEN next_kind <> 2 THEN ({next_us} - {time_us}) / 1e6 END AS duration_s,
  CAST(coalesce(sent.messages, 0) AS BIGINT) AS messages
FROM edges CROSS JOIN begun LEFT JOIN sent ON sent.client_id = edges.client_id AND sent.n = edges.n WHERE edges.kind = 2
""".strip()
_CHURN = ", ".join(
    f"CAST(sum({name}) AS BIGINT) AS {name}" for name in ("connects", "refused", "disconnects", "takeovers", "expiries")
)
_COUNTERS = "restored, published, delivered, acknowledged, resent, expired, dropped, queued, gone, ended, difference"

VIEWS = {
    "topics": _volume("topic"),
    "clients": _volume("client_id"),
    "prefixes": _volume("prefix"),
    "traffic": _TRAFFIC,
    "latency": _latency(),
    "drops": (
        f"SELECT {WINDOW}, reason, client_id, CAST(sum(drops) AS BIGINT) AS drops FROM {{drops}} GROUP BY {WINDOW},"
        " reason, client_id"
    ),
    "churn": f"SELECT {WINDOW}, {_CHURN}, count(DISTINCT client_id) AS clients FROM {{churn}} GROUP BY {WINDOW}",
    "late": f"SELECT {WINDOW}, CAST(sum(rows) AS BIGINT) AS rows FROM {{late}} GROUP BY {WINDOW}",
    "backlog": f"SELECT time, client_id, session, {_COUNTERS} FROM {{backlog}}",
    "audit": (
        f"SELECT client_id, session, time, {_COUNTERS} FROM (SELECT *, row_number() OVER (PARTITION BY client_id,"
        " session ORDER BY seq DESC) AS age FROM {backlog}) AS aged WHERE age = 1"
    ),
    "sessions": _SESSIONS,
    # written again as a whole: for a moment two batches exist
    "fanout": (
        "SELECT topic, subscribers, messages FROM {fanout} WHERE batch_id = (SELECT max(batch_id) FROM {fanout})"
    ),
}
SPARK = {"text": "STRING", "next_us": "unix_micros(next_time)", "time_us": "unix_micros(edges.time)"}
DUCKDB = {"text": "VARCHAR", "next_us": "epoch_us(next_time)", "time_us": "epoch_us(edges.time)"}
# views that read another table than the gold table of their own name
SOURCES = {"topics": "traffic", "clients": "traffic", "prefixes": "traffic", "audit": "backlog", "sessions": "bronze"}


def source(view: str) -> str:
    """Return the table that a view reads: bronze, or gold/NAME."""
    name = SOURCES.get(view, view)
    return name if name == "bronze" else f"gold/{name}"


def sql(view: str, dialect: dict[str, str], table: str) -> str:
    """Return the query of a view in a dialect (SPARK, DUCKDB); `table` is the name of the table that it reads."""
    return VIEWS[view].format(**dialect, **{SOURCES.get(view, view): table})


def for_duckdb(tables: "Path", there: "list[str]") -> str:
    """Return a script that creates a view of each existing table: `duckdb -init views.sql`."""

    def scan(table: str) -> str:
        path = str(tables / table / GLOB).replace("'", "''")
        return f"read_parquet('{path}', hive_partitioning = true, union_by_name = true)"

    lines = [
        "-- Written by mosq pipeline. The gold rows on disk are partial, one for each batch; these views add them up.",
        "SET TimeZone = 'UTC';",
    ]
    lines += [
        f'CREATE OR REPLACE VIEW "{table.replace("/", "_")}" AS SELECT * FROM {scan(table)};'
        for table in there
        if not table.startswith("gold/")
    ]
    lines += [
        f"CREATE OR REPLACE VIEW {view} AS {sql(view, DUCKDB, scan(source(view)))};"
        for view in VIEWS
        if source(view) in there
    ]
    return "\n".join(lines) + "\n"
