"""Compute silver: messages as typed rows, by the rules of the settings.

A message whose payload cannot be read goes to the quarantine with the reason. A message whose topic matches no rule
stays in bronze only.

The input is a batch of bronze as a DataFrame. The result depends only on that batch and on the schemas, which are fixed
before the first row is written and stored beside the checkpoint. So doing a batch again gives the same rows.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql import types as T  # noqa: N812

from mosq.journal.kinds import MESSAGE
from mosq.pipeline import MosqPipelineError, filters, inference, sparkplug, state, tables
from mosq.tools.table import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import Column, DataFrame

    from mosq.pipeline.settings import Settings, Silver

KEYS = ("stream", "shard", "seq", "time", "topic", "client_id")
REASON, CORRUPT, RAW, VALUE = "_mosq_reason", "_mosq_corrupt", "_mosq_payload", "_mosq_value"
RESERVED = (*KEYS, "batch_id", REASON, RAW)
NUMBER = r"\A\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*(?!.)"
SAMPLE_ROWS = 1000
SAMPLE_CHARS = 65_536  # longer messages are not used to infer a schema
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
    """Hold a rule of the settings and its schema, None if not known yet."""

    number: int
    silver: "Silver"
    schema: T.StructType | None

    @property
    def table(self) -> str:
        return f"silver/{self.silver.name}"


def which(rules: "tuple[Silver, ...]") -> "Column":
    """Return the number of the first rule that a topic matches, or null."""
    found = F.lit(None).cast("int")
    for i, rule in reversed(list(enumerate(rules))):
        found = F.when(F.col("topic").rlike(filters.regex(rule.topic)), F.lit(i)).otherwise(found)
    return found


# ---- schemas


def settled(settings: "Settings") -> list[Rule]:
    """Return the rules with their known schemas: from the settings, or inferred earlier."""
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
            f"{path}: this is not a schema ({error}): remove the file to infer the schema again, or set a schema for"
            f" [[silver]] {silver.name} in {settings.file}"
        ) from None


def _ddl(settings: "Settings", silver: "Silver", text: str) -> T.StructType:
    wrong = (
        f'{settings.file}: [[silver]] {silver.name} schema: expected columns, such as "temperature DOUBLE, unit STRING"'
    )
    try:
        schema = T.StructType.fromDDL(text)
    except PySparkException as error:
        raise MosqPipelineError(f"{wrong}; {str(error).strip().splitlines()[0]}") from None
    if not isinstance(schema, T.StructType) or not schema.fields:
        raise MosqPipelineError(f"{wrong}; got {text!r}")
    for level, names in _levels(schema):
        if double := next((name for name in names if names.count(name) > 1), None):
            raise MosqPipelineError(f"{wrong}, each name once{level}; {double} occurs twice")
    if CORRUPT in (field.name for field in schema.fields):
        raise MosqPipelineError(f"{wrong}; {CORRUPT} is reserved for the pipeline")
    return schema


def _levels(type: T.DataType, within: str = "") -> "Iterator[tuple[str, list[str]]]":
    """Yield the names of each object in lower case: readers of tables do not distinguish case."""
    if isinstance(type, T.ArrayType):
        yield from _levels(type.elementType, within)
    elif isinstance(type, T.MapType):
        yield from _levels(type.valueType, within)
    elif isinstance(type, T.StructType):
        yield within, [(field.name if within else column(field.name)).lower() for field in type.fields]
        for field in type.fields:
            yield from _levels(field.dataType, f" in {field.name}")


def _pin(settings: "Settings", silver: "Silver") -> "Path":
    return settings.checkpoints / "schemas" / f"{silver.name}.json"


def infer(settings: "Settings", rule: Rule, batch: "DataFrame", log: "Callable[[str], object]") -> Rule:
    """Infer the schema of a rule from the first messages; it stays fixed from now on.

    Return the rule unchanged if no message is a JSON object.
    """
    rows = of_rule(batch, settings, rule).select(F.col("payload").cast("string").alias("text"))
    short = rows.where(f"length(text) <= {SAMPLE_CHARS} AND is_valid_utf8(text)")
    sample = [row.text for row in short.limit(SAMPLE_ROWS).collect()]
    found, left_out = inference.schema(sample)
    fields: dict[str, T.StructField] = {}
    for field in found.fields:
        if field.name != CORRUPT:
            fields.setdefault(column(field.name).lower(), field)
    if not fields:
        return rule
    schema = T.StructType(list(fields.values()))
    state.put(_pin(settings, rule.silver), schema.jsonValue())
    columns = ", ".join(f"{tables.quoted(field.name)} {tables.ddl(field.dataType)}" for field in schema.fields)
    rest = " Further fields of the messages have no column." if left_out else ""
    log(
        shown(
            f"silver {rule.silver.name}: inferred from {len(sample):,} messages, and fixed from now on: schema ="
            f' "{columns}".{rest}'
        )
    )
    return Rule(rule.number, rule.silver, schema)


def column(name: str) -> str:
    """Return the column name for a field; a reserved name gets a `_` at its end."""
    name = name.replace("`", "_")
    return f"{name}_" if name.lower() in RESERVED else name


# ---- rows


def of_rule(batch: "DataFrame", settings: "Settings", rule: Rule) -> "DataFrame":
    """Return the messages of a batch to which a rule applies."""
    return batch.where((F.col("kind") == MESSAGE) & (which(settings.silver) == rule.number))


def read(batch: "DataFrame", settings: "Settings", rule: Rule) -> "DataFrame":
    """Return KEYS, the rule's columns, the payload, and in REASON why it cannot be read, or null."""
    rows = of_rule(batch, settings, rule).select(*KEYS, F.col("payload").alias(RAW))
    if rule.silver.format == "sparkplug":
        return _sparkplug(rows)
    text = F.col(RAW).cast("string")
    empty = F.when(F.coalesce(F.length(RAW), F.lit(0)) == 0, "empty").when(~F.is_valid_utf8(text), "not UTF-8")
    if rule.silver.format == "number":
        value = F.expr(f"try_cast(trim(CAST({RAW} AS STRING)) AS double)")
        reason = empty.when(~text.rlike(NUMBER) | value.isNull(), "number: not a number")
        return rows.select(*KEYS, value.alias("value"), RAW, reason.alias(REASON))
    if rule.schema is None:
        return rows.select(*KEYS, RAW, F.lit("json: no schema can be inferred from it").alias(REASON))
    given = T.StructType([*rule.schema.fields, T.StructField(CORRUPT, T.StringType())])
    how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    value = F.from_json(text, given, how) if rule.silver.format == "json" else F.from_csv(text, _csv_ddl(given), how)
    parsed = rows.withColumn(VALUE, value)
    bad = F.col(VALUE).isNull() | F.col(f"{VALUE}.{CORRUPT}").isNotNull()
    wrong = (
        _json_reason(empty, text, bad)
        if rule.silver.format == "json"
        else empty.when(bad, "csv: not the columns of the schema")
    )
    fields = [F.col(VALUE).getField(field.name).alias(column(field.name)) for field in rule.schema.fields]
    return parsed.select(*KEYS, *fields, RAW, wrong.alias(REASON))


