"""Test `mosq pipeline migrate`: tables of earlier versions go on, each row once, wherever the migration was killed."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from mosq.cli.pipeline.commands import pipeline
from mosq.pipeline import MosqPipelineError, settings
from mosq.pipeline.earlier import migrate
from mosq.pipeline.lake.table import Table
from mosq.pipeline.runs import jobs, progress, tending
from tests.pipeline.batches import Batches
from tests.pipeline.old_tables import OldTables, drop
from tests.pipeline.test_verify import TELE, Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BIG = 2**53 + 1


def quiet(line: str) -> None:
    pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with contextlib.closing(Site(tmp_path)) as found:
        yield found


@pytest.fixture
def old(site: Site) -> OldTables:
    """Write three batches of old tables, the first without the rules' first message of a small broker."""
    site.journal.put("guess/1", b'{"x": %d}' % BIG)
    tables = OldTables(site.settings)
    for _ in range(3):
        site.fill()
        tables.write()
    return tables


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.endswith("lock")}


def content(site: Site) -> dict[str, list[str]]:
    return {table.name: sorted(map(str, table.read().to_pylist())) for table in tending.existing(site.settings) if table.name != "progress"}


def from_the_journal(site: Site, folder: Path) -> dict[str, list[str]]:
    """Return the tables of a run that reads the whole journal."""
    shutil.rmtree(site.settings.checkpoints, ignore_errors=True)
    site.settings = site.settings.__class__(**vars(site.settings) | {"tables": str(folder / "tables"), "checkpoints": folder / "checkpoints"})
    batches = Batches(site.settings)
    batches.jobs.declare({"guessed": "x BIGINT"})
    batches.all()
    return content(site)


def check_equal(site: Site, tmp_path: Path) -> None:
    """Check that the migrated tables go on, and then have what a run over the whole journal has."""
    site.fill()
    Batches(site.settings).all()
    assert site.found().faults == []
    assert content(site) == from_the_journal(site, tmp_path / "other")


def test_tables_before_delta(site: Site, old: OldTables, tmp_path: Path) -> None:
    (old.tables / "bronze" / "batch_id=of nothing").mkdir()
    before = files(old.tables), files(old.checkpoints)
    with pytest.raises(MosqPipelineError, match="`mosq pipeline migrate` brings them to this version"):
        Batches(site.settings)
    found = CliRunner().invoke(pipeline, ["migrate", "-s", str(site.settings.file)], standalone_mode=False)
    assert found.return_value == 0, found.output
    assert 'schema = "x BIGINT"' in found.output and "goes on behind the last row" in found.output
    assert site.found().faults == [] and site.found().shards[TELE]["bronze"] == 121
    assert BIG in site.table("silver/guessed").read()["x"].to_pylist(), "integers beyond 2**53 are exact"
    assert (files(old.tables / "before-delta"), files(old.checkpoints / "before-delta")) == before
    assert not migrate.migrate(site.settings, quiet), "there is nothing to migrate any more"
    check_equal(site, tmp_path)


def test_rows_that_bronze_lacks_come_from_the_journal(site: Site, old: OldTables, tmp_path: Path) -> None:
    """Test the tables that a killed run left: a batch without a part, one with a part twice, and one without its end."""
    parts = sorted((old.tables / "bronze").rglob("*.parquet"))
    tele = [path for path in parts if pq.read_table(path, partitioning=None)["stream"][0].as_py() == "tele"]
    tele[0].unlink()
    shutil.copy(tele[1], tele[1].with_name("part-again.parquet"))
    drop(tele[2], 35, 40)
    said: list[str] = []
    migrate.migrate(site.settings, said.append)
    assert "bronze lacked 46 rows: they are read from the journal" in said
    assert "bronze had 40 rows twice: each is taken once" in said
    check_equal(site, tmp_path)


def test_a_gap_stands_for_rows_without_a_record(site: Site, old: OldTables) -> None:
    parts = sorted((old.tables / "bronze" / "batch_id=1").rglob("*.parquet"))
    drop(next(path for path in parts if pq.read_table(path, partitioning=None)["stream"][0].as_py() == "tele"), 3, 5)
    for segment in (site.folder / "streams" / "tele").glob("*.seg"):
        segment.unlink()
    said: list[str] = []
    migrate.migrate(site.settings, said.append)
    assert "bronze lacked 2 rows that the journal does not have any more: rows of kind 10 (gap) stand for them" in said
    found = site.found()
    assert found.faults == [] and (found.shards[TELE]["bronze"], found.shards[TELE]["gaps"]) == (120, 1)


