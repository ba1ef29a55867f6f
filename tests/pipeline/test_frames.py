"""Test that Spark reads the tables as DuckDB does: all tables and views, new columns, odd folders, no rows."""

from __future__ import annotations

import datetime
import json
import os
import random
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mosq.pipeline import MosqPipelineError, audit, frames, views
from mosq.pipeline.duck import Duck
from mosq.pipeline.rows.devices import Devices
from mosq.pipeline.rows.tables import DEVICE_SCHEMA, DEVICES, GOLD, TELEMETRY_SCHEMA
from tests.pipeline.lake_tables import load, put
from tests.pipeline.streams import ACCOUNT, BEGIN, CONNECT, DISCONNECT, MESSAGE, TAKE_OVER, Bronze

if TYPE_CHECKING:
    from mosq.pipeline.settings import Settings
    from pyspark.sql import SparkSession

ZERO = dict.fromkeys(("restored", "delivered", "resent", "expired", "dropped", "gone"), 0)


def bronze() -> pa.Table:
    made = Bronze()
    for i in range(40):
        client = f"c{i % 7}"
        made.add(CONNECT, client, reason=0 if i % 5 else 0x87, payload=b"{}")
        for j in range(i % 4):
            made.add(MESSAGE, client, f"site/{j}", b"%d" % i)
        made.wait(90 * (i % 3))
        if i % 3:
            made.add(DISCONNECT if i % 2 else TAKE_OVER, client, reason=i)
    made.add(11, "", None)
    made.add(ACCOUNT, "c1", payload=json.dumps({"session": 1, **ZERO, "published": 9, "acknowledged": 4, "queued": 5, "ended": False}).encode())
    return made.table()


def gold(name: str, chance: random.Random) -> list[dict[str, Any]]:
    one, found = GOLD[name], {}
    for _ in range(300):
        start = BEGIN + timedelta(minutes=chance.randrange(2000))
        row: dict[str, Any] = {"window_start": start, "window_end": start + timedelta(minutes=1)}
        for field in one.schema:
            if field.name in ("date", *row):
                continue
            if field.name in ("first_time", "last_time"):
                row[field.name] = start + timedelta(seconds=chance.randrange(60))
            elif field.name in one.how:
                row[field.name] = chance.randrange(1, 1 << 40)
            elif field.name == "bucket_us":
                row[field.name] = (1 << chance.randrange(20)) - 1
            else:
                row[field.name] = chance.randrange(3) if pa.types.is_integer(field.type) else f"{field.name}/{chance.randrange(4)}"
        found[tuple(row[key] for key in one.keys if key != "date")] = row
    return list(found.values())


@pytest.fixture
def found(tmp_path: Path) -> Settings:
    found = load(tmp_path / "odd [folder] {x}*", '[[silver]]\nname = "temp-1"\ntopic = "site/#"\nformat = "number"\n')
    rows = bronze()
    put(found, "bronze", rows.slice(0, 50))
    put(found, "bronze", rows.slice(50))
    events = put(found, "bronze", rows.slice(0, 0)).read(columns=audit.EVENTS.names)
    put(found, "gold/backlog", audit.accounts(events)[0])
    chance = random.Random(3)
    for name in GOLD:
        put(found, f"gold/{name}", gold(name, chance))
    put(found, "gold/telemetry", [{"window_start": BEGIN, "window_end": BEGIN + timedelta(minutes=1), "stream": f"s{i % 2}", "silver": "t", "topic": f"site/{i}", "client_id": "c",
                                   "field": "x", "count": 3, "late": 0, "misdated": 1, "min": 1.5, "max": 2.5, "sum": 6.0, "last": 2.0, "last_time": BEGIN} for i in range(5)], TELEMETRY_SCHEMA)
    schema = pa.schema([("date", pa.date32()), ("time", pa.timestamp("us", "UTC")), ("value", pa.float64()), ("big", pa.decimal128(38, 0))])
    table = put(found, "silver/temp-1", [{"time": BEGIN, "value": 1.5, "big": 10**37}], schema)
    table.add_columns([pa.field("unit", pa.string()), pa.field("deep", pa.list_(pa.struct([("a", pa.int64())])))])
    put(found, "silver/temp-1", [{"time": BEGIN, "value": 2.5, "unit": "C", "deep": [{"a": 1}]}], table.schema)
    devices = Devices()
    for part in rows.to_batches(max_chunksize=7):
        devices.records(part)
    devices.values("temp-1", rows.to_batches()[0], ["value"], [pa.array(range(rows.num_rows))])
    put(found, DEVICES, devices.content(), DEVICE_SCHEMA)
    put(found, "gold/fanout", [{"node": "n1", "topic": "site/1", "subscribers": 3, "messages": 5}],
        pa.schema([("node", pa.string()), ("topic", pa.string()), ("subscribers", pa.int64()), ("messages", pa.int64())]))
    return found


