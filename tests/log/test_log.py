"""Test the log's lines: their form, and their destinations."""

import json
import os
import socket
import time
from types import SimpleNamespace

import pytest

from mosq.log_types import LOG_ALL
from mosq.log.log import Log
from mosq.log.json_lines import code_of, json_line
from mosq.records import LogLine
from tests.harness.effort import TIMEOUT_S


def closed(log):
    for stream in log.streams.values():
        stream.close(time.monotonic() + 5)


@pytest.fixture
def lines(tmp_path):
    """Provide lines(log, records), which writes them to a file and returns the file's content."""
    made = []

    def write(records, **how):
        log = Log((f"file {tmp_path}/log",), **how)
        made.append(log)
        log.open()
        log.write([LogLine(*record) for record in records])
        log.flush()
        return (tmp_path / "log").read_bytes()

    yield write
    for log in made:
        for stream in log.streams.values():
            stream.close(time.monotonic() + 5)


def test_lines_begin_with_seconds_since_1970(lines):
    assert lines([(1700000000, 8, "one"), (1700000001, 4, "\ttwo é")], mask=15).decode() == (
        "1700000000: one\n1700000001: \ttwo é\n")


def test_disabled_log_types_are_left_out(lines):
    assert lines([(1, 8, "information"), (1, 4, "notice"), (1, 16, "debug")], mask=4) == b"1: notice\n"


def test_formatted_time_and_none(lines):
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(1700000000))
    assert lines([(1700000000, 1, "x")], mask=1, timestamp_format="%Y-%m-%dT%H:%M:%S").decode() == f"{stamp}: x\n"
    assert lines([(1700000000, 1, "y")], mask=1, timestamp=False).endswith(b"\ny\n")


def test_a_client_cannot_forge_a_line(lines):
    assert lines([(1, 1, "id\n2: forged\r\x1b[2J\u2028\x85\x00 end \U0001f600")], mask=1).decode() == (
        "1: id?2: forged??[2J??? end \U0001f600\n")


def test_text_that_cannot_be_encoded(lines):
    assert lines([(1, 1, "\udcff")], mask=1) == b"1: \\udcff\n"


@pytest.mark.parametrize(("dests", "streams", "syslog", "topic"), [
    ((), ["stderr"], False, False), (("stderr",), ["stderr"], False, False), (("stdout",), ["stdout"], False, False),
    (("stdout", "stderr", "stdout"), ["stdout", "stderr"], False, False), (("none",), [], False, False),
    (("none", "stdout"), ["stdout"], False, False), (("syslog", "topic"), [], True, True),
])
def test_destinations(dests, streams, syslog, topic):
    log = Log(dests)
    assert list(log.streams) == streams
    assert bool(log.syslog) == syslog
    assert bool(log.topic) == topic


def test_several_destinations_at_once_and_a_file_that_was_moved_away(tmp_path):
    log = Log((f"file {tmp_path}/a", f"file {tmp_path}/b"), mask=1)
    log.open()
    log.write([LogLine(1, 1, "before")])
    log.flush()
    (tmp_path / "a").rename(tmp_path / "a.1")
    log.write([LogLine(2, 1, "moved")])
    log.flush()
    log.reopen()
    log.write([LogLine(3, 1, "after")])
    log.flush()
    assert (tmp_path / "a.1").read_text() == "1: before\n2: moved\n"
    assert (tmp_path / "a").read_text() == "3: after\n"
    assert (tmp_path / "b").read_text() == "1: before\n2: moved\n3: after\n"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600
    os.chmod(tmp_path, 0o755)
    # the folder is gone: the line about it goes to the previous destination
    (tmp_path / "a").unlink()
    (tmp_path / "b").unlink()
    (tmp_path / "a").mkdir()
    kept = os.dup(log.streams[f"file {tmp_path}/a"].fd)
    log.reopen()
    log.flush()
    assert os.readlink(f"/proc/self/fd/{kept}").endswith("(deleted)")
    with open(f"/proc/self/fd/{kept}") as file:
        assert f"Error: Unable to open log file {tmp_path}/a for writing" in file.read()
    os.close(kept)
    for stream in log.streams.values():
        stream.close(time.monotonic() + 5)


def test_files_that_cannot_be_opened(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "precious")
    os.mkfifo(tmp_path / "fifo")
    for name, why in (("none/log", "No such file"), ("link", "symbolic link"), ("fifo", "No such device"),
                      (".", "Is a directory")):
        log = Log((f"file {tmp_path}/ok", f"file {tmp_path}/{name}"), mask=1)
        config = SimpleNamespace(log_dest=log.dests, log_format="text")
        with pytest.raises(OSError, match=f"Unable to open log file {tmp_path}/{name} for writing: .*{why}"):
            log.prepare(config)
        assert all(not os.path.samefile(f"/proc/self/fd/{fd}", tmp_path / "ok") for fd in os.listdir("/proc/self/fd")
                   if os.path.exists(f"/proc/self/fd/{fd}"))
        (text,) = log.open()            # an error at the start: the log continues with the other destinations
        assert why in text
        assert list(log.streams) == [f"file {tmp_path}/ok"]
        closed(log)
    log = Log((f"file {tmp_path}/none/log",), mask=1)
    assert len(log.open()) == 1
    assert list(log.streams) == ["stderr"]
    assert not (tmp_path / "precious").exists()


