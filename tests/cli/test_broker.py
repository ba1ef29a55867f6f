"""Test the command with the real data plane: the behaviour that tools for starting a broker depend on."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness.broker import ROOT, Broker, free_port
from tests.harness.effort import AT_ONCE_S, TIMEOUT_S

CONNECT_V5 = b"\x10\x10\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x03abc"


def connack(sock: socket.socket) -> bytes:
    sock.settimeout(TIMEOUT_S)
    sock.sendall(CONNECT_V5)
    return sock.recv(4)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "mosq", *map(str, arguments)], cwd=ROOT, capture_output=True, text=True,
                          timeout=TIMEOUT_S, check=False)


@contextlib.contextmanager
def started(*arguments: object, line: str = "0.2.0 running"):
    """Start a broker; return when it has logged the line."""
    command = [sys.executable, "-m", "mosq", *map(str, arguments)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert any(line in logged for logged in process.stderr)
            yield process
        finally:
            process.kill()


def test_the_broker_stops_at_once_with_a_connected_client():
    with Broker("") as broker, socket.create_connection(("127.0.0.1", broker.port)) as sock:
        assert connack(sock)[0] == 0x20
        began = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - began < AT_ONCE_S
        assert "mosq version 0.2.0 terminating" in broker.log()
        assert f"New connection from 127.0.0.1:{sock.getsockname()[1]} on port {broker.port}." in broker.log()


def test_the_port_can_be_used_again_at_once():
    with Broker("") as broker:
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", broker.port)) as sock:
                assert connack(sock)[0] == 0x20
                broker.restart()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_as_soon_as_the_broker_listens(number):
    with Broker("") as broker:
        began = time.monotonic()
        broker.send_signal(number)
        assert broker.process.wait(TIMEOUT_S) == 0
        assert time.monotonic() - began < AT_ONCE_S


def test_a_port_in_use():
    with Broker("") as broker:
        began = time.monotonic()
        done = run("-c", broker.config)
        assert time.monotonic() - began < AT_ONCE_S
        assert done.returncode == 1
        assert f"Error: Address already in use: cannot listen on 127.0.0.1 port {broker.port}." in done.stderr


def test_an_address_of_another_machine(tmp_path):
    path = tmp_path / "m.conf"
    path.write_text("listener 1883 192.0.2.1\n")
    done = run("-c", path)
    assert done.returncode == 1
    assert "Error: Cannot assign requested address: cannot listen on 192.0.2.1 port 1883." in done.stderr


def test_local_only_mode_listens_on_the_loopback_only():
    ports = free_port(), free_port()
    with started("-p", ports[0], "-p", ports[1]) as process:
        for port in ports:
            with socket.create_connection(("127.0.0.1", port)) as sock:
                assert connack(sock)[0] == 0x20
        inodes = {line.split()[9] for name in ("tcp", "tcp6") for line in Path(f"/proc/{process.pid}/net/{name}").read_text().splitlines()[1:]
                  if line.split()[3] == "0A" and int(line.split()[1].rpartition(":")[2], 16) in ports
                  and line.split()[1].rpartition(":")[0] not in ("0100007F", "00000000000000000000000001000000")}
        assert not inodes
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0


def test_unix_socket(tmp_path):
    path, conf = tmp_path / "s", tmp_path / "m.conf"
    conf.write_text(f"listener 0 {path}\nallow_anonymous true\nuser root\n")
    for _ in range(2):      # a socket file of an earlier run is no obstacle
        with started("-c", conf), socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(path))
            assert connack(sock)[0] == 0x20


def test_closed_standard_descriptors_become_dev_null(tmp_path):
    """A socket with the number 2 would send the lines of standard error to a client."""
    path, log, port = tmp_path / "m.conf", tmp_path / "log", free_port()
    path.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nuser root\nlog_dest file {log}\n")
    command = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", str(Path(sys.executable).with_name("mosq")), "-c", str(path)]
    with subprocess.Popen(command) as process:
        try:
            until(lambda: log.read_text() if log.exists() else "", lambda text: " running\n" in text)
            with socket.create_connection(("127.0.0.1", port)):
                assert [str(Path(f"/proc/{process.pid}/fd/{fd}").readlink()) for fd in range(3)] == ["/dev/null"] * 3
            process.terminate()
            assert process.wait(AT_ONCE_S) == 0
        finally:
            process.kill()


def test_anonymous_clients_need_allow_anonymous():
    with Broker("listener {port} 127.0.0.1\nlistener_allow_anonymous false\n") as broker:
        with socket.create_connection(("127.0.0.1", broker.port)) as sock:
            assert connack(sock)[3] == 0x87      # [v5 3.1.4-2] not authorized
        assert "No client can connect to" in broker.log()


def until(read, wanted):
    """Return the result of `read` when it contains the wanted text."""
    deadline = time.monotonic() + TIMEOUT_S
    while not wanted(text := read()):
        assert time.monotonic() < deadline, text
        time.sleep(0.01)
    return text


def test_json_lines_name_their_client():
    with Broker("log_format json\nlog_type all\n") as broker, socket.create_connection(("127.0.0.1", broker.port)) as sock:
        assert connack(sock)[0] == 0x20
        port = sock.getsockname()[1]
        sock.sendall(b"\xe0\x00")
        until(broker.log, lambda text: "client_disconnected" in text)
        assert broker.stop() == 0
        lines = [json.loads(line) for line in broker.log().splitlines()]
        about = {"client": "abc", "address": "127.0.0.1", "port": port, "listener": broker.port}
        mine = [line for line in lines if line.get("port") == port]
        assert [line["code"] for line in mine] == ["connection_new", "client_connected", "will_none", "connack_sent",
                                                   "disconnect_received", "client_disconnected"]
        assert all(about | line == line for line in mine[1:])
        assert abs(mine[0]["ms"] / 1000 - time.time()) < 60
        assert lines[-1]["code"] == "terminating"


def test_a_reload_of_a_running_broker():
    with Broker("") as broker, socket.create_connection(("127.0.0.1", broker.port)) as sock:
        sock.settimeout(TIMEOUT_S)
        sock.sendall(CONNECT_V5)
        assert sock.recv(4096)[0] == 0x20
        other = free_port()
        before = broker.config.read_text()
        broker.config.write_text(f"{before}log_type all\nlog_format json\nlistener {other} 127.0.0.1\n")
        broker.send_signal(signal.SIGHUP)
        until(broker.log, lambda text: f"Opening ipv4 listen socket on port {other}." in text)
        with socket.create_connection(("127.0.0.1", other)) as new:
            new.sendall(b"\xff")
        until(broker.log, lambda text: '"code": "protocol_error"' in text)
        broker.config.write_text(before + "nonsense\n")
        broker.send_signal(signal.SIGHUP)
        until(broker.log, lambda text: "the old one stays in force" in text)
        sock.sendall(b"\xc0\x00")                      # the first client is still connected
        assert sock.recv(2) == b"\xd0\x00"


def test_subscription_trees_of_many_clients_are_printed():
    n = 3000
    with Broker("") as broker, contextlib.ExitStack() as stack:
        for i in range(n // 100):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port)))
            connect = b"\x10\x12\x00\x04MQTT\x04\x02\x00\x00\x00\x06c%05d" % i
            sock.sendall(connect + b"".join(b"\x82\x0f\x00\x01\x00\x0at/%02d/%05d\x01" % (i, j) for j in range(100)))
            sock.settimeout(TIMEOUT_S)
            got = b""
            while len(got) < 4 + 100 * 5:
                got += sock.recv(65536)
        broker.send_signal(signal.SIGUSR2)
        text = until(broker.log, lambda text: text.count("(c") == n)
        assert "            00099 (c00029, 1)\n" in text



def test_a_reload_that_is_asked_for_during_the_start_is_done(tmp_path):
    config = tmp_path / "m.conf"
    config.write_text(f"listener {free_port()} 127.0.0.1\nallow_anonymous true\nuser root\n")
    for _ in range(5):
        with started("-c", config, line=" starting") as process:
            process.send_signal(signal.SIGHUP)
            assert any(line.endswith("Reloading config.\n") for line in process.stderr)
            process.terminate()
            assert not [line for line in process.stderr if "Error" in line]
            assert process.wait(TIMEOUT_S) == 0
