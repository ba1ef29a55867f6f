"""How many the messages of each topic reach: gold/fanout, by the subscriptions that stand at the end of what was read,
found with the broker's own index. A table that is made anew as a whole, when there is something new; the view takes the
last one. Needs the stream `events`."""

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from mosq.pipeline import gold, tables
from mosq.pipeline.matching import Matching
from mosq.pipeline.matching_files import CLIENT, FILTER, TOPIC, kept
from mosq.pipeline.subscriptions import subscribed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from mosq.pipeline.settings import Settings

TABLE = "gold/fanout"
EVENTS = "events/"  # places of that stream


def write(spark: "SparkSession", settings: "Settings", now: dict[str, Any]) -> bool:
    """`now`: what stands after the last batch; False: it needs nothing, or cannot be known."""
    table = settings.table(TABLE)
    known = any(place.startswith(EVENTS) for place in now["shards"])
    if not known or tables.batches(table) == [now["batch"]]:
        return False
    standing = subscribed(tables.read_table(spark, settings.table("bronze"))).select(FILTER, CLIENT).toArrow()
    filters = kept(standing, "the subscriptions", "row", clients=True).rows
    topics = gold.read_gold(spark, settings, "topics").groupBy(TOPIC).agg(F.sum("messages").alias("messages")).cache()
    try:
        tables.write_whole(reached(spark, topics, filters), table, now["batch"])
    finally:
        topics.unpersist()
    return True


def reached(spark: "SparkSession", topics: "DataFrame", filters: "pa.Table") -> "DataFrame":
    """topics: topic, messages; -> topic, subscribers, messages."""
    if not filters.num_rows:
        return topics.select(TOPIC, F.lit(0).cast("bigint").alias("subscribers"), "messages")
    found = Matching(spark, filters).per_topic(topics.select(TOPIC))
    return found.join(topics, TOPIC).select(TOPIC, F.col("deliveries").alias("subscribers"), "messages")
