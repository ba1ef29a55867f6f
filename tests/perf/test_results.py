"""Test that perf/RESULTS.md is generated from perf/results, and that kept folders are small and without paths of the machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from perf import results

from mosq.tools.bench.html.lab import Lab
from mosq.tools.bench.html.reading import read
from tests.report import folder


def test_the_committed_file_matches_its_runs() -> None:
    assert results.KEPT.is_dir() and results.main(["--check"]) == 0, "python -m perf.results"


def test_stored_results_are_equal_and_small(tmp_path: Path) -> None:
    lines = folder.runs(2)
    lines[3].update(complete=False, why="cannot read /var/lib/secret/file.conf: gone")
    lines[0]["run"]["command"] = "/root/somebody/.venv/bin/mosq bench fan-in --json /tmp/x/out.json -h 10.0.0.1 a/b/c"
    source, target = tmp_path / "lab", tmp_path / "results" / "lab"
    folder.write(source, lines)
    results.keep(source, target)
    kept = (target / "runs.jsonl").read_text()
    assert "buckets_ns" not in kept and "timeline" not in kept and len(kept) < 0.2 * (source / "runs.jsonl").stat().st_size
    assert "secret" not in kept and "cannot read file.conf: gone" in kept and "somebody" not in kept and "mosq bench fan-in --json out.json -h 10.0.0.1 a/b/c" in kept
    before, after = Lab(read(str(source))), Lab(read(str(target)))
    assert not after.folder.problems and list(after.by_key) == list(before.by_key) and after.brokers == before.brokers
    assert after.folder.locust == before.folder.locust and [run.rep for run in after.folder.failed] == [run.rep for run in before.folder.failed]
    for key, group in before.by_key.items():
        for one, other in zip(group.rows, after.by_key[key].rows, strict=True):
            assert (one.qos, one.size, one.unit, one.counts, one.fixed_rate) == (other.qos, other.size, other.unit, other.counts, other.fixed_rate)
            assert other.times.us["p99_us"] == pytest.approx(one.times.us["p99_us"], rel=1e-5) and other.rate == pytest.approx(one.rate, rel=1e-5)


def test_an_earlier_stored_load_test_is_removed(tmp_path: Path) -> None:
    source, target = tmp_path / "lab", tmp_path / "kept"
    folder.write(source)
    results.keep(source, target)
    assert (target / "locust.json").exists()
    (source / "locust.json").unlink()
    results.keep(source, target)
    assert sorted(file.name for file in target.iterdir()) == ["about.json", "runs.jsonl"]


def test_results_by_hand_become_runs(tmp_path: Path) -> None:
    for i, name in enumerate(("mosq", "other")):
        told = folder.first()
        del told["run"]
        told["options"]["name"] = name
        (tmp_path / f"{i}.json").write_text(json.dumps(told))
    results.keep(tmp_path, tmp_path / "kept")
    assert sorted(file.name for file in (tmp_path / "kept").iterdir()) == ["about.json", "runs.jsonl"]
    assert read(str(tmp_path / "kept")).about.machine["processor"] == "Some Processor" and Lab(read(str(tmp_path / "kept"))).brokers == ["mosq", "other"]


def test_the_file_has_tables_and_escapes_markup(tmp_path: Path) -> None:
    lines = folder.runs(2)
    for one in lines[:4]:
        one["run"]["title"] = "a | b <script> `c`"
    kept, file = tmp_path / "results", tmp_path / "RESULTS.md"
    kept.mkdir()
    folder.write(tmp_path / "lab", lines)
    assert results.main([str(tmp_path / "lab")], kept, file) == 0 == results.main(["--check"], kept, file)
    text = file.read_text()
    assert "| a \\| b \\<script\\> \\`c\\` |" in text and "<script>" not in text
    for words in ("## Three brokers, made up", "### Throughput", "### Latency", "### The paper's four tests", "### Effect of each optimisation", "- Kernel: 6.1.0",
                  "| mosquitto-2.0.11 | 2.0.11 | mosquitto |", "mosq bench fan-in -p 1883", "✓ met"):
        assert words in text
    assert all(line.count("|") >= 3 for line in text.splitlines() if line.startswith("|")) and results.main([], kept, file) == 0 and file.read_text() == text
    file.write_text("by hand")
    assert results.main(["--check"], kept, file) == 1


def test_unreadable_results_are_not_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.write(tmp_path / "lab", folder.runs(1))
    with (tmp_path / "lab" / "runs.jsonl").open("a") as file:
        file.write("{")
    assert results.main([str(tmp_path / "lab")], tmp_path / "kept", tmp_path / "RESULTS.md") == 1
    assert "not JSON" in capsys.readouterr().err and not (tmp_path / "kept").exists()
