"""Test `mosq pipeline doctor`, and the errors if Spark cannot start: no Java, an old one, missing or wrong packages.

Nothing here needs Spark.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mosq.cli.commands import main
from mosq.pipeline import MosqPipelineError, session, settings
from mosq.pipeline.lake import lock as locks
from mosq.pipeline.runs import doctor, first, progress
from mosq.pipeline.source.options import Options
from mosq.pipeline.source.streams import find
from tests.pipeline import lake_tables, streams
from tests.pipeline.journals import Journal
from mosq.tools.extras import install_advice, packages_advice


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    stream = Journal(tmp_path / "streams", "tele", shards=2)
    stream.fill(5)
    stream.close()
    (tmp_path / "pipeline.toml").write_text('[pipeline]\njournal = "streams"\n')
    return tmp_path


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a Java on the path that prints a version."""
    program = tmp_path / "java-home/bin/java"
    program.parent.mkdir(parents=True)
    put_java(program, 'openjdk version "17.0.15" 2025-04-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java-home"))
    return program


def put_java(program: Path, said: str) -> None:
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    program.chmod(0o755)


def versions(monkeypatch: pytest.MonkeyPatch, **changed: str | None) -> None:
    there = {"pyspark": "4.2.0", "deltalake": "1.6.6", "pandas": "2.3.3", "pyarrow": "26.0.1", "protobuf": "7.1"} | changed
    monkeypatch.setattr(session, "package_versions", lambda: there)


def bad(file: Path) -> dict[str, tuple[str, str]]:
    return {one.what: (one.found, one.fix) for one in doctor.examine(file) if not one.ok}


def test_all_checks_pass(folder: Path, java: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    versions(monkeypatch)
    monkeypatch.setattr(doctor, "MEMORY_BYTES", 0)
    monkeypatch.setattr(doctor, "DISK_BYTES", 0)
    assert bad(folder) == {}
    assert main(["pipeline", "doctor", "-s", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "tele (2 shards, 5 records)" in out and "All checks passed." in out


@pytest.mark.parametrize(("changed", "what", "found", "fix"), [
    ({"pyspark": None}, "pyspark", "not installed", install_advice("pipeline")),
    ({"pandas": "3.0.1"}, "pandas", "3.0.1", packages_advice(["pandas>=2.2,<3"])),
    ({"pandas": "2.1.4"}, "pandas", "2.1.4", packages_advice(["pandas>=2.2,<3"])),
    ({"pyarrow": "14.0"}, "pyarrow", "14.0", packages_advice(["pyarrow>=18"])),
    ({"pyspark": "4.3.0"}, "pyspark", "4.3.0", packages_advice(["pyspark==4.2.0"])),
    ({"deltalake": "2.0.1"}, "deltalake", "2.0.1", packages_advice(["deltalake>=1.6,<2"])),
    ({"protobuf": None}, "protobuf", "not installed", install_advice("pipeline")),
])
def test_packages(folder: Path, java: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str | None], what: str, found: str, fix: str) -> None:
    versions(monkeypatch, **changed)
    assert bad(folder)[what] == (found, fix)
    with pytest.raises(MosqPipelineError, match="Spark cannot be started:\n- " + what):
        session.spark_session("none")


def test_java_is_missing_old_or_broken(folder: Path, java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions(monkeypatch)
    put_java(java, 'openjdk version "11.0.2" 2019-01-15')
    assert "is Java 11, Spark needs 17" in bad(folder)["Java"][0]
    put_java(java, 'java version "1.8.0_292"')
    assert "is Java 8, Spark needs 17" in bad(folder)["Java"][0]
    put_java(java, "what?")
    assert "does not run" in bad(folder)["Java"][0]
    java.unlink()
    monkeypatch.setenv("PATH", str(folder))
    assert bad(folder)["Java"][1] == "apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
    with pytest.raises(MosqPipelineError, match="there is no Java: apt-get install"):
        session.spark_session("none")


def test_folders_memory_and_workers(folder: Path, java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions(monkeypatch)
    (folder / "blocked").write_text("")
    (folder / "pipeline.toml").write_text('[pipeline]\njournal = "streams"\ntables = "blocked/t"\n')
    monkeypatch.setattr(doctor, "MEMORY_BYTES", 1 << 60)
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    found = bad(folder)
    assert "cannot be written" in found["tables"][0] and "name another folder" in found["tables"][1]
    assert "GiB available" in found["memory"][0] and "free some" in found["memory"][1]
    assert found["PYSPARK_PYTHON"] == ("/nowhere/python is not there", f"unset it, or export PYSPARK_PYTHON={sys.executable}")


def test_settings_and_journal(folder: Path, java: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    versions(monkeypatch)
    (folder / "pipeline.toml").write_text('[pipeline]\njournal = "none"\n')
    assert "there is no such folder" in bad(folder)["journal"][0]
    (folder / "pipeline.toml").write_text("[pipeline]\n")
    assert main(["pipeline", "doctor", "--json", "-s", str(folder)]) == 1
    found = {one["what"]: one for one in json.loads(capsys.readouterr().out)}
    assert not found["settings"]["ok"] and "journal is missing" in found["settings"]["found"]
    monkeypatch.setattr(doctor, "_writable", lambda path: "consumers" not in str(path))
    (folder / "pipeline.toml").write_text('[pipeline]\njournal = "streams"\n')
    assert 'consumer = ""' in bad(folder)["journal"][1]


def test_other_folders_are_ignored(folder: Path, java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lost+found", "notes", ".hidden"):
        (folder / "streams" / name).mkdir()
        (folder / "streams" / name / "text").write_text("")
    found = settings.load(folder)
    assert [key.partition("/")[2] for key in progress.streams(found)] == ["tele"]
    for mark in (folder / "streams/tele").glob("mark.*"):       # its segments exist, so it is a stream
        mark.unlink()
    assert [key.partition("/")[2] for key in progress.streams(found)] == ["tele"] and "tele" in bad(folder)["journal"][0]
    assert any("streams: tele" in line for line in first.init(str(folder / "new"), None, str(folder / "streams")))
    with pytest.raises(MosqPipelineError, match="start that broker once, which writes the mark again"):
        find(Options({"path": str(folder / "streams")}))


def test_doctor_runs_without_any_package(folder: Path) -> None:
    """Test also that the start of a broker imports no module of the pipeline."""
    hidden = ("pyspark", "deltalake", "pandas", "pyarrow", "numpy", "google", "duckdb")
    script = (f"import sys\nfor name in {hidden!r}: sys.modules[name] = None\n"
              "from importlib import metadata\n"
              "def version(name): raise metadata.PackageNotFoundError(name)\n"
              "metadata.version = version\n"
              "from mosq.cli.commands import main\n"
              "assert not any(name.startswith('mosq.pipeline') for name in sys.modules)\n"
              f"sys.exit(main(['pipeline', *sys.argv[1:], '-s', {str(folder)!r}]))")
    done = subprocess.run([sys.executable, "-c", script, "doctor"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "pyspark: not installed\n     -> " + install_advice("pipeline") in done.stdout, done.stderr
    done = subprocess.run([sys.executable, "-c", script, "run", "--once"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and install_advice("pipeline") in done.stderr and "Traceback" not in done.stderr


def test_the_holder_of_the_lock_is_named(folder: Path, java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test a run that works, and a JVM that a killed run left: it has the lock, and its name is java."""
    versions(monkeypatch)
    found = settings.load(folder)
    assert doctor._lock(found).found == "free: no run works on these tables"
    with locks.held(found.checkpoints / locks.LOCK, "busy") as lock:
        assert doctor._lock(found).ok and f"process {os.getpid()} (" in doctor._lock(found).found
        # the JVM inherits the lock, the driver is killed
        orphan = subprocess.Popen(["bash", "-c", "echo -n java > /proc/self/comm; read line"], pass_fds=(lock.fd,), stdin=subprocess.PIPE)
        while (Path("/proc") / str(orphan.pid) / "comm").read_text() != "java\n":
            pass
    # `held` has released the lock for both, but the process still has the file
    one = doctor._lock(found)
    assert not one.ok and f"process {orphan.pid} (java)" in one.found and f"kill -9 {orphan.pid}" in one.fix
    orphan.communicate(b"\n")
    assert doctor._lock(found).ok


def test_tables_that_are_not_mounted(folder: Path, java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions(monkeypatch)
    found = settings.load(folder)
    about = progress.begun(found, progress.setup(found, progress.JOBS))
    progress.made(found, about)
    assert "is the storage of the tables mounted?" in bad(folder)["tables"][0]
    lake_tables.put(found, "bronze", [{"stream": "tele", "shard": 0, "seq": 1, "time": streams.BEGIN}])
    assert "is a table of another set" in bad(folder)["tables"][0]
    (found.checkpoints / progress.IDENTITY).unlink()
    assert "does not hold their progress" in bad(folder)["tables"][0]


def test_each_place_of_spark_gets_a_folder_for_this_user_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    old = os.umask(0)
    try:
        found = session.private_folders({"spark.local.dir": f"{tmp_path / 'a'},{tmp_path / 'b'}"}).split(",")
        monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "c"))
        found.append(session.private_folders({"spark.local.dir": "a"}))
    finally:
        os.umask(old)
    assert [Path(one).parent.name for one in found] == ["a", "b", "c"] and {Path(one).stat().st_mode & 0o777 for one in found} == {0o700}
