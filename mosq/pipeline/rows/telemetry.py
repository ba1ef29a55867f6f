"""Add up the values of silver rows by the time of the event: gold/telemetry.

A row of silver has the broker's time, and perhaps a column with the time of the event. The event's time counts if it
lies in the range that the rule allows around the broker's time. Otherwise the clock of the device is wrong, or there is
no time: the broker's time counts then, and the values are counted as `misdated`. An event is late if it is older than
the watermark, which is the broker's time of its own row less a duration; late values are in their windows, and counted.

Invariant: all of this depends on the row alone. So neither batches, kills nor a rebuild change a number, each value is
in one window, and the values in all windows are those of silver. Only the last digits of `sum` depend on the order of
the additions.

`last` is the value with the greatest time; of several at the same time the greatest value.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from mosq.pipeline.rows import declared, types
from mosq.pipeline.rows.tables import TELEMETRY_KEYS, TELEMETRY_SCHEMA, TIME

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mosq.pipeline.rows.work import Rule

SUMS = ("count", "late", "misdated", "sum")
FOLD_ROWS = 1 << 18
FAR_US = 1 << 62


def folded(rows: pa.Table) -> pa.Table:
    """Return one row for each key, in the order of the keys."""
    if rows.num_rows > 1:
        rows = rows.sort_by([("last_time", "ascending"), ("last", "ascending")])
    how = [*((name, "sum") for name in SUMS), ("min", "min"), ("max", "max"), ("last", "last"), ("last_time", "max")]
    done = rows.group_by(list(TELEMETRY_KEYS), use_threads=False).aggregate(how)
    done = done.select([*TELEMETRY_KEYS, *(f"{name}_{one}" for name, one in how)])
    done = done.rename_columns([*TELEMETRY_KEYS, *(name for name, _ in how)])
    ordered = done.select(TELEMETRY_SCHEMA.names).cast(TELEMETRY_SCHEMA)
    return ordered.sort_by([(key, "ascending") for key in TELEMETRY_KEYS])


def joined(tables: "Iterable[pa.Table]") -> pa.Table:
    """Return the sums of several parts together."""
    parts = list(tables)
    return folded(pa.concat_tables(parts)) if parts else TELEMETRY_SCHEMA.empty_table()


def _times_us(column: Any, unit: str) -> tuple[Any, Any]:
    """Return times in microseconds, and which of them are times at all."""
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    if pat.is_timestamp(column.type):
        return pc.fill_null(column.cast(TIME).cast(pa.int64()), 0).to_numpy(zero_copy_only=False), valid
    per_second = declared.PER_SECOND[unit]
    if pat.is_integer(column.type):
        found = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        if per_second >= 10**6:
            return found // (per_second // 10**6), valid
        factor = 10**6 // per_second
        fits = np.abs(found.astype(np.float64)) < FAR_US / factor
        return np.where(fits, found, 0) * factor, valid & fits
    times = pc.fill_null(column.cast(pa.float64(), safe=False), 0.0).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        us = times * (1e6 / per_second)
    fits = np.isfinite(us) & (np.abs(us) < FAR_US)
    return np.rint(np.where(fits, us, 0)).astype(np.int64), valid & fits


class Telemetry:
    """Add up the rows of a rule."""

    def __init__(self, rule: "Rule", schema: pa.Schema, window_us: int, late_us: int) -> None:
        assert rule.event is not None
        self.rule, self.event, self.window_us, self.late_us = rule.name, rule.event, window_us, late_us
        self.time = None if rule.event.time is None else types.column(rule.event.time)
        self.fields = [types.column(name) for name in declared.value_names(rule, schema)]
        self.parts: list[pa.Table] = []
        self.n = self.late = self.misdated = 0  # late and misdated: rows

    @property
    def columns(self) -> list[str]:
        """Return the columns of silver that are needed."""
        mine = [*self.fields, *([] if self.time is None else [self.time])]
        return list(dict.fromkeys(["node", "stream", "time", "topic", "client_id", *mine]))

    def event_times(self, rows: Any) -> tuple[Any, Any, Any]:
        """Return the time of each row's event in microseconds, which are late, and which have the broker's time."""
        at = pc.fill_null(rows["time"].cast(TIME).cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        if self.time is None:
            return at, np.zeros(len(at), bool), np.zeros(len(at), bool)
        us, usable = _times_us(rows[self.time], self.event.unit)
        usable = usable & (us >= at - self.event.behind_us) & (us <= at + self.event.ahead_us)
        us = np.where(usable, us, at)
        return us, us < at - self.late_us, ~usable

    def add(self, rows: "pa.RecordBatch | pa.Table") -> None:
        """Add rows of silver."""
        if not rows.num_rows:
            return
        us, late, misdated = self.event_times(rows)
        self.late += int(np.count_nonzero(late))
        self.misdated += int(np.count_nonzero(misdated))
        start = us - us % self.window_us
        common = {
            "window_start": pa.array(start).cast(TIME),
            "node": _flat(rows["node"]),
            "stream": _flat(rows["stream"]),
            "topic": _text(rows["topic"]),
            "client_id": _text(rows["client_id"]),
            "late": pa.array(late.astype(np.int64)),
            "misdated": pa.array(misdated.astype(np.int64)),
            "last_time": pa.array(us).cast(TIME),
        }
        for name in self.fields:
            self._add(name, common, _flat(rows[name]).cast(pa.float64(), safe=False))

    def _add(self, field: str, common: dict[str, Any], values: Any) -> None:
        columns = common | dict.fromkeys(("min", "max", "sum", "last"), values)
        rows = pa.table(columns)
        rows = rows.filter(values.is_valid()) if values.null_count else rows
        n = rows.num_rows
        if not n:
            return
        start = rows["window_start"]
        end = pc.add(start.cast(pa.int64()), self.window_us).cast(TIME)
        rows = rows.append_column("date", start.cast(pa.date32())).append_column("window_end", end)
        for name, value in (("silver", self.rule), ("field", field), ("count", 1)):
            rows = rows.append_column(name, pa.repeat(value, n))
        self.parts.append(folded(rows.select(TELEMETRY_SCHEMA.names).cast(TELEMETRY_SCHEMA)))
        self.n += self.parts[-1].num_rows
        if self.n > FOLD_ROWS and len(self.parts) > 1:
            self.parts = [joined(self.parts)]
            self.n = self.parts[0].num_rows // 2  # so that folding stays a small part of the work

    def counts(self, rows: Any) -> pa.Table:
        """Return the number of values in each window of rows of silver: window, node, stream, n."""
        us, _, _ = self.event_times(rows)
        n = np.zeros(rows.num_rows, np.int64)
        for name in self.fields:
            n += rows[name].is_valid().to_numpy(zero_copy_only=False)
        table = pa.table({"window": us - us % self.window_us, "node": rows["node"], "stream": rows["stream"], "n": n})
        keys = ["window", "node", "stream"]
        done = table.filter(pc.greater(table["n"], 0)).group_by(keys, use_threads=False).aggregate([("n", "sum")])
        return done.select([*keys, "n_sum"]).rename_columns([*keys, "n"])

    def content(self) -> pa.Table:
        return joined(self.parts)


def _flat(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _text(column: Any) -> Any:
    return pc.fill_null(_flat(column), "")
