"""Compute gold/fanout: how many subscribers a message to each topic reaches.

The subscriptions are those that exist at the end of the events that were read; the broker's own index matches them.
This needs the stream `events`. A batch cannot add to the table, so `mosq pipeline report` writes the whole table again
if there are new batches. Cost: it reads all of gold/traffic and the events of bronze.
"""

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from mosq.pipeline import gold, state, tables
from mosq.pipeline.matching import Matching
from mosq.pipeline.matching_files import CLIENT, FILTER, TOPIC, valid_filters
from mosq.pipeline.subscriptions import subscribed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mosq.pipeline.settings import Settings

TABLE = "gold/fanout"
EVENTS = "events/"  # prefix of the places of that stream
NONE = pa.schema([(TOPIC, pa.string()), ("subscribers", pa.int64()), ("messages", pa.int64())]).empty_table()


def begin(settings: "Settings") -> None:
    """Create the empty table, so that all tables exist from the first run on."""
    if not tables.about(settings.table(TABLE)):
        tables.write_arrow(NONE, settings.table(TABLE), 0, None, whole=True)


def write(spark: "SparkSession", settings: "Settings") -> bool:
    """Write the table; return False if there is no new batch, or if there are no events."""
    now, table = state.after(settings), settings.table(TABLE)
    number = now["batch"] + 1
    if tables.batches(table) == [number] or not any(place.startswith(EVENTS) for place in now["shards"]):
        return False
    standing = subscribed(tables.read_table(spark, settings.table("bronze"))).select(FILTER, CLIENT).toArrow()
    filters = valid_filters(standing, "the subscriptions", "row", clients=True).rows
    topics = gold.read_gold(spark, settings, "topics").groupBy(TOPIC).agg(F.sum("messages").alias("messages")).cache()
    try:
        tables.write_whole(reached(spark, topics, filters), table, number)
    finally:
        topics.unpersist()
    return True


def reached(spark: "SparkSession", topics: "DataFrame", filters: pa.Table) -> "DataFrame":
    """Return topic, subscribers, messages for `topics` with the columns topic, messages."""
    if not filters.num_rows:
        return topics.select(TOPIC, F.lit(0).cast("bigint").alias("subscribers"), "messages")
    found = Matching(spark, filters).per_topic(topics.select(TOPIC))
    return found.join(topics, TOPIC).select(TOPIC, F.col("deliveries").alias("subscribers"), "messages")
