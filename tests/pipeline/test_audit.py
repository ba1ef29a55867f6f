"""Test that the audit of all sessions reads the remembered result and the later batches, and no more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mosq.pipeline import audit, settings, state, tables
from mosq.pipeline.runs import compaction, status

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
BATCHES = 6


def row(seq: int, client: str, session: int, **counters: Any) -> dict[str, Any]:
    told = dict.fromkeys(audit.COUNTERS, 0) | {"ended": False} | counters
    key = {"stream": "events", "shard": 0, "seq": seq, "time": BEGIN + timedelta(minutes=seq), "client_id": client}
    return key | {"session": session} | told


def batch(i: int) -> pa.Table:
    """Return four sessions: one continues, one was wrong once, the counters of one fall, and one ends."""
    rows = [row(10 * i, "good", 1, published=10 * i, acknowledged=9 * i, queued=i),
            row(10 * i + 1, "once", 2, published=i, acknowledged=i + (i == 1)),
            row(10 * i + 2, "falls", 3, published=i, acknowledged=i, delivered=7 - i),
            row(10 * i + 3, f"ended-{i}", 4, published=3, gone=3, ended=True)]
    return audit.with_difference(pa.Table.from_pylist(rows, schema=pa.schema(list(audit.NONE.schema)[:-1])))


@pytest.fixture
def found(tmp_path: Path) -> settings.Settings:
    (tmp_path / "streams").mkdir()
    (tmp_path / "pipeline.toml").write_text('[pipeline]\njournal = "streams"\n')
    found = settings.load(tmp_path)
    for i in range(BATCHES):
        tables.write_arrow(batch(i), found.table("gold/backlog"), i, "query")
    state.put_after(found, state.empty() | {"batch": BATCHES - 1})
    return found


def test_remembered_batches_are_not_read_again(found: settings.Settings) -> None:
    wanted = status.status(found, with_audit=True)["audit"]
    assert (wanted["sessions"], wanted["sessions_wrong"]) == (3 + BATCHES, 2) and wanted["totals"]["published"] == 50 + 5 + 5 + 3 * BATCHES
    assert wanted["examples"] == ["falls (session 3): counters went down, or an earlier row did not add up",
                                  "once (session 2): counters went down, or an earlier row did not add up"]
    for upto in (2, 3):
        audit.remember(found, upto)
        for path in tables.files(found.table("gold/backlog"), upto):
            path.write_text("whoever reads this fails")
        assert status.status(found, with_audit=True)["audit"] == wanted
    assert [path.name for path in (found.checkpoints / audit.REMEMBERED).iterdir()] == ["3.parquet"]


def test_rows_moved_by_a_compaction_count_once(found: settings.Settings) -> None:
    wanted = status.status(found, with_audit=True)["audit"]
    audit.remember(found, 3)
    assert compaction.compact(found.table("gold/backlog"), BATCHES - 1) == (BATCHES, 1)
    assert status.status(found, with_audit=True)["audit"] == wanted


def test_many_rows_are_folded_in_parts(found: settings.Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = audit.all_sessions(found).sort_by("seq")
    monkeypatch.setattr(audit, "FOLD_ROWS", 5)
    assert audit.all_sessions(found).sort_by("seq").equals(wanted)
    (found.checkpoints / audit.REMEMBERED).mkdir(parents=True)
    assert audit._remembered(found) is None


def test_files_that_vanish_are_listed_again(found: settings.Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = status.status(found, with_audit=True)["audit"]
    audit.remember(found, 2)
    looked = []

    def remembered(of: settings.Settings) -> Path | None:
        path = max((of.checkpoints / audit.REMEMBERED).iterdir())
        looked.append(path.name)
        if len(looked) == 1:
            audit.remember(of, 3)           # a run at the same time
        return path

    monkeypatch.setattr(audit, "_remembered", remembered)
    assert status.status(found, with_audit=True)["audit"] == wanted
    assert looked == ["2.parquet", "2.parquet", "3.parquet"]
