"""Find which sequence numbers of each place the rows of a batch cover, so that the driver can check them."""

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mosq.journal.kinds import GAP

Place = tuple[str, str, int]  # node, stream, shard
# the rows that the reader put in the place of missing records, as a filter of a dataset
IS_GAP = (pc.field("kind") == GAP) & pc.field("time").is_null()
FROM = re.compile(rb'"from": ([0-9]+), "to": ([0-9]+)')


def positions(rows: Any) -> dict[Place, dict[str, int]]:
    """Return the position of each place in a batch of bronze.

    n: rows; covered: sequence numbers, more than n if a row stands for a gap; min_seq, max_seq; time_us: the largest
    time, 0 if there is none.
    """
    place = pa.table({name: rows[name] for name in ("node", "stream", "shard")})
    found = {}
    names = place.group_by(place.column_names, use_threads=False).aggregate([]).to_pylist()
    for one in names:
        mine = rows
        if len(names) > 1:
            masks = [pc.equal(rows[name], value) for name, value in one.items()]
            mine = rows.filter(pc.and_(pc.and_(masks[0], masks[1]), masks[2]))
        seq = pc.min_max(mine["seq"]).as_py()
        gaps = _gaps(mine)
        found[one["node"], one["stream"], one["shard"]] = {
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


def joined(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    """Return the position of two sets of rows of one place."""
    return {
        "n": a["n"] + b["n"],
        "covered": a["covered"] + b["covered"],
        "min_seq": min(a["min_seq"], b["min_seq"]),
        "max_seq": max(a["max_seq"], b["max_seq"]),
        "time_us": max(a["time_us"], b["time_us"]),
    }
