"""Test tables on Delta Lake without Spark: commits that happen once, sums, upkeep, places, and the lock."""

from __future__ import annotations

import datetime
import fcntl
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from mosq.pipeline import MosqPipelineError
from mosq.pipeline.lake import lock, upkeep
from mosq.pipeline.lake.parts import Part, PartWriter
from mosq.pipeline.lake.places import Place, absolute
from mosq.pipeline.lake.table import Table

TIME = pa.timestamp("us", tz="UTC")
ROWS = pa.schema([("date", pa.date32()), ("seq", pa.int64()), ("time", TIME), ("topic", pa.string()), ("client_id", pa.string()), ("payload", pa.binary())])
SUMS = pa.schema([("date", pa.date32()), ("window_start", TIME), ("topic", pa.string()), ("n", pa.int64()), ("most", pa.int64())])
NOW = datetime.datetime(2026, 11, 23, 12, tzinfo=datetime.UTC)
KEYS = ["date", "window_start", "topic"]


def rows(*seqs: int, day: int = 0, client: str = "c") -> pa.Table:
    at = NOW + datetime.timedelta(days=day)
    found = [{"date": at.date(), "seq": seq, "time": at, "topic": f"t/{seq % 3}", "client_id": client, "payload": b"%d" % seq} for seq in seqs]
    return pa.Table.from_pylist(found, ROWS)


def written(place: Place, table: pa.Table, name: str = "bronze") -> list[Part]:
    writer = PartWriter(place, name, table.schema)
    writer.write(table)
    return writer.close()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "tables"))


@pytest.fixture
def bronze(place: Place) -> Table:
    return Table.create(place, "bronze", ROWS, "id")


def seqs(place: Place, name: str = "bronze", where: str = "true") -> list[int]:
    """Read the table with another program than the one that wrote it."""
    with duckdb.connect() as base:
        base.register("found", DeltaTable(f"{place.uri}/{name}").to_pyarrow_dataset())
        return [seq for (seq,) in base.execute(f"SELECT seq FROM found WHERE {where} ORDER BY seq").fetchall()]


# ---- commits

def test_a_commit_happens_once_and_says_what_it_has(place: Place, bronze: Table) -> None:
    parts = written(place, rows(1, 2, 3))
    assert seqs(place) == [], "files are invisible until a commit names them"
    assert bronze.append(parts, "app", 0, {"rows": 3, "ranges": {"tele/0": [1, 4]}})
    assert not bronze.append(written(place, rows(1, 2, 3)), "app", 0, {})
    assert not Table.open(place, "bronze").append(written(place, rows(1, 2, 3)), "app", 0, {})  # type: ignore[union-attr]
    assert seqs(place) == [1, 2, 3] and bronze.rows() == 3 and bronze.done("app") == 0 and bronze.done("other") == -1
    assert bronze.metadata(1)[0]["ranges"] == '{"tele/0": [1, 4]}'
    assert bronze.read(pc.field("seq") > 1, ["seq", "payload"]).to_pylist() == [{"seq": 2, "payload": b"2"}, {"seq": 3, "payload": b"3"}]


def test_rows_of_several_dates_lie_in_a_folder_for_each(place: Place, bronze: Table) -> None:
    both = pa.concat_tables([rows(1, 2), rows(3, day=1), rows(4).set_column(0, "date", pa.array([None], pa.date32()))])
    parts = written(place, both)
    assert sorted((part.date, part.rows) for part in parts) == [("", 1), ("2026-11-23", 2), ("2026-11-24", 1)]
    bronze.append(parts, "app", 0, {})
    assert sorted(str(row["date"]) for row in bronze.read().to_pylist()) == ["2026-11-23", "2026-11-23", "2026-11-24", "None"]
    assert all(part.size == (place.path / "bronze" / part.path).stat().st_size for part in parts)


