"""Test what a plain start costs, counted in modules, and what a signal does that arrives during a start."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness.broker import Broker, free_port

ROOT = Path(__file__).parents[2]
# of Python's own modules, those that a start loads before it serves; `stat`, `os` and others are in every Python
FROM_PYTHON = {"_socket", "_struct", "struct", "errno", "fcntl", "resource", "pwd", "_operator", "types"}
MODULES_MAX = 36                # of mosq
# prints the modules that are loaded when the loop begins; the script that pip installs, with its first line for pip
UNTIL_IT_SERVES = """
import os, sys
before = set(sys.modules)
from mosq.server import loop
def start(self):
    os.write(1, " ".join(set(sys.modules) - before).encode())
    os._exit(0)
loop.DataPlane.start = start
sys.argv = ["mosq", "-c", sys.argv[1]]
exec(compile(open("bin/mosq").read(), "bin/mosq", "exec"), {"__name__": "__main__"})
"""


def run_python(*arguments):
    return subprocess.run([sys.executable, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout.split()


def test_imports_of_the_command_line_and_the_control_plane_are_few():
    loaded = run_python("-S", "-c", "import sys, mosq.cli.start, mosq.config.parser, mosq.server.control; print(*sys.modules)")
    slow = {"click", "typing", "dataclasses", "inspect", "argparse", "asyncio", "socket", "logging", "subprocess", "re", "difflib", "enum",
            "threading", "collections", "functools", "ipaddress", "signal"}
    assert not slow & set(loaded)
    assert not [name for name in loaded if name.startswith(("cext", "mosq._core"))]


@pytest.mark.parametrize("lines", [
    "listener {port} 127.0.0.1\n", "listener {port} localhost\n", "listener 0 {path}/socket\n",
    "listener {port} 127.0.0.1\nacl_file {path}/acl\nlog_dest file {path}/log\nlog_type all\n"])
def test_modules_that_a_plain_start_loads_before_it_serves(lines, tmp_path):
    (tmp_path / "acl").write_text("topic read a\n")
    (tmp_path / "m.conf").write_text(f"user root\nallow_anonymous true\n{lines.format(path=tmp_path, port=free_port())}")
    loaded = run_python("-S", "-c", UNTIL_IT_SERVES, tmp_path / "m.conf")
    ours = {name for name in loaded if name.split(".")[0] == "mosq"}
    others = {name for name in loaded if name.split(".")[0] not in ("mosq", "cext") and "cython" not in name}
    assert ours & {"mosq._core", "mosq._tls"} == {"mosq._core"}
    assert not others - FROM_PYTHON
    assert len(ours) <= MODULES_MAX, sorted(ours)
    assert not {"mosq.records", "mosq.log.destinations", "mosq.server.systemd", "mosq.server.admin"} & ours


# prints how many MiB of addresses the process gets when the first threads start, which is after it has begun to listen
GROWTH = """
import os, sys, threading
from mosq.server import loop
def size():
    return int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE") >> 20
def start(self):
    before, gate = size(), threading.Barrier(3)
    for _ in range(2):
        threading.Thread(target=lambda: (bytearray(4096), gate.wait(), gate.wait())).start()
    gate.wait()
    os.write(1, str(size() - before).encode())
    os._exit(0)
