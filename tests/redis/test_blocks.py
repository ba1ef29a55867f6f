"""Test small reads of files in Redis: those beside each other ask it once, and none returns bytes that were changed."""

from __future__ import annotations

import os

import pytest
from cext.testing.disk_api import CalledFiles

from tests.redis.server import Server

pytestmark = pytest.mark.part("redis")

BLOCK, BLOCKS = 64 << 10, 64        # of cext/redis/blocks.pxd
NEW = os.O_RDWR | os.O_CREAT


def filled(calls: CalledFiles, n: int, name: str = "/d/a") -> tuple[int, bytes]:
    """Write a file of n bytes; return its descriptor and its bytes."""
    content = os.urandom(n)
    fd = calls.open(name, NEW)
    assert calls.pwrite(fd, content, 0) == n and calls.datasync(fd) == 0
    return fd, content


def test_small_reads_beside_each_other_ask_redis_once_for_each_block(server: Server) -> None:
    log = server.files()
    calls = CalledFiles(log)
    fd, content = filled(calls, 3 * BLOCK + 500)
    for at in range(0, len(content) - 100, 1000):
        got, end = calls.pread(fd, 100, at), min(at + 100, BLOCK * (at // BLOCK + 1))
        assert got == content[at:end]                               # a read ends with its block
    assert log.counts()["reads"] == 4


def test_bytes_that_are_changed_are_read_again(server: Server) -> None:
    log = server.files()
    calls = CalledFiles(log)
    fd, _ = filled(calls, 1000)
    assert calls.pread(fd, 10, 100)
    assert calls.pwrite(fd, b"new", 100) == 3
    assert calls.pread(fd, 3, 100) == b"new"
    assert calls.pwrite(fd, b"end", 1000) == 3                      # behind the bytes that were read
    assert calls.pread(fd, 3, 1000) == b"end"
    assert calls.truncate(fd, 101) == 0 and calls.truncate(fd, 110) == 0
    assert calls.pread(fd, 1, 100) == b"n" and calls.pread(fd, 20, 101) == bytes(9)
    assert calls.unlink("/d/a") == 0 and calls.close(fd) == 0
    fd, content = filled(calls, 1000)                               # another file of that name
    assert calls.pread(fd, 500, 0) == content[:500]


def test_bytes_of_more_blocks_than_are_kept_are_right(server: Server) -> None:
    log = server.files()
    calls = CalledFiles(log)
    fd, content = filled(calls, (BLOCKS + 2) * BLOCK)
    for at in [*range(0, len(content), BLOCK), *range(0, len(content), BLOCK)]:
        assert calls.pread(fd, 100, at) == content[at:at + 100]
    assert log.counts()["reads"] > BLOCKS + 2


def test_the_bytes_of_a_store_that_another_process_has_taken_are_not_read(server: Server) -> None:
    log = server.files()
    calls = CalledFiles(log)
    fd, _ = filled(calls, 1000)
    assert calls.pread(fd, 10, 0)
    other = server.files()
    assert calls.pwrite(fd, b"late", 0) == 4 and calls.datasync(fd) < 0
    assert log.ended and not other.ended
    assert not isinstance(calls.pread(fd, 10, 500), bytes)
