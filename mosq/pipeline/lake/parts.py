"""Write the Parquet files of a table. A file is invisible to readers until a commit names it."""

import datetime
import json
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mosq.pipeline import MosqPipelineError

if TYPE_CHECKING:
    from mosq.pipeline.lake.places import Place

DATE = "date"
NO_DATE = "__HIVE_DEFAULT_PARTITION__"  # Hive's name of the partition of rows without a date
GROUP_ROWS, GROUP_BYTES = 1 << 20, 64 << 20  # a row group ends at one of these
FILE_BYTES = 256 << 20  # a file ends there, as it lies on the disk
WINDOW, SEQ = "window_start", "seq"
STATISTICS = ("time", SEQ, WINDOW)  # readers skip files by the least and greatest value of these


@dataclass(frozen=True)
class Part:
    """Describe a file of a table: `path` is relative to the table, `date` is "" if its rows have none."""

    table: str
    path: str
    date: str
    size: int
    rows: int
    stats: str  # Delta's JSON


def is_windowed(schema: pa.Schema) -> bool:
    """Return whether a table has sums of windows. In a table of records `window_start` is a field of messages."""
    return WINDOW in schema.names and SEQ not in schema.names


def with_statistics(schema: pa.Schema) -> list[str]:
    """Return the columns with statistics. A field of messages has none, as it can have any type."""
    return [name for name in STATISTICS if name in schema.names and (name != WINDOW or is_windowed(schema))]


def sync(path: "Path | str") -> None:
    """Sync a local file or folder to the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _folder(place: "Place", folder: Path) -> None:
    """Create the folder of a date; the table's own folder must be there."""
    try:
        folder.mkdir(exist_ok=True)
    except FileNotFoundError:
        raise MosqPipelineError(
            f"{place.uri}: the folder of the table is gone: is the storage of the tables mounted? Mount or restore it"
        ) from None


class _File:
    """Write one file, and remember the statistics of its columns."""

    def __init__(self, place: "Place", path: str, schema: pa.Schema) -> None:
        self.place, self.path, self.schema = place, path, schema
        self.waiting: list[pa.RecordBatch] = []
        self.waiting_rows = self.waiting_bytes = self.rows = 0
        self.least: dict[str, Any] = {}
        self.greatest: dict[str, Any] = {}
        self.nulls = dict.fromkeys(with_statistics(schema), 0)
        files, base = place.filesystem()
        full = f"{base}/{path}" if base else path
        if place.is_local:
            _folder(place, Path(full).parent)
        self.out = files.open_output_stream(full)
        self.writer = pq.ParquetWriter(self.out, schema, compression="zstd", coerce_timestamps="us")

    def write(self, rows: pa.Table) -> None:
        self.waiting += rows.to_batches()
        self.waiting_rows += rows.num_rows
        self.waiting_bytes += rows.nbytes
        if self.waiting_rows >= GROUP_ROWS or self.waiting_bytes >= GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        if not self.waiting:
            return
        rows = pa.Table.from_batches(self.waiting, self.schema)
        self.waiting, self.waiting_rows, self.waiting_bytes = [], 0, 0
        self.rows += rows.num_rows
        for name in self.nulls:
            found = pc.min_max(rows[name])
            self.nulls[name] += rows[name].null_count
            if found["min"].is_valid:
                least, greatest = found["min"].as_py(), found["max"].as_py()
                self.least[name] = min(self.least.get(name, least), least)
                self.greatest[name] = max(self.greatest.get(name, greatest), greatest)
        self.writer.write_table(rows, row_group_size=GROUP_ROWS)

    def close(self) -> int:
        """Finish the file and return its size."""
        self.flush()
        self.writer.close()
        size = int(self.out.tell())
        self.out.close()
        if self.place.is_local:
            sync(self.place.path / self.path)
        return size

    def stats(self) -> str:
        return json.dumps(
            {
                "numRecords": self.rows,
                "minValues": {name: _json(value) for name, value in self.least.items()},
                "maxValues": {name: _json(value) for name, value in self.greatest.items()},
                "nullCount": self.nulls,
            }
        )


def _json(value: object) -> object:
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return value


class PartWriter:
    """Write rows of one table into new files, one for each date, and return them as parts.

    `schema` is the table's; without a column `date` the table has no partitions. Close it also if no row was written.
    """

    def __init__(self, place: "Place", table: str, schema: pa.Schema) -> None:
        self.place, self.table, self.schema = place.child(table), table, schema
        self.dated = DATE in schema.names
        self.inner = pa.schema([field for field in schema if field.name != DATE])
        self.open: dict[str, _File] = {}
        self.parts: list[Part] = []

    def write(self, rows: "pa.Table | pa.RecordBatch") -> None:
        """Write rows; they have the columns of the schema, in any order."""
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        if not table.num_rows:
            return
        inner = table.select(self.inner.names).cast(self.inner)
        if not self.dated:
            self._write("", inner)
            return
        dates = table[DATE]
        each = pc.unique(dates).to_pylist()
        for date in each:
            chosen = inner
            if len(each) > 1:
                mask = pc.is_null(dates) if date is None else pc.fill_null(pc.equal(dates, date), fill_value=False)
                chosen = inner.filter(mask)
            self._write("" if date is None else date.isoformat(), chosen)

    def _write(self, date: str, rows: pa.Table) -> None:
        file = self.open.get(date)
        if file is None:
            folder = f"{DATE}={date or NO_DATE}/" if self.dated else ""
            file = self.open[date] = _File(self.place, f"{folder}part-{uuid.uuid4()}.parquet", self.inner)
        file.write(rows)
        if file.out.tell() >= FILE_BYTES:
            self._end(date)

    def _end(self, date: str) -> None:
        file = self.open.pop(date)
        size = file.close()
        self.parts.append(Part(self.table, file.path, date, size, file.rows, file.stats()))

    def close(self) -> list[Part]:
        """Finish all files, and return them. On local storage they and their folders are on the disk then."""
        for date in sorted(self.open):
            self._end(date)
        if self.place.is_local and self.parts:
            for folder in {(self.place.path / part.path).parent for part in self.parts}:
                sync(folder)
            sync(self.place.path)
        return self.parts
