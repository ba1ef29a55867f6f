"""Define the views over the tables as SQL.

Spark and DuckDB run the same text, so that every reader gets the same numbers; tests compare them. A view reads tables
by their flat names: bronze, quarantine, silver_NAME, gold_NAME (see `flat`).
"""

from typing import TYPE_CHECKING

from mosq.pipeline import sparkplug

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

QUOTE = "\1"  # stands for the quotation mark of names in the SQL of `of_rules`
WINDOW = "window_start, window_end"
GAP_FACTOR = 3  # an interval that is more than so many times the usual one is a gap
STEPS_MIN = 3  # intervals, before one can be usual
RATE_FACTOR = 3  # widths from the median to the end of the usual range
WINDOWS_MIN = 5  # windows, before a range can be usual
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
# another connect if the broker was killed. If only a start of its worker follows, which has its events in one shard,
# the end is unknown. Messages belong to the last connect before them; messages that lie in several streams count once,
# as above.
_SESSIONS = """
WITH events AS (SELECT node, stream, shard, client_id, time, seq, kind, reason FROM bronze
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
begun AS (SELECT node, stream, shard, max(seq) AS start_seq FROM bronze WHERE kind = 11 GROUP BY node, stream, shard)
SELECT edges.node, edges.client_id, edges.time AS connected_at,
  CASE WHEN next_kind <> 2 THEN next_time END AS disconnected_at,
  CASE WHEN next_kind = 8 THEN 'taken over' WHEN next_kind = 3 THEN CAST(next_reason AS {text})
    WHEN next_kind = 2 OR edges.seq < coalesce(start_seq, -1) THEN 'unknown' END AS reason,
  CASE WHEN next_kind <> 2 THEN ({us}(next_time) - {us}(edges.time)) / 1e6 END AS duration_s,
  CAST(coalesce(sent.messages, 0) AS BIGINT) AS messages
FROM edges LEFT JOIN begun ON begun.node = edges.node AND begun.stream = edges.stream AND begun.shard = edges.shard
LEFT JOIN sent ON sent.node = edges.node AND sent.client_id = edges.client_id AND sent.n = edges.n WHERE edges.kind = 2
""".strip()
# A client is online after a connect, unless its worker, whose events are in one shard, started again since then.
_PRESENCE = """
WITH begun AS (SELECT node, stream, shard, max(seq) AS start_seq FROM gold_devices
  WHERE topic = '' AND field = 'start' GROUP BY node, stream, shard),
newest AS (SELECT *, row_number() OVER (PARTITION BY node, client_id ORDER BY time DESC, stream, shard) AS age
  FROM gold_devices WHERE topic = '' AND field = '')
SELECT newest.node, client_id, value = 'online' AND seq > coalesce(start_seq, -1) AS online,
  CASE WHEN value = 'online' AND seq < start_seq THEN 'unknown' ELSE value END AS state,
  time AS since, CAST(number AS INT) AS reason, messages AS connects
FROM newest LEFT JOIN begun ON begun.node = newest.node AND begun.stream = newest.stream
  AND begun.shard = newest.shard WHERE age = 1
""".strip()
# Streams with the same topic count the same messages, and the shards of a stream have different ones.
_DEVICES = f"""
WITH present AS ({_PRESENCE}),
per_stream AS (SELECT node, client_id, topic, stream, min(first_time) AS first_seen, max(time) AS last_seen,
  sum(messages) AS messages FROM gold_devices WHERE topic <> '' AND silver = ''
  GROUP BY node, client_id, topic, stream),
seen AS (SELECT node, client_id, topic, min(first_seen) AS first_seen, max(last_seen) AS last_seen,
  CAST(max(messages) AS BIGINT) AS messages FROM per_stream GROUP BY node, client_id, topic),
latest AS (SELECT node, max(time) AS time FROM gold_devices GROUP BY node)
SELECT seen.node, seen.client_id, seen.topic, first_seen, last_seen, messages,
  CASE WHEN messages > 1 THEN ({{us}}(last_seen) - {{us}}(first_seen)) / 1e6 / (messages - 1) END AS interval_s,
  ({{us}}(latest.time) - {{us}}(last_seen)) / 1e6 AS silent_s, online
FROM seen JOIN latest ON latest.node = seen.node
LEFT JOIN present ON present.node = seen.node AND present.client_id = seen.client_id
""".strip()
_LAST_VALUES = """
SELECT node, client_id, topic, silver, field, value, number, time FROM (
  SELECT *, row_number() OVER (PARTITION BY node, client_id, topic, silver, field ORDER BY time DESC, stream, shard) AS
  age FROM gold_devices WHERE silver <> '') AS aged WHERE age = 1
""".strip()
# An interval is measured between the last message of a window and the first of the next window that has one.
_GAPS = f"""
WITH once AS (SELECT node, topic, client_id, window_start, min(first_time) AS first_time, max(last_time) AS last_time
  FROM gold_traffic WHERE first_time IS NOT NULL GROUP BY node, topic, client_id, window_start),
steps AS (SELECT *, lag(last_time) OVER (PARTITION BY node, topic, client_id ORDER BY first_time, window_start)
  AS before FROM once),
ended AS (SELECT node, topic, client_id, before AS gap_from, first_time AS gap_to,
  ({{us}}(first_time) - {{us}}(before)) / 1e6 AS gap_s FROM steps WHERE before IS NOT NULL),
usual AS (SELECT node, topic, client_id, median(gap_s) AS usual_s FROM ended GROUP BY node, topic, client_id
  HAVING count(*) >= {STEPS_MIN}),
latest AS (SELECT node, max(last_time) AS time FROM once GROUP BY node),
silent AS (SELECT once.node, topic, client_id, max(last_time) AS gap_from, max(latest.time) AS newest
  FROM once JOIN latest ON latest.node = once.node GROUP BY once.node, topic, client_id),
found AS (SELECT node, topic, client_id, gap_from, gap_to, gap_s FROM ended UNION ALL
  SELECT node, topic, client_id, gap_from, NULL, ({{us}}(newest) - {{us}}(gap_from)) / 1e6 FROM silent)
SELECT found.node, found.topic, found.client_id, gap_from, gap_to, gap_s, usual_s,
  CAST(floor(gap_s / usual_s + 0.5) AS BIGINT) - 1 AS missing
FROM found JOIN usual ON usual.node = found.node AND usual.topic = found.topic AND usual.client_id = found.client_id
WHERE usual_s > 0 AND gap_s > {GAP_FACTOR} * usual_s
""".strip()
# The first window of a topic and the newest window of a broker are not whole.
_RATES = f"""
WITH once AS (SELECT {WINDOW}, node, topic, client_id, max(messages) AS messages FROM gold_traffic
  GROUP BY {WINDOW}, node, topic, client_id),
latest AS (SELECT node, max(window_start) AS time FROM once GROUP BY node),
numbered AS (SELECT once.*, row_number() OVER (PARTITION BY once.node, topic, client_id ORDER BY window_start) AS nth
  FROM once JOIN latest ON latest.node = once.node AND once.window_start < latest.time),
history AS (SELECT node, topic, client_id, median(messages) AS usual FROM numbered WHERE nth > 1
  GROUP BY node, topic, client_id HAVING count(*) >= {WINDOWS_MIN}),
off AS (SELECT numbered.*, usual, abs(messages - usual) AS distance FROM numbered
  JOIN history ON history.node = numbered.node AND history.topic = numbered.topic
  AND history.client_id = numbered.client_id WHERE nth > 1),
spread AS (SELECT node, topic, client_id, greatest(1.4826e0 * median(distance), max(usual) / 10, 1e0) AS width FROM off
  GROUP BY node, topic, client_id)
SELECT {WINDOW}, off.node, off.topic, off.client_id, messages, usual,
  greatest(usual - {RATE_FACTOR} * width, 0e0) AS low, usual + {RATE_FACTOR} * width AS high
FROM off JOIN spread ON spread.node = off.node AND spread.topic = off.topic AND spread.client_id = off.client_id
WHERE distance > {RATE_FACTOR} * width
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
    "presence": _PRESENCE,
    "devices": _DEVICES,
    "last_values": _LAST_VALUES,
    "gaps": _GAPS,
    "rates": _RATES,
    "fanout": "SELECT node, topic, subscribers, messages FROM gold_fanout",
}
_BIRTH = f"message_type IN ({', '.join(map(repr, sparkplug.BIRTHS))})"
_SINCE = "PARTITION BY node, edge_group, edge_node, exact_alias"
_ROW = "date, node, stream, shard, seq, time, topic, client_id"
# A BIRTH names each alias of an edge node; the newest one before a row by the broker's time counts. An alias to which
# it gives two names has none. A DATA message may also omit the datatype, without which a negative integer looks like a
# large one. The rows of a message are peers in the order, so that one BIRTH has one number.
_NAMED = """
WITH numbered AS (SELECT *, CASE WHEN {birth} AND metric IS NOT NULL THEN 1 ELSE 0 END AS born,
  coalesce(CAST(alias AS DECIMAL(38, 0)), {rest_alias}) AS exact_alias FROM {table}),
