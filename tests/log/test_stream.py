"""Test a destination that is slow, full or gone: the logging program continues, and every lost line is reported."""

import os
import threading
import time

import pytest

from mosq.log.destinations import QUEUE_BYTES_MAX, Stream

from tests.harness.effort import AT_ONCE_S

LINE = b"x" * 999 + b"\n"


@pytest.fixture
def pipe():
    fds = list(os.pipe())
    yield fds
    for fd in fds:
        try:
            os.close(fd)
        except OSError:
            pass


def closed(stream):
    stream.close(time.monotonic() + 5)
    if stream._thread:
        stream._thread.join(5)
        assert not stream._thread.is_alive()


def test_a_pipe_without_reader_delays_no_caller_and_logs_losses(pipe):
    read_fd, write_fd = pipe
    stream = Stream(write_fd)
    put = 0
    began = time.monotonic()
    while not stream.lost:
        stream.put(LINE, 1)
        put += 1
    stream.put(LINE * 3, 3)
    assert time.monotonic() - began < AT_ONCE_S
    assert put * 1000 > QUEUE_BYTES_MAX
    lost = stream.lost
    assert lost == 4
    out = []
    reader = threading.Thread(target=lambda: out.extend(os.fdopen(read_fd, "rb", closefd=False)))
    reader.start()
    closed(stream)
    os.close(write_fd)
    reader.join(5)
    told = [line for line in out if line != LINE]
    assert [line.split(b": ", 1)[1] for line in told] == [
        b"Warning: 4 log lines were lost: the log could not be written fast enough.\n"]
    assert len(out) - 1 == put + 3 - lost


def test_a_closed_pipe_does_not_stop_the_log(pipe):
    os.close(pipe[0])
    stream = Stream(pipe[1])
    for _ in range(3):
        stream.put(b"a\n", 1)
        stream.flush(time.monotonic() + 5)
    assert stream.lost == 3
    closed(stream)


def test_a_full_disk(tmp_path):
    full = os.open("/dev/full", os.O_WRONLY)
    stream = Stream(full, str(tmp_path / "log"))
    stream.put(b"a\nb\n", 2)
    stream.flush(time.monotonic() + 5)
    assert stream.lost == 2
    stream.reopen()                                  # there is room again
    stream.put(b"c\n", 1)
    stream.flush(time.monotonic() + 5)
    closed(stream)
    first, last = (tmp_path / "log").read_text().splitlines()
    assert first == "c"
    assert last.endswith("Warning: 2 log lines were lost: the log could not be written (No space left on device).")
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(full)                               # the old one was closed


def test_half_a_line_is_ended_before_the_next(pipe, monkeypatch):
    write = os.write
    broken = threading.Event()

    def half(fd, block):
        if fd != pipe[1] or broken.is_set():
            if fd == pipe[1] and bytes(block) == b"ond\n":
                raise OSError(28, "No space left on device")
            return write(fd, block)
        broken.set()
        return write(fd, bytes(block)[:-4])

    monkeypatch.setattr("mosq.log.destinations.os.write", half)
    stream = Stream(pipe[1])
    stream.put(b"first\nsecond\n", 2)
    stream.flush(time.monotonic() + 5)
    stream.put(b"third\n", 1)
    closed(stream)
    assert os.read(pipe[0], 1000).startswith(b"first\nsec\nthird\n")


def test_a_shared_non_blocking_pipe_loses_no_line(pipe):
    os.set_blocking(pipe[1], False)
    stream = Stream(pipe[1])
    for _ in range(200):
        stream.put(LINE, 1)
    got = b""
    while len(got) < 200 * len(LINE):
        got += os.read(pipe[0], 65536)
    assert got == LINE * 200
    assert stream.lost == 0
    closed(stream)


def test_close_waits_for_a_limited_time(pipe):
    stream = Stream(pipe[1])
    for _ in range(200):
        stream.put(LINE, 1)
    began = time.monotonic()
    stream.close(began + 0.05)
    assert time.monotonic() - began < AT_ONCE_S
    stream.put(b"late\n", 1)
    os.close(pipe[0])                                # ends its thread
    stream._thread.join(5)
    assert not stream._thread.is_alive()


def test_a_block_waits_while_the_system_allows_no_thread(pipe, monkeypatch):
    def refused(thread):
        raise RuntimeError("can't start new thread")

    stream = Stream(pipe[1])
    with monkeypatch.context() as no_threads:
        no_threads.setattr(threading.Thread, "start", refused)
        stream.put(b"one\n", 1)
    stream.put(b"two\n", 1)
    closed(stream)
    assert os.read(pipe[0], 100) == b"one\ntwo\n"