@pytest.mark.part("spark")
@pytest.mark.parametrize("at", [3, 11, 20, 28, 31, 34])
def test_a_killed_migration_is_repeated(site: Site, old: OldTables, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Kill it at commits of the second batch, and at the renames that put the new files in their place."""
    steps = 0
    monkeypatch.setattr(migrate, "CHUNK_ROWS", 60)

    def dying(inner: Any) -> Any:
        def step(*args: Any, **kwargs: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == at:
                raise KeyboardInterrupt
            return inner(*args, **kwargs)
        return step

    with monkeypatch.context() as patch:
        for function in ("append", "merge", "replace"):
            patch.setattr(Table, function, dying(getattr(Table, function)))
        patch.setattr(Path, "rename", dying(Path.rename))
        with pytest.raises(KeyboardInterrupt):
            migrate.migrate(site.settings, quiet)
    with pytest.raises(MosqPipelineError, match="mosq pipeline migrate"):
        Batches(site.settings)
    migrate.migrate(site.settings, quiet)
    site.fill()
    Batches(site.settings).all()
    found = site.found()
    assert found.faults == [] and found.shards[TELE]["bronze"] == 161


def test_other_places(site: Site, old: OldTables, tmp_path: Path) -> None:
    """Tables go to a new place that the settings name, and the old ones stay where they are."""
    text = site.settings.file.read_text().replace("[pipeline]\n", '[pipeline]\ntables = "new"\n')
    site.settings.file.write_text(text)
    before = files(old.tables)
    assert CliRunner().invoke(pipeline, ["migrate", "-s", str(site.settings.file)], standalone_mode=False).return_value == 0
    site.settings = settings.load(site.folder)
    assert files(old.tables) == before and (tmp_path / "new" / "bronze" / "_delta_log").is_dir()
    check_equal(site, tmp_path)


def test_plain_errors(site: Site, old: OldTables, tmp_path: Path) -> None:
    damaged = next((old.tables / "bronze").rglob("*.parquet"))
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:100])
    with pytest.raises(MosqPipelineError, match=f"{damaged} cannot be read .* restore it; or remove the file"):
        migrate.migrate(site.settings, quiet)
    damaged.write_bytes(whole)
    setup = (old.checkpoints / "setup.json").read_text()
    for text in ("[]", '{"format": 1}'):
        (old.checkpoints / "setup.json").write_text(text)
        with pytest.raises(MosqPipelineError, match=r"setup.json is damaged: expected format, tables, streams and jobs"):
            migrate.migrate(site.settings, quiet)
    (old.checkpoints / "setup.json").write_text(setup)
    old.tables.rename(tmp_path / "unmounted")
    with pytest.raises(MosqPipelineError, match="is the storage of the tables mounted"):
        migrate.migrate(site.settings, quiet)
    (tmp_path / "unmounted").rename(old.tables)
    site.journal.close()
    (site.folder / "streams" / "tele").rename(tmp_path / "away")
    with pytest.raises(MosqPipelineError, match="stream here/tele was read before but is not now"):
        migrate.migrate(site.settings, quiet)
    (tmp_path / "away").rename(site.folder / "streams" / "tele")
    shutil.rmtree(old.checkpoints)
    with pytest.raises(MosqPipelineError, match="there are no tables of an earlier version"):
        migrate.migrate(site.settings, quiet)


def test_delta_tables_of_format_2(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Format 2 had one broker, whose name was not in the names of streams."""
    site.fill()
    batches = Batches(site.settings)
    batches.all()
    path = site.settings.checkpoints / "identity.json"
    about = json.loads(path.read_text())
    bare = {name.partition("/")[2]: one for name, one in about["settings"]["streams"].items()}
    about["settings"] |= {"streams": bare, "node": "here"}
    del about["first"]
    path.write_text(json.dumps(about | {"format": 2}))
    batches.jobs.tables.setup = about["settings"]
    batches.jobs._put(progress.copied(batches.jobs.state))
    with pytest.raises(MosqPipelineError, match=r"format 2, this one has .*: `mosq pipeline migrate` brings them"):
        Batches(site.settings)
    monkeypatch.setattr(progress, "put", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        migrate.migrate(site.settings, quiet)
    monkeypatch.undo()
    assert migrate.migrate(site.settings, quiet) and not migrate.migrate(site.settings, quiet)
    site.fill()
    Batches(site.settings).all()
    assert site.found().faults == [] and site.found().shards[TELE]["bronze"] == 80
    about = json.loads(path.read_text())
    path.write_text(json.dumps(about | {"format": 99}))
    for refused in (lambda: migrate.migrate(site.settings, quiet), lambda: Batches(site.settings)):
        with pytest.raises(MosqPipelineError, match="update mosq"):
            refused()


@pytest.mark.part("spark")
def test_spark_goes_on_behind_a_migration(spark: SparkSession, site: Site, old: OldTables) -> None:
    migrate.migrate(site.settings, quiet)
    site.fill()
    jobs.run(spark, site.settings, once=True, log=quiet)
    found = site.found()
    assert found.faults == [] and found.shards[TELE]["bronze"] == 161
