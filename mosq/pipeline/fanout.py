"""How many the messages of each topic reach: gold/fanout, by the subscriptions that stand at the end of what was read,
found with the broker's own index. Needs the stream `events`.

No batch can add to it, so it is made anew as a whole, by `mosq pipeline report`, when there is something new. Cost: all
of gold/traffic and the events of bronze are read."""

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from mosq.pipeline import gold, state, tables
from mosq.pipeline.matching import Matching
from mosq.pipeline.matching_files import CLIENT, FILTER, TOPIC, kept
from mosq.pipeline.subscriptions import subscribed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from mosq.pipeline.settings import Settings

TABLE = "gold/fanout"
EVENTS = "events/"  # places of that stream
NONE = pa.schema([(TOPIC, pa.string()), ("subscribers", pa.int64()), ("messages", pa.int64())]).empty_table()


def begin(settings: "Settings") -> None:
    """All tables are there from the beginning."""
    if not tables.about(settings.table(TABLE)):
        tables.write_arrow(NONE, settings.table(TABLE), 0, None, whole=True)


def write(spark: "SparkSession", settings: "Settings") -> bool:
    """False: nothing is new, or it cannot be known."""
    now, table = state.after(settings), settings.table(TABLE)
    number = now["batch"] + 1
    if tables.batches(table) == [number] or not any(place.startswith(EVENTS) for place in now["shards"]):
        return False
    standing = subscribed(tables.read_table(spark, settings.table("bronze"))).select(FILTER, CLIENT).toArrow()
    filters = kept(standing, "the subscriptions", "row", clients=True).rows
    topics = gold.read_gold(spark, settings, "topics").groupBy(TOPIC).agg(F.sum("messages").alias("messages")).cache()
    try:
        tables.write_whole(reached(spark, topics, filters), table, number)
    finally:
        topics.unpersist()
    return True


def reached(spark: "SparkSession", topics: "DataFrame", filters: pa.Table) -> "DataFrame":
    """topics: topic, messages; -> topic, subscribers, messages."""
    if not filters.num_rows:
        return topics.select(TOPIC, F.lit(0).cast("bigint").alias("subscribers"), "messages")
    found = Matching(spark, filters).per_topic(topics.select(TOPIC))
    return found.join(topics, TOPIC).select(TOPIC, F.col("deliveries").alias("subscribers"), "messages")
