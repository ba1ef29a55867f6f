"""Test the captures of `mosq trace` with Wireshark's tshark, and the command itself against a broker."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mosq
from mosq.cli.commands import main
from mosq.tools.trace.pcapng import Writer
from tests.harness.effort import TIMEOUT_S
from tests.harness.packets import Connack, Connect, Disconnect, Puback, Publish, Suback, Subscribe
from tests.harness.wire import Wire


def tshark(path: Path, port: int, *fields: str) -> list[list[str]]:
    """Return these fields of each packet."""
    command = ["tshark", "-r", str(path), "-d", f"tcp.port=={port},mqtt", "-o", "tcp.desegment_tcp_streams:TRUE", "-T", "fields"]
    for field in fields:
        command += ["-e", field]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, env={**os.environ, "HOME": str(path.parent)}, check=False)
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


def event(kind: str, frame: bytes, size: int = 0, **more: Any) -> dict[str, Any]:
    return {"event": kind, "time": 1_700_000_000_123_456, "connection": 1, "address": "10.1.2.3", "ownAddress": "10.0.0.1",
            "port": 50000, "listener": 8883, "size": size or len(frame), **more}


def written(tmp_path: Path, *packets: tuple[dict[str, Any], bytes]) -> Path:
    file = io.BytesIO()
    writer = Writer(file)
    for one, frame in packets:
        writer.packet(one, frame)
    path = tmp_path / "a.pcapng"
    path.write_bytes(file.getvalue())
    return path


def test_tshark_reads_addresses_times_and_packets(tmp_path: Path) -> None:
    connect, connack = Connect("one").encode(5), Connack().encode(5)
    path = written(tmp_path, (event("received", connect), connect), (event("sent", connack), connack))
    rows = tshark(path, 8883, "ip.src", "tcp.srcport", "ip.dst", "tcp.dstport", "mqtt.msgtype", "mqtt.clientid", "frame.time_epoch")
    assert rows[3][:6] == ["10.1.2.3", "50000", "10.0.0.1", "8883", "1", "one"]
    assert rows[4][:5] == ["10.0.0.1", "8883", "10.1.2.3", "50000", "2"]
    assert rows[3][6].startswith("1700000000.123456")


@pytest.mark.parametrize("size", [200, 70_000, 300_000])
def test_sequence_numbers_continue_over_bytes_that_are_cut(tmp_path: Path, size: int) -> None:
    frame = Publish("a/b", bytes(size)).encode(4)
    last = Publish("c/d", b"x").encode(4)
    path = written(tmp_path, (event("received", frame[:100], len(frame)), frame[:100]), (event("received", last), last))
    rows = tshark(path, 8883, "tcp.seq", "tcp.len", "mqtt.topic", "tcp.analysis.flags", "_ws.malformed")
    assert rows[-1][2] == "c/d"
    assert all(row[3:] == ["", ""] for row in rows), rows
    assert sum(int(row[1]) for row in rows) == len(frame) + len(last)
    assert rows[3][2] == "a/b"


def test_ipv6_and_comments(tmp_path: Path) -> None:
    file = io.BytesIO()
    writer = Writer(file)
    writer.comment("access denied: read 'a'")
    writer.comment("é" * 900 + "名" * 900)
    writer.comment("x" + "名" * 900)
    frame = Connect("one").encode(4)
    six = event("received", frame, address="fd00::2", ownAddress="fd00::1")
    writer.packet(six, frame)
    writer.closed({**six, "event": "closed"})
    path = tmp_path / "six.pcapng"
    path.write_bytes(file.getvalue())
    assert b"".join(file.getvalue().split("名".encode())).count("名".encode()[:1]) == 0      # no character is cut
    rows = tshark(path, 8883, "ipv6.src", "frame.comment", "mqtt.clientid", "tcp.flags.fin", "tcp.analysis.flags")
    assert "access denied: read 'a'" in rows[0][1]
    assert rows[3][0] == "fd00::2"
    assert rows[3][2] == "one"
    assert rows[4][3] in ("1", "True")
    assert all(row[4] == "" for row in rows), rows


def test_the_command_writes_a_capture_that_tshark_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.pcapng"
    with mosq.Broker(enable_control_api=True) as broker:
        command = [sys.executable, "-m", "mosq", "trace", "-p", str(broker.port), "--client", "one", "--pcap", str(path), "--count", "6"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            watch(broker.port)
            talk(broker.port)
            _, said = process.communicate(timeout=TIMEOUT_S)
            assert process.returncode == 0, said
        assert path.stat().st_mode & 0o777 == 0o600         # it has messages of others
        assert f"tcp.port=={broker.port},mqtt" in said
        rows = tshark(path, broker.port, "mqtt.msgtype", "mqtt.topic", "tcp.analysis.flags")
    assert [row[0] for row in rows if row[0]] == ["1", "2", "8", "9", "3", "4"]
    assert all(row[2] == "" for row in rows), rows


def test_the_command_prints_lines_of_json(tmp_path: Path) -> None:
    with mosq.Broker(enable_control_api=True) as broker:
        command = [sys.executable, "-m", "mosq", "trace", "-p", str(broker.port), "--client", "one", "--json", "--count", "6"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            watch(broker.port)
            talk(broker.port)
            out, said = process.communicate(timeout=TIMEOUT_S)
            assert process.returncode == 0, said
    events = [json.loads(line) for line in out.splitlines()]
    assert [one["packet"]["type"] for one in events] == ["CONNECT", "CONNACK", "SUBSCRIBE", "SUBACK", "PUBLISH", "PUBACK"]
    assert events[4]["packet"]["payload"] == "\x1b[31mhello"
    assert events[4]["packet"]["payloadSize"] == 10


def test_the_command_ends_after_its_events_although_no_other_follows() -> None:
    with mosq.Broker(enable_control_api=True) as broker:
        command = [sys.executable, "-m", "mosq", "trace", "-p", str(broker.port), "--client", "one", "--count", "2"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            watch(broker.port)
            wire = Wire(broker.port, 5)
            wire.send(Connect("one"))
            assert isinstance(wire.read_packet(), Connack)
            out, said = process.communicate(timeout=TIMEOUT_S)
            wire.close()
    assert (process.returncode, len(out.splitlines()), said) == (0, 2, "")


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_names_that_the_terminal_lacks_are_escapes(form: list[str]) -> None:
    """One such name ended the command with an error."""
    with mosq.Broker(enable_control_api=True) as broker:
        command = [sys.executable, "-m", "mosq", "trace", "-p", str(broker.port), "--client", "名", "--count", "1", *form]
        env = {**os.environ, "PYTHONIOENCODING": "latin-1"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as process:
            watch(broker.port)
            wire = Wire(broker.port, 5)
            wire.send(Connect("名"))
            assert isinstance(wire.read_packet(), Connack)
            wire.close()
            out, said = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, b"\\u540d" in out) == (0, True), said


def test_no_capture_is_written_to_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["trace", "--client", "a", "--pcap", "-"]) == 3
    assert "expected a pipe or a file" in capsys.readouterr().err


def test_the_command_reports_why_there_is_no_trace() -> None:
    with mosq.Broker() as broker:
        done = subprocess.run([sys.executable, "-m", "mosq", "trace", "-p", str(broker.port), "--client", "one"],
                              capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1
    assert "enable_control_api true" in done.stderr


def watch(port: int) -> None:
    """Wait until the broker has a trace."""
    admin = Wire(port, 5)
    admin.send(Connect("watch"))
    assert isinstance(admin.read_packet(), Connack)
    while True:
        admin.send(Publish("$CONTROL/mosq/trace/v1", b'{"commands":[{"command":"listTraces"}]}'))
        got = admin.read_packet()
        assert isinstance(got, Publish)
        if json.loads(got.payload)["responses"][0]["data"]["traces"]:
            admin.close()
            return


def talk(port: int) -> None:
    one = Wire(port, 5)
    one.send(Connect("one"))
    assert isinstance(one.read_packet(), Connack)
    one.send(Subscribe(1, (("b", 0),)))
    one.expect_packet(Suback(1, (0,)))
    one.send(Publish("a", b"\x1b[31mhello", 1, 2))
    assert isinstance(one.read_packet(), Puback)
    one.send(Disconnect())
    one.close()
