"""Test the histogram of the data plane: its buckets against a naive model, and their limits against those of `/metrics`."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cext.testing.base_api import histogram_bucket, histogram_limits, histogram_of
from mosq.server.http.metrics import BUCKETS, SHOWN, cumulative, until_s

LIMITS = histogram_limits()
DURATIONS = st.integers(0, 2**64 - 1) | st.integers(0, 2**36) | st.sampled_from(LIMITS) | st.sampled_from([n - 1 for n in LIMITS])


def test_limits_rise_and_are_a_quarter_of_a_power_of_two_apart():
    assert len(LIMITS) == BUCKETS
    assert LIMITS[:8] == [64, 128, 192, 256, 320, 384, 448, 512]
    for shorter, longer in pairwise(LIMITS[3:]):
        assert shorter < longer <= shorter * 5 // 4
    assert LIMITS[-1] == 2**34


@pytest.mark.parametrize(("ns", "bucket"), [(0, 0), (63, 0), (64, 1), (255, 3), (256, 4), (511, 7), (512, 8), (2**34 - 1, 107), (2**63, 107)])
def test_each_duration_has_a_bucket(ns, bucket):
    assert histogram_bucket(ns) == bucket


@given(DURATIONS)
def test_the_bucket_is_that_of_a_search_in_the_limits(ns):
    assert histogram_bucket(ns) == min(bisect_right(LIMITS, ns), BUCKETS - 1)


@given(st.lists(st.integers(0, 2**40)))
def test_counts_and_sum_are_those_of_a_naive_model(durations):
    count, sum_ns, numbers = histogram_of(durations)
    assert (count, sum_ns) == (len(durations), sum(durations))
    naive = [0] * BUCKETS
    for ns in durations:
        naive[min(bisect_right(LIMITS, ns), BUCKETS - 1)] += 1
    assert numbers == naive


@given(st.lists(st.integers(0, 2**36)))
def test_cumulative_buckets_count_the_shorter_durations(durations):
    count, _, numbers = histogram_of(durations)
    shown = cumulative(count, numbers)
    assert shown[-1] == ("+Inf", len(durations))
    for (bucket, text), (le, total) in zip(SHOWN, shown, strict=False):
        assert text == le
        assert total == sum(ns < LIMITS[bucket] for ns in durations)


def test_limits_of_the_metrics_are_those_of_the_data_plane():
    assert [until_s(i) for i in range(BUCKETS)] == pytest.approx([ns * 1e-9 for ns in LIMITS])