loop.DataPlane.start = start
sys.argv = ["mosq", "-c", sys.argv[1]]
exec(compile(open("bin/mosq").read(), "bin/mosq", "exec"), {"__name__": "__main__"})
"""


@pytest.mark.timing
def test_the_first_threads_take_no_more_addresses_when_the_broker_listens(tmp_path):
    (tmp_path / "m.conf").write_text(f"user root\nallow_anonymous true\nlistener {free_port()} 127.0.0.1\n")
    [grown] = run_python("-S", "-c", GROWTH, tmp_path / "m.conf")
    assert int(grown) < 16          # a stack and an arena have 72


@pytest.mark.timing
@pytest.mark.parametrize(("lines", "loads"), [("", False), ("protocol websockets\n", False), ("password_file {dir}/passwords\n", True)])
def test_only_what_needs_openssl_loads_it(lines, loads):
    """Libcrypto is a tenth of the resident memory of an empty broker."""
    with Broker(f"user root\nlistener {{port}} 127.0.0.1\n{lines}", {"passwords": f"ann:$6$c2FsdHNhbHRzYWx0${'A' * 86}==\n"}) as broker:
        assert ("libcrypto" in Path(f"/proc/{broker.process.pid}/maps").read_text()) == loads


def test_the_build_stores_bytecode():
    """Test that a checkout starts without compiling its sources, also where Python may not write: that takes 30 ms."""
    for path in ("mosq/cli/start.py", "mosq/server/control.py", "mosq/config/parser.py"):
        stored = Path(ROOT, path).parent / "__pycache__" / f"{Path(path).stem}.{sys.implementation.cache_tag}.pyc"
        assert stored.exists(), "run `make build`"


# ---- signals: a configuration file that is a pipe holds the broker in the middle of its start

@pytest.fixture
def held(start, tmp_path):
    """Provide (process, path, descriptor of the pipe) of a broker that reads its configuration."""
    path = tmp_path / "m.conf"
    os.mkfifo(path)

    def run(*arguments):
        process = start(*arguments, "-c", path)
        return process, path, os.open(path, os.O_WRONLY)        # it waits until the broker has opened the other end

    return run


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_while_the_configuration_is_read_ends_with_status_0(number, held):
    process, _, fd = held()
    # Python runs the handler when a signal interrupts read(); a signal that arrives just before read() waits for the next one
    while process.poll() is None:
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
    assert process.returncode == 0
    assert process.stderr.read() == ""
    os.close(fd)


def test_a_stop_while_the_rules_are_read_ends_with_status_0(start, tmp_path):
    os.mkfifo(tmp_path / "acl")
    (tmp_path / "m.conf").write_text(f"user root\nlistener 1890 127.0.0.1\nacl_file {tmp_path}/acl\n")
    process = start("-c", tmp_path / "m.conf")
    with (tmp_path / "acl").open("w"):          # waits until the broker reads
        for _ in range(5):
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2)
                break
    assert process.returncode == 0


def test_signals_while_the_configuration_is_read_take_effect_after_the_start(held, until, tmp_path):
    process, path, fd = held("-v")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGUSR1)
    (tmp_path / "full").write_text("user root\nlistener 1891 127.0.0.1\n")
    (tmp_path / "full").rename(path)        # the reload reads this file
    os.write(fd, b"user root\nlistener 1890 127.0.0.1\n")
    os.close(fd)
    lines = until(process, "Opening ipv4 listen socket on port 1891.")
    texts = [line.partition(": ")[2] for line in lines]
    running = texts.index("mosq version 0.2.0 running")
    assert "Opening ipv4 listen socket on port 1890." in texts[:running]
    assert texts.count("Reloading config.") == 1
    assert texts.index("Reloading config.") > running
    process.terminate()
    assert process.wait(10) == 0


def test_a_stop_while_the_broker_opens_ends_with_status_0_after_it_has_cleaned_up(start, until, tmp_path):
    (tmp_path / "m.conf").write_text(f"user root\nlistener 1890 127.0.0.1\npid_file {tmp_path}/pid\n")
    process = start("-c", tmp_path / "m.conf", way="stopped")
    assert process.wait(10) == 0
    assert until(process, "terminating")[-1].endswith("mosq version 0.2.0 terminating")
    assert not (tmp_path / "pid").exists()


def test_a_stop_of_a_command_that_waits_for_its_broker_stops_both(start, tmp_path):
    (tmp_path / "m.conf").write_text(f"user root\nlistener 1890 127.0.0.1\npid_file {tmp_path}/pid\nlog_dest file {tmp_path}/log\n")
    process = start("-d", "-c", tmp_path / "m.conf", way="parent")
    assert process.wait(10) == 0
    end = time.monotonic() + 10
    while "terminating" not in (tmp_path / "log").read_text() or (tmp_path / "pid").exists():
        assert time.monotonic() < end
        time.sleep(0.002)
