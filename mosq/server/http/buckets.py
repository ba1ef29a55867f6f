"""The buckets of the data plane's histograms: where each one ends. Knows neither formats nor what is measured."""

# cext/base/histogram.pxd: units of 64 ns, 4 buckets in each power of two, 108 of them
UNIT_NS, PARTS, BUCKETS = 64, 4, 108


def until_s(bucket: int) -> float:
    """Return the shortest duration, in seconds, that is too long for a bucket of the data plane."""
    if bucket < PARTS:
        return (bucket + 1) * UNIT_NS / 1e9
    return ((bucket % PARTS + PARTS + 1) << (bucket // PARTS - 1)) * UNIT_NS / 1e9
