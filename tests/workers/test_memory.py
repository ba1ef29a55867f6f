"""Test how the memory of a worker is counted."""

from __future__ import annotations

import pytest

from mosq.server.workers import memory


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
