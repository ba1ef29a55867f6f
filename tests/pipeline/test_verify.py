"""Test `mosq pipeline verify`: it finds each missing and each doubled row, and nothing else."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner

from mosq.cli.pipeline.commands import pipeline
from mosq.journal import Stream
from mosq.pipeline import MosqPipelineError, settings
from mosq.pipeline.lake import upkeep
from mosq.pipeline.lake.places import place_of
from mosq.pipeline.lake.table import Table
from mosq.pipeline.rows import tables as columns, task
from mosq.pipeline.runs import progress, removed, tending, verify, versions
from tests.pipeline.batches import Batches
from tests.pipeline.journals import Journal
from tests.pipeline.test_sparkplug import metric, text, varint

SETTINGS = """
[pipeline]
journal = "streams"
node = "here"
[[silver]]
name = "telemetry"
topic = "site/+/json"
format = "json"
schema = "temp DOUBLE"
[[silver]]
name = "guessed"
topic = "guess/#"
format = "json"
[[silver]]
name = "plant"
topic = "spBv1.0/#"
format = "sparkplug"
"""
ACCOUNT = {"session": 1, "restored": 0, "published": 10, "delivered": 9, "acknowledged": 7, "resent": 2, "expired": 1, "dropped": 1, "queued": 1, "gone": 0, "ended": False}
TELE = "here/tele/0"


class Site:
    """Hold a journal, and tables of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = Journal(folder / "streams", "tele")
        self.events = Journal(folder / "streams", "events")
        (folder / "pipeline.toml").write_text(SETTINGS)
        self.settings = settings.load(folder)
        self.n = 0

    def fill(self, n: int = 40) -> None:
        for _ in range(n):
            i = self.n = self.n + 1
            client = f"c{i % 3}"
            if i % 10 == 0:
                self.journal.put("site/1/json", b"no json", client_id=client)
            elif i % 10 == 1:
                self.journal.put("spBv1.0/g/DDATA/n/d", metric(text(1, b"m"), varint(10, 5)) + metric(text(1, b"s"), text(15, b"on")), client_id=client)
            elif i % 10 == 2:
                self.journal.put("spBv1.0/g/DDATA/n/d", varint(3, 1), client_id=client)        # it has a number and no metric
            elif i % 10 == 3:
                self.journal.put("other", b"x", client_id=client)
            elif i % 10 == 4:
                self.journal.put("guess/1", b'{"x": %d}' % i, client_id=client)
            else:
                self.journal.put(f"site/{i % 2}/json", b'{"temp": %d}' % i, client_id=client)
        self.journal.commit()
        self.events.put("", b"{}", kind=2, client_id="c1")
        self.events.put("site/1/json", b"", kind=6, client_id="c1", reason=0x97)
        self.events.put("", json.dumps(ACCOUNT).encode(), kind=9, client_id="c1")
        self.events.put("", b"{}", kind=9, client_id="c1")
        self.events.commit()

    def table(self, name: str) -> Table:
        found = Table.open(place_of(self.settings), name)
        assert found is not None
        return found

    def found(self) -> verify.Found:
        return verify.verify(self.settings)

    def close(self) -> None:
        self.journal.close()
        self.events.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with contextlib.closing(Site(tmp_path)) as found:
        yield found


@pytest.fixture
def run(site: Site) -> Site:
    """Do three batches, with a schema that is settled after them."""
    batches = Batches(site.settings)
    for _ in range(3):
        site.fill()
        batches.all()
    return site


def faults(found: verify.Found) -> list[tuple[str, str, int, int]]:
    return [(one["table"], one["what"].split(",")[0], one["from"], one["to"]) for one in found.faults if "from" in one]


def delete(site: Site, name: str, first: int, last: int) -> None:
    stream = "events" if name == "gold/backlog" else "tele"
    seq = pc.field("seq")
    assert site.table(name).delete((pc.field("stream") == stream) & (seq >= first) & (seq <= last))


def test_tables_that_add_up(run: Site) -> None:
    found = run.found()
    assert found.faults == [] and found.notes == []
    assert found.shards[TELE] == {"from": 0, "to": 119, "journal": 120, "bronze": 120, "gaps": 0, "removed": 0, "missing": 0, "doubled": 0}
    assert found.tables["silver/telemetry"]["rows"] == 60 and found.tables["quarantine"]["rows"] == 12 + 3
    assert found.tables["gold/traffic"] == {"rows": 120, "windows": 1, "wrong": 0}
    assert found.tables["gold/drops"]["rows"] == 3 and found.tables["gold/backlog"]["rows"] == 3


@pytest.mark.parametrize("numbers", [7, 50, 1000])
def test_a_long_range_is_compared_in_passes(run: Site, numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "PASS_NUMBERS", numbers)
    site = run
    delete(site, "bronze", 20, 24)
    found = site.found()
    assert sum(one["n"] for one in found.faults if one["table"] == "bronze") == 5
    assert found.shards[TELE]["bronze"] == 115 and found.shards[TELE]["missing"] == 5
    assert found.tables["gold/traffic"] == {"rows": 120, "windows": 1, "wrong": 1}


