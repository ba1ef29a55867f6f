"""The effect of each option of persistence, and of `durability`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.durable.test_restart import Kept, offline_subscriber, owed, publish

IN_DIR = "persistence_location {dir}\n"


def store_of(broker: Kept) -> list[Path]:
    return sorted(broker.dir.glob("*.store"))


@pytest.mark.parametrize("lines", ["persistence true\n", "retained_persistence true\n", "plugin /usr/lib/mosquitto_persist_sqlite.so\n",
                                   "persistence true\ndurability strict\n", "persistence true\ndurability_interval 0\n"])
def test_what_keeps(lines: str) -> None:
    with Kept(IN_DIR + lines) as broker:
        offline_subscriber(broker, ("a", 1))
        publish(broker.client("pub", clean=True), "a", b"x")
        broker.kill()
        assert owed(broker.client("sub", session=True), 1)[0].payload == b"x"


@pytest.mark.parametrize("lines", ["", "persistence false\n", "persistence true\ndurability none\n"])
def test_what_does_not(lines: str) -> None:
    with Kept(IN_DIR + lines) as broker:
        offline_subscriber(broker, ("a", 1))
        broker.kill()
        broker.client("sub", session=False)
        assert store_of(broker) == []


def test_async_is_written_within_the_interval() -> None:
    """And so at an orderly stop."""
    with Kept(IN_DIR + "persistence true\ndurability async\n") as broker:
        offline_subscriber(broker, ("a", 1))
        publish(broker.client("pub", clean=True), "a", b"x")
        broker.restart()
        assert owed(broker.client("sub", session=True), 1)[0].payload == b"x"


def test_where_it_lies() -> None:
    with Kept("persistence true\npersistence_location {dir}\npersistence_file other.db\n") as broker:
        assert [path.name for path in store_of(broker)] == ["other.db.store"]
        assert f"Store {broker.dir}/other.db.store: 0 sessions" in broker.log()


def test_a_database_of_mosquittos_is_not_passed_over_in_silence() -> None:
    broker = Kept("persistence true\npersistence_location {dir}\n")
    (broker.dir / "mosquitto.db").write_bytes(b"")
    with broker:
        assert "mosq db import" in broker.log()


def test_a_folder_that_cannot_be_written() -> None:
    broker = Kept("persistence true\npersistence_location {dir}/none/\n")
    with pytest.raises(RuntimeError, match=r"none/mosquitto\.db\.store"):
        broker.start()
    broker.close()
