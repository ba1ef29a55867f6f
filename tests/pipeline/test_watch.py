"""Test the line of the log about a cluster without executors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mosq.pipeline.cluster import probe
from mosq.pipeline.cluster.watch import ALONE_S, EVERY_S, Watch


def test_one_line_reports_a_cluster_without_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    now, n, lines = [0.0], [2], list[str]()
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="spark://192.0.2.1:7077"))
    monkeypatch.setattr(probe, "executors", lambda _: n[0])
    watch = Watch(spark, lines.append, lambda: now[0])

    def wait(seconds: float) -> None:
        for _ in range(int(seconds / EVERY_S)):
            now[0] += EVERY_S
            watch.look()

    wait(100)
    n[0] = 0
    wait(ALONE_S - EVERY_S)
    assert lines == [], "an executor that was killed has a successor soon"
    wait(100)
    assert len(lines) == 1 and lines[0].startswith("spark://192.0.2.1:7077 has had no executor for 1") and "Start a worker" in lines[0]
    n[0] = 1
    wait(100)
    assert lines[1:] == ["there is an executor again: the batch goes on"]


def test_a_local_session_is_not_asked() -> None:
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"))
    Watch(spark, print, lambda: 0.0).look()
