"""Test paged deliveries and their records: cleaning finds each one, and no delivery waits for ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.durable.test_clean import SEGMENT_BYTES
from tests.harness.packets import Connack, Connect, Puback, Publish, Suback, Subscribe
from tests.harness.plane import Plane
from tests.harness.wire import Wire

BIG = b"A" * 20_000


def plane_on(store: Path, durability: str = "group", interval_ms: int = 2, **settings: Any) -> Plane:
    return Plane(store=str(store), segment_bytes=SEGMENT_BYTES, durability=durability, interval_ms=interval_ms, allow_anonymous=True,
                 settings={"queue_memory": 1, "max_queued_messages": 0, **settings})


def client(plane: Plane, name: str, *filters: tuple[str, int], clean: bool = False) -> Wire:
    wire = plane.connect(Connect(name, clean=clean))
    assert isinstance(wire.read_packet(), Connack)
    if filters:
        wire.send(Subscribe(1, filters))
        assert isinstance(wire.read_packet(), Suback)
    return wire


def publish(wire: Wire, topic: str, payload: bytes, **more: Any) -> None:
    wire.send(Publish(topic, payload, 1, 7, **more))
    assert isinstance(wire.read_packet(), Puback)


def until_cleaned(plane: Plane, pub: Wire) -> None:
    """Publish until the earlier segments are gone."""
    wire = client(plane, "junk", ("junk", 1), clean=True)
    before = plane.stats()
    while plane.stats()["disk_segments_cleaned"] < before["disk_segments_cleaned"] + before["disk_segments"] + 1:
        publish(pub, "junk", b"j" * 20_000, retain=True)
        while not isinstance(packet := wire.read_packet(), Publish):
            pass
        wire.send(Puback(packet.mid))
    wire.close()


def published(wire: Wire) -> Publish:
    packet = wire.read_packet()
    assert isinstance(packet, Publish)
    return packet


def first(wire: Wire) -> bytes:
    return published(wire).payload


@pytest.mark.parametrize("restarted", [False, True])
def test_a_retained_message_recorded_again_without_an_entry(tmp_path: Path, restarted: bool) -> None:
    """Test a message that `late` gets by replay and acknowledges before its second record is sealed, which has no entry for `sub`."""
    with plane_on(tmp_path / "s", "async", 20) as plane:
        client(plane, "sub", ("r", 1), ("f", 1)).close()
        pub = client(plane, "pub", clean=True)
        publish(pub, "r", BIG, retain=True)
        online = client(plane, "online", ("live", 1))
        for _ in range(200):             # all is acknowledged at once: a batch stays open for its interval
            publish(pub, "live", b"")
            online.send(Puback(published(online).mid))
        late = client(plane, "late")
        late.send(Subscribe(1, (("r", 1),)))
        for _ in range(2):
            if isinstance(packet := late.read_packet(), Publish):
                late.send(Puback(packet.mid))
        for _ in range(4):
            written = plane.stats()["disk_messages_written"]
            publish(pub, "f", b"pages what is before it")
            plane.until(lambda written=written: plane.stats()["disk_messages_written"] > written)
        publish(pub, "r", b"B", retain=True)
        until_cleaned(plane, pub)
        if not restarted:
            assert first(client(plane, "sub")) == BIG
    if restarted:
        with plane_on(tmp_path / "s") as plane:
            assert first(client(plane, "sub")) == BIG


def test_an_unrecorded_delivery_is_not_read_from_another_record(tmp_path: Path) -> None:
    """Test a retained message with a record, whose delivery to `sub` has none, because of `durability none`."""
    with plane_on(tmp_path / "s", durability_topic="none r") as plane:
        client(plane, "sub", ("r", 1), ("f", 1)).close()
        pub = client(plane, "pub", clean=True)
        publish(pub, "r", BIG, retain=True)
        for _ in range(4):
            publish(pub, "f", b"pages what is before it")
        publish(pub, "r", b"B", retain=True)
        until_cleaned(plane, pub)
        assert first(client(plane, "sub")) == BIG


def test_retained_messages_follow_a_queue_of_qos_0(tmp_path: Path) -> None:
    settings = {"queue_qos0_messages": 1, "max_queued_messages": 1000}
    with plane_on(tmp_path / "s", **settings) as plane:
        client(plane, "sub", ("t", 0)).close()
        pub = client(plane, "pub", clean=True)
        plane.until(lambda: plane.stats()["clients_connected"] == 1)
        pub.send(*(Publish("t", b"%d" % i, 0) for i in range(150)))
        publish(pub, "ret", b"R", retain=True)
    with plane_on(tmp_path / "s", **settings) as plane:
        sub = plane.wire()
        sub.send(Connect("sub", clean=False), Subscribe(1, (("ret", 1),)))
        got = [packet.payload for packet in (sub.read_packet() for _ in range(153)) if isinstance(packet, Publish)]
        assert sorted(got) == sorted([*(b"%d" % i for i in range(150)), b"R"])


def test_memory_of_paged_messages_is_freed_at_disconnect(tmp_path: Path) -> None:
    """Test returning sessions: each reads its own copy of a message that is pending for all."""
    names = [f"s{i}" for i in range(50)]
    with plane_on(tmp_path / "s") as plane:
        for name in names:
            client(plane, name, ("t", 1)).close()
        pub = client(plane, "pub", clean=True)
        for _ in range(60):
            publish(pub, "t", b"x" * 4000)
    with plane_on(tmp_path / "s") as plane:
        wires = [client(plane, name) for name in names]
        for wire in wires:
            assert first(wire) == b"x" * 4000
        assert plane.stats()["store_bytes"] < 50 * 25 * 4100         # messages in flight, fewer than could be read ahead
        for wire in wires:
            wire.close()
        plane.until(lambda: plane.stats()["clients_connected"] == 0)
        plane.until(lambda: plane.stats()["store_bytes"] < 100_000)
        assert first(client(plane, "s7")) == b"x" * 4000


def test_a_fan_out_job_is_synced_before_its_acknowledgement(tmp_path: Path) -> None:
    with plane_on(tmp_path / "s", turn_budget=1000, durability_topic="strict t") as plane:
        for i in range(60):              # 50 units of work each
            client(plane, f"s{i}", ("t", 1))
        pub = client(plane, "pub", clean=True)
        assert plane.stats()["disk_syncs"] == 0
        publish(pub, "t", b"x")
        assert plane.stats()["disk_syncs"] > 0
