"""Test what a client may get while Redis is away: nothing whose record could be lost with the worker, which ends with its lease."""

from __future__ import annotations

import pytest

from tests.cluster.test_serving import Cluster, Node, publish, subscribe
from tests.cluster.test_serving import cluster as cluster
from tests.harness.packets import Connect, Publish, Will
from tests.harness.wire import Wire
from tests.workers.case import until

pytestmark = pytest.mark.part("redis")


def first_answer(node: Node, connect: Connect) -> bytes | None:
    """Return what a new client gets first; None: its connection ends without an answer."""
    try:
        client = Wire(node.port, 4)
        node.opened.append(client)
        client.send(connect)
        return client.read_frame()
    except ConnectionError:
        return None


WILL = Will("t/will", b"1", 1)


@pytest.mark.parametrize("will", [None, WILL])
def test_a_session_goes_on_only_when_redis_has_the_record_of_that(cluster: Cluster, will: Will | None) -> None:
    node = cluster.node("a")
    node.start()
    node.wait_serves()
    name = cluster.ids("s")[0]
    subscribe(node, name, 1)
    publish(node.pinned(cluster.ids("p")[1]), 0, 1)
    cluster.redis.kill()
    # with an answer, the client would get the message now and again from the next process, which would not know that: without DUP
    assert first_answer(node, Connect(name, clean=False, will=will)) is None
    until(lambda: not node.pids(), node.log)
    cluster.redis.start()
    got = node.pinned(name).read_packet()
    assert isinstance(got, Publish), got
    assert (got.payload, got.dup) == (b"0", False)


def test_a_will_is_accepted_only_when_redis_has_it(cluster: Cluster) -> None:
    node = cluster.node("a")
    node.start()
    node.wait_serves()
    cluster.redis.kill()
    assert first_answer(node, Connect(cluster.ids("w")[0], will=WILL)) is None      # a clean session, whose will has a record of its own
