"""Test that our counts equal those of the broker and of paho. (perf/agree.py compares with mqload.)"""

from __future__ import annotations

import threading

import paho.mqtt.client as paho
import pytest

import mosq
from tests.harness.broker import Broker
from tests.harness.effort import TIMEOUT_S

N = 5000


@pytest.mark.parametrize(("scenario", "qos"), [
    ("fan-in", 0), ("fan-in", 1), ("fan-out", 0), ("pairs", 0), ("pairs", 2), ("shared", 1), ("match", 0), ("offline", 1), ("retained", 1)])
def test_the_broker_counts_the_same(bench, scenario: str, qos: int) -> None:
    with mosq.Broker("max_queued_messages 0\nsys_interval 0\n", port=0) as broker:
        result = bench(scenario, broker.port, qos=qos, publishers=4, subscribers=3, clients=10, filters=500, topics=300,
                       messages=100 if scenario == "offline" else 3000, keep=True)
        counted = broker.stats()
    assert result.exact and result.complete
    published, delivered = sum(phase.published for phase in result.phases), sum(phase.delivered for phase in result.phases)
    assert (counted["publish_in"], counted["publish_out"]) == (published, delivered)
    assert published >= 300 and delivered >= 300


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("ws", [False, True])
def test_the_broker_counts_the_same_payload_bytes(bench, broker_with, tls: bool, ws: bool) -> None:
    """Test each transport: the broker received and sent as many bytes of payload."""
    with broker_with(tls=tls, ws=ws) as (broker, way):
        result = bench("payloads", broker.port, publishers=2, subscribers=2, messages=20, sizes=(16, 700, 70_000, 1_000_000), **way)
        counted = broker.stats()
    sent = sum(20 * size for size in (16, 700, 70_000, 1_000_000))
    assert result.exact and (counted["publish_bytes_in"], counted["publish_bytes_out"]) == (sent, 2 * sent)


def test_paho_receives_every_published_message(bench) -> None:
    last, seen = threading.Event(), []
    with Broker("max_queued_messages 0\n") as broker:
        watcher = paho.Client(paho.CallbackAPIVersion.VERSION2)
        subscribed = threading.Event()
        watcher.on_subscribe = lambda *_: subscribed.set()

        def on_message(_client: paho.Client, _data: object, message: paho.MQTTMessage) -> None:
            seen.append(message.topic)
            if len(seen) == N:
                last.set()

        watcher.on_message = on_message
        watcher.connect("127.0.0.1", broker.port)
        watcher.subscribe("bench/#", 1)
        watcher.loop_start()
        assert subscribed.wait(TIMEOUT_S)
        phase, = bench("fan-in", broker.port, messages=N, qos=1, publishers=5, subscribers=1).phases
        assert last.wait(TIMEOUT_S)
        watcher.disconnect()
        watcher.loop_stop()
    assert phase.exact and len(seen) == phase.published == phase.delivered == N
    assert len(set(seen)) == 5
