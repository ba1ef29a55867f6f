"""Test that storage which is full, read-only or lost between two batches stops the jobs with one clear error, and that they then go on exactly."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mosq.cli.commands import main
from mosq.pipeline import MosqPipelineError, settings, trouble
from mosq.pipeline.earlier import migrate
from mosq.pipeline.runs import verify
from tests.durable.test_disk import may_mount
from tests.pipeline.batches import Batches
from tests.pipeline.journals import Journal
from tests.pipeline.old_tables import OldTables
from tests.pipeline.test_full_disk import KIB, Tmpfs

pytestmark = pytest.mark.skipif(not may_mount(), reason="mounting is not allowed")
SETTINGS = '[pipeline]\njournal = "streams"\nnode = "here"\ntables = "{tables}/tables"\ncheckpoints = "{checkpoints}/checkpoints"\n'
N = 50


class Disk:
    """Mount a small disk at a folder; `lost` and `found` unmount it and mount it again with its content."""

    def __init__(self, folder: Path) -> None:
        self.disk, self.folder = folder / "device", folder / "disk"
        self.disk.mkdir()
        self.folder.mkdir()
        self._mount("-t", "tmpfs", "-o", "size=8m", "none", self.disk)
        self.found()

    @staticmethod
    def _mount(*arguments: str | Path) -> None:
        subprocess.run(["mount", *arguments], check=True)

    def found(self) -> None:
        self._mount("--bind", self.disk, self.folder)

    def lost(self) -> None:
        subprocess.run(["umount", "-l", self.folder], check=True)

    def writable(self, how: str) -> None:
        self._mount("-o", f"remount,bind,{how}", self.folder)

    def close(self) -> None:
        for folder in (self.folder, self.disk):
            subprocess.run(["umount", "-l", folder], check=False, stderr=subprocess.DEVNULL)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with contextlib.closing(Disk(tmp_path)) as found:
        yield found


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with contextlib.closing(Journal(tmp_path / "streams", "tele")) as found:
        found.fill(N)
        yield found


def configured(folder: Path, tables: str, checkpoints: str) -> settings.Settings:
    (folder / "pipeline.toml").write_text(SETTINGS.format(tables=tables, checkpoints=checkpoints))
    return settings.load(folder)


def refused(found: settings.Settings, batches: Batches | None = None) -> str:
    """Do a batch, of a new run or of one that runs, and return its error as the command prints it."""
    with pytest.raises(MosqPipelineError) as caught, trouble.plain_errors(found):
        (batches or Batches(found)).all()
    assert "\n" not in str(caught.value) and "Traceback" not in str(caught.value)
    return str(caught.value)


def check(found: settings.Settings, n: int) -> None:
    """Check that a new run goes on exactly."""
    Batches(found).all()
    result = verify.verify(found)
    assert result.faults == [] and result.shards["here/tele/0"]["bronze"] == n


@pytest.mark.parametrize(("tables", "checkpoints"), [("disk", "."), (".", "disk")])
def test_a_mount_that_is_lost_between_two_batches(tmp_path: Path, disk: Disk, journal: Journal, capsys: pytest.CaptureFixture[str],
                                                  tables: str, checkpoints: str) -> None:
    found = configured(tmp_path, tables, checkpoints)
    batches = Batches(found)
    batches.all()
    journal.fill(N)
    disk.lost()
    if tables == "disk":
        assert "is its storage mounted?" in refused(found, batches) or "is the storage of the tables mounted?" in refused(found, batches)
    assert refused(found)
    if tables == "disk":
        for command in (["status"], ["sql", "SELECT 1"], ["compact"], ["erase", "--topic", "t/1", "--yes"], ["verify"]):
            assert main(["pipeline", *command, "-s", str(found.file)]) == 1, command
            assert "is the storage of the tables mounted?" in capsys.readouterr().err, command
    assert not list(disk.folder.rglob("*.parquet")) and not list(disk.folder.rglob("*.json")), "nothing is written below the mount"
    disk.found()
    check(found, 2 * N)


@pytest.mark.parametrize(("tables", "checkpoints"), [("disk", "."), (".", "disk")])
def test_a_file_system_that_becomes_read_only(tmp_path: Path, disk: Disk, journal: Journal, tables: str, checkpoints: str) -> None:
    found = configured(tmp_path, tables, checkpoints)
    Batches(found).all()
    journal.fill(N)
    disk.writable("ro")
    said = refused(found, None)
    assert "the file system is read-only: mount it" in said and str(disk.folder) in said
    disk.writable("rw")
    check(found, 2 * N)


@pytest.mark.parametrize("room", [4 * KIB, 16 * KIB, 40 * KIB])
def test_a_migration_on_a_full_disk(tmp_path: Path, disk: Disk, journal: Journal, room: int) -> None:
    found = configured(tmp_path, "disk", "disk")
    old = OldTables(found)
    for _ in range(3):
        old.write()
        journal.fill(N)
    large = Tmpfs(disk.folder)
    large.leave(room)
    with pytest.raises(MosqPipelineError, match=r"no space left.*: free some, and run again"):
        migrate.migrate(found, lambda line: None)
    large.empty()
    migrate.migrate(found, lambda line: None)
    check(found, 4 * N)
