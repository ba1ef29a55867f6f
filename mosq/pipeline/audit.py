"""Check the accounts of persistent sessions: every published message must have an outcome.

The broker writes the counters of a session as events of kind 9 (`account`). The counters are cumulative. So each row
must add up by itself, no counter may be less than in an earlier row of its session, and a session that has ended has no
queued messages.

    restored + published = acknowledged + expired + dropped + gone + queued

A row that does not add up is an alarm, never a rounding error. If the broker could not write events (kind 10, `gap`),
or if a row cannot be read, the audit reports that it is not complete.
"""

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mosq.journal.kinds import ACCOUNT, GAP
from mosq.pipeline.lake.places import place_of
from mosq.pipeline.lake.table import Table
from mosq.pipeline.rows.tables import KEY_FIELDS, QUARANTINE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mosq.pipeline.settings import Settings

COUNTERS = ("restored", "published", "delivered", "acknowledged", "resent", "expired", "dropped", "queued", "gone")
ENDS = ("acknowledged", "expired", "dropped", "gone", "queued")
KEYS = tuple(field for field in KEY_FIELDS if field.name != "topic")
SCHEMA = pa.schema(
    [
        *KEYS,
        *(pa.field(name, pa.int64()) for name in ("session", *COUNTERS)),
        pa.field("ended", pa.bool_()),
        pa.field("difference", pa.int64()),
    ]
)
# the events that the audit reads, as a task of the pipeline returns them
EVENTS = pa.schema([*KEY_FIELDS, pa.field("kind", pa.int8()), pa.field("payload", pa.binary())])
TABLE = "gold/backlog"
UNREADABLE = "account: not in the format that the broker writes"
INT64 = range(-(1 << 63), 1 << 63)


def accounts(events: pa.Table) -> tuple[pa.Table, pa.Table, int]:
    """Return the rows of gold/backlog, the unreadable rows (for the quarantine), and the number of lost events.

    `events` are the rows of kinds 9 and 10 with the columns of EVENTS.
    """
    good: list[dict[str, Any]] = []
    bad: list[int] = []
    lost = 0
    kinds, payloads = events["kind"].to_pylist(), events["payload"].to_pylist()
    for row, (kind, payload) in enumerate(zip(kinds, payloads, strict=True)):
        content = _object(payload)
        if kind == GAP and _are_numbers(content, ("lost",)):
            lost += content["lost"]
        elif kind == ACCOUNT and _are_numbers(content, ("session", *COUNTERS)) and type(content.get("ended")) is bool:
            good.append({"row": row, **{name: content[name] for name in ("session", *COUNTERS, "ended")}})
        elif kind in (ACCOUNT, GAP):
            bad.append(row)
    return _backlog(events, good), _quarantine(events.take(pa.array(bad, pa.int64()))), lost


def _object(payload: bytes | None) -> dict[str, Any]:
    try:
        content = json.loads(payload or b"")
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _are_numbers(content: dict[str, Any], names: "Iterable[str]") -> bool:
    return all(type(content.get(name)) is int and content[name] in INT64 for name in names)


def _backlog(events: pa.Table, good: list[dict[str, Any]]) -> pa.Table:
    keys = events.select([field.name for field in KEYS]).take(pa.array([one["row"] for one in good], pa.int64()))
    columns = {name: keys[name] for name in keys.column_names}
    for field in SCHEMA:
        if field.name not in columns and field.name != "difference":
            columns[field.name] = pa.array([one[field.name] for one in good], field.type)
    return with_difference(pa.table(columns)).cast(SCHEMA)


def _quarantine(rows: pa.Table) -> pa.Table:
    said = {"silver": "account", "reason": UNREADABLE}
    columns = [
        pa.array([said[field.name]] * rows.num_rows, field.type) if field.name in said else rows[field.name]
        for field in QUARANTINE
    ]
    return pa.table(columns, schema=QUARANTINE)


