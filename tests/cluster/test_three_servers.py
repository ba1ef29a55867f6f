"""Test a node whose Redis has two replicas, of which one must confirm, and three Sentinels: the loss of a server stops nothing, and loses
nothing that was acknowledged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.cluster.servers import Redis
from tests.cluster.test_serving import Cluster, Node, publish, receive, subscribe
from tests.harness.faults import until as comes
from tests.harness.redis import Sentinel
from tests.harness.wire import Wire
from tests.workers.case import until

pytestmark = pytest.mark.part("redisfaults")

LEASE_S = 8.0                   # longer than a failover on a busy machine; a node starts no worker for 1.5 times this
BEFORE, AFTER = 100, 100        # messages; fewer than a queue keeps
MASTER = "main"


class Site:
    """Three servers of Redis with a Sentinel each, and a node."""

    def __init__(self, stack: ExitStack) -> None:
        first = stack.enter_context(Redis())
        self.servers = [first, *(stack.enter_context(Redis(f"replicaof 127.0.0.1 {first.port}")) for _ in range(2))]
        comes(lambda: first.ask("INFO replication").count(b"state=online") == 2)
        self.sentinels = [stack.enter_context(Sentinel(first, MASTER, 2, down_after_milliseconds=1000, failover_timeout=2000)) for _ in range(3)]
        comes(lambda: all(one.knows(2, 2) for one in self.sentinels))
        places = ",".join(f"127.0.0.1:{one.port}" for one in self.sentinels)
        self.cluster = Cluster(first, address=f"redis+sentinel://{places}/{MASTER}", replicas=1, lease_s=LEASE_S)
        stack.callback(self.cluster.close)
        self.node = self.cluster.node("a")
        self.node.start()

    def promoted(self) -> list[Redis]:
        """Return the replicas that have become a primary."""
        return [server for server in self.servers[1:] if server.ask("ROLE").startswith(b"*3\r\n$6\r\nmaster")]


@pytest.fixture
def site() -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(stack)


def killed(site: Site) -> None:
    site.servers[0].kill()
    comes(site.promoted)


def hung(site: Site) -> None:
    """The primary goes on when a replica is promoted already, and the other one perhaps still follows it."""
    site.servers[0].pause()
    comes(site.promoted)
    site.servers[0].resume()


def replaced(site: Site) -> None:
    """A Sentinel promotes a replica while the primary serves."""
    comes(lambda: site.sentinels[0].ask(f"SENTINEL FAILOVER {MASTER}").startswith(b"+OK"))
    comes(site.promoted)


class Load(threading.Thread):
    """A client that publishes one message after another, from 0 on. `acknowledged`: the number of them that the broker has."""

    def __init__(self, client: Wire) -> None:
        super().__init__(daemon=True)
        self.client, self.acknowledged, self.wanted = client, 0, threading.Semaphore(BEFORE)
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while self.acknowledged < BEFORE + AFTER and self.wanted.acquire():
                publish(self.client, self.acknowledged, 1)
                self.acknowledged += 1
        except BaseException as error:              # the test reports it
            self.failure = error

    def has(self, count: int) -> bool:
        assert self.failure is None, self.failure
        return self.acknowledged >= count


@pytest.mark.parametrize("loses", [killed, hung, replaced])
def test_another_primary_delays_acknowledgements_and_nothing_else(site: Site, loses: Callable[[Site], None]) -> None:
    node, ids = site.node, site.cluster.ids("s")
    subscribe(node, ids[0], 1)
    tokens = site.cluster.tokens()
    load = Load(node.pinned(site.cluster.ids("p")[1]))
    load.start()
    until(lambda: load.has(BEFORE // 2), node.log)
    load.wanted.release(AFTER)
    loses(site)
    until(lambda: load.has(BEFORE + AFTER), node.log)
    [primary] = site.promoted()
    table = primary.client.hgetall("mosq:{mosq}:workers")
    assert {int(worker): int(entry.split()[0]) for worker, entry in table.items()} == tokens      # no worker has ended
    assert "The lease of this node is over" not in node.log()
    restarted(node)
    received = receive(node.pinned(ids[0]), BEFORE + AFTER)
    assert [n for n, _ in received] == list(range(BEFORE + AFTER))


def restarted(node: Node) -> None:
    """Kill all workers, and wait until others have read their stores in the new primary."""
    served = node.log().count("serves clients.")
    for number in node.pids():
        node.kill(number)
    node.wait_log("serves clients.", served + len(node.pids()))
