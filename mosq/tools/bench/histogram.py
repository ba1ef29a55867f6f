"""Compute figures in microseconds from a histogram of the data plane."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mosq._bench import Figures

QUANTILES = (("p50_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99), ("p999_us", 0.999), ("p9999_us", 0.9999))


def quantile_ns(figures: Figures, q: float) -> float:
    """Return the smallest duration that a share of q does not exceed: the middle of its bucket, within the measured
    range.
    """
    wanted, seen = q * figures["count"], 0
    for first, width, n in figures["buckets"]:
        seen += n
        if seen >= wanted:
            return min(max(first + (width - 1) / 2, figures["least_ns"]), figures["most_ns"])
    return 0.0


def deviation_ns(figures: Figures) -> float:
    """Return the standard deviation, with each duration taken as the middle of its bucket."""
    middles = [(first + (width - 1) / 2, n) for first, width, n in figures["buckets"]]
    mean = sum(middle * n for middle, n in middles) / figures["count"]
    return math.sqrt(sum((middle - mean) ** 2 * n for middle, n in middles) / figures["count"])


def summary(figures: Figures) -> dict[str, object]:
    """Return quantiles, and the buckets as [from, to before, count], so that histograms of several runs can be added.
    """
    count = figures["count"]
    if not count:
        return {"count": 0}
    values: dict[str, object] = {"count": count, "min_us": figures["least_ns"] / 1e3,
                                 "mean_us": figures["sum_ns"] / count / 1e3,
                                 "stdev_us": deviation_ns(figures) / 1e3}
    values.update((name, quantile_ns(figures, q) / 1e3) for name, q in QUANTILES)
    values["max_us"] = figures["most_ns"] / 1e3
    values["buckets_ns"] = [[first, first + width, n] for first, width, n in figures["buckets"]]
    return values
