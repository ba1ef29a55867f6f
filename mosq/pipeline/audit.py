"""Check the accounts of persistent sessions: every published message must have an outcome.

The broker writes the counters of a session as events of kind 9 (`account`). The counters are cumulative. So each row
must add up by itself, no counter may be less than in an earlier row of its session, and a session that has ended has no
queued messages.

    restored + published = acknowledged + expired + dropped + gone + queued

A row that does not add up is an alarm, never a rounding error. If the broker could not write events (kind 10, `gap`),
or if a row cannot be read, the audit reports that it is not complete.
"""

import contextlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from mosq.journal.kinds import ACCOUNT, GAP
from mosq.pipeline import tables
from mosq.pipeline.silver import CORRUPT

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from mosq.pipeline.settings import Settings

COUNTERS = ("restored", "published", "delivered", "acknowledged", "resent", "expired", "dropped", "queued", "gone")
ENDS = ("acknowledged", "expired", "dropped", "gone", "queued")
SCHEMA = ", ".join(
    ["session BIGINT", *(f"{name} BIGINT" for name in COUNTERS), "ended BOOLEAN", "lost BIGINT", f"{CORRUPT} STRING"]
)
KEYS = ("stream", "shard", "seq", "time", "client_id")
EXAMPLES = 10
NONE = pa.schema(
    [
        pa.field("stream", pa.string()),
        pa.field("shard", pa.int32()),
        pa.field("seq", pa.int64()),
        pa.field("time", pa.timestamp("us", tz="UTC")),
        pa.field("client_id", pa.string()),
        *(pa.field(name, pa.int64()) for name in ("session", *COUNTERS)),
        pa.field("ended", pa.bool_()),
        pa.field("difference", pa.int64()),
    ]
).empty_table()
UNREADABLE = "account: not in the format that the broker writes"


def decoded(batch: "DataFrame") -> pa.Table:
    """Return the account and gap events of a batch, with their payloads decoded, in the order of stream, shard and seq.
    """
    text = F.col("payload").cast("string")
    value = F.from_json(text, SCHEMA, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT})
    rows = batch.where(F.col("kind").isin(ACCOUNT, GAP)).select(*KEYS, "topic", "kind", "payload", value.alias("v"))
    return (
        rows.select(*KEYS, "topic", "kind", "payload", "v.*")
        .toArrow()
        .sort_by([("stream", "ascending"), ("shard", "ascending"), ("seq", "ascending")])
    )


def _missing(rows: pa.Table, names: tuple[str, ...]) -> Any:
    mask = pc.is_valid(rows[CORRUPT])
    for name in names:
        mask = pc.or_(mask, pc.is_null(rows[name]))
    return mask


def accounts(rows: pa.Table) -> tuple[pa.Table, pa.Table, int]:
    """Return the rows of gold/backlog, the unreadable rows (for the quarantine), and the number of lost events."""
    of_account, of_gap = (rows.filter(pc.equal(rows["kind"], kind)) for kind in (ACCOUNT, GAP))
    bad_account = _missing(of_account, ("session", *COUNTERS, "ended"))
    bad_gap = _missing(of_gap, ("lost",))
    bad = pa.concat_tables([of_account.filter(bad_account), of_gap.filter(bad_gap)])
    good = of_account.filter(pc.invert(bad_account)).select([*KEYS, "session", *COUNTERS, "ended"])
    n = bad.num_rows
    quarantine = pa.table(
        {
            **{name: bad[name] for name in (*KEYS[:4], "topic", "client_id")},
            "silver": pa.array(["account"] * n, pa.string()),
            "reason": pa.array([UNREADABLE] * n, pa.string()),
            "payload": bad["payload"],
        }
    )
    lost = pc.sum(of_gap.filter(pc.invert(bad_gap))["lost"]).as_py() or 0
    return with_difference(good), quarantine, lost


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
    session = f"{row['client_id']} (session {row['session']})"
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

OF_SESSION = ("client_id", "session")
RISING = tuple(name for name in COUNTERS if name != "queued")
REMEMBERED = "audit"  # a folder beside the checkpoint; N.parquet holds `sessions` of all batches up to N
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
    last = found.select([*NONE.column_names]).append_column("wrong", bad)
    return last.sort_by([(key, "ascending") for key in OF_SESSION])


def all_sessions(settings: "Settings", tries: int = 5) -> pa.Table:
    """Return `sessions` over all batches: the remembered result, and the batches after it.

    Raises FileNotFoundError if runs or compactions replaced files while this function read them, `tries` times in a
    row.
    """
    for _ in range(tries - 1):
        with contextlib.suppress(FileNotFoundError):
            return _all_sessions(settings)
    return _all_sessions(settings)


def _all_sessions(settings: "Settings") -> pa.Table:
    import pyarrow.parquet as pq

    table, path = settings.table("gold/backlog"), _remembered(settings)
    found = sessions(NONE) if path is None else pq.ParquetFile(path).read()
    upto = -1 if path is None else int(path.stem)
    waiting: list[pa.Table] = []
    n = 0
    for file in tables.files(table):
        if tables.batch_of(table, file) > upto:
            waiting.append(pq.ParquetFile(file).read(NONE.column_names))
            n += waiting[-1].num_rows
        if n >= FOLD_ROWS:
            found, waiting, n = sessions(pa.concat_tables(waiting), found), [], 0
    return sessions(pa.concat_tables([NONE, *waiting]), found)


def _remembered(settings: "Settings") -> "Path | None":
    return max((settings.checkpoints / REMEMBERED).glob("*.parquet"), key=lambda path: int(path.stem), default=None)


def remember(settings: "Settings", batch: int) -> None:
    """Write the result of all batches up to this one, so that later audits need not read those batches again."""
    import pyarrow.parquet as pq

    new = settings.checkpoints / REMEMBERED / f"{batch}.parquet"
    if new.exists() or not tables.about(settings.table("gold/backlog")):
        return
    try:
        found = all_sessions(settings)
    except FileNotFoundError:
        return  # `compact` replaced a file after it was listed: the next call remembers
    new.parent.mkdir(parents=True, exist_ok=True)
    unready = new.with_suffix(".new")
    pq.write_table(found, unready, compression="snappy")
    tables.sync(unready)
    unready.rename(new)
    for older in new.parent.glob("*.parquet"):
        if older != new:
            older.unlink()