counted AS (SELECT *, sum(born) OVER ({since} ORDER BY time, born DESC, stream, shard, seq
  RANGE UNBOUNDED PRECEDING) AS n FROM numbered),
known AS (SELECT *, max(CASE WHEN born = 1 THEN metric END) OVER ({since}, n) AS birth_metric,
  min(CASE WHEN born = 1 THEN metric END) OVER ({since}, n) AS other_metric,
  max(CASE WHEN born = 1 THEN datatype END) OVER ({since}, n) AS birth_type,
  max(CASE WHEN born = 1 THEN unit END) OVER ({since}, n) AS birth_unit FROM counted),
sure AS (SELECT *, exact_alias IS NOT NULL AND birth_metric = other_metric AS named FROM known)
SELECT {row}, edge_group, message_type, edge_node, device, edge_seq, payload_time,
  coalesce(metric, CASE WHEN named THEN birth_metric END) AS metric, alias, metric_time,
  coalesce(datatype, CASE WHEN named THEN birth_type END) AS datatype, historical,
  CASE WHEN datatype IS NULL AND named AND birth_type IN (1, 2, 3)
    AND long_value BETWEEN 2147483648 AND 4294967295 THEN long_value - 4294967296
    WHEN datatype IS NULL AND named AND birth_type = 4 AND {rest} IS NOT NULL
    THEN CAST({rest} - CAST('18446744073709551616' AS DECIMAL(38, 0)) AS BIGINT) ELSE long_value END AS long_value,
  CASE WHEN datatype IS NULL AND named AND birth_type = 4 AND {rest} IS NOT NULL THEN NULL
    ELSE double_value END AS double_value,
  boolean_value, string_value, bytes_value, coalesce(unit, CASE WHEN named THEN birth_unit END) AS unit
