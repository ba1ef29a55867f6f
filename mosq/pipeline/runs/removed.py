"""Record the rows that retention and erasures delete, so that no check takes them for lost.

The table `removed` has the ranges of numbers that bronze lost in this way, and for the other tables the date before
which there are no rows. A record is on the disk before the deletion; a killed deletion leaves a record too many, and
never one too few. It names no client and no topic.
"""

import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mosq.pipeline.lake.parts import PartWriter
from mosq.pipeline.lake.places import place_of
from mosq.pipeline.lake.table import Table
from mosq.pipeline.rows.positions import FROM, IS_GAP, PLACE, of_places
from mosq.pipeline.rows.tables import TIME
from mosq.pipeline.runs.progress import BRONZE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mosq.pipeline.settings import Settings

NAME = "removed"
RETENTION, ERASURE = "retention", "erasure"
SCHEMA = pa.schema(
    [
        pa.field("at", TIME),
        pa.field("why", pa.string()),
        pa.field("table", pa.string()),
        pa.field("before", pa.date32()),  # of a table that lost all rows before a date
        pa.field("node", pa.string()),
        pa.field("stream", pa.string()),
        pa.field("shard", pa.int32()),
        pa.field("lo", pa.int64()),
        pa.field("hi", pa.int64()),  # the number after the last one
        pa.field("first_time", TIME),
        pa.field("last_time", TIME),
    ]
)


def record(settings: "Settings", table: Table, which: Any, before: datetime.date | None) -> None:
    """Record the rows of a table that an expression of pyarrow names; `before` is None for an erasure."""
    common = {
        "at": datetime.datetime.now(datetime.UTC),
        "why": ERASURE if before is None else RETENTION,
        "table": table.name,
        "before": before,
    }
    rows: list[dict[str, Any]] = [] if before is None else [common]
    if table.name == BRONZE:
        rows += [common | one for one in ranges(table, which)]
    if rows:
        kept = Table.create(place_of(settings), NAME, SCHEMA, str(table.identity), ())
        writer = PartWriter(kept.parent, NAME, SCHEMA)
        writer.write(pa.Table.from_pylist(rows, SCHEMA))
        kept.append(writer.close(), "", 0, {"mosq": common["why"]})  # no number: several programs may record


def ranges(table: Table, which: Any) -> "Iterable[dict[str, Any]]":
    """Return the ranges of numbers of the rows that an expression names, with their least and greatest time."""
    found: dict[tuple[Any, ...], list[tuple[int, int, Any, Any]]] = {}
    data = table.dataset()
    for batch in data.to_batches(columns=[*PLACE, "seq", "time"], filter=which):
        for place, rows in of_places(batch):
            found.setdefault(place, []).extend(_runs(rows))
    for row in data.to_table(columns=[*PLACE, "seq", "payload"], filter=which & IS_GAP).to_pylist():
        one = FROM.search(row["payload"] or b"")
        if one is not None:
            found[tuple(row[name] for name in PLACE)].append((int(one[1]), int(one[2]) + 1, None, None))
    for place, runs in sorted(found.items()):
        for lo, hi, first, last in _joined(runs):
            yield dict(zip(PLACE, place, strict=True)) | {"lo": lo, "hi": hi, "first_time": first, "last_time": last}


def _runs(rows: Any) -> "list[tuple[int, int, Any, Any]]":
    """Return the runs of consecutive numbers of rows, each with its least and greatest time."""
    rows = pa.table({"seq": rows["seq"], "time": rows["time"]}).sort_by("seq")
    seqs = rows["seq"].to_numpy(zero_copy_only=False)
    ends = np.r_[np.flatnonzero(np.diff(seqs) > 1) + 1, len(seqs)]
    found, at = [], 0
    for end in ends.tolist():
        times = pc.min_max(rows["time"].slice(at, end - at)).as_py()
        found.append((int(seqs[at]), int(seqs[end - 1]) + 1, times["min"], times["max"]))
        at = end
    return found


def _joined(runs: "list[tuple[int, int, Any, Any]]") -> "list[tuple[int, int, Any, Any]]":
    found: list[tuple[int, int, Any, Any]] = []
    for lo, hi, first, last in sorted(runs, key=lambda run: run[:2]):
        if found and lo <= found[-1][1]:
            had = found.pop()
            times = [one for one in (had[2], had[3], first, last) if one is not None]
            lo, hi = had[0], max(hi, had[1])
            first, last = (min(times), max(times)) if times else (None, None)
        found.append((lo, hi, first, last))
    return found


def read(settings: "Settings") -> list[dict[str, Any]]:
    """Return all records."""
    table = Table.open(place_of(settings), NAME)
    return [] if table is None else table.read().to_pylist()


def erased(settings: "Settings") -> dict[str, list[tuple[int, int]]]:
    """Return the numbers [lo, hi) of each "node/stream/shard" that erasures deleted from bronze."""
    found: dict[str, list[tuple[int, int, Any, Any]]] = {}
    for one in read(settings):
        if one["table"] == BRONZE and one["why"] == ERASURE and one["lo"] is not None:
            place = "/".join(str(one[name]) for name in PLACE)
            found.setdefault(place, []).append((one["lo"], one["hi"], None, None))
    return {place: [run[:2] for run in _joined(runs)] for place, runs in found.items()}
