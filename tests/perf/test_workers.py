"""Test what the measurements of several workers rest on: the workers of the clients, and the section that shows figures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from mosq.engine import worker_place
from perf.workers import flows, report
from perf.workers.flows import OTHERS, TRIES, calm
from perf.workers.pairs import PLACES, SINGLE, rows_of
from perf.workers.started import broker

if TYPE_CHECKING:
    from pathlib import Path


def test_clients_are_named_by_their_worker() -> None:
    with broker(2) as running:
        places = [0, 1, 1, 0, 1]
        names = running.names(places)
        assert len(set(names)) == 5
        assert [worker_place(running.key, name.encode(), 2) for name in names] == places
        assert len(running.pids()) == 2 and running.pid not in running.pids()


def test_half_of_the_pairs_are_across_workers() -> None:
    across = {name: sum(one != other for one, other in places) / len(places) for name, places in PLACES.items()}
    assert across == {"one process": 0, "within": 0, "one": 0, "half": 0.5, "across": 1}


def test_a_disturbed_run_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flows, "PAUSE_S", 0.0)
    others = [2 * OTHERS, 0.0, 0.0]
    assert calm(lambda: {"others": others.pop(0)}) == {"others": 0.0} and len(others) == 1
    others = [1.0] * TRIES
    assert calm(lambda: {"others": others.pop()}) == {"others": 1.0} and not others


def test_disturbed_runs_do_not_count() -> None:
    runs = [{"cpu_us": cost, "rate": 1e6, "others": others} for cost, others in ((1.0, 0.0), (9.0, 1.0), (1.2, 0.1))]
    base = [{"cpu_us": 0.5, "rate": 1e6, "others": 0.0}]
    row = rows_of("QoS 0", {SINGLE: base, "half": runs}, 0.0)[1]
    assert row["cpu_us"] == 1.1 and row["ratio"] == 2.2 and row["ratios"] == [2.0, 2.4] and row["counted"] == 2


def test_a_missed_limit_is_shown(tmp_path: Path) -> None:
    row = {"load": "QoS 0", "placement": "half", "cpu_us": 0.5, "ratio": 1.7, "ratios": [1.6, 1.8], "limit": 1.6,
           "messages_per_s": 2e6, "counted": 4, "runs": [{}] * 5}
    (tmp_path / "pairs-0.json").write_text(json.dumps({"machine": {"cores": 2}, "commit": "abc", "measured": "now",
                                                       "rows": [row, {**row, "ratio": 1.4}]}))
    text = "".join(report.section(tmp_path))
    assert "| QoS 0 | half | 0.50 | 1.70 | 1.60 to 1.80 | most 1.6: **missed** | 2,000 | 4 of 5 |" in text
    assert "most 1.6: met" in text and "TLS" not in text
