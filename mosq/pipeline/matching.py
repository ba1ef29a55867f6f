"""Match any number of topics against any number of filters, with the broker's own index in Spark's workers.

`mosq pipeline match` uses this module. The filters go to each worker as one block of Arrow (a broadcast). A worker's
process builds the index once and keeps it for its next task. Batches of topics go in as Arrow arrays and come out as
pairs or counts, so there is no Python object for each row. Invariant: a batch that comes out has at most MOST pairs and
about BYTES_MOST bytes of text. Cost: docs/pipeline.md.
"""

from __future__ import annotations

import functools
import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mosq._core import Matcher
from mosq.pipeline.matching_files import CLIENT, FILTER, TOPIC, column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    Batches = Iterator[Any]

MOST = 1 << 18                      # pairs in one batch of the result
BYTES_MOST = 1 << 29                # bytes of text in one batch of the result: Arrow's offsets have 31 bits
INDEXES_KEPT = 2                    # indexes that a worker keeps
# ids of sums that belong to no filter
TOPICS, DELIVERIES, UNMATCHED, BAD = -1, -2, -3, -4
SHARED = "$share/"


class Block:
    """Hold the filters as Spark sends them to workers; two blocks are equal if their bytes are."""

    def __init__(self, rows: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as out:
            out.write_table(rows.combine_chunks())
        self.bytes = sink.getvalue().to_pybytes()
        self.digest = hashlib.sha256(self.bytes).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Block) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


class Indexed:
    """Hold the filters and the index over them."""

    def __init__(self, rows: pa.Table) -> None:
        self.columns = {name: _single(rows[name]) for name in rows.column_names}
        texts = self.columns[FILTER]
        self.shared = pc.starts_with(texts, SHARED)
        self.matcher = Matcher(column(texts))
        self.longest = max(_longest(one) for one in self.columns.values())


def _single(chunks: Any) -> Any:
    whole = chunks.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        return whole.chunk(0) if whole.num_chunks else pa.array([], pa.string())
    return whole


def _longest(texts: Any) -> int:
    return pc.max(pc.binary_length(texts)).as_py() or 1


@functools.lru_cache(maxsize=INDEXES_KEPT)
def indexed(block: Block) -> Indexed:
    """Return the index of a block; a process builds it once."""
    return Indexed(pa.ipc.open_stream(pa.py_buffer(block.bytes)).read_all())


class Matching:
    """Match topics against `rows` (Filters.rows); they have the column client_id if results are per client."""

    def __init__(self, spark: SparkSession, rows: pa.Table) -> None:
        self.by_client = CLIENT in rows.column_names
        self.n = len(rows)
        self.block = spark.sparkContext.broadcast(Block(rows))

    def pairs(self, topics: DataFrame, report_bad: Callable[[int], None] | None = None) -> DataFrame:
        """Return the deliveries: topic, filter, shared (one member of the group receives it) and, if known, client_id.
        """
        block, by_client = self.block, self.by_client

        def run(batches: Batches) -> Batches:
            return pairs(batches, indexed(block.value), by_client, report_bad)

        client = f"{CLIENT} string, " if by_client else ""
        return topics.mapInArrow(run, f"{TOPIC} string, {client}{FILTER} string, shared boolean")

    def per_topic(self, topics: DataFrame, report_bad: Callable[[int], None] | None = None) -> DataFrame:
        """Return how many deliveries a message to each topic would cause, including 0."""
        block = self.block

        def run(batches: Batches) -> Batches:
            return per_topic(batches, indexed(block.value), report_bad)

        return topics.mapInArrow(run, f"{TOPIC} string, deliveries bigint")

    def sums(self, topics: DataFrame) -> DataFrame:
        """Return id, n: for each filter that matches something the number of topics, and TOPICS, DELIVERIES, UNMATCHED,
        BAD.
        """
        from pyspark.sql import functions as f

        block = self.block

        def run(batches: Batches) -> Batches:
            return sums(batches, indexed(block.value))

        return topics.mapInArrow(run, "id int, n bigint").groupBy("id").agg(f.sum("n").alias("n"))

    def per_filter(self, summed: DataFrame) -> DataFrame:
        """Return filter, shared, topics and, if known, client_id, for a result of `sums`. Unmatched filters have 0."""
        block, by_client = self.block, self.by_client

        def run(batches: Batches) -> Batches:
            return named(batches, indexed(block.value), by_client)

        every = summed.sparkSession.range(self.n).selectExpr("cast(id as int) as id", "0L as n")
        of_filters = summed.where("id >= 0").unionByName(every).groupBy("id").sum("n").selectExpr("id", "`sum(n)` as n")
        client = f"{CLIENT} string, " if by_client else ""
        return of_filters.mapInArrow(run, f"{client}{FILTER} string, shared boolean, topics bigint")

    def per_client(self, summed: DataFrame) -> DataFrame:
        """Return client_id, filters, topics (that the client would receive), shared (that it or another member would).
        """
        from pyspark.sql import functions as f

        return self.per_filter(summed).groupBy(CLIENT).agg(
            f.count("*").alias("filters"),
            f.sum(f.when(f.col("shared"), 0).otherwise(f.col("topics"))).alias("topics"),
            f.sum(f.when(f.col("shared"), f.col("topics")).otherwise(0)).alias("shared"))