FROM sure
""".strip()


def _rest(name: str) -> str:
    """Return SQL for an integer beyond BIGINT, which is in _rescued, or null."""
    return f"CAST(nullif(regexp_extract(_rescued, '\"{name}\":([0-9]+)', 1), '') AS DECIMAL(38, 0))"


_BORN = """
SELECT node, edge_group, edge_node, device, metric, alias, datatype, {type} AS type, unit, properties, time AS born
FROM (SELECT *, row_number() OVER (PARTITION BY node, edge_group, edge_node, device, metric ORDER BY time DESC, stream,
  shard, seq DESC) AS age FROM {table} WHERE {birth} AND metric IS NOT NULL) AS aged WHERE age = 1
""".strip()
SPARK = {"text": "STRING", "us": "unix_micros"}
DUCKDB = {"text": "VARCHAR", "us": "epoch_us"}
# views that read another table than the gold table of their own name
SOURCES = {
    "topics": "traffic",
    "clients": "traffic",
    "prefixes": "traffic",
    "gaps": "traffic",
    "rates": "traffic",
    "presence": "devices",
    "last_values": "devices",
    "audit": "backlog",
    "sessions": "bronze",
}


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


def of_rules(tables: "Mapping[str, Collection[str]]", sparkplug_rules: "Iterable[str]") -> dict[str, str]:
    """Return the views of the rules with format sparkplug, and their SQL; `tables` has the columns of each table."""
    types = " ".join(f"WHEN {i} THEN '{name}'" for i, name in enumerate(sparkplug.TYPES, 1))
    found = {}
    for rule in sparkplug_rules:
        if "unit" in tables.get(f"silver/{rule}", ()):
            table = f"{QUOTE}{flat(f'silver/{rule}')}{QUOTE}"
            parts = {"table": table, "birth": _BIRTH, "since": _SINCE, "row": _ROW}
            parts |= {"rest": _rest("long_value"), "rest_alias": _rest("alias")}
            found[f"named_{rule}"] = _NAMED.format(**parts)
            found[f"metrics_{rule}"] = _BORN.format(table=table, birth=_BIRTH, type=f"CASE datatype {types} END")
    return found


def possible(tables: "Collection[str]") -> list[str]:
    """Return the views whose table exists."""
    return [view for view in VIEWS if source(view) in tables]
