"""Test the effect of each option of persistence, and of `durability`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.durable.test_restart import Kept, nothing_more, offline_subscriber, publish, read_publishes, subscribe
from tests.harness.packets import Puback, Publish

IN_DIR = "persistence_location {dir}\n"


def store_of(broker: Kept) -> list[Path]:
    return sorted(broker.dir.glob("*.store"))


@pytest.mark.parametrize("lines", ["persistence true\n", "retained_persistence true\n", "plugin /usr/lib/mosquitto_persist_sqlite.so\nplugin_opt_db_file x\n",
                                   "persistence true\ndurability strict\n", "persistence true\ndurability_interval 0\n"])
def test_options_that_record_messages(lines: str) -> None:
    with Kept(IN_DIR + lines) as broker:
        offline_subscriber(broker, ("a", 1))
        publish(broker.client("pub", clean=True), "a", b"x")
        broker.kill()
        assert read_publishes(broker.client("sub", session=True), 1)[0].payload == b"x"


@pytest.mark.parametrize("lines", ["", "persistence false\n", "persistence true\ndurability none\n"])
def test_options_that_record_nothing(lines: str) -> None:
    with Kept(IN_DIR + lines) as broker:
        offline_subscriber(broker, ("a", 1))
        broker.kill()
        broker.client("sub", session=False)
        assert store_of(broker) == []


def test_async_is_written_within_the_interval() -> None:
    """Test also an orderly stop."""
    with Kept(IN_DIR + "persistence true\ndurability async\n") as broker:
        offline_subscriber(broker, ("a", 1))
        publish(broker.client("pub", clean=True), "a", b"x")
        broker.restart()
        assert read_publishes(broker.client("sub", session=True), 1)[0].payload == b"x"


def test_the_store_is_in_the_configured_folder() -> None:
    with Kept("persistence true\npersistence_location {dir}\npersistence_file other.db\n") as broker:
        assert [path.name for path in store_of(broker)] == ["other.db.store"]
        assert f"Store {broker.dir}/other.db.store: 0 sessions" in broker.log()


SQLITE = "plugin /usr/lib/mosquitto_persist_sqlite.so\n"


def test_the_file_of_persist_sqlite_names_the_store() -> None:
    """Test that two brokers in one folder have two stores, if their files differ."""
    with Kept(SQLITE + "plugin_opt_db_file {dir}/a.sqlite3\n") as broker:
        assert [path.name for path in store_of(broker)] == ["a.sqlite3.store"]
        offline_subscriber(broker, ("a", 1))
        publish(broker.client("pub", clean=True), "a", b"x")
        broker.kill()
        assert read_publishes(broker.client("sub", session=True), 1)[0].payload == b"x"
        with Kept(SQLITE + f"plugin_opt_db_file {broker.dir}/b.sqlite3\n"):
            assert [path.name for path in store_of(broker)] == ["a.sqlite3.store", "b.sqlite3.store"]


def test_persistence_location_counts_before_the_file_of_persist_sqlite() -> None:
    with Kept(IN_DIR + SQLITE + "plugin_opt_db_file {dir}/a.sqlite3\n") as broker:
        assert [path.name for path in store_of(broker)] == ["mosquitto.db.store"]


def test_persist_sqlite_without_a_place_keeps_nothing() -> None:
    with Kept(SQLITE) as broker:
        offline_subscriber(broker, ("a", 1))
        assert "Warning: Sqlite persistence plugin has no plugin_opt_db_file defined. The plugin will not be activated." in broker.log()
        broker.kill()
        broker.client("sub", session=False)


def test_a_folder_that_cannot_be_written() -> None:
    broker = Kept("persistence true\ndurability group\npersistence_location {dir}/none/\n")
    with pytest.raises(RuntimeError, match=r"none: No such file or directory\), and 'durability' promises"):
        broker.start()
    broker.close()


@pytest.mark.parametrize(("lines", "kept"), [
    ("durability none\ndurability_topic group a\n", False),         # without a store a topic has none either
    ("durability_topic none a\n", False),
    ("durability_topic none b\ndurability_topic group a\n", True),
    ("durability_topic strict a/#\n", True),
    ("listener {port} 127.0.0.1\nallow_anonymous true\nlistener_durability none\n", False),
    ("listener {port} 127.0.0.1\nallow_anonymous true\nlistener_durability none\ndurability_topic group a\n", True),
])
@pytest.mark.parametrize("qos", [1, 2])
def test_durability_by_topic_and_listener(lines: str, kept: bool, qos: int) -> None:
    with Kept(IN_DIR + "persistence true\n" + lines) as broker:
        offline_subscriber(broker, ("a", qos))
        publish(broker.client("pub", clean=True), "a", b"x", qos)
        sub = broker.client("sub", session=True)
        assert read_publishes(sub, 1)[0].payload == b"x"       # without a promise for a crash
        subscribe(sub, ("z", 0))
        broker.kill()
        if lines.startswith("durability none"):
            broker.client("sub", session=False)
            return
        sub = broker.client("sub", session=True)
        if kept:
            assert read_publishes(sub, 1)[0].payload == b"x"
        else:
            nothing_more(sub)


def queued(broker: Kept, *messages: tuple[str, bytes]) -> list[tuple[str, bytes]]:
    offline_subscriber(broker, ("#", 1))
    pub = broker.client("pub", clean=True)
    for topic, payload in messages:
        publish(pub, topic, payload)
    broker.kill()
    sub = broker.client("sub", session=True)
    sub.send(Publish("end", b"", 1, 9))      # arrives last, because the queue is read from the store first
    got: list[tuple[str, bytes]] = []
    while True:
        packet = sub.read_packet()
        if isinstance(packet, Publish):
            sub.send(Puback(packet.mid))
            if packet.topic == "end":
                break
            got.append((packet.topic, packet.payload))
    return got


LIMIT = IN_DIR + "persistence true\nmax_queued_messages 3\n"
FIVE = tuple(("t", b"%d" % i) for i in range(5))


def test_the_newest_message_is_dropped_when_a_queue_is_full() -> None:
    with Kept(LIMIT) as broker:
        assert queued(broker, *FIVE) == list(FIVE[:3])


def test_the_oldest_message_is_dropped_with_drop_oldest() -> None:
    with Kept(LIMIT + "queue_overflow drop_oldest\n") as broker:
        assert queued(broker, *FIVE) == list(FIVE[2:])


def test_an_older_value_is_dropped_with_last_value() -> None:
    with Kept(LIMIT + "queue_overflow last_value\n") as broker:
        messages = [("a", b"1"), ("b", b"1"), ("a", b"2"), ("c", b"1"), ("b", b"2"), ("a", b"3"), ("d", b"1")]
        assert queued(broker, *messages) == [("b", b"2"), ("c", b"1"), ("d", b"1")]
