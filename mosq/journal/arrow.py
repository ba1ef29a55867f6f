"""Reads a stream's records as Arrow batches over the decoder's buffers: no copy and no Python object per row."""

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mosq.journal.parts import STRIDE, reader_of
from mosq.journal.stream import Range, report_lost

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

# column of the decoder -> its name and type in a batch
COLUMNS = {
    "shard": ("shard", pa.int32()),
    "seq": ("seq", pa.int64()),
    "time_us": ("time", pa.timestamp("us", tz="UTC")),
    "commit_us": ("commit_time", pa.timestamp("us", tz="UTC")),
    "kind": ("kind", pa.int8()),
    "qos": ("qos", pa.int8()),
    "reason": ("reason", pa.int16()),
    "retain": ("retain", pa.bool_()),
    "dup": ("dup", pa.bool_()),
    "topic": ("topic", pa.string()),
    "client_id": ("client_id", pa.string()),
    "username": ("username", pa.string()),
    "payload": ("payload", pa.binary()),
    "properties": ("properties", pa.binary()),
}
NODE = pa.field("cluster_node", pa.string())  # node of a cluster that received the records; null: none, or unknown
SCHEMA = pa.schema([*(pa.field(name, type) for name, type in COLUMNS.values()), NODE])


def _array(rows: int, type: Any, nulls: int, buffers: list[Any]) -> Any:
    return pa.Array.from_buffers(type, rows, [None if b is None else pa.py_buffer(b) for b in buffers], nulls)


def batches(
    path: "str | os.PathLike[str]",
    shard: int,
    from_seq: int = 0,
    to_seq: int | None = None,
    rows: int = 1 << 17,
    n_bytes: int = 64 << 20,
    lost: "Callable[[Range], object] | None" = None,
) -> "Iterator[Any]":
    """Yield RecordBatches of SCHEMA with at most `rows` rows and about `n_bytes` bytes of texts: the records from
    from_seq up to, not including, to_seq. Missing records are passed to `lost` before the batch that would contain
    them; without `lost` they raise `Lost`."""
    reader = reader_of(path, shard)
    reader.seek(from_seq)
    until = reader.end if to_seq is None else to_seq
    while True:
        n, columns = reader.columns(until, rows, n_bytes)
        for hole in reader.take_lost():
            report_lost(Range(*hole)._replace(shard=shard), lost)
        if n == 0:
            return
        arrays = [_array(n, type, *columns[column]) for column, (_, type) in COLUMNS.items()]
        if shard >= STRIDE:             # the decoder knows the number in its part
            arrays[0] = pa.repeat(pa.scalar(shard, pa.int32()), n)
        arrays.append(pa.repeat(pa.scalar(reader.node, pa.string()), n))  # a batch has records of one node
        yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
