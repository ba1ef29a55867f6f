"""Attack the match of a topic with filters: work that one PUBLISH causes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from perf.attacks import wire
from perf.attacks.attack import attack

if TYPE_CHECKING:
    from perf.attacks.scene import Client, Scene

BATCH = 500  # filters in a SUBSCRIBE
WINDOW = 8  # SUBSCRIBEs on the way


def subscribe_all(client: Client, filters: list[bytes], qos: int = 0) -> None:
    """Send SUBSCRIBEs and read their answers, without an end of the attack's time."""
    client.sock.settimeout(60)
    batches = [filters[i : i + BATCH] for i in range(0, len(filters), BATCH)]
    for n, batch in enumerate(batches):
        client.sock.sendall(wire.subscribe(1 + n % 65_000, batch, qos))
        if n >= WINDOW:  # the broker's answers must not wait for this client
            client.read_type(9)
    for _ in batches[-WINDOW:]:
        client.read_type(9)


def _binary_tree(scene: Scene, levels: int) -> None:
    client, publisher = scene.client(wire.connect("tree")), scene.client(wire.connect("burst"))
    filters = [b"/".join(one) + b"/x" for one in itertools.product((b"a", b"+"), repeat=levels)]
    subscribe_all(client, filters)
    publisher.sock.settimeout(90)
    topic = b"/".join([b"a"] * levels) + b"/y"
    publisher.sock.sendall(b"".join(wire.publish(topic + b"%d" % i) for i in range(134_000 // (len(topic) + 8))))
    scene.note(f"{len(filters):,} filters")
    scene.settle(publisher)


@attack("wildcard-tree-16", "65,536 filters of a and + over 16 levels that all miss, and 134 kB of PUBLISH", "2")
def wildcard_tree_16(scene: Scene) -> None:
    _binary_tree(scene, 16)


@attack(
    "wildcard-tree-18",
    "262,144 filters of a and + over 18 levels that all miss, and 134 kB of PUBLISH",
    "2",
    memory_limit=300_000_000,
)
def wildcard_tree_18(scene: Scene) -> None:
    _binary_tree(scene, 18)


@attack("wildcard-tree-shared", "65,536 filters of a and + over 16 levels, divided among 64 clients", "2")
def wildcard_tree_shared(scene: Scene) -> None:
    filters = [b"/".join(one) + b"/x" for one in itertools.product((b"a", b"+"), repeat=16)]
    clients = scene.clients(64, lambda i: wire.connect(f"tree{i}"))
    for i, client in enumerate(clients):
        subscribe_all(client, filters[i::64])
    publisher = scene.client(wire.connect("burst"))
    publisher.sock.sendall(b"".join(wire.publish(b"a/" * 16 + b"y%d" % i) for i in range(3000)))
    scene.settle(publisher)


@attack("many-hits", "4,096 overlapping filters of one client that all match, and a burst of PUBLISH", "2")
def many_hits(scene: Scene) -> None:
    client = scene.client(wire.connect("hits"))
    subscribe_all(client, [b"/".join(one) for one in itertools.product((b"a", b"+"), repeat=12)])
    publisher = scene.client(wire.connect("burst"))
    scene.flood([client, publisher], lambda i: wire.publish(b"/".join([b"a"] * 12), b"x" * 20) * 20)


@attack("deep-topics", "filters and topics of 200 levels with # at each depth", "2")
def deep_topics(scene: Scene) -> None:
    client = scene.client(wire.connect("deep"))
    subscribe_all(client, [b"a/" * n + b"#" for n in range(199)] + [b"+/" * n + b"#" for n in range(199)])
    scene.flood([client], lambda i: wire.publish(b"a/" * 199 + b"%d" % i) * 20)


@attack("cache-churn", "publish to a new topic each time, with 10,000 wildcard filters", "2")
def cache_churn(scene: Scene) -> None:
    client = scene.client(wire.connect("churn"))
    subscribe_all(client, [b"t/+/%d/#" % i for i in range(10_000)])
    scene.flood([client], lambda i: b"".join(wire.publish(b"t/%d/%d/z" % (i * 100 + k, k)) for k in range(100)))


@attack("cache-invalidation", "subscribe and unsubscribe # between publishes to 10,000 cached topics", "2")
def cache_invalidation(scene: Scene) -> None:
    client = scene.client(wire.connect("inval"))

    def chunk(i: int) -> bytes:
        change = wire.subscribe(1, [b"#"]) if i % 2 else wire.unsubscribe(1, [b"#"])
        return b"".join(wire.publish(b"c/%d" % (k + i * 100 % 10_000)) for k in range(100)) + change

    scene.flood([client], chunk)
