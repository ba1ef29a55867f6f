"""Measure DuckDB over a Delta table of the pipeline beside DuckDB over the same rows in plain Parquet.

    python -m perf.pipeline_reads [--rows 1000000] [--repeat 5]

The same rows are in bronze, in four files as `run` merges them, and in four files that pyarrow writes with its
defaults. `mosq pipeline sql` reads bronze; DuckDB's own reader, with one thread, reads the others. The figures are the
medians of CPU times of the process, so other programs on the machine change them little.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mosq.pipeline import settings
from mosq.pipeline.duck import Duck
from mosq.pipeline.lake.parts import PartWriter
from mosq.pipeline.lake.places import place_of
from mosq.pipeline.lake.table import Table
from mosq.pipeline.rows.tables import BRONZE
from perf.pipeline_rows import batches, flat

FILES = 4
QUERIES = {
    "count": "SELECT count(*) FROM {rows}",
    "messages of each topic": "SELECT topic, count(*), sum(octet_length(payload)) FROM {rows} GROUP BY topic",
    "one client": "SELECT max(time) FROM {rows} WHERE client_id = 'sensor-7'",
    "a range of numbers": "SELECT count(*), max(topic) FROM {rows} WHERE seq BETWEEN 1000 AND 2000",
    "the payloads": "SELECT max(octet_length(payload)), sum(seq) FROM {rows} WHERE qos = 1",
}


def rows_of(n: int) -> pa.Table:
    """Return n rows of bronze."""
    rows = pa.Table.from_batches(batches(flat, n))
    return rows.append_column("date", rows["time"].cast(pa.date32())).append_column("node", pa.repeat("node", n))


def fill(folder: Path, n: int) -> settings.Settings:
    """Write the same rows twice: into the table bronze, and into plain files."""
    (folder / "streams").mkdir()
    (folder / "plain").mkdir()
    (folder / "pipeline.toml").write_text('[pipeline]\njournal = "streams"\nnode = "node"\n')
    found = settings.load(folder)
    place = place_of(found)
    table = Table.create(place, "bronze", BRONZE, "perf")
    rows = rows_of(n // FILES).select(BRONZE.names).cast(BRONZE)
    at = BRONZE.names.index("seq")
    for i in range(FILES):
        moved = rows.set_column(at, BRONZE.field(at), pc.add(rows["seq"], i * rows.num_rows))
        writer = PartWriter(place, "bronze", BRONZE)
        writer.write(moved)
        table.append(writer.close(), "perf", i, {})
        pq.write_table(moved, folder / f"plain/{i}.parquet", compression="zstd")
    return found


def cpu_of(base: Any, query: str, repeat: int) -> tuple[float, list[Any]]:
    """Return the median CPU time of a query, and its result."""
    times = []
    for _ in range(repeat + 1):
        cpu = time.process_time()
        found = base.execute(query).fetchall()
        times.append(time.process_time() - cpu)
    return statistics.median(times[1:]), sorted(found)


def main() -> None:
    """Print a line for each query."""
    parser = argparse.ArgumentParser(description="Measure DuckDB over Delta and over plain Parquet.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory() as name:
        duck = Duck(fill(Path(name), options.rows))
        duck.base.execute("SET threads = 1")
        print("| query | Delta | plain Parquet | ratio |\n|---|---|---|---|")
        for what, query in QUERIES.items():
            delta, ours = cpu_of(duck.base, query.format(rows="bronze"), options.repeat)
            plain, theirs = cpu_of(duck.base, query.format(rows=f"read_parquet('{name}/plain/*')"), options.repeat)
            if ours != theirs:
                raise SystemExit(f"{what}: the results differ")
            print(f"| {what} | {delta * 1000:.0f} ms | {plain * 1000:.0f} ms | {delta / plain:.2f} |", flush=True)
        duck.close()


if __name__ == "__main__":
    main()
