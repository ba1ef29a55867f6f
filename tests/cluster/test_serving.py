"""Test nodes that serve clients, with a real Redis: one node has all workers, dies or leaves, and another one continues its sessions."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import redis as redis_package

from mosq.cluster.address import parse_address
from mosq.cluster.errors import AwayError
from mosq.cluster.entries import entry_of
from mosq.cluster.registry import Facts, Registry
from mosq.cluster.scripts import store_name
from mosq.cluster.terms import Terms
from mosq.engine import worker_place
from tests.cluster.servers import Redis
from tests.harness.broker import ROOT, is_running
from tests.harness.effort import TIMEOUT_S
from tests.harness.packets import Connack, Connect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe, decode
from tests.harness.wire import Wire
from tests.workers.case import Workers, until

pytestmark = pytest.mark.part("redis")

WORKERS = 2
LEASE_S = 2.0


class Cluster:
    """A Redis with a cluster, and its nodes."""

    def __init__(self, redis: Redis, secret: bytes = b"", address: str = "", replicas: int = 0, lease_s: float = LEASE_S) -> None:
        self.redis, self.address = redis, address or f"redis://127.0.0.1:{redis.port}"
        self.nodes: list[Node] = []
        registry = Registry(parse_address(self.address), "mosq", "operator", "r", Terms(lease_s, lease_s / 2), replicas=replicas, secret=secret)
        self.facts: Facts = until(lambda: created(registry))
        registry.close()

    def node(self, name: str, config: str = "") -> Node:
        made = Node(self, name, config)
        self.nodes.append(made)
        return made

    def ids(self, prefix: str) -> list[str]:
        """Return a client id of each worker."""
        places = {worker_place(self.facts.key, f"{prefix}{n}".encode(), WORKERS): f"{prefix}{n}" for n in range(1000)}
        return [places[place] for place in range(WORKERS)]

    def tokens(self) -> dict[int, int]:
        """Return the token of each worker that has a node."""
        entries = {int(worker): entry_of(text) for worker, text in self.redis.client.hgetall("mosq:{mosq}:workers").items()}
        return {worker: entry.token for worker, entry in entries.items() if entry.name}

    def close(self) -> None:
        for node in self.nodes:
            node.end()


class Node(Workers):
    """A node of the cluster. It is no broker with `cluster_local`, but its processes have the same names."""

    host = "127.0.0.1"

    def __init__(self, cluster: Cluster, name: str, config: str) -> None:
        super().__init__(1, f"persistence true\ncluster {cluster.address}\ncluster_node {name}\n{config}")
        self.name = name

    def wait_serves(self) -> None:
        """Wait until all workers serve clients here."""
        def serve() -> bool:        # one of them may have ended during its start, with the lease of a busy machine
            pids = self.pids().values()
            return len(pids) == WORKERS and all(f"(process {pid}) serves clients." in self.log() for pid in pids)

        until(serve, self.log)

    def agent(self) -> int:
        """Return the process of the agent."""
        return next(pid for pid in self.children() if pid not in self.pids().values())

    def pinned(self, client_id: str, clean: bool = False) -> Wire:
        """Connect a client; again and again while no worker serves, or the lease of a busy machine is over."""
        found: Wire = until(lambda: self.attempt(client_id, clean), self.log)
        return found

    def attempt(self, client_id: str, clean: bool = False) -> Wire | None:
        """Connect a client; return None if its worker does not serve now."""
        try:
            client = Wire(self.port, 4, host=self.host)
            self.opened.append(client)
            client.send(Connect(client_id, clean=clean))
            raw = client.read_frame()
        except OSError:
            return None
        if raw is None:
            return None
        answer = decode(4, raw)
        assert isinstance(answer, Connack) and answer.rc == 0, answer
        self.present = answer.session
        return client

    def refuses(self) -> bool:
        """Return whether no client can connect here."""
        try:
            Wire(self.port, 4, host=self.host).close()
        except ConnectionRefusedError:
            return True
        return False

    def end(self) -> None:
        if self.alive():
            os.kill(self.process.pid, signal.SIGCONT)       # type: ignore[union-attr]
            self.die()
        self.close()


def created(registry: Registry) -> Facts | None:
    try:
        registry.create(WORKERS)
        return registry.facts()
    except AwayError:               # a busy machine, or a replica that is not connected yet
        return None


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Redis() as redis:
        running = Cluster(redis)
        try:
            yield running
        finally:
            running.close()


def subscribe(node: Node, client_id: str, qos: int) -> None:
    """Make a durable session that is away."""
    client = node.pinned(client_id)
    client.send(Subscribe(1, (("t/#", qos),)))
    assert isinstance(client.read_packet(), Suback)
    client.close()


def publish(client: Wire, n: int, qos: int) -> None:
    """Publish a message, and return when the broker has it."""
    client.send(Publish(f"t/{n}", b"%d" % n, qos, 1 + n))
    answer = client.read_packet()
    if qos == 2:
        assert isinstance(answer, Pubrec), answer
        client.send(Pubrel(1 + n))
        answer = client.read_packet()
    assert isinstance(answer, (Puback, Pubcomp)), answer


def receive(client: Wire, count: int) -> list[tuple[int, int]]:
    """Return the numbers and the QoS of the next messages, after the last packet that belongs to them."""
    found, open_mids = [], set()
    while len(found) < count or open_mids:
        got = client.read_packet()
        if isinstance(got, Pubrel):
            client.send(Pubcomp(got.mid))
            open_mids.discard(got.mid)
            continue
        assert isinstance(got, Publish), got
        found.append((int(got.payload), got.qos))
        client.send(Puback(got.mid) if got.qos == 1 else Pubrec(got.mid))
        if got.qos == 2:
            open_mids.add(got.mid)
    return found


def test_another_node_continues_the_sessions_of_one_that_was_killed(cluster: Cluster) -> None:
    first = cluster.node("a")
    first.start()
    first.wait_serves()
    subscribers = [name for prefix in ("one", "two") for name in cluster.ids(prefix)]
    for name in subscribers:
        subscribe(first, name, 2)
    publisher = first.pinned(cluster.ids("p")[0])
    for n in range(20):
        publish(publisher, n, 1 + n % 2)
    publisher.send(Publish("t/20", b"20", 2, 99))
    assert isinstance(publisher.read_packet(), Pubrec)          # the broker has it, and the publisher does not finish it
    first.die()
    second = cluster.node("b")
    second.start()
    second.wait_serves()
    again = second.pinned(cluster.ids("p")[0])
    assert second.present
    again.send(Publish("t/20", b"20", 2, 99, dup=True))
    assert isinstance(again.read_packet(), Pubrec)
    again.send(Pubrel(99))
    assert isinstance(again.read_packet(), Pubcomp)
    publish(again, 21, 1)
    for name in subscribers:
        client = second.pinned(name)
        assert second.present
        assert receive(client, 22) == [(n, 1 if n == 21 else 2 if n == 20 else 1 + n % 2) for n in range(22)]
    assert "of node a, which is dead, starts here." in second.log()


def test_a_node_that_leaves_gives_its_workers_back_at_once(cluster: Cluster) -> None:
    first = cluster.node("a")
    first.start()
    first.wait_serves()
    for name in cluster.ids("s"):
        subscribe(first, name, 1)
    first.send_signal(signal.SIGTERM)
    assert first.process.wait(TIMEOUT_S) == 0        # type: ignore[union-attr]
    assert cluster.tokens() == {}
    assert cluster.redis.client.hgetall("mosq:{mosq}:beats") == {}
    assert "This node leaves the cluster" in first.log()
    first.start()                   # under the same name, without a wait for the death of the other one
    first.wait_serves()
    for name in cluster.ids("s"):
        first.pinned(name)
        assert first.present


def test_workers_are_dead_when_the_lease_is_over_and_the_agent_is_stopped(cluster: Cluster) -> None:
    node = cluster.node("a")
    node.start()
    node.wait_serves()
    subscribe(node, cluster.ids("s")[0], 1)
    before = node.pids()
    tokens = cluster.tokens()
    agent = node.agent()
    os.kill(before[1], signal.SIGSTOP)          # the kernel ends a stopped one, too
    os.kill(agent, signal.SIGSTOP)
    until(lambda: not any(is_running(pid) for pid in before.values()), node.log)
    os.kill(agent, signal.SIGCONT)
    until(lambda: all(token > tokens[worker] for worker, token in cluster.tokens().items()), node.log)
    node.pinned(cluster.ids("s")[0])
    assert node.present
    assert "the lease of this node is over" in node.log()


def test_a_worker_that_is_killed_starts_again_under_another_token(cluster: Cluster) -> None:
    node = cluster.node("a")
    node.start()
    node.wait_serves()
    subscribe(node, cluster.ids("s")[1], 1)
    token = cluster.tokens()[1]
    killed = node.kill(2)
    until(lambda: cluster.tokens().get(1, 0) > token, node.log)
    node.pinned(cluster.ids("s")[1])
    assert node.present
    assert f"Worker 2 (process {killed}) was ended by signal 9" in node.log()


def test_workers_end_while_redis_is_away_and_continue_when_it_is_back(cluster: Cluster) -> None:
    node = cluster.node("a")
    node.start()
    node.wait_serves()
    subscribe(node, cluster.ids("s")[0], 1)
    publish(node.pinned(cluster.ids("p")[1]), 0, 1)
    cluster.redis.kill()
    until(lambda: not node.pids(), node.log)
    node.wait_log("Warning: The lease of this node is over")
    node.wait_log("No worker runs here. The listeners refuse clients until one starts.")
    assert node.refuses()
    cluster.redis.start()
    client = node.pinned(cluster.ids("s")[0])
    assert node.present
    assert receive(client, 1) == [(0, 1)]
    node.wait_log("Redis answers again.")


def test_a_node_opens_no_listener_before_redis_answers(cluster: Cluster) -> None:
    cluster.redis.kill()
    node = cluster.node("a")
    until(lambda: "This node opens no listener until Redis answers." in started_log(node), node.log)
    assert node.refuses()
    cluster.redis.start()
    node.wait_log(" running\n")
    node.pinned(cluster.ids("s")[0])


def test_a_store_on_the_disk_is_not_read_and_is_reported(cluster: Cluster) -> None:
    node = cluster.node("a", "persistence_location {dir}/\n")
    store = node.dir / "mosquitto.db.store"
    store.mkdir()
    (store / "segment.000001").write_bytes(b"of a broker that was alone")
    node.start()
    node.wait_log(f"Warning: The sessions and messages in {store} are not read: those of a cluster are in Redis.")
    node.wait_serves()
    assert [one.name for one in store.iterdir()] == ["segment.000001"]


def started_log(node: Node) -> str:
    """Start the node without a wait for its listener, unless it runs. Return its log."""
    if node.process is None:
        node.spawn()
    return node.log()


@pytest.mark.parametrize(("config", "text"), [
    ("cluster_name other\n", "Redis has no cluster with the name other; create it first (`mosq cluster create`)"),
    ("cluster_secret_file {dir}/secret\n", "has no secret: it was created without --secret-file"),
    ("cluster_secret_file {dir}/short\n", "the secret of a cluster has at least 32"),
    ("cluster_secret_file {dir}/secret\ncluster_listener 7883\n", "which no other machine can reach. Name it: cluster_listener PORT ADDRESS."),
])
def test_a_node_that_does_not_fit_the_cluster_ends_with_the_reason(cluster: Cluster, config: str, text: str) -> None:
    node = cluster.node("a", config)
    for name, content in (("secret", "s" * 32), ("short", "s" * 31)):
        (node.dir / name).write_text(content)
        (node.dir / name).chmod(0o600)
    node.spawn()
    assert node.process is not None
    assert node.process.wait(TIMEOUT_S) == 3
    assert text in node.log()


def test_a_node_waits_for_the_name_server(cluster: Cluster) -> None:
    node = cluster.node("a", "cluster_secret_file {dir}/secret\ncluster_listener 7883\n")
    node.config.write_text(node.config.read_text().replace("redis://127.0.0.1", "redis://no-such-host.invalid"))
    (node.dir / "secret").write_text("s" * 32)
    (node.dir / "secret").chmod(0o600)
    node.spawn()
    node.wait_log("Warning: Unable to find the address of this node for other nodes")
    assert node.refuses()
    node.send_signal(signal.SIGTERM)
    assert node.process is not None
    assert node.process.wait(TIMEOUT_S) == 0


def test_a_file_has_the_password_of_redis(cluster: Cluster) -> None:
    cluster.redis.client.config_set("requirepass", "hush")
    node = cluster.node("a", "cluster_password_file {dir}/password\n")
    (node.dir / "password").write_text("hush\n")
    node.start()
    node.wait_serves()
    publish(node.pinned(cluster.ids("p")[0]), 0, 1)
    assert "hush" not in node.log()


@pytest.mark.parametrize(("name", "status", "text"), [
    ("missing", 1, "Error: {dir}/missing: No such file or directory"),
    ("empty", 3, "the first line of {dir}/empty is empty; it must have the password of Redis"),
])
def test_a_node_without_its_password_ends_with_the_reason(cluster: Cluster, name: str, status: int, text: str) -> None:
    node = cluster.node("a", f"cluster_password_file {{dir}}/{name}\n")
    (node.dir / "empty").write_text("")
    node.spawn()
    assert node.process is not None
    assert node.process.wait(TIMEOUT_S) == status
    assert text.replace("{dir}", str(node.dir)) in node.log() and "Traceback" not in node.log()


def test_a_second_node_of_one_name_ends_with_the_reason(cluster: Cluster) -> None:
    node = cluster.node("a")
    node.start()
    node.wait_serves()
    second = cluster.node("a")
    second.spawn()
    assert second.process is not None
    assert second.process.wait(TIMEOUT_S) == 3
    assert second.log().lower().count("a node with the name a lives already") == 1
    node.pinned(cluster.ids("s")[0])


def test_a_second_node_is_refused_if_no_other_one_can_reach_the_first(cluster: Cluster) -> None:
    first = cluster.node("a")
    first.start()
    first.wait_serves()
    second = cluster.node("b")
    second.spawn()
    assert second.process is not None
    assert second.process.wait(TIMEOUT_S) == 3
    assert second.log().count("Error: This node has no cluster_listener, so no other node can reach its workers, and the node a lives.") == 1
    assert list(cluster.redis.client.hgetall("mosq:{mosq}:beats")) == ["a"]
    first.pinned(cluster.ids("s")[0])


def test_a_node_reads_its_configuration_again(cluster: Cluster) -> None:
    node = cluster.node("a", "acl_file {dir}/acl\n")
    (node.dir / "acl").write_text("topic readwrite #\n")
    node.start()
    node.wait_serves()
    (node.dir / "acl").write_text("topic read #\n")
    node.send_signal(signal.SIGHUP)
    node.wait_log("Reloading config.")
    client = node.pinned(cluster.ids("s")[1], clean=True)
    client.send(Subscribe(1, (("t", 1),)), Publish("t", b"", 1, 2))
    assert isinstance(client.read_packet(), Suback)
    assert isinstance(client.read_packet(), Puback)
    client.expect_nothing()


def test_a_configuration_is_checked_while_no_worker_runs_here(cluster: Cluster) -> None:
    node = cluster.node("a", "acl_file {dir}/acl\n")
    (node.dir / "acl").write_text("topic readwrite #\n")
    node.start()
    node.wait_serves()
    cluster.redis.kill()
    until(lambda: not node.pids(), node.log)
    (node.dir / "acl").write_text("topic all #\n")
    node.send_signal(signal.SIGHUP)
    node.wait_log("Error: The configuration was not reloaded, the old one stays in force: The check: ")
    (node.dir / "acl").write_text("topic read #\n")
    text = node.config.read_text()
    node.config.write_text(f"{text}certfile /missing\nkeyfile /missing\n")
    node.send_signal(signal.SIGHUP)
    node.wait_log("the old one stays in force: The check: ", 2)
    assert "/missing" in node.log()
    node.config.write_text(text)
    node.send_signal(signal.SIGHUP)
    node.wait_log("Reloading config.", 3)
    assert not node.pids()
    cluster.redis.start()
    client = node.pinned(cluster.ids("s")[1], clean=True)
    client.send(Subscribe(1, (("t", 1),)), Publish("t", b"", 1, 2))
    assert isinstance(client.read_packet(), Suback)
    assert isinstance(client.read_packet(), Puback)
    client.expect_nothing()
    assert node.log().count("was not reloaded") == 2        # and the third reload was not refused later


def with_fewer_rights(node: Node) -> int:
    """Let a node that root starts act as another user. Return the id of the user as which it acts."""
    node.config.write_text(node.config.read_text().replace("user root\n", "user nobody\n"))
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else os.geteuid()


def test_the_check_of_a_configuration_has_no_rights_of_root(cluster: Cluster) -> None:
    node = cluster.node("a", "acl_file {dir}/acl\n")
    uid = with_fewer_rights(node)
    acl = node.dir / "acl"
    acl.write_text("topic readwrite #\n")
    node.start()
    node.wait_serves()
    cluster.redis.kill()
    until(lambda: not node.pids(), node.log)
    agent = node.agent()
    acl.unlink()
    os.mkfifo(acl, 0o644)
    acl.chmod(0o644)
    if os.geteuid() == 0:
        os.chown(acl, uid, -1)
    node.send_signal(signal.SIGHUP)
    with acl.open("w") as writing:      # the check reads it, and waits for its end
        [check] = until(lambda: [pid for pid in node.children() if pid != agent], node.log)
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{check}/status").read_text().splitlines())
        assert status["Name"] == "mosq: check"
        assert status["Uid"].split() == [str(uid)] * 4
        assert os.geteuid() != 0 or (int(status["CapEff"], 16) == 0 and "0" not in status["Groups"].split())
        writing.write("topic read #\n")
    node.wait_log("Reloading config.")


def test_the_agent_loads_the_client_of_redis_while_it_is_root(cluster: Cluster) -> None:
    """Only root may read the folder of Python's packages, if it is below its home."""
    node = cluster.node("a")
    with_fewer_rights(node)
    folder, found = node.dir / "packages", node.dir / "loaded"
    shutil.copytree(Path(redis_package.__file__).parent, folder / "redis", ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "redis/__init__.py").open("a") as package:
        package.write(f"import os\nwith open({str(found)!r}, 'a') as file:\n    file.write(f'{{os.geteuid()}}\\n')\n")
    folder.chmod(0o700)
    node.env["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT)])
    node.start()
    node.wait_serves()
    assert found.read_text().split() == [str(os.geteuid())]


def test_a_loss_in_redis_is_logged_and_stays_in_the_status_until_it_is_removed(cluster: Cluster) -> None:
    node = cluster.node("a")
    node.start()
    node.wait_serves()
    publisher = node.pinned(cluster.ids("p")[0])
    redis, store = cluster.redis.client, f"mosq:{{{store_name('mosq', cluster.facts.id, 1)}}}:head"
    subscribe(node, cluster.ids("s")[0], 1)
    old = redis.hget(store, "number")
    for n in range(10):                 # more than a worker keeps
        publisher.send(Publish(f"t/{n}", bytes(1 << 20), 1, 1 + n))
        assert isinstance(publisher.read_packet(), Puback)
    redis.hset(store, "number", old)    # what a restored state has
    redis.client_kill_filter(_type="normal", skipme=True)
    publisher.send(Publish("t/10", b"x", 1, 20))
    node.wait_log("Error: Worker 1 has lost its store: Redis at ")
    assert "Redis has lost operations that it had confirmed" in node.log()
    until(lambda: "Worker 1 may have lost acknowledged messages: 20" in status(cluster), lambda: status(cluster) + node.log())
    node.pinned(cluster.ids("p")[0])    # it goes on with what Redis has
    command = re.search("redis-cli HDEL '(.*)' '(.*)'", status(cluster))
    assert command is not None
    assert redis.hdel(*command.groups()) == 1
    assert "may have lost" not in status(cluster)


def test_a_worker_that_ends_again_after_it_has_served_is_in_the_status(cluster: Cluster) -> None:
    node = cluster.node("a")
    node.start()
    node.wait_serves()
    assert "again" not in status(cluster)
    for _ in range(2):
        token = cluster.tokens()[1]
        node.kill(2)
        until(lambda token=token: cluster.tokens().get(1, 0) > token, node.log)
        node.wait_serves()
    until(lambda: "! Worker 2 has ended 2 times on the node a" in status(cluster), lambda: status(cluster) + node.log())


def status(cluster: Cluster) -> str:
    command = [sys.executable, "-m", "mosq", "cluster", "status", cluster.address]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S).stdout
