"""Test `mosq upgrade`, systemd's notifications and the pid file."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from mosq.cli import commands_signal
from mosq.server.upgrade import leaving
from tests.harness.broker import free_port
from tests.harness.certificates import TLS_LINES, client_context, server_files
from tests.harness.effort import TIMEOUT_S
from tests.harness.faults import until
from tests.harness.packets import Connack, Connect, Disconnect, Pingreq, Pingresp, Puback, Subscribe, Will
from tests.harness.properties import P
from tests.upgrade.case import MEMORY, Upgraded, is_running
from tests.upgrade.test_failures import LISTENER, PROGRAM, STEPS

# A process that gets a signal after another one has taken over, when it writes its last log lines
LAST_INSTANT = """import os, sys
from mosq.cli import main
from mosq.log.log import Log
right = Log.flush
def flush(self):
    if sys._getframe(1).f_code.co_name == "_leave":
        os.kill(os.getpid(), {number})
    return right(self)
Log.flush = flush
sys.exit(main())
"""

# A process that gets a signal together with the first message of the new program
TOGETHER = """import os, select, sys
from mosq.cli import main
from mosq.server.control import Control
right = Control._wait_ms
sent = []
def wait_ms(self):
    if self.upgrade is not None and not sent:
        poll = select.poll()
        poll.register(self.upgrade.fd, select.POLLIN)
        poll.poll()
        sent.append(1)
        os.kill(os.getpid(), {number})
    return right(self)
Control._wait_ms = wait_ms
sys.exit(main())
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "mosq", "upgrade", *arguments], capture_output=True, text=True, timeout=30, check=False)


def test_the_command_reports_the_new_process() -> None:
    with Upgraded(LISTENER + MEMORY) as broker:
        wire = broker.wire()
        wire.send(Connect("c"))
        assert isinstance(wire.read_packet(), Connack)
        before = broker.pid()
        done = run("-p", str(before))
        assert (done.returncode, done.stderr) == (0, "")
        broker.wait_log(" running\n", 2)
        assert done.stdout == f"Process {broker.pid()} has taken over from process {before}.\n"
        wire.send(Pingreq())
        wire.expect_packet(Pingresp())


