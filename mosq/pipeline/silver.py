"""Silver: messages as typed rows, by the rules of the settings. A message whose payload cannot be read goes to the
quarantine with the reason; a message whose topic no rule names stays in bronze.

Knows a batch of bronze as a DataFrame. Everything is a function of that batch and of the schemas, which are settled
before the first row is written and kept beside the checkpoint: so doing a batch again gives the same rows."""

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql import types as T  # noqa: N812

from mosq.pipeline import MosqPipelineError, filters, sparkplug

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from mosq.pipeline.settings import Settings, Silver

KEYS = ("stream", "shard", "seq", "time", "topic", "client_id")
RESERVED = (*KEYS, "batch_id")
REASON, CORRUPT = "_mosq_reason", "_mosq_corrupt"
NUMBER = r"\A\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*(?!.)"
SAMPLE_ROWS = 1000
SAMPLE_CHARS = 65_536  # longer ones are not looked at
NO_QUARANTINE = pa.schema(
    [
        pa.field("stream", pa.string()),
        pa.field("shard", pa.int32()),
        pa.field("seq", pa.int64()),
        pa.field("time", pa.timestamp("us", tz="UTC")),
        pa.field("topic", pa.string()),
        pa.field("client_id", pa.string()),
        pa.field("silver", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("payload", pa.binary()),
    ]
).empty_table()


@dataclass(frozen=True)
class Rule:
    """A rule of the settings, and the schema that it has by now."""

    number: int
    silver: "Silver"
    schema: T.StructType | None

    @property
    def table(self) -> str:
        return f"silver/{self.silver.name}"


def which(rules: "tuple[Silver, ...]") -> "Column":
    """The number of the first rule that a topic matches; null: none."""
    found = F.lit(None).cast("int")
    for i, rule in reversed(list(enumerate(rules))):
        found = F.when(F.col("topic").rlike(filters.regex(rule.topic)), F.lit(i)).otherwise(found)
    return found


# ---- schemas


def settled(settings: "Settings") -> list[Rule]:
    """The rules with the schemas that are known: told by the settings, or once inferred."""
    return [Rule(i, silver, _known(settings, silver)) for i, silver in enumerate(settings.silver)]


def _known(settings: "Settings", silver: "Silver") -> T.StructType | None:
    if silver.format == "number":
        return T.StructType().add("value", "double")
    if silver.format == "sparkplug":
        return _ddl(settings, silver, ", ".join(f"{name} {type}" for name, type in sparkplug.COLUMNS.items()))
    if silver.schema is not None:
        return _ddl(settings, silver, silver.schema)
    path = _pin(settings, silver)
    try:
        return T.StructType.fromJson(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise MosqPipelineError(
            f"{path}: this is no schema ({error}): remove it to infer one anew, or give [[silver]] {silver.name} a"
            f" schema in {settings.file}"
        ) from None


def _ddl(settings: "Settings", silver: "Silver", said: str) -> T.StructType:
    wrong = (
        f'{settings.file}: [[silver]] {silver.name} schema: expected columns, such as "temperature DOUBLE, unit STRING"'
    )
    try:
        schema = T.StructType.fromDDL(said)
    except PySparkException as error:
        raise MosqPipelineError(f"{wrong}; {str(error).strip().splitlines()[0]}") from None
    if not isinstance(schema, T.StructType) or not schema.fields:
        raise MosqPipelineError(f"{wrong}; got {said!r}")
    names = [column(field.name).lower() for field in schema.fields]
    if double := next((name for name in names if names.count(name) > 1), None):
        raise MosqPipelineError(f"{wrong}, each name once; {double} is there twice")
    return schema


def _pin(settings: "Settings", silver: "Silver") -> "Path":
    return settings.checkpoints / "schemas" / f"{silver.name}.json"


def infer(
    spark: "SparkSession", settings: "Settings", rule: Rule, batch: "DataFrame", say: "Callable[[str], object]"
) -> Rule:
    """The rule with the schema that the first messages suggest; it holds from now on. Without one where none of them is
    a JSON object."""
    rows = of_rule(batch, settings, rule).select(F.col("payload").cast("string").alias("text"))
    short = rows.where(f"length(text) <= {SAMPLE_CHARS} AND is_valid_utf8(text)")
    sample = [row.text for row in short.limit(SAMPLE_ROWS).collect()]
    texts = spark.sparkContext.parallelize([text for text in sample if text.lstrip().startswith("{")], 1)
    found = spark.read.option("columnNameOfCorruptRecord", CORRUPT).json(texts).schema
    kept: dict[str, T.StructField] = {}
    for field in found.fields:
        if field.name != CORRUPT:
            kept.setdefault(column(field.name).lower(), T.StructField(field.name, _widened(field.dataType)))
    if not kept:
        return rule
    schema = T.StructType(list(kept.values()))
    path = _pin(settings, rule.silver)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    with new.open("w") as out:
        out.write(json.dumps(schema.jsonValue(), indent=1))
        out.flush()
        os.fsync(out.fileno())
    new.replace(path)
    said = ", ".join(f"{field.name} {field.dataType.simpleString().upper()}" for field in schema.fields)
    say(f'silver {rule.silver.name}: inferred from {len(sample):,} messages, and fixed from now on: schema = "{said}"')
    return Rule(rule.number, rule.silver, schema)


def _widened(type: T.DataType) -> T.DataType:
    """What a sample of 21 suggests must hold 21.5 as well; and Parquet knows no struct without fields."""
    if isinstance(type, T.LongType):
        return T.DoubleType()
    if isinstance(type, T.ArrayType):
        return T.ArrayType(_widened(type.elementType))
    if isinstance(type, T.StructType):
        if not type.fields:
            return T.StringType()
        return T.StructType([T.StructField(field.name, _widened(field.dataType)) for field in type.fields])
    return type


def column(name: str) -> str:
    """What a field is called in its table: one with the name of a column of ours gets a `_`."""
    name = name.replace("`", "_")
    return f"{name}_" if name.lower() in RESERVED else name


# ---- rows


def of_rule(batch: "DataFrame", settings: "Settings", rule: Rule) -> "DataFrame":
    return batch.where((F.col("kind") == 1) & (which(settings.silver) == rule.number))


def read(batch: "DataFrame", settings: "Settings", rule: Rule) -> "DataFrame":
    """KEYS, the rule's columns, the payload, and in REASON why it cannot be read, or null."""
    rows = of_rule(batch, settings, rule).select(*KEYS, "payload")
    if rule.silver.format == "sparkplug":
        return _sparkplug(rows)
    text = F.col("payload").cast("string")
    empty = F.when(F.coalesce(F.length("payload"), F.lit(0)) == 0, "empty").when(~F.is_valid_utf8(text), "not UTF-8")
    if rule.silver.format == "number":
        value = F.expr("try_cast(trim(CAST(payload AS STRING)) AS double)")
        reason = empty.when(~text.rlike(NUMBER) | value.isNull(), "number: not a number")
        return rows.select(*KEYS, value.alias("value"), "payload", reason.alias(REASON))
    if rule.schema is None:
        return rows.select(*KEYS, "payload", F.lit("json: no schema can be inferred from it").alias(REASON))
    given = T.StructType([*rule.schema.fields, T.StructField(CORRUPT, T.StringType())])
    how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    value = F.from_json(text, given, how) if rule.silver.format == "json" else F.from_csv(text, _csv_ddl(given), how)
    parsed = rows.withColumn("_v", value)
    wrong = (
        _json_reason(empty, text)
        if rule.silver.format == "json"
        else empty.when(F.col("_v").isNull() | F.col(f"_v.{CORRUPT}").isNotNull(), "csv: not the columns of the schema")
    )
    fields = [F.col("_v").getField(field.name).alias(column(field.name)) for field in rule.schema.fields]
    return parsed.select(*KEYS, *fields, "payload", wrong.alias(REASON))


def _csv_ddl(schema: T.StructType) -> str:
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema.fields)


def _json_reason(empty: "Column", text: "Column") -> "Column":
    """Spark reads the first value and passes over what follows it, and of an array of objects it takes the first."""
    bad = F.col("_v").isNull() | F.col(f"_v.{CORRUPT}").isNotNull()
    values = F.json_array_length(F.concat(F.lit("["), text, F.lit("]")))
    return (
        empty.when(text.rlike(r"\A\s*\["), "json: an array, expected an object")
        .when(values.isNull(), "json: malformed")
        .when(values != 1, "json: more than one value")
        .when(~text.rlike(r"\A\s*\{"), "json: not an object")
        .when(bad, "json: a field is not of the type in the schema")
    )


def _sparkplug(rows: "DataFrame") -> "DataFrame":
    columns = [f"{name} {rows.schema[name].dataType.simpleString()}" for name in KEYS]
    columns += [f"{name} {type}" for name, type in sparkplug.COLUMNS.items()]
    return rows.mapInArrow(_decode, ", ".join([*columns, "payload binary", f"{REASON} string"]))


def _decode(batches: "Iterator[Any]") -> "Iterator[Any]":
    """In the workers."""
    types = {
        "string": pa.string(),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    metric_fields = [pa.field(name, types[type]) for name, type in sparkplug.COLUMNS.items()]
    for batch in batches:
        keys = [batch.schema.field(name) for name in KEYS]
        schema = pa.schema([*keys, *metric_fields, pa.field("payload", pa.binary()), pa.field(REASON, pa.string())])
        out: list[dict[str, object]] = []
        for row in batch.to_pylist():
            try:
                # what could be read needs its payload no more
                out += [
                    row | metric | {"payload": None, REASON: None}
                    for metric in sparkplug.metrics(row["topic"], row["payload"])
                ]
            except sparkplug.UnreadableError as error:
                out.append(row | {REASON: str(error)})
        yield pa.RecordBatch.from_pylist(out, schema=schema)


def quarantined(rows: "DataFrame", rule: Rule) -> "DataFrame":
    return rows.where(F.col(REASON).isNotNull()).select(
        *KEYS, F.lit(rule.silver.name).alias("silver"), F.col(REASON).alias("reason"), "payload"
    )


def good(rows: "DataFrame") -> "DataFrame":
    return rows.where(F.col(REASON).isNull()).drop("payload", REASON)
