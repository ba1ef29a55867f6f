"""Test nodes that serve clients while their Redis has a fault: what clients see, what the log and `mosq cluster status` report, and that
nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
import re
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from mosq.cli.commands import main
from tests.cluster.servers import Redis
from tests.cluster.test_serving import Cluster, Node, publish, receive, subscribe
from tests.harness.broker import free_port
from tests.harness.packets import Connack, Connect, Puback, Publish
from tests.harness.proxy import Proxy
from tests.harness.redis import Sentinel
from tests.harness.wire import Wire
from tests.workers.case import until

pytestmark = pytest.mark.part("redisfaults")

QUOTA_EXCEEDED = 0x97
PASSWORD = "right-word"
Status = Callable[[str], tuple[int, str]]


@pytest.fixture
def status(capsys: pytest.CaptureFixture[str]) -> Status:
    """Provide a function that returns the exit status and the output of `mosq cluster status ADDRESS`."""

    def run(address: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main(["cluster", "status", address])
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return run


@contextlib.contextmanager
def serving(redis: Redis, address: str = "", replicas: int = 0) -> Iterator[tuple[Cluster, Node]]:
    """Run a node with a durable subscriber, for which the message 0 waits."""
    cluster = Cluster(redis, address=address, replicas=replicas)
    try:
        node = cluster.node("a")
        node.start()
        subscribe(node, cluster.ids("s")[0], 1)
        publish(node.pinned(cluster.ids("p")[0]), 0, 1)
        yield cluster, node
    finally:
        cluster.close()


def check_goes_on(cluster: Cluster, node: Node, n: int) -> None:
    """Publish the message n, and read all messages from 0 to n."""
    again(node, cluster.ids("p")[0], n)
    received: list[tuple[int, int]] = []

    def all_read() -> bool:
        with contextlib.suppress(OSError, AssertionError):      # the lease of a busy machine may be over
            received.extend(receive(node.pinned(cluster.ids("s")[0]), 1))
        return len({one for one, _ in received}) == n + 1

    until(all_read, node.log)
    numbers = list(dict.fromkeys(one for one, _ in received))
    assert numbers == list(range(n + 1))


def again(node: Node, client_id: str, n: int) -> None:
    """Publish a message until the broker has it."""

    def has_it() -> bool:
        with contextlib.suppress(OSError, AssertionError):
            publish(node.pinned(client_id), n, 1)
            return True
        return False

    until(has_it, node.log)


def new_client(node: Node, client_id: str) -> Wire:
    """Connect a client of MQTT 5.0, which can be refused a message."""
    client = Wire(node.port, 5, host=node.host)
    node.opened.append(client)
    client.send(Connect(client_id))
    answer = client.read_packet()
    assert isinstance(answer, Connack) and answer.rc == 0
    return client


def test_a_primary_that_is_killed_is_replaced_by_sentinel_below_a_serving_node() -> None:
    with ExitStack() as stack:
        first = stack.enter_context(Redis())
        second = stack.enter_context(Redis(f"replicaof 127.0.0.1 {first.port}"))
        until(lambda: second.client.info("replication")["master_link_status"] == "up")
        sentinel = stack.enter_context(Sentinel(first, "main", down_after_milliseconds=1000, failover_timeout=5000))
        until(sentinel.knows_a_replica)
        address = f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{sentinel.port}/main"
        cluster, node = stack.enter_context(serving(first, address, replicas=1))
        first.kill()
        node.wait_log("Warning: Redis at")
        until(lambda: second.ask("ROLE").startswith(b"*3\r\n$6\r\nmaster"))
        with first.conf.open("a") as conf:
            conf.write(f"replicaof 127.0.0.1 {second.port}\n")
        first.start()
        check_goes_on(cluster, node, 1)
        node.wait_log("Redis answers again.")


def test_redis_is_away_for_several_leases(status: Status) -> None:
    with Redis() as redis, serving(redis) as (cluster, node):
        redis.kill()
        node.wait_log("Warning: The lease of this node is over")
        until(lambda: not node.pids(), node.log)
        code, text = status(cluster.address)
        assert code == 1
        assert f"Error: Redis at {cluster.address}" in text and "Connection refused" in text
        redis.start()
        check_goes_on(cluster, node, 1)
        node.wait_log("Redis answers again.")


def test_a_slow_redis_delays_acknowledgements_and_is_reported(status: Status) -> None:
    with Redis() as redis, Proxy(redis.port) as proxy, serving(redis, f"redis://127.0.0.1:{proxy.port}") as (cluster, node):
        node.wait_serves()
        before = node.pids()
        proxy.delay_s = 0.1
        again(node, cluster.ids("p")[0], 1)
        node.wait_log("Warning: Redis is slow: its answers take")
        code, text = status(cluster.address)
        assert code == 1
        assert "is slow: an answer takes" in text
        proxy.delay_s = 0.0
        node.wait_log("Redis is quick again.")
        check_goes_on(cluster, node, 2)
        assert before


def test_a_full_redis_refuses_messages_and_goes_on_when_it_has_room(status: Status) -> None:
    with Redis() as redis, serving(redis) as (cluster, node):
        node.wait_serves()
        first, second = (new_client(node, name) for name in (cluster.ids("p")[0], cluster.ids("q")[0]))
        tokens = cluster.tokens()
        redis.client.config_set("maxmemory", 1)
        first.send(Publish("t/1", b"1", 1, 1))          # on its way when Redis has no room: its acknowledgement waits
        node.wait_log("Error: Redis is full: QoS 1 and 2 are refused until there is room again")
        second.send(Publish("t/2", b"2", 1, 2))
        refused = second.read_packet()
        assert isinstance(refused, Puback) and refused.rc == QUOTA_EXCEEDED
        code, text = status(cluster.address)
        assert code == 1 and "is nearly full: it uses" in text
        redis.client.config_set("maxmemory", 0)
        accepted = first.read_packet()
        assert isinstance(accepted, Puback) and accepted.rc == 0
        node.wait_log("Redis has room again: QoS 1 and 2 are accepted.")
        assert cluster.tokens() == tokens
        check_goes_on(cluster, node, 2)


def test_a_redis_that_becomes_read_only_is_away(status: Status) -> None:
    with Redis() as redis, serving(redis) as (cluster, node):
        redis.client.replicaof("127.0.0.1", str(free_port()))
        node.wait_log("it is a replica, not the primary")
        node.wait_log("Warning: The lease of this node is over")
        code, text = status(cluster.address)
        assert code == 1 and "it is a replica, not the primary" in text
        redis.client.replicaof("NO", "ONE")
        check_goes_on(cluster, node, 1)


def test_a_password_that_is_wrong_from_now_on_is_reported_and_not_shown(status: Status) -> None:
    with Redis(password=PASSWORD) as redis, serving(redis, f"redis://:{PASSWORD}@127.0.0.1:{redis.port}") as (cluster, node):
        redis.client.config_set("requirepass", "another")
        redis.client.client_kill_filter(_type="normal", skipme=True)
        node.wait_log("invalid username-password pair")
        node.wait_log("Warning: The lease of this node is over")
        code, text = status(cluster.address)
        assert code == 1 and "invalid username-password pair" in text
        assert PASSWORD not in text + node.log()
        redis.client.config_set("requirepass", PASSWORD)
        check_goes_on(cluster, node, 1)


def emptied(redis: Redis) -> None:
    """Start Redis again without its files."""
    redis.kill()
    for path in sorted(redis.folder.rglob("append*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    redis.start()


def test_a_session_that_returns_waits_while_redis_is_full() -> None:
    with Redis() as redis, serving(redis) as (cluster, node):
        redis.client.config_set("maxmemory", 1)
        client = Wire(node.port, 4, host=node.host)
        node.opened.append(client)
        client.send(Connect(cluster.ids("s")[0], clean=False))
        node.wait_log("is full: QoS 1 and 2 are refused")
        assert not select.select([client.sock], [], [], 0)[0]
        redis.client.config_set("maxmemory", 0)
        answer = client.read_packet()
        assert isinstance(answer, Connack) and answer.session
        got = client.read_packet()
        assert isinstance(got, Publish) and not got.dup


def test_a_redis_that_was_restarted_empty_is_not_written_to(status: Status) -> None:
    with Redis() as redis, serving(redis) as (cluster, node):
        emptied(redis)
        node.wait_log("Redis has no data of this cluster: it was started empty, or the keys were deleted")
        until(lambda: not node.pids(), node.log)
        code, text = status(cluster.address)
        assert code == 3 and "restore the data of Redis" in text
        node.send_signal(signal.SIGTERM)
        assert node.process is not None and node.process.wait() is not None
        assert redis.client.dbsize() == 0


def test_a_store_whose_keys_were_deleted_is_not_made_again(status: Status) -> None:
    with Redis() as redis, serving(redis) as (cluster, node):
        node.wait_serves()
        keys = redis.client.keys(f"mosq:{{mosq:{cluster.facts.id[:8]}:1}}:*")
        assert keys
        redis.client.delete(*keys)
        node.kill(1)
        node.wait_log("Redis has no store of worker 1 any more, and it had one")
        assert not [key for key in redis.client.keys("*") if key in keys]
        code, text = status(cluster.address)
        assert code == 1 and "! Redis has no store of worker 1 any more, and it had one: the keys mosq:{mosq:" in text
        redis.client.hdel("mosq:{mosq}:cluster", "store 1")     # as the log advises, if the loss is accepted
        node.wait_log("serves clients.", 3)
        assert all(redis.client.exists(key) for key in keys if key.endswith(":head"))


def delete_store(redis: Redis, cluster: Cluster) -> None:
    """Delete the store of worker 1, and accept its loss."""
    redis.client.delete(*redis.client.keys(f"mosq:{{mosq:{cluster.facts.id[:8]}:1}}:*"))
    redis.client.hdel("mosq:{mosq}:cluster", "store 1")


def kill_worker_1(cluster: Cluster, node: Node) -> None:
    """Kill worker 1, and wait until another process of it serves."""
    token = cluster.tokens()[0]
    node.kill(1)
    until(lambda: cluster.tokens().get(0, 0) > token, node.log)
    node.wait_serves()


def test_a_worker_with_a_new_store_has_links_although_its_runs_begin_again() -> None:
    with Redis() as redis, serving(redis) as (cluster, node):
        node.wait_serves()
        kill_worker_1(cluster, node)                # its second run
        delete_store(redis, cluster)
        kill_worker_1(cluster, node)                # the first run of another log
        subscribe(node, cluster.ids("n")[0], 1)     # its answer needs the link from worker 1 to worker 2
        publish(node.pinned(cluster.ids("p")[1]), 1, 1)
        assert receive(node.pinned(cluster.ids("n")[0]), 1) == [(1, 1)]
        assert "wrong log or run" not in node.log()


def test_a_worker_that_runs_although_its_store_was_deleted_is_in_the_status(status: Status) -> None:
    with Redis() as redis, serving(redis) as (cluster, node):
        node.wait_serves()
        delete_store(redis, cluster)
        until(lambda: "! Redis has no store of worker 1 any more: the keys mosq:{mosq:" in status(cluster.address)[1], node.log)
        token = cluster.tokens()[0]
        node.pinned(cluster.ids("p")[0]).send(Publish("t/1", b"1", 1, 2))      # its subscriber is at worker 1
        until(lambda: cluster.tokens().get(0, 0) > token, node.log)
        node.wait_serves()
        assert "Redis has no store" not in status(cluster.address)[1]


@pytest.mark.parametrize("what", ["names", "f:*"])
def test_a_store_that_lost_a_part_of_its_keys_is_not_opened(what: str) -> None:
    with Redis() as redis, serving(redis) as (cluster, node):
        node.wait_serves()
        lost = redis.client.keys(f"mosq:{{mosq:{cluster.facts.id[:8]}:1}}:{what}")
        assert lost
        redis.client.delete(*lost)
        node.kill(1)
        node.wait_log("the store of worker 1 in Redis is damaged: the key mosq:{mosq:")
        assert not redis.client.exists(*lost)


def test_a_store_that_lost_the_content_of_its_lock_is_opened() -> None:
    """It has the number of a process, and no message."""
    with Redis() as redis, serving(redis) as (cluster, node):
        node.wait_serves()
        prefix = f"mosq:{{mosq:{cluster.facts.id[:8]}:1}}"
        key = f"{prefix}:f:{redis.client.hget(f'{prefix}:names', '/store/lock')}"
        assert redis.client.delete(key) == 1
        kill_worker_1(cluster, node)
        assert redis.client.exists(key)
        assert receive(node.pinned(cluster.ids("s")[0]), 1) == [(0, 1)]


def test_a_store_that_lost_the_end_of_a_segment_is_not_opened_before_an_operator_accepts_it(status: Status) -> None:
    with Redis() as redis, serving(redis) as (cluster, node):
        node.wait_serves()
        prefix = f"mosq:{{mosq:{cluster.facts.id[:8]}:1}}"
        names = redis.client.hgetall(f"{prefix}:names")
        key = f"{prefix}:f:{names['/store/segment.000001']}"
        redis.client.eval("redis.call('SET', KEYS[1], string.sub(redis.call('GET', KEYS[1]), 1, -2))", 1, key)
        node.kill(1)
        node.wait_log(f"the store of worker 1 in Redis is damaged: the key {key} has ")
        code, text = status(cluster.address)
        assert code == 1 and "! The store of worker 1 in Redis is damaged: " in text
        found = re.search("to go on with the rest: redis-cli HDEL '(.*)' '(.*)'", text)
        assert found is not None and redis.client.hdel(*found.groups()) == 1
        node.wait_serves()
