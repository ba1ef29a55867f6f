"""Compute gold/fanout: how many subscribers a message to each topic reaches.

The subscriptions are those that exist at the end of the events that were read; the broker's own index matches them.
This needs the stream `events`. A batch cannot add to the table, so `mosq pipeline report` replaces the whole table if
there are new batches. Cost: it reads all of gold/traffic and the events of bronze.
"""

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from mosq.pipeline import frames
from mosq.pipeline.lake.places import place_of
from mosq.pipeline.lake.table import Table
from mosq.pipeline.matching import Matching
from mosq.pipeline.matching_files import CLIENT, FILTER, TOPIC, valid_filters
from mosq.pipeline.rows.tables import FANOUT
from mosq.pipeline.subscriptions import subscribed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mosq.pipeline.settings import Settings

SOURCE = "gold/traffic"
SCHEMA = pa.schema(
    [("node", pa.string()), (TOPIC, pa.string()), ("subscribers", pa.int64()), ("messages", pa.int64())]
)
APP = "fanout"  # its number is the version of SOURCE


def write(spark: "SparkSession", settings: "Settings") -> bool:
    """Write the table; return False if there is no new batch, or if there are no events."""
    place = place_of(settings)
    source = Table.open(place, SOURCE)
    bronze = frames.frame(spark, settings, "bronze")
    if source is None or source.identity is None:
        return False
    table = Table.open(place, FANOUT)
    if (table is not None and table.done(APP) >= source.version) or bronze.where("kind > 1").isEmpty():
        return False
    standing = subscribed(bronze).select("node", FILTER, CLIENT).toArrow()
    # a stream has all messages of a topic, or none: of several streams the largest count is used
    windows = frames.view(spark, settings, "traffic").groupBy("node", TOPIC, CLIENT, "window_start")
    once = windows.agg(F.max("messages").alias("messages"))
    topics = once.groupBy("node", TOPIC).agg(F.sum("messages").alias("messages")).cache()
    try:
        rows = pa.concat_tables(
            [SCHEMA.empty_table()]
            + [_of_node(spark, topics, standing, row.node) for row in topics.select("node").distinct().collect()]
        )
    finally:
        topics.unpersist()
    if table is None:
        table = Table.create(place, FANOUT, SCHEMA, source.identity, partition_by=())
    return table.replace(rows, APP, source.version)


def _of_node(spark: "SparkSession", topics: "DataFrame", standing: pa.Table, node: str) -> pa.Table:
    """Return the rows of one broker: its messages reach its own subscribers."""
    mine = standing.filter(pc.equal(standing["node"], node)).select([FILTER, CLIENT])
    filters = valid_filters(mine, "the subscriptions", "row", clients=True).rows
    rows = reached(spark, topics.where(F.col("node") == node).select(TOPIC, "messages"), filters).toArrow()
    return rows.add_column(0, "node", pa.repeat(node, rows.num_rows)).cast(SCHEMA)


def reached(spark: "SparkSession", topics: "DataFrame", filters: pa.Table) -> "DataFrame":
    """Return topic, subscribers, messages for `topics` with the columns topic, messages."""
    if not filters.num_rows:
        return topics.select(TOPIC, F.lit(0).cast("bigint").alias("subscribers"), "messages")
    found = Matching(spark, filters).per_topic(topics.select(TOPIC))
    return found.join(topics, TOPIC).select(TOPIC, F.col("deliveries").alias("subscribers"), "messages")