def plain(rows: list[dict[str, Any]]) -> list[str]:
    def text(value: Any) -> Any:
        if isinstance(value, datetime.datetime):
            return value.astimezone(datetime.UTC).isoformat()
        return bytes(value).hex() if isinstance(value, bytes | bytearray) else str(value)

    return sorted(json.dumps(row, default=text, sort_keys=True) for row in rows)


def test_spark_and_duckdb_read_the_same(spark: SparkSession, found: Settings) -> None:
    names = frames.register(spark, found)
    duck = Duck(found)
    assert sorted(names) == sorted((*duck.tables, *duck.views))
    assert set(duck.views) == set(views.VIEWS)
    for name in names:
        ours = spark.table(f"`{name}`").toArrow()
        theirs = duck.query(f'SELECT * FROM "{name}"')
        assert ours.column_names == theirs.column_names, name
        assert ours.num_rows, name
        assert plain(ours.to_pylist()) == plain(theirs.to_pylist()), name
    duck.close()


def test_a_frame_is_a_snapshot(spark: SparkSession, found: Settings) -> None:
    before = frames.frame(spark, found, "bronze")
    n = before.count()
    put(found, "bronze", bronze().slice(0, 3))
    assert before.count() == n and frames.frame(spark, found, "bronze").count() == n + 3
    # only the files of the wanted date are read
    dated = frames.frame(spark, found, "gold/traffic").where("date = DATE'2026-11-01'")
    assert "PartitionFilters: [isnotnull(date" in dated._jdf.queryExecution().toString()
    assert 0 < dated.count() < frames.frame(spark, found, "gold/traffic").count()


def test_tables_without_rows_and_missing_tables(spark: SparkSession, tmp_path: Path) -> None:
    found = load(tmp_path)
    with pytest.raises(MosqPipelineError, match=r"there is no table in .*bronze yet"):
        frames.frame(spark, found, "bronze")
    put(found, "bronze", Bronze().table())
    assert frames.frame(spark, found, "bronze").count() == 0
    assert frames.view(spark, found, "sessions").collect() == []
    assert frames.of_path(spark, str(tmp_path / "tables/bronze")) is not None and frames.of_path(spark, str(tmp_path / "tables")) is None


def test_only_this_user_reads_the_files_of_spark(spark: SparkSession) -> None:
    """The folders of its blocks, with rows that a query spills, were readable to all users of the machine."""
    spark.range(1000).repartition(3).count()
    (folder,) = (Path(one) for one in os.environ["SPARK_LOCAL_DIRS"].split(","))
    assert folder.stat().st_mode & 0o777 == 0o700 and any(folder.glob("blockmgr-*"))
    assert folder.parent == Path(spark.conf.get("spark.local.dir") or "") and not any(folder.parent.glob("blockmgr-*"))


def test_a_task_reads_files_with_all_columns_and_names_the_place_of_an_error(tmp_path: Path) -> None:
    """Tables in object storage are read so; the files here lie in a folder."""
    settings = load(tmp_path)
    for seq in range(3):
        table = put(settings, "bronze", [{"stream": "tele", "shard": 0, "seq": seq, "time": BEGIN, "payload": b"x" * seq}])
    table.add_columns([pa.field("more", pa.int64())])
    adds = table.refresh().adds().to_pylist()
    asked = pa.RecordBatch.from_pylist([{"path": add["path"], "date": add["partition.date"], "size": add["size_bytes"]} for add in adds])
    found = pa.Table.from_batches(list(frames.Files(table.place, table.schema)(iter([asked])))).sort_by("seq")
    assert found.equals(table.read().sort_by("seq")) and found["more"].null_count == 3
    gone = pa.RecordBatch.from_pylist([{"path": "date=2026-11-01/gone.parquet", "date": None, "size": 1}])
    with pytest.raises(MosqPipelineError, match=f"{table.place.uri}: the table or one of its files is gone"):
        list(frames.Files(table.place, table.schema)(iter([gone])))
