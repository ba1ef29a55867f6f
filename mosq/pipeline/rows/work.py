"""Compute all tables from a batch of records: the work of one task, and what the driver reads of its result.

A `Work` writes bronze, silver and quarantine into files that no reader sees yet, and yields a manifest: the files, the
sums for the gold tables, the events for the audit, and counts. The driver reads the manifests of all tasks of a batch
with `read_manifest`, checks them, and commits.

Invariant: the rows depend only on the records and on the fields of the `Work`, so doing a batch again gives the same
rows. Memory: a batch of the input at a time, and the open files.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mosq.pipeline.lake.parts import Part
from mosq.pipeline.rows import devices, inference, sums, telemetry
from mosq.pipeline.rows.declared import Event, Unique
from mosq.pipeline.rows.positions import joined
from mosq.pipeline.rows.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mosq.pipeline.lake.places import Place

MANIFEST = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("table", pa.string()),
        pa.field("date", pa.string()),
        pa.field("path", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("text", pa.string()),
        pa.field("content", pa.binary()),
    ]
)
MANIFEST_DDL = (
    "kind string, table string, date string, path string, size bigint, rows bigint, text string, content binary"
)


@dataclass(frozen=True)
class Rule:
    """Hold a rule of the settings: the first rule that matches a topic applies.

    `schema` has the names of the messages' fields (silver_schema gives the table's columns), and is None while it is
    not settled.
    """

    name: str
    topic: str  # a topic filter
    format: str  # json, csv, number, sparkplug
    schema: pa.Schema | None = None
    event: Event | None = None  # None: its values are not added up
    unique: Unique | None = None  # None: all rows enter silver

    @property
    def table(self) -> str:
        return f"silver/{self.name}"


@dataclass(frozen=True)
class Work:
    """Describe the work of a task. Pickled, it is small.

    `watermarks` maps "node/stream/shard" to a time in microseconds: older rows are late. `only` limits silver and
    quarantine to these rules (a backfill); the input then may be rows of bronze.
    """

    place: "Place"
    node: str = ""  # of rows without a column `node`
    rules: tuple[Rule, ...] = ()
    jobs: frozenset[str] = frozenset(("silver", "gold", "audit"))
    window_us: int = 60_000_000
    prefix_levels: int = 1
    watermarks: dict[str, int] = field(default_factory=dict)
    late_spans: dict[str, list[sums.Span]] | None = None  # of a rebuild, instead of `watermarks`
    late_us: int = 600_000_000  # an event that is older than its row by more is late
    # of each "node/stream/shard": numbers [lo, hi) of rows that an earlier attempt of the batch wrote, and that were
    # erased since then
    erased: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    salt: str = ""  # of the hashes of keys
    telemetry: bool = False  # add up the values of the rules that declare an Event
    bronze: bool = True  # false: the input is bronze, and bronze is not written again
    only: frozenset[str] | None = None
    devices: bool = False  # compute rows of gold/devices: values of silver, and with the job gold all others

    def __call__(self, batches: "Iterable[Any]") -> "Iterator[Any]":
        """Compute the tables of RecordBatches with the source's columns, or with those of bronze; yield MANIFEST."""
        task = Task(self)
        for batch in batches:
            task.take(batch)
        yield from task.manifest(MANIFEST)


@dataclass
class Values:
    """Hold the rows that a rule adds to gold/telemetry, and the number of its late and misdated rows of silver."""

    rows: pa.Table
    late: int = 0
    misdated: int = 0


