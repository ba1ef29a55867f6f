"""Decode the events of the accounts of persistent sessions, for mosq/pipeline/audit.py."""

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mosq.journal.kinds import ACCOUNT, GAP
from mosq.pipeline.rows import exact
from mosq.pipeline.rows.tables import KEY_FIELDS

COUNTERS = ("restored", "published", "delivered", "acknowledged", "resent", "expired", "dropped", "queued", "gone")
FIELDS = pa.schema(
    [
        *(pa.field(name, pa.int64()) for name in ("session", *COUNTERS)),
        pa.field("ended", pa.bool_()),
        pa.field("lost", pa.int64()),
    ]
)
CORRUPT = "_mosq_corrupt"  # why a payload cannot be read, or null
SCHEMA = pa.schema(
    [
        *KEY_FIELDS,
        pa.field("kind", pa.int8()),
        pa.field("payload", pa.binary()),
        *FIELDS,
        pa.field(CORRUPT, pa.string()),
    ]
)
FROM = re.compile(rb'"from": ([0-9]+), "to": ([0-9]+)')


def decoded(batch: Any) -> pa.Table:
    """Return the account and gap events of a batch of bronze, with their payloads decoded."""
    rows = batch.filter(pc.is_in(batch["kind"], pa.array((ACCOUNT, GAP), pa.int8())))
    read = exact.Exact(FIELDS)
    values: list[dict[str, Any]] = []
    for raw in rows["payload"].to_pylist():
        try:
            values.append(read.read(raw)[0])
        except exact.UnreadableError as error:
            values.append({CORRUPT: str(error)})
    own = [field.name for field in SCHEMA if field.name not in FIELDS.names and field.name != CORRUPT]
    columns = {name: rows[name] for name in own}
    for field in (*FIELDS, SCHEMA.field(CORRUPT)):
        columns[field.name] = pa.array([value.get(field.name) for value in values], field.type)
    return pa.table(columns).cast(SCHEMA)


def gaps(batch: Any) -> list[tuple[int, int]]:
    """Return the first and last sequence numbers of the gaps that the reader found; a gap is one row."""
    mask = pc.and_(pc.equal(batch["kind"], GAP), pc.is_null(batch["time"]))
    if not pc.any(mask).as_py():
        return []
    found = (FROM.search(raw or b"") for raw in batch.filter(mask)["payload"].to_pylist())
    return [(int(one[1]), int(one[2])) for one in found if one]
