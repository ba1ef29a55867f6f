"""Implement `spark.readStream.format("mosq")`: micro-batches between offsets.

An offset holds the next sequence number of each shard. It is JSON and lies in the checkpoint, so its format is fixed:

    {"version": 1, "streams": {"telemetry": {"id": "<the stream's id>", "next": [1000, 1010]}}}

A new stream has `"from": [...]` in addition, in its first batch: the start of the batch that ends there. So has a
stream that does not begin at 0, in the offset before the first batch (it equals `next` there) and in the first batch. A
batch has the same records whenever it is read again. If several brokers are read (option `sources`), the keys are
NODE/NAME. A key without a node, from the time when there was one broker, is a stream of the first source.
"""

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from mosq.journal import Range, Stream
from mosq.pipeline import MosqPipelineError
from mosq.pipeline.source.plan import Part, cut, within_bytes, within_records
from mosq.pipeline.source.rows import BEHIND, lost
from mosq.pipeline.source.streams import Seen, check_named, find, key_of, position

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mosq.pipeline.source.options import Options

    Offset = dict[str, Any]

VERSION = 1
NEW_CHECKPOINT = "begin again with a new checkpoint and new tables"


def _streams(offset: "Offset") -> dict[str, dict[str, Any]]:
    if offset.get("version") != VERSION:
        raise MosqPipelineError(
            f"the checkpoint's offset is of version {offset.get('version')}, this mosq knows {VERSION}: update mosq, "
            f"or {NEW_CHECKPOINT}"
        )
    streams: dict[str, dict[str, Any]] = offset["streams"]
    return streams


def _offset(streams: dict[str, dict[str, Any]]) -> "Offset":
    return {"version": VERSION, "streams": {name: streams[name] for name in sorted(streams)}}


class JournalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Read micro-batches of streams; an offset is described above."""

    held_back = 0  # finished records of a shard that are kept

    def __init__(self, options: "Options", columns: "Sequence[str]") -> None:
        self.options = options
        self.columns = columns
        self.target: dict[str, list[int]] | None = None  # ends for a trigger that takes the current records only
        self.consumer_marks: dict[str, list[int]] = {}  # the consumer's mark that each stream has

    def _streams(self, offset: "Offset") -> dict[str, dict[str, Any]]:
        """Return the streams of an offset by the keys that this read uses."""
        first = self.options.sources[0].node
        return {name if "/" in name else key_of(first, name): entry for name, entry in _streams(offset).items()}

    # ---- offsets: start and end

    def initialOffset(self) -> "Offset":  # noqa: N802
        streams = find(self.options)
        check_named("startingOffsets", self.options.starting, streams)
        starting = {
            name: position(seen, "startingOffsets", self.options.starting, "earliest") for name, seen in streams.items()
        }
        return _offset(
            {
                name: {"id": streams[name].id, "next": at} | ({"from": list(at)} if any(at) else {})
                for name, at in starting.items()
            }
        )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.target = {name: seen.end for name, seen in find(self.options).items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # Spark passes one limit; the other one is applied in latestOffset
        if self.options.trigger_records:
            return ReadMaxRows(self.options.trigger_records)
        if self.options.trigger_bytes:
            return ReadMaxBytes(self.options.trigger_bytes)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> "Offset":  # noqa: N802
        return _offset({name: {"id": seen.id, "next": seen.end} for name, seen in find(self.options).items()})

    def latestOffset(self, start: "Offset", limit: ReadLimit) -> "Offset":  # noqa: N802
        """Return the end of the next batch after `start`; it equals `start` if there is nothing new."""
        had = self._streams(start)
        streams = self._seen(had)
        # Spark calls this only when all batches below `start` are finished: so the consumer's mark is up to date here,
        # and not one batch late, as it would be in commit().
        self._put_consumer_marks(had, streams)
        ranges = {}
        for name, seen in streams.items():
            if self.target is not None and name not in self.target:
                continue
            ends = seen.end if self.target is None else self.target[name]
            starts = self._starts(had.get(name), seen)
            for shard, (lo, hi) in enumerate(zip(starts, ends, strict=False)):
                ranges[name, shard] = (lo, max(lo, hi))
        if not isinstance(limit, ReadAllAvailable):
            if self.options.trigger_records:
                ranges = within_records(ranges, self.options.trigger_records)
            if self.options.trigger_bytes:
                paths = {name: seen.path for name, seen in streams.items()}
                ranges = within_bytes(ranges, paths, self.options.trigger_bytes)
        if all(lo == hi for lo, hi in ranges.values()):
            return start
        now = {name: {"id": entry["id"], "next": entry["next"]} for name, entry in had.items()}
        for name in dict.fromkeys(name for name, _ in ranges):
            seen, shards = streams[name], [ranges[key] for key in sorted(ranges) if key[0] == name]
            now[name] = {"id": seen.id, "next": [hi for _, hi in shards]}
            if name not in had or had[name].get("from") == had[name]["next"]:  # nothing of it was read before
                now[name]["from"] = [lo for lo, _ in shards]
        return _offset(now)

    def _seen(self, had: dict[str, dict[str, Any]]) -> dict[str, Seen]:
        """Return the current streams, after a check that they do not contradict what was read before."""
        streams = find(self.options)
        for name, entry in had.items():
            if name in streams:
                self._check(entry, streams[name])
            elif self.options.fail_on_loss:
                self._check_left_out(name)
        return streams

    def _check_left_out(self, name: str) -> None:
        """Check that the options leave out a stream that is not there any more."""
        node = name.rpartition("/")[0]
        source = next((source for source in self.options.sources if source.node == node), None)
        if source is None:
            raise MosqPipelineError(
                f"the broker {node}, whose stream {name} was read before, is not among the sources of this read: "
                "name it again, or set failOnDataLoss=false"
            )
        if not source.streams:
            raise MosqPipelineError(
                f"stream {name}, which was read before, is not in {source.path} any more: restore it, or "
                "name the streams to read (option `streams`), or set failOnDataLoss=false"
            )

    def _check(self, entry: dict[str, Any], seen: Seen) -> None:
        where = f"stream {seen.key} in {seen.path}"
        if entry["id"] != seen.id:
            raise MosqPipelineError(
                f"{where} is not the stream that the checkpoint has read (its id is {seen.id}, it was {entry['id']}): "
                "it was removed and created again, so its numbers mean other records. Restore the old folder, or "
                f"{NEW_CHECKPOINT}"
            )
        if len(entry["next"]) > len(seen.end):
            raise MosqPipelineError(
                f"{where} has {len(seen.end)} shards, but the checkpoint has read {len(entry['next'])}: the number of "
                f"shards never decreases, so this is another stream. Restore the old folder, or {NEW_CHECKPOINT}"
            )
        for shard, (seq, first, end) in enumerate(zip(entry["next"], seen.first, seen.end, strict=False)):
            if seq > end:
                raise lost(seen.key, seen.path, Range(shard, BEHIND, end, seq))
            if seq < first and self.options.fail_on_loss:
                raise lost(seen.key, seen.path, Range(shard, "retired", seq, first))

    @staticmethod
    def _starts(entry: dict[str, Any] | None, seen: Seen) -> list[int]:
        if entry is None:  # the stream is new: all of it is read
            return list(seen.first)
        return [*entry["next"], *[0] * (len(seen.end) - len(entry["next"]))]

    # ---- a batch

    def partitions(self, start: "Offset", end: "Offset") -> "Sequence[Part]":
        """Return the parts of the batch between two offsets.

        Raises MosqPipelineError if the streams are not the same any more.
        """
        before, streams = self._streams(start), find(self.options)
        parts: list[Part] = []
        for name, entry in self._streams(end).items():
            had = before.get(name)
            starts = entry["from"] if had is None else had["next"] + [0] * (len(entry["next"]) - len(had["next"]))
            if starts == entry["next"]:
                continue
            if name not in streams:
                raise MosqPipelineError(
                    f"the unfinished batch reads the stream {name}, which is not among the streams of this read "
                    "any more: restore it until the batch is done"
                )
            self._check({"id": entry["id"], "next": starts}, streams[name])
            for shard, (lo, hi) in enumerate(zip(starts, entry["next"], strict=True)):
                parts += cut(name, streams[name].path, shard, lo, hi, self.options.partition_records)
        return parts

    def read(self, partition: Any) -> "Iterator[Any]":
        rows: Iterator[Any] = partition.read(self.options.fail_on_loss, self.columns)
        return rows

    # ---- finished records

    def _put_consumer_marks(self, had: dict[str, dict[str, Any]], streams: dict[str, Seen]) -> None:
        if not self.options.consumer:
            return
        for name, seen in streams.items():
            seqs = [max(0, seq - self.held_back) for seq in self._starts(had.get(name), seen)]
            if self.consumer_marks.get(name) != seqs:
                try:
                    Stream(seen.path).put_consumer(self.options.consumer, seqs)
                except OSError as error:
                    raise MosqPipelineError(
                        f"the mark of the consumer {self.options.consumer} cannot be written to {seen.path}/consumers "
                        f"({error}): let this process write there, or remove the option `consumer`, and keep "
                        "records long enough"
                    ) from error
                self.consumer_marks[name] = seqs
