"""Test the lab with small numbers: the content of its folder, and its handling of failures."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from perf import summary
from perf.lab.broker import Broker, free_port
from perf.lab.folder import Folder, FolderError
from perf.lab.peers import ROOT
from perf.lab.progress import Progress

from mosq.tools.bench.usage import used
from tests.bench.fake import Fake

PAIRS = ("bench", "--tests", "pairs-single", "--reps", "1")     # one case


@pytest.mark.interop
def test_the_paper_in_small(lab, capfd: pytest.CaptureFixture[str]) -> None:
    found = lab("paper", "--scale", "0.001", "--reps", "1", "--tests", "paper-1", "--quick", "--brokers", "mosq:plain,mosquitto")
    assert found.status == 0
    assert found.about["complete"]
    assert found.about["why"] == ""
    assert found.about["format"] == 1
    assert found.about["started"] <= found.about["ended"]
    assert {"cores", "kernel", "processor", "python", "memory_bytes", "distribution"} <= set(found.about["machine"])
    mosquitto = next(name for name in found.about["brokers"] if name.startswith("mosquitto-"))
    assert set(found.about["brokers"]) == {"mosq", mosquitto}
    assert found.about["brokers"][mosquitto]["program"] == "mosquitto"
    assert "max_queued_messages 0" in found.about["brokers"][mosquitto]["settings"]
    runs = [one["run"] for one in found.runs]
    assert [(run["case"], run["broker"], run["variant"], run["rep"]) for run in runs] == [
        (f"QoS {qos} (20 subscribers, 20 messages)", *(("mosq", "plain"), (mosquitto, ""))[(qos + turn) % 2], 0)
        for qos in range(3) for turn in range(2)]
    assert {(run["suite"], run["test"]) for run in runs} == {("paper", "paper-1")}
    for one in found.runs:
        assert one["complete"] and one["exact"]
        assert one["phases"][0]["delivered"] == 20 * 20
        assert one["phases"][0]["broker"]["cpu_us_per"] > 0
        assert one["run"]["command"].startswith("mosq bench fan-out --publishers 10 --subscribers 20 --messages 20")
        assert one["run"]["command"].endswith("--port 1883 --broker-pid $!")
    assert "--index tree" in next(run["start"] for run in runs if run["variant"])
    out, err = capfd.readouterr()
    assert out.count("x mosq: plain") == 3
    assert f"results: {found.path}" in out
    assert "[6/6, 0 s left]" in err


@pytest.mark.interop
def test_a_broker_that_does_not_start_leaves_the_others_running(lab, program, capfd: pytest.CaptureFixture[str]) -> None:
    folder = program("mosquitto-9", "echo this is no option >&2; exit 3", "9.1.2")
    found = lab(*PAIRS, "--scale", "0.001", "--seconds", "0.1", "--reps", "2", "--peers", str(folder), "--brokers", "mosquitto-9.1.2,mosq")
    assert found.status == 1
    assert not found.about["complete"]
    assert [(one["run"]["broker"], one["complete"]) for one in found.runs] == [
        ("mosquitto-9.1.2", False), ("mosq", True), ("mosq", True)]
    assert found.runs[0]["why"] == "mosquitto-9.1.2 did not start: ended with status 3; its last line: this is no option"
    assert found.runs[0]["phases"] == []
    assert "mosquitto-9.1.2 was left out of pairs-single: it did not start" in capfd.readouterr().out


def at_work(monkeypatch: pytest.MonkeyPatch, do) -> None:
    """Call do(pid of the broker) once, when the broker has worked for a while since it was ready."""
    started: list[tuple[int, float]] = []           # process, CPU seconds of its start
    enter = Broker.__enter__

    def entered(self: Broker) -> Broker:
        broker = enter(self)
        started.append((broker.pid, used(broker.pid).cpu_s))
        return broker

    def tick(self: Progress) -> None:
        if started and used(started[0][0]).cpu_s > started[0][1] + 0.2:
            do(started.pop()[0])

    monkeypatch.setattr(Broker, "__enter__", entered)
    monkeypatch.setattr(Progress, "tick", tick)


def test_a_broker_killed_in_the_middle(lab, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    at_work(monkeypatch, lambda pid: os.kill(pid, signal.SIGKILL))
    found = lab(*PAIRS, "--seconds", "60", "--brokers", "mosq")
    assert found.status == 1
    assert found.about["complete"] is False
    assert found.about["why"] == "1 of 1 runs are not complete"
    (one,) = found.runs
    assert one["complete"] is False
    assert one["why"].endswith("mosq was killed by SIGKILL")
    assert one["phases"][0]["complete"] is False
    assert one["phases"][0]["delivered"] > 0
    assert "the measurements are kept, and marked" in capfd.readouterr().out


def test_a_killed_lab_leaves_no_broker(tmp_path: Path) -> None:
    program = ("import signal; from perf.lab.broker import Broker; from perf.lab.peers import MOSQ, find\n"
               "with Broker(next(one for one in find([]) if one.peer is MOSQ)) as broker:\n"
               "    print(broker.pid, flush=True); signal.pause()")
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE,
                          env={**os.environ, "TMPDIR": str(tmp_path)}) as lab:
        assert lab.stdout is not None
        broker = os.pidfd_open(int(lab.stdout.readline()))
        lab.kill()
    try:
        assert select.select([broker], [], [], 10)[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(broker, signal.SIGKILL)
        os.close(broker)


def test_control_c(lab, monkeypatch: pytest.MonkeyPatch) -> None:
    at_work(monkeypatch, lambda pid: signal.raise_signal(signal.SIGINT))
    found = lab(*PAIRS, "--seconds", "60", "--brokers", "mosq,mosq:plain", "--reps", "3")
    assert found.status == 1
    assert found.about["why"] == "interrupted"
    assert found.about["ended"]
    (one,) = found.runs
    assert (one["complete"], one["why"]) == (False, "interrupted")
    assert one["phases"][0]["delivered"] > 0


def test_a_run_that_exceeds_the_timeout_is_ended_and_recorded(lab, monkeypatch: pytest.MonkeyPatch) -> None:
    found = lab(*PAIRS, "--seconds", "60", "--timeout", "0.6", "--brokers", "mosq")
    assert found.status == 1
    assert found.runs[0]["why"] == "not done after 0.6 s"


def test_no_broker_and_a_refused_login(lab, capfd: pytest.CaptureFixture[str]) -> None:
    with Fake(connack=5) as fake:
        found = lab(*PAIRS, "--seconds", "0.1", "--brokers", "mosq", "--at", f"gone=127.0.0.1:{free_port()}",
                    "--at", f"strict=127.0.0.1:{fake.port}", "--username", "user%i")
    assert found.status == 1
    why = {one["run"]["broker"]: one["why"] for one in found.runs}
    assert why["mosq"] == ""
    assert "gone: no broker answers at 127.0.0.1:" in why["gone"]
    assert why["strict"].endswith("refused client 0: not authorized (0x05)")
    assert f"127.0.0.1:{fake.port}" in found.about["brokers"]["strict"]["settings"]
    assert f"--port {fake.port}" in next(one["run"]["command"] for one in found.runs if one["run"]["broker"] == "strict")


def test_long_runs_are_not_repeated(lab, capfd: pytest.CaptureFixture[str]) -> None:
    found = lab(*PAIRS[:3], "--seconds", "0.1", "--reps", "3", "--patience", "0.01", "--brokers", "mosq")
    assert found.status == 0
    assert len(found.runs) == 1
    assert "took more than 0.01 s, so it was not repeated" in capfd.readouterr().out


def test_cases_with_tls_and_with_durable_sessions(lab) -> None:
    found = lab("bench", "vendors", "--tests", "tls-connect,tbmq-p2p", "--reps", "1", "--scale", "0.05", "--seconds", "0.1",
                "--brokers", "mosq")
    assert found.status == 0
    assert [one["run"]["test"] for one in found.runs] == ["tls-connect", "tbmq-p2p", "tbmq-p2p"]
    assert found.runs[0]["phases"][0]["handshake"]["count"] == 50
    assert "kill -9" in found.about["brokers"]["mosq"]["settings"]


@pytest.mark.interop
def test_a_broker_without_tls_is_left_out_of_tls_only(lab, program, capfd: pytest.CaptureFixture[str]) -> None:
    folder = program("mosquitto", 'grep -q certfile "$2" && exit 1\nexec /usr/sbin/mosquitto "$@"')
    found = lab("bench", "--tests", "tls-connect,storm", "--reps", "1", "--scale", "0.05", "--peers", str(folder),
                "--brokers", "mosquitto-9.9.9")
    assert found.status == 0
    assert [one["run"]["test"] for one in found.runs] == ["storm"]
    assert "mosquitto-9.9.9 was left out of tls: mosquitto-9.9.9 did not start" in capfd.readouterr().out


def test_a_broker_that_lacks_a_feature_is_left_out(lab, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    aedes = tmp_path / "peers" / "node_modules" / "aedes"
    aedes.mkdir(parents=True)
    (aedes / "aedes.js").touch()
    (aedes / "package.json").write_text('{"version": "1.2.0"}')
    found = lab("vendors", "--tests", "shared-fan-in", "--reps", "1", "--scale", "0.001", "--seconds", "0.1",
                "--peers", str(tmp_path / "peers"), "--brokers", "aedes")
    assert (found.status, found.runs, found.about["why"]) == (1, [], "nothing was measured")
    assert "aedes-1.2.0 was left out of shared-fan-in: it has no MQTT 5 here" in capfd.readouterr().out


# ---------------------------------------------------------------- the folder

def line(rep: int) -> dict:
    return {"run": {"suite": "s", "test": "t", "case": "c", "broker": "b", "variant": "", "rep": rep}}


def test_the_table_of_the_readme_in_small(lab, capsys: pytest.CaptureFixture[str]) -> None:
    results = lab("cost", "--brokers", "relay,mosq", "--scale", "0.005", "--seconds", "0.1", "--reps", "1")
    assert all(run["complete"] for run in results.runs) and results.status == 0
    capsys.readouterr()
    summary.main(str(results.path))
    rows = capsys.readouterr().out.splitlines()
    assert rows[0] == "|  | relay | mosq |"
    assert any(row.startswith("| 100 pairs QoS 0, one message per send | ") for row in rows)


def test_the_relay_is_left_out_of_what_it_cannot_do(lab) -> None:
    results = lab("bench", "--brokers", "relay,mosq", "--tests", "shared", "--seconds", "0.1", "--reps", "1")
    assert {run["run"]["broker"] for run in results.runs} == {"mosq"}
    assert results.about["left_out"] == ["relay was left out of shared: it has no shared of mosq bench here"]


def test_a_folder_is_continued(tmp_path: Path) -> None:
    first = Folder(tmp_path, "T", "one", {"--scale": 1.0})
    first.broker("b", version="1", settings="", program="b")
    first.add(line(0))
    first.add(line(1))
    first.runs.write('{"run": {"su')         # killed while it wrote
    first.runs.close()
    assert json.loads((tmp_path / "about.json").read_text())["complete"] is False
    second = Folder(tmp_path, "T", "two", {"--scale": 1.0})
    second.add(line(0))
    second.close("", ["b was left out"])
    about = json.loads((tmp_path / "about.json").read_text())
    assert (about["complete"], about["title"], about["command"]) == (True, "T", "one; two")
    assert "b" in about["brokers"]
    assert about["left_out"] == ["b was left out"]
    reps = [json.loads(text)["run"]["rep"] for text in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert reps == [0, 1, 2]


def test_results_of_two_commits_do_not_share_a_folder(tmp_path: Path) -> None:
    first = Folder(tmp_path, "T", "one", {"--scale": 1.0})
    first.know(commit="0123456789abcdef")
    first.close("")
    with pytest.raises(FolderError, match="results of commit 0123456789ab"):
        Folder(tmp_path, "T", "two", {"--scale": 1.0})


def test_other_options_need_another_folder(tmp_path: Path) -> None:
    first = Folder(tmp_path, "T", "one", {"--scale": 0.02, "--quick": False})
    first.close("")
    with pytest.raises(FolderError, match=r"other options: --scale was 0.02, and is 0.1 now: use the same options"):
        Folder(tmp_path, "T", "two", {"--scale": 0.1, "--quick": False})
    first.know(dirty=not first.about["dirty"])
    with pytest.raises(FolderError, match="of this commit with"):
        Folder(tmp_path, "T", "two", {"--scale": 0.02, "--quick": False})


def test_the_command_refuses_a_folder_of_another_scale(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from perf.lab.__main__ import measurement_options, chosen_how, main, parser

    arguments = ["bench", "--dir", str(tmp_path), "--quick"]
    args = parser().parse_args(arguments)
    Folder(tmp_path, "T", "one", measurement_options(args, chosen_how(args))).runs.close()
    for other, words in (("--scale=0.5", "--scale was 1.0, and is 0.5"), ("--seconds=9", "--seconds was 0.7, and is 9.0")):
        assert main([*arguments, other]) == 1
        assert words in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [
    ["nonesuch"], [], ["paper", "--tests", "p2p"], ["paper", "--scale", "0"], ["paper", "--brokers", "mosq:nonesuch"],
    ["paper", "--brokers", "nonesuch"], ["paper", "--at", "here"], ["paper", "--cpu", "4096"], ["paper", "--reps", "x"]])
def test_mistakes_in_the_command_line(arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from perf.lab.__main__ import main

    assert main([*arguments, "--dir", str(tmp_path / "none")]) == 3
    assert "rror: " in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    from perf.lab.__main__ import main

    assert main(["--list"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("paper-4", "p2p", "retained", "mosq:plain", "this checkout"))


def test_a_waiting_lock_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from perf import lock

    monkeypatch.setattr(lock.tempfile, "gettempdir", lambda: str(tmp_path))
    said: list[str] = []
    with lock.bench_lock(lambda: said.append("waits")):
        flock = lock.fcntl.flock
        monkeypatch.setattr(lock.fcntl, "flock", lambda file, how: flock(file, how) if how & lock.fcntl.LOCK_NB else None)
        with lock.bench_lock(lambda: said.append("waits")):
            pass
    assert said == ["waits"]
