"""Compute what the records say last: about each device on each topic, each field of silver, and each connection.

Within a shard of a stream the record with the greatest number is the last one, also after a clock was set back. So the
rows have the place in their key, and it does not matter how records are divided into batches, nor in which order these
are joined. The views take the newest row of several places.
"""

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from mosq.journal.kinds import CONNECT, DISCONNECT, EXPIRY, MESSAGE, REFUSED, START
from mosq.pipeline.rows.tables import DEVICE_KEYS, DEVICE_SCHEMA, EXPIRED, OFFLINE, ONLINE, RESCUED, START_FIELD

if TYPE_CHECKING:
    from collections.abc import Sequence

VALUE_MAX = 1024  # characters of a value
FOLD_ROWS = 1 << 18
TAKEN_OVER = 0x8E  # the reason of a connection's end when another connection of the client began
SAID = {CONNECT: ONLINE, DISCONNECT: OFFLINE, EXPIRY: EXPIRED, START: START_FIELD}
WHERE = ("node", "stream", "shard")
LAST = ("time", "value", "number")
METRIC_VALUES = ("long_value", "double_value", "boolean_value", "string_value", "bytes_value")


def folded(rows: pa.Table) -> pa.Table:
    """Return one row for each key, in the order of the keys."""
    every = pc.ScalarAggregateOptions(skip_nulls=False)
    rows = rows.take(pc.sort_indices(rows["seq"])) if rows.num_rows > 1 else rows
    aggregates: list[Any] = [("seq", "max"), *((name, "last", every) for name in LAST)]
    aggregates += [("first_time", "min"), ("messages", "sum")]
    done = rows.group_by(list(DEVICE_KEYS), use_threads=False).aggregate(aggregates)
    done = done.select([*DEVICE_KEYS, *(f"{name}_{how}" for name, how, *_ in aggregates)])
    done = done.rename_columns([*DEVICE_KEYS, *(name for name, *_ in aggregates)])
    ordered = done.select(DEVICE_SCHEMA.names).cast(DEVICE_SCHEMA)
    return ordered.sort_by([(key, "ascending") for key in DEVICE_KEYS])


class _Keys:
    """Order rows by their place, client and topic, and within these by number."""

    def __init__(self, rows: Any, more: "Sequence[Any]" = ()) -> None:
        self.rows = rows
        code, most = np.zeros(rows.num_rows, np.int64), 1
        for column in (*(rows[name] for name in (*WHERE, "client_id", "topic")), *more):
            coded = column.dictionary_encode()
            size = len(coded.dictionary) + 1  # null has a code too
            if most * size >= 1 << 62:
                _, code = np.unique(code, return_inverse=True)
                most = rows.num_rows
            code, most = code * size + _codes(coded), most * size
        self.order = np.lexsort((rows["seq"].to_numpy(zero_copy_only=False), code))
        self.code = code[self.order]

    def groups(self) -> tuple[Any, Any]:
        """Return where each key begins in `order`, and the position of its last row."""
        begins = np.flatnonzero(np.r_[True, np.diff(self.code) != 0])
        return begins, self.order[np.r_[begins[1:], len(self.order)] - 1]

    def last_valid(self, column: Any) -> Any:
        """Return the position of the last row of each key in which a column is not null."""
        valid = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)[self.order])
        if not len(valid):
            return valid
        return self.order[valid[np.r_[np.diff(self.code[valid]) != 0, True]]]


