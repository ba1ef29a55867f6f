"""Implement `spark.read.format("mosq")`: the records on the disk when the query is planned, or a part of them."""

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader

from mosq.pipeline.source.plan import Part, cut
from mosq.pipeline.source.streams import check_named, find, position

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mosq.pipeline.source.options import Options


class JournalReader(DataSourceReader):
    """Read the streams once."""

    def __init__(self, options: "Options", columns: "Sequence[str]") -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> "list[Part]":
        """Return the parts to read. Raises MosqPipelineError if a stream or an offset does not exist."""
        options = self.options
        streams = find(options)
        check_named("startingOffsets", options.starting, streams)
        check_named("endingOffsets", options.ending, streams)
        parts: list[Part] = []
        for name, seen in streams.items():
            starts = position(seen, "startingOffsets", options.starting, "earliest")
            ends = position(seen, "endingOffsets", options.ending, "latest")
            for shard, (lo, hi) in enumerate(zip(starts, ends, strict=True)):
                parts += cut(name, seen.path, shard, lo, hi, options.partition_records)
        return parts

    def read(self, partition: Any) -> "Iterator[Any]":
        # if there is no partition, Spark asks for one with the value None
        return partition.read(self.options.fail_on_loss, self.columns) if isinstance(partition, Part) else iter(())
