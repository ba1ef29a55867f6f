"""Provide bronze tables: messages and events of a broker, with their sequence numbers."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIME = pa.timestamp("us", tz="UTC")
NODE = "node-1"
SCHEMA = pa.schema([
    ("date", pa.date32()), ("node", pa.string()), ("stream", pa.string()), ("shard", pa.int32()), ("seq", pa.int64()), ("time", TIME), ("commit_time", TIME), ("kind", pa.int8()),
    ("qos", pa.int8()), ("reason", pa.int16()), ("retain", pa.bool_()), ("dup", pa.bool_()), ("topic", pa.string()),
    ("client_id", pa.string()), ("username", pa.string()), ("payload", pa.binary()), ("properties", pa.binary())])
BEGIN = datetime(2026, 11, 1, 12, tzinfo=UTC)
MESSAGE, CONNECT, DISCONNECT, SUBSCRIBE, UNSUBSCRIBE, DROP, EXPIRY, TAKE_OVER, ACCOUNT, GAP = range(1, 11)


class Bronze:
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.at = BEGIN

    def wait(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)

    def add(self, kind: int, client_id: str, topic: str | None = None, payload: bytes | None = None, reason: int = 0, qos: int = 1) -> None:
        stream = "traffic" if kind == MESSAGE else "events"
        self.rows.append({"date": self.at.date(), "node": NODE, "stream": stream, "shard": 0, "seq": len(self.rows), "time": self.at, "commit_time": self.at + timedelta(milliseconds=2),
                          "kind": kind, "qos": qos, "reason": reason, "retain": False, "dup": False, "topic": topic, "client_id": client_id,
                          "username": None, "payload": payload, "properties": None})
        self.at += timedelta(milliseconds=1)

    def account(self, client_id: str, session: int, **counters: int) -> None:
        told = dict.fromkeys(("published", "delivered", "acknowledged", "resent", "expired", "dropped", "queued", "gone"), 0) | counters
        self.add(ACCOUNT, client_id, payload=json.dumps({"session": session, **told, "ended": False}).encode())

    def table(self) -> pa.Table:
        return pa.Table.from_pylist(self.rows, schema=SCHEMA)

    def frame(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame(self.table())
