"""Test that DuckDB reads the files of a table itself, with the same columns and rows as `deltalake` says."""

from __future__ import annotations

import contextlib
import datetime
import io
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from mosq.cli.commands import main
from mosq.pipeline import MosqPipelineError
from mosq.pipeline.duck import Duck
from tests.pipeline.lake_tables import load, put

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime.datetime(2026, 11, 23, 12, tzinfo=datetime.UTC)
SILVER = pa.schema([("date", pa.date32()), ("time", pa.timestamp("us", tz="UTC")), ("seq", pa.int64()), ("temp", pa.decimal128(38, 0))])


def bronze(seq: int) -> dict[str, Any]:
    return {"stream": "tele", "shard": 0, "seq": seq, "time": NOW, "kind": 1, "topic": "a/b", "payload": b"\x00%d" % seq}


def by_itself(duck: Duck, name: str) -> bool:
    return bool(duck.base.execute(f"SELECT count(*) FROM duckdb_views() WHERE view_name = '{name}' AND sql LIKE '%read_parquet(%'").fetchall() == [(1,)])


def test_duckdb_reads_the_files_itself(tmp_path: Path) -> None:
    """Through a dataset of pyarrow a query took twice the time of plain Parquet."""
    folder = tmp_path / "it's here"
    folder.mkdir()
    found = load(folder, '[[silver]]\nname = "x"\ntopic = "#"\nformat = "json"\n')
    put(found, "bronze", [bronze(0), bronze(1)])
    table = put(found, "silver/x", [{"time": NOW, "seq": 0, "temp": 2**53 + 1}, {"time": None, "seq": 1, "temp": None}], SILVER)
    with contextlib.closing(Duck(found)) as duck:
        assert by_itself(duck, "bronze") and by_itself(duck, "silver_x")
        types = {name: type for name, type, *_ in duck.base.execute("DESCRIBE bronze").fetchall()}
        assert (types["date"], types["kind"], types["payload"], types["time"]) == ("DATE", "TINYINT", "BLOB", "TIMESTAMP WITH TIME ZONE")
        assert duck.base.execute("SELECT date, seq, payload FROM bronze ORDER BY seq").fetchall() == [(NOW.date(), 0, b"\x000"), (NOW.date(), 1, b"\x001")]
        assert duck.base.execute("SELECT seq FROM silver_x WHERE date IS NULL").fetchall() == [(1,)]
        table.add_columns([pa.field("more", pa.string())])
        put(found, "bronze", [bronze(2)])
        duck.refresh()
        assert duck.base.execute("SELECT count(*), max(seq) FROM bronze").fetchall() == [(3, 2)]
        assert not by_itself(duck, "silver_x"), "no file has the new column yet"
        assert duck.base.execute("SELECT seq, temp, more FROM silver_x ORDER BY seq").fetchall() == [(0, 2**53 + 1, None), (1, None, None)]
        put(found, "silver/x", [{"time": NOW, "seq": 2, "temp": 5, "more": "m"}], table.refresh().schema)
        duck.refresh()
        assert by_itself(duck, "silver_x")
        assert duck.base.execute("SELECT seq, temp, more FROM silver_x ORDER BY seq").fetchall() == [(0, 2**53 + 1, None), (1, None, None), (2, 5, "m")]


def test_the_advice_without_duckdb_names_duckdb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MosqPipelineError, match="pip install 'duckdb"):
        Duck(load(tmp_path, ""))


def test_an_erasure_that_is_not_confirmed_names_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = load(tmp_path, "")
    put(found, "bronze", [bronze(0)])
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert main(["pipeline", "erase", "--topic", "a/b", "-s", str(found.file)]) == 1
    assert "--yes erases without a question" in capsys.readouterr().err


def test_each_statement_prints_its_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The command printed the last result only, and rounded numbers to ten digits."""
    found = load(tmp_path, "")
    put(found, "bronze", [bronze(0)])
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT 1.0::DOUBLE AS a;\nSELECT 9007199254740993 AS b, 123456789012.25::DOUBLE AS c;\nSELECT nothing;\n"))
    assert main(["pipeline", "sql", "--format", "csv", "-s", str(found.file)]) == 1
    said = capsys.readouterr()
    assert said.out == "a\n1\n\nb,c\n9007199254740993,123456789012.25\n" and "nothing" in said.err
