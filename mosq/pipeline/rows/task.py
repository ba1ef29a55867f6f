"""Do the work of one task: take batches of records, write files, and describe them in the manifest."""

import datetime
import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mosq.journal.kinds import ACCOUNT, GAP, MESSAGE
from mosq.pipeline import filters
from mosq.pipeline.lake.parts import PartWriter
from mosq.pipeline.rows import inference, keys, types
from mosq.pipeline.rows.csv_rows import CsvReader
from mosq.pipeline.rows.declared import key_columns
from mosq.pipeline.rows.devices import Devices
from mosq.pipeline.rows.found import Fields, Found
from mosq.pipeline.rows.json_rows import JsonReader
from mosq.pipeline.rows.number_rows import SCHEMA as NUMBER_SCHEMA
from mosq.pipeline.rows.number_rows import NumberReader
from mosq.pipeline.rows.positions import Place, erased, joined, of_places, positions
from mosq.pipeline.rows.sparkplug_rows import SCHEMA as SPARKPLUG_SCHEMA
from mosq.pipeline.rows.sparkplug_rows import SparkplugReader
from mosq.pipeline.rows.sums import Sums
from mosq.pipeline.rows.tables import BRONZE, EVENTS, KEYS, QUARANTINE, RESCUED
from mosq.pipeline.rows.telemetry import Telemetry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mosq.pipeline.rows.work import Rule, Work

SAMPLE_BYTES = 8 << 20  # of each rule and task
AUDITED = pa.array((ACCOUNT, GAP), pa.int8())
BATCH_BYTES = 16 << 20  # of payloads that are read at once


def rule_schema(rule: "Rule") -> pa.Schema | None:
    """Return the fields of a rule, or None if they are not known yet."""
    known = {"number": NUMBER_SCHEMA, "sparkplug": SPARKPLUG_SCHEMA}
    return known.get(rule.format, rule.schema)


class _OfRule:
    """Read the messages of one rule."""

    def __init__(self, rule: "Rule", work: "Work") -> None:
        self.rule, self.work = rule, work
        self.schema = rule_schema(rule)
        self.fields = Fields()
        self.samples: list[str] = []
        self.sample_bytes = self.pending = 0
        self.writer: PartWriter | None = None
        self.telemetry: Telemetry | None = None
        self.keys: list[pa.Table] = []
        self.keyless = 0
        self.notes: Counter[str] = Counter()
        if self.schema is not None:
            self.table_schema = types.silver_schema(self.schema)
            self.reader = self._reader(self.schema)
            if work.telemetry and rule.event is not None:
                self.telemetry = Telemetry(rule, self.schema, work.window_us, work.late_us)

    def _reader(self, schema: pa.Schema) -> Any:
        if self.rule.format == "json":
            return JsonReader(schema, self.fields)
        if self.rule.format == "csv":
            return CsvReader(schema)
        return NumberReader() if self.rule.format == "number" else SparkplugReader()

    def wait(self, rows: Any) -> None:
        """Count messages, and keep samples of them: the schema is not known yet."""
        self.pending += rows.num_rows
        if len(self.samples) < inference.SAMPLE_ROWS and self.sample_bytes < SAMPLE_BYTES:
            left = inference.SAMPLE_ROWS - len(self.samples)
            found = inference.sample_texts((one.as_py() for one in rows["payload"]), left)
            self.samples += found
            self.sample_bytes += sum(map(len, found))

    def read(self, rows: Any) -> Found:
        if self.rule.format == "sparkplug":
            found: Found = self.reader.read(rows["topic"], rows["payload"])
        else:
            found = self.reader.read(rows["payload"])
        self.notes.update(found.notes)
        return found

    def write(self, rows: Any, found: Found, devices: Devices | None) -> None:
        """Write the readable rows, and let `devices` take their values."""
        about = rows.select(KEYS) if found.at is None else rows.select(KEYS).take(found.at)
        if not about.num_rows:
            return
        if self.writer is None:
            self.writer = PartWriter(self.work.place, self.rule.table, self.table_schema)
        rescued = pa.nulls(about.num_rows, pa.string()) if found.rescued is None else found.rescued
        columns = [*about.columns, *found.columns, rescued]
        batch = pa.RecordBatch.from_arrays(columns, schema=self.table_schema)
        self.writer.write(batch)
        if devices is not None:
            self._last(about, found, devices)
        if self.telemetry is not None:
            self.telemetry.add(batch)
        if self.rule.unique is not None and self.schema is not None:
            found_keys, keyless = keys.hashed(batch, key_columns(self.rule, self.schema), self.work.salt)
            self.keys.append(found_keys)
            self.keyless += keyless

    def _last(self, about: Any, found: Found, devices: Devices) -> None:
        if self.rule.format == "sparkplug" and self.schema is not None:
            columns = dict(zip(self.schema.names, found.columns, strict=True))
            more = {} if found.rescued is None else {RESCUED: found.rescued}
            devices.metrics(self.rule.name, about, columns | more)
        else:
            names = self.table_schema.names[len(KEYS) : -1]
            devices.values(self.rule.name, about, names, found.columns)