def test_of_two_writers_of_one_number_only_one_commits(place: Place, bronze: Table) -> None:
    """An orphan read the table before the other writer committed."""
    orphan = Table.open(place, "bronze")
    assert orphan is not None
    orphan.refresh = lambda: orphan  # type: ignore[method-assign]
    assert bronze.append(written(place, rows(1)), "app", 0, {})
    with pytest.raises(MosqPipelineError, match="another program changes this table at the same time"):
        orphan.append(written(place, rows(1)), "app", 0, {})
    assert seqs(place) == [1]


def test_a_table_of_another_set_is_refused(place: Place, bronze: Table) -> None:
    with pytest.raises(MosqPipelineError, match="belongs to another set of tables"):
        Table.create(place, "bronze", ROWS, "other")
    assert Table.open(place, "silver/none") is None and not (place.path / "silver").exists()


def test_columns_are_added_and_old_rows_have_null(place: Place, bronze: Table) -> None:
    bronze.append(written(place, rows(1)), "app", 0, {})
    new = [pa.field("big", pa.decimal128(38, 0)), pa.field("deep", pa.struct([("x", pa.list_(pa.int64()))])), pa.field("SEQ", pa.string())]
    assert bronze.add_columns(new) and not bronze.add_columns(new)
    assert bronze.schema.names == [*ROWS.names, "big", "deep"]
    bronze.append(written(place, pa.Table.from_pylist([rows(2).to_pylist()[0] | {"big": 10 ** 37, "deep": {"x": [1]}}], bronze.schema)), "app", 1, {})
    assert [(row["big"], row["deep"]) for row in bronze.read().sort_by("seq").to_pylist()] == [(None, None), (10 ** 37, {"x": [1]})]


def test_a_replace_switches_rows_and_columns_in_one_commit(place: Place, bronze: Table) -> None:
    bronze.append(written(place, rows(1, 2)), "app", 0, {})
    reader = Table.open(place, "bronze")
    schema = pa.schema([("date", pa.date32()), ("seq", pa.string())])
    parts = written(place, pa.Table.from_pylist([{"date": NOW.date(), "seq": "x"}], schema))
    assert seqs(place) == [1, 2]
    assert bronze.replace(parts, "app/rebuild", 7, schema) and not bronze.replace(parts, "app/rebuild", 7, schema)
    assert reader is not None and sorted(reader.read(columns=["seq"])["seq"].to_pylist()) == [1, 2], "a snapshot stays"
    assert bronze.read().to_pylist() == [{"date": NOW.date(), "seq": "x"}]
    assert bronze.identity == "id" and bronze.done("app") == 0 and bronze.partition_by == ["date"]


def test_a_deleted_table_is_an_error_and_not_a_new_one(place: Place, bronze: Table) -> None:
    place.path.rename(place.path.with_name("unmounted"))
    with pytest.raises(MosqPipelineError, match="is the storage of the tables mounted"):
        written(place, rows(1))
    with pytest.raises(MosqPipelineError, match="is its storage mounted"):
        bronze.append([], "app", 0, {})
    assert not place.path.exists()


# ---- sums

