"""Test the histogram and the accounting against simple, obviously correct versions."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cext.testing.load_api import histogram_of, taken
from mosq.tools.bench.histogram import quantile_ns, summary
from tests.harness.effort import tries

NEXT, AHEAD, LATE, TWICE = range(4)


@settings(max_examples=150)
@given(st.lists(st.one_of(st.integers(0, 300), st.integers(0, 2**44 - 1)), min_size=1, max_size=300))
def test_quantiles_are_those_of_a_sorted_list(durations: list[int]) -> None:
    figures, ordered = histogram_of(durations), sorted(durations)
    assert figures["count"] == len(durations) == sum(n for _, _, n in figures["buckets"])
    assert (figures["least_ns"], figures["most_ns"]) == (ordered[0], ordered[-1])
    assert figures["sum_ns"] == pytest.approx(sum(durations))
    for q in (0.01, 0.5, 0.9, 0.99, 0.999, 1.0):
        exact = next(value for i, value in enumerate(ordered, 1) if i >= q * len(ordered))
        assert quantile_ns(figures, q) == pytest.approx(exact, rel=0.004, abs=0.5)


def test_buckets_join_without_a_gap() -> None:
    edges = sorted({v + d for bit in range(45) for v in (1 << bit, 3 << bit) for d in (-1, 0, 1) if 0 <= v + d < 1 << 44})
    for value in edges:
        (first, width, n), = histogram_of([value])["buckets"]
        assert first <= value < first + width and n == 1


def test_a_duration_above_the_maximum_counts_as_the_maximum() -> None:
    figures = histogram_of([2**50])
    assert figures["most_ns"] == 2**50
    assert figures["buckets"][0][0] < 2**44


@pytest.mark.again("properties")
@settings(max_examples=tries(100, 30))
@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=100))
def test_the_deviation_is_that_of_the_durations(durations: list[int]) -> None:
    """Test that the deviation is within half a bucket of the largest duration."""
    told = summary(histogram_of(durations))
    assert told["stdev_us"] == pytest.approx(statistics.pstdev(durations) / 1e3, abs=max(durations) * 0.004 / 1e3 + 1e-3)


def test_a_summary_without_durations() -> None:
    assert summary(histogram_of([])) == {"count": 0}


@settings(max_examples=300)
@given(st.lists(st.integers(0, 60), max_size=120))
def test_streams_account_as_a_set_does(numbers: list[int]) -> None:
    said, gaps = taken(numbers)
    seen: set[int] = set()
    expected = []
    for number in numbers:
        top = max(seen, default=-1)
        expected.append(TWICE if number in seen else LATE if number < top else NEXT if number == top + 1 else AHEAD)
        seen.add(number)
    assert said == expected
    missing = [i for i in range(max(seen, default=-1)) if i not in seen]
    assert [i for first, end in gaps for i in range(first, end)] == missing


def test_streams_in_reverse_and_interleaved_order_are_complete() -> None:
    for numbers in (range(999, -1, -1), [*range(1, 2000, 2), *range(0, 2000, 2)], [*range(1, 2000, 2), *range(1998, -1, -2)]):
        said, gaps = taken(numbers)
        assert gaps == [] and TWICE not in said and len(said) == len(numbers)
