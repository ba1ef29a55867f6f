"""Test `mosq pipeline adopt`: tables go on without their checkpoint, and no row is lost or doubled."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from mosq.cli.pipeline.commands import pipeline
from mosq.pipeline import MosqPipelineError, settings
from mosq.pipeline.lake.table import Table
from mosq.pipeline.runs import adopt, jobs, progress, settling, tending
from tests.harness.effort import TIMEOUT_S
from tests.pipeline.batches import Batches
from tests.pipeline.journals import Journal
from tests.pipeline.test_telemetry import rebuilt, without_spark
from tests.pipeline.test_verify import TELE, Site, delete

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with contextlib.closing(Site(tmp_path)) as found:
        yield found


def content(site: Site) -> dict[str, list[str]]:
    return {table.name: sorted(map(str, table.read().to_pylist())) for table in tending.existing(site.settings) if table.name != "progress"}


def run(site: Site, *steps: str) -> None:
    """Do a batch, and after a step `new` of new records."""
    for step in steps:
        if step == "new":
            site.fill()
        Batches(site.settings).all()


def wanted(site: Site, folder: Path) -> dict[str, list[str]]:
    """Return the tables of a run without faults over the same journal."""
    folder.mkdir()
    text = site.settings.file.read_text().replace('journal = "streams"', f'journal = "{site.settings.sources[0].journal}"\nconsumer = ""')
    (folder / "pipeline.toml").write_text(text)
    found = settings.load(folder)
    for rows in (44, 44, 44, 0):
        Batches(found).one(rows)
    return {table.name: sorted(map(str, table.read().to_pylist())) for table in tending.existing(found) if table.name != "progress"}


def killed(site: Site, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do a batch that ends before the commit to a table."""
    batches = Batches(site.settings)
    with monkeypatch.context() as patch:
        for function in ("append", "merge", "replace"):
            inner = getattr(Table, function)

            def fatal(table: Table, *args: Any, inner: Any = inner, **kwargs: Any) -> Any:
                if table.name == name:
                    raise KeyboardInterrupt
                return inner(table, *args, **kwargs)

            patch.setattr(Table, function, fatal)
        with pytest.raises(KeyboardInterrupt):
            batches.one()


@pytest.mark.parametrize("at", ["silver/telemetry", "quarantine", "gold/latency", "progress"])
@pytest.mark.parametrize("lost", ["all", "spark", "identity"])
def test_a_lost_checkpoint_after_an_unfinished_batch(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, lost: str) -> None:
    run(site, "new", "new")
    site.fill()
    killed(site, at, monkeypatch)
    checkpoints = site.settings.checkpoints
    if lost == "identity":
        (checkpoints / "identity.json").unlink()
    else:
        shutil.rmtree(checkpoints if lost == "all" else checkpoints / "spark")
    with pytest.raises(MosqPipelineError, match="mosq pipeline adopt"):
        Batches(site.settings)
    assert adopt.adopt(site.settings, lambda line: None)
    assert not adopt.adopt(site.settings, lambda line: None), "there is nothing to adopt any more"
    run(site, "again", "new")
    assert site.found().faults == []
    assert content(site) == wanted(site, tmp_path / "other")


@pytest.mark.parametrize("compacted", [False, True])
def test_an_erasure_stays_done_and_deleted_files_stop_nothing(site: Site, monkeypatch: pytest.MonkeyPatch, compacted: bool) -> None:
    """gold went back to a version from before the erasure, or to one whose files were deleted: each adoption failed then."""
    run(site, "new", "new")
    site.fill()
    killed(site, "progress", monkeypatch)
    for path in Path(site.settings.tables).rglob("*"):
        if path.is_file():
            os.utime(path, (path.stat().st_mtime - 3600,) * 2)
    assert tending.erase(site.settings, "c1", None, lambda line: None)
    if compacted:
        assert list(tending.compact_all(site.settings))
    shutil.rmtree(site.settings.checkpoints)
    said: list[str] = []
    assert adopt.adopt(site.settings, said.append)
    assert any("gold: rows are missing or too many: `mosq pipeline run --rebuild`" in line for line in said)
    assert all("c1" not in table.read()["client_id"].to_pylist() for table in tending.existing(site.settings) if "client_id" in table.schema.names)