def test_the_command_reports_that_the_old_process_goes_on(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with Upgraded(LISTENER + MEMORY, command=[sys.executable, str(program)]) as broker:
        program.write_text("raise SystemExit('no such thing')")
        done = run("-p", str(broker.pid()))
        assert done.returncode == 1
        assert "goes on: the new program ended; it wrote: no such thing." in done.stderr
        broker.wait_log("Error: Upgrade: the new program ended; it wrote: no such thing. This process goes on.")


def test_a_second_upgrade_does_not_hide_the_reason_of_the_first(tmp_path: Path) -> None:
    program, going = tmp_path / "program.py", tmp_path / "going"
    program.write_text(PROGRAM)
    with Upgraded(LISTENER + MEMORY, command=[sys.executable, str(program)]) as broker:
        program.write_text(f"import os, time\nwhile not os.path.exists({str(going)!r}): time.sleep(0.01)\nraise SystemExit('no such thing')")
        command = [sys.executable, "-m", "mosq", "upgrade", "-p", str(broker.pid())]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as first:
            broker.wait_log("Upgrade: starting")
            broker.begin()
            broker.wait_log("Warning: Upgrade: one is under way already.")
            going.touch()
            assert first.stderr is not None
            assert "goes on: the new program ended; it wrote: no such thing." in first.stderr.read()


def test_the_output_of_a_new_program_is_quoted_within_bounds(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with Upgraded(LISTENER + MEMORY, command=[sys.executable, str(program)]) as broker:
        program.write_text("import sys\nfor n in range(999): print(n, 'x' * 999, file=sys.stderr)\nsys.exit('\\x1b[31mlast')")
        broker.fail()
        line = next(line for line in broker.log().splitlines() if "the new program ended" in line)
        assert " | [31mlast. This" in line and "998 xxx" in line and "990 xxx" not in line and len(line) < 2000


def test_a_program_that_writes_without_an_end_takes_little_memory(tmp_path: Path) -> None:
    program, full = tmp_path / "program.py", tmp_path / "full"
    program.write_text(PROGRAM)
    with Upgraded(LISTENER + MEMORY, command=[sys.executable, str(program)]) as broker:
        program.write_text("import os\nos.write(2, b'begun\\n')\ntry:\n    for _ in range(1000): os.write(2, b'x' * 65536)\n"
                           f"except OSError: open({str(full)!r}, 'w').write(str(os.fstat(2).st_blocks * 512))")
        broker.fail()
        assert int(full.read_text()) == leaving.ERRORS_MAX


def test_a_broker_in_the_background_quotes_the_output(tmp_path: Path) -> None:
    """Its standard error is closed. A process that has taken over writes to the same place as the old one."""
    program, log, port = tmp_path / "program.py", tmp_path / "log", free_port()
    program.write_text(PROGRAM)
    config = tmp_path / "conf"
    config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nuser root\npid_file {tmp_path}/pid\nlog_dest file {log}\n")
    subprocess.run([sys.executable, str(program), "-c", str(config), "-d"], check=True, timeout=30)
    pid = int((tmp_path / "pid").read_text())
    try:
        program.write_text("import nothing_of_this_name")
        done = run("-p", str(pid))
        for text in (done.stderr, log.read_text()):
            assert "ModuleNotFoundError: No module named 'nothing_of_this_name'" in text
        config.write_text(config.read_text() + "nonsense true\n")
        program.write_text(PROGRAM)
        assert "nonsense" in run("-p", str(pid)).stderr
        config.write_text(config.read_text().replace("nonsense true\n", ""))
        assert run("-p", str(pid)).returncode == 0
        until(lambda: int((tmp_path / "pid").read_text()) != pid)
        pid = int((tmp_path / "pid").read_text())
        assert Path(f"/proc/{pid}/fd/2").readlink() == Path("/dev/null")
    finally:
        os.kill(pid, signal.SIGTERM)
        until(lambda: not is_running(pid))


def test_the_name_of_the_process_stays(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("mosq")
    with Upgraded(LISTENER + MEMORY, command=[str(script)]) as broker:
        before = Path(f"/proc/{broker.pid()}/comm").read_text()
        assert before == "mosq\n"
        for _ in range(2):
            assert Path(f"/proc/{broker.upgrade()}/comm").read_text() == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2])
def test_a_signal_in_the_last_instant_reaches_the_new_process(number: signal.Signals, tmp_path: Path) -> None:
    """The old process gets it while it writes its last log lines."""
    program = tmp_path / "program.py"
    program.write_text(LAST_INSTANT.replace("{number}", str(int(number))))
    with Upgraded(LISTENER + MEMORY, command=[sys.executable, str(program)]) as broker:
        old = broker.pid()
        program.write_text(PROGRAM.replace("import sys\n", "import sys, mosq.server.control as control\n"
                                           "control.Control._print_trees = lambda self: self.log.report(2, 'trees')\n"))
        broker.begin()
        broker.wait_log({signal.SIGTERM: "terminating", signal.SIGHUP: "Reloading config.", signal.SIGUSR2: "trees"}[number])
        broker.wait_end(old)


@pytest.mark.parametrize(("number", "why"), [(signal.SIGTERM, "the broker stops."), (signal.SIGHUP, "the configuration is read again.")])
def test_a_signal_together_with_a_message_ends_the_upgrade(number: signal.Signals, why: str, tmp_path: Path) -> None:
    """One call of `poll` reports both."""
    program = tmp_path / "program.py"
    program.write_text(TOGETHER.replace("{number}", str(int(number))))
    with Upgraded(LISTENER + MEMORY, command=[sys.executable, str(program)]) as broker:
        old = broker.pid()
        program.write_text(PROGRAM)
        broker.begin()
        broker.wait_log(f"Error: Upgrade: {why}", unless="has taken over")
        if number == signal.SIGTERM:
            broker.wait_end(old)
            broker.wait_log(" terminating")
        else:
            broker.wait_log("Reloading config.")
            assert broker.pid() == old and is_running(old)


def test_a_failure_does_not_wait_for_the_reader_of_standard_error(tmp_path: Path) -> None:
    """Standard error is a full pipe. The new program has written to its own, which the old process copies."""
    program, log, pid_file = tmp_path / "program.py", tmp_path / "log", tmp_path / "pid"
    program.write_text(PROGRAM)
    config = tmp_path / "conf"
    config.write_text(f"listener {free_port()} 127.0.0.1\nuser root\npid_file {pid_file}\nlog_dest file {log}\n")
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, bytes(4096))
    os.set_blocking(writer, True)
    process = subprocess.Popen([sys.executable, str(program), "-c", str(config)], stderr=writer)
    try:
        until(lambda: log.exists() and " running\n" in log.read_text())
        program.write_text("import nothing_of_this_name")
        assert "No module named 'nothing_of_this_name'" in run("-p", str(process.pid)).stderr
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(reader)
        os.close(writer)


def test_a_start_without_descriptors_keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_descriptor() -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(leaving, "stderr_copy", no_descriptor)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="Too many open files"):
        leaving.Upgrade(SimpleNamespace(rules_set=0), lambda *_: None, (), lambda: None, lambda: None, None)
    assert os.listdir("/proc/self/fd") == before


