"""Run a cluster for a measurement: Redis, a replica of it that confirms, and nodes. All are on this machine; each node
has an address of its own, so links between nodes are TCP connections as between machines."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import redis

from mosq.cluster.address import parse_address
from mosq.cluster.entries import entry_of
from mosq.cluster.errors import AwayError
from mosq.cluster.registry import Registry
from mosq.cluster.terms import Terms
from mosq.engine import worker_place
from mosq.tools.bench.started import free_port
from mosq.tools.tied import tied
from tests.harness.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mosq.cluster.registry import Facts

LEASE_S = 6.0                   # long: a busy machine must not end workers
WAIT_S = 120.0
POLL_S = 0.002
SECRET = b"s" * 32
# as shipped, but for the rewrite of the append-only file, which would begin in some runs and not in others
REDIS = ("appendfsync everysec", "auto-aof-rewrite-percentage 0")
CONFIG = """listener {port} {host}
allow_anonymous true
max_inflight_messages 1000
max_queued_messages 0
persistence true
sys_interval 0
log_type error
log_type warning
log_type notice
log_type information
connection_messages false
cluster redis://127.0.0.1:{redis}
cluster_node {name}
cluster_listener {links} {host}
cluster_secret_file {folder}/secret
"""


class WaitError(SystemExit):
    """End the measurement: the cluster did not reach a state in time."""


def until(reached: Callable[[], bool], what: str, limit_s: float = WAIT_S) -> float:
    """Wait for a state; return the time at which it was seen."""
    end = time.monotonic() + limit_s
    while not reached():
        if time.monotonic() > end:
            raise WaitError(f"not within {limit_s:g} s: {what}")
        time.sleep(POLL_S)
    return time.monotonic()


class Node:
    """One node. `name`: a, b, ..."""

    def __init__(self, folder: Path, number: int, ports: dict[str, int]) -> None:
        self.name, self.host = chr(ord("a") + number), f"127.0.1.{number + 1}"
        self._config, self._log = folder / f"{self.name}.conf", folder / f"{self.name}.log"
        user = "user root\n" if os.geteuid() == 0 else ""
        self._config.write_text(user + CONFIG.format(host=self.host, name=self.name, folder=folder, **ports))

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(tied([sys.executable, "-m", "mosq", "-c", str(self._config)]),
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """Kill the node at once; the kernel ends its workers with it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def serves(self, worker: int) -> bool:
        """Return whether the last process of a worker here serves clients."""
        log = self.log()
        started = re.findall(rf"Worker {worker + 1} starts here \(process (\d+)\)", log)
        return bool(started) and f"(process {started[-1]}) serves clients." in log

    def serving(self) -> int:
        """Return how often a worker has begun to serve clients here."""
        return self.log().count("serves clients.")


class Cluster:
    """A cluster that runs; `home` names the node of each worker (0 = the first)."""

    def __init__(self, servers: dict[str, RedisServer], nodes: list[Node], facts: Facts, port: int) -> None:
        self.servers, self.nodes, self.facts, self.port = servers, nodes, facts, port
        self.home: list[Node] = []
        self._table = redis.Redis(port=servers["Redis"].port, decode_responses=True)

    def start(self, alone: int | None = None) -> None:
        """Start all nodes, or the one at `alone`; return when all workers serve clients, as many at each node."""
        started = self.nodes if alone is None else [self.nodes[alone]]
        for node in started:
            node.start()
        until(lambda: self._shared_out(started), "the workers are spread over the nodes")

    def _shared_out(self, nodes: list[Node]) -> bool:
        names = {node.name: node for node in nodes}
        entries = {int(worker): entry_of(text) for worker, text in self._table.hgetall("mosq:{mosq}:workers").items()}
        owners = [entries[worker].name if worker in entries else "" for worker in range(self.facts.workers)]
        if {owners.count(node.name) for node in nodes} != {self.facts.workers // len(nodes)}:
            return False
        self.home = [names[name] for name in owners]
        return all(node.serves(worker) for worker, node in enumerate(self.home))

    def processes(self) -> dict[str, int]:
        """Return the processes whose CPU counts: those of nodes with their workers, Redis, and its replica."""
        nodes = {f"node {node.name}": node.process.pid for node in self.nodes
                 if hasattr(node, "process") and node.process.poll() is None}
        return {**nodes, **{name: server.process.pid for name, server in self.servers.items()}}

    def names(self, places: list[int], prefix: str = "c") -> list[str]:
        """Return different client ids; the one at i belongs to the worker places[i]."""
        fresh: list[Iterator[str]] = [self._of(place, prefix) for place in range(self.facts.workers)]
        return [next(fresh[place]) for place in places]

    def _of(self, place: int, prefix: str) -> Iterator[str]:
        for n in itertools.count():
            name = f"{prefix}-{n}"
            if worker_place(self.facts.key, name.encode(), self.facts.workers) == place:
                yield name

    def worker_at(self, node: int) -> int:
        """Return a worker of a node."""
        return self.home.index(self.nodes[node])


def created(registry: Registry, workers: int) -> bool:
    """Make the cluster; return whether the replica has confirmed it."""
    try:
        registry.create(workers)
    except AwayError:
        return False
    return True


@contextlib.contextmanager
def cluster(nodes: int = 2, workers: int = 2, replicas: int = 1) -> Iterator[Cluster]:
    """Make a cluster whose nodes are not started yet."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mosq-cluster-")))
        (folder / "secret").write_bytes(SECRET)
        (folder / "secret").chmod(0o600)
        servers = {"Redis": stack.enter_context(RedisServer(*REDIS))}
        for n in range(replicas):
            place = f"replicaof 127.0.0.1 {servers['Redis'].port}"
            name = "replica" if replicas == 1 else f"replica {n + 1}"
            servers[name] = stack.enter_context(RedisServer(*REDIS, place))
        until(lambda: servers["Redis"].ask("INFO replication").count(b"state=online") == replicas, "replicas")
        address = f"redis://127.0.0.1:{servers['Redis'].port}"
        terms = Terms(LEASE_S, LEASE_S / 2)
        registry = Registry(parse_address(address), "mosq", "operator", "r", terms, replicas=replicas, secret=SECRET)
        until(lambda: created(registry, workers), "the replica confirms")
        facts = registry.facts()
        registry.close()
        ports = {"port": free_port(), "links": free_port(), "redis": servers["Redis"].port}
        running = Cluster(servers, [Node(folder, n, ports) for n in range(nodes)], facts, ports["port"])
        try:
            yield running
        finally:
            for node in running.nodes:
                if hasattr(node, "process"):
                    node.kill()
