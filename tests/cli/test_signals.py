"""Test the signals of a running broker, the messages to systemd, and `mosq signal`."""

import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

import pytest

from mosq.cli.commands import mosq as mosq_commands
from mosq.cli.commands_signal import brokers, is_broker
from mosq.server.tree import tree_lines
from mosq.records import SubscriptionRow
from tests.harness.effort import TIMEOUT_S

REFUSED = "Error: The configuration was not reloaded, the old one stays in force: "


@pytest.fixture
def conf(tmp_path):
    def write(text):
        (tmp_path / "m.conf").write_text(f"user root\n{text}")
        return tmp_path / "m.conf"

    return write


def test_a_reload_applies_every_changed_option(start, until, conf, tmp_path):
    path = conf("listener 1891 127.0.0.1\nmax_connections 5\n")
    process = start("-c", path)
    until(process, "the loop runs")
    (tmp_path / "acl").write_text("topic read a\n")
    conf(f"acl_file {tmp_path}/acl\nlog_timestamp false\nlistener 1892 127.0.0.1\nlistener 1891 127.0.0.1\n"
         f"pid_file {tmp_path}/pid\nhash_buckets 64\nlog_dest stderr\nlog_dest file {tmp_path}/log\n")
    process.send_signal(signal.SIGHUP)
    assert until(process, "Reloading config.")[-1].endswith(": Reloading config.")
    told = json.loads(process.stdout.readline())
    assert [one["port"] for one in told["listeners"]] == [1892, 1891]
    assert told["securities"][0]["acl"] == [[None, "topic", "read", "a"]]
    assert until(process, "listen socket")[-1] == "Opening ipv4 listen socket on port 1892."
    until(process, "'pid_file' has changed; the change takes effect at the next start.")
    assert until(process, "'hash_buckets' has changed")[-1].endswith("; the change takes effect at the next start.")
    process.terminate()
    assert process.wait(TIMEOUT_S) == 0
    assert (tmp_path / "log").read_text().endswith("mosq version 0.2.0 terminating\n")


@pytest.mark.parametrize(("lines", "why"), [
    ("listener 1891 127.0.0.1\nnonsense true\n", "Unknown configuration variable 'nonsense'. Expected an option of "
     "mosquitto.conf. Error found at {path}:3."),
    ("acl_file {path}.none\nlistener 1891 127.0.0.1\n", "{path}.none"),
    ("listener 666 127.0.0.1\n", "cannot listen on 127.0.0.1 port 666: Address already in use"),
    ("log_dest file {path}/no/log\n", "Unable to open log file {path}/no/log for writing: Not a directory."),
])
def test_a_failed_reload_changes_nothing_and_logs_one_line(lines, why, start, until, conf):
    path = conf("listener 1891 127.0.0.1\nlog_type all\n")
    process = start("-c", path)
    until(process, "the loop runs")
    conf(lines.format(path=path))
    process.send_signal(signal.SIGHUP)
    _, last = until(process, REFUSED)
    assert why.format(path=path) in last
    path.unlink()
    process.send_signal(signal.SIGHUP)
    assert str(path) in until(process, REFUSED)[-1]
    process.terminate()
    assert process.wait(TIMEOUT_S) == 0
    assert process.stdout.read() == ""


def test_compat_ends_with_mosquittos_status_on_a_bad_acl_file(start, until, conf):
    path = conf("listener 1891 127.0.0.1\n")
    process = start("-c", path, "--compat")
    until(process, "the loop runs")
    conf("nonsense\n")                          # an error in the main file: both brokers continue
    process.send_signal(signal.SIGHUP)
    until(process, REFUSED)
    conf(f"acl_file {path}.none\nlistener 1891 127.0.0.1\n")
    process.send_signal(signal.SIGHUP)
    until(process, "The configuration was not reloaded, and the broker ends (compat): ")
    assert process.wait(TIMEOUT_S) == 3


