"""Test the command line, and the output of `run` while it runs."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkContext

from mosq.cli import pipeline_demo
from mosq.cli.commands import main
from mosq.cli.pipeline import commands
from mosq.pipeline import MosqPipelineError, duck, settings, trouble, views
from mosq.pipeline.lake.places import place_of
from mosq.pipeline.lake.table import Table
from mosq.pipeline.runs import jobs, live, progress, status, tending
from tests.harness.effort import TIMEOUT_S
from tests.pipeline.batches import Batches
from tests.pipeline.journals import Journal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def found(tmp_path: Path) -> settings.Settings:
    stream = Journal(tmp_path / "streams", "tele", shards=2)
    stream.fill(100)
    stream.close()
    (tmp_path / "pipeline.toml").write_text('[pipeline]\njournal = "streams"\nnode = "here"\n')
    return settings.load(tmp_path)


def after(found: settings.Settings, **said: Any) -> dict[str, Any]:
    from mosq.journal import Stream

    marks = Stream(found.sources[0].journal / "tele").marks()
    shards = {f"here/tele/{i}": {"next": mark.seq - i, "rows": mark.seq - i, "time_us": mark.time_us - 1000 * i} for i, mark in enumerate(marks)}
    now = progress.empty() | {"batch": 3, "at": time.time(), "rows": {"bronze": 99}, "shards": shards} | said
    progress.put_after(Table.create(place_of(found), progress.PROGRESS, progress.SCHEMA, "id", ()), "app", now)
    return now


def test_status_before_the_first_batch_and_after(found: settings.Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "status", "-s", str(found.file)]) == 0
    out = capsys.readouterr().out
    assert "no batch yet; `mosq pipeline run --once`" in out and "0 rows read, 100 behind" in out
    after(found)
    assert main(["pipeline", "status", "--json", "-s", str(found.file)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["streams"]["here/tele"]["behind"] == 1 and said["streams"]["here/tele"]["rows"] == 99 and said["batch"] == 3


def test_status_shows_the_rows_that_each_table_has(found: settings.Settings) -> None:
    """It showed the rows ever written, and of gold only the backlog."""
    batches = Batches(found)
    batches.all()
    values = status.status(found)
    assert values["stored"]["bronze"] == 100 and {"quarantine", "gold/traffic", "gold/devices", "gold/backlog", "gold/late"} <= values["stored"].keys()
    assert tending.erase(found, None, "t/1", lambda line: None)
    values = status.status(found)
    left = Table.open(place_of(found), "bronze")
    assert left is not None and values["stored"]["bronze"] == left.rows() < 100 == values["rows"]["bronze"]
    assert f"table  {'bronze':<24} {left.rows():>14,} rows" in status.text(values)


def test_the_help_of_sql_names_all_views(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "sql", "--help"]) == 0
    out = capsys.readouterr().out
    assert [view for view in views.VIEWS if not re.search(rf"\b{view}\b", out)] == []


@pytest.mark.parametrize("rules", [0, 1])
def test_run_reports_that_spark_starts_and_that_there_is_no_rule(found: settings.Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rules: int) -> None:
    def session(*args: object) -> None:
        raise MosqPipelineError("no Spark here")

    monkeypatch.setattr(commands, "_session", session)
    found.file.write_text(found.file.read_text() + rules * '[[silver]]\nname = "t"\ntopic = "t/#"\nformat = "json"\n')
    assert main(["pipeline", "run", "--once", "-s", str(found.file)]) == 1
    said = capsys.readouterr().err
    assert "starting Spark (local[*])" in said and ("has no [[silver]] rule" in said) is not bool(rules)
    assert main(["pipeline", "run", "gold", "--once", "-s", str(found.file)]) == 1
    assert "[[silver]]" not in capsys.readouterr().err, "the caller did not ask for silver"


def test_another_demo_keeps_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for i in range(3):
        folder = pipeline_demo._made(str(tmp_path / "demo"))
        assert [path.name for path in folder.iterdir()] == [pipeline_demo.OURS]
        (folder / "report").write_text(str(i))
    assert [(tmp_path / name / "report").read_text() for name in ("demo", "demo-1", "demo-2")] == ["2", "0", "1"]
    assert f"the demo of before is now {tmp_path}/demo-2" in capsys.readouterr().err
    (tmp_path / "other").mkdir()
    with pytest.raises(MosqPipelineError, match="is not from an earlier demo"):
        pipeline_demo._made(str(tmp_path / "other"))


def test_an_alarm_is_printed_and_sets_the_exit_status(found: settings.Settings, capsys: pytest.CaptureFixture[str]) -> None:
    after(found, audit={"rows": 5, "wrong": 1, "lost_events": 0, "examples": ["c (session 1): published 2, but ..."]})
    assert main(["pipeline", "status", "--audit", "-s", str(found.file)]) == 2
    out = capsys.readouterr().out
    assert "ALARM: 1 do not add up" in out


def test_status_works_without_the_journal(found: settings.Settings, capsys: pytest.CaptureFixture[str]) -> None:
    after(found)
    found.file.write_text('[pipeline]\njournal = "gone"\nnode = "here"\n')
    assert main(["pipeline", "status", "-s", str(found.file)]) == 0
    assert "there is no such folder" in capsys.readouterr().out


def test_the_live_view_prints_lines_or_updates_one(found: settings.Settings) -> None:
    before, now = progress.empty(), after(found, quarantine={"empty": 4})
    out = io.StringIO()
    shown = live.Live(found, out=out)
    shown.report(before, now, 1.25)
    line = out.getvalue()
    assert line.startswith("batch 3  99 rows  1.2 s") and "1 behind" in line and "quarantine 4" in line and line.endswith("\n")
    terminal = io.StringIO()
    terminal.isatty = lambda: True      # type: ignore[method-assign]
    shown = live.Live(found, out=terminal)
    shown.report(before, now, 1.0)
    shown.report(before, now, 1.0)
    shown.log("something")
    assert terminal.getvalue().count("\r") == 2 and terminal.getvalue().endswith("\nsomething\n")
    silent = io.StringIO()
    live.Live(found, quiet=True, out=silent).report(before, now, 1.0)
    assert silent.getvalue() == ""


def test_signals_ask_the_run_to_stop(found: settings.Settings) -> None:
    with jobs.stopped_by_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(TIMEOUT_S)


@pytest.mark.parametrize(("said", "told"), [
    ("[STREAM_FAILED] ... pyspark.errors... Traceback\n  File x\nmosq.pipeline.MosqPipelineError: stream t: shard 0: 1 to 2 are damaged. Restore\n\tat org.apache", "^stream t: shard 0: 1 to 2 are damaged. Restore$"),
    ("java.io.IOException: No space left on device", "no space left for .*tables"),
    ("java.lang.OutOfMemoryError: Java heap space", r"smaller \[pipeline\] batch_rows \(now 500,000\)"),
    ("SparkException: Python worker failed to connect back.", "this machine is overloaded; run again"),
    ("[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception:  SQLSTATE: XXKST\n=== Streaming Query ===", "a Python worker of Spark has died"),
    ("An error occurred: Py4JNetworkError: Answer from Java side is empty", "Spark's JVM has ended"),
])
def test_errors_of_spark_get_advice(found: settings.Settings, said: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import re

    monkeypatch.setattr(SparkContext, "_gateway", None)
    assert re.search(told, trouble.explained(RuntimeError(said), found) or "")
    assert trouble.explained(RuntimeError("?"), found) is None


def test_follow_runs_until_a_signal(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Test a stop by a signal; test_kill tests kills."""
    stream = Journal(tmp_path / "streams", "tele")
    (tmp_path / "pipeline.toml").write_text('[pipeline]\njournal = "streams"\ntrigger = "100 ms"\nbatch_rows = 600\n')
    found = settings.load(tmp_path)
    stream.fill(1000)
    told = live.Live.report

    def ended(self: live.Live, before: dict[str, Any], now: dict[str, Any], seconds: float) -> None:
        """Add messages when all are read; when these are read too, send the signal."""
        told(self, before, now, seconds)
        rows = now["rows"]["bronze"]
        if rows == 1000:
            stream.fill(200)
        elif rows == 1200:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(live.Live, "report", ended)
    monkeypatch.setattr(type(spark), "stop", lambda session: None)       # other tests use the session
    assert main(["pipeline", "run", "-s", str(found.file)]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("batch ")]
    assert lines[0].startswith("batch 0  600 rows") and "  0 behind" in lines[-1], lines
    asked = duck.Duck(found)
    assert asked.base.execute("SELECT count(*), count(DISTINCT seq), max(seq) FROM bronze").fetchall() == [(1200, 1200, 1199)]
    asked.close()
    assert status.status(found)["streams"][f"{found.sources[0].node}/tele"] == {"rows": 1200, "behind": 0, "behind_s": 0.0}
    stream.close()
