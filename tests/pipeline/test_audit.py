"""Test the audit: events as the broker writes them, unreadable ones, and all sessions over many batches."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mosq.cli.pipeline import commands
from mosq.pipeline import audit, settings
from mosq.pipeline.rows.tables import QUARANTINE
from mosq.pipeline.runs import jobs, progress, status, tending
from tests.pipeline import lake_tables

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
BATCHES = 6
ACCOUNT, GAP = 9, 10


def event(seq: int, client: str, kind: int, payload: bytes | None) -> dict[str, Any]:
    time = BEGIN + timedelta(minutes=seq)
    return {"date": time.date(), "node": "n", "stream": "events", "shard": 0, "seq": seq, "time": time, "topic": None, "client_id": client,
            "kind": kind, "payload": payload}


def account(seq: int, client: str, session: int, **counters: Any) -> dict[str, Any]:
    counts = dict.fromkeys(audit.COUNTERS, 0) | {"session": session, "ended": False} | counters
    return event(seq, client, ACCOUNT, json.dumps(counts).encode())


def batch(i: int) -> pa.Table:
    """Return four sessions: one continues, one was wrong once, the counters of one fall, and one ends."""
    rows = [account(10 * i, "good", 1, published=10 * i, acknowledged=9 * i, queued=i),
            account(10 * i + 1, "once", 2, published=i, acknowledged=i + (i == 1)),
            account(10 * i + 2, "falls", 3, published=i, acknowledged=i, delivered=7 - i),
            account(10 * i + 3, f"ended-{i}", 4, published=3, gone=3, ended=True)]
    backlog, bad, lost = audit.accounts(pa.Table.from_pylist(rows, audit.EVENTS))
    assert (backlog.num_rows, bad.num_rows, lost) == (4, 0, 0)
    return backlog


def test_events_that_are_not_in_the_format_go_to_the_quarantine() -> None:
    whole = json.dumps({"session": 1, **dict.fromkeys(audit.COUNTERS, 0), "ended": True}).encode()
    wrong = [None, b"", b"[]", b"{", b"\xff", b"[" * 100_000, whole.replace(b"true", b"1"), whole.replace(b"0", b"true", 1),
             whole.replace(b"0", b"0.5", 1), whole.replace(b"0", b"9" * 30, 1), whole.replace(b'"gone"', b'"none"')]
    rows = [event(i, "c", ACCOUNT, payload) for i, payload in enumerate(wrong)]
    rows += [event(50, "", GAP, b'{"lost": 7}'), event(51, "", GAP, b'{"lost": 5}'), event(52, "", GAP, b"{}"), event(53, "c", ACCOUNT, whole)]
    backlog, bad, lost = audit.accounts(pa.Table.from_pylist(rows, audit.EVENTS))
    assert backlog["seq"].to_pylist() == [53] and backlog["difference"].to_pylist() == [0] and backlog.schema == audit.SCHEMA
    assert bad["seq"].to_pylist() == [*range(len(wrong)), 52] and lost == 12
    assert set(bad["reason"].to_pylist()) == {audit.UNREADABLE} and bad["payload"].to_pylist()[2] == b"[]"


@pytest.fixture
def found(tmp_path: Path) -> settings.Settings:
    found = lake_tables.load(tmp_path)
    for i in range(BATCHES):
        lake_tables.put(found, "gold/backlog", batch(i))
    return found


def test_sessions_over_all_batches(found: settings.Settings) -> None:
    shown = status.status(found, with_audit=True)["audit"]
    assert (shown["sessions"], shown["sessions_wrong"]) == (3 + BATCHES, 2) and shown["totals"]["published"] == 50 + 5 + 5 + 3 * BATCHES
    assert shown["examples"] == ["falls (node n, session 3): counters went down, or an earlier row did not add up",
                                "once (node n, session 2): counters went down, or an earlier row did not add up"]


def test_an_alarm_names_no_client_that_was_erased(found: settings.Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The state of the run keeps the number of rows, and no names."""
    now: dict[str, Any] = {"audit": {"rows": 0, "wrong": 0, "lost_events": 0, "examples": ["once: of an earlier version"]}, "rows": {}, "quarantine": {}}
    jobs._audited(now, batch(1), QUARANTINE.empty_table(), 0)
    assert now["audit"] == {"rows": 4, "wrong": 1, "lost_events": 0, "examples": []}
    monkeypatch.setattr(progress, "after", lambda settings: now)
    for name, said in (("once", True), ("falls", True), ("once", False)):
        assert commands._alarm(found) == commands.EXIT_ALARM
        assert (f"  {name} (node n, session " in capsys.readouterr().err) is said
        if name == "falls":
            assert tending.erase(found, "once", None, lambda line: None)


def test_many_rows_are_folded_in_parts(found: settings.Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = audit.all_sessions(found).sort_by("seq")
    monkeypatch.setattr(audit, "FOLD_ROWS", 5)
    assert audit.all_sessions(found).sort_by("seq").equals(wanted)


def test_without_a_table_there_is_no_session(tmp_path: Path) -> None:
    assert audit.of_sessions(audit.all_sessions(lake_tables.load(tmp_path))).num_rows == 0
