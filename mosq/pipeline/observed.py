"""Count what the broker carried, for a capacity plan.

Spark counts everything from the bronze table (messages and broker events), so the results are small. A number that the
streams do not contain is None, never a guess.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mosq.journal.kinds import ACCOUNT, CONNECT, DISCONNECT, DROP, MESSAGE, REFUSED, START, SUBSCRIBE, TAKE_OVER
from mosq.pipeline.matching_files import FILTER, valid_filters
from mosq.pipeline.subscriptions import subscribed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LIVES = 10_000  # starts of the broker that are counted apart, at most
QUEUE_FULL = 0  # reason of a drop: the queue had max_queued_messages
CACHED_TOPIC_BYTES = 128  # longest topic that the match cache remembers
WILD_MAX = 500_000  # most filters with wildcards whose levels are examined
TABLE_FIRST = 8  # least buckets of a table
CROWDED = 9  # names at a level from which the level has a hash table


@dataclass
class Connections:
    """Hold how many clients were connected after each change: a curve for each run of the broker."""

    curves: list[Any]  # of int64
    connects: int

    @property
    def peak(self) -> int:
        return max((int(curve.max()) for curve in self.curves if len(curve)), default=0)

    @property
    def wave(self) -> int:
        """Return the largest number of clients that left and came back."""
        return max((_wave(curve) for curve in self.curves if len(curve)), default=0)


def _wave(curve: Any) -> int:
    before = np.maximum.accumulate(curve)
    after = np.maximum.accumulate(curve[::-1])[::-1]
    return int((np.minimum(before, after) - curve).max())


@dataclass
class Subscribed:
    """Count the filters at the end of the observed time."""

    filters: int = 0
    wild: int = 0
    partitions: list[int] = field(default_factory=list)  # filters without wildcards, by first letter
    names_most: int = 0  # most names at one level of the tree
    names_crowded: int = 0  # names at levels with at least CROWDED names
    fan_out: int = 0  # most deliveries of one message
    fan_out_topic: str = ""


@dataclass
class Queues:
    """Describe the queues of sessions."""

    most: int = 0  # messages of one session that waited, or were dropped for lack of room
    most_client: str = ""
    dropped: int = 0  # messages that were dropped for lack of room
    together_bytes: int = 0  # estimated bytes of all sessions at once
    sessions: int = 0


@dataclass
class Observed:
    """Hold all observations; None stands for one that the streams do not contain."""

    messages: int = 0
    topics: int = 0
    short_topics: int = 0  # topics that the match cache can remember
    payload_mean: float = 0.0
    seconds: float = 0.0
    connections: Connections | None = None
    subscribed: Subscribed | None = None
    queues: Queues | None = None


def observe(bronze: DataFrame) -> Observed:
    """Return the observations of a bronze table."""
    from pyspark.sql import functions as f

    messages = bronze.where(f.col("kind") == MESSAGE)
    # a message that lies in several streams counts once: see views.py
    per_stream = messages.groupBy("node", "topic", "stream").agg(
        f.count("*").alias("n"),
        f.sum(f.octet_length("payload")).alias("n_bytes"),
        f.min("time").cast("double").alias("first"),
        f.max("time").cast("double").alias("last"),
    )
    per_node = per_stream.groupBy("node", "topic").agg(
        f.max("n").alias("n"),
        f.max("n_bytes").alias("n_bytes"),
        f.min("first").alias("first"),
        f.max("last").alias("last"),
    )
    of_topic = per_node.groupBy("topic").agg(
        f.sum("n").alias("n"),
        f.sum("n_bytes").alias("n_bytes"),
        f.min("first").alias("first"),
        f.max("last").alias("last"),
    )
    totals = of_topic.agg(
        f.sum("n").alias("messages"),
        f.sum("n_bytes").alias("n_bytes"),
        f.count("topic").alias("topics"),
        f.count_if(f.octet_length("topic") <= CACHED_TOPIC_BYTES).alias("short"),
        (f.max("last") - f.min("first")).alias("seconds"),
    ).first()
    n = totals.messages or 0
    seen = Observed(n, totals.topics, totals.short, (totals.n_bytes or 0) / max(n, 1), totals.seconds or 0.0)
    topics = of_topic.where("topic is not null").select("topic")
    events = bronze.where(f.col("kind") > MESSAGE)
    there = {row.kind for row in events.select("kind").distinct().collect()}
    if CONNECT in there:
        seen.connections = connections(events)
    if SUBSCRIBE in there:
        seen.subscribed = subscriptions(events, topics)
    if ACCOUNT in there:
        seen.queues = queues(events, seen.payload_mean)
    return seen


def connections(events: DataFrame) -> Connections:
    """Return the curves of connected clients.

    A connection ends with the next event of its client, a disconnect or a take-over. A start of the broker ends all
    connections. A refused client had no connection.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    starts = [
        row.seq for row in events.where(f.col("kind") == START).select("seq").orderBy("seq").limit(LIVES).collect()
    ]
    life = f.size(f.filter(f.array(*map(f.lit, starts)), lambda seq: seq < f.col("seq"))) if starts else f.lit(0)
    own = Window.partitionBy("stream", "life", "client_id").orderBy("seq")
    was = f.lag("kind").over(own) == CONNECT
    begins = f.col("kind") == CONNECT
    accepted = ~begins | (f.coalesce("reason", f.lit(0)) < REFUSED)
    steps = (
        events.where(f.col("kind").isin(CONNECT, DISCONNECT, TAKE_OVER) & accepted)
        .withColumn("life", life)
        .withColumn("step", f.when(begins & f.coalesce(~was, f.lit(True)), 1).when(~begins & was, -1).otherwise(0))
        .groupBy("life", (f.unix_micros("time") / 1000).cast("long").alias("ms"))
        .agg(
            f.sum(f.greatest("step", f.lit(0))).alias("up"),
            f.sum(f.least("step", f.lit(0))).alias("down"),
            f.sum(begins.cast("long")).alias("connects"),
        )
        .orderBy("life", "ms")
        .toArrow()
    )
    lives = steps["life"].to_numpy()
    both = np.stack([steps["up"].to_numpy(), steps["down"].to_numpy()], axis=1)
    curves = [np.cumsum(both[lives == one].reshape(-1)) for one in np.unique(lives)]
    return Connections(curves, int(steps["connects"].to_numpy().sum()))


