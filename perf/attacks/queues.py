"""Attack messages on their way: QoS 2 that never ends, readers that do not read, properties, aliases, tiny packets."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from perf.attacks import wire
from perf.attacks.attack import attack

if TYPE_CHECKING:
    from perf.attacks.scene import Scene


@attack("qos2-held", "messages of 1 MB with QoS 2 and no PUBREL", "8", may_refuse=True)
def qos2_held(scene: Scene) -> None:
    client = scene.client(wire.connect("held"))
    n = scene.flood([client], lambda i: wire.publish(b"held", bytes(1_000_000), qos=2, mid=1 + i), most=300)
    scene.note(f"{n} messages")


@attack("qos2-held-small", "65,000 messages with QoS 2 and no PUBREL from each of 20 clients", "8", may_refuse=True)
def qos2_held_small(scene: Scene) -> None:
    clients = scene.clients(20, lambda i: wire.connect(f"held{i}"))
    n = scene.flood(
        clients,
        lambda i: b"".join(
            wire.publish(b"held", bytes(500), qos=2, mid=1 + (i // 20 * 100 + k) % 65_000) for k in range(100)
        ),
    )
    scene.note(f"{n * 100:,} messages")


@attack("no-reader", "20 subscribers that read nothing, and a flood of messages of 100 kB", "class", may_refuse=True)
def no_reader(scene: Scene) -> None:
    readers = scene.clients(20, lambda i: wire.connect(f"deaf{i}") + wire.subscribe(1, [b"loud"], i % 3))
    publisher = scene.client(wire.connect("loud"))
    n = scene.flood([publisher], lambda i: wire.publish(b"loud", bytes(100_000), qos=i % 2, mid=1))
    scene.note(f"{n} messages, {len(readers)} readers")


@attack("no-puback", "50 subscribers that acknowledge nothing, and messages of 10 kB with QoS 1", may_refuse=True)
def no_puback(scene: Scene) -> None:
    scene.kept += scene.clients(50, lambda i: wire.connect(f"mute{i}") + wire.subscribe(1, [b"ack/#"], 1))
    publisher = scene.client(wire.connect("fill"))
    scene.flood([publisher], lambda i: wire.publish(b"ack/%d" % i, bytes(10_000), qos=1, mid=1))


@attack("unread-answers", "a client sends PINGREQ and SUBSCRIBE without reading the answers")
def unread_answers(scene: Scene) -> None:
    client = scene.client(wire.connect("unread"))
    content = wire.PINGREQ * 10_000 + wire.subscribe(1, [b"a"] * 10_000)
    scene.flood([client], lambda i: content, read=False)


@attack("half-publish", "1,000 clients send 90 of 100 kB of a PUBLISH each", may_refuse=True)
def half_publish(scene: Scene) -> None:
    clients = scene.clients(1000, lambda i: wire.connect(f"half{i}"))
    content = wire.publish(b"half", bytes(100_000))[:90_000]
    scene.flood(clients, lambda i: content, most=len(clients))
    scene.note(f"{len(clients)} clients")
    scene.hold()


@attack(
    "tiny-packets", "8 clients send PINGREQ, and acknowledgements of packet ids that are not in use, in large writes"
)
def tiny_packets(scene: Scene) -> None:
    clients = scene.clients(8, lambda i: wire.connect(f"tiny{i}"))
    content = wire.PINGREQ * 5000 + b"".join(b"\x50\x02" + struct.pack("!H", 1 + k) for k in range(5000))
    scene.flood(clients, lambda i: content)


@attack("topic-aliases", "topic aliases get a new topic of 1 kB with every message, towards 10 subscribers")
def topic_aliases(scene: Scene) -> None:
    readers = scene.clients(
        10, lambda i: wire.connect(f"alias{i}", level=5, props=((0x22, 10),)) + wire.subscribe(1, [b"alias/#"], level=5)
    )
    publisher = scene.client(wire.connect("alias", level=5))
    topic = b"alias/" + b"t" * 1000
    scene.flood(
        [publisher],
        lambda i: b"".join(
            wire.publish(topic + b"%d" % (i * 10 + k), b"x", props=b"\x23" + struct.pack("!H", 1 + k))
            for k in range(10)
        ),
        readers=readers,
    )


@attack("user-properties", "messages with 30,000 user properties for 20 subscribers")
def user_properties(scene: Scene) -> None:
    readers = scene.clients(
        20, lambda i: wire.connect(f"up{i}", level=4 + i % 2) + wire.subscribe(1, [b"props"], level=4 + i % 2)
    )
    publisher = scene.client(wire.connect("props", level=5))
    content = wire.publish(b"props", b"x", props=b"\x26\0\x01k\0\x01v" * 30_000)
    scene.flood([publisher], lambda i: content, readers=readers)


@attack("big-messages", "4 clients publish messages of 1.9 MB to each other", may_refuse=True)
def big_messages(scene: Scene) -> None:
    clients = scene.clients(4, lambda i: wire.connect(f"big{i}") + wire.subscribe(1, [b"big"]))
    content = wire.publish(b"big", bytes(1_900_000))
    scene.flood(clients, lambda i: content)


@attack("empty-messages", "4 clients publish to a topic without subscribers as fast as they can")
def empty_messages(scene: Scene) -> None:
    clients = scene.clients(4, lambda i: wire.connect(f"empty{i}"))
    content = wire.publish(b"e") * 10_000
    scene.flood(clients, lambda i: content)


@attack(
    "denied-publishes",
    "publishes that the access rules deny, as fast as possible",
    "low",
    config="acl_file {dir}/acl\n",
)
def denied_publishes(scene: Scene) -> None:
    clients = scene.clients(4, lambda i: wire.connect(f"denied{i}"))
    content = wire.publish(b"secret/topic") * 2000
    scene.flood(clients, lambda i: content)
