"""Test the stores of workers: one for each, and one file that says how many there are."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.harness.broker import Broker, command
from tests.harness.packets import Connect, Puback, Publish, Suback, Subscribe
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.workers.case import Workers

STORE = "persistence true\npersistence_location {dir}/\n"
SESSION = ((P.SESSION_EXPIRY, 600),)


def test_sessions_are_there_after_a_restart_of_all() -> None:
    with Workers(3, STORE) as broker:
        places = {}
        for i in range(12):
            client = broker.connect(f"kept{i}", clean=True, props=SESSION)
            client.send(Subscribe(3, ((f"kept/{i}", 1),)), Publish(f"kept/{i}", b"r", 1, 5, retain=True))
            assert {type(client.read_packet()) for _ in range(3)} == {Suback, Publish, Puback}
            places[f"kept{i}"] = broker.holder(client)
            client.close()
        assert len(set(places.values())) > 1
        key = (broker.dir / "mosquitto.db.store/workers").read_text()
        broker.restart()
        assert (broker.dir / "mosquitto.db.store/workers").read_text() == key
        assert json.loads(key)["workers"] == 3
        for name, place in places.items():
            client = broker.connect(name, clean=False, props=SESSION)
            got = client.read_packet()              # it was not acknowledged
            assert isinstance(got, Publish) and got.topic == f"kept/{name[4:]}"
            assert broker.holder(client) == place
            client.close()
        assert not (broker.dir / "mosquitto.db").exists()


@pytest.mark.parametrize(("first", "then", "why"), [
    (2, 3, "are those of 2 workers"),
    (2, 1, "are those of several workers"),
    (1, 2, "is that of a broker with `cluster_local 1`"),
])
def test_a_store_of_another_number_of_workers_is_refused(first: int, then: int, why: str) -> None:
    broker = Broker("user root\nmosquitto_db false\n" + STORE)
    text = broker.config.read_text()
    broker.config.write_text(f"{text}cluster_local {first}\n")
    with broker:
        client = Wire(broker.port, 5)
        client.send(Connect("kept", props=SESSION))
        client.read_packet()
        client.close()
        broker.stop()
        broker.config.write_text(f"{text}cluster_local {then}\n")
        done = subprocess.run([*command(), "-c", str(broker.config)], capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 1
        assert why in done.stderr


def test_a_file_of_mosquitto_is_not_taken_over_in_silence() -> None:
    broker = Broker("user root\n" + STORE)
    try:
        (broker.dir / "mosquitto.db").write_bytes(b"x" * 100)
        done = subprocess.run([*command(), "-c", str(broker.config), "--workers", "2"], capture_output=True, text=True, timeout=30,
                              check=False)
        assert done.returncode == 1
        assert "cannot be taken over by workers" in done.stderr
    finally:
        broker.close()


def test_a_backup_of_workers_is_refused() -> None:
    broker = Broker("cluster_local 2\nuser root\n" + STORE)
    try:
        done = subprocess.run([*command(), "backup", "-c", str(broker.config), str(broker.dir / "all.tar.gz")], capture_output=True,
                              text=True, timeout=30, check=False)
        assert done.returncode != 0
        assert "(`cluster_local 2`) cannot be backed up" in done.stderr
    finally:
        broker.close()
