"""Test fields of messages whose names the tables or their readers use themselves."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from mosq.pipeline import settings
from mosq.pipeline.duck import Duck
from mosq.pipeline.lake.places import place_of
from mosq.pipeline.lake.table import KEPT_S, Table
from mosq.pipeline.rows.found import FIELDS_MAX, OTHERS
from mosq.pipeline.runs import progress, status, tending, verify
from tests.pipeline.batches import Batches
from tests.pipeline.journals import Journal

SETTINGS = """
[pipeline]
journal = "streams"
node = "here"
[[silver]]
name = "guessed"
topic = "guess/#"
format = "json"
"""


def load(folder: Path) -> settings.Settings:
    (folder / "pipeline.toml").write_text(SETTINGS)
    return settings.load(folder)


@pytest.mark.parametrize(("type", "value"), [
    ("BIGINT", 1), ("STRING", "x"), ("BOOLEAN", True), ("STRUCT<a: BIGINT>", {"a": 1}), ("ARRAY<BIGINT>", [1]), ("DECIMAL(38, 0)", 10**30), ("TIMESTAMP", "2026-01-01T00:00:00Z"),
])
def test_a_field_with_the_name_of_a_column_of_gold(tmp_path: Path, type: str, value: object) -> None:
    """The files had statistics of such a field: an object stopped each batch, and a number stopped the upkeep."""
    with contextlib.closing(Journal(tmp_path / "streams")) as journal:
        found = load(tmp_path)
        batches = Batches(found)
        batches.jobs.declare({"guessed": f"window_start {type}"})
        for _ in range(3):
            journal.put("guess/1", json.dumps({"window_start": value}).encode())
            journal.commit()
            batches.all()
        assert "silver/guessed: 3 files merged into 1" in list(tending.compact_all(found))
        table = Table.open(place_of(found), "silver/guessed")
        assert table is not None and table.read()["window_start"].null_count == 0 and table.rows() == 3
        assert table.kept_s == KEPT_S
        assert verify.verify(found).faults == []


def test_a_name_with_quotation_marks_is_no_sql(tmp_path: Path) -> None:
    """DuckDB's view showed the rows of bronze in the place of those of silver."""
    name = 'topic"FROM"bronze"--'
    with contextlib.closing(Journal(tmp_path / "streams")) as journal:
        found = load(tmp_path)
        batches = Batches(found)
        batches.jobs.declare({"guessed": f"`{name}` BIGINT"})
        journal.put("guess/1", json.dumps({name: 5}).encode())
        journal.put("other", b"of nobody else")
        journal.commit()
        batches.all()
        with contextlib.closing(Duck(found)) as duck:
            assert [row[name] for row in duck.query("SELECT * FROM silver_guessed").to_pylist()] == [5]


def test_a_field_whose_name_is_empty_is_counted_by_its_name(tmp_path: Path) -> None:
    """It was counted as "...", which stands for all fields beyond the limit."""
    with contextlib.closing(Journal(tmp_path / "streams")) as journal:
        found = load(tmp_path)
        batches = Batches(found)
        batches.jobs.declare({"guessed": "a BIGINT"})
        for value in range(3):
            journal.put("guess/1", json.dumps({"a": 1, "": value}).encode())
        journal.commit()
        batches.all()
        assert progress.after(found)["fields"] == {"guessed": {"": 3}}
        assert any('guessed: 1 new fields (""); they are in the column _rescued' in line for line in batches.lines)
        assert 'silver guessed: fields that came after its schema: "" (3)' in status.text(status.status(found))
        table = Table.open(place_of(found), "silver/guessed")
        assert table is not None and table.schema.names[-2:] == ["a", "_rescued"]
        assert table.read()["_rescued"].to_pylist() == ['{"":0}', '{"":1}', '{"":2}']
        assert verify.verify(found).faults == []


def test_the_fields_beyond_the_limit_have_no_name(tmp_path: Path) -> None:
    with contextlib.closing(Journal(tmp_path / "streams")) as journal:
        found = load(tmp_path)
        batches = Batches(found)
        batches.jobs.declare({"guessed": "a BIGINT"})
        for i in range(FIELDS_MAX + 5):
            journal.put("guess/1", json.dumps({f"f{i}": i}).encode())
        journal.put("guess/1", b'{"": 1}')
        journal.commit()
        batches.all()
        counts = progress.after(found)["fields"]["guessed"]
        assert len(counts) == FIELDS_MAX + 1 and counts[OTHERS] == 6 and "" not in counts