def test_the_other_signals(start, until, conf, tmp_path):
    process = start("-c", conf(f"log_dest stderr\nlog_dest file {tmp_path}/log\n"))
    until(process, "the loop runs")
    deadline = time.monotonic() + 5
    while "the loop runs" not in (tmp_path / "log").read_text():        # each destination has its own thread
        assert time.monotonic() < deadline
        time.sleep(0.002)
    (tmp_path / "log").rename(tmp_path / "log.1")
    process.send_signal(signal.SIGRTMIN)
    process.send_signal(signal.SIGUSR1)
    until(process, "Nothing to save")
    process.send_signal(signal.SIGUSR2)
    assert [process.stdout.readline() for _ in range(8)] == [
        "    \n", "      \n", "        a\n", "          b (s1, 1)\n", "    \n", "      \n", "        a\n", "          b (g: s2, 0)\n"]
    process.terminate()
    assert process.wait(TIMEOUT_S) == 0
    assert "the loop runs" in (tmp_path / "log.1").read_text()
    assert "terminating" in (tmp_path / "log").read_text()


def test_log_topics(start, until, conf):
    process = start("-c", conf("log_dest topic\nlog_dest stderr\nlog_type all\n"))
    until(process, "the loop runs")
    process.terminate()
    told = [json.loads(line) for line in process.stdout]
    assert process.wait(TIMEOUT_S) == 0
    assert {(kind, topic, qos, retain) for kind, topic, _, qos, retain in told} == {
        ("publish", "$SYS/broker/log/N", 2, False), ("publish", "$SYS/broker/log/I", 2, False)}
    assert [payload.split(": ", 1)[1] for _, _, payload, _, _ in told] == [
        "mosq version 0.2.0 running", "the loop runs", "mosq version 0.2.0 terminating"]


# ---- the tree


def test_trees_have_the_form_of_mosquitto():
    rows = [("s1", "a/+/b", 1), ("s1", "a/#", 1), ("s2", "a/c/b", 0), ("s2", "$share/g/a/c/b", 0), ("s2", "$share/g/#", 0),
            ("s3", "$SYS/broker/log/#", 0), ("x\n", "/", 2)]
    assert "".join(tree_lines([SubscriptionRow(*row) for row in rows], 3)).splitlines() == [
        "    ", "      ", "        ", "           (x?, 2)", "        a", "          # (s1, 1)", "          +", "            b (s1, 1)",
        "          c", "            b (s2, 0)", "      $SYS", "        $SYS", "          broker", "            log",
        "              # (s3, 0)",
        "    ", "      ", "        # (g: s2, 0)", "        a", "          c", "            b (g: s2, 0)", "... and 3 more"]


def test_a_deep_and_a_large_tree():
    lines = "".join(tree_lines([SubscriptionRow("a", "/" * 200, 0), *(SubscriptionRow("b", f"t/{i}", 0) for i in range(20_000))])).splitlines()
    assert len(lines) == 4 + 201 + 1 + 20_000 - 1


# ---- systemd