@pytest.mark.parametrize("at", ["silver/telemetry", "gold/latency", "progress"])
@pytest.mark.parametrize("lost", [False, True])
def test_rows_of_an_unfinished_batch_stay_erased(site: Site, monkeypatch: pytest.MonkeyPatch, at: str, lost: bool) -> None:
    """The journal has the rows, and the batch is done again: erased rows came back then."""
    run(site, "new", "new")
    site.fill()
    killed(site, at, monkeypatch)
    assert tending.erase(site.settings, "c1", None, lambda line: None)
    if lost:
        shutil.rmtree(site.settings.checkpoints)
        assert adopt.adopt(site.settings, lambda line: None)
        without_spark(site, monkeypatch)            # type: ignore[arg-type]
        monkeypatch.setattr(settling, "sampled", lambda *args: [])
        rebuilt(site)                               # type: ignore[arg-type]
    run(site, "again")
    named = [table for table in tending.existing(site.settings) if "client_id" in table.schema.names]
    assert {"bronze", "silver/telemetry", "quarantine", "gold/traffic", "gold/devices"} <= {table.name for table in named}
    assert [table.name for table in named if "c1" in table.read()["client_id"].to_pylist()] == []
    assert site.found().faults == []
    run(site, "new")
    assert "c1" in site.table("bronze").read()["client_id"].to_pylist(), "later rows of the client are new ones"
    assert site.found().faults == []


