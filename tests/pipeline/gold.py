"""Provide gold tables as the jobs write them (docs/pipeline.md): an hour in windows of a minute."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mosq.pipeline.report.gather import Lag, Tables
from tests.pipeline.streams import BEGIN, MESSAGE, SUBSCRIBE, TIME, Bronze

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOWS = 60
HOSTILE = "<script>document.title = 'owned'</script>$\\frac{ 名前 _x"
FORMULA = "=1+1"
KINDS: dict[str, Any] = {
    "window_start": TIME, "window_end": TIME, "time": TIME, "connected_at": TIME, "disconnected_at": TIME, "topic": pa.string(),
    "client_id": pa.string(), "prefix": pa.string(), "stream": pa.string(), "reason": pa.int16(), "ended": pa.bool_(), "duration_s": pa.float64(),
    "silver": pa.string(), "payload": pa.binary(), "filter": pa.string(), "shard": pa.int32(), "node": pa.string()}


def table(rows: list[dict[str, Any]], **kinds: Any) -> pa.Table:
    return pa.Table.from_pylist(rows, pa.schema([(name, kinds.get(name) or KINDS.get(name) or pa.int64()) for name in rows[0]]))


def window(i: int) -> dict[str, Any]:
    return {"window_start": BEGIN + timedelta(minutes=i), "window_end": BEGIN + timedelta(minutes=i + 1)}


def session(client: str, number: int, minute: int, **counters: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("restored", "published", "delivered", "acknowledged", "resent", "expired", "dropped", "queued", "gone"), 0) | counters
    counts.setdefault("ended", False)
    gone = sum(counts[name] for name in ("acknowledged", "expired", "dropped", "queued", "gone"))
    return {"node": "n1", "client_id": client, "session": number, "time": BEGIN + timedelta(minutes=minute), **counts, "difference": counts["published"] - gone}


def arrow(wrong: bool = True) -> dict[str, pa.Table]:
    chance = random.Random(5)
    topics = [f"site/{i}/temp" for i in range(70)] + [HOSTILE, FORMULA]
    by_key = {name: [{**window(i), key: one, "messages": (n := chance.randint(1, 400 // (1 + at % 20))), "bytes": 40 * n}
                     for i in range(WINDOWS) for at, one in enumerate(keys)]
              for name, key, keys in (("topics", "topic", topics), ("clients", "client_id", [f"sensor-{i}" for i in range(30)]),
                                      ("prefixes", "prefix", ["site", "plant", HOSTILE]))}
    latency = [{**window(i), "stream": stream, "p50_us": 900, "p90_us": 1500, "p99_us": 4000 + 100 * i, "p999_us": 9000, "max_us": 12_000 + i,
                "messages": 500} for i in range(WINDOWS) for stream in ("traffic", "alarms")]
    drops = [{**window(i), "reason": reason, "client_id": f"sensor-{i % 7}", "drops": 1 + i % 5} for i in range(0, WINDOWS, 3) for reason in (0, 5, 200)]
    churn = [{**window(i), "connects": 10 + i % 3, "disconnects": 9, "takeovers": i % 2, "expiries": 0, "clients": 15} for i in range(WINDOWS)]
    sessions = [{"client_id": f"sensor-{i}", "connected_at": BEGIN, "disconnected_at": None if i % 5 == 0 else BEGIN + timedelta(seconds=i * 9),
                 "reason": None if i % 5 == 0 else ("0", "200", "taken over")[i % 3], "duration_s": None if i % 5 == 0 else i * 9.0, "messages": i}
                for i in range(100)]
    backlog = [session(f"away-{i}", i, minute, published=100 + minute, delivered=80, acknowledged=70, queued=30 + minute)
               for i in range(5) for minute in range(0, 60, 5)]
    if wrong:
        backlog += [session(HOSTILE, 7, 30, published=100, acknowledged=90, queued=7), session("owing", 8, 31, published=5, queued=5, ended=True)]
    # a watches all sites, a and b site 7
    fanout = [{"topic": topic, "subscribers": 0 if topic in (HOSTILE, FORMULA) else 3 if topic == "site/7/temp" else 1, "messages": 1 + at}
              for at, topic in enumerate(topics)]
    last: dict[tuple[str, int], dict[str, Any]] = {}
    for row in backlog:
        last[row["client_id"], row["session"]] = row
    return {**{name: table(rows) for name, rows in by_key.items()}, "latency": table(latency), "drops": table(drops), "churn": table(churn),
            "sessions": table(sessions, reason=pa.string()), "fanout": table(fanout), "backlog": table(backlog), "audit": table(list(last.values())),
            "late": table([{**window(3), "rows": 12}, {**window(4), "rows": 1}]), "telemetry": values(), **devices()}


def values() -> pa.Table:
    """Return the view of values: two topics of one field, also below zero, and ten topics of another one."""
    rows = [{**window(i), "node": "n1", "silver": silver, "topic": topic, "field": field, "count": 4, "min": mean - 1.0, "max": mean + 3.0, "sum": 4 * mean}
            for i in range(WINDOWS)
            for silver, field, topics in (("temps", "celsius", ("north", "south")), ("power", "value", [f"meter/{n}" for n in range(10)]))
            for at, topic in enumerate(topics) for mean in [float(10 * at - i / 6)]]
    return table(rows, field=pa.string(), min=pa.float64(), max=pa.float64(), sum=pa.float64())


def devices() -> dict[str, pa.Table]:
    """Return views of a client that is offline, of one that is online, of two gaps and of an unusual rate."""
    at = BEGIN.replace(hour=12, minute=0)
    who = {"node": "n1", "client_id": "pump", "topic": "site/1"}
    client = {"node": "n1", "state": "offline", "since": at, "reason": 0, "connects": 2}
    gap = who | {"gap_from": at, "gap_to": None, "gap_s": 60.0, "usual_s": 5.0, "missing": 11}
    presence = [client | {"client_id": "pump", "online": False}, client | {"client_id": "fan", "online": True}]
    rate = who | {"window_start": at, "messages": 60, "usual": 20.0, "low": 14.0, "high": 26.0}
    moment, real = pa.timestamp("us", "UTC"), pa.float64()
    return {
        "devices": table([who | {"last_seen": at}], last_seen=moment),
        "presence": table(presence, state=pa.string(), since=moment, online=pa.bool_()),
        "gaps": table([gap, gap | {"gap_to": at + timedelta(seconds=20), "gap_s": 20.0, "missing": 3}], gap_from=moment, gap_to=moment, gap_s=real, usual_s=real),
        "rates": table([rate], usual=real, low=real, high=real),
    }


def tables(spark: SparkSession, wrong: bool = True) -> Tables:
    bronze = Bronze()
    for i in range(50):
        bronze.add(MESSAGE, f"sensor-{i % 30}", f"site/{i}/temp", b"21.5")
    for i in range(20):
        bronze.add(SUBSCRIBE, f"watcher-{i}", "site/+/temp" if i % 2 else "site/7/#")
    frames = {name: spark.createDataFrame(one) for name, one in arrow(wrong).items()}
    quarantine = table([{"stream": "traffic", "shard": 0, "seq": i, "time": BEGIN, "topic": HOSTILE, "client_id": "sensor-1", "silver": "temps",
                         "reason": "not a number" if i % 2 else "not JSON", "payload": b"\x00\xff{<b>"} for i in range(9)], reason=pa.string())
    return Tables(frames, bronze.frame(spark), spark.createDataFrame(quarantine),
                  [Lag("traffic", 90, 10, 1.5), Lag("events", 20, 0, 0.0)], "/tables")