def test_another_configuration(tmp_path):
    log = Log((f"file {tmp_path}/a",), mask=1)
    log.open()
    config = SimpleNamespace(log_dest=(f"file {tmp_path}/b", "syslog"), log_timestamp=False, log_timestamp_format=None,
                             log_facility=3, log_format="text")
    log.change(config, 2, log.prepare(config))
    log.syslog.address = str(tmp_path / "nobody")
    log.write([LogLine(1, 1, "no"), LogLine(1, 2, "yes")])
    log.flush()
    assert (tmp_path / "a").read_text() == ""
    assert (tmp_path / "b").read_text() == "yes\n"
    assert log.syslog.facility >> 3 == 19
    config = SimpleNamespace(log_dest=(f"file {tmp_path}/none/b",), log_timestamp=True, log_timestamp_format=None,
                             log_format="text")
    with pytest.raises(OSError, match="Unable to open"):
        log.prepare(config)
    for stream in log.streams.values():
        stream.close(time.monotonic() + 5)


def test_syslog(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.settimeout(TIMEOUT_S)
        log = Log(("syslog",), mask=LOG_ALL, facility=5)
        log.syslog.address = str(tmp_path / "dev-log")
        log.write([LogLine(1700000000, 8, "nobody listens")])
        server.bind(log.syslog.address)
        for type_bit, severity in ((1, 3), (2, 4), (4, 5), (8, 6), (16, 7), (32, 5), (64, 5), (256, 7)):
            log.write([LogLine(1700000000, type_bit, "x\ny")])
            if type_bit == 1:
                assert b": Warning: 1 log lines were lost" in server.recv(1000)
            stamp = time.strftime("%b %e %H:%M:%S", time.localtime(1700000000))
            assert server.recv(1000).decode() == (
                f"<{(21 << 3) | severity}>{stamp} mosquitto[{os.getpid()}]: 1700000000: x?y")
        for _ in range(5000):                       # no program reads: the log must not wait
            log.write([LogLine(1700000000, 8, "z" * 900)])
        assert log.syslog.lost > 0
        log.syslog.close(0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:     # its server was started again
        os.unlink(tmp_path / "dev-log")
        server.bind(str(tmp_path / "dev-log"))
        server.settimeout(TIMEOUT_S)
        log.write([LogLine(1700000000, 8, "again")])
        assert b"were lost" in server.recv(1000)
        assert server.recv(1000).endswith(b": again")
        log.syslog.close(0)


def test_topics():
    log = Log(("topic",), mask=LOG_ALL)
    told = []
    log.write([LogLine(1, 1, "before anybody can have subscribed")])
    log.topic.publish = lambda topic, payload: told.append((topic, payload))
    log.write([LogLine(1, bit, "x") for bit in (1, 2, 4, 8, 16, 32, 64, 128, 256)])
    log.publish(8, "the last")
    log.report(8, "after the last")
    *some, last = told
    assert some == [(f"$SYS/broker/log/{letter}", b"1: x") for letter in
                    ("E", "W", "N", "I", "M/subscribe", "M/unsubscribe", "WS")]       # never debug, so that no line causes another line
    assert last[0] == "$SYS/broker/log/I"
    assert last[1].endswith(b": the last")


def test_json(lines):
    out = lines([(1700000000, 4, "Client a\u2028\x85b\n [::1:7] disconnected: session taken over.", 42, "a\u2028\x85b\n",
                  "::1", 7, 1883), (1700000001, 8, "Using default config.")], mask=15, form="json")
    first, second = (json.loads(line) for line in out.decode().split("\n")[:-1])
    assert len(out.decode().splitlines()) == 2
    assert first == {"time": "2023-11-14T22:13:20.042Z", "ms": 1700000000042, "level": "notice",
                     "code": "client_disconnected", "client": "a\u2028\x85b\n", "address": "::1", "port": 7,
                     "listener": 1883, "reason": "session taken over",
                     "text": "Client a\u2028\x85b\n [::1:7] disconnected: session taken over."}
    assert second == {"time": "2023-11-14T22:13:21.000Z", "ms": 1700000001000, "level": "information",
                      "code": "config_default", "text": "Using default config."}


@pytest.mark.parametrize(("type_bit", "text", "code"), [
    (4, "Client connection from 1.2.3.4 denied: x [::1:9] disconnected.", "client_disconnected"),      # a client id that imitates a log line
    (4, "Client connection from 1.2.3.4 denied: max_connections exceeded.", "connection_denied"),
    (4, "Client negotiated TLSv1.3 cipher X [1.1.1.1:1] disconnected: exceeded timeout.", "client_disconnected"),
    (4, "Client x negotiated TLSv1.3 cipher TLS_AES_256_GCM_SHA384", "tls_negotiated"),
    (4, "New client connected from ::1:5 as x [::1:9] disconnected: a (p5, c1, k60).", "client_connected"),
    (8, "mosq version 0.2.0 running", "running"),
    (8, "TLS-PSK support NOT available.", "feature"),
    (32, "Client x [1:2] disconnected.", "subscribe"),
    (16, "\ta/b (QoS 1)", "detail"),
    (16, "Received PUBLISH from x (d0, q1, r0, m1, 'a', ... (5 bytes))", "publish_received"),
    (16, "Sending PUBACK to x (m1, rc0)", "puback_sent"),
    (8, "something new", "other"),
])
def test_codes(type_bit, text, code):
    assert code_of(type_bit, text) == code


def test_a_json_line_names_the_node_of_a_cluster():
    record = LogLine(1, 8, "text")
    assert json.loads(json_line(record, 2, "a")).items() >= {"worker": 2, "node": "a"}.items()
    assert "node" not in json.loads(json_line(record, 2))