def test_an_erasure_beside_a_batch(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The erasure deleted the rows from bronze, and the batch then committed them to silver."""
    run(site, "new", "new")
    site.fill()
    said, outcome = threading.Event(), []
    eraser = threading.Thread(target=lambda: outcome.append(tending.erase(site.settings, "c1", None, lambda line: said.set())))
    inner = Table.append

    def append(table: Table, *args: Any, **kwargs: Any) -> Any:
        if table.name == "silver/telemetry" and not eraser.ident:
            eraser.start()
            assert said.wait(TIMEOUT_S), "it erases, or it waits"
        return inner(table, *args, **kwargs)

    monkeypatch.setattr(Table, "append", append)
    run(site, "again")
    eraser.join(TIMEOUT_S)
    assert outcome and outcome[0] > 0
    named = [table for table in tending.existing(site.settings) if "client_id" in table.schema.names]
    assert [table.name for table in named if "c1" in table.read()["client_id"].to_pylist()] == []
    assert site.found().faults == []


def test_a_batch_waits_for_an_erasure(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    run(site, "new", "new")
    site.fill()
    batches = Batches(site.settings)
    one = threading.Thread(target=batches.all)
    inner = Table.delete

    def delete_rows(table: Table, *args: Any, **kwargs: Any) -> Any:
        if not one.ident:
            one.start()
            until = time.monotonic() + TIMEOUT_S
            while not any("waiting until `erase`" in line for line in batches.lines):
                assert time.monotonic() < until
                time.sleep(0.01)
        return inner(table, *args, **kwargs)

    monkeypatch.setattr(Table, "delete", delete_rows)
    assert tending.erase(site.settings, "c1", None, lambda line: None) > 0
    one.join(TIMEOUT_S)
    bronze, silver = (site.table(name).read()["client_id"].to_pylist() for name in ("bronze", "silver/telemetry"))
    assert "c1" in bronze and "c1" in silver, "the rows of the batch came after the erasure, to all tables"
    assert site.found().faults == []


def test_tables_and_checkpoints_of_different_times(site: Site, tmp_path: Path) -> None:
    """One of both is an older copy."""
    checkpoints, tables = site.settings.checkpoints, Path(site.settings.tables)
    run(site, "new")
    shutil.copytree(checkpoints, tmp_path / "old checkpoints")
    run(site, "new")
    shutil.rmtree(checkpoints)
    shutil.copytree(tmp_path / "old checkpoints", checkpoints)
    with pytest.raises(MosqPipelineError, match=r"ends at batch 0, but the tables have batch 1: .*`mosq pipeline adopt`"):
        Batches(site.settings)
    assert adopt.adopt(site.settings, lambda line: None)
    shutil.copytree(tables, tmp_path / "old tables")
    run(site, "again", "new")
    shutil.rmtree(tables)
    shutil.copytree(tmp_path / "old tables", tables)
    with pytest.raises(MosqPipelineError, match=r"has the rows up to batch 1, but .* has finished batch 2: .*`mosq pipeline adopt`"):
        Batches(site.settings)
    assert adopt.adopt(site.settings, lambda line: None)
    run(site, "again", "new")
    assert site.found().faults == [] and content(site) == wanted(site, tmp_path / "other")


def test_tables_that_lack_rows_are_marked_for_a_rebuild(site: Site) -> None:
    run(site, "new", "new")
    delete(site, "silver/telemetry", 44, 47)
    shutil.rmtree(site.settings.checkpoints)
    said: list[str] = []
    assert adopt.adopt(site.settings, said.append)
    assert any(line.startswith("telemetry: rows are missing or too many: `mosq pipeline run --rebuild`") for line in said)
    with pytest.raises(MosqPipelineError, match=r"differs from the settings that the tables .*\(telemetry\).*run --rebuild"):
        Batches(site.settings)


def test_bronze_without_its_last_rows_goes_on_where_it_ends(site: Site) -> None:
    run(site, "new", "new")
    delete(site, "bronze", 70, 79)
    shutil.rmtree(site.settings.checkpoints)
    said: list[str] = []
    assert adopt.adopt(site.settings, said.append)
    assert f"bronze ends at 70 of {TELE}, before its last batch (80): it goes on there" in said
    assert any("gold: rows are missing" in line for line in said)
    assert progress.after(site.settings)["shards"][TELE]["next"] == 70


def test_bronze_with_a_hole_and_tables_of_another_set_are_refused(site: Site, tmp_path: Path) -> None:
    run(site, "new", "new")
    shutil.copytree(site.settings.tables, tmp_path / "copy")
    delete(site, "bronze", 10, 12)
    shutil.rmtree(site.settings.checkpoints)
    with pytest.raises(MosqPipelineError, match="here/tele/0, 10 to 12: missing, in the journal"):
        adopt.adopt(site.settings, lambda line: None)
    shutil.rmtree(site.settings.tables)
    with pytest.raises(MosqPipelineError, match="is the storage of the tables mounted"):
        adopt.adopt(site.settings, lambda line: None)
    run(site, "again")
    shutil.rmtree(Path(site.settings.tables) / "silver")
    shutil.copytree(tmp_path / "copy" / "silver", Path(site.settings.tables) / "silver")
    shutil.rmtree(site.settings.checkpoints)
    with pytest.raises(MosqPipelineError, match="is a table of another set"):
        adopt.adopt(site.settings, lambda line: None)


def two(site: Site, *nodes: str) -> None:
    """Let the settings have a source for each node: `here` has the site's journal."""
    text = site.settings.file.read_text().replace('journal = "streams"\n', "").replace('node = "here"\n', "")
    folders = {"here": "streams", "there": "other"}
    site.settings.file.write_text(text.partition("[[source]]")[0] + "".join(f'[[source]]\nnode = "{node}"\njournal = "{folders[node]}"\n' for node in nodes))
    site.settings = settings.load(site.folder)


def test_the_tables_of_several_brokers(site: Site, tmp_path: Path) -> None:
    run(site, "new")
    other = Journal(tmp_path / "other", "tele")     # its name is that of the first broker's stream
    other.fill(7)
    two(site, "there", "here")
    run(site, "new")
    shutil.rmtree(site.settings.checkpoints)
    two(site, "here")
    with pytest.raises(MosqPipelineError, match="the broker there was read before"):
        adopt.adopt(site.settings, lambda line: None)
    two(site, "there", "here")
    assert adopt.adopt(site.settings, lambda line: None)
    assert not adopt.adopt(site.settings, lambda line: None), "there is nothing to adopt any more"
    other.fill(5)
    run(site, "new")
    other.close()
    found = site.found()
    assert found.faults == [] and (found.shards[TELE]["bronze"], found.shards["there/tele/0"]["bronze"]) == (120, 12)


def test_spark_goes_on_with_an_adopted_checkpoint(spark: SparkSession, site: Site) -> None:
    site.fill()
    jobs.run(spark, site.settings, once=True, log=lambda line: None)
    shutil.rmtree(site.settings.checkpoints)
    found = CliRunner().invoke(pipeline, ["adopt", "-s", str(site.settings.file)], standalone_mode=False)
    assert found.return_value == 0 and "adopted: the next run begins behind batch 0" in found.output, found.output
    site.fill()
    jobs.run(spark, site.settings, once=True, log=lambda line: None)
    result = site.found()
    assert result.faults == [] and result.shards[TELE]["bronze"] == 80 and result.batch == 1
