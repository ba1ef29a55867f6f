"""Test a real standalone Spark cluster: exact rows after kills of executor, worker and driver, and the errors of machines that lack something.

MOSQ_PIPELINE_SEED=...: the same moments again, as far as a machine repeats itself.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path

import pytest

from mosq.cli.commands import main
from mosq.pipeline import MosqPipelineError, settings
from mosq.pipeline.cluster import package, probe
from mosq.pipeline.runs import progress, verify
from tests.durable.test_restart import Kept
from tests.harness.effort import TIMEOUT_S
from tests.harness.faults import until
from tests.pipeline import clusters, kills
from tests.pipeline.journals import Journal
from tests.pipeline.processes import ROOT, Killed, command_line, descendants
from tests.pipeline.test_trouble import command
from tests.streams.journalled import folder, keeping

SITE = Path(sysconfig.get_path("purelib"))
MASTER = 'master = "local[2]"'


# ---- the archive


def test_an_unpacked_archive_is_a_whole_mosq(tmp_path: Path) -> None:
    """Test that a process that sees nothing but the archive and installed packages imports the work of a task."""
    assert package.make(tmp_path / "a.zip", with_packages=False) == (tmp_path / "a.zip").stat().st_size
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert not [name for name in archive.namelist() if not name.startswith("mosq/") or name.startswith("mosq/_bench")]
        archive.extractall(tmp_path / "unpacked")
    code = "import mosq._core, mosq.pipeline.rows.work as w, mosq.pipeline.source, mosq.pipeline.cluster.probe; print(w.__file__, mosq._core.__file__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path / "unpacked")},
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0 and all(path.startswith(str(tmp_path)) for path in done.stdout.split()), done


def test_an_archive_has_the_packages_and_what_they_need() -> None:
    assert {"pyarrow", "numpy", "pandas", "deltalake"} <= set(package.needed())
    assert not {"pyspark", "py4j", "mosq"} & set(package.needed())
    names = [name for _, name in package.files_of("numpy")]
    assert "numpy/__init__.py" in names and any(name.endswith(".so") for name in names) and not any("/tests/" in name for name in names)


def test_the_command_prints_the_line_for_the_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "package", "--bare", str(tmp_path / "m.zip")]) == 0
    assert f'[spark]\n"spark.archives" = "file://{tmp_path}/m.zip#mosq-packages"' in capsys.readouterr().out


def test_a_session_on_a_cluster_sends_mosq(tmp_path: Path) -> None:
    on_cluster = package.options("spark://h:7077", {})
    assert on_cluster["spark.archives"].endswith("/mosq.zip#mosq-packages")
    assert on_cluster["spark.executorEnv.PYTHONPATH"].startswith("mosq-packages/mosq/pipeline/workers:mosq-packages:")
    assert package.options("spark://h:7077", {"spark.archives": "x.zip"})["spark.archives"].startswith("x.zip,file:///")
    assert "spark.archives" not in package.options("spark://h:7077", {"spark.archives": "/y.zip#mosq-packages"})
    assert set(package.options("local[*]", {})) == {"spark.executorEnv.PYTHONPATH"}


# ---- what an executor lacks


def wanted(tmp_path: Path, **changed: object) -> dict[str, object]:
    stream = Journal(tmp_path / "streams", "tele")
    stream.fill(5)
    stream.close()
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "marker").touch()
    (tmp_path / "pipeline.toml").write_text('[pipeline]\njournal = "streams"\n')
    found = settings.load(tmp_path)
    return probe._wanted(found, probe.place_of(found), "marker") | {"stay_s": 0} | changed


def problem(tmp_path: Path, wanted: dict[str, object]) -> str | None:
    (seen,) = probe.looking(wanted)(iter(()))
    return probe._problem(seen, settings.load(tmp_path))


def test_an_executor_that_has_everything(tmp_path: Path) -> None:
    assert problem(tmp_path, wanted(tmp_path)) is None
    assert len(list((tmp_path / "tables").iterdir())) == 2


@pytest.mark.parametrize(("changed", "said"), [
    ({"streams": {"tele": ("/no/such/place", b"")}}, "the stream tele cannot be read in /no/such/place (No such file or directory): mount the journal"),
    ({"marker": "another"}, "it does not show a file that the driver has written there. Mount one shared folder at this path"),
    ({"uri": "/no/such/tables"}, "it does not show a file"),
])
def test_an_executor_without_a_mount(tmp_path: Path, changed: dict[str, object], said: str) -> None:
    found = problem(tmp_path, wanted(tmp_path, **changed))
    assert found is not None and said in found and found.startswith("the executor on ") and "\n" not in found


def test_an_executor_with_another_stream_of_the_name(tmp_path: Path) -> None:
    there = wanted(tmp_path)
    streams = {"tele": (str(tmp_path / "streams/tele"), b"another")}
    assert "has another stream of the name tele" in str(problem(tmp_path, there | {"streams": streams}))


def test_an_executor_without_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = wanted(tmp_path)
    monkeypatch.setitem(sys.modules, "deltalake", None)
    assert "has no package deltalake" in str(problem(tmp_path, there)) and "`mosq pipeline package`" in str(problem(tmp_path, there))


def test_files_that_the_driver_does_not_see_are_not_committed(tmp_path: Path) -> None:
    from mosq.pipeline.lake.parts import Part
    from mosq.pipeline.lake.places import Place
    from mosq.pipeline.rows.work import Manifest
    from mosq.pipeline.runs.jobs import check_files

    (tmp_path / "bronze").mkdir()
    (tmp_path / "bronze/a.parquet").write_bytes(b"12345")
    part = Part("bronze", "a.parquet", "", 5, 1, "")
    check_files(Place(str(tmp_path)), Manifest(parts={"bronze": [part]}), 7)
    for other, said in ((Part("bronze", "b.parquet", "", 5, 1, ""), "it is not there"), (Part("bronze", "a.parquet", "", 6, 1, ""), "it has 5")):
        with pytest.raises(MosqPipelineError, match=rf"{said}: nothing was committed. Mount one shared folder"):
            check_files(Place(str(tmp_path)), Manifest(parts={"bronze": [part, other]}), 7)


# ---- a real cluster


def doctor(file: Path, url: str) -> tuple[int, str]:
    done = subprocess.run(command("doctor", "-s", file, "--master", url), cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, next((line for line in done.stdout.splitlines() if " cluster: " in line), done.stdout + done.stderr)


@pytest.mark.part("cluster")
def test_doctor_of_executors_without_packages(tmp_path: Path) -> None:
    """Test executors without packages."""
    stream = Journal(tmp_path / "streams", "tele")
    stream.fill(20)
    stream.close()
    (tmp_path / "tables").mkdir()
    packages = [SITE / name for name in ("pyarrow", "deltalake", "numpy")]
    file = tmp_path / "pipeline.toml"
    with clusters.cluster(tmp_path / "cluster", "mosqd", hidden=packages) as running:
        lines = f'[pipeline]\njournal = "streams"\n[spark]\n{running.settings}'
        file.write_text(lines)
        status, said = doctor(file, running.url)
        assert status == 1 and "has no package pyarrow" in said and "mosq pipeline package" in said, said


@pytest.mark.part("cluster")
def test_the_archive_serves_executors_without_packages(tmp_path: Path) -> None:
    """Hide every package of the archive from the workers, and send the archive: doctor and a run need nothing else of them."""
    archive = tmp_path / "packages.zip"
    package.make(archive)
    hidden = {SITE / file.split("/")[0] for name in package.needed() for _, file in package.files_of(name)}
    folders = sorted(one for one in hidden if one.is_dir() and one.suffix != ".dist-info" and one.name != "__pycache__")
    assert {"pyarrow", "pandas", "numpy", "deltalake", "google"} <= {one.name for one in folders}
    stream = Journal(tmp_path / "streams", "tele")
    stream.fill(100)
    stream.close()
    file = tmp_path / "pipeline.toml"
    rules = "".join(f'[[silver]]\nname = "{name}"\ntopic = "{topic}"\nformat = "{form}"\n'
                    for name, topic, form in (("numbers", "t/#", "number"), ("metrics", "spBv1.0/#", "sparkplug")))
    with clusters.cluster(tmp_path / "cluster", "mosqa", hidden=folders) as running:
        begin = f'[pipeline]\njournal = "streams"\nmaster = "{running.url}"\n{rules}[spark]\n{running.settings}'
        file.write_text(begin)
        status, said = doctor(file, running.url)
        assert status == 1 and "has no package pyarrow" in said, said
        file.write_text(f'{begin}"{package.ARCHIVES}" = "{package.archive_option(archive)}"\n')
        status, said = doctor(file, running.url)
        assert status == 0, said
        done = subprocess.run(command("run", "--once", "-s", file), cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    found = settings.load(tmp_path)
    assert progress.after(found)["rows"] == {"bronze": 100, "silver/numbers": 100}
    assert verify.verify(found).faults == []


@pytest.mark.part("cluster")
def test_rows_are_exact_after_kills(tmp_path: Path) -> None:
    """Kill an executor, a worker and the driver while a broker publishes."""
    seed = int(os.environ.get("MOSQ_PIPELINE_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    with (Kept(keeping("stream all # shards 2", "stream_events true", "max_inflight_messages 0")) as broker,
          clusters.cluster(tmp_path / "cluster", "mosqk") as running):
        text = kills.SETTINGS.format(journal=folder(broker).parent, local=tmp_path / "local", no_numbers=kills.NO_NUMBERS)
        head, _, rest = text.replace(MASTER, f'master = "{running.url}"').partition("[spark]\n")
        kept = "".join(f"{line}\n" for line in rest.splitlines() if "extraJavaOptions" not in line)
        (tmp_path / "pipeline.toml").write_text(f"{head}[spark]\n{running.settings}{kept}")
        found = settings.load(tmp_path)
        load = kills.Load(broker, random.Random(seed))
        driver = Killed("mosq", "pipeline", "run", "--follow", "-s", found.file)
        load.start()
        try:
            driver.start()
            killed = kill_all(running, driver, found, dice)
        finally:
            load.over.set()
            load.join()
            driver.close()
        assert broker.stop() == 0
        done = subprocess.run(command("run", "--once", "-s", found.file), cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        there = kills.journalled(broker)
    assert killed == ["executor", "worker", "driver"]
    kills.check_tables(None, found, there, seed)
    assert load.sender.done <= {record.payload for record in there.values()}
    print(f"{len(there):,} records, {progress.after(found)['batch'] + 1} batches")


def kill_all(running: clusters.Cluster, driver: Killed, found: settings.Settings, dice: random.Random) -> list[str]:
    killed = []
    kills.wait_for_batches(driver, found, 2)
    time.sleep(dice.random())
    for pid in running.executors(1):
        os.kill(pid, signal.SIGKILL)
        killed.append("executor")
    kills.wait_for_batches(driver, found, 3)
    time.sleep(dice.random())
    running.standalone.processes[2].kill()
    running.standalone.processes[2].wait()
    killed.append("worker")
    kills.wait_for_batches(driver, found, 3)
    running.standalone.start_worker(2)
    time.sleep(dice.random())
    driver.kill()
    killed.append("driver")
    driver.start()
    kills.wait_for_batches(driver, found, 3)
    driver.kill()
    return killed


@pytest.mark.part("cluster")
@pytest.mark.parametrize(("number", "line", "status"), [
    (signal.SIGTERM, "starting Spark", 143), (signal.SIGTERM, "batch 0", 143), (signal.SIGKILL, "starting Spark", -9)])
def test_the_demos_cluster_and_broker_end_with_it(tmp_path: Path, number: signal.Signals, line: str, status: int) -> None:
    """Master and workers went on for ever."""
    command = [sys.executable, "-m", "mosq.cli.pipeline_demo", "--cluster", "--devices", "5", "--dir", str(tmp_path / "demo")]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stderr is not None
        assert any(one.startswith(line) for one in demo.stderr)
        pids = list(descendants(demo.pid))
        programs = " ".join(map(command_line, pids))
        assert all(what in programs for what in ("master.Master", "worker-1", "worker-2", "mosquitto.conf"))
        demo.send_signal(number)
        assert demo.wait(TIMEOUT_S) == status
    until(lambda: not any(map(command_line, pids)))
