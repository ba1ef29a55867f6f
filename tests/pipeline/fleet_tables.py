"""Make the tables of docs/pipeline-cookbook.md: the fleet of `make pipeline-demo` with the same faults, in ten minutes, from a fixed seed.

The pipeline's own kernel computes silver, quarantine and gold from the records.
"""

from __future__ import annotations

import json
import math
import random
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mosq.pipeline import audit
from mosq.pipeline.lake.parts import PartWriter
from mosq.pipeline.lake.places import Place, place_of
from mosq.pipeline.lake.table import Table
from mosq.pipeline.rows import types
from mosq.pipeline.rows.tables import BRONZE, DEVICE_SCHEMA, GOLD, QUARANTINE
from mosq.pipeline.rows.work import Rule, Work, read_manifest
from mosq.pipeline.runs.fleet import SILENT, pace

if TYPE_CHECKING:
    from mosq.pipeline.settings import Settings

BEGIN = datetime(2026, 11, 1, 12, tzinfo=UTC)
SETTINGS = """window = "1 minute"
prefix_levels = 2
[[silver]]
name = "telemetry"
topic = "site/+/+/telemetry"
format = "json"
schema = "temperature DOUBLE, unit STRING, n BIGINT"
[[silver]]
name = "power"
topic = "site/+/+/power"
format = "number"
"""
DEVICES, SITES, EVERY_S, SECONDS = 24, 4, 5, 600
MESSAGE, CONNECT, DISCONNECT, DROP, ACCOUNT, START = 1, 2, 3, 6, 9, 11
FULL_QUEUE, KEEPALIVE = 0, 141


class Fleet:
    """Make the records; each stream counts its own sequence numbers."""

    def __init__(self) -> None:
        self.chance = random.Random(7)
        self.rows: list[dict[str, Any]] = []
        self.next = {"telemetry": 0, "events": 0}

    def add(self, at: float, kind: int, client: str | None, topic: str | None = None, payload: bytes | None = None, reason: int = 0) -> None:
        stream = "telemetry" if kind == MESSAGE else "events"
        time = BEGIN + timedelta(seconds=round(at, 3))
        wait = timedelta(microseconds=int(self.chance.lognormvariate(8, 0.6)))
        self.rows.append({"date": time.date(), "node": "demo", "stream": stream, "shard": 0, "seq": self.next[stream], "time": time,
                          "commit_time": time + wait, "kind": kind, "qos": 1, "reason": reason, "retain": False, "dup": False,
                          "topic": topic, "client_id": client, "username": None, "payload": payload, "properties": None})
        self.next[stream] += 1

    def table(self) -> pa.Table:
        self.add(0, START, "")
        events: list[tuple[float, int, int, int]] = []
        for number in range(DEVICES):
            at, i = self.chance.random() * EVERY_S, 0
            while at < SECONDS:
                faster = pace(number, at / SECONDS)
                events.append((at, number, i, faster))
                at, i = at + EVERY_S / max(faster, 1), i + 1
        connected: set[int] = set()
        for at, number, i, faster in sorted(events):
            self._device(at, number, i, connected, silent=not faster)
            if i % 12 == 0 and number < 2:
                self._account(at, number, i)
        return pa.Table.from_pylist(self.rows, BRONZE)

    def _device(self, at: float, number: int, i: int, connected: set[int], *, silent: bool) -> None:
        client, topic = f"device-{number:02}", f"site/{number % SITES}/device-{number:02}"
        if silent:
            if number == SILENT and number in connected:
                self.add(at, DISCONNECT, client, reason=KEEPALIVE)
                connected.discard(number)
            return
        if number in connected and self.chance.random() < (0.04 if number == 5 else 0.002):
            self.add(at, DISCONNECT, client, reason=KEEPALIVE)
            connected.discard(number)
        if number not in connected:
            self.add(at + 0.1, CONNECT, client, payload=b'{"clean": true}')
            connected.add(number)
        temperature = 20 + number % SITES + 5 * math.sin(at / 90 + number) + self.chance.gauss(0, 0.2)
        payload: bytes = json.dumps({"temperature": round(temperature, 2), "unit": "C", "n": i}).encode()
        if self.chance.random() < (0.2 if number == 3 else 0.01):
            payload = self.chance.choice((payload[:-3], b'{"temperature": "n/a"}', b"\xff\xfe", b""))
        self.add(at + 0.2, MESSAGE, client, f"{topic}/telemetry", payload)
        if number % 6 == 0:
            self.add(at + 0.3, MESSAGE, client, f"{topic}/power", b"%.1f" % self.chance.uniform(1, 90))

    def _account(self, at: float, number: int, i: int) -> None:
        """Say what became of the messages for an archive that is offline, whose queue holds 300."""
        published = 6 * i
        queued, dropped = min(300, published), max(0, published - 300)
        counters = {"session": number + 1, "restored": 0, "published": published, "delivered": 0, "acknowledged": 0, "resent": 0, "expired": 0,
                    "dropped": dropped, "queued": queued, "gone": 0, "ended": False}
        self.add(at, ACCOUNT, f"archive-{number}", payload=json.dumps(counters).encode())
        if dropped:
            self.add(at, DROP, f"archive-{number}", f"site/{number}/device-00/telemetry", reason=FULL_QUEUE)


def write(found: Settings) -> None:
    """Write all tables."""
    place, identity = place_of(found), str(uuid.uuid4())
    schemas = {"telemetry": types.schema("temperature DOUBLE, unit STRING, n BIGINT"), "power": types.schema("value DOUBLE")}
    rules = tuple(Rule(one.name, one.topic, one.format, schemas[one.name]) for one in found.silver)
    work = Work(place, "demo", rules, window_us=found.window_us, prefix_levels=found.prefix_levels, devices=True)
    wanted = {"bronze": BRONZE, "quarantine": QUARANTINE, **{rule.table: types.silver_schema(schemas[rule.name]) for rule in rules}}
    tables = {name: Table.create(place, name, schema, identity) for name, schema in wanted.items()}
    manifest = read_manifest(work(Fleet().table().to_batches(max_chunksize=1000)))
    for name, table in tables.items():
        table.append(manifest.parts[name], "fleet", 0, {})
    for name, rows in manifest.sums.items():
        _append(place, f"gold/{name}", rows, GOLD[name].schema, identity)
    _append(place, "gold/devices", manifest.devices, DEVICE_SCHEMA, identity)
    assert manifest.accounts is not None
    backlog, _, _ = audit.accounts(manifest.accounts)
    _append(place, "gold/backlog", backlog, audit.SCHEMA, identity)


def _append(place: Place, name: str, rows: pa.Table | None, schema: pa.Schema, identity: str) -> None:
    assert rows is not None
    table = Table.create(place, name, schema, identity, ("date",) if "date" in schema.names else ())
    writer = PartWriter(place, name, schema)
    writer.write(rows.select(schema.names))
    table.append(writer.close(), "fleet", 0, {})