@pytest.fixture
def systemd(tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        os.chmod(tmp_path / "notify", 0o777)        # like systemd's
        sock.settimeout(TIMEOUT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield sock


def test_systemd_is_notified(start, until, conf, systemd):
    process = start("-c", conf(""))
    assert systemd.recv(100) == b"READY=1"
    conf("log_type nonsense\n")
    process.send_signal(signal.SIGHUP)
    reloading, stamp = systemd.recv(100).split(b"\n")
    assert reloading == b"RELOADING=1"
    assert abs(int(stamp.removeprefix(b"MONOTONIC_USEC=")) - time.monotonic_ns() // 1000) < 5_000_000
    assert systemd.recv(100) == b"READY=1"
    process.terminate()
    assert systemd.recv(100) == b"STOPPING=1"
    assert process.wait(TIMEOUT_S) == 0


def test_an_abstract_socket(start, until, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0mosq-test-{os.getpid()}")
        sock.settimeout(TIMEOUT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@mosq-test-{os.getpid()}")
        process = start()
        assert sock.recv(100) == b"READY=1"
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0


def test_the_watchdog_is_fed_while_the_loop_answers(start, conf, systemd, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "300000")
    process = start("-c", conf(""))
    assert [systemd.recv(100) for _ in range(4)] == [b"READY=1"] + [b"WATCHDOG=1"] * 3
    process.terminate()
    while systemd.recv(100) != b"STOPPING=1":
        pass
    assert process.wait(TIMEOUT_S) == 0


def test_the_watchdog_is_not_fed_for_a_loop_that_hangs(start, conf, systemd, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    process = start("-c", conf(""), way="stuck")
    assert systemd.recv(100) == b"READY=1"
    assert select.select([systemd], [], [], 0.3)[0] == []
    process.terminate()
    assert systemd.recv(100) == b"STOPPING=1"
    assert process.wait(TIMEOUT_S) == 0


def test_a_watchdog_of_another_process(start, conf, systemd, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    process = start("-c", conf(""))
    assert systemd.recv(100) == b"READY=1"
    systemd.settimeout(0.2)                 # several periods of the watchdog
    with pytest.raises(TimeoutError):
        systemd.recv(100)
    systemd.settimeout(TIMEOUT_S)
    process.terminate()
    assert systemd.recv(100) == b"STOPPING=1"
    assert process.wait(TIMEOUT_S) == 0


# ---- environment


@pytest.mark.parametrize(("name", "value", "said"), [
    ("UMASK_SET", "9", "Error: UMASK_SET environment variable not a valid octal number."),
    ("UMASK_SET", "1000", "Error: UMASK_SET environment variable out of range."),
    ("PUID", "ann", "Error: PUID not a valid ID 'ann'"), ("PGID", "-1", "Error: PGID not a valid ID '-1'"),
])
def test_invalid_numbers_in_the_environment(name, value, said, mosq):
    if name[0] == "P" and os.geteuid() != 0:
        return              # only root changes its user
    done = mosq(env={**os.environ, name: value})
    assert done.returncode == 1
    assert said in done.stderr


def test_puid_and_umask_of_containers(start, until, conf, monkeypatch, request):
    tmp_path = Path(tempfile.mkdtemp())                         # only root may enter pytest's own folder
    request.addfinalizer(lambda: shutil.rmtree(tmp_path))
    os.chmod(tmp_path, 0o777)
    monkeypatch.setenv("UMASK_SET", "027")
    if os.geteuid() == 0:
        monkeypatch.setenv("PUID", "1234")
        monkeypatch.setenv("PGID", "2345")
    process = start("-c", conf(f"pid_file {tmp_path}/pid\nlog_dest stderr\nlog_dest file {tmp_path}/log\n"))
    until(process, "0.2.0 running")
    with open(f"/proc/{process.pid}/status") as file:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    assert status["Umask"] == "0027"
    assert (tmp_path / "pid").stat().st_mode & 0o777 == 0o640
    if os.geteuid() == 0:
        assert (status["Uid"].split(), status["Gid"].split(), status["Groups"].split()) == (["1234"] * 4, ["2345"] * 4, ["2345"])
        assert (tmp_path / "log").stat().st_uid == 1234         # the broker must be able to open its log again
    process.terminate()
    assert process.wait(TIMEOUT_S) == 0


# ---- mosq signal


def test_mosq_signal(start, until, conf, mosq):
    process = start("-c", conf(""))
    until(process, "the loop runs")
    assert mosq("signal", "-p", process.pid, "config-reload").returncode == 0
    until(process, "Reloading config.")
    assert mosq("signal", "-p", process.pid, "shutdown").returncode == 0
    assert process.wait(TIMEOUT_S) == 0
    gone = mosq("signal", "-p", process.pid, "log-rotate")
    assert gone.returncode == 1
    assert f"Error: Process {process.pid}: No such process." in gone.stderr
    for bad in (["-a", "-p", "1", "shutdown"], ["shutdown"], ["-p", "0", "shutdown"], ["-p", "1", "explode"], []):
        assert mosq("signal", *bad).returncode == 3


def test_processes_that_count_as_brokers(tmp_path):
    known = mosq_commands.commands
    assert is_broker(["/usr/bin/mosq", "-c", "x"], known)
    assert is_broker(["/usr/bin/python3", "/usr/bin/mosq", "-d"], known)
    assert is_broker([sys.executable, "-X", "dev", "-m", "mosq", "-p", "1"], known)
    assert not is_broker(["/usr/bin/python3", "/usr/bin/mosq", "signal", "-a", "shutdown"], known)
    assert not is_broker(["vi", "mosq"], known)
    assert not is_broker([], known)
    for pid, words in ((70001, b"mosq\0-d\0"), (70002, b"mosquitto\0")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_bytes(words)
    (tmp_path / "70003").mkdir()
    assert list(brokers(known, str(tmp_path))) == [70001]
