"""Test nodes of a cluster as processes with a real Redis (node.py): kills, stops, pauses of Redis, and what the workers' stores show afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from mosq.cluster.address import Address
from mosq.cluster.entries import entry_of
from mosq.cluster.errors import AwayError
from mosq.cluster.registry import Registry
from mosq.cluster.scripts import keys_of
from mosq.cluster.terms import Terms
from tests.cluster.servers import Redis
from tests.harness.broker import ROOT
from tests.harness.effort import TIMEOUT_S, tries
from tests.harness.faults import until

pytestmark = pytest.mark.part("redis")

WORKERS = 4
LEASE_S, MARGIN_S = 1.0, 1.0        # of the nodes


class Cluster:
    """A Redis, and nodes by name."""

    def __init__(self, folder: Path, redis: Redis) -> None:
        self.folder, self.redis = folder, redis
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        registry = Registry(Address((("127.0.0.1", redis.port),)), "c", "operator", "r", Terms(LEASE_S, MARGIN_S))
        until(lambda: created(registry))

    def start(self, name: str, workers: int = WORKERS) -> subprocess.Popen[bytes]:
        with (self.folder / f"log.{name}").open("ab") as log:
            self.nodes[name] = subprocess.Popen([sys.executable, "-m", "tests.cluster.node", f"redis://127.0.0.1:{self.redis.port}", name,
                                                 str(self.folder), str(LEASE_S), str(MARGIN_S), str(workers)], cwd=ROOT, stdout=log)
        return self.nodes[name]

    def log(self, name: str) -> str:
        return (self.folder / f"log.{name}").read_text()

    def close(self) -> None:
        for process in self.nodes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()

    def table(self) -> dict[int, str]:
        """Return the node of each worker that has one."""
        entries = self.redis.client.hgetall("mosq:{c}:workers")
        return {int(worker): entry_of(text).name for worker, text in entries.items() if entry_of(text).name}

    def head(self, worker: int) -> str | None:
        return self.redis.client.get(f"store:{worker}:head")

    def written(self) -> list[int]:
        return [self.redis.client.llen(f"store:{worker}:log") for worker in range(WORKERS)]

    def runs_at(self, *names: str) -> bool:
        """Return whether each worker has one of these nodes and has opened its store with its latest token."""
        entries = self.redis.client.hgetall("mosq:{c}:workers")
        return len(entries) == WORKERS and all(
            entry_of(text).name in names and self.head(int(worker)) == str(entry_of(text).token) for worker, text in entries.items())

    def wait_at(self, *names: str) -> None:
        """Wait until all workers run at these nodes, and write."""
        until(lambda: self.runs_at(*names))
        before = self.written()
        until(lambda: all(new > old for new, old in zip(self.written(), before, strict=True)))

    def wait_shared(self, *names: str) -> None:
        """Wait until the workers are spread over the nodes, and write."""
        until(lambda: set(self.table().values()) == set(names))
        self.wait_at(*names)

    def audit(self) -> None:
        """Check that no two starts of a worker served at one time, and that no write came behind one with a later token."""
        for worker in range(WORKERS):
            times: dict[int, list[float]] = {}
            for line in (self.folder / f"served.{worker}").read_text().splitlines():
                token, at_s = line.split()
                times.setdefault(int(token), []).append(float(at_s))
            starts = sorted(times)
            for token, later in pairwise(starts):
                assert max(times[token]) < min(times[later]), f"worker {worker} served twice at one time"
            tokens = [int(token) for token in self.redis.client.lrange(f"store:{worker}:log", 0, -1)]
            assert tokens == sorted(tokens)


def created(registry: Registry) -> bool:
    try:
        registry.create(WORKERS)
    except AwayError:               # a busy machine
        return False
    return True


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Redis() as redis:
        running = Cluster(tmp_path, redis)
        try:
            yield running
        finally:
            running.close()


def test_nodes_share_the_workers_and_take_over_those_of_a_killed_one(cluster: Cluster) -> None:
    for name in "abc":
        cluster.start(name)
    cluster.wait_shared("a", "b", "c")
    cluster.nodes["b"].kill()
    cluster.nodes["b"].wait()
    cluster.wait_at("a", "c")
    cluster.start("b")
    cluster.wait_shared("a", "b", "c")
    cluster.audit()


def test_a_node_that_is_stopped_for_longer_than_the_lease_has_no_worker_when_it_continues(cluster: Cluster) -> None:
    cluster.start("a")
    cluster.start("b")
    cluster.wait_shared("a", "b")
    cluster.nodes["a"].send_signal(signal.SIGSTOP)
    cluster.wait_at("b")
    cluster.nodes["a"].send_signal(signal.SIGCONT)
    until(lambda: "The lease of this node is over" in cluster.log("a"))
    cluster.wait_shared("a", "b")
    cluster.audit()


def test_workers_end_while_redis_is_away_and_start_at_the_same_nodes_when_it_is_back(cluster: Cluster) -> None:
    cluster.start("a")
    cluster.start("b")
    cluster.wait_shared("a", "b")
    cluster.redis.kill()
    for name in "ab":
        until(lambda name=name: "The lease of this node is over" in cluster.log(name))
    cluster.redis.start()
    cluster.wait_shared("a", "b")
    cluster.audit()


def test_a_second_node_of_one_name_is_refused(cluster: Cluster) -> None:
    first = cluster.start("a")
    cluster.wait_at("a")
    second = cluster.start("a")
    assert second.wait(TIMEOUT_S) == 3
    assert "a node with the name a lives already" in cluster.log("a")
    cluster.nodes["a"] = first
    cluster.wait_at("a")
    cluster.audit()


def test_a_node_that_is_started_again_takes_its_name_when_the_killed_one_is_dead(cluster: Cluster) -> None:
    cluster.start("a")
    cluster.wait_at("a")
    cluster.nodes["a"].kill()
    cluster.nodes["a"].wait()
    heads = [cluster.head(worker) for worker in range(WORKERS)]
    cluster.start("a")
    until(lambda: all(cluster.head(worker) != heads[worker] for worker in range(WORKERS)))
    cluster.wait_at("a")
    cluster.audit()


def test_a_node_leaves_and_its_workers_go_on_at_another_one(cluster: Cluster) -> None:
    cluster.start("a")
    cluster.start("b")
    cluster.wait_shared("a", "b")
    leaving = cluster.nodes["a"]
    leaving.terminate()
    assert leaving.wait(TIMEOUT_S) == 0
    assert "a" not in cluster.redis.client.hgetall("mosq:{c}:beats")
    cluster.wait_at("b")
    last = cluster.nodes["b"]
    last.terminate()
    assert last.wait(TIMEOUT_S) == 0
    assert cluster.table() == {}
    cluster.audit()


def test_a_worker_that_ends_is_started_again_under_another_token(cluster: Cluster) -> None:
    cluster.start("a")
    cluster.wait_at("a")
    head = cluster.head(1)
    assert head is not None
    cluster.redis.client.set("store:1:head", str(int(head) + 1))     # as if another process had opened its store
    until(lambda: cluster.head(1) not in (head, str(int(head) + 1)))
    cluster.wait_at("a")


def test_a_node_with_another_number_of_workers_ends(cluster: Cluster) -> None:
    assert cluster.start("a", WORKERS + 1).wait(TIMEOUT_S) == 3
    assert f"has {WORKERS} workers, and this node is configured for {WORKERS + 1}" in cluster.log("a")


def test_redis_that_lost_the_cluster_ends_the_workers_and_the_log_names_the_reason(cluster: Cluster) -> None:
    cluster.start("a")
    cluster.wait_at("a")
    cluster.redis.client.delete(*keys_of("c"))
    until(lambda: "The lease of this node is over" in cluster.log("a"))
    assert "Redis has no data of this cluster" in cluster.log("a")


@pytest.mark.again("redis")
def test_random_faults(cluster: Cluster) -> None:
    """Kill and stop nodes and Redis, one after another or together; after each round all workers run and none ran twice at one time."""
    random = Random(23)
    names = ["a", "b", "c"]
    for name in names:
        cluster.start(name)
    cluster.wait_shared(*names)
    for _ in range(tries(40, 2)):
        chosen = random.sample(names, random.randint(1, 2))
        for name in chosen:
            if random.random() < 0.5:
                cluster.nodes[name].kill()
                cluster.nodes[name].wait()
            else:
                cluster.nodes[name].send_signal(signal.SIGSTOP)
        if random.random() < 0.5:
            cluster.redis.kill()
            cluster.redis.start()
        cluster.wait_at(*(name for name in names if name not in chosen))
        for name in chosen:
            if cluster.nodes[name].poll() is None:
                cluster.nodes[name].send_signal(signal.SIGCONT)
            else:
                cluster.start(name)
        cluster.wait_shared(*names)
    cluster.audit()
