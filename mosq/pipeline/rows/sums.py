"""Compute the rows that records add to the gold tables.

The tables hold one finished row for each key. A batch gives contributions: MERGE adds the sums, and keeps the greatest
of the maxima and the least of the minima. So it does not matter how records are divided into batches. A message that
lies in several streams is counted for each of them in gold/traffic; the views take the count of one stream.

A row is late if it is older than the watermark of its place: its window was already reported as complete. The records
of a shard have one order, so each shard has its own watermark. Only a clock that was set back makes rows late, and a
shard with a long backlog makes no rows of other shards late. Late rows are counted in gold/late and are in no window;
bronze and silver have them. A row without a time (a gap that the reader found) is in no window either.

null in a key is "" here, so that MERGE finds the key.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mosq.journal.kinds import CONNECT, DISCONNECT, DROP, EXPIRY, MESSAGE, REFUSED, TAKE_OVER
from mosq.pipeline.rows.tables import CHURN, GOLD, TIME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

HISTOGRAM_BITS = 4  # 16 buckets for each power of two: a percentile is at most 1/16 too high
NEVER = -(1 << 62)
BLOCK = 100  # numbers of a place that have one watermark in a rebuild
Span = tuple[int, int, int]  # numbers [lo, hi), watermark in microseconds
COUNTED = {
    "connects": CONNECT,
    "refused": CONNECT,
    "disconnects": DISCONNECT,
    "takeovers": TAKE_OVER,
    "expiries": EXPIRY,
}


def bucket(us: Any) -> Any:
    """Return the largest number in the same bucket of the histogram, of an array of numpy."""
    _, exponent = np.frexp(np.maximum(us, 1).astype(np.float64))  # us < 2**exponent
    shift = np.maximum(exponent - 1 - HISTOGRAM_BITS, 0).astype(np.int64)
    return (((us >> shift) + 1) << shift) - 1


def watermarks(batch: Any, seen: "Mapping[str, int]") -> Any:
    """Return the watermark of each row: a number if all have the same, or an array."""
    if not seen:
        return NEVER
    node, stream = batch["node"].dictionary_encode(), batch["stream"].dictionary_encode()
    shards = pc.unique(batch["shard"]).to_pylist()
    if len(node.dictionary) == len(stream.dictionary) == len(shards) == 1:
        return seen.get(f"{node.dictionary[0]}/{stream.dictionary[0]}/{shards[0]}", NEVER)
    place = pc.binary_join_element_wise(batch["node"], batch["stream"], batch["shard"].cast(pa.string()), "/")
    coded = place.dictionary_encode()
    of_place = np.array([seen.get(name, NEVER) for name in coded.dictionary.to_pylist()], np.int64)
    return of_place[coded.indices.to_numpy(zero_copy_only=False)]


def late_spans(batches: "Iterable[Any]", ends: "Mapping[str, int]", behind_us: int) -> dict[str, list[Span]]:
    """Return for each place the ranges of numbers in which rows are late, each with its watermark.

    `batches` are rows of bronze with node, stream, shard, seq and time; `ends` has the number after the last one of
    each place. The watermark of a row is the greatest time of the earlier blocks of BLOCK numbers, less `behind_us`: so
    rows are late as if a batch had read each block.
    """
    parts = []
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        rows = rows.filter(pc.is_valid(rows["time"]))
        place = pc.binary_join_element_wise(rows["node"], rows["stream"], rows["shard"].cast(pa.string()), "/")
        us = rows["time"].cast(TIME).cast(pa.int64())
        table = pa.table({"place": place, "block": pc.divide(rows["seq"], BLOCK), "least": us, "most": us})
        parts.append(_blocks(table))
        if len(parts) > 100:
            parts = [_blocks(pa.concat_tables(parts))]
    blocks = _blocks(pa.concat_tables(parts)) if parts else pa.table({"place": pa.array([], pa.string())})
    found: dict[str, list[Span]] = {}
    for place in pc.unique(blocks["place"]).to_pylist():
        here = blocks.filter(pc.equal(blocks["place"], place))
        block, least, most = (here[name].to_numpy() for name in ("block", "least", "most"))
        marks = np.r_[NEVER, np.maximum.accumulate(most)[:-1]] - behind_us
        late = (least < marks) & (block * BLOCK < ends.get(place, 0))
        for lo, mark in zip((block[late] * BLOCK).tolist(), marks[late].tolist(), strict=True):
            spans = found.setdefault(place, [])
            before = spans.pop() if spans and spans[-1][1:] == (lo, mark) else (lo, lo, mark)
            spans.append((before[0], lo + BLOCK, mark))
    return found


def _blocks(rows: pa.Table) -> pa.Table:
    done = rows.group_by(["place", "block"], use_threads=False).aggregate([("least", "min"), ("most", "max")])
    done = done.select(["place", "block", "least_min", "most_max"]).rename_columns(["place", "block", "least", "most"])
    return done.sort_by([("place", "ascending"), ("block", "ascending")])


def in_spans(batch: Any, spans: "Mapping[str, Sequence[Span]]") -> Any:
    """Return the watermark of each row from `late_spans`; a row outside of all spans is not late."""
    found = np.full(batch.num_rows, NEVER, np.int64)
    place = pc.binary_join_element_wise(batch["node"], batch["stream"], batch["shard"].cast(pa.string()), "/")
    seq = batch["seq"].to_numpy(zero_copy_only=False)
    for name, ranges in spans.items():
        here = pc.equal(place, name).to_numpy(zero_copy_only=False)
        if not here.any():
            continue
        first, last = int(seq[here].min()), int(seq[here].max())
        for lo, hi, mark in ranges:
            if lo <= last and first < hi:
                found[here & (seq >= lo) & (seq < hi)] = mark
    return found


def _int64(values: Any) -> Any:
    """Return times as numbers, 0 for null."""
    return pc.fill_null(values.cast(TIME).cast(pa.int64()), 0).to_numpy(zero_copy_only=False)


class Sums:
    """Add up the batches of a task."""

    def __init__(
        self,
        window_us: int,
        prefix_levels: int,
        seen: "Mapping[str, int]",
        spans: "Mapping[str, Sequence[Span]] | None" = None,
    ) -> None:
        self.window_us, self.seen, self.spans = window_us, seen, spans
        self.prefix = rf"(?s)^((?:[^/]*/){{{prefix_levels - 1}}}[^/]*).*$"
        self.partial: dict[str, list[pa.Table]] = {name: [] for name in GOLD}
        self.n = 0

    def add(self, batch: Any) -> None:
        """Add a batch with the columns of bronze."""
        time_us = _int64(batch["time"])
        timed = batch["time"].is_valid().to_numpy(zero_copy_only=False)
        marks = watermarks(batch, self.seen) if self.spans is None else in_spans(batch, self.spans)
        late = timed & (time_us < marks)
        kind = batch["kind"].to_numpy(zero_copy_only=False)
        window = time_us - time_us % self.window_us
        in_time = timed & ~late
        common = {"window_us": pa.array(window), "node": batch["node"]}
        message = in_time & (kind == MESSAGE)
        self._traffic(batch, common, message)
        self._latency(batch, {**common, "stream": batch["stream"]}, time_us, message)
        dropped = _picked({**common, "reason": batch["reason"], "client_id": _text(batch["client_id"])},
                          in_time & (kind == DROP))
        self._take("drops", dropped.append_column("drops", _ones(dropped)))
        churn = in_time & np.isin(kind, (CONNECT, DISCONNECT, TAKE_OVER, EXPIRY))
        self._churn(_picked({**common, "client_id": _text(batch["client_id"]), "kind": batch["kind"],
                             "reason": batch["reason"]}, churn))
        gone = _picked(common, late)
        self._take("late", gone.append_column("rows", _ones(gone)))

    def _traffic(self, batch: Any, common: dict[str, Any], message: Any) -> None:
        rows = {
            **common,
            "stream": batch["stream"],
            "topic": _text(batch["topic"]),
            "client_id": _text(batch["client_id"]),
            "bytes": pc.fill_null(pc.binary_length(batch["payload"]), 0).cast(pa.int64()),
            "first_time": batch["time"],
            "last_time": batch["time"],
        }
        found = _picked(rows, message)
        self._take("traffic", found.append_column("messages", _ones(found)))

    def _latency(self, batch: Any, common: dict[str, Any], time_us: Any, message: Any) -> None:
        latency = np.maximum(_int64(batch["commit_time"]) - time_us, 0)
        rows = {**common, "bucket_us": pa.array(bucket(latency)), "max_us": pa.array(latency)}
        found = _picked(rows, message)
        self._take("latency", found.append_column("messages", _ones(found)))

    def _churn(self, rows: pa.Table) -> None:
        refused = pc.and_(pc.equal(rows["kind"], CONNECT), pc.greater_equal(pc.fill_null(rows["reason"], 0), REFUSED))
        for name, kind in COUNTED.items():
            mask = pc.and_(pc.equal(rows["kind"], kind), refused if name == "refused" else pc.invert(refused))
            rows = rows.append_column(name, mask.cast(pa.int64()))
        self._take("churn", rows.drop_columns(["kind", "reason"]))

    def _take(self, name: str, rows: pa.Table) -> None:
        """Group rows by their key, and keep the result."""
        if not rows.num_rows:
            return
        gold = GOLD[name]
        keys = [column for column in rows.column_names if column not in gold.how]
        grouped = grouped_by(rows, keys, gold.how)
        self.partial[name].append(self._finished(name, grouped))
        self.n += grouped.num_rows
        if len(self.partial[name]) > 1 and self.n > 1 << 18:
            self.partial = {name: [rows] for name, rows in combine(self.partial).items()}
            self.n = 0

    def _finished(self, name: str, rows: pa.Table) -> pa.Table:
        start = rows["window_us"]
        times = {"window_start": start.cast(TIME), "window_end": pc.add(start, self.window_us).cast(TIME)}
        columns = {"date": times["window_start"].cast(pa.date32()), **times}
        columns |= {column: rows[column] for column in rows.column_names if column != "window_us"}
        if name == "traffic":
            columns["prefix"] = pc.replace_substring_regex(rows["topic"], self.prefix, r"\1")
        schema = GOLD[name].schema
        return pa.table({field.name: columns[field.name] for field in schema}).cast(schema)

    def content(self) -> dict[str, pa.Table]:
        """Return the sums of all batches, without tables that have no rows."""
        return {name: rows for name, rows in combine(self.partial).items() if rows.num_rows}


def _text(column: Any) -> Any:
    return pc.fill_null(column, "") if column.null_count else column


def _ones(rows: pa.Table) -> Any:
    return pa.array(np.ones(rows.num_rows, np.int64))


def _picked(columns: "Mapping[str, Any]", mask: Any) -> pa.Table:
    rows = pa.table(dict(columns))
    return rows if mask.all() else rows.filter(pa.array(mask)) if mask.any() else rows.slice(0, 0)


def grouped_by(rows: pa.Table, keys: "Sequence[str]", how: "Mapping[str, str]") -> pa.Table:
    """Return one row for each key; `how` has the function of each other column."""
    done = rows.group_by(list(keys), use_threads=False).aggregate(list(how.items()))
    return done.select([*keys, *(f"{name}_{one}" for name, one in how.items())]).rename_columns([*keys, *how])


def combine(partial: "Mapping[str, Sequence[pa.Table]]") -> dict[str, pa.Table]:
    """Return one row for each key of each gold table, in the order of the keys."""
    found = {}
    for name, gold in GOLD.items():
        parts = partial.get(name, ())
        rows = pa.concat_tables(parts) if parts else gold.schema.empty_table()
        keys = list(gold.keys)
        if len(parts) > 1:
            rows = grouped_by(rows, keys, gold.how).select(gold.schema.names).cast(gold.schema)
        found[name] = rows.sort_by([(key, "ascending") for key in keys])
    return found


assert tuple(COUNTED) == CHURN
