"""What became of the messages of persistent sessions, by what the broker counted (events of kind 9, `account`):
cumulative, so each row must add up by itself, none may be less than an earlier one of its session, and a session that
has ended owes nothing.

    restored + published = acknowledged + expired + dropped + gone + queued

A row that does not add up is an alarm, never a rounding error. Where the broker could not write events (kind 10,
`gap`), or a row could not be read, the audit says that it is not complete."""

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from mosq.pipeline.gold import ACCOUNT, GAP
from mosq.pipeline.silver import CORRUPT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
UNREADABLE = "account: not what the broker writes"


def told(batch: "DataFrame") -> pa.Table:
    """The account and gap events of a batch, decoded."""
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
    """Rows of gold/backlog, rows that cannot be read (of the quarantine), and how many events were lost."""
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
    """`difference`: what was to be delivered, less what became of it; 0 where all adds up."""
    difference = pc.add(rows["restored"], rows["published"])
    for name in ENDS:
        difference = pc.subtract(difference, rows[name])
    return rows.append_column("difference", difference)


def wrong(rows: pa.Table) -> pa.Table:
    """The rows that do not add up by themselves."""
    negative = None
    for name in COUNTERS:
        one = pc.less(rows[name], 0)
        negative = one if negative is None else pc.or_(negative, one)
    owing = pc.and_(rows["ended"], pc.not_equal(rows["queued"], 0))
    return rows.filter(pc.or_(pc.or_(pc.not_equal(rows["difference"], 0), owing), negative))


def why(row: dict[str, Any]) -> str:
    """In words, what is wrong with a row."""
    session = f"{row['client_id']} (session {row['session']})"
    if row["difference"]:
        parts = " + ".join(f"{name} {row[name]:,}" for name in ENDS)
        due = row["restored"] + row["published"]
        return f"{session}: {due:,} were due (restored and published), but {parts} make {due - row['difference']:,}"
    if row["ended"] and row["queued"]:
        return f"{session}: has ended, and {row['queued']:,} messages are still queued"
    low = [name for name in COUNTERS if row[name] < 0]
    return f"{session}: {', '.join(low)} less than nothing" if low else f"{session}: counters that went down"


# ---- over all batches: what `status --audit` and the report tell


def of_sessions(rows: pa.Table) -> pa.Table:
    """The last row of each session, and in `wrong` whether any of its rows is."""
    keys = ["client_id", "session"]
    if not rows.num_rows:
        return rows.append_column("wrong", pa.array([], pa.bool_()))
    largest = rows.group_by(keys).aggregate([("seq", "max"), *((name, "max") for name in COUNTERS if name != "queued")])
    bad = wrong(rows).group_by(keys).aggregate([("seq", "count")]).rename_columns([*keys, "n_wrong"])
    last = rows.join(largest, keys, join_type="inner")
    last = last.filter(pc.equal(last["seq"], last["seq_max"])).join(bad, keys, join_type="left outer")
    fell = pc.is_valid(last["n_wrong"])
    for name in COUNTERS:
        if name != "queued":
            fell = pc.or_(fell, pc.less(last[name], last[f"{name}_max"]))
    return last.select(rows.column_names).append_column("wrong", fell).sort_by([(key, "ascending") for key in keys])
