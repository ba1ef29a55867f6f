"""Test what the measurements of a cluster rest on: where clients connect, whose CPU counts, and the section that shows figures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from mosq.engine import worker_place
from perf.cluster import report
from perf.cluster.flows import across
from perf.cluster.messages import RELAY, rows_of
from perf.cluster.started import cluster
from perf.workers.flows import Load

if TYPE_CHECKING:
    from pathlib import Path

RUN = {"rate": 1e5, "others": 0.0, "p50_us": 100.0, "p99_us": 25_000.0}


@pytest.mark.part("redis")
def test_messages_cross_two_nodes_and_all_their_processes_count() -> None:
    with cluster() as running:
        running.start()
        assert sorted(node.name for node in running.home) == ["a", "b"]
        [name] = running.names([running.worker_at(1)])
        assert running.home[worker_place(running.facts.key, name.encode(), 2)] is running.nodes[1]
        found = across(running, Load(qos=1, durable=True, seconds=0.5), 2)
        assert found["parts_us"].keys() == {"node a", "node b", "Redis", "replica"}
        assert all(us > 0 for us in found["parts_us"].values()) and found["rate"] > 0


def test_a_case_is_a_multiple_of_the_relay_of_its_run() -> None:
    found = {RELAY: [{**RUN, "cpu_us": 0.5}], "2 nodes": [{**RUN, "cpu_us": us} for us in (1.0, 1.1, 1.4)]}
    relayed, row = rows_of("QoS 0", found)
    assert relayed["ratio"] == 1.0
    assert row["cpu_us"] == 1.1 and row["ratio"] == 2.2 and row["spread"] == [1.0, 1.4]


def test_limits_are_shown(tmp_path: Path) -> None:
    rows = rows_of("QoS 1, durable, 20 k/s", {RELAY: [{**RUN, "cpu_us": 6.0}], "2 nodes": [{**RUN, "cpu_us": 11.0}]})
    (tmp_path / "messages.json").write_text(json.dumps({"machine": {"cores": 2}, "commit": "abc", "measured": "now", "rows": rows}))
    text = "".join(report.section(tmp_path))
    assert "most 12 us: met; most p99 20,000 us: **missed**" in text and "Take-over" not in text
