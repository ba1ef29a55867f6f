"""Test that a dead JVM, a dead Python worker, a lost mount and missing permission give one clear line each, and that the next run has every row."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import SparkContext

from mosq.pipeline import duck, settings, trouble
from mosq.pipeline.runs import progress, verify
from tests.durable.test_disk import may_mount
from tests.pipeline import lake_tables, streams
from tests.pipeline.journals import Journal
from tests.pipeline.processes import ROOT, command_line, descendants, signalled

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGES = 500


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "mosq", "pipeline", *map(str, arguments)]


def ended(*arguments: str | Path, before: list[str] | None = None) -> tuple[int, str]:
    done = subprocess.run([*(before or []), *command(*arguments)], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def one_line(text: str, what: str) -> None:
    """Check that the text has one error, with advice, and no traceback."""
    errors = [line for line in text.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1 and what in errors[0] and "Traceback" not in text and "Exception" not in text, text


def run_until_killed(found: settings.Settings, victim: Callable[[str], bool]) -> str:
    """Start `run`, kill a process that it started when the first batch is done, and return what it says."""
    process = subprocess.Popen(command("run", "-s", found.file), cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith("batch 0"):
            for pid in descendants(process.pid):
                if victim(command_line(pid)) and signalled(pid, signal.SIGKILL):
                    break
            else:
                os.killpg(process.pid, signal.SIGKILL)
                raise AssertionError(f"no such process: {lines}")
            break
    with process.stderr:
        rest = process.stderr.read()
    assert process.wait() == 1, rest
    return "".join(lines) + rest


@pytest.mark.spark
def test_a_killed_jvm(tmp_path: Path) -> None:
    stream = Journal(tmp_path / "streams", "tele")
    stream.fill(MESSAGES)
    (tmp_path / "pipeline.toml").write_text('[pipeline]\njournal = "streams"\ntrigger = "200 ms"\nmaster = "local[1]"\n')
    found = settings.load(tmp_path)
    said = run_until_killed(found, lambda name: "org.apache.spark.deploy.SparkSubmit" in name)
    one_line(said, "Spark's JVM was killed: by an operator, or by the kernel because memory ran out (`dmesg` names it then). Free some memory")
    stream.fill(MESSAGES)
    stream.close()
    status, said = ended("run", "--once", "-s", found.file)
    assert status == 0, said
    asked = duck.Duck(found)
    assert asked.base.execute("SELECT count(*), count(DISTINCT seq), max(seq) FROM bronze").fetchall() == [(2 * MESSAGES, 2 * MESSAGES, 2 * MESSAGES - 1)]
    asked.close()


@pytest.mark.part("spark")
@pytest.mark.spark
@pytest.mark.parametrize(("victim", "said_of_it"), [("org.apache.spark.deploy.SparkSubmit", "Spark's JVM was killed: "),
                                                    ("pyspark.daemon pyspark.worker", "a Python worker of Spark has died: was it killed, ")])
def test_a_process_killed_within_a_batch(tmp_path: Path, victim: str, said_of_it: str) -> None:
    """Test that no traceback of Spark is printed when the driver waits for the result of a job."""
    stream = Journal(tmp_path / "streams", "tele")
    stream.fill(200 * MESSAGES)
    stream.close()
    (tmp_path / "pipeline.toml").write_text('[pipeline]\njournal = "streams"\nmaster = "local[1]"\n')
    found = settings.load(tmp_path)
    process = subprocess.Popen(command("run", "--once", "-s", found.file), cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)
    killed = False
    while not killed and process.poll() is None:
        names = {pid: command_line(pid) for pid in descendants(process.pid)}
        # a task writes its file of bronze while the driver waits for the job
        if any("part-" in str(path) for path in (tmp_path / "tables" / "bronze").glob("date=*/*")):
            for pid, name in names.items():
                if victim in name:
                    killed |= signalled(pid, signal.SIGKILL)
    said = process.communicate()[1]
    assert killed and process.returncode == 1, said
    one_line(said, said_of_it)
    status, said = ended("run", "--once", "-s", found.file)
    assert status == 0, said
    assert verify.verify(found).faults == []


def test_logs_of_py4j_are_quiet() -> None:
    """py4j logs tracebacks of a dead JVM with the root logger."""
    trouble.quiet()
    logger = logging.getLogger()
    theirs, ours = (logging.LogRecord("root", logging.ERROR, path, 1059, "said", (), None) for path in ("/x/py4j/java_gateway.py", "/x/jobs.py"))
    assert not logger.filter(theirs) and logger.filter(ours)


ENDED = "Spark's JVM has ended: was it killed, or did memory run out? Run again: it continues where it was, and no row is lost or doubled"


@pytest.mark.parametrize(("script", "said"), [
    ("kill -9 $$", "Spark's JVM was killed: by an operator, or by the kernel because memory ran out"),
    ("kill -15 $$", "Spark's JVM was ended by SIGTERM. Run again"), ("exit 143", "Spark's JVM was ended by SIGTERM. Run again"),
    ("exit 1", "Spark's JVM has ended with status 1; its own message, if it wrote one, stands above. Run again"),
    ("sleep 600", "a connection within Spark broke, and its JVM still runs: the machine may be overloaded. Run again")])
def test_the_end_of_the_jvm_has_its_reason(monkeypatch: pytest.MonkeyPatch, script: str, said: str) -> None:
    """All of them were "has ended: was it killed, or did memory run out?", also that of a JVM that ran."""
    with subprocess.Popen(["sh", "-c", script]) as process:
        monkeypatch.setattr(SparkContext, "_gateway", types.SimpleNamespace(proc=process))
        if "runs" in said:
            monkeypatch.setattr(trouble, "JVM_ENDS_S", 0.01)
        found = trouble.explained(Exception("java.net.SocketException: Connection reset"))
        process.kill()
    assert found is not None and found.startswith(said)


def test_the_death_of_the_jvm_has_many_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)         # another test may have a session

    class Py4JNetworkError(Exception):
        pass

    try:
        try:
            raise Py4JNetworkError
        except Py4JNetworkError as error:
            raise RuntimeError("no text that says it") from error
    except RuntimeError as error:
        found = error
    assert trouble.explained(found) == ENDED
    assert trouble.explained(EOFError()) is None, "an end of another file is not the JVM's"
    reason = trouble.explained(ConnectionRefusedError(111, "Connection refused"))
    assert reason is not None and reason.startswith("a connection to another program failed"), "another program refused the connection, not the JVM"
    for said in ("An error occurred while trying to connect to the Java server (127.0.0.1:40000)",
                 "An error occurred while calling o85.awaitTermination"):       # the answer ended before it named an exception
        assert trouble.explained(Exception(said)) == ENDED
    assert trouble.explained(Exception("An error occurred while calling o85.load. Trace:\nnot found")) is None


@pytest.mark.skipif(not may_mount(), reason="mounting is not allowed")
def test_a_lost_mount(tmp_path: Path) -> None:
    """Test that a run stops before Spark starts, and writes nothing into the empty folder below the mount."""
    stream = Journal(tmp_path / "streams", "tele")
    stream.fill(5)
    stream.close()
    (tmp_path / "disk").mkdir()
    (tmp_path / "pipeline.toml").write_text('[pipeline]\njournal = "streams"\ntables = "disk/tables"\n')
    found = settings.load(tmp_path)
    subprocess.run(["mount", "-t", "tmpfs", "none", tmp_path / "disk"], check=True)
    try:
        about = progress.begun(found, progress.setup(found, progress.JOBS))
        lake_tables.put(found, "bronze", [{"stream": "tele", "shard": 0, "seq": 1, "time": streams.BEGIN}])
        progress.made(found, about)
    finally:
        subprocess.run(["umount", tmp_path / "disk"], check=True)
    status, said = ended("run", "--once", "-s", found.file)
    one_line(said, "is the storage of the tables mounted?")
    assert status == 1 and list((tmp_path / "disk").iterdir()) == []


# root without the right to pass over permissions
PLAIN_ROOT = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]
OTHER_USER = 54321


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to another user")
def test_missing_permission(tmp_path: Path) -> None:
    stream = Journal(tmp_path / "streams", "tele")
    stream.fill(5)
    stream.close()
    found = lake_tables.load(tmp_path)
    table = lake_tables.put(found, "bronze", [{"stream": "tele", "shard": 0, "seq": 1, "time": streams.BEGIN}])
    log = table.place.path / "_delta_log"
    os.chown(log, OTHER_USER, OTHER_USER)
    log.chmod(0o700)
    status, said = ended("sql", "SELECT count(*) FROM bronze", "-s", found.file, before=PLAIN_ROOT)
    one_line(said, "let the user root write there")
    assert status == 1 and str(table.place.path) in said
    os.chown(tmp_path, OTHER_USER, OTHER_USER)
    tmp_path.chmod(0o755)
    status, said = ended("run", "--once", "-s", found.file, before=PLAIN_ROOT)
    one_line(said, f"{found.checkpoints}: permission denied: let the user root read and write there")
    assert status == 1
