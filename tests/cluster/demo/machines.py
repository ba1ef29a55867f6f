"""Start what the demo of a cluster runs on this machine: three servers of Redis and three Sentinels, three nodes, and HAProxy if it is installed."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import Self

from mosq.cluster.address import parse_address
from mosq.cluster.entries import entry_of, run_of
from mosq.cluster.errors import AwayError
from mosq.cluster.overview import view_of
from mosq.cluster.registry import Registry
from mosq.cluster.terms import Terms
from mosq.tools.tied import tied
from tests.cluster.haproxy import Haproxy
from tests.harness.broker import Broker, free_port
from tests.harness.faults import until
from tests.harness.redis import RedisServer

NAMES = "abc"
WORKERS = 6
LEASE_S = 2.0
SERVERS, SENTINELS, QUORUM = 3, 3, 2
CLUSTER = "demo"                # also the name of the primary for the Sentinels
SECRET = b"the secret of a demo on one machine"
# queues without a limit, since a message dropped by a limit would count as lost
CONFIG = """listener {port} {host}
{proxy}allow_anonymous true
persistence true
max_queued_messages 0
cluster {address}
cluster_name {cluster}
cluster_node {name}
cluster_listener {wires} {host}
cluster_secret_file {{dir}}/secret
{user}"""


class Node(Broker):
    """A node. All have the same ports, at addresses of their own."""

    def __init__(self, name: str, config: str, host: str) -> None:
        super().__init__(config, command=tied([sys.executable, "-m", "mosq"]))
        self.name, self.host = name, host
        self.kills = 0
        (self.dir / "secret").write_bytes(SECRET)
        (self.dir / "secret").chmod(0o600)


class Machines:
    """All processes. They end with this one. `proxied`: HAProxy is in front of the nodes, else clients connect to each of them."""

    def __init__(self, proxied: bool) -> None:
        self.stack, self.proxied = ExitStack(), proxied
        self.redis = RedisServer()
        self.haproxy: Haproxy | None = None
        self.nodes: list[Node] = []
        self.registry: Registry | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def _start(self) -> None:
        self.stack.enter_context(self.redis)
        for _ in range(SERVERS - 1):
            self.stack.enter_context(RedisServer(f"replicaof 127.0.0.1 {self.redis.port}"))
        until(lambda: self.redis.ask("INFO replication").count(b"state=online") == SERVERS - 1)
        sentinels = [self.stack.enter_context(Sentinel(self.redis.port)) for _ in range(SENTINELS)]
        until(lambda: all(sentinel.knows_all() for sentinel in sentinels))
        address = f"redis+sentinel://{','.join(f'127.0.0.1:{one.port}' for one in sentinels)}/{CLUSTER}"
        registry = Registry(parse_address(address), CLUSTER, "operator", "operator", Terms(LEASE_S, LEASE_S / 2), replicas=1, secret=SECRET)
        registry.create(WORKERS)
        registry.open(WORKERS)
        self.stack.callback(registry.close)
        self.registry = registry
        self._start_nodes(address)
        if self.proxied:
            self.haproxy = self.stack.enter_context(Haproxy([(node.host, self.port, self.port) for node in self.nodes]))
            self.haproxy.wait_up(*NAMES)
        until(lambda: all(name is not None for name in self.places()))

    def _start_nodes(self, address: str) -> None:
        self.port, wires = free_port(), free_port()
        for n, name in enumerate(NAMES):
            host = f"127.0.0.{11 + n}"
            config = CONFIG.format(port=self.port, host=host, proxy="enable_proxy_protocol 2\n" if self.proxied else "", address=address,
                                   cluster=CLUSTER, name=name, wires=wires, user="user root\n" if os.geteuid() == 0 else "")
            node = Node(name, config, host)
            self.nodes.append(node)
            self.stack.callback(end, node)
            node.spawn()

    def places(self) -> list[str | None]:
        """Return the node of each worker; None: it has none now, or one that was killed."""
        assert self.registry is not None
        try:
            view = view_of(self.registry)
        except AwayError:
            return [None] * WORKERS
        alive = {node.name for node in self.nodes if node.alive()}
        entries = [entry_of(view.workers.get(worker, "")) for worker in range(WORKERS)]
        return [one.name if one.name in alive and run_of(view.beats.get(one.name, "")) == one.run else None for one in entries]

    def addresses(self) -> list[tuple[str, int]]:
        """Return where clients connect to."""
        if self.haproxy is not None:
            return [("127.0.0.1", self.haproxy.port)]
        return [(node.host, self.port) for node in self.nodes]


class Sentinel(RedisServer):
    """One of three Sentinels, two of which must agree about the death of the primary."""

    defaults = ()
    arguments = ("--sentinel",)

    def __init__(self, primary: int) -> None:
        super().__init__(f"sentinel monitor {CLUSTER} 127.0.0.1 {primary} {QUORUM}", f"sentinel down-after-milliseconds {CLUSTER} 5000")

    def knows_all(self) -> bool:
        return (self.ask(f"SENTINEL REPLICAS {CLUSTER}").startswith(b"*%d\r\n" % (SERVERS - 1))
                and self.ask(f"SENTINEL SENTINELS {CLUSTER}").startswith(b"*%d\r\n" % (SENTINELS - 1)))


def end(node: Node) -> None:
    if node.alive():
        node.die()
    node.close()
