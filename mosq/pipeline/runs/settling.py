"""Settle the schemas of rules that declare none, add columns for new fields, and fill silver from bronze then.

A schema is inferred from SAMPLES messages, or from those of the first WAIT_S seconds. Until then the messages of the
rule are in bronze only, and counted as pending.
"""

import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mosq.journal.kinds import MESSAGE
from mosq.pipeline import filters, frames
from mosq.pipeline.rows import inference, types
from mosq.pipeline.rows.found import OTHERS, labelled
from mosq.pipeline.rows.tables import DEVICES
from mosq.pipeline.rows.work import MANIFEST_DDL, Manifest, Work, read_manifest
from mosq.pipeline.runs.tableset import QUARANTINE, TableSet, rules
from mosq.tools.table import shown

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, SparkSession

    from mosq.pipeline.settings import Settings

    Log = Callable[[str], object]

SAMPLES = 1000
SAMPLE_CHARS = 65_536  # longer messages are not used to infer a schema
WAIT_S = 60.0
FIELDS_KEPT = 1000  # names of new fields that are counted one by one, of each rule
LISTED = 20  # new fields in one line of the log


def gather(now: dict[str, Any], manifest: Manifest, samples: dict[str, list[str]], log: "Log") -> None:
    """Count what waits for a schema, keep samples, and take new fields into the inferred schemas of a state."""
    for name, n in manifest.pending.items():
        waiting = now["pending"].setdefault(name, {"rows": 0, "since": time.time()})
        waiting["rows"] += n
    for name, texts in manifest.samples.items():
        had = samples.setdefault(name, [])
        had += texts[: SAMPLES - len(had)]
    for name, fields in manifest.fields.items():
        _new_fields(now, name, fields, log)


def _new_fields(now: dict[str, Any], name: str, fields: dict[str, tuple[str, int]], log: "Log") -> None:
    """Count the fields that have no column, and let them wait for one if the schema is inferred."""
    counts = now["fields"].setdefault(name, {})
    new = [field for field in fields if field != OTHERS and field not in counts]
    text = now["schemas"].get(name)
    waiting = None if text is None else now["new"].setdefault(name, {})
    taken = set() if text is None else {types.column(one).lower() for one in types.schema(text).names}
    for field, (type, n) in fields.items():
        key = field if field in counts or len(counts) < FIELDS_KEPT else OTHERS
        counts[key] = counts.get(key, 0) + n
        if waiting is None or not type or types.column(field).lower() in taken:
            continue  # it cannot have a column
        if field in waiting or len(waiting) < FIELDS_KEPT:
            had = waiting.setdefault(field, {"type": type, "rows": 0, "since": time.time()})
            had["type"] = inference.joined(had["type"], type)
            had["rows"] += n
    if new:
        later = f" until {SAMPLES:,} messages have had them, or for {WAIT_S:.0f} s" if waiting else ""
        listed = ", ".join(map(labelled, new[:LISTED])) + (", ..." if len(new) > LISTED else "")
        log(shown(f"silver {name}: {len(new):,} new fields ({listed}); they are in the column _rescued{later}"))
    grow(now, log)


def add_events(now: dict[str, Any], manifest: Manifest) -> None:
    """Count in a state the rows of silver that are late, have a wrong clock, no key, or values kept in another way."""
    for name, n in manifest.keyless.items():
        if n:
            now["keyless"][name] = now["keyless"].get(name, 0) + n
    for name, notes in manifest.notes.items():
        known = now["notes"].setdefault(name, {})
        for note, n in notes.items():
            known[note] = known.get(note, 0) + n
    for name, values in manifest.telemetry.items():
        counts = now["events"].setdefault(name, {"late": 0, "misdated": 0})
        counts["late"] += values.late
        counts["misdated"] += values.misdated


def _is_ripe(waiting: dict[str, Any], at: float) -> bool:
    return bool(waiting["rows"] >= SAMPLES or at - waiting["since"] >= WAIT_S)


def grow(now: dict[str, Any], log: "Log", *, whole: bool = False) -> bool:
    """Add the new fields that have waited long enough to the inferred schemas of a state; `whole`: all new fields.

    Return whether a schema has changed. Fields beyond the limits stay in the column _rescued.
    """
    changed = False
    at = time.time()
    for name, waiting in now["new"].items():
        ripe = {
            field: (one["type"], one["rows"]) for field, one in waiting.items() if whole or _is_ripe(one, at)
        }
        had = types.schema(now["schemas"][name])
        grown = inference.grown(had, ripe)
        for field in ripe:
            del waiting[field]
        if len(grown) > len(had):
            changed = True
            now["schemas"][name] = types.ddl(grown)
            added = types.ddl(pa.schema(list(grown)[len(had) : len(had) + LISTED]))
            more = ", ..." if len(grown) - len(had) > LISTED else ""
            log(shown(f"silver {name}: {len(grown) - len(had):,} new columns ({added}{more}), from the next batch on"))
    now["new"] = {name: waiting for name, waiting in now["new"].items() if waiting}
    return changed


