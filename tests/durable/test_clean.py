"""Test that cleaning copies only valid records: a message that replaced an older one in a queue stays."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.harness.packets import Connack, Connect, Puback, Publish, Subscribe
from tests.harness.plane import Plane

SEGMENT_BYTES = 64 * 1024


def fill(plane: Plane, done: Callable[[int], bool], lives: str = "") -> None:
    """Fill segments with records that the next one replaces; or, with `lives` for {} in the topic, with records that stay."""
    wire = plane.connect(Connect("filler"))
    assert isinstance(wire.read_packet(), Connack)
    for n in range(1000):
        if done(n):
            break
        wire.send(Publish(lives.format(n) or "filler", b"%04d" % n * 1000, 1, 1 + n, retain=True))
        assert isinstance(wire.read_packet(), Puback)
    else:
        raise AssertionError("the oldest segment was never cleaned")
    wire.close()


def another_segment(plane: Plane) -> None:
    """Fill a segment that is not cleaned at once, because all its records are valid."""
    fill(plane, lambda n: n == SEGMENT_BYTES // 4000 + 1, "lives/{}")


def as_killed(store: Path, copy: Path) -> Path:
    """Copy the store as a start would find it after a kill now; the copy is of one moment, without a cleaning in between."""
    def state() -> list[tuple[str, int, int]]:
        return sorted((file.name, (stat := file.stat()).st_mtime_ns, stat.st_size) for file in store.iterdir())

    while True:
        try:
            before = state()
            shutil.copytree(store, copy)
            if state() == before:
                return copy
        except (FileNotFoundError, shutil.Error):
            pass            # a segment that was dropped during the copy
        shutil.rmtree(copy, ignore_errors=True)


def publish(plane: Plane, topic: str, payload: bytes) -> None:
    wire = plane.connect(Connect("pub"))
    wire.read_packet()
    wire.send(Publish(topic, payload, 1, 1))
    assert isinstance(wire.read_packet(), Puback)
    wire.close()


def test_the_last_value_stays_last_after_cleaning(tmp_path: Path) -> None:
    """Test each end, also if the older record's segment has been cleaned and the newer record's segment has not."""
    how = {"settings": {"queue_overflow": "last_value"}, "segment_bytes": SEGMENT_BYTES, "allow_anonymous": True}
    store = tmp_path / "s"

    def kept(n: int) -> bool:
        copy = as_killed(store, tmp_path / f"copy{n}")
        with Plane(store=str(copy), **how) as plane:
            sub = plane.connect(Connect("sub", clean=False))
            got = [sub.read_packet() for _ in range(2)]
            assert [one.payload for one in got if isinstance(one, Publish)] == [b"2"]
        return n == 3 * SEGMENT_BYTES // 4000

    with Plane(store=str(store), **how) as plane:
        sub = plane.connect(Connect("sub", clean=False))
        sub.read_packet()
        sub.send(Subscribe(1, (("a", 1),)))
        sub.read_packet()
        sub.close()
        plane.until(lambda: plane.stats()["clients_connected"] == 0)
        publish(plane, "a", b"1")
        another_segment(plane)
        publish(plane, "a", b"2")
        fill(plane, kept)
