"""Test what stood in a newcomer's way: `-h`, a busy port before the build, files that only root can read."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mosq.cli.commands import main
from tests.harness.broker import ROOT, Broker
from tests.harness.certificates import server_files, server_paths
from tests.harness.effort import TIMEOUT_S

HELP = [["bench"], ["signal"], ["doctor"], ["config"], ["config", "diff"], ["config", "explain"], ["index"], ["passwd"], ["db"], ["db", "stats"],
        ["journal"], ["journal", "stats"], ["pipeline"], ["backup"], ["restore"], ["init"]]


@pytest.mark.parametrize("words", HELP, ids=" ".join)
def test_h_prints_the_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "-h"]) == 0
    assert capsys.readouterr().out.startswith("Usage: ")


def test_the_configuration_of_make_run_is_for_this_machine_only() -> None:
    assert [line for line in (ROOT / "conf/mosquitto.conf").read_text().splitlines() if line.startswith("listener")] == ["listener 1883 127.0.0.1"]


def test_the_broker_of_make_run_shows_its_clients() -> None:
    """`mosq top`, `mosq trace` and `mosq ctl broker` had no right, and reported two options one after the other."""
    text = (ROOT / "conf/mosquitto.conf").read_text().replace("listener 1883 ", "listener {port} ")
    with Broker(text) as broker:
        done = subprocess.run([sys.executable, "-m", "mosq", "ctl", "-p", str(broker.port), "broker", "listClients"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout[:6]) == (0, "CLIENT"), done.stderr


def test_make_run_reports_a_busy_port_before_it_builds(tmp_path: Path) -> None:
    """The copy has no sources: a build would fail with other words."""
    (tmp_path / "dev").mkdir()
    for name in ("run", "setup.sh", "progress.py"):
        shutil.copy(ROOT / "dev" / name, tmp_path / "dev" / name)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        (tmp_path / "a.conf").write_text(f"listener 0 /tmp/x\nlistener {port} 127.0.0.1\n")
        done = subprocess.run(["dev/run", "-c", "a.conf"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith(f"== port {port} is in use")


@pytest.mark.parametrize("words", [["restore", "--check"], ["doctor"], ["config", "diff", "/dev/null"]], ids=" ".join)
def test_ctrl_c_ends_a_command_in_one_line(words: list[str], tmp_path: Path) -> None:
    """The command waits for a pipe that no program writes."""
    os.mkfifo(tmp_path / "pipe")
    command = subprocess.Popen([sys.executable, "-m", "mosq", *words, tmp_path / "pipe"], cwd=ROOT, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    writer = os.open(tmp_path / "pipe", os.O_WRONLY)            # returns when the command has opened the pipe
    for _ in range(20):         # Python loses a signal that arrives between its last look and read()
        command.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            _, err = command.communicate(timeout=3)
            break
    os.close(writer)
    assert (command.returncode, err) == (1, "\nInterrupted.\n")


LISTENER = "listener {port} 127.0.0.1\nallow_anonymous true\n"


def test_a_key_that_only_root_can_read_is_reported_at_the_start() -> None:
    """A broker that another user starts has no rights to drop: it reads the key with the rights of a reload."""
    broker = Broker("", server_files())
    lines = "".join(f"{name} {path}\n" for name, path in server_paths(broker.dir).items() if name in ("certfile", "keyfile"))
    broker.config.write_text(LISTENER.replace("{port}", str(broker.port)) + lines)
    key = Path(next(line.split()[1] for line in lines.splitlines() if line.startswith("keyfile")))
    key.chmod(0o600)
    with broker:
        log = broker.log()
    assert (f"Warning: keyfile {key} was read as root" in log) == (os.geteuid() == 0)
    assert "certfile" not in "".join(line for line in log.splitlines() if "read as root" in line)


def test_doctor_names_a_key_that_only_root_can_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "".join(f"{name} {path}\n" for name, path in server_paths(tmp_path).items() if name in ("certfile", "keyfile"))
    (tmp_path / "a.conf").write_text(LISTENER.replace("{port}", "1883") + lines)
    for path in (*tmp_path.parents[:3], tmp_path):
        if path.owner() != "root" or path == tmp_path:
            path.chmod(0o755)
    main(["doctor", str(tmp_path / "a.conf")])
    assert ("cannot be read by the user" in capsys.readouterr().out) == (os.geteuid() == 0)


def test_a_refused_reload_opens_the_log_file_again(tmp_path: Path) -> None:
    """The signal may be that of logrotate."""
    with Broker(f"user root\n{LISTENER}log_dest stderr\nlog_dest file {tmp_path}/a.log\n") as broker:
        (tmp_path / "a.log").rename(tmp_path / "a.log.1")
        broker.config.write_text(broker.config.read_text() + "listner 1\n")
        broker.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + TIMEOUT_S
        while "was not reloaded" not in broker.log():
            assert time.monotonic() < end
            time.sleep(0.005)
    assert "The configuration was not reloaded" in (tmp_path / "a.log").read_text()
