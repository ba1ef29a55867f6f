"""Hash the key that a rule declares, of each row of silver.

Two rows have the same key if all its columns are equal. A row with null in one of them has no key. The hash has 128
bits, and a salt that devices do not know, so that no device can make two keys with one hash.
"""

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from mosq.pipeline.rows.tables import TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HASH = pa.binary(16)
PLACE = ("node", "stream", "shard", "seq")
Span = tuple[int, int]  # times in microseconds, with both ends
SPANS_MAX = 8  # of a batch: each one is a condition of a filter
TIMES = (-(1 << 62), 1 << 62)  # numpy adds a horizon to these without an overflow
# the row that a hash is of, its time in microseconds, and the hash in two parts
SCHEMA = pa.schema(
    [
        pa.field("node", pa.string()),
        pa.field("stream", pa.string()),
        pa.field("shard", pa.int32()),
        pa.field("seq", pa.int64()),
        pa.field("time_us", pa.int64()),
        pa.field("high", pa.uint64()),
        pa.field("low", pa.uint64()),
    ]
)


def _encoded(column: Any) -> list[bytes]:
    """Return one text for each value; the column has no null."""
    kind = column.type
    if pat.is_binary(kind):
        found: list[bytes] = column.to_pylist()
        return found
    if pat.is_floating(kind):
        return [repr(one + 0.0).encode() for one in column.to_pylist()]  # -0.0 is 0.0
    if pat.is_timestamp(kind):
        column = column.cast(pa.int64())
    text: list[bytes] = column.cast(pa.string()).cast(pa.binary()).to_pylist()
    return text


def hashed(rows: "pa.RecordBatch | pa.Table", columns: "Sequence[str]", salt: str) -> tuple[pa.Table, int]:
    """Return the rows that have a key, with its hash (SCHEMA), and the number of rows without one."""
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    table = table.select(list(dict.fromkeys([*PLACE, "time", *columns])))
    n = table.num_rows
    for name in columns:
        table = table.filter(pc.is_valid(table[name])) if table[name].null_count else table
    key = salt.encode()[:64]
    texts = [_encoded(table[name]) for name in columns]
    digests = b"".join(
        blake2b(b"".join(b"%d:%b" % (len(one), one) for one in each), digest_size=16, key=key).digest()
        for each in zip(*texts, strict=True)
    )
    halves = np.frombuffer(digests or bytearray(), np.uint64).reshape(-1, 2)
    found = {
        **{name: table[name] for name in PLACE},
        "time_us": table["time"].cast(TIME).cast(pa.int64()),
        "high": pa.array(halves[:, 0]),
        "low": pa.array(halves[:, 1]),
    }
    return pa.table(found).cast(SCHEMA), n - table.num_rows


# ---- sets of times: sorted spans that do not touch


def spans(times: "np.ndarray[Any, Any]", horizon_us: int) -> list[Span]:
    """Return spans with all times that are at most a horizon away from some of `times`, which are not empty."""
    ordered = np.unique(times)
    steps = np.diff(ordered)
    gaps = np.flatnonzero(steps > 2 * horizon_us + 1)
    if len(gaps) >= SPANS_MAX:
        gaps = np.sort(gaps[np.argsort(steps[gaps])[-(SPANS_MAX - 1) :]])
    begins, ends = ordered[np.r_[0, gaps + 1]], ordered[np.r_[gaps, len(ordered) - 1]]
    return [(lo - horizon_us, hi + horizon_us) for lo, hi in zip(begins.tolist(), ends.tolist(), strict=True)]


def joined(several: "Iterable[Span]") -> list[Span]:
    """Return the times of all spans."""
    found: list[Span] = []
    for lo, hi in sorted(several):
        if found and lo <= found[-1][1] + 1:
            lo, before = found.pop()
            hi = max(hi, before)
        found.append((lo, hi))
    return found


def widened(several: "Iterable[Span]", by_us: int) -> list[Span]:
    return joined((lo - by_us, hi + by_us) for lo, hi in several)


def common(some: "Iterable[Span]", others: "Sequence[Span]") -> list[Span]:
    """Return the times that are in both."""
    both = ((max(lo, other[0]), min(hi, other[1])) for lo, hi in some for other in others)
    return joined((lo, hi) for lo, hi in both if lo <= hi)


def without(some: "Iterable[Span]", others: "Sequence[Span]") -> list[Span]:
    """Return the times of `some` that are not in `others`."""
    ends = [TIMES[0] - 1, *(end for lo, hi in others for end in (lo, hi)), TIMES[1] + 1]
    return common(some, [(before + 1, after - 1) for before, after in zip(ends[::2], ends[1::2], strict=True)])


def within(times: "np.ndarray[Any, Any]", several: "Sequence[Span]") -> "np.ndarray[Any, Any]":
    """Return which times are in the spans."""
    lows, highs = (np.array([one[end] for one in several], np.int64) for end in (0, 1))
    inside: np.ndarray[Any, Any] = np.searchsorted(lows, times, "right") > np.searchsorted(highs, times, "left")
    return inside


def moment(us: int) -> Any:
    """Return a time in microseconds as columns have it."""
    return pa.scalar(us, pa.int64()).cast(TIME)