def due(now: dict[str, Any]) -> list[str]:
    """Return the rules whose schema can be settled now."""
    at = time.time()
    return [name for name, waiting in now["pending"].items() if _is_ripe(waiting, at)]


def settle(
    spark: "SparkSession",
    settings: "Settings",
    tables: TableSet,
    now: dict[str, Any],
    names: list[str],
    samples: dict[str, list[str]],
    log: "Log",
) -> bool:
    """Infer the schemas of rules, as far as there are messages to infer them from; return whether any is settled."""
    settled = False
    for name in names:
        texts = samples.pop(name, None)
        if texts is None:  # an earlier run has read them
            texts = sampled(spark, settings, tables, name)
        text = inferred(name, texts, log)
        if text is not None:
            now["schemas"][name] = text
            del now["pending"][name]
            now["backfill"][name] = {place: at["next"] for place, at in now["shards"].items()}
            settled = True
        else:
            samples[name] = []  # the next messages may be objects
    return settled


def inferred(name: str, texts: list[str], log: "Log") -> str | None:
    """Return the schema of a rule as text, or None if no message is a JSON object with a field."""
    found, left_out = inference.infer(texts)
    if not len(found):
        return None
    text = types.ddl(found)
    rest = " Further fields have no column: they are in the column _rescued." if left_out else ""
    log(shown(f'silver {name}: inferred from {len(texts):,} messages: schema = "{text}".{rest}'))
    return text


def of_rule(settings: "Settings", name: str) -> "Column":
    """Return the condition for the rows of bronze to which a rule applies."""
    from pyspark.sql import functions as F  # noqa: N812

    found = F.col("kind") == MESSAGE
    for rule in settings.silver:
        matches = F.col("topic").rlike(filters.regex(rule.topic))
        if rule.name == name:
            return found & matches
        found &= ~matches
    return F.lit(False)


def bronze(
    spark: "SparkSession", tables: TableSet, upto: dict[str, int], date: "datetime.date | None" = None
) -> "DataFrame":
    """Return the rows of bronze before the sequence numbers of each "node/stream/shard"; with a date, its rows."""
    from pyspark.sql import functions as F  # noqa: N812

    table = tables.table("bronze").refresh()
    rows = frames.of_snapshot(spark, table.place, table, date)
    place = F.concat_ws("/", "node", "stream", F.col("shard").cast("string"))
    ends = [F.lit(one) for pair in sorted(upto.items()) for one in pair]
    return rows.where(F.col("seq") < F.try_element_at(F.create_map(*ends), place)) if ends else rows.limit(0)


def sampled(spark: "SparkSession", settings: "Settings", tables: TableSet, name: str) -> list[str]:
    """Return messages of a rule that bronze has."""
    from pyspark.sql import functions as F  # noqa: N812

    table = tables.table("bronze").refresh()
    rows = frames.of_snapshot(spark, table.place, table).where(of_rule(settings, name))
    text = F.col("payload").cast("string")
    short = rows.select(text.alias("text")).where(f"length(text) <= {SAMPLE_CHARS} AND is_valid_utf8(text)")
    return [row.text for row in short.limit(SAMPLES).collect()]


def backfill(
    spark: "SparkSession", settings: "Settings", tables: TableSet, now: dict[str, Any], name: str, log: "Log"
) -> None:
    """Put the messages that came before the schema of a rule into silver and quarantine, once; change the state."""
    upto = now["backfill"].pop(name)
    work = Work(
        place=tables.place,
        rules=rules(settings, now["schemas"]),
        jobs=frozenset(["silver"]),
        bronze=False,
        only=frozenset([name]),
        devices=DEVICES in tables.open,
    )
    rows = bronze(spark, tables, upto).where(of_rule(settings, name))
    manifest = read_manifest(rows.mapInArrow(work, MANIFEST_DDL).toArrow().to_batches())
    app, step = f"{tables.app}/backfill/{name}", now["step"]
    for table in (f"silver/{name}", QUARANTINE):
        if parts := manifest.parts.get(table):
            tables.table(table).append(parts, app, step, {"mosq": "backfill", "rows": manifest.rows[table]})
            now["rows"][table] = now["rows"].get(table, 0) + manifest.rows[table]
    tables.fold(manifest.devices, app, step)
    for reason, n in manifest.bad.items():
        now["quarantine"][reason] = now["quarantine"].get(reason, 0) + n
    gather(now, manifest, {}, log)
