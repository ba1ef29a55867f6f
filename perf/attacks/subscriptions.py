"""Attack the index: floods of SUBSCRIBE and UNSUBSCRIBE, huge shared groups, the end of clients with many filters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perf.attacks import wire
from perf.attacks.attack import attack
from perf.attacks.matching import subscribe_all

if TYPE_CHECKING:
    from perf.attacks.scene import Scene


@attack("subscribe-flood", "4 clients subscribe to new filters as fast as they can", may_refuse=True)
def subscribe_flood(scene: Scene) -> None:
    clients = scene.clients(4, lambda i: wire.connect(f"sub{i}"))
    n = scene.flood(clients, lambda i: wire.subscribe(1, [b"flood/%d/%d/+" % (i, k) for k in range(1000)]))
    scene.note(f"{n * 1000:,} filters")


@attack("subscribe-long", "clients subscribe to filters of 60 kB", may_refuse=True)
def subscribe_long(scene: Scene) -> None:
    clients = scene.clients(4, lambda i: wire.connect(f"long{i}"))
    n = scene.flood(clients, lambda i: wire.subscribe(1, [b"%d/" % i + b"x" * 60_000]))
    scene.note(f"{n:,} filters")


@attack("subscribe-one-packet", "one SUBSCRIBE of 2 MB with 230,000 filters, again and again", may_refuse=True)
def subscribe_one_packet(scene: Scene) -> None:
    client = scene.client(wire.connect("huge"))
    content = wire.subscribe(1, [b"%d" % k for k in range(230_000)])
    scene.flood([client], lambda i: content)


def _filters(scene: Scene) -> None:
    client = scene.client(wire.connect("many"))
    subscribe_all(client, [b"many/%d/x" % i for i in range(200_000)])
    scene.kept.append(client)


@attack("unsubscribe-flood", "UNSUBSCRIBE of 200,000 filters in packets of 2 MB", prepare=_filters)
def unsubscribe_flood(scene: Scene) -> None:
    scene.flood(
        scene.kept,
        lambda i: wire.unsubscribe(1, [b"many/%d/x" % k for k in range(i * 100_000, (i + 1) * 100_000)]),
        most=2,
    )
    scene.settle(scene.kept[0])


@attack("drop-subscriber", "a client with 200,000 filters disconnects", prepare=_filters)
def drop_subscriber(scene: Scene) -> None:
    scene.kept.pop().close()
    scene.settle(scene.client(wire.connect("after")))
    scene.hold()


def _group(scene: Scene) -> None:
    scene.kept += scene.clients(4000, lambda i: wire.connect(f"m{i}") + wire.subscribe(1, [b"$share/g/work"]))


@attack(
    "share-huge", "a shared group of 4,000 members, a burst of messages, and members that come and go", prepare=_group
)
def share_huge(scene: Scene) -> None:
    publisher = scene.client(wire.connect("pub"))
    content = wire.unsubscribe(1, [b"$share/g/work"]) + wire.subscribe(1, [b"$share/g/work"])
    scene.note(f"{len(scene.kept):,} members")
    scene.flood(
        [publisher, *scene.kept[:3]], lambda i: wire.publish(b"work", b"x" * 20) * 100 + content, readers=scene.kept[3:]
    )


@attack("share-groups", "50,000 shared groups with one member on one topic, and messages to it", may_refuse=True)
def share_groups(scene: Scene) -> None:
    client = scene.client(wire.connect("groups"))
    subscribe_all(client, [b"$share/g%d/t" % i for i in range(50_000)])
    scene.flood([client], lambda i: wire.publish(b"t", b"x"))


def _audience(scene: Scene) -> None:
    scene.kept += scene.clients(2000, lambda i: wire.connect(f"aud{i}") + wire.subscribe(1, [b"news/#"]))


@attack("fan-out", "2,000 subscribers of one topic, and a client that publishes as fast as it can", prepare=_audience)
def fan_out(scene: Scene) -> None:
    publisher = scene.client(wire.connect("pub"))
    scene.flood([publisher], lambda i: wire.publish(b"news/a", b"x" * 100) * 10, readers=scene.kept)