def test_sums_equal_naive_sums_with_few_rows_written_again(place: Place) -> None:
    dice = random.Random(1)
    gold = Table.create(place, "gold/traffic", SUMS, "id")
    wanted: Counter[Any] = Counter()
    most: dict[Any, int] = {}
    for batch in range(60):
        window = NOW + datetime.timedelta(minutes=batch // 10 - (5 if dice.random() < 0.1 else 0))
        found = []
        for topic in sorted({dice.choice(["", "a", "b", "c"]) for _ in range(3)}):
            n, top = dice.randrange(100), dice.randrange(100)
            key = (window, topic)
            wanted[key] += n
            most[key] = max(most.get(key, 0), top)
            found.append({"date": window.date(), "window_start": window, "topic": topic, "n": n, "most": top})
        table = pa.Table.from_pylist(found, SUMS)
        assert gold.merge(table, KEYS, {"n": "sum", "most": "max"}, "app", batch)
        assert not gold.merge(table, KEYS, {"n": "sum", "most": "max"}, "app", batch)
        if batch == 40:
            upkeep.tend(gold, upkeep.Plan(closed=NOW + datetime.timedelta(minutes=3), at_least=2))
    got = {(row["window_start"], row["topic"]): (row["n"], row["most"]) for row in gold.read().to_pylist()}
    assert len(got) == gold.rows()
    assert got == {key: (wanted[key], most[key]) for key in wanted}
    assert len(gold.files()) <= 20


def test_sums_while_another_process_merges_files(place: Place) -> None:
    """A conflict is resolved by doing the merge of rows again."""
    gold = Table.create(place, "gold/traffic", SUMS, "id")
    one = pa.Table.from_pylist([{"date": NOW.date(), "window_start": NOW, "topic": "a", "n": 1, "most": 1}], SUMS)
    later = pa.Table.from_pylist([one.to_pylist()[0] | {"window_start": NOW + datetime.timedelta(hours=1)}], SUMS)
    gold.merge(later, KEYS, {"n": "sum", "most": "max"}, "other", 0)
    gold.merge(one, KEYS, {"n": "sum", "most": "max"}, "app", 0)
    inner, calls = gold._merging, []

    def with_a_compaction(*args: Any) -> Any:
        actions = inner(*args)
        if not calls:
            other = Table.open(place, "gold/traffic")
            assert other is not None
            other.handle.optimize.compact()
        calls.append(1)
        return actions

    gold._merging = with_a_compaction  # type: ignore[method-assign]
    assert gold.merge(one, KEYS, {"n": "sum", "most": "max"}, "app", 1)
    assert len(calls) == 2 and sorted(row["n"] for row in gold.read().to_pylist()) == [1, 2]


# ---- upkeep

@pytest.mark.parametrize("first", ["merge of files", "erasure"])
def test_an_erasure_beside_a_merge_of_files(place: Place, bronze: Table, first: str) -> None:
    """Neither brings back erased rows, nor doubles others."""
    fill(place, bronze, 4)
    late = Table.open(place, "bronze")
    assert late is not None
    if first == "erasure":
        assert upkeep.erase([bronze], None, "t/0", lambda line: None) == 2
        late.refresh = lambda: late  # type: ignore[method-assign]
        assert upkeep.merge_files(late, upkeep.Plan(at_least=2)) == (0, 0), "the next upkeep does it"
    else:
        inner, at = late.refresh, late.version

        def refresh() -> Table:
            return late if late.version == at and not done else inner()

        done: list[int] = []
        late.refresh = refresh  # type: ignore[method-assign]
        assert upkeep.merge_files(bronze, upkeep.Plan(at_least=2)) == (4, 1)
        with pytest.raises(MosqPipelineError, match="another program changes"):
            upkeep.erase([late], None, "t/0", lambda line: None)
        done.append(1)
        assert upkeep.erase([late], None, "t/0", lambda line: None) == 2
    assert seqs(place) == [1, 2]


def fill(place: Place, bronze: Table, n: int, day: int = 0) -> None:
    for _ in range(n):
        batch = bronze.done("app") + 1
        bronze.append(written(place, rows(batch, day=day)), "app", batch, {})


def test_upkeep_merges_files_and_a_reader_keeps_its_snapshot(place: Place, bronze: Table) -> None:
    fill(place, bronze, 20)
    reader = Table.open(place, "bronze")
    assert "20 files merged into 1" in upkeep.tend(bronze, upkeep.Plan())
    assert len(bronze.files()) == 1 and seqs(place) == list(range(20))
    assert reader is not None and sorted(reader.read()["seq"].to_pylist()) == list(range(20)), "its files are kept for a time"
    assert upkeep.clean(bronze, kept_s=0) == 20
    assert len(list(place.path.glob("bronze/date=*/*.parquet"))) == 1 and seqs(place) == list(range(20))
    assert bronze.done("app") == 19, "the numbers of batches survive the deletion of old logs"


def test_old_logs_are_deleted(place: Place, bronze: Table) -> None:
    fill(place, bronze, 30)
    old = NOW.timestamp() - 10 * 86_400
    log = place.path / "bronze/_delta_log"
    for path in log.glob("*.json"):
        os.utime(path, (old, old))
    upkeep.clean(bronze)
    assert [path.name for path in sorted(log.glob("0*"))] == [f"{30:020}.checkpoint.parquet", f"{30:020}.json"]
    again = Table.open(place, "bronze")
    assert again is not None and again.done("app") == 29 and again.identity == "id" and seqs(place) == list(range(30))


def aged(place: Place, seconds: float, first: int, last: int) -> None:
    """Let commits be that old."""
    at = time.time() - seconds
    for version in range(first, last + 1):
        os.utime(place.path / f"bronze/_delta_log/{version:020}.json", (at, at))


def test_a_reader_of_any_version_of_the_kept_time_finds_its_files(place: Place, bronze: Table) -> None:
    """Replaced files were kept for an hour, so a day of batches left more than 2,000."""
    fill(place, bronze, 10)
    upkeep.merge_files(bronze, upkeep.Plan())
    upkeep.clean(bronze, kept_s=3600)       # its checkpoint is in the middle of the log
    fill(place, bronze, 10)
    upkeep.merge_files(bronze, upkeep.Plan())
    aged(place, 700, 0, 18)
    aged(place, 500, 19, 22)
    newest = bronze.refresh().version
    assert newest == 22 and upkeep.clean(bronze) == 10, "the files of the first merge"
    for version in range(18, newest + 1):
        older = Table.open(place, "bronze", version)
        assert older is not None and sorted(older.read()["seq"].to_pylist()) == list(range(version - 1 if version < 22 else 20)), version
    assert not (place.path / f"bronze/_delta_log/{10:020}.json").exists()
    aged(place, 700, 11, 22)
    assert upkeep.clean(bronze) == 11 and len(list(place.path.glob("bronze/date=*/*.parquet"))) == 1


def test_a_file_of_yesterday_that_was_replaced_just_now_stays(place: Place, bronze: Table) -> None:
    fill(place, bronze, 8)
    long_ago = NOW.timestamp() - 400 * 86_400
    for path in place.path.glob("bronze/date=*/*.parquet"):
        os.utime(path, (long_ago, long_ago))
    reader = Table.open(place, "bronze")
    assert upkeep.tend(bronze, upkeep.Plan(full=True)) == "8 files merged into 1"
    assert reader is not None and sorted(reader.read()["seq"].to_pylist()) == list(range(8))


def test_a_file_that_a_restored_version_names_again_stays(place: Place, bronze: Table) -> None:
    fill(place, bronze, 8)
    upkeep.merge_files(bronze, upkeep.Plan())
    bronze.handle.restore(8)        # `adopt` does this with gold
    bronze.refresh()
    aged(place, 700, 0, bronze.version)
    assert upkeep.clean(bronze) == 1 and seqs(place) == list(range(8))
    upkeep.merge_files(bronze, upkeep.Plan())
    assert upkeep.clean(bronze) == 0, "a reader of the restored version may still need them"
    assert sorted(Table.open(place, "bronze", bronze.version - 1).read()["seq"].to_pylist()) == list(range(8))      # type: ignore[union-attr]


def test_a_handle_that_is_older_than_the_log_follows(place: Place, bronze: Table) -> None:
    """A table without rows for a day is not refreshed, while `compact` beside the run cleans its log."""
    old = Table.open(place, "bronze")
    fill(place, bronze, 10)
    upkeep.merge_files(bronze, upkeep.Plan())
    aged(place, 700, 0, bronze.version)
    upkeep.clean(bronze)
    fill(place, bronze, 1)
    assert old is not None and old.refresh().version == bronze.version and old.done("app") == 10
    old.append(written(place, rows(11)), "app", 11, {})
    assert seqs(place) == list(range(12))


@pytest.mark.parametrize("earlier", [False, True])
def test_files_without_a_version_are_deleted_beside_old_logs(place: Place, bronze: Table, earlier: bool) -> None:
    """`compact` ended with an error for the first table whose log it had shortened, and so did each full upkeep of a run."""
    fill(place, bronze, 10)
    upkeep.merge_files(bronze, upkeep.Plan())
    unknown = written(place, rows(20))
    aged(place, 700, 0, bronze.version)
    if earlier:
        upkeep.clean(bronze)
        fill(place, bronze, 1)
        aged(place, 700, bronze.version, bronze.version)
    long_ago = NOW.timestamp() - 400 * 86_400
    os.utime(place.path / "bronze" / unknown[0].path, (long_ago, long_ago))
    assert upkeep.clean(bronze, full=True) == (1 if earlier else 11)
    assert seqs(place) == list(range(11 if earlier else 10))


def test_nothing_is_deleted_while_a_program_of_mosq_reads(place: Place, bronze: Table) -> None:
    path = place.path / "readers.lock"
    with lock.reading(path), lock.reading(path), lock.deleting(path) as free:
        assert not free
    with lock.deleting(path) as free:
        assert free
    fill(place, bronze, 8)
    assert "deleted" not in upkeep.tend(bronze, upkeep.Plan(cleans=False))


def test_the_newest_date_is_merged_more_rarely(place: Place, bronze: Table) -> None:
    fill(place, bronze, 8)
    fill(place, bronze, 8, day=1)
    assert upkeep.merge_files(bronze, upkeep.Plan(newest_at_least=9)) == (8, 1)
    assert upkeep.merge_files(bronze, upkeep.Plan(newest_at_least=8)) == (8, 1)


@pytest.mark.parametrize("dice", [None, random.Random(3)])
def test_a_row_is_merged_again_only_when_its_file_doubles(dice: random.Random | None) -> None:
    """A merge that always took the file of the last one wrote each row of a day 35 times."""
    files: list[dict[str, int]] = []
    written = 0
    for _ in range(500):
        files += [{"n": 1 if dice is None else dice.randrange(1, 100)} for _ in range(8)]
        total = sum(one["n"] for one in files)
        merged = upkeep._doubling(files, "n")
        size = sum(one["n"] for one in merged)
        assert size >= 2 * max(one["n"] for one in merged)
        written += size
        files = [one for one in files if one not in merged] + [{"n": size}]
        assert sum(one["n"] for one in files) == total and len(files) <= math.log2(total) + 1
    assert written <= total * (math.log2(500) + 1)


def test_files_that_no_version_names_are_deleted_after_a_day(place: Place, bronze: Table) -> None:
    fill(place, bronze, 1)
    young, old = written(place, rows(5)), written(place, rows(6))
    long_ago = NOW.timestamp() - 400 * 86_400
    os.utime(place.path / "bronze" / old[0].path, (long_ago, long_ago))
    upkeep.tend(bronze, upkeep.Plan(full=True))
    assert (place.path / "bronze" / young[0].path).exists() and not (place.path / "bronze" / old[0].path).exists()
    assert bronze.append(young, "app", 1, {}) and seqs(place) == [0, 5]


def test_retention_deletes_whole_days(place: Place, bronze: Table) -> None:
    today = datetime.datetime.now(datetime.UTC)
    day = (today - NOW).days
    fill(place, bronze, 2, day=day - 10)
    fill(place, bronze, 2, day=day)
    assert upkeep.expire(bronze, 3 * 86_400 * 10**6) == 2 and seqs(place) == [2, 3]
    assert upkeep.expire(bronze, 3 * 86_400 * 10**6) == 0


def test_erasure_of_a_client_or_topic(place: Place, bronze: Table) -> None:
    bronze.append(written(place, rows(*range(6), client="o'neil")), "app", 0, {})
    bronze.append(written(place, rows(*range(6, 12))), "app", 1, {})
    said: list[str] = []
    assert upkeep.erase([bronze], "o'neil", "t/0", said.append) == 2 and seqs(place) == [1, 2, 4, 5, *range(6, 12)]
    assert upkeep.erase([bronze], "o'neil", None, said.append) == 4 and seqs(place) == list(range(6, 12))
    assert seqs(place, where="client_id = 'c' AND topic <> 'x'") == list(range(6, 12)), "readers can compare texts in files that were written again"
    assert upkeep.erase([bronze], None, "t/1", said.append) == 2
    assert said == ["bronze: 2 rows erased", "bronze: 4 rows erased", "bronze: 2 rows erased"]
    assert upkeep.erase([bronze], None, "none", said.append) == 0


# ---- places

@pytest.mark.parametrize(("text", "wanted"), [
    ("tables", "/here/tables"), ("/t", "/t"), ("file:///t/x", "/t/x"), ("s3a://bucket/tables/", "s3a://bucket/tables"), ("hdfs://host:8020/t", "hdfs://host:8020/t"),
    ("abfss://box@account.dfs.core.windows.net/t", "abfss://box@account.dfs.core.windows.net/t")])
def test_places(text: str, wanted: str) -> None:
    assert absolute(text, Path("/here")) == wanted


def test_a_uri_is_no_local_folder(tmp_path: Path) -> None:
    """It became the folder `./s3a:/bucket/tables`."""
    found = Place(absolute("s3a://bucket/tables", tmp_path))
    assert not found.is_local and found.delta == "s3://bucket/tables" and found.child("gold/late").spark == "s3a://bucket/tables/gold/late"
    with pytest.raises(MosqPipelineError, match="is not a folder of this machine"):
        _ = found.path
    for wrong in ("s3a:/bucket/tables", "ftp://host/x", "s3://"):
        with pytest.raises(MosqPipelineError, match="expected a"):
            absolute(wrong, tmp_path)


# ---- the lock

HOLDER = """
import subprocess, sys, time
from pathlib import Path
from mosq.pipeline.lake import lock
with lock.held(Path(sys.argv[1]), "busy") as held:
    orphan = subprocess.Popen(["sleep", "1000"], pass_fds=(held.fd,))
    print(orphan.pid, flush=True)
    time.sleep(1000)
"""


def test_the_lock_is_free_when_the_driver_and_its_jvm_are_dead(tmp_path: Path) -> None:
    """An orphaned JVM, here `sleep`, is stopped while the driver is killed, and continued later."""
    path = tmp_path / "checkpoints/lock"
    driver = subprocess.Popen([sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    orphan = int(driver.stdout.readline())
    with pytest.raises(MosqPipelineError, match=r"^busy$"), lock.held(path, "busy"):
        pass
    os.kill(orphan, signal.SIGSTOP)
    driver.kill()
    driver.wait()
    driver.stdout.close()
    said: list[str] = []
    with pytest.raises(MosqPipelineError, match=rf"process {driver.pid} was killed, but a process that it started"), lock.held(path, "busy", said.append, 0.3):
        pass
    assert said == [f"waiting for the end of Spark's JVM that the killed process {driver.pid} left behind"]
    os.kill(orphan, signal.SIGKILL)
    os.kill(orphan, signal.SIGCONT)
    with lock.held(path, "busy") as held:
        assert path.read_text() == f"{os.getpid()}\n"
        with path.open() as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert held.fd > 2
    with lock.held(path, "busy"):
        pass


@pytest.mark.parametrize("protocol", [
    {"minReaderVersion": 9, "minWriterVersion": 9},
    {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["teleportation"], "writerFeatures": ["teleportation"]},
    {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["teleportation"]},
])
def test_a_table_of_a_newer_protocol_is_refused(place: Place, bronze: Table, protocol: dict[str, Any]) -> None:
    """Test versions and features of Delta that deltalake does not know; a writer's feature still lets the table be read."""
    fill(place, bronze, 2)
    log = place.path / "bronze" / "_delta_log"
    before = sorted(path.name for path in (place.path / "bronze").rglob("*"))
    (log / f"{bronze.version + 1:020}.json").write_text(json.dumps({"protocol": protocol}) + "\n")

    def write() -> None:
        opened = Table.open(place, "bronze")
        assert opened is not None
        opened.append([], "app", 9, {})

    with pytest.raises(MosqPipelineError, match=r"/bronze: the table needs a newer program \(.*\): update mosq and deltalake"):
        write()
    (log / f"{bronze.version + 1:020}.json").unlink()
    assert sorted(path.name for path in (place.path / "bronze").rglob("*")) == before
