"""Measure the rows of the pipeline without Spark: messages per second of CPU through bronze, silver and sums.

    python -m perf.pipeline_rows [--rows 200000] [--case NAME]

Each case takes the same batches of records as a task of Spark does, and writes Parquet files into a temporary folder.
The case `bronze` also commits them to its Delta table. The case `plain Parquet` appends the same records to one
Parquet file, without any more. The time is the CPU time of the process, so other programs on the machine change it
little.
"""

import argparse
import datetime
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mosq.pipeline.lake.places import Place
from mosq.pipeline.lake.table import Table
from mosq.pipeline.rows import types
from mosq.pipeline.rows.tables import BRONZE
from mosq.pipeline.rows.work import Rule, Work, read_manifest

BATCH = 10_000  # rows, as Spark cuts batches
TOPICS = 500
PLAIN = "plain Parquet"
ALL = frozenset(["silver", "gold", "audit"])
INFERRED = (
    "id STRING, temperature DOUBLE, humidity DOUBLE, pressure DOUBLE, count BIGINT, ok BOOLEAN, unit STRING,"
    " lat DOUBLE, lon DOUBLE, at STRING"
)
DECLARED = INFERRED.replace("at STRING", "at TIMESTAMP")
FEW = "temperature DOUBLE, count BIGINT"
NESTED = (
    "id STRING, temperature DOUBLE, count BIGINT, gps STRUCT<lat: DOUBLE, lon: DOUBLE>, tags ARRAY<STRING>,"
    " cells ARRAY<STRUCT<v: DOUBLE, i: BIGINT>>"
)


def flat(i: int, chance: random.Random) -> dict[str, Any]:
    """Return a message of ten fields."""
    return {
        "id": f"sensor-{i % 500}",
        "temperature": round(chance.uniform(-20, 40), 2),
        "humidity": round(chance.uniform(0, 100), 1),
        "pressure": chance.randint(950, 1050),
        "count": 2**53 + 1 + i,
        "ok": i % 9 > 0,
        "unit": "C",
        "lat": round(chance.uniform(45, 55), 6),
        "lon": round(chance.uniform(5, 15), 6),
        "at": "2026-09-21T12:00:00.123Z",
    }


def nested(i: int, chance: random.Random) -> dict[str, Any]:
    """Return a message with objects and arrays."""
    return {
        "id": f"sensor-{i % 500}",
        "temperature": round(chance.uniform(-20, 40), 2),
        "count": i,
        "gps": {"lat": round(chance.uniform(45, 55), 6), "lon": 9.5},
        "tags": ["a", "b"],
        "cells": [{"v": round(chance.uniform(3, 4), 3), "i": j} for j in range(4)],
    }


def odd(i: int, chance: random.Random) -> dict[str, Any]:
    """Return a message of which one in a hundred cannot be read, and one has a further field."""
    return flat(i, chance) | ({"temperature": "broken"} if i % 100 == 0 else {"new": i} if i % 100 == 1 else {})


def rule(text: str) -> Rule:
    """Return a rule for all topics."""
    return Rule("t", "#", "json", types.schema(text))


CASES: dict[str, tuple[Any, Rule | None, frozenset[str]]] = {
    "bronze": (flat, None, frozenset()),
    "bronze and sums": (flat, None, frozenset(["gold"])),
    "ten fields": (flat, rule(INFERRED), ALL),
    "ten fields, one a time": (flat, rule(DECLARED), ALL),
    "nested": (nested, rule(NESTED), ALL),
    "2 of 100 are odd": (odd, rule(INFERRED), ALL),
    "two of ten fields": (flat, rule(FEW), ALL),
}


def record(i: int, payload: dict[str, Any]) -> dict[str, Any]:
    """Return a record as the source gives it."""
    now = datetime.datetime(2026, 9, 21, 12, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=100 * i)
    where = {"stream": "tele", "shard": 0, "seq": i, "topic": f"site/{i % TOPICS}/telemetry"}
    times = {"time": now, "commit_time": now + datetime.timedelta(milliseconds=3)}
    flags = {"kind": 1, "qos": 1, "reason": 0, "retain": False, "dup": False, "client_id": f"sensor-{i % TOPICS}"}
    return where | times | flags | {"payload": json.dumps(payload).encode()}


def batches(make: Any, n: int) -> list[Any]:
    """Return n records, cut as Spark cuts them."""
    chance = random.Random(5)
    schema = pa.schema([field for field in BRONZE if field.name not in ("date", "node")])
    found = []
    for at in range(0, n, BATCH):
        rows = [record(i, make(i, chance)) for i in range(at, min(at + BATCH, n))]
        found.append(pa.RecordBatch.from_pylist(rows, schema=schema))
    return found


def measure_plain(n: int) -> dict[str, Any]:
    """Return the cost of records that are written into one Parquet file."""
    rows = batches(flat, n)
    with tempfile.TemporaryDirectory() as folder:
        cpu, wall = time.process_time(), time.monotonic()
        with pq.ParquetWriter(f"{folder}/rows.parquet", rows[0].schema, compression="zstd") as writer:
            writer.write_table(pa.Table.from_batches(rows))
        return cost(PLAIN, n, time.process_time() - cpu, time.monotonic() - wall)


def cost(name: str, n: int, cpu: float, wall: float) -> dict[str, Any]:
    times = {"cpu_s": round(cpu, 3), "wall_s": round(wall, 3), "us": round(cpu / n * 1e6, 2)}
    return {"case": name, "rows": n, "rows_per_cpu_s": round(n / cpu), **times}


def measure(name: str, n: int) -> dict[str, Any]:
    """Return the cost of a case."""
    if name == PLAIN:
        return measure_plain(n)
    make, rule, jobs = CASES[name]
    rows = batches(make, n)
    with tempfile.TemporaryDirectory() as folder:
        for table in ("bronze", "quarantine", "silver/t"):
            (Path(folder) / table).mkdir(parents=True)
        work = Work(Place(folder), "node", () if rule is None else (rule,), jobs)
        target = Table.create(Place(folder), "bronze", BRONZE, "perf")
        cpu, wall = time.process_time(), time.monotonic()
        manifest = read_manifest(work(rows))
        if name == "bronze":
            target.append(manifest.parts["bronze"], "perf", 0, {})
        cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    silver = manifest.rows["silver/t"] + sum(manifest.bad.values())
    if manifest.rows["bronze"] != n or silver != (0 if rule is None else n):
        raise SystemExit(f"{name}: {manifest.rows} are not {n} rows")
    return cost(name, n, cpu, wall)


def main() -> None:
    """Measure all cases, or one."""
    parser = argparse.ArgumentParser(description="Measure the rows of the pipeline without Spark.")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--case", choices=sorted([*CASES, PLAIN]), help="only this case")
    options = parser.parse_args()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    for name in [options.case] if options.case else [PLAIN, *CASES]:
        print(json.dumps(measure(name, options.rows)), flush=True)


if __name__ == "__main__":
    main()
