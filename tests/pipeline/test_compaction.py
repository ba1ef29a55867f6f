"""Test compaction beside readers, writers and kills: a reader finds every row once, or gets an error."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from mosq.pipeline import MosqPipelineError, state, tables
from mosq.pipeline.runs import compaction

ROWS = 20


def put(table: Path, batch: int, rows: int = ROWS) -> bool:
    values = pa.table({"n": pa.array(range(batch * ROWS, batch * ROWS + rows), pa.int64()), "t": pa.array([f"t{batch}"] * rows, pa.string())})
    return tables.write_arrow(values, table, batch, "query")


def read(table: Path) -> list[int]:
    found = duckdb.sql(f"SELECT n FROM read_parquet('{table}/{tables.GLOB}', hive_partitioning = true) ORDER BY n").fetchall()
    return [row[0] for row in found]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    for i in range(6):
        assert put(tmp_path / "t", i)
    return tmp_path / "t"


def test_the_rows_are_the_same_and_the_files_few(table: Path) -> None:
    assert compaction.compact(table, 4) == (5, 1)
    assert tables.batches(table) == [4, 5] and len(tables.files(table)) == 2
    assert read(table) == list(range(6 * ROWS))
    assert tables.count(table) == 6 * ROWS and tables.about(table)["compacted"] == 4
    assert not put(table, 2) and not put(table, 4)        # a batch in a merged one is not written again
    assert put(table, 6)
    assert compaction.compact(table, 6) == (3, 1) and compaction.compact(table, 6) == (0, 0)
    assert read(table) == list(range(7 * ROWS))
    assert sorted(path.name for path in table.parent.iterdir() if not path.name.endswith(".lock")) == ["t"]


def test_large_batches_stay_and_merged_batches_are_bounded(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(table, 6, rows=3 * ROWS)
    for i in range(9, 14):
        put(table, i)
    monkeypatch.setattr(compaction, "LARGE_ROWS", 3 * ROWS)
    assert compaction.compact(table, 12) == (9, 3)       # 0 to 2, 3 to 5, 6 alone, 9 to 11, 12 alone
    assert tables.batches(table) == [2, 5, 6, 11, 12, 13]


def test_a_batch_is_also_large_by_its_bytes(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compaction.compact(table, 2)
    before = tables.files(table, 2)
    monkeypatch.setattr(compaction, "LARGE_BYTES", max(path.stat().st_size for path in tables.files(table)))
    put(table, 6)
    assert compaction.compact(table, 6)[0] == 4 and tables.files(table, 2) == before
    assert read(table) == list(range(7 * ROWS))


def test_empty_batches_merge_into_an_empty_table(tmp_path: Path) -> None:
    for i in range(3):
        put(tmp_path / "t", i, rows=0)
    assert compaction.compact(tmp_path / "t", 2) == (3, 1) and read(tmp_path / "t") == []


def groups(table: Path) -> list[int]:
    said = [pq.read_metadata(path) for path in tables.files(table)]
    return [one.row_group(i).num_rows for one in said for i in range(one.num_row_groups)]


def test_small_row_groups_are_merged_with_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "t"
    for i in range(50):
        put(table, i)
    assert compaction.compact(table, 49) == (50, 1) and groups(table) == [50 * ROWS]
    large = pa.table({"n": pa.array(range(50 * ROWS, 50 * ROWS + 200), pa.int64()), "t": [os.urandom(500).hex() for _ in range(200)]})
    tables.write_arrow(large, table, 50, "query")
    monkeypatch.setattr(compaction, "GROUP_ROWS", 300)
    monkeypatch.setattr(compaction, "GROUP_BYTES", 50_000)
    read_at_once = [batch.num_rows for batch in compaction._batches(tables.files(table, 50))]
    assert max(read_at_once) < 100 and sum(read_at_once) == 200
    compaction.compact(table, 50)
    assert max(groups(table)) == 300 and sum(groups(table)) == 50 * ROWS + 200 and 4 < len(groups(table)) < 12
    assert read(table) == list(range(50 * ROWS + 200))


@pytest.mark.parametrize("at", ["_merge", "_exchange", "after"])
def test_a_kill_at_any_step_leaves_the_old_or_the_new_table(table: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    class Killed(BaseException):
        pass

    with monkeypatch.context() as patch:
        if at == "after":
            exchange = compaction._exchange

            def killed(*args: Path) -> None:
                exchange(*args)
                raise Killed

            patch.setattr(compaction, "_exchange", killed)
        else:
            inner = getattr(compaction, at)

            def killed(*args: object) -> None:
                if at == "_merge":
                    inner(*args)
                raise Killed

            patch.setattr(compaction, at, killed)
        with pytest.raises(Killed):
            compaction.compact(table, 5)
    assert read(table) == list(range(6 * ROWS))
    assert tables.batches(table) == ([5] if at == "after" else list(range(6)))
    put(table, 6)
    compaction.compact(table, 6)
    assert read(table) == list(range(7 * ROWS)) and tables.batches(table) == [6]
    assert left_over(table) == []


def left_over(table: Path) -> list[Path]:
    """Return the leftover files of the old table; the names of its batches may stay."""
    return [path for path in (table.parent / ".t.new").rglob("*") if not path.is_dir()]


def test_a_reader_with_the_old_folder_finds_all_rows(table: Path) -> None:
    with os.scandir(table) as opened:           # the folder is listed only now
        compaction.compact(table, 5)
        names = [entry.name for entry in opened if entry.name.startswith("batch_id=")]
    files = [path for name in names for path in (table / name).glob("*.parquet")]
    assert sorted(pq.read_table(files)["n"].to_pylist()) == list(range(6 * ROWS)) and left_over(table) == []


def test_concurrent_readers_find_each_row_once_or_an_error(tmp_path: Path) -> None:
    table = tmp_path / "t"
    n, done = 0, threading.Event()
    good = failed = 0
    wrong: list[object] = []
    written = [0]

    def reading() -> None:
        nonlocal good, failed
        with duckdb.connect() as base:
            while not done.is_set() or good == 0:
                before = written[0]
                if before == 0:
                    continue
                try:
                    count, distinct, most = base.execute(f"SELECT count(*), count(DISTINCT n), max(n) FROM read_parquet('{table}/{tables.GLOB}')").fetchone()  # type: ignore[misc]
                except duckdb.IOException:
                    failed += 1
                    continue
                good += 1
                if count != distinct or most != count - 1 or count < before * ROWS:
                    wrong.append((count, distinct, most, before))

    def arrow() -> None:
        while not done.is_set():
            before = written[0]
            try:
                rows = pyarrow.dataset.dataset([str(path) for path in tables.files(table)]).to_table() if before else None
            except (FileNotFoundError, pa.ArrowInvalid):
                continue
            if rows is not None and (len(set(rows["n"].to_pylist())) != rows.num_rows or rows.num_rows < before * ROWS):
                wrong.append(rows.num_rows)

    threads = [threading.Thread(target=reading), threading.Thread(target=arrow)]
    for thread in threads:
        thread.start()
    for _ in range(12):
        for _ in range(4):
            put(table, n)
            n += 1
            written[0] = n
        compaction.compact(table, n - 1)
    done.set()
    for thread in threads:
        thread.join()
    assert wrong == [] and good > 0


def test_unfinished_batches_stay_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mosq.pipeline import settings

    (tmp_path / "pipeline.toml").write_text('[pipeline]\njournal = "streams"\n')
    found = settings.load(tmp_path)
    for i in range(4):
        put(found.table("bronze"), i)
        put(found.table("gold/topics"), i)
        tables.write_arrow(pa.table({"n": [i]}), found.table("gold/whole"), i, None, whole=True)       # the last one counts
    assert list(compaction.compact_all(found, 2)) == ["bronze: nothing to merge", "gold/topics: nothing to merge"]
    state.put_after(found, state.empty() | {"batch": 2})
    assert list(compaction.compact_all(found, 2)) == ["bronze: 3 batches merged into 1", "gold/topics: 3 batches merged into 1"]
    assert tables.batches(found.table("bronze")) == [2, 3]


def test_a_batch_that_is_written_while_tables_are_listed_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test that a writer may remove the folders of Spark's tasks at any time, also folders that were just listed."""
    from mosq.pipeline import settings

    (tmp_path / "pipeline.toml").write_text('[pipeline]\njournal = "streams"\n')
    found = settings.load(tmp_path)
    put(found.table("bronze"), 0)
    state.put_after(found, state.empty() | {"batch": 0})
    (found.table("bronze") / ".tmp-1/_temporary/0").mkdir(parents=True)
    scandir = os.scandir

    def gone(path: str | Path = ".") -> object:
        if ".tmp-1" in str(path):
            raise FileNotFoundError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", gone)
    assert list(compaction.compact_all(found, 2)) == ["bronze: nothing to merge"]


def test_a_damaged_file_stops_the_compaction_without_changes(table: Path) -> None:
    path = tables.files(table, 3)[0]
    raw = path.read_bytes()
    path.write_bytes(raw[:len(raw) // 2])
    with pytest.raises((pa.ArrowInvalid, OSError)):
        compaction.compact(table, 5)
    assert tables.batches(table) == list(range(6))


def test_concurrent_runs_and_unsupported_file_systems_are_refused(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with compaction._alone(table), pytest.raises(MosqPipelineError, match="compacted by another process"):
        compaction.compact(table, 5)
    monkeypatch.setattr(compaction, "RENAME_EXCHANGE", 0xFF)        # flags that no file system supports: EINVAL
    with pytest.raises(MosqPipelineError, match="cannot exchange two folders"):
        compaction.compact(table, 5)
    assert read(table) == list(range(6 * ROWS)) and os.listdir(table.parent)
