"""Test which replicas must confirm: of two, one is enough after a while, so that the loss of a server stops nothing and loses nothing."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from cext.testing.disk_api import CalledFiles
from mosq._redis import LogFiles, RedisConnection, RedisError
from mosq.cluster.terms import HOLD_S
from tests.harness.faults import until
from tests.redis.server import Server
from tests.redis.test_faults import content, written

pytestmark = pytest.mark.part("redis")



@pytest.fixture
def servers() -> Iterator[list[Server]]:
    """Provide a primary with two replicas."""
    with Server() as one, Server(f"replicaof 127.0.0.1 {one.port}") as two, Server(f"replicaof 127.0.0.1 {one.port}") as three:
        until(lambda: one.replicas_online() == 2)
        yield [one, two, three]


def opened(servers: list[Server]) -> tuple[LogFiles, CalledFiles]:
    """Return files that both replicas have confirmed once."""
    places = [("127.0.0.1", server.port) for server in servers]
    log = taken(places)
    calls = written(log, b"first")
    until(lambda: in_step(log, calls) == 2)
    return log, calls


def taken(places: list[tuple[str, int]]) -> LogFiles:
    """Take the store, again while the replicas of a busy machine are late."""
    found: list[LogFiles] = []

    def is_taken() -> bool:
        with suppress(RedisError):
            found.append(LogFiles(RedisConnection(places, timeout_ms=1000), "log", replicas=1, all_replicas=2))
        return bool(found)

    until(is_taken)
    return found[0]


def in_step(log: LogFiles, calls: CalledFiles) -> int:
    """Return how many replicas must confirm, after an operation that needs a confirmation."""
    written(log, b"next", "/d/step")
    until(lambda: calls.datasync(1) == 0)
    return log.counts()["in step"]


def test_a_replica_that_is_another_primary_leaves_a_sync_in_doubt(servers: list[Server]) -> None:
    """A primary that hung for a while goes on: one replica is the new primary, and the other one still follows the old one."""
    one, two, three = servers
    log, calls = opened(servers)
    two.call("REPLICAOF", "NO", "ONE")
    written(log, b"in doubt", "/d/b")
    assert calls.datasync(1) == -errno.ENOTCONN
    assert "replicas of Redis at" in calls.why(errno.ENOTCONN)
    until(lambda: three.head()[b"number"] == b"%d" % log.counts()["given"])     # the replica that would have confirmed it
    for server in (one, three):
        server.call("REPLICAOF", "127.0.0.1", two.port)
    until(lambda: calls.datasync(1) == 0)
    assert content(log, "/d/b") == b"in doubt"
    assert two.head()[b"number"] == b"%d" % log.counts()["safe"]


def test_a_replica_that_is_away_delays_once_and_counts_again_later(servers: list[Server]) -> None:
    _, two, _ = servers
    log, calls = opened(servers)
    two.pause()
    began = time.monotonic()
    written(log, b"waits", "/d/b")
    until(lambda: calls.datasync(1) == 0)
    assert time.monotonic() - began >= HOLD_S
    assert in_step(log, calls) == 1
    two.resume()
    until(lambda: in_step(log, calls) == 2)


def test_another_primary_with_one_replica_confirms_at_once(servers: list[Server]) -> None:
    one, two, three = servers
    log, calls = opened(servers)
    written(log, b"kept", "/d/b")
    until(lambda: calls.datasync(1) == 0)
    one.kill()
    two.call("REPLICAOF", "NO", "ONE")
    three.call("REPLICAOF", "127.0.0.1", two.port)
    until(lambda: two.replicas_online() == 1)
    written(log, b"more", "/d/c")
    until(lambda: calls.datasync(1) == 0)
    assert log.counts()["in step"] == 1
    other = taken([("127.0.0.1", two.port)])
    assert (content(other, "/d/b"), content(other, "/d/c")) == (b"kept", b"more")