def test_systemd_gets_pings_while_a_handover_hangs(tmp_path: Path) -> None:
    """They come from the old process, which is the main process for systemd."""
    program, address = tmp_path / "program.py", str(tmp_path / "notify")
    program.write_text(PROGRAM)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(address)
        heard.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        heard.settimeout(20)
        with Upgraded(LISTENER + MEMORY, env={"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000"}, command=[sys.executable, str(program)]) as broker:
            frozen, go = tmp_path / "frozen", tmp_path / "go"
            wait = f"open({str(frozen)!r}, 'w').close()\n    while not os.path.exists({str(go)!r}): time.sleep(0.01)"
            program.write_text(STEPS.replace("{step}", "wait_go").replace("{act}", wait))
            old = broker.begin()
            until(frozen.exists)
            heard.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    heard.recv(1000)            # from before the freezing
            heard.settimeout(20)
            for _ in range(3):
                data, ancillary, _, _ = heard.recvmsg(1000, 100)
                assert data == b"WATCHDOG=1" and struct.unpack("3i", ancillary[0][2])[0] == old
            go.touch()
            broker.wait_log("has taken over")


def test_the_command_lists_the_brokers_to_choose_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands_signal, "brokers", lambda _subcommands: iter((4712, 4711)))
    done = CliRunner().invoke(commands_signal.upgrade, [], standalone_mode=False)
    assert done.return_value == 1 and "2 running brokers found (4711, 4712)." in done.output


def test_the_command_sends_nothing_to_other_processes() -> None:
    """The signal would end a process that does not handle it."""
    other = subprocess.Popen(["sleep", "60"])
    try:
        done = run("-p", str(other.pid))
        assert done.returncode == 1 and "it is no broker that can be upgraded" in done.stderr
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
    assert run("-p", "4194304").returncode == 1
    assert run("--help").returncode == 0


def test_systemd_learns_the_new_main_process(tmp_path: Path) -> None:
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(address)
        heard.settimeout(20)
        with Upgraded(LISTENER + MEMORY, env={"NOTIFY_SOCKET": address}) as broker:
            assert heard.recv(1000) == b"READY=1"
            new = broker.upgrade()
            assert {heard.recv(1000), heard.recv(1000)} == {f"MAINPID={new}".encode(), b"READY=1"}
        assert not (broker.dir / "pid").exists()


def test_a_unix_socket_moves_with_its_file(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with Upgraded(LISTENER + MEMORY + f"listener 0 {path}\nallow_anonymous true\n") as broker:
        for _ in range(2):
            broker.upgrade()
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(str(path))
                client.sendall(Connect("c").encode(4))
                assert client.recv(100) == bytes([0x20, 2, 0, 0])
    assert not path.exists()


def test_the_http_api_opens_in_the_new_process() -> None:
    """It answers again after the old process has ended."""
    port = free_port()
    config = LISTENER + MEMORY + f"listener {port} 127.0.0.1\nprotocol http_api\n"
    with Upgraded(config) as broker:
        broker.upgrade()
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/version", timeout=TIMEOUT_S) as answer:
                    assert answer.status == 200
                    break
            except urllib.error.URLError:           # the new process sees the end of the old one a moment later than this test
                assert time.monotonic() < deadline
                time.sleep(0.01)


def test_a_tls_client_is_closed_with_a_reason_and_its_session_moves() -> None:
    config = LISTENER + MEMORY + "listener {tls} 127.0.0.1\nallow_anonymous true\n" + TLS_LINES
    port = free_port()
    with Upgraded(config.replace("{tls}", str(port)), files=server_files()) as broker:
        plain = broker.wire()
        plain.send(Connect("watcher"), Subscribe(1, (("will", 1),)))
        assert isinstance(plain.read_packet(), Connack) and plain.read_packet()
        for session in (False, True):
            wire = broker.wire(port=port, tls=client_context())
            wire.send(Connect("t", clean=False, props=((P.SESSION_EXPIRY, 3600),), will=Will("will", b"gone", 1)))
            answer = wire.read_packet()
            assert answer.session == session
            broker.upgrade()
            assert wire.read_packet() == Disconnect(0x8B)
            wire.expect_closed()
            got = plain.read_packet()
            assert got.payload == b"gone"
            plain.send(Puback(got.mid))
        assert broker.log().count("1 connections moved, 1 were closed") == 2


def test_a_new_configuration_with_workers_is_refused() -> None:
    with Upgraded(LISTENER + MEMORY) as broker:
        wire = broker.wire()
        wire.send(Connect("c"))
        assert isinstance(wire.read_packet(), Connack)
        broker.config.write_text(broker.config.read_text() + "cluster_local 2\n")
        done = run("-p", str(broker.pid()))
        assert done.returncode == 1 and "goes on: the new program reports: the new configuration has workers (cluster_local), which cannot take over" in done.stderr
        broker.wait_log("the new program reports: the new configuration has workers (cluster_local), which cannot take over; restart mosq. This process goes on.")
        wire.send(Pingreq())
        wire.expect_packet(Pingresp())
