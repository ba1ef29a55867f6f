"""Test how the memory of a worker is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from mosq.server.workers import memory
from tests.harness.effort import SANITIZED
from tests.workers.case import until
from tests.workers.test_streams import STORE
from tests.workers.test_whole import Scene

SEGMENT_BYTES = 16 << 20


def own_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Private_Dirty:"))


def read_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/io").read_text().split()[1])


def test_a_large_process_is_not_divided_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    resident, divided, asked = 100 << 20, 70 << 20, 0

    def divide() -> int:
        nonlocal asked
        asked += 1
        return divided

    monkeypatch.setattr(memory, "resident_bytes", lambda: resident)
    monkeypatch.setattr(memory, "divided_bytes", divide)
    one = memory.Memory()
    assert one.bytes() == 70 << 20
    divided = 80 << 20
    assert (one.bytes(), asked) == (80 << 20, 2)
    resident = 1 << 30
    assert (one.bytes(), asked) == (resident - (20 << 20), 2)
    assert (memory.Memory().bytes(), asked) == (80 << 20, 3)       # at first a large one is, too


def test_a_system_that_does_not_divide_memory_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "divided_bytes", lambda: None)
    assert memory.Memory().bytes() == pytest.approx(memory.resident_bytes(), rel=0.05)


@pytest.mark.skipif(SANITIZED, reason="the sanitizer keeps memory that was freed")
def test_a_worker_returns_the_memory_of_segments_that_it_has_read() -> None:
    scene = Scene(STORE)
    try:
        first = own_bytes(scene.broker.pids()[1])
        for _ in range(3):              # each start begins a segment; the third and later ones clean the oldest
            scene.broker.stop()
            scene.broker.start()
        pid = scene.broker.pids()[1]
        until(lambda: read_bytes(pid) > 4 * SEGMENT_BYTES, scene.broker.log)       # three at the start, and the oldest again
        assert own_bytes(pid) < first + SEGMENT_BYTES / 2
    finally:
        scene.close()
