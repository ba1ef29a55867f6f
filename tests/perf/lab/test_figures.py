"""Test medians, spreads and closing tables with artificial figures."""

from __future__ import annotations

from typing import Any

import pytest
from perf.lab import figures


@pytest.mark.parametrize(("values", "middle", "wide"), [
    ([], None, None), ([3.0], 3.0, None), ([1.0, 2.0, 3.0], 2.0, 0.5), ([4.0, 1.0], 2.5, 0.6), ([0.0, 0.0], 0.0, None),
    ([10.0, 10.0, 10.0], 10.0, 0.0)])
def test_median_and_spread(values: list[float], middle: float | None, wide: float | None) -> None:
    assert figures.median(values) == middle
    assert figures.spread(values) == (None if wide is None else pytest.approx(wide))


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (0.1234, "0.123"), (1.234, "1.23"), (12.34, "12.3"),
                                             (1234.5, "1,234"), (0.0, "0.000")])
def test_numbers_have_only_significant_digits(value: float | None, text: str) -> None:
    assert figures.number(value) == text


def phase(cpu: float, rate: float = 1000.0, **changes: Any) -> dict[str, Any]:
    return {"name": "pairs", "unit": "message", "seconds": 2.0, "rate": rate, "broker": {"cpu_us_per": cpu}, "extra": {},
            "latency": {"count": 1, "mean_us": 1000.0, "stdev_us": 500.0, "p99_us": 2000.0, "max_us": 3000.0},
            "limit": "broker", "foreign_cpu_share": 0.0, "exact": True,
            **dict.fromkeys(("lost", "duplicates", "out_of_order", "refused", "unsent", "unacknowledged"), 0), **changes}


def run(broker: str, *phases: dict[str, Any], variant: str = "", why: str = "", dropped: int = 0) -> dict[str, Any]:
    return {"complete": not why, "why": why, "phases": list(phases),
            "run": {"suite": "s", "test": "t", "title": "T", "case": "c", "broker": broker, "variant": variant, "note": "",
                    "dropped_packets": dropped}}


def test_brokers_stand_in_their_order_and_are_compared_with_the_first() -> None:
    runs = [run("other", phase(4.0)), run("mosq", phase(1.0)), run("mosq", phase(3.0)), run("other", phase(8.0)),
            run("mosq", phase(2.0), variant="plain")]
    lines = list(figures.tables(runs, ["mosq", "mosq: plain", "other"]))
    assert lines[:2] == ["\n== s / t: T", "\nc"]
    heads, *rows = [line.split() for line in lines[2:]]
    assert "mosq" in heads
    assert [row[0] for row in rows] == ["mosq", "mosq:", "other"]
    assert rows[0][3:6] == ["±0%", "2.00", "±50%"]
    assert "3.00" in rows[2][-5:]        # 6 relative to 2


@pytest.mark.parametrize(("changes", "said"), [
    ({"lost": 3}, "lost 3"), ({"out_of_order": 1}, "out of order 1"), ({"limit": "generator"}, "generator-bound"),
    ({"foreign_cpu_share": 0.5}, "other programs used 50 % of a core"), ({"extra": {"bytes_per_client": 571.0}}, "bytes per client 571")])
def test_remarks_are_at_the_end(changes: dict[str, Any], said: str) -> None:
    assert figures.remarks([], [phase(1.0, **changes)]) == said
    assert figures.remarks([], [phase(1.0)]) == ""


def test_a_tick_of_another_program_in_a_short_phase_is_no_disturbance() -> None:
    assert not figures.disturbed(phase(1.0, foreign_cpu_share=5.0, seconds=0.002))


def test_a_short_phase_is_not_called_bound_by_the_generator() -> None:
    assert figures.remarks([], [phase(1.0, limit="generator", seconds=0.049)]) == ""
    assert not list(figures.warnings([run("mosq", phase(1.0, limit="generator", seconds=0.049))]))


def test_an_incomplete_run_has_a_reason() -> None:
    lines = list(figures.tables([run("mosq", why="it went away"), run("mosq", phase(1.0))], ["mosq"]))
    assert lines[-1].endswith("1 of 2 NOT COMPLETE: it went away")


def test_warnings_count_limited_phases_and_runs() -> None:
    runs = [run("mosq", phase(1.0, limit="generator"), phase(1.0, foreign_cpu_share=0.9))]
    said = list(figures.warnings(runs))
    assert len(said) == 2
    assert all("in 1 of 2 phases" in line for line in said)
    assert not list(figures.warnings([run("mosq", phase(1.0))]))
    (said,) = figures.warnings([run("mosq", phase(1.0), dropped=3), run("mosq", phase(1.0))])
    assert "in 1 of 2 runs the kernel dropped packets" in said
    assert figures.remarks([run("mosq", dropped=3)], []) == "the kernel dropped 3 packets"
