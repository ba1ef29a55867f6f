"""Hash the key that a rule declares, of each row of silver.

Two rows have the same key if all its columns are equal. A row with null in one of them has no key. The hash has 128
bits, and a salt that devices do not know, so that no device can make two keys with one hash.
"""

from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from mosq.pipeline.rows.tables import TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

HASH = pa.binary(16)
PLACE = ("node", "stream", "shard", "seq")
# the row that a hash is of, its time in microseconds, and the hash in two parts
SCHEMA = pa.schema(
    [
        pa.field("node", pa.string()),
        pa.field("stream", pa.string()),
        pa.field("shard", pa.int32()),
        pa.field("seq", pa.int64()),
        pa.field("time_us", pa.int64()),
        pa.field("high", pa.uint64()),
        pa.field("low", pa.uint64()),
    ]
)


def _encoded(column: Any) -> list[bytes]:
    """Return one text for each value; the column has no null."""
    kind = column.type
    if pat.is_binary(kind):
        found: list[bytes] = column.to_pylist()
        return found
    if pat.is_floating(kind):
        return [repr(one + 0.0).encode() for one in column.to_pylist()]  # -0.0 is 0.0
    if pat.is_timestamp(kind):
        column = column.cast(pa.int64())
    text: list[bytes] = column.cast(pa.string()).cast(pa.binary()).to_pylist()
    return text


def hashed(rows: "pa.RecordBatch | pa.Table", columns: "Sequence[str]", salt: str) -> tuple[pa.Table, int]:
    """Return the rows that have a key, with its hash (SCHEMA), and the number of rows without one."""
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    table = table.select(list(dict.fromkeys([*PLACE, "time", *columns])))
    n = table.num_rows
    for name in columns:
        table = table.filter(pc.is_valid(table[name])) if table[name].null_count else table
    key = salt.encode()[:64]
    texts = [_encoded(table[name]) for name in columns]
    digests = b"".join(
        blake2b(b"".join(b"%d:%b" % (len(one), one) for one in each), digest_size=16, key=key).digest()
        for each in zip(*texts, strict=True)
    )
    halves = np.frombuffer(digests or bytearray(), np.uint64).reshape(-1, 2)
    found = {
        **{name: table[name] for name in PLACE},
        "time_us": table["time"].cast(TIME).cast(pa.int64()),
        "high": pa.array(halves[:, 0]),
        "low": pa.array(halves[:, 1]),
    }
    return pa.table(found).cast(SCHEMA), n - table.num_rows
