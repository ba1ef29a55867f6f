"""Test `format("mqtt")` through Spark: from a broker, and back to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from paho.mqtt import publish as paho_publish
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

from mosq.pipeline.mqtt import create_sessions
from mosq.pipeline.mqtt.options import ReadOptions
from mosq.pipeline.mqtt.receiver import Receiver
from tests.harness.broker import Broker, free_port
from tests.pipeline.processes import Killed
from tests.pipeline.test_mqtt import KEPT, records, until


def test_repeated_messages_are_published_once(spark: SparkSession, tmp_path: Path) -> None:
    with Broker(KEPT) as broker:
        url = f"mqtt://127.0.0.1:{broker.port}"
        reading = {"broker": url, "topics": "in/#", "spool": str(tmp_path / "spool"), "drainTime": "0.5s", "username": "joe", "password": "geheim"}
        create_sessions(reading)
        checking = {"broker": url, "topics": "out/#", "spool": str(tmp_path / "check")}
        create_sessions(checking)
        payloads = [b"on"] * 5 + [b"%d" % i for i in range(15)]
        paho_publish.multiple([("in/a", payload, 1, False) for payload in payloads], "127.0.0.1", broker.port)
        (tmp_path / "options.json").write_text(json.dumps(reading))
        with Killed("tests.pipeline.processes", "receiver", tmp_path / "options.json"):
            until(lambda: len(records(tmp_path / "spool")) >= 20)

        rows = spark.readStream.format("mqtt").options(**reading).load()
        once = rows.dropDuplicates(["key"]).selectExpr("'out/' || topic as topic", "payload")
        writer = once.writeStream.format("mqtt").option("broker", url).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        assert sum(progress["numInputRows"] for progress in query.recentProgress) == 40
        assert "geheim" not in rows._jdf.queryExecution().toString() + str(query.recentProgress)

        receiver = Receiver(ReadOptions(checking))
        receiver.start()
        until(lambda: len(records(tmp_path / "check")) >= 20)
        receiver.drain()
        receiver.stop()
        came = records(tmp_path / "check")
        assert sorted(record.payload for record in came) == sorted(payloads) and {record.topic for record in came} == {"out/in/a"}


def test_a_missing_broker_is_reported_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    port = free_port()
    rows = spark.readStream.format("mqtt").option("broker", f"127.0.0.1:{port}").option("topics", "a").option("spool", str(tmp_path / "spool"))
    query = rows.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(StreamingQueryException, match=f"mqtt://127.0.0.1:{port} cannot be reached: .*refused. Is the broker running"):
        query.awaitTermination()
    with pytest.raises(AnalysisException, match="needs the option broker"):
        spark.readStream.format("mqtt").load()
    table = spark.createDataFrame([("a", "b")], "topic string, payload string")
    with pytest.raises(Exception, match=f"mqtt://127.0.0.1:{port} cannot be reached: .*refused. Is the broker running"):
        table.write.format("mqtt").option("broker", f"127.0.0.1:{port}").mode("append").save()