def test_missing_and_doubled_rows_are_found_with_their_numbers(run: Site) -> None:
    site = run
    silver = site.table("silver/telemetry")
    more = silver.read(pc.field("seq") == 14)
    parts = silver._written(more, silver.schema)
    silver.append(parts, "", 0, {})
    delete(site, "silver/telemetry", 4, 7)
    delete(site, "quarantine", 29, 29)
    delete(site, "gold/backlog", 6, 6)
    plant = site.table("silver/plant")
    plant.append(plant._written(plant.read(pc.field("seq") == 10), plant.schema), "", 0, {})
    found = site.found()
    assert sorted(faults(found)) == [
        ("gold/backlog", "missing", 6, 6), ("silver/plant", "doubled", 10, 10), ("silver/telemetry", "doubled", 14, 14), ("silver/telemetry", "missing", 4, 7),
        ("silver/telemetry", "missing", 29, 29)]
    assert found.tables["silver/telemetry"] == {"rows": 57, "missing": 5, "doubled": 1, "strange": 0}


def test_rows_that_no_message_gave_are_found(run: Site) -> None:
    silver = run.table("silver/telemetry")
    rows = silver.read(pc.field("seq") == 14).set_column(silver.schema.get_field_index("seq"), silver.schema.field("seq"), pa.array([2], pa.int64()))
    silver.append(silver._written(rows, silver.schema), "", 0, {})
    assert faults(run.found()) == [("silver", "rows without a message of their rule in bronze", 2, 2)]


def test_sums_of_gold_are_compared_by_window(run: Site) -> None:
    gold = run.table("gold/traffic")
    rows = gold.read()
    at = gold.schema.get_field_index("messages")
    gold.replace(rows.set_column(at, gold.schema.field(at), pc.add(rows["messages"], 1)), "", 0)
    (one,) = run.found().faults
    assert one["table"] == "gold/traffic" and one["stream"] == "tele" and one["n"] == rows.num_rows and one["window_start"].startswith("2026-")


def test_an_unfinished_batch_and_rows_without_schema_are_no_fault(site: Site) -> None:
    """The driver was killed after the commit to bronze: the tables are compared as they were before."""
    batches = Batches(site.settings)
    site.fill()
    batches.all()
    site.fill()
    inner = Table.merge

    def fatal(*args: Any, **kwargs: Any) -> bool:
        raise KeyboardInterrupt

    Table.merge = fatal         # type: ignore[method-assign]
    try:
        with pytest.raises(KeyboardInterrupt):
            batches.one()
    finally:
        Table.merge = inner     # type: ignore[method-assign]
    assert site.table("bronze").rows() == 88
    found = site.found()
    assert found.faults == [] and found.shards[TELE]["bronze"] == 40 and found.batch == 0


