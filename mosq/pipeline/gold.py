"""Compute gold: the rows that a batch adds to each table of sums.

One Spark job groups the batch in two ways at once. Its result is small; this module cuts it into tables.

The rows on disk are partial: a window of one key has a row for each batch that contained it. The views add them up:
counts and sums are added, maxima taken, percentiles computed from a histogram. So a batch needs no look at other
batches, doing it again gives the same rows, and merging batches changes nothing. The finished tables are views
(mosq/pipeline/views.py). A message that lies in several streams is counted for each of them in gold/traffic; the views
take the count of one stream.

A row is late if it is older than the watermark: its window was already reported as complete. The records of a shard
have one order, so each shard has its own watermark. Only a clock that was set back makes rows late, and a shard with a
long backlog makes no rows of other shards late. Late rows are counted in gold/late and are in no window; bronze and
silver have them.
"""

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from mosq.journal.kinds import CONNECT, DISCONNECT, DROP, EXPIRY, MESSAGE, REFUSED, TAKE_OVER
from mosq.pipeline import tables, views
from mosq.pipeline.silver import which

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from mosq.pipeline.settings import Settings

HISTOGRAM_BITS = 4  # 16 buckets for each power of two: a percentile is at most 1/16 too high
TIME = pa.timestamp("us", tz="UTC")


def sums(batch: "DataFrame", settings: "Settings", seen_us: "Mapping[str, int]") -> pa.Table:
    """Return the batch, grouped. `seen_us` maps "stream/shard" to the largest time before this batch."""
    time_us = F.unix_micros("time")
    latency_us = F.greatest(F.unix_micros("commit_time") - time_us, F.lit(0))
    rows = batch.select(
        "stream", "shard", "seq", "kind", "client_id", "reason",
        F.when(F.col("kind") == MESSAGE, F.col("topic")).alias("topic"),
        time_us.alias("time_us"),
        (time_us - F.pmod(time_us, F.lit(settings.window_us))).alias("window_us"),
        (time_us < _watermark(seen_us, settings.watermark_us)).alias("late"),
        which(settings.silver).alias("rule"),
        latency_us.alias("latency_us"),
        _bucket(latency_us).alias("bucket_us"),
        F.coalesce(F.length("payload"), F.lit(0)).alias("n_bytes"),
    )  # fmt: skip
    common = ["kind", "late", "window_us", "stream"]
    of_client, of_shard = ["topic", "rule", "client_id", "reason"], ["shard", "bucket_us"]
    grouped = rows.groupingSets([[*common, *of_client], [*common, *of_shard]], *common, *of_client, *of_shard)
    return grouped.agg(
        F.grouping("topic").alias("of_shard"),
        F.count(F.lit(1)).alias("n"), F.sum("n_bytes").alias("n_bytes"), F.max("latency_us").alias("max_us"),
        F.max("time_us").alias("time_us"), F.max("seq").alias("seq"),
    ).toArrow()  # fmt: skip


def _watermark(seen_us: "Mapping[str, int]", behind_us: int) -> "Column":
    """Return the watermark of a row, in microseconds.

    It is a look-up in a map and not a comparison with numbers. Numbers would be part of the generated code, and Spark
    would compile that again for each batch.
    """
    if not seen_us:
        return F.lit(-(1 << 62))
    pairs = [F.lit(part) for place, time_us in sorted(seen_us.items()) for part in (place, time_us - behind_us)]
    place = F.concat_ws("/", "stream", F.col("shard").cast("string"))
    return F.coalesce(F.try_element_at(F.create_map(*pairs), place), F.lit(-(1 << 62)))


def _bucket(us: "Column") -> "Column":
    """Return the largest number in the same bucket."""
    exponent = F.floor(F.log2(F.greatest(us, F.lit(1)))).cast("int") - HISTOGRAM_BITS
    step = F.expr("1L").cast("long") * F.pow(F.lit(2), F.greatest(exponent, F.lit(0))).cast("long")
    return (F.floor(us / step).cast("long") + 1) * step - 1


# ---- the result, cut into tables


def _where(found: pa.Table, **wanted: object) -> pa.Table:
    mask = None
    for name, value in wanted.items():
        one = (
            pc.is_in(found[name], pa.array(value, found.schema.field(name).type))
            if isinstance(value, tuple)
            else pc.equal(found[name], value)
        )
        mask = one if mask is None else pc.and_(mask, one)
    return found.filter(mask)


