"""Test the stores of workers: one for each, and one file that says how many there are."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.harness.broker import Broker, command
from tests.harness.packets import Connack, Connect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.workers.case import Workers, until

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


def restarted(broker: Broker, n: int) -> str:
    """Stop the broker, and start it with another number of workers; return the log of this start."""
    broker.stop()
    lines = [line for line in broker.config.read_text().splitlines() if not line.startswith("cluster_local")]
    broker.config.write_text("\n".join([*lines, f"cluster_local {n}", ""]))
    before = len(broker.log())
    broker.start()
    return broker.log()[before:]


def kill(broker: Broker) -> None:
    """Kill the broker; its workers end by themselves."""
    assert broker.process is not None
    children = Path(f"/proc/{broker.process.pid}/task/{broker.process.pid}/children").read_text().split()
    broker.process.kill()
    broker.process.wait()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))


@pytest.mark.parametrize("numbers", [(1, 2, 1), (3, 2, 4)])
@pytest.mark.parametrize("killed", [False, True])
def test_sessions_survive_changes_of_the_number_of_workers(numbers: tuple[int, ...], killed: bool) -> None:
    with Broker("user root\nmosquitto_db false\n" + STORE + f"cluster_local {numbers[0]}\n") as broker:
        publisher = Wire(broker.port, 5)
        publisher.send(Connect("publisher", props=SESSION))
        publisher.read_packet()
        for i in range(8):
            client = Wire(broker.port, 5)
            client.send(Connect(f"kept{i}", props=SESSION))
            client.read_packet()
            client.send(Subscribe(3, (("all", 2), (f"own/{i}", 1), (f"$share/g{i}/s/{i}", 1))))
            assert isinstance(client.read_packet(), Suback)
            client.close()
            publisher.send(Publish(f"r/{i}", b"%d" % i, 1, 5, retain=True))
            assert isinstance(publisher.read_packet(), Puback)
            publisher.send(Publish(f"s/{i}", b"shared", 1, 6))
            assert isinstance(publisher.read_packet(), Puback)
        publisher.send(Publish("all", b"one", 1, 5), Publish("all", b"two", 2, 7))     # PUBREL is missing
        assert {type(publisher.read_packet()) for _ in range(2)} == {Puback, Pubrec}
        publisher.close()
        for n in numbers[1:]:
            if killed:
                kill(broker)
            log = restarted(broker, n)
            assert f"The stores are {'divided' if n > 1 else 'joined'}: 9 sessions and 8 retained messages" in log
        publisher = Wire(broker.port, 5)
        publisher.send(Connect("publisher", clean=False, props=SESSION))
        assert publisher.read_packet().session      # type: ignore[union-attr]
        publisher.send(Pubrel(7))
        assert isinstance(publisher.read_packet(), Pubcomp)
        for i in range(8):
            client = Wire(broker.port, 5)
            client.send(Connect(f"kept{i}", clean=False, props=SESSION))
            assert client.read_packet().session      # type: ignore[union-attr]
            got = [client.read_packet() for _ in range(3)]
            assert [(p.topic, p.payload) for p in got] == [      # type: ignore[union-attr]
                (f"s/{i}", b"shared"), ("all", b"one"), ("all", b"two")]
            publisher.send(Publish(f"own/{i}", b"new", 1, 8))
            assert isinstance(publisher.read_packet(), Puback)
            assert client.read_packet().topic == f"own/{i}"      # type: ignore[union-attr]
            client.close()
        reader = Wire(broker.port, 5)
        reader.send(Connect("reader"), Subscribe(1, (("r/#", 0),)))
        got = [reader.read_packet() for _ in range(10)]
        assert sorted(p.payload for p in got if isinstance(p, Publish)) == [b"%d" % i for i in range(8)]
        reader.close()
        publisher.close()


def test_a_change_that_has_no_room_stops_the_start_and_changes_nothing() -> None:
    """The parent reports a store that another process uses in the same way."""
    with Broker("user root\nmosquitto_db false\n" + STORE + "cluster_local 2\n") as broker:
        broker.config.write_text(broker.config.read_text().replace("cluster_local 2", "cluster_local 3").replace(
            f"listener {broker.port}", "listener 0"))
        done = subprocess.run([*command(), "-c", str(broker.config)], capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 1
        assert "cannot be changed from 2 workers to 3 workers" in done.stderr and "They are as before." in done.stderr
        Wire(broker.port, 5).close()


def test_a_file_of_mosquitto_is_taken_over_and_divided() -> None:
    with Broker("user root\n" + STORE) as broker:
        for i in range(6):
            client = Wire(broker.port, 5)
            client.send(Connect(f"kept{i}", props=SESSION), Subscribe(3, (("t", 1),)), Publish(f"r/{i}", b"r", 1, 5, retain=True))
            assert {type(client.read_packet()) for _ in range(3)} == {Connack, Suback, Puback}
            client.close()
        broker.stop()
        assert (broker.dir / "mosquitto.db").exists()
        shutil.rmtree(broker.dir / "mosquitto.db.store")
        before = (broker.dir / "mosquitto.db").read_bytes()
        log = restarted(broker, 3)
        assert "6 sessions" in log and "taken over from" in log
        assert (broker.dir / "mosquitto.db").read_bytes() == before
        for i in range(6):
            client = Wire(broker.port, 5)
            client.send(Connect(f"kept{i}", clean=False, props=SESSION))
            assert client.read_packet().session      # type: ignore[union-attr]
            client.close()
        assert "taken over from" not in restarted(broker, 3)     # the stores count from now on
        assert "taken over from" not in restarted(broker, 1)
        client = Wire(broker.port, 5)
        client.send(Connect("kept1", clean=False, props=SESSION))
        assert client.read_packet().session      # type: ignore[union-attr]
        client.close()


def test_a_damaged_file_of_mosquitto_stops_the_start() -> None:
    broker = Broker("user root\n" + STORE)
    try:
        (broker.dir / "mosquitto.db").write_bytes(b"x" * 100)
        done = subprocess.run([*command(), "-c", str(broker.config), "--workers", "2"], capture_output=True, text=True, timeout=30,
                              check=False)
        assert done.returncode == 3
        assert "cannot be taken over, and nothing was changed" in done.stderr
        assert not list((broker.dir / "mosquitto.db.store").glob("worker*"))
    finally:
        broker.close()
