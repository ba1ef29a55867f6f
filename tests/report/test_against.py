"""Test the comparison of two folders: a worse figure is found, and noise is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mosq.tools.bench.html import against
from mosq.tools.bench.html.against import BETTER, SAME, UNKNOWN, WORSE, Change, compare, regressed
from mosq.tools.bench.html.lab import Lab
from mosq.tools.bench.html.model import Folder
from mosq.tools.bench.html.reading import _run
from mosq.cli.commands import main
from tests.report import folder


def lab(lines: list[dict[str, Any]]) -> Lab:
    found = Folder("made up")
    for told in lines:
        _run(found, told, told["run"])
    return Lab(found)


def runs(*cost_us: float, **phase: Any) -> list[dict[str, Any]]:
    """Return one measurement with a repetition for each cost."""
    found = []
    for rep, cost in enumerate(cost_us):
        told = folder.first()
        told["run"]["rep"] = rep
        told["phases"][0].update({"broker": {"cpu_us_per": cost}, "rate": 0.0, "per": 0, **phase})
        found.append(told)
    return found


def verdicts(after: list[dict[str, Any]], before: list[dict[str, Any]]) -> dict[str, str]:
    return {change.figure.name if change.figure else change.words: change.verdict for change in compare(lab(after), lab(before))}


@pytest.mark.parametrize(("after", "before", "verdict"), [
    ((1.3, 1.31, 1.29), (1.0, 1.01, 0.99), WORSE), ((0.7, 0.71, 0.69), (1.0, 1.01, 0.99), BETTER), ((1.0, 1.02, 0.98), (1.0, 1.01, 0.99), SAME),
    ((1.02, 1.021, 1.019), (1.0, 1.001, 0.999), SAME),              # beyond noise, but too small to count
    ((1.3, 1.9, 0.9), (1.0, 1.4, 0.7), SAME),                       # scatter
    ((1.3, 1.31, 1.0), (1.0, 1.01, 0.99), SAME),                    # one of three equals the earlier ones
    ((1.5,), (1.0, 1.0, 1.0), UNKNOWN), ((1.5, 1.5), (1.0,), UNKNOWN), ((9.0,), (1.0,), UNKNOWN)])
def test_verdicts(after: tuple[float, ...], before: tuple[float, ...], verdict: str) -> None:
    assert verdicts(runs(*after), runs(*before)) == {"CPU per message": verdict}


def test_more_throughput_is_better_and_more_memory_worse() -> None:
    def of(rate: float, rss: float) -> list[dict[str, Any]]:
        return [one for i in range(3) for one in runs(1.0, rate=rate + i, broker={"rss_after_bytes": rss + i})]

    assert verdicts(of(2000, 2e6), of(1000, 1e6)) == {"Throughput": BETTER, "Memory": WORSE}


def test_generator_bound_rates_are_not_compared() -> None:
    assert verdicts(runs(1, 1, rate=10.0, limit="generator", seconds=1.0), runs(1, 1, rate=20.0)) == {"CPU per message": SAME}


def test_latencies_are_compared_at_a_fixed_rate_only() -> None:
    def of(p99: float, rate: float) -> list[dict[str, Any]]:
        found = runs(1, 1, latency={"count": 5, "p99_us": p99})
        for one in found:
            one["options"]["rate"] = rate
        return found

    assert verdicts(of(500.0, 0.0), of(100.0, 0.0)) == {"CPU per message": SAME}
    assert verdicts(of(500.0, 20.0), of(100.0, 20.0)) == {"CPU per message": SAME, "p99": WORSE}


def test_lost_messages_and_runs_that_break_off_now_are_worse() -> None:
    found = verdicts(runs(1, 1, lost=3), runs(1, 1))
    assert found == {"6 messages lost, doubled, out of order, refused or never sent; before none": WORSE, "CPU per message": SAME}
    assert verdicts(runs(1, 1, lost=3), runs(1, 1, lost=9)) == {"CPU per message": SAME}
    assert verdicts(runs(1, 1, lost=9), runs(1, 1, lost=5)) == {"CPU per message": SAME}
    assert verdicts(runs(1, 1, lost=9000), runs(1, 1, lost=1)) == {
        "18,000 messages lost, doubled, out of order, refused or never sent; before 2": WORSE, "CPU per message": SAME}
    assert WORSE in verdicts(runs(1, 1, lost=9), runs(1, 1, lost=4)).values()           # a few losses in each repetition
    assert WORSE in verdicts(runs(1, lost=1000) + runs(1), runs(1, 1, lost=4)).values()   # many losses in one repetition
    assert verdicts(runs(1, 1, lost=9), runs(1, 1, lost=1, published=10_000, delivered=10_000, per=10_000)) == {"CPU per message": SAME}   # few of many
    broken = runs(1, 1, complete=False)
    for one in broken:
        one.update(complete=False, why="no broker there")
    assert verdicts(broken, runs(1, 1)) == {"breaks off now: no broker there": WORSE}
    for one in broken:
        one["phases"] = []
    assert verdicts(broken, runs(1, 1)) == {"breaks off now: no broker there": WORSE}
    assert verdicts(broken[:1] + runs(1, 1), runs(1, 1)) == {"CPU per message": SAME}


def test_the_same_commit_measured_twice_has_no_regression() -> None:
    """Test ten pairs of labs that differ only by chance, with 139 figures each."""
    labs = [lab(folder.runs(3, seed=seed)) for seed in range(5)]
    found = [change for i, after in enumerate(labs) for before in labs[:i] for change in compare(after, before)]
    assert len(found) > 1300 and sum(change.verdict in (WORSE, BETTER) for change in found) <= 3


def test_a_real_regression_is_found_and_only_that() -> None:
    found = compare(lab(folder.runs(3, slower=1.15)), lab(folder.runs(3, seed=2)))
    beyond = [change for change in found if change.verdict != SAME]
    assert {(change.figure.name, change.verdict) for change in beyond if change.figure} == {("CPU per message", WORSE), ("Throughput", WORSE)}
    assert {change.name for change in beyond} == {"50 publishers to one subscriber, QoS 0, mosq"} and regressed(found)


def test_measurements_of_one_folder_only_are_reported() -> None:
    after, before = lab(runs(1, 1)), lab(folder.runs(2))
    section = against.section(after, before, compare(after, before))
    assert any("measurements of the older folder are not in the newer" in warning for warning in section.warnings)


def test_lines_for_a_terminal() -> None:
    changes: list[Change] = compare(lab(runs(2, 2)), lab(runs(1, 1)))
    assert against.lines(changes)[1:] == [("worse", "CPU per message", "1.00 µs", "2.00 µs", "+100 %", "± 0.5 %",
                                           "50 publishers to one subscriber, QoS 0, mosq")]


@pytest.mark.interop
def test_the_command(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    old = folder.write(tmp_path / "old", runs(1.0, 1.01), locust=None)
    new = folder.write(tmp_path / "new", runs(2.0, 2.01), locust=None)
    once = folder.write(tmp_path / "once", runs(9.0), locust=None)
    assert main(["bench", "report", new, "--against", old, "--csv", str(tmp_path / "csv")]) == 4
    assert "worse    CPU per message" in capfd.readouterr().out and "worse," in (tmp_path / "csv" / "against.csv").read_text()
    assert main(["bench", "report", old, "--against", old]) == 0
    assert "0 changed beyond noise" in capfd.readouterr().out
    assert main(["bench", "report", once, "--against", old]) == 0
    assert "The changes are unknown: one of the folders has a single repetition" in capfd.readouterr().out
    assert main(["bench", "report", new, "--against", str(tmp_path)]) == 1


def test_nothing_to_compare_is_an_error(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = runs(1.0)
    other[0]["run"]["test"] = "another"
    new, old = (folder.write(tmp_path / name, lines, locust=None) for name, lines in (("new", runs(1.0)), ("old", other)))
    assert main(["bench", "report", new, "--against", old]) == 1
    assert "have no measurement in common" in capfd.readouterr().err and not (tmp_path / "new" / "report.html").exists()
