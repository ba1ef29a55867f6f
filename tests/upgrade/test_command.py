"""Test `mosq upgrade`, systemd's notifications and the pid file."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.harness.broker import free_port
from tests.harness.certificates import TLS_LINES, client_context, server_files
from tests.harness.effort import TIMEOUT_S
from tests.harness.packets import Connack, Connect, Disconnect, Pingreq, Pingresp, Puback, Subscribe, Will
from tests.harness.properties import P
from tests.upgrade.case import MEMORY, Upgraded
from tests.upgrade.test_failures import LISTENER, PROGRAM


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
        program.write_text("raise SystemExit(1)")
        done = run("-p", str(broker.pid()))
        assert done.returncode == 1 and "goes on; its log has the reason." in done.stderr
        broker.wait_log("This process goes on.")


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
        assert done.returncode == 1 and "goes on; its log has the reason." in done.stderr
        broker.wait_log("the new program reports: the new configuration has workers (cluster_local), which cannot take over; restart mosq. This process goes on.")
        wire.send(Pingreq())
        wire.expect_packet(Pingresp())
