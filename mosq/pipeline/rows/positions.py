"""Find which sequence numbers of each place the rows of a batch cover, so that the driver can check them."""

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mosq.journal.kinds import GAP

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Place = tuple[str, str, int]  # node, stream, shard
PLACE = ("node", "stream", "shard")
# the rows that the reader put in the place of missing records, as a filter of a dataset
IS_GAP = (pc.field("kind") == GAP) & pc.field("time").is_null()
FROM = re.compile(rb'"from": ([0-9]+), "to": ([0-9]+)')


def at_place(place: Place) -> Any:
    """Return an expression of pyarrow for the rows of a place."""
    node, stream, shard = place
    # an exact type, because a cast of the column would hide it from the statistics of files
    here = pc.field("shard") == pa.scalar(shard, pa.int32())
    return here & (pc.field("node") == node) & (pc.field("stream") == stream)


def of_places(rows: Any) -> "Iterator[tuple[Place, Any]]":
    """Yield each place with its rows."""
    if not rows.num_rows:
        return
    places = pa.table({name: rows[name] for name in PLACE}).group_by(list(PLACE), use_threads=False).aggregate([])
    for one in places.to_pylist():
        place = (one["node"], one["stream"], one["shard"])
        if places.num_rows == 1:
            yield place, rows
            continue
        masks = [pc.equal(rows[name], value) for name, value in one.items()]
        yield place, rows.filter(pc.and_(pc.and_(masks[0], masks[1]), masks[2]))


def place_names(rows: Any) -> Any:
    """Return `node/stream/shard` of each row, as an array of text."""
    return pc.binary_join_element_wise(rows["node"], rows["stream"], rows["shard"].cast(pa.string()), "/")


def positions(rows: Any) -> dict[Place, dict[str, int]]:
    """Return the position of each place in a batch of bronze.

    n: rows; covered: sequence numbers, more than n if a row stands for a gap; min_seq, max_seq; time_us: the largest
    time, 0 if there is none.
    """
    found = {}
    for place, mine in of_places(rows):
        seq = pc.min_max(mine["seq"]).as_py()
        gaps = _gaps(mine)
        found[place] = {
            "n": mine.num_rows,
            "covered": mine.num_rows + sum(last - first for first, last in gaps),
            "min_seq": seq["min"],
            "max_seq": max([seq["max"], *(last for _, last in gaps)]),
            "time_us": pc.max(mine["time"].cast(pa.int64())).as_py() or 0,
        }
    return found


def _gaps(rows: Any) -> list[tuple[int, int]]:
    """Return the first and last sequence numbers of the gaps that the reader found; a gap is one row."""
    mask = pc.and_(pc.equal(rows["kind"], GAP), pc.is_null(rows["time"]))
    if not pc.any(mask).as_py():
        return []
    found = (FROM.search(raw or b"") for raw in rows.filter(mask)["payload"].to_pylist())
    return [(int(one[1]), int(one[2])) for one in found if one]


def erased(rows: Any, numbers: "Mapping[str, Sequence[tuple[int, int]]]") -> Any:
    """Return which rows have one of the numbers [lo, hi) of their place, which do not touch; rows of gaps have none."""
    found = np.zeros(rows.num_rows, bool)
    seq, places = rows["seq"].to_numpy(zero_copy_only=False), place_names(rows)
    for name, ranges in numbers.items():
        ends = np.array(sorted(ranges), np.int64).ravel()  # lo, hi, lo, hi, ...
        found |= pc.equal(places, name).to_numpy(zero_copy_only=False) & (np.searchsorted(ends, seq, "right") % 2 == 1)
    return found & ~pc.and_(pc.equal(rows["kind"], GAP), pc.is_null(rows["time"])).to_numpy(zero_copy_only=False)


def joined(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    """Return the position of two sets of rows of one place."""
    return {
        "n": a["n"] + b["n"],
        "covered": a["covered"] + b["covered"],
        "min_seq": min(a["min_seq"], b["min_seq"]),
        "max_seq": max(a["max_seq"], b["max_seq"]),
        "time_us": max(a["time_us"], b["time_us"]),
    }