class Task:
    """Take batches, and give the manifest at the end."""

    def __init__(self, work: "Work") -> None:
        self.work = work
        self.expressions = [re.compile(filters.regex(rule.topic)) for rule in work.rules]
        self.rules = [_OfRule(rule, work) for rule in work.rules]
        self.sums: Sums | None = None
        if "gold" in work.jobs:
            self.sums = Sums(work.window_us, work.prefix_levels, work.watermarks, work.late_spans)
        self.devices = Devices() if work.devices else None
        self.bronze: PartWriter | None = None
        self.quarantine: PartWriter | None = None
        self.bad: Counter[str] = Counter()
        self.places: dict[Place, dict[str, int]] = {}
        self.events: list[Any] = []
        self.date: datetime.date | None = None

    def take(self, batch: Any) -> None:
        """Take a batch of records with the columns of the source, or with those of bronze."""
        if not batch.num_rows:
            return
        rows = self._with_keys(batch)
        for place, at in positions(rows).items():
            self.places[place] = joined(self.places[place], at) if place in self.places else at
        if self.work.erased:
            rows = self._without_erased(rows)
        if not rows.num_rows:
            return
        if self.work.bronze:
            if self.bronze is None:
                self.bronze = PartWriter(self.work.place, "bronze", BRONZE)
            self.bronze.write(rows)
        if self.sums is not None:
            self.sums.add(rows)
            if self.devices is not None:
                self.devices.records(rows)
        if "silver" in self.work.jobs:
            self._silver(rows)
        if "audit" in self.work.jobs:
            events = rows.filter(pc.is_in(rows["kind"], AUDITED))
            if events.num_rows:
                self.events.append(events.select(EVENTS.names))

    def _without_erased(self, rows: Any) -> Any:
        gone = erased(rows, self.work.erased)
        if not gone.any():
            return rows
        for place, mine in of_places(rows.filter(pa.array(gone))):
            self.places[place]["n"] -= mine.num_rows
        return rows.filter(pa.array(~gone))

    def _with_keys(self, batch: Any) -> Any:
        names = batch.schema.names
        n = batch.num_rows
        columns = {name: batch.column(name) for name in names}
        if "node" not in columns:
            columns["node"] = pa.repeat(pa.scalar(self.work.node, pa.string()), n)
        if "cluster_node" not in columns:  # rows of tables before Delta
            columns["cluster_node"] = pa.nulls(n, pa.string())
        if "date" not in columns:
            columns["date"] = self._dates(columns["time"])
        return pa.RecordBatch.from_arrays(
            [_cast(columns[field.name], field.type) for field in BRONZE], schema=BRONZE
        )

    def _dates(self, times: Any) -> Any:
        """Return the dates of rows. A row without a time gets that of the row before it, so that it can expire."""
        dates = _cast(times, pa.timestamp("us", tz="UTC")).cast(pa.date32())
        if dates.null_count:
            if self.date is not None and not dates[0].is_valid:
                first = pa.array([self.date], pa.date32())
                dates = pc.fill_null_forward(pa.concat_arrays([first, dates])).slice(1)
            dates = pc.fill_null_backward(pc.fill_null_forward(dates))
            if dates.null_count:
                dates = pc.fill_null(dates, datetime.datetime.now(datetime.UTC).date())
        self.date = dates[-1].as_py()
        return dates

    # ---- silver

    def _which(self, rows: Any) -> Any:
        """Return the number of the first rule that matches each row's topic, -1 for none."""
        topics = rows["topic"].dictionary_encode()
        of_topic = [self._rule_of(topic) for topic in topics.dictionary.to_pylist()]
        codes = pc.fill_null(topics.indices, len(of_topic)).to_numpy(zero_copy_only=False)
        number = np.array([*of_topic, self._rule_of("")], np.int32)[codes]
        number[rows["kind"].to_numpy(zero_copy_only=False) != MESSAGE] = -1
        return number

    def _rule_of(self, topic: str) -> int:
        return next((i for i, one in enumerate(self.expressions) if one.search(topic)), -1)

    def _silver(self, rows: Any) -> None:
        if not self.rules:
            return
        number = self._which(rows)
        for i in sorted(set(number.tolist()) - {-1}):
            rule = self.rules[i]
            if self.work.only is not None and rule.rule.name not in self.work.only:
                continue
            at = np.flatnonzero(number == i)
            mine = rows if len(at) == len(number) else rows.take(pa.array(at))
            if rule.schema is None:
                rule.wait(mine)
                continue
            for part in _pieces(mine):
                found = rule.read(part)
                rule.write(part, found, self.devices)
                if found.bad:
                    self._quarantine(part, rule.rule, found.bad)

    def _quarantine(self, rows: Any, rule: "Rule", bad: dict[int, str]) -> None:
        if self.quarantine is None:
            self.quarantine = PartWriter(self.work.place, "quarantine", QUARANTINE)
        at = sorted(bad)
        found = rows.take(pa.array(at, pa.int64()))
        reasons = [bad[row] for row in at]
        self.bad.update(reasons)
        columns = [
            *(found[name] for name in KEYS),
            pa.array([rule.name] * len(at), pa.string()),
            pa.array(reasons, pa.string()),
            found["payload"],
        ]
        self.quarantine.write(pa.RecordBatch.from_arrays(columns, schema=QUARANTINE))

    # ---- the manifest

    def manifest(self, schema: pa.Schema) -> "Iterator[Any]":
        """Finish the files, and yield what the driver must know."""
        for row in self._rows():
            yield pa.RecordBatch.from_pylist([dict.fromkeys(schema.names) | row], schema=schema)

    def _rows(self) -> "Iterator[dict[str, Any]]":
        writers = [self.bronze, *(rule.writer for rule in self.rules), self.quarantine]
        for writer in writers:
            for part in writer.close() if writer is not None else ():
                yield {
                    "kind": "part", "table": part.table, "date": part.date, "path": part.path, "size": part.size,
                    "rows": part.rows, "text": part.stats,
                }  # fmt: skip
        if self.places:
            found = [
                {"node": node, "stream": stream, "shard": shard, **at}
                for (node, stream, shard), at in self.places.items()
            ]
            yield {"kind": "places", "content": content(pa.Table.from_pylist(found))}
        if self.sums is not None:
            for name, rows in self.sums.content().items():
                yield {"kind": "sums", "table": name, "content": content(rows)}
        devices = None if self.devices is None else self.devices.content()
        if devices is not None:
            yield {"kind": "devices", "content": content(devices)}
        if self.events:
            yield {"kind": "accounts", "content": content(pa.Table.from_batches(self.events))}
        for reason, n in sorted(self.bad.items()):
            yield {"kind": "bad", "text": reason, "rows": n}
        for rule in self.rules:
            yield from self._of_rule(rule)

    def _of_rule(self, rule: _OfRule) -> "Iterator[dict[str, Any]]":
        name = rule.rule.name
        if rule.notes:
            yield {"kind": "notes", "table": name, "text": json.dumps(rule.notes)}
        if rule.fields.n:
            yield {"kind": "fields", "table": name, "text": json.dumps(rule.fields.content())}
        if rule.keys:
            yield {
                "kind": "keys", "table": name, "rows": rule.keyless, "content": content(pa.concat_tables(rule.keys))
            }  # fmt: skip
        if rule.telemetry is not None:
            counts = [rule.telemetry.late, rule.telemetry.misdated]
            rows = rule.telemetry.content()
            if rows.num_rows or any(counts):
                yield {"kind": "telemetry", "table": name, "text": json.dumps(counts), "content": content(rows)}
        if rule.pending:
            yield {"kind": "pending", "table": name, "rows": rule.pending}
        if rule.samples:
            texts = pa.table({"text": pa.array(rule.samples, pa.string())})
            yield {"kind": "samples", "table": name, "content": content(texts)}


def _cast(column: Any, type: pa.DataType) -> Any:
    return column if column.type == type else column.cast(type)


def _pieces(rows: Any) -> "Iterator[Any]":
    """Cut a batch so that the payloads of a piece are at most BATCH_BYTES, or one message."""
    if rows["payload"].nbytes <= BATCH_BYTES:
        yield rows
        return
    sizes = pc.fill_null(pc.binary_length(rows["payload"]), 0).to_numpy(zero_copy_only=False)
    begin, size = 0, 0
    for i, one in enumerate(sizes.tolist()):
        if i > begin and size + one > BATCH_BYTES:
            yield rows.slice(begin, i - begin)
            begin, size = i, 0
        size += one
    yield rows.slice(begin)


def content(rows: pa.Table) -> bytes:
    """Return a table as a stream of Arrow."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as out:
        out.write_table(rows)
    return bytes(sink.getvalue())

