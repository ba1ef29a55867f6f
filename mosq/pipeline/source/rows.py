"""Read a range of a shard as Arrow batches: the columns that the decoder filled, and the stream's name.

Invariant: each sequence number of the range is a row, or lies in a row of kind 10 (gap), or the read fails. A gap is
found by the sequence numbers; the reader only supplies its reason.
"""

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mosq.journal.arrow import SCHEMA as DECODED
from mosq.journal.arrow import batches
from mosq.journal.kinds import GAP
from mosq.journal.parts import marks_of
from mosq.journal.stream import Range
from mosq.pipeline import MosqPipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

SCHEMA = pa.schema([pa.field("stream", pa.string()), *DECODED])
WITH_NODE = pa.schema([pa.field("node", pa.string()), *SCHEMA])
DDL = (
    "stream string, shard int, seq bigint, time timestamp, commit_time timestamp, kind tinyint, qos tinyint, "
    "reason smallint, retain boolean, dup boolean, topic string, client_id string, username string, payload binary, "
    "properties binary, cluster_node string"
)
BEHIND = "behind the end"
# limits of a batch: see the figures of perf/spark_source.py
ROWS, TEXT_BYTES = 1 << 16, 16 << 20
FROM_COPY = "Restore the stream's files from a copy"
ADVICE = {
    "damaged": FROM_COPY,
    "missing": FROM_COPY,
    "retired": "Retention deleted records before this reader read them: keep more (retain_age, retain_bytes), name a "
    "`consumer`, and begin again with a new checkpoint",
    BEHIND: "The stream ends before the position that this reader has reached, as when an older copy was restored: "
    "begin again with a new checkpoint and new tables",
}
OR_GO_ON = "; or set failOnDataLoss=false, which skips them and puts a row of kind 10 (gap) in their place"


def schema_ddl(with_node: bool) -> str:
    """Return the columns of the source as DDL: those of several brokers begin with `node`."""
    return f"node string, {DDL}" if with_node else DDL


def lost(stream: str, path: "Path", hole: Range) -> MosqPipelineError:
    """Return the error for a range that is missing, with advice for its reason."""
    if hole.why == BEHIND:
        missing = f"shard {hole.shard}: {hole.lo} to {hole.hi - 1} do not exist yet"
        return MosqPipelineError(f"stream {stream} in {path}: {missing}. {ADVICE[BEHIND]}")
    return MosqPipelineError(f"stream {stream} in {path}: {hole}. {ADVICE[hole.why]}{OR_GO_ON}")


def _gap(key: str, hole: Range) -> dict[str, Any]:
    node, _, stream = key.rpartition("/")
    content = {"lost": hole.hi - hole.lo, "from": hole.lo, "to": hole.hi - 1, "why": hole.why}
    flags = {"qos": 0, "reason": 0, "retain": False, "dup": False}
    return flags | {
        "node": node,
        "stream": stream,
        "shard": hole.shard,
        "seq": hole.lo,
        "kind": GAP,
        "payload": json.dumps(content).encode(),
    }


def _text(column: Any) -> Any:
    """Return a column in which all text is UTF-8, because readers of tables stop at other bytes.

    Brokers refuse such text, but files may contain it.
    """
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        raw = pa.Array.from_buffers(pa.binary(), len(column), column.buffers(), column.null_count)
        texts = [None if text is None else text.decode(errors="replace") for text in raw.to_pylist()]
        return pa.array(texts, pa.string())
    return column


def _named(key: str, batch: Any) -> Any:
    """Put the names of stream and, if there are several, node before the columns of a batch."""
    columns = [_text(column) if column.type == pa.string() else column for column in batch.columns]
    node, _, stream = key.rpartition("/")
    names = [pa.repeat(name, batch.num_rows) for name in ((node, stream) if node else (stream,))]
    return pa.RecordBatch.from_arrays([*names, *columns], schema=WITH_NODE if node else SCHEMA)


def _holes(shard: int, seqs: Any, at: int, reported: list[Range]) -> list[Range]:
    """Return the ranges from `at` on that are missing in the sequence numbers."""
    if seqs[-1].as_py() + 1 - at == len(seqs):
        return []
    return [_why(shard, a + 1, b, reported) for a, b in pairwise([at - 1, *seqs.to_pylist()]) if b != a + 1]


def _why(shard: int, lo: int, hi: int, reported: list[Range]) -> Range:
    why = next((hole.why for hole in reported if hole.lo < hi and lo < hole.hi and hole.why in ADVICE), "damaged")
    return Range(shard, why, lo, hi)


def read_range(
    stream: str,
    path: "Path",
    shard: int,
    lo: int,
    hi: int,
    fail_on_loss: bool = True,
    columns: "Sequence[str] | None" = None,
) -> "Iterator[Any]":
    """Yield RecordBatches of SCHEMA, or of its `columns`, with the records from lo up to, not including, hi.

    A stream NODE/NAME gives rows of WITH_NODE.
    """
    reported: list[Range] = []
    schema = WITH_NODE if "/" in stream else SCHEMA

    def checked(holes: list[Range]) -> list[dict[str, Any]]:
        if holes and fail_on_loss:
            raise lost(stream, path, holes[0])
        return [_gap(stream, hole) for hole in holes]

    def picked(batch: Any) -> Any:
        return batch if columns is None else batch.select(columns)

    end = marks_of(path)["shards"][shard]["seq"]
    if end < hi:
        raise lost(stream, path, Range(shard, BEHIND, max(lo, end), hi))
    at = lo
    for batch in batches(path, shard, lo, hi, ROWS, TEXT_BYTES, reported.append):
        seqs = batch.column("seq")
        if gaps := checked(_holes(shard, seqs, at, reported)):
            yield picked(pa.RecordBatch.from_pylist(gaps, schema=schema))
        at = seqs[-1].as_py() + 1
        yield picked(_named(stream, batch))
    if at < hi:
        yield picked(pa.RecordBatch.from_pylist(checked([_why(shard, at, hi, reported)]), schema=schema))