def _grouped(found: pa.Table, keys: list[str], aggregates: dict[str, str], **names: str) -> pa.Table:
    """Return aggregates in the order of the keys; `names` gives columns other names than their own."""
    done = found.group_by(keys, use_threads=False).aggregate(list(aggregates.items()))
    done = done.select([*keys, *(f"{name}_{how}" for name, how in aggregates.items())])
    done = done.rename_columns([names.get(name, name) for name in (*keys, *aggregates)])
    return done.sort_by([(names.get(name, name), "ascending") for name in keys])


def _windowed(found: pa.Table, length_us: int) -> pa.Table:
    """Put begin and end of the window in front of the other columns."""
    start = found["window_us"]
    columns = {"window_start": start.cast(TIME), "window_end": pc.add(start, length_us).cast(TIME)}
    return pa.table({**columns, **{name: found[name] for name in found.column_names if name != "window_us"}})


def cut(found: pa.Table, settings: "Settings") -> dict[str, pa.Table]:
    """Return the rows of each table of sums."""
    in_time = found.filter(pc.invert(found["late"]))
    of_client, of_shard = _where(in_time, of_shard=0), _where(found, of_shard=1)
    volume = {"n": "sum", "n_bytes": "sum"}
    by_topic = ["window_us", "stream", "topic", "client_id"]
    traffic = _grouped(_where(of_client, kind=MESSAGE), by_topic, volume, n="messages", n_bytes="bytes")
    pattern = rf"(?s)^((?:[^/]*/){{{settings.prefix_levels - 1}}}[^/]*).*$"
    cuts = {
        "traffic": traffic.append_column("prefix", pc.replace_substring_regex(traffic["topic"], pattern, r"\1")),
        "latency": _grouped(
            _where(of_shard, kind=MESSAGE, late=False),
            ["window_us", "stream", "bucket_us"],
            {"n": "sum", "max_us": "max"},
            n="messages",
        ),
        "drops": _grouped(_where(of_client, kind=DROP), ["window_us", "reason", "client_id"], {"n": "sum"}, n="drops"),
        "churn": _churn(_where(of_client, kind=(CONNECT, DISCONNECT, TAKE_OVER, EXPIRY))),
        "late": _grouped(_where(of_shard, late=True), ["window_us"], {"n": "sum"}, n="rows"),
    }
    return {name: _windowed(table, settings.window_us) for name, table in cuts.items()}


def _churn(found: pa.Table) -> pa.Table:
    refused = pc.and_(pc.equal(found["kind"], CONNECT), pc.greater_equal(found["reason"], REFUSED))
    counted = {"connects": CONNECT, "refused": CONNECT, "disconnects": DISCONNECT, "takeovers": TAKE_OVER}
    counted["expiries"] = EXPIRY
    for name, kind in counted.items():
        mask = pc.and_(pc.equal(found["kind"], kind), refused if name == "refused" else pc.invert(refused))
        found = found.append_column(name, pc.if_else(mask, found["n"], 0))
    return _grouped(found, ["window_us", "client_id"], dict.fromkeys(counted, "sum"))


def positions(found: pa.Table) -> dict[str, dict[str, int]]:
    """Return for each "stream/shard" the number of rows, the last sequence number and the largest time."""
    of_shard = _where(found, of_shard=1)
    rows = _grouped(of_shard, ["stream", "shard"], {"n": "sum", "seq": "max", "time_us": "max"}).to_pylist()
    return {f"{row['stream']}/{row['shard']}": {key: row[key] for key in ("n", "seq", "time_us")} for row in rows}


def by(found: pa.Table, key: str) -> dict[int, int]:
    """Return the number of rows of each kind, or of each rule."""
    rows = _where(found, of_shard=0, kind=MESSAGE) if key == "rule" else _where(found, of_shard=1)
    return {row[key]: row["n"] for row in _grouped(rows, [key], {"n": "sum"}).to_pylist() if row[key] is not None}


def read_gold(spark: "SparkSession", settings: "Settings", name: str) -> "DataFrame":
    """Return a finished table (views.VIEWS) over the current rows."""
    table = settings.table(views.source(name))
    view = f"mosq_{views.source(name).replace('/', '_')}"
    tables.read_table(spark, table).createOrReplaceTempView(view)
    return spark.sql(views.sql(name, views.SPARK, view))