def test_verify_names_what_to_do_after_a_killed_batch_and_a_compaction(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """It advised to stop a run that did not work any more."""
    monkeypatch.setattr(versions, "WAIT_S", 0)
    batches = Batches(site.settings)
    site.fill()
    batches.all()
    site.fill()
    with monkeypatch.context() as patch:
        patch.setattr(progress, "put_after", interrupted)
        with pytest.raises(KeyboardInterrupt):
            batches.one()
    for path in Path(site.settings.tables).rglob("*"):
        if path.is_file():
            os.utime(path, (path.stat().st_mtime - 3600,) * 2)
    assert list(tending.compact_all(site.settings))
    with pytest.raises(MosqPipelineError, match=r"a run was killed in batch 1, .*`mosq pipeline run --once` finishes the batch; then try again"):
        site.found()
    Batches(site.settings).all()
    assert site.found().faults == [] and site.found().batch == 1


def interrupted(*args: Any) -> None:
    raise KeyboardInterrupt


def test_retention_and_erasure_are_no_fault(site: Site) -> None:
    file = site.settings.file
    file.write_text(file.read_text() + '[retention]\nbronze = "3 days"\n"silver/telemetry" = "3 days"\n"gold/traffic" = "3 days"\n')
    site.settings = settings.load(file)
    now_us = int(datetime.datetime.now(datetime.UTC).timestamp() * 1e6)
    batches = Batches(site.settings)
    for days in (9, 5, 0):
        for journal in (site.journal, site.events):
            journal.now_us = now_us - days * 86_400_000_000
        site.fill()
        batches.all()
    tending.erase(site.settings, "c2", None, lambda line: None)
    for line in tending.compact_all(site.settings, 2):
        assert line
    found = site.found()
    assert found.faults == []
    assert found.shards[TELE]["removed"] == 80 + 13 and found.shards[TELE]["bronze"] == 27
    assert any("erased" in note for note in found.notes)
    record = site.table("removed").read().to_pylist()
    assert not any("c2" in str(row) for row in record), "it names no client"
    delete(site, "bronze", 81, 81)
    assert ("bronze", "missing", 81, 81) in faults(site.found())


def test_gaps_and_a_journal_that_retention_shortened(site: Site) -> None:
    batches = Batches(site.settings)
    site.fill()
    batches.all()
    shutil_free = site.settings.sources[0].journal
    shutil_free.rename(shutil_free.with_name("elsewhere"))
    found = site.found()
    assert found.faults == [] and found.shards[TELE]["journal"] == 0
    assert "the journal is not compared" in found.notes[0]


def test_the_command_has_an_exit_status_and_json(run: Site) -> None:
    def asked(*more: str) -> Any:
        return CliRunner().invoke(pipeline, ["verify", "-s", str(run.settings.file), *more], standalone_mode=False)

    good = asked()
    assert good.return_value == 0 and "Everything adds up, up to batch 2." in good.output and TELE in good.output
    assert json.loads(asked("--json").output)["adds_up"]
    delete(run, "bronze", 3, 3)
    bad = asked()
    assert bad.return_value == 2 and f"FAULT bronze: {TELE}, 3 to 3: missing, in the journal (1)" in bad.output
    assert json.loads(asked("--json").output)["faults"][0] == {
        "table": "bronze", "what": "missing, in the journal", "node": "here", "stream": "tele", "shard": 0, "from": 3, "to": 3, "n": 1}


def test_a_merge_of_files_changes_nothing(run: Site) -> None:
    before = run.found()
    assert upkeep.merge_files(run.table("bronze"), upkeep.Plan(at_least=2))[0]
    assert run.found() == before


@pytest.mark.parametrize("by_command", [True, False])
def test_the_records_of_deletions_are_merged(run: Site, by_command: bool) -> None:
    """Each erasure added a file that nothing merged."""
    for _ in range(upkeep.AT_LEAST):
        removed.record(run.settings, run.table("bronze"), pc.field("client_id") == "c2", None)
    before = removed.read(run.settings)
    assert len(run.table(removed.NAME).files()) == upkeep.AT_LEAST
    if by_command:
        assert f"removed: {upkeep.AT_LEAST} files merged into 1" in list(tending.compact_all(run.settings))
    else:
        progress.put(run.settings.checkpoints / tending.DONE, {"at": 0.0, "full_at": 0.0})      # the last ones are long ago
        batches = Batches(run.settings)
        while batches.jobs.tending.is_due():
            batches.jobs.tending.step(batches.jobs.state)
    assert len(run.table(removed.NAME).files()) == 1 and len(before) > upkeep.AT_LEAST
    assert sorted(map(str, removed.read(run.settings))) == sorted(map(str, before))
    removed.record(run.settings, run.table("bronze"), pc.field("client_id") == "c1", None)
    assert len(removed.read(run.settings)) > len(before)


def test_a_first_run_on_a_journal_that_retention_has_shortened(tmp_path: Path) -> None:
    """Spark's first offset has no `from`: the batch begins at the oldest record, and not at 0."""
    journal = Journal(tmp_path / "streams", "tele", retain_bytes=60_000, segment_bytes=1 << 14)
    for _ in range(30):
        journal.fill(4, size=700)
    assert journal.face.retain(journal.now_us) and journal.face.mark(journal.now_us)
    first = Stream(journal.path).marks()[0].first_seq
    assert first > 0
    (tmp_path / "pipeline.toml").write_text(SETTINGS)
    found = settings.load(tmp_path)
    assert Batches(found).all() == 1
    result = verify.verify(found)
    assert result.faults == [] and result.shards[TELE]["from"] == first and result.shards[TELE]["bronze"] == 120 - first
    journal.close()


def test_tables_without_the_node_of_a_cluster_get_the_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pipeline.toml").write_text(SETTINGS)
    found = settings.load(tmp_path)
    with contextlib.closing(Journal(tmp_path / "streams", "tele", node=b"a.1")) as journal:
        for n, schema in ((3, pa.schema([field for field in columns.BRONZE if field.name != "cluster_node"])), (2, columns.BRONZE)):
            with monkeypatch.context() as patch:        # the first batch is one of an earlier version
                patch.setattr(columns, "BRONZE", schema)
                patch.setattr(task, "BRONZE", schema)
                journal.fill(n)
                Batches(found).all()
        for _ in range(2):
            bronze = Table.open(place_of(found), "bronze")
            assert bronze is not None
            rows = bronze.read(columns=["seq", "cluster_node"]).sort_by("seq").to_pylist()
            assert [row["cluster_node"] for row in rows] == [None] * 3 + ["a.1"] * 2
            assert verify.verify(found).adds_up
            tending.compact_all(found, 2)
