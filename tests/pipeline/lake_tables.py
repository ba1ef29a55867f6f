"""Write Delta tables for tests of readers."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from mosq.pipeline import audit, settings
from mosq.pipeline.lake.parts import PartWriter
from mosq.pipeline.lake.places import place_of
from mosq.pipeline.lake.table import Table
from mosq.pipeline.rows.tables import BRONZE, DEVICE_SCHEMA, DEVICES, GOLD, QUARANTINE

if TYPE_CHECKING:
    from collections.abc import Sequence

IDENTITY = str(uuid.uuid4())
NODE = "node-1"


def schema_of(name: str) -> pa.Schema:
    known = {"bronze": BRONZE, "quarantine": QUARANTINE, "gold/backlog": audit.SCHEMA, DEVICES: DEVICE_SCHEMA}
    return known[name] if name in known else GOLD[name.removeprefix("gold/")].schema


def load(folder: Path, more: str = "") -> settings.Settings:
    """Return settings whose tables lie in `folder`/tables."""
    (folder / "streams").mkdir(parents=True, exist_ok=True)
    (folder / "pipeline.toml").write_text(f'[pipeline]\njournal = "streams"\nnode = "{NODE}"\n{more}')
    return settings.load(folder)


def put(found: settings.Settings, name: str, rows: pa.Table | Sequence[dict[str, Any]], schema: pa.Schema | None = None) -> Table:
    """Append rows as one commit; columns that they lack are null, `date` and `node` are filled in."""
    schema = schema or schema_of(name)
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows), pa.schema([field for field in schema if field.name in rows[0]]))
    columns = []
    for field in schema:
        if field.name in table.column_names:
            columns.append(table[field.name].cast(field.type))
        elif field.name == "date":
            at = "window_start" if "window_start" in table.column_names else "time"
            columns.append(pc.cast(table[at], pa.date32()))
        else:
            columns.append(pa.array([NODE if field.name == "node" else None] * table.num_rows, field.type))
    full = pa.table(columns, schema=schema)
    place = place_of(found)
    target = Table.create(place, name, schema, IDENTITY, ("date",) if "date" in schema.names else ())
    writer = PartWriter(place, name, schema)
    writer.write(full)
    target.append(writer.close(), "tests", target.done("tests") + 1, {})
    return target
