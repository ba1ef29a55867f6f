"""Plan the ranges of shards that a batch takes, and cut them into parts for tasks."""

from itertools import pairwise
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from mosq.journal import Stream
from mosq.pipeline.source.rows import read_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any

    # (stream, shard) -> (from, up to)
    Ranges = dict[tuple[str, int], tuple[int, int]]


class Part(InputPartition):
    """Describe the range [lo, hi) of a shard that one task reads; the stream is its key."""

    def __init__(self, stream: str, path: "Path", shard: int, lo: int, hi: int) -> None:
        self.stream = stream
        self.path = path
        self.shard = shard
        self.lo = lo
        self.hi = hi

    def read(self, fail_on_loss: bool, columns: "Sequence[str]") -> "Iterator[Any]":
        return read_range(self.stream, self.path, self.shard, self.lo, self.hi, fail_on_loss, columns)


def cut(stream: str, path: "Path", shard: int, lo: int, hi: int, most: int) -> list[Part]:
    """Return parts of nearly equal size with at most `most` records each."""
    n = -(-(hi - lo) // most)
    edges = [lo + (hi - lo) * i // max(n, 1) for i in range(n + 1)]
    return [Part(stream, path, shard, a, b) for a, b in pairwise(edges)]


def _shares(wanted: "Sequence[int]", most: int) -> list[int]:
    """Divide `most` in proportion to what is wanted: at most `most` in all, and at least 1 for each while there is
    some.
    """
    total, shares = sum(wanted), []
    for want in wanted:
        share = min(want, max(1, most * want // total), most) if want else 0
        shares.append(share)
        total -= want
        most -= share
    return shares


def within_records(ranges: "Ranges", most: int) -> "Ranges":
    """Shorten ranges so that all together have at most `most` records."""
    shares = _shares([hi - lo for lo, hi in ranges.values()], most)
    return {key: (lo, lo + share) for (key, (lo, _)), share in zip(ranges.items(), shares, strict=True)}


def _sizes(path: "Path", shard: int, lo: int, hi: int) -> "Iterator[tuple[int, int, int]]":
    """Yield (from, up to, bytes on the disk) for the segments of a range; bytes are spread evenly in each segment."""
    sizes = Stream(path).sizes(shard)
    if not sizes:
        return
    for (base, n_bytes), end in zip(sizes, [*(base for base, _ in sizes[1:]), max(hi, 1)], strict=True):
        a, b = max(base, lo), min(end, hi)
        if a < b:
            yield a, b, n_bytes * (b - a) // max(end - base, 1)


def _up_to(path: "Path", shard: int, lo: int, hi: int, n_bytes: int) -> int:
    """Return the sequence number at which about `n_bytes` end, after at least one record."""
    for a, b, size in _sizes(path, shard, lo, hi):
        if size > n_bytes:
            return max(a + (b - a) * n_bytes // size, lo + 1)
        n_bytes -= size
    return hi


def within_bytes(ranges: "Ranges", paths: "Mapping[str, Path]", most: int) -> "Ranges":
    """Shorten ranges so that all together have about `most` bytes on the disk."""
    sizes = [sum(size for _, _, size in _sizes(paths[name], shard, *range)) for (name, shard), range in ranges.items()]
    if sum(sizes) <= most:
        return ranges
    shares = _shares(sizes, most)
    return {
        (name, shard): (lo, _up_to(paths[name], shard, lo, hi, share) if hi > lo else hi)
        for ((name, shard), (lo, hi)), share in zip(ranges.items(), shares, strict=True)
    }
