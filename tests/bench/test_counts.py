"""Our counts are those of somebody else who counts the same: paho beside us, and mqload, where it is, on the same parameters."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from tests.harness.broker import Broker

MQLOAD = Path(os.environ.get("MOSQ_BENCH", Path(__file__).parents[3] / "shared" / "bench")) / "mqload.c"
N = 5000


def test_paho_has_received_what_was_published(bench) -> None:
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
        assert subscribed.wait(10)
        phase, = bench("fan-in", broker.port, messages=N, qos=1, publishers=5, subscribers=1).phases
        assert last.wait(10)
        watcher.disconnect()
        watcher.loop_stop()
    assert phase.exact and len(seen) == phase.published == phase.delivered == N
    assert len(set(seen)) == 5


if MQLOAD.exists():     # not in a clone by itself: there paho alone counts
    @pytest.fixture(scope="module")
    def mqload(tmp_path_factory: pytest.TempPathFactory) -> Path:
        program = tmp_path_factory.mktemp("mqload") / "mqload"
        subprocess.run(["cc", "-O1", "-o", str(program), str(MQLOAD)], check=True)
        return program

    @pytest.mark.parametrize(("scenario", "theirs", "ours"), [
        ("fan-in", ["fanin", "--pubs", "5", "--subs", "2"], {"publishers": 5, "subscribers": 2}),
        ("fan-out", ["fanout", "--pubs", "1", "--subs", "4"], {"publishers": 1, "subscribers": 4}),
        ("pairs", ["pairs", "--pubs", "5", "--qos", "2"], {"publishers": 5, "qos": 2})])
    def test_mqload_counts_the_same(bench, mqload: Path, scenario: str, theirs: list[str], ours: dict[str, int]) -> None:
        with Broker("max_queued_messages 0\n") as broker:
            done = subprocess.run([str(mqload), *theirs, "--port", str(broker.port), "--messages", str(N), "--size", "64"],
                                  capture_output=True, text=True, timeout=30, check=True)
            phase, = bench(scenario, broker.port, messages=N, **ours).phases
        other = json.loads(done.stdout)
        assert phase.published == other["published"] and phase.delivered == other["delivered"]
        assert (phase.lost, phase.duplicates, phase.out_of_order) == (other["lost"], other["dup"], other["ooo"]) == (0, 0, 0)
