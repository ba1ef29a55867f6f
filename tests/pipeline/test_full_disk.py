"""Test a full disk below tables and checkpoints: the run stops with advice, at any point of a batch, and no row is lost or doubled when there is room
again.

If mounting is allowed, a small tmpfs is filled in steps, so that ever more of a batch has room.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mosq.pipeline import MosqPipelineError, settings
from mosq.pipeline.lake import table as lake_table
from mosq.pipeline.lake import upkeep
from mosq.pipeline.lake.places import Place
from mosq.pipeline.lake.table import Table
from mosq.pipeline.runs import jobs, progress
from tests.durable.test_disk import may_mount
from tests.pipeline.journals import Journal
from tests.pipeline.test_jobs import in_duckdb
from tests.pipeline.test_lake import ROWS, rows, seqs, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KIB = 1 << 10
SIZE = 8 << 20
MESSAGES, PAYLOAD = 400, KIB        # the size of bronze, which cannot be made smaller
SETTINGS = """
[pipeline]
journal = "{journal}"
tables = "disk/tables"
checkpoints = "disk/checkpoints"
[[silver]]
name = "texts"
topic = "big/#"
format = "csv"
schema = "said STRING"
"""


class Tmpfs:
    """Mount a small disk with a large file on it."""

    ROOMS = (4 * KIB, 150 * KIB, 350 * KIB)       # nothing; not all of bronze; bronze, and not all other tables

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "large"

    def leave(self, room: int) -> None:
        self.file.unlink(missing_ok=True)
        found = os.statvfs(self.folder)
        with self.file.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            os.posix_fallocate(file.fileno(), 0, max(found.f_bavail * found.f_bsize - room, 1))

    def empty(self) -> None:
        self.file.unlink()


class Door:
    """Simulate a disk that is full when a commit is synced."""

    ROOMS = (0,)

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patch = monkeypatch

    def leave(self, room: int) -> None:
        def full(path: Path) -> None:
            raise OSError(28, "No space left on device", str(path))

        self.patch.setattr(lake_table, "sync", full)

    def empty(self) -> None:
        self.patch.undo()


@pytest.fixture(params=["tmpfs" if may_mount() else "door"])
def disk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tmpfs | Door]:
    folder = tmp_path / "disk"
    folder.mkdir()
    if request.param == "door":
        yield Door(monkeypatch)
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", folder], check=True)
    try:
        yield Tmpfs(folder)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.part("spark")
def test_a_full_disk_stops_the_run_and_it_continues_with_room(spark: SparkSession, tmp_path: Path, disk: Tmpfs | Door) -> None:
    stream = Journal(tmp_path / "streams", "tele")
    dice = random.Random(1)
    for i in range(MESSAGES):
        stream.put(f"big/{i}", dice.randbytes(PAYLOAD // 2).hex().encode())
    stream.commit()
    (tmp_path / "pipeline.toml").write_text(SETTINGS.format(journal=stream.path.parent))
    found = settings.load(tmp_path)
    for room in disk.ROOMS:
        disk.leave(room)
        with pytest.raises(MosqPipelineError, match=r"no space left.*: free some, and run again"):
            jobs.run(spark, found, once=True, log=lambda line: None)
        assert progress.after(found) == progress.empty()      # no batch is done
    disk.empty()
    jobs.run(spark, found, once=True, log=lambda line: None)
    for table in ("bronze", "silver_texts"):
        assert in_duckdb(found, f"SELECT count(*), count(DISTINCT seq) FROM {table}") == [(MESSAGES, MESSAGES)], table
    assert in_duckdb(found, "SELECT sum(messages), count(*) FROM topics") == [(MESSAGES, MESSAGES)]
    stream.close()


def test_a_merge_of_files_on_a_full_disk_changes_nothing(tmp_path: Path, disk: Tmpfs | Door) -> None:
    place = Place(str(tmp_path / "disk/tables"))
    bronze = Table.create(place, "bronze", ROWS, "id")
    for i in range(10):
        bronze.append(written(place, rows(*range(i * 5000, i * 5000 + 5000))), "app", i, {})
    disk.leave(8 * KIB)
    with pytest.raises(MosqPipelineError, match=r"/bronze: no space left: free some, and run again"):
        upkeep.merge_files(bronze, upkeep.Plan())
    disk.empty()
    assert seqs(place) == list(range(50_000))
    upkeep.merge_files(Table.create(place, "bronze", ROWS, "id"), upkeep.Plan())
    assert seqs(place) == list(range(50_000)) and len(bronze.refresh().files()) == 1