def with_difference(rows: pa.Table) -> pa.Table:
    """Append the column `difference`: restored + published, less acknowledged, expired, dropped, gone and queued.

    It is 0 if the row adds up.
    """
    difference = pc.add(rows["restored"], rows["published"])
    for name in ENDS:
        difference = pc.subtract(difference, rows[name])
    return rows.append_column("difference", difference)


def wrong(rows: pa.Table) -> pa.Table:
    """Return the rows that do not add up by themselves."""
    return rows.filter(_is_wrong(rows))


def _is_wrong(rows: pa.Table) -> Any:
    found = pc.or_(pc.not_equal(rows["difference"], 0), pc.and_(rows["ended"], pc.not_equal(rows["queued"], 0)))
    for name in COUNTERS:
        found = pc.or_(found, pc.less(rows[name], 0))
    return found


def why(row: dict[str, Any]) -> str:
    """Explain in words why a row is wrong."""
    session = f"{row['client_id']} (node {row['node']}, session {row['session']})"
    if row["difference"]:
        parts = " + ".join(f"{name} {row[name]:,}" for name in ENDS)
        due = row["restored"] + row["published"]
        return f"{session}: {due:,} were due (restored and published), but {parts} make {due - row['difference']:,}"
    if row["ended"] and row["queued"]:
        return f"{session}: has ended, and {row['queued']:,} messages are still queued"
    low = [name for name in COUNTERS if row[name] < 0]
    problem = f"{', '.join(low)} below zero" if low else "counters went down, or an earlier row did not add up"
    return f"{session}: {problem}"


# ---- over all batches, for `status --audit`

OF_SESSION = ("node", "client_id", "session")
RISING = tuple(name for name in COUNTERS if name != "queued")
FOLD_ROWS = 1_000_000


def sessions(rows: pa.Table, before: pa.Table | None = None) -> pa.Table:
    """Return one row for each session: its last row, the maximum of each counter, and `wrong`.

    `wrong` is true if any row of the session does not add up. `before` is the result of an earlier call for other rows;
    those may be among `rows` as well.
    """
    each = rows.append_column("wrong", _is_wrong(rows))
    for name in RISING:
        each = each.append_column(f"{name}_most", rows[name])
    if before is not None:
        each = pa.concat_tables([before.select(each.column_names), each])
    last = [name for name in rows.column_names if name not in OF_SESSION]
    most = [f"{name}_most" for name in RISING]
    aggregates = [*((name, "last") for name in last), *((name, "max") for name in most), ("wrong", "any")]
    found = each.sort_by("seq").group_by(list(OF_SESSION), use_threads=False).aggregate(aggregates)
    found = found.select([*OF_SESSION, *(f"{name}_{how}" for name, how in aggregates)])
    return found.rename_columns([*OF_SESSION, *last, *most, "wrong"])


def of_sessions(found: pa.Table) -> pa.Table:
    """Return the last row of each session; here `wrong` is also true if a counter went down.

    `found` is a result of `sessions`.
    """
    bad = found["wrong"]
    for name in RISING:
        bad = pc.or_(bad, pc.less(found[name], found[f"{name}_most"]))
    last = found.select(SCHEMA.names).append_column("wrong", bad)
    return last.sort_by([(key, "ascending") for key in OF_SESSION])


def all_sessions(settings: "Settings") -> pa.Table:
    """Return `sessions` over all rows of gold/backlog, at its newest version."""
    table = Table.open(place_of(settings), TABLE)
    found = sessions(SCHEMA.empty_table())
    if table is None:
        return found
    waiting: list[pa.RecordBatch] = []
    n = 0
    for batch in table.dataset().to_batches(columns=SCHEMA.names):
        waiting.append(batch)
        n += batch.num_rows
        if n >= FOLD_ROWS:
            found, waiting, n = sessions(pa.Table.from_batches(waiting).cast(SCHEMA), found), [], 0
    return sessions(pa.Table.from_batches(waiting).cast(SCHEMA), found) if n else found
