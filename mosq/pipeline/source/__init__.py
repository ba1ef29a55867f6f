"""Provide `format("mosq")`: the broker's journal streams as a Spark source, batch and streaming.

docs/pipeline-source.md lists the options. Spark calls the reader in a process beside the driver (for the streams and
their ends) and in workers (for a range of a shard, as Arrow batches that the native decoder filled). Filters are not
pushed down: Spark 4 returns wrong rows if a DataFrame with pushed filters is used twice.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from mosq.pipeline import MosqPipelineError
from mosq.pipeline.source.options import Options
from mosq.pipeline.source.rows import schema_ddl

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from mosq.pipeline.source.batch import JournalReader
    from mosq.pipeline.source.stream import JournalStreamReader


def columns_of(source: str, schema: "StructType", ddl: str) -> list[str]:
    """Return the columns that `.schema()` selected, or all. The other columns are decoded and then dropped."""
    types = dict(column.split() for column in ddl.split(", "))
    for field in schema.fields:
        if field.dataType.simpleString() != types.get(field.name):
            missing = f"{field.name} {field.dataType.simpleString()}"
            raise MosqPipelineError(f'format("{source}") has no column {missing}: .schema() may select from: {ddl}')
    names: list[str] = schema.fieldNames()
    return names


class JournalSource(DataSource):
    """Implement the data source `mosq`."""

    @classmethod
    def name(cls) -> str:
        return "mosq"

    def schema(self) -> str:
        # errors are raised at load(), not when the query runs
        return schema_ddl(Options(self.options).with_node)

    def reader(self, schema: "StructType") -> "JournalReader":
        from mosq.pipeline.source.batch import JournalReader

        options = Options(self.options, batch=True)
        return JournalReader(options, columns_of("mosq", schema, schema_ddl(options.with_node)))

    def streamReader(self, schema: "StructType") -> "JournalStreamReader":  # noqa: N802
        from mosq.pipeline.source.stream import JournalStreamReader

        options = Options(self.options, batch=False)
        return JournalStreamReader(options, columns_of("mosq", schema, schema_ddl(options.with_node)))
