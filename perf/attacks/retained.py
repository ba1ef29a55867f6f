"""Attack retained messages: their memory, their replay and their expiry."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from perf.attacks import wire
from perf.attacks.attack import attack

if TYPE_CHECKING:
    from perf.attacks.scene import Scene

N = 100_000


def _retained(scene: Scene) -> None:
    client = scene.client(wire.connect("fill"))
    scene.flood(
        [client],
        lambda i: b"".join(
            wire.publish(b"r/%d/%d" % (k % 316, k), b"x" * 50, retain=True) for k in range(i * 1000, i * 1000 + 1000)
        ),
        most=N // 1000,
    )
    client.sock.setblocking(True)
    scene.settle(client)
    scene.kept.append(client)


@attack("retained-flood", "retained messages of 1 kB on new topics as fast as possible", may_refuse=True)
def retained_flood(scene: Scene) -> None:
    client = scene.client(wire.connect("flood"))
    n = scene.flood(
        [client],
        lambda i: b"".join(
            wire.publish(b"flood/%d" % k, bytes(1000), retain=True) for k in range(i * 100, i * 100 + 100)
        ),
    )
    scene.note(f"{n * 100:,} messages")


@attack("retained-small", "retained messages of 1 byte on new topics of many levels", may_refuse=True)
def retained_small(scene: Scene) -> None:
    client = scene.client(wire.connect("flood"))
    n = scene.flood(
        [client],
        lambda i: b"".join(
            wire.publish(b"a/%d/b/%d/c/%d/d" % (k, k, k), b"1", retain=True) for k in range(i * 100, i * 100 + 100)
        ),
    )
    scene.note(f"{n * 100:,} messages")


@attack(
    "retained-replay", "10 clients subscribe to # again and again over 100,000 retained messages", prepare=_retained
)
def retained_replay(scene: Scene) -> None:
    clients = scene.clients(10, lambda i: wire.connect(f"replay{i}"))
    scene.flood(clients, lambda i: wire.subscribe(1, [b"#"]))


@attack(
    "retained-no-reader", "10 clients subscribe to # over 100,000 retained messages and read nothing", prepare=_retained
)
def retained_no_reader(scene: Scene) -> None:
    clients = scene.clients(10, lambda i: wire.connect(f"replay{i}"))
    scene.flood(clients, lambda i: wire.subscribe(1, [b"#"], 1), read=False)
    scene.hold()


@attack(
    "retained-search", "SUBSCRIBE to wildcards that visit 100,000 retained messages and match none", prepare=_retained
)
def retained_search(scene: Scene) -> None:
    clients = scene.clients(4, lambda i: wire.connect(f"search{i}"))
    scene.flood(clients, lambda i: wire.subscribe(1, [b"+/+/none", b"+/+/+/none", b"r/+/none%d" % i] * 20))


@attack("retained-expiry", "100,000 retained messages expire in the same second")
def retained_expiry(scene: Scene) -> None:
    client = scene.client(wire.connect("expiry", level=5))
    props = b"\x02" + (2).to_bytes(4, "big")
    begin = time.monotonic()
    scene.flood(
        [client],
        lambda i: b"".join(
            wire.publish(b"e/%d" % k, b"x", retain=True, props=props) for k in range(i * 1000, i * 1000 + 1000)
        ),
        most=N // 1000,
    )
    scene.settle(client)
    time.sleep(max(0.0, begin + 4 - time.monotonic()))


@attack("retained-clear", "100,000 retained messages are removed by empty ones", prepare=_retained)
def retained_clear(scene: Scene) -> None:
    client = scene.kept[0]
    scene.flood(
        [client],
        lambda i: b"".join(
            wire.publish(b"r/%d/%d" % (k % 316, k), retain=True) for k in range(i * 1000, i * 1000 + 1000)
        ),
        most=N // 1000,
    )
    scene.settle(client)
