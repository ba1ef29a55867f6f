"""Attack access rules: topics that a client must not reach."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from perf.attacks import wire
from perf.attacks.attack import attack

if TYPE_CHECKING:
    from perf.attacks.scene import Scene

RULES = "acl_file {dir}/acl\nmosq:enable_control_api true\nsys_interval 1\n"


@attack(
    "pattern-dollar",
    "a client with the id $SYS or $CONTROL reaches topics that begin with $ by `pattern readwrite %c/#`",
    "1",
    config=RULES,
)
def pattern_dollar(scene: Scene) -> None:
    for topic in (b"$SYS/#", b"$SYS/broker/version"):
        client = scene.client(wire.connect("$SYS", level=5))
        client.sock.settimeout(max(1.5, scene.left()))
        client.sock.sendall(wire.subscribe(1, [topic], level=5))
        with contextlib.suppress(OSError):
            client.read_type(3)
            scene.breach(f"a client with the id $SYS got a message of {topic.decode()}")
        client.close()
    if scene.name != "mosq":
        return
    client = scene.client(wire.connect("$CONTROL", level=5))
    client.sock.settimeout(1.5)
    client.sock.sendall(
        wire.subscribe(1, [b"$CONTROL/mosq/broker/v1/response"], level=5)
        + wire.publish(b"$CONTROL/mosq/broker/v1", b'{"commands":[{"command":"listClients"}]}', props=b"")
    )
    with contextlib.suppress(OSError):
        client.read_type(3)
        scene.breach("a client with the id $CONTROL got an answer of the control API")


@attack(
    "share-swallow",
    "a member of a shared group without read right takes messages from the others",
    "low",
    config="acl_file {dir}/acl-share\n",
    mosquitto=False,
)
def share_swallow(scene: Scene) -> None:
    members = [scene.client(wire.connect(f"m{i}", user="reader" if i else "none")) for i in range(2)]
    for client in members:
        client.sock.sendall(wire.subscribe(1, [b"$share/g/work"]))
        client.read_type(9)
    publisher = scene.client(wire.connect("pub"))
    publisher.sock.sendall(b"".join(wire.publish(b"work", b"%d" % i) for i in range(100)))
    scene.settle(publisher)
    members[1].sock.settimeout(1.0)
    got = 0
    with contextlib.suppress(OSError):
        while got < 100:
            members[1].read_type(3)
            got += 1
    if got < 100:
        scene.breach(f"the member with read right got {got} of 100 messages")