def subscriptions(events: DataFrame, topics: DataFrame) -> Subscribed:
    """Return the filters at the end, and the largest fan-out over `topics`."""
    from pyspark.sql import functions as f

    from mosq.pipeline.matching import Matching

    filters = valid_filters(subscribed(events).toArrow(), "the subscriptions", "row", clients=True).rows
    if not len(filters):
        return Subscribed()
    distinct = [
        text.partition("/")[2].partition("/")[2] if text.startswith("$share/") else text
        for text in filters[FILTER].unique().to_pylist()
    ]
    exact: set[str] = set()
    wild: set[str] = set()
    for text in distinct:
        (wild if "+" in text or "#" in text else exact).add(text)
    found = Subscribed(len(exact) + len(wild), len(wild), partitions(exact))
    if len(wild) <= WILD_MAX:
        found.names_most, found.names_crowded = crowds(wild)
    most = Matching(events.sparkSession, filters).per_topic(topics).orderBy(f.desc("deliveries"), "topic").first()
    if most is not None:
        found.fan_out, found.fan_out_topic = most.deliveries, most.topic
    return found


def partitions(exact: set[str]) -> list[int]:
    """Return the number of filters in each table of filters without wildcards: by first letter, those with `$` apart.

    See docs/index.md.
    """
    sizes: dict[tuple[bool, str], int] = {}
    for text in exact:
        letter = text[0].lower() if text[0].isascii() and text[0].isalpha() else ""
        sizes[text[0] == "$", letter] = sizes.get((text[0] == "$", letter), 0) + 1
    return sorted(sizes.values(), reverse=True)


def crowds(wild: set[str]) -> tuple[int, int]:
    """Return the most names at a level of the tree of filters with wildcards, and the number of names at crowded
    levels.
    """
    below: dict[tuple[str, ...], set[str]] = {}
    for text in wild:
        levels = tuple(text.split("/"))
        for depth, name in enumerate(levels):
            if name not in ("+", "#") and depth:  # the first level is divided in 27 parts
                below.setdefault(levels[:depth], set()).add(name)
    sizes = [len(names) for names in below.values()]
    return max(sizes, default=0), sum(size for size in sizes if size >= CROWDED)


def queues(events: DataFrame, payload_mean: float) -> Queues:
    """Read the accounts of sessions, and the drops for lack of room."""
    from pyspark.sql import functions as f

    account = f.from_json(f.col("payload").cast("string"), "session bigint, queued bigint").alias("a")
    rows = events.where(f.col("kind") == ACCOUNT).select("client_id", account).where("a.queued is not null")
    queued = rows.groupBy("client_id").agg(f.max("a.queued").alias("queued"), f.count_distinct("a.session").alias("n"))
    full = (
        events.where((f.col("kind") == DROP) & (f.col("reason") == QUEUE_FULL))
        .groupBy("client_id")
        .agg(f.count("*").alias("dropped"))
    )
    of_client = queued.join(full, "client_id", "full").fillna(0).withColumn("need", f.col("queued") + f.col("dropped"))
    totals = of_client.agg(f.sum("queued"), f.sum("dropped"), f.sum("n"), f.max(f.struct("need", "client_id"))).first()
    if totals[3] is None:
        return Queues()
    return Queues(totals[3].need, totals[3].client_id or "", totals[1], int((totals[0] or 0) * payload_mean), totals[2])