# ---------------------------------------------------------------- in a worker

def pairs(batches: Batches, index: Indexed, by_client: bool, report_bad: Callable[[int], None] | None) -> Batches:
    """Yield batches of (topic, client_id if known, filter, shared) with at most MOST rows.

    report_bad gets the number of bad topics in each part.
    """
    for batch in batches:
        topics = batch.column(0)
        texts = column(topics)
        most = max(1, min(MOST, BYTES_MOST // max(index.longest, _longest(topics))))
        at = 0
        while at < len(topics):
            offsets, found, bad = index.matcher.match(texts, at, most)
            if bad and report_bad is not None:
                report_bad(bad)
            ends = np.frombuffer(offsets, np.int32)
            n = len(ends) - 1
            ids = pa.Array.from_buffers(pa.int32(), len(found) // 4, [None, pa.py_buffer(found)])
            rows = pa.array(np.repeat(np.arange(at, at + n, dtype=np.int32), np.diff(ends)))
            at += n
            for first in range(0, len(ids), most):
                yield _named_pairs(topics, rows.slice(first, most), index, ids.slice(first, most), by_client)


def _named_pairs(topics: Any, rows: Any, index: Indexed, ids: Any, by_client: bool) -> Any:
    client = {CLIENT: index.columns[CLIENT].take(ids)} if by_client else {}
    return pa.RecordBatch.from_pydict({TOPIC: topics.take(rows), **client, FILTER: index.columns[FILTER].take(ids),
                                       "shared": index.shared.take(ids)})


def per_topic(batches: Batches, index: Indexed, report_bad: Callable[[int], None] | None) -> Batches:
    """Yield batches of (topic, deliveries)."""
    for batch in batches:
        counts, bad = index.matcher.count(column(batch.column(0)))
        if bad and report_bad is not None:
            report_bad(bad)
        yield pa.RecordBatch.from_arrays(
            [batch.column(0), pa.Array.from_buffers(pa.int64(), batch.num_rows, [None, pa.py_buffer(counts)])],
            names=[TOPIC, "deliveries"])


def sums(batches: Batches, index: Indexed) -> Batches:
    """Yield one batch of (id, n): the matching topics of each filter, and the four totals."""
    tally = np.zeros(index.matcher.n, np.int64)
    topics = deliveries = unmatched = wrong = 0
    for batch in batches:
        buffer, bad = index.matcher.count(column(batch.column(0)), tally)
        counts = np.frombuffer(buffer, np.int64)
        topics += batch.num_rows
        deliveries += int(counts.sum())
        unmatched += int((counts == 0).sum()) - bad
        wrong += bad
    ids = np.flatnonzero(tally).astype(np.int32)
    whole = np.array([TOPICS, DELIVERIES, UNMATCHED, BAD], np.int32)
    yield pa.RecordBatch.from_arrays(
        [pa.array(np.concatenate([ids, whole])),
         pa.array(np.concatenate([tally[ids], np.array([topics, deliveries, unmatched, wrong], np.int64)]))],
        names=["id", "n"])


def named(batches: Batches, index: Indexed, by_client: bool) -> Batches:
    """Yield the filters of a batch of (id, n) with their texts."""
    for batch in batches:
        ids = batch.column(0)
        columns = {CLIENT: index.columns[CLIENT].take(ids)} if by_client else {}
        yield pa.RecordBatch.from_pydict(columns | {FILTER: index.columns[FILTER].take(ids),
                                                    "shared": index.shared.take(ids), "topics": batch.column(1)})