@dataclass
class Manifest:
    """Hold the results of all tasks of a batch. A key of a place is "node/stream/shard"."""

    parts: dict[str, list[Part]] = field(default_factory=dict)  # of each table
    rows: Counter[str] = field(default_factory=Counter)  # of each table with parts
    # n rows; `covered` sequence numbers, which are more than n if a row stands for a gap; min_seq, max_seq, time_us
    places: dict[str, dict[str, int]] = field(default_factory=dict)
    sums: dict[str, pa.Table] = field(default_factory=dict)  # of each gold table without its "gold/"; all are there
    telemetry: dict[str, Values] = field(default_factory=dict)  # of each rule
    keys: dict[str, pa.Table] = field(default_factory=dict)  # of each rule with a key: the rows of keys.SCHEMA
    keyless: Counter[str] = field(default_factory=Counter)  # rows of these rules with null in the key
    devices: pa.Table | None = None  # rows of gold/devices
    accounts: pa.Table | None = None  # tables.EVENTS, in the order of node, stream, shard and seq; None: no events
    # of each rule: fields without a column. The type is DDL, "" if the field cannot be a column
    fields: dict[str, dict[str, tuple[str, int]]] = field(default_factory=dict)
    bad: Counter[str] = field(default_factory=Counter)  # reasons of the quarantine
    notes: dict[str, Counter[str]] = field(default_factory=dict)  # of each rule: values that silver has in another way
    samples: dict[str, list[str]] = field(default_factory=dict)  # of each rule without schema
    pending: Counter[str] = field(default_factory=Counter)  # messages of each rule without schema


def read_manifest(rows: "Iterable[Any]") -> Manifest:
    """Return what all tasks of a batch yielded: RecordBatches or rows of Spark with the columns of MANIFEST."""
    found = Manifest()
    partial: dict[str, list[pa.Table]] = {}
    accounts: list[pa.Table] = []
    last: list[pa.Table] = []
    for row in _dicts(rows):
        if row["kind"] == "devices":
            last.append(_table(row["content"]))
        else:
            _read(found, row, partial, accounts)
    found.sums = sums.combine(partial)
    for values in found.telemetry.values():
        values.rows = telemetry.folded(values.rows)
    if last:
        found.devices = devices.folded(pa.concat_tables(last))
    if accounts:
        order = [(name, "ascending") for name in ("node", "stream", "shard", "seq")]
        found.accounts = pa.concat_tables(accounts).sort_by(order)
    return found


def _dicts(rows: "Iterable[Any]") -> "Iterator[dict[str, Any]]":
    for row in rows:
        if isinstance(row, pa.RecordBatch | pa.Table):
            yield from row.to_pylist()
        else:
            yield row if isinstance(row, dict) else row.asDict()


def _table(content: bytes) -> pa.Table:
    return pa.ipc.open_stream(content).read_all()


def _read(found: Manifest, row: dict[str, Any], partial: dict[str, list[pa.Table]], accounts: list[pa.Table]) -> None:
    kind, table = row["kind"], row["table"]
    if kind == "part":
        part = Part(table, row["path"], row["date"], row["size"], row["rows"], row["text"])
        found.parts.setdefault(table, []).append(part)
        found.rows[table] += part.rows
    elif kind == "places":
        for one in _table(row["content"]).to_pylist():
            place = f"{one.pop('node')}/{one.pop('stream')}/{one.pop('shard')}"
            found.places[place] = joined(found.places[place], one) if place in found.places else one
    elif kind == "sums":
        partial.setdefault(table, []).append(_table(row["content"]))
    elif kind == "telemetry":
        _read_values(found.telemetry, row)
    elif kind == "keys":
        had = [found.keys[table]] if table in found.keys else []
        found.keys[table] = pa.concat_tables([*had, _table(row["content"])])
        found.keyless[table] += row["rows"]
    elif kind == "accounts":
        accounts.append(_table(row["content"]))
    elif kind == "fields":
        _read_fields(found.fields.setdefault(table, {}), json.loads(row["text"]))
    elif kind == "notes":
        found.notes.setdefault(table, Counter()).update(json.loads(row["text"]))
    elif kind == "bad":
        found.bad[row["text"]] += row["rows"]
    elif kind == "samples":
        texts = _table(row["content"])["text"].to_pylist()
        found.samples.setdefault(table, []).extend(texts)
    elif kind == "pending":
        found.pending[table] += row["rows"]


def _read_values(known: dict[str, Values], row: dict[str, Any]) -> None:
    new = Values(_table(row["content"]), *json.loads(row["text"]))
    had = known.get(row["table"])
    if had is not None:
        new = Values(pa.concat_tables([had.rows, new.rows]), had.late + new.late, had.misdated + new.misdated)
    known[row["table"]] = new


def _read_fields(known: dict[str, tuple[str, int]], fields: dict[str, tuple[str, int]]) -> None:
    for name, (type, n) in fields.items():
        had_type, had_n = known.get(name, (type, 0))
        known[name] = (inference.joined(had_type, type), had_n + n)

