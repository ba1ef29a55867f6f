"""The log's lines, and that a log which cannot be written stops nobody."""

import os
import time

import pytest

from mosq.log import Log


@pytest.fixture
def pipe(monkeypatch):
    read_fd, write_fd = os.pipe()
    os.set_blocking(read_fd, False)
    monkeypatch.setattr("mosq.log.STDERR_FD", write_fd)
    yield read_fd, write_fd
    for fd in (read_fd, write_fd):
        try:
            os.close(fd)
        except OSError:
            pass


def test_lines_begin_with_seconds_since_1970(pipe):
    Log(mask=15).write([(1700000000, 8, "one"), (1700000001, 4, "\ttwo é")])
    assert os.read(pipe[0], 100).decode() == "1700000000: one\n1700000001: \ttwo é\n"


def test_a_batch_is_one_write(pipe, monkeypatch):
    writes = []
    monkeypatch.setattr("mosq.log.os.write", lambda fd, block: writes.append((fd, bytes(block))) or len(block))
    Log(mask=8).write([(1, 8, "x")] * 100)
    assert writes == [(pipe[1], b"1: x\n" * 100)]


def test_types_that_are_not_wanted_are_left_out(pipe):
    log = Log(mask=4)
    log.write([(1, 8, "information"), (1, 4, "notice"), (1, 16, "debug")])
    log.write([(1, 8, "information")])
    assert os.read(pipe[0], 100) == b"1: notice\n"


def test_formatted_time_and_none(pipe):
    Log(mask=1, timestamp_format="%Y-%m-%dT%H:%M:%S").write([(1700000000, 1, "x")])
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(1700000000))
    assert os.read(pipe[0], 100).decode() == f"{stamp}: x\n"
    Log(mask=1, timestamp=False).write([(1700000000, 1, "x")])
    assert os.read(pipe[0], 100) == b"x\n"


def test_a_client_cannot_forge_a_line(pipe):
    Log(mask=1).write([(1, 1, "id\n2: forged\r\x1b[2J\u2028\x85\x00 end \U0001f600")])
    assert os.read(pipe[0], 100).decode() == "1: id?2: forged??[2J??? end \U0001f600\n"


def test_text_that_no_encoding_has(pipe):
    Log(mask=1).write([(1, 1, "\udcff")])
    assert os.read(pipe[0], 100) == b"1: \\udcff\n"


@pytest.mark.parametrize(("dests", "fds"), [
    ((), [2]), (("stderr",), [2]), (("stdout",), [1]), (("stdout", "stderr", "stdout"), [1, 2]), (("none",), []),
    (("none", "stdout"), [1]),
])
def test_destinations(dests, fds):
    assert Log(dests).fds == fds


def test_a_closed_pipe_is_no_reason_to_stop(pipe):
    os.close(pipe[0])
    Log(mask=1).write([(1, 1, "x")])


def test_a_full_pipe_that_does_not_block_drops(pipe):
    os.set_blocking(pipe[1], False)
    Log(mask=1).write([(1, 1, "x" * 1000)] * 1000)
    assert os.read(pipe[0], 10) == b"1: xxxxxxx"