def _codes(coded: Any) -> Any:
    return pc.fill_null(coded.indices, len(coded.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)


class Devices:
    """Collect the rows of a task."""

    def __init__(self) -> None:
        self.parts: list[pa.Table] = []
        self.n = 0

    def records(self, batch: Any) -> None:
        """Take records with the columns of bronze: messages and events."""
        kind = batch["kind"].to_numpy(zero_copy_only=False)
        self._messages(_chosen(batch, kind == MESSAGE))
        self._connections(_chosen(batch, np.isin(kind, tuple(SAID))))

    def _messages(self, rows: Any) -> None:
        if not rows.num_rows:
            return
        keys = _Keys(rows)
        begins, last = keys.groups()
        times = rows["time"].cast(pa.int64()).to_numpy(zero_copy_only=False)[keys.order]
        first = pa.array(np.minimum.reduceat(times, begins))
        n = pa.array(np.diff(np.r_[begins, len(times)]))
        self._put(rows.take(pa.array(last)), {"first_time": first.cast(pa.timestamp("us", tz="UTC")), "messages": n})

    def _connections(self, rows: Any) -> None:
        if not rows.num_rows:
            return
        kind = rows["kind"].to_numpy(zero_copy_only=False)
        reason = pc.fill_null(rows["reason"], 0).to_numpy(zero_copy_only=False)
        # another connection of the client begins, or none: the client stays as it is
        same = ((kind == CONNECT) & (reason >= REFUSED)) | ((kind == DISCONNECT) & (reason == TAKEN_OVER))
        rows, kind, reason = _chosen(rows, ~same), kind[~same], reason[~same]
        self._put(
            rows,
            {
                "topic": pa.array([""] * rows.num_rows, pa.string()),
                "field": pa.array([START_FIELD if one == START else "" for one in kind.tolist()], pa.string()),
                "value": pa.array([SAID[one] for one in kind.tolist()], pa.string()),
                "number": pa.array(reason.astype(np.float64)),
                "first_time": rows["time"],
                "messages": pa.array((kind == CONNECT).astype(np.int64)),
            },
        )

    def values(self, rule: str, rows: Any, names: "Sequence[str]", columns: "Sequence[Any]") -> None:
        """Take rows of silver: the last value of each column that is not null counts."""
        if not rows.num_rows:
            return
        keys = _Keys(rows)
        for name, column in zip(names, columns, strict=True):
            self._values(rule, rows, keys.last_valid(column), column, name)

    def metrics(self, rule: str, rows: Any, columns: dict[str, Any]) -> None:
        """Take rows of Sparkplug: each metric is a field.

        Historical values do not count, nor metrics without name and alias. `columns` are those of silver, with RESCUED
        if a row has it.
        """
        if not rows.num_rows:
            return
        alias = columns["alias"].cast(pa.string())
        if RESCUED in columns:  # an alias beyond BIGINT
            beyond = pc.extract_regex(columns[RESCUED], r'"alias":(?P<alias>[0-9]+)')
            alias = pc.coalesce(alias, pc.struct_field(beyond, "alias"))
        alias = pc.binary_join_element_wise("alias", alias, " ")
        names = pc.coalesce(columns["metric"], alias)
        new = pc.and_(names.is_valid(), pc.invert(pc.fill_null(columns["historical"], False)))
        keys = _Keys(rows, [names])
        for name in METRIC_VALUES:
            column = columns[name]
            there = pc.if_else(new, column, pa.scalar(None, column.type))
            self._values(rule, rows, keys.last_valid(there), column, names)

    def _values(self, rule: str, rows: Any, at: Any, column: Any, field: Any) -> None:
        if not len(at):
            return
        taken = pa.array(at)
        found, values = rows.take(taken), column.take(taken)
        names = pa.array([field] * len(at), pa.string()) if isinstance(field, str) else field.take(taken)
        self._put(
            found,
            {
                "silver": pa.array([rule] * len(at), pa.string()),
                "field": names,
                "value": texts(values),
                "number": numbers(values),
                "messages": pa.array([0] * len(at)),
            },
        )

    def _put(self, rows: Any, more: dict[str, Any]) -> None:
        n = rows.num_rows
        columns = []
        for field in DEVICE_SCHEMA:
            column = more.get(field.name)
            if column is None and field.name in rows.schema.names:
                column = rows[field.name]
            if column is None:
                column = pa.nulls(n, field.type)
            text = field.name in DEVICE_KEYS and field.type == pa.string()
            columns.append(pc.fill_null(column, "") if text and column.null_count else column.cast(field.type))
        self.parts.append(pa.table(columns, schema=DEVICE_SCHEMA))
        self.n += n
        if self.n > FOLD_ROWS and len(self.parts) > 1:
            self.parts = [folded(pa.concat_tables(self.parts))]
            self.n = self.parts[0].num_rows // 2  # so that folding stays a small part of the work

    def content(self) -> pa.Table | None:
        """Return the rows of all batches, one for each key."""
        return folded(pa.concat_tables(self.parts)) if self.parts else None


def _chosen(rows: Any, mask: Any) -> Any:
    return rows if mask.all() else rows.filter(pa.array(mask))


# ---- values


def texts(values: Any) -> Any:
    """Return values of any type as text: nested ones as JSON, bytes as hexadecimal digits."""
    type = values.type
    if pat.is_binary(type):
        found = pa.array([None if one is None else one.hex() for one in values.to_pylist()], pa.string())
    elif pat.is_nested(type):
        plain = dict if pat.is_map(type) else list if pat.is_list(type) else lambda one: one
        found = pa.array([None if one is None else _json(plain(one)) for one in values.to_pylist()], pa.string())
    else:
        found = values.cast(pa.string())
    return pc.utf8_slice_codeunits(found, 0, VALUE_MAX)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def numbers(values: Any) -> Any:
    """Return numbers as DOUBLE, and null for values of other types."""
    type = values.type
    if pat.is_integer(type) or pat.is_floating(type) or pat.is_decimal(type):
        return values.cast(pa.float64(), safe=False)
    return pa.nulls(len(values), pa.float64())
