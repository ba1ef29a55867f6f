"""Test reports with artificial figures, without pyperf and matplotlib."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from perf import tables
from perf.ablation import report as ablation
from perf.ablation import rows
from perf.ablation.rows import Row
from perf.micro import report
from perf.micro.latency import quantile


def suite(**medians_ns: float) -> dict[str, object]:
    return {"metadata": {}, "benchmarks": [
        {"metadata": {"name": name}, "runs": [{"warmups": [[1, 1.0]]}, {"values": [ns / 1e9, ns / 1e9, 1.0]}]}
        for name, ns in medians_ns.items()]}


def test_a_table_of_pyperf_figures() -> None:
    text = report.report(suite(**{
        "match/deep/1000/full/hot": 100, "match/deep/1000000/full/hot": 149, "match/deep/1000/scan/hot": 20_000,
        "insert/deep/1000/full/-": 250, "pool-churn/-/10/on/-": 10, "pool-churn/-/10/off/-": 40}), [])
    assert "| deep | full | hot | 100 ns | 149 ns | 1.49 |" in text
    assert "| deep | scan | hot | 20.0 us |  |  |" in text
    assert "| deep | full | - | 250 ns |" in text
    assert "| churn | 10 | 10 ns | 40 ns | 0.25 |" in text
    assert "at most 1.49 (deep); promised 1.5: kept" in text


def test_a_promise_that_is_not_kept() -> None:
    figures = suite(**{"match/deep/1000/full/wide": 100, "match/deep/1000000/full/wide": 151})
    assert "promised 1.5: NOT KEPT" in report.report(figures, [])


def test_the_name_of_a_single_benchmark_is_in_the_metadata() -> None:
    figures = {"metadata": {"name": "match/deep/10/full/hot"}, "benchmarks": [{"runs": [{"values": [1e-6]}]}]}
    assert report.benches(figures) == [report.Bench("match", "deep", 10, "full", "hot", pytest.approx(1000))]


def test_the_least_maximum_counts() -> None:
    row = {"corpus": "deep", "filters": 1_000_000, "mode": "full", "operation": "insert", "p50_ns": 100, "p99_ns": 2_000}
    text = report.slowest([{**row, "rep": 0, "p99.99_ns": 900_000, "max_ns": 7_000_000},
                           {**row, "rep": 1, "p99.99_ns": 1_000, "max_ns": 3_000_000},
                           {**row, "rep": 2, "p99.99_ns": 2_000, "max_ns": 5_000_000}])
    assert "| insert | deep | full | 1 M | 100 ns | 2.00 us | 2.00 us | 3.00 ms | kept |" in text
    assert "NOT KEPT" in report.slowest([{**row, "p99.99_ns": 1_000_001, "max_ns": 2_000_000}])


def test_quantiles() -> None:
    buckets = Counter({10: 98, 20: 1, 5000: 1})
    assert [quantile(buckets, q) for q in (0.5, 0.98, 0.99, 0.9999)] == [10, 10, 20, 5000]
    assert quantile(Counter(), 0.5) == 0


@pytest.mark.parametrize(("ns", "text"), [(3.4, "3 ns"), (999, "999 ns"), (1000, "1.00 us"), (25_400, "25.4 us"), (4e8, "400 ms")])
def test_durations(ns: float, text: str) -> None:
    assert tables.duration(ns) == text


def figures(measure: str, place: str, n: int, **of_variants: list[float]) -> list[Row]:
    return [Row("index", measure, place, n, variant.replace("_", " "), rep, value)
            for variant, values in of_variants.items() for rep, value in enumerate(values)]


def test_ratios_are_taken_within_a_repetition() -> None:
    # the machine was twice as slow in the second repetition
    found = rows.cells(figures("match, hot", "deep", 1000, default=[100, 200, 100], no_letters=[150, 300, 140]))
    assert [(c.variant, c.ratio) for c in found] == [("default", 1.0), ("no letters", 1.5)]
    assert (found[1].value, found[1].least, found[1].most) == (150, 1.4, 1.5)


def test_worth_and_cost_beyond_noise() -> None:
    measured = (figures("match, hot", "deep", 1, default=[100], default_again=[104], plain_tree=[80], no_letters=[98])
                + figures("match, hot", "deep", 1000, default=[100], default_again=[99], plain_tree=[300], no_letters=[103]))
    text = ablation.report(measured)
    assert "| plain tree | index: match, hot | 3.00 (deep, 1 k) | 0.80 (deep, 1) | 1.04 |" in text
    assert "| no letters | index: match, hot | - | nowhere | 1.04 |" in text
    assert "| plain tree | index: match, hot | deep | 0.80 | 1.04 |" in text.partition("### Small loads")[2]
    assert "| deep | 1 k | 100 | 0.99 | 1.03 | 3.00 |" in text


def test_a_differing_repetition_counts() -> None:
    measured = figures("match, hot", "deep", 1, default=[100, 100, 100], plain_tree=[80, 80, 101], no_letters=[120, 120, 99])
    text = ablation.report(measured)
    assert "| plain tree | index: match, hot | - | nowhere |" in text
    assert "| no letters | index: match, hot | - | nowhere |" in text


def test_lost_messages_are_noted() -> None:
    measured = [Row("broker", "CPU", "match", 0, "default", 0, 2.0), Row("broker", "CPU", "match", 0, "scan", 0, 3.0, "7 lost")]
    assert "| match | 2.00 | 1.50 (7 lost) |" in ablation.report(measured)


def test_failures_are_noted() -> None:
    measured = [*figures("insert", "deep", 1000, default=[100]), Row("index", "insert", "deep", 1000, "scan", 0, 0, "over 10 s")]
    assert "| deep | 1 k | 100 | over 10 s |" in ablation.report(measured)


def test_rows_are_written_and_read_back(tmp_path) -> None:
    measured = figures("insert", "deep", 1000, default=[100, 101])
    assert rows.write(tmp_path / "new" / "rows.jsonl", iter(measured)) == measured
    assert rows.read(tmp_path / "new" / "rows.jsonl") == measured


def test_reports_need_neither_pyperf_nor_matplotlib() -> None:
    program = ("import sys, perf.micro.latency, perf.micro.report, perf.ablation.__main__; "
               "sys.exit(bool({'matplotlib', 'pyperf'} & sys.modules.keys()))")
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", program], cwd=root, timeout=60).returncode == 0
