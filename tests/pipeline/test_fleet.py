"""Test the fleet of the demonstration, on a broker with streams: they contain all messages that were sent, and the accounts of offline sessions add
up.
"""

from __future__ import annotations

import json

from mosq.journal import Stream
from mosq.pipeline.runs.fleet import AWAY, BUSY, PAUSED, SILENT, Fleet, pace
from tests.harness.broker import Broker
from tests.harness.faults import until
from tests.streams.journalled import keeping


def test_three_devices_have_a_fault_each() -> None:
    """The questions of docs/pipeline-cookbook.md about silent devices, gaps and rates had no answer in the demo's data."""
    parts = [i / 24 for i in range(48)]
    found = {number: [pace(number, part) for part in parts] for number in range(200)}
    assert {number for number, paces in found.items() if set(paces) != {1}} == {SILENT, PAUSED, BUSY}
    assert found[SILENT] == [1] * 17 + [0] * 31, "it stays silent"
    assert (found[PAUSED].count(0), found[BUSY].count(4), found[PAUSED][-1], found[BUSY][-1]) == (5, 3, 1, 1)


def test_messages_of_a_fleet_are_in_the_streams(monkeypatch) -> None:
    monkeypatch.setattr("mosq.pipeline.runs.fleet.BAD", 0.5)
    monkeypatch.setattr("mosq.pipeline.runs.fleet.LEAVES", 0.05)
    with Broker(keeping("stream telemetry site/#", "stream_events true")) as broker:
        fleet = Fleet("127.0.0.1", broker.port, devices=10, per_second=50)
        fleet.start()
        until(lambda: fleet.sent >= 200 or fleet.error is not None)
        fleet.end()
        assert broker.stop() == 0
        streams = broker.dir / "mosquitto.db.store/streams"
        topics = [record.topic for record in Stream(streams / "telemetry").read()]
        accounts = {record.client_id: json.loads(record.payload) for record in Stream(streams / "events").read() if record.kind == 9}
    assert sum(topic.endswith("/telemetry") for topic in topics) > 100
    assert any(topic.endswith("/power") for topic in topics)
    away = [accounts[f"archive-{number}"] for number in range(AWAY)]
    assert all(one["queued"] == one["published"] for one in away) and away[0]["queued"] > 0
