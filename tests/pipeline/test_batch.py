"""Test `spark.read.format("mosq")`."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import unix_micros

from tests.pipeline.journals import T0_US, Journal


def test_rows_are_the_records_of_all_streams(spark: SparkSession, tmp_path: Path) -> None:
    one = Journal(tmp_path, "one", shards=3)
    one.fill(1000)
    two = Journal(tmp_path, "events")
    two.put("", b'{"clean": true}', kind=2, client_id="dev", username="joe", reason=4)
    two.put("x/y", kind=6, client_id="dev", reason=0x97)
    two.commit()
    df = spark.read.format("mosq").option("maxRecordsPerPartition", "100").load(str(tmp_path))
    rows = df.filter("stream = 'one'").collect()
    assert len(rows) == 1000 == len({(row.shard, row.seq) for row in rows})
    assert sorted(int(row.payload) for row in rows) == list(range(1000))
    assert {row.kind for row in rows} == {1} and {row.client_id for row in rows} == {"c"}
    by_time = df.filter("payload = cast('00000000' as binary)").select(unix_micros("time").alias("time"), unix_micros("commit_time").alias("commit")).first()
    assert by_time.time == T0_US + 1000 and by_time.commit == one.now_us + 500
    connect, drop = df.filter("stream = 'events'").orderBy("seq").collect()
    assert (connect.kind, connect.client_id, connect.username, connect.topic, connect.reason) == (2, "dev", "joe", None, 4)
    assert connect.payload == b'{"clean": true}' and drop.payload is None
    assert (drop.kind, drop.topic, drop.reason, drop.username) == (6, "x/y", 0x97, None)


def test_workers_import_the_installed_pyspark(spark: SparkSession) -> None:
    """Check that workers do not use the zip that Spark puts first: mosq/pipeline/workers."""
    import pyspark

    where = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("pyspark").__file__).collect()
    assert where == [pyspark.__file__]
