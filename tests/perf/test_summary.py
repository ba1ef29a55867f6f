"""Test the table of README.md that perf/summary.py prints from the lab's suite `cost`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from perf.summary import BEGIN, END, ROWS, main

ROOT = Path(__file__).resolve().parents[2]


def run(test: str, case: str, broker: str, us: float, *, exact: bool = True, idle: float = 500.0) -> dict[str, Any]:
    return {"complete": True, "run": {"test": test, "case": case, "broker": broker, "variant": ""}, "phases": [
        {"exact": exact, "broker": {"cpu_us_per": us, "rss_before_bytes": 15e6, "rss_after_bytes": 20e6},
         "extra": {"bytes_per_client": idle}}]}


def printed(folder: Path, capsys: pytest.CaptureFixture[str], *runs: dict[str, Any]) -> tuple[int, list[str]]:
    (folder / "runs.jsonl").write_text("".join(json.dumps(one) + "\n" for one in runs))
    return main(str(folder)), capsys.readouterr().out.splitlines()


def test_cells_are_multiples_of_the_relay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = printed(tmp_path, capsys, *(run("cost-pairs", "QoS 0", "relay", us) for us in (1.0, 2.0, 9.0)),
                            run("cost-pairs", "QoS 0", "flashmq-1.26.2", 6.0), run("cost-pairs", "QoS 0", "mosq", 2.5),
                            run("cost-connect", "10,000 clients", "mosq", 14.0))
    assert status == 0
    assert lines[0] == "|  | relay | mosq | flashmq-1.26.2 |"
    assert lines[2] == "| 100 pairs QoS 0 | 2.00 us | 1.25 (2.50) | 3.00 (6.00) |"
    assert lines[3:5] == ["| memory per idle client | - | 500 B | - |", "| resident memory, 10,000 idle clients | - | 20.0 MB | - |"]


@pytest.mark.parametrize(("mosq", "words"), [
    (run("cost-pairs", "QoS 0", "mosq", 1.51), "1.51 times the relay's CPU; the bound is 1.5"),
    (run("cost-pairs", "QoS 0", "mosq", 1.0, exact=False), "messages were lost, duplicated or reordered"),
    (run("cost-connect", "10,000 clients", "mosq", 1.0, idle=601.0), "memory per idle client: 601 bytes; the bound is 600")])
def test_a_missed_bound_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str], mosq: dict[str, Any], words: str) -> None:
    status, lines = printed(tmp_path, capsys, run("cost-pairs", "QoS 0", "relay", 1.0), run("cost-connect", "10,000 clients", "relay", 1.0), mosq)
    assert status == 1 and lines[-1].endswith(words)


def test_the_tables_of_the_page_are_replaced_and_its_text_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.md"
    page.write_text((ROOT / "README.md").read_text())
    before, after = page.read_text().partition(BEGIN)[0], page.read_text().partition(END)[2]
    (tmp_path / "runs.jsonl").write_text("".join(json.dumps(run("cost-pairs", "QoS 0", broker, 2.0)) + "\n" for broker in ("relay", "mosq") * 3))
    assert main(str(tmp_path), "--write", str(page)) == 0
    lines = page.read_text().removeprefix(before).removesuffix(after).splitlines()
    assert [*lines[:2], *lines[3:]] == [BEGIN, "", "", "|  | relay | mosq |", "| --- | --- | --- |", "| 100 pairs QoS 0 | 2.00 us | 1.00 (2.00) |", "", END]
    assert lines[2].startswith("Measured on ") and lines[2].endswith("; medians of 3 runs.")
    capsys.readouterr()


def test_each_row_is_a_case_of_the_suite() -> None:
    from perf.lab.plan import COST

    assert set(ROWS) <= {(test.id, case.text.format("10,000")) for test in COST.tests for case in test.cases}
