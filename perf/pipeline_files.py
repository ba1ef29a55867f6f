"""Count the files of the tables during a day of batches: `python -m perf.pipeline_files [--hours 24] [--rows 5000]`.

A batch stands for 5 seconds of 1,000 messages a second. The batches follow one another without a pause and without
Spark, and the upkeep of `run` comes as often as by its own clock: each commit gets the time that it would have had.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import types
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from mosq.pipeline import settings
from mosq.pipeline.lake import cleaning
from mosq.pipeline.runs import tending
from tests.pipeline.batches import Batches
from tests.pipeline.journals import T0_US, Journal

if TYPE_CHECKING:
    from mosq.pipeline.lake.table import Table

SETTINGS = """
[pipeline]
journal = "streams"
node = "here"
consumer = ""
[[silver]]
name = "telemetry"
topic = "site/#"
format = "json"
schema = "temp DOUBLE"
"""
TRIGGER_S = 5
HOUR_S = 3600
TOPICS = 50
HEAD = (
    "| hour | most files until now | with rows, now | of them current | of the logs, now | CPU of the upkeep |\n"
    "|---|---|---|---|---|---|"
)


class Day:
    """Write batches, with a clock that moves by TRIGGER_S for each."""

    def __init__(self, folder: Path, rows: int, odd: int) -> None:
        self.folder, self.rows, self.odd = folder, rows, odd
        self.journal = Journal(folder / "streams", "tele")
        self.journal.commit()
        (folder / "pipeline.toml").write_text(SETTINGS)
        self.now = T0_US / 1e6
        self.most = 0
        self.upkeep_s = 0.0
        self.dated: dict[str, int] = {}
        self.run: Batches | None = None

    def clock(self) -> types.SimpleNamespace:
        return types.SimpleNamespace(time=lambda: self.now, monotonic=time.monotonic)

    def batch(self) -> None:
        """Do one batch, and the upkeep that is due."""
        for k in range(self.rows):
            self.journal.now_us = int(self.now * 1e6) + k * (TRIGGER_S * 1_000_000 // self.rows) - 1000
            payload = b'{"temp": %d}' % k if k >= self.odd else b"odd"
            self.journal.put(f"site/{k % TOPICS}", payload, client_id=f"c{k % TOPICS}")
        self.now += TRIGGER_S
        self.journal.now_us = int(self.now * 1e6)
        self.journal.commit()
        if self.run is None:
            self.run = Batches(settings.load(self.folder))
        self.run.one()
        self.date()
        self.most = max(self.most, sum(self.files()))
        cpu = time.process_time()
        while self.run.jobs.tending.is_due():
            self.run.jobs.tend()
        self.upkeep_s += time.process_time() - cpu
        self.date()

    def tables(self) -> list[Table]:
        assert self.run is not None
        return list(self.run.jobs.tables.open.values())

    def date(self) -> None:
        """Give the newest commits their time."""
        for table in self.tables():
            version = table.refresh().version
            for one in range(self.dated.get(table.name, -1) + 1, version + 1):
                os.utime(table.place.path / f"_delta_log/{one:020}.json", (self.now, self.now))
            self.dated[table.name] = version

    def files(self) -> tuple[int, int]:
        """Return the number of files with rows, and of files of the logs."""
        rows = logs = 0
        for path, _, names in os.walk(self.folder / "tables"):
            if path.endswith("_delta_log"):
                logs += len(names)
            else:
                rows += len(names)
        return rows, logs

    def line(self, hour: float) -> str:
        rows, logs = self.files()
        current = sum(table.adds().num_rows for table in self.tables())
        return f"| {hour:g} | {self.most:,} | {rows:,} | {current:,} | {logs:,} | {self.upkeep_s:.0f} s |"


def measure(hours: float, rows: int, odd: int, every: float) -> int:
    """Print a line for each part of the day; return the largest number of files."""
    with tempfile.TemporaryDirectory() as name:
        day = Day(Path(name), rows, odd)
        with mock.patch.object(cleaning, "time", day.clock()), mock.patch.object(tending, "time", day.clock()):
            print(HEAD)
            for i in range(1, int(hours * HOUR_S / TRIGGER_S) + 1):
                day.batch()
                if i * TRIGGER_S % (every * HOUR_S) == 0:
                    print(day.line(i * TRIGGER_S / HOUR_S), flush=True)
        day.journal.close()
        return day.most


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the files of the tables during a day of batches.")
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--rows", type=int, default=5000, help="of a batch; 5,000: 1,000 messages a second")
    parser.add_argument("--odd", type=int, default=0, help="of them for the quarantine")
    parser.add_argument("--every", type=float, default=1, help="hours between two lines")
    given = parser.parse_args()
    began = time.monotonic()
    most = measure(given.hours, given.rows, given.odd, given.every)
    rate, seconds = given.rows / TRIGGER_S, time.monotonic() - began
    took = f"{given.hours:g} hours of {rate:,.0f} messages a second took {seconds:,.0f} s"
    print(f"\n{took}; at most {most:,} files")


if __name__ == "__main__":
    main()