def _csv_ddl(schema: T.StructType) -> str:
    return ", ".join(f"{tables.quoted(field.name)} {tables.ddl(field.dataType)}" for field in schema.fields)


def _json_reason(empty: "Column", text: "Column", bad: "Column") -> "Column":
    """Return why a payload is not one JSON object.

    Spark reads the first value and ignores the text after it; from an array of objects it reads the first.
    """

    def values(end: str) -> "Column":
        return F.coalesce(F.json_array_length(F.concat(F.lit("["), text, F.lit(end))), F.lit(0))

    n = values("]")
    # a `]` in the text may have ended the array, so that the rest was not read: then one more value changes nothing
    tail = text.contains("]") & (values(",0]") != n + 1)
    return (
        empty.when(text.rlike(r"\A\s*\["), "json: an array, expected an object")
        .when(n == 0, "json: malformed")
        .when(n != 1, "json: more than one value")
        .when(tail, "json: malformed")
        .when(~text.rlike(r"\A\s*\{"), "json: not an object")
        .when(bad, "json: a field is not of the type in the schema")
    )


def _sparkplug(rows: "DataFrame") -> "DataFrame":
    columns = [f"{name} {rows.schema[name].dataType.simpleString()}" for name in KEYS]
    columns += [f"{name} {type}" for name, type in sparkplug.COLUMNS.items()]
    return rows.mapInArrow(_decode, ", ".join([*columns, f"{RAW} binary", f"{REASON} string"]))


def _decode(batches: "Iterator[Any]") -> "Iterator[Any]":
    """Decode payloads, in the workers."""
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
        schema = pa.schema([*keys, *metric_fields, pa.field(RAW, pa.binary()), pa.field(REASON, pa.string())])
        out: list[dict[str, object]] = []
        for row in batch.to_pylist():
            try:
                # a readable message needs its payload no longer
                out += [
                    row | metric | {RAW: None, REASON: None}
                    for metric in sparkplug.metrics(row["topic"], row[RAW])
                ]
            except sparkplug.UnreadableError as error:
                out.append(row | {REASON: str(error)})
        yield pa.RecordBatch.from_pylist(out, schema=schema)


def quarantined(rows: "DataFrame", rule: Rule) -> "DataFrame":
    """Return the unreadable rows in the columns of the quarantine."""
    return rows.where(F.col(REASON).isNotNull()).select(
        *KEYS, F.lit(rule.silver.name).alias("silver"), F.col(REASON).alias("reason"), F.col(RAW).alias("payload")
    )


def good(rows: "DataFrame") -> "DataFrame":
    """Return the readable rows without the payload."""
    return rows.where(F.col(REASON).isNull()).drop(RAW, REASON)
