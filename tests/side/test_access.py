"""Compare the access decisions of mosq with Debian's Mosquitto over the wire: random rule files, user names, client ids and topics.

One broker of each kind runs for all rule files; SIGHUP replaces the rules. For each file every client tries to publish, to read, to read
retained messages and to leave a will on every topic.
"""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Iterator

import pytest

from tests.harness.broker import Broker
from tests.harness.effort import tries
from tests.harness.packets import Connack, Connect, Pingreq, Pingresp, Publish, Suback, Subscribe, Will
from tests.harness.wire import Wire

MOSQUITTO = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin") or "mosquitto"
USERS = (None, "ann", "bob", "$a", "a/b")
IDS = ("c", "ann", "$a", "a/b", "d+")
LEVELS = ("a", "b", "", "ann", "bob", "c")
TOPICS = ("a", "a/b", "a/b/c", "/a", "a/", "ann", "ann/c", "c/ann", "bob/a", "c", "c/a", "a/b/a", "$a", "$a/b", "$a/ann", "b//c", "x/c/ann/y")
# `watch` may do everything; its own rules come first, so no pattern takes anything from it
WATCH = "user watch\ntopic readwrite #\ntopic readwrite $a/#\n"
FILTERS = ("#", "$a/#")

pytestmark = pytest.mark.interop


def rule_file(dice: random.Random) -> str:
    """Return a rule file. Denials stand before what allows, as Mosquitto sorts them itself."""
    def path(*more: str) -> str:
        levels = [dice.choice((*LEVELS, "+", *more)) for _ in range(dice.randint(1, 3))]
        if dice.random() < 0.1:
            levels.insert(0, "$a")
        return "/".join(levels + ["#"] * (dice.random() < 0.4)) or "a"

    lines = [f"topic {dice.choice(('read', 'write', 'readwrite', 'deny'))} {path()}" for _ in range(dice.randint(0, 3))]
    for user in ("ann", "bob", "$a", "a/b"):
        lines.append(f"user {user}")
        lines += [f"topic {dice.choice(('read', 'write', 'readwrite', 'deny'))} {path()}" for _ in range(dice.randint(0, 3))]
    lines += [f"pattern {dice.choice(('read', 'write', 'readwrite'))} {path('%u', '%c', '%u', '%c')}" for _ in range(dice.randint(0, 4))]
    return "\n".join(lines) + "\n" + WATCH


def connected(broker: Broker, client_id: str, user: str | None, will: str | None = None) -> Wire:
    wire = Wire(broker.port, 4)
    wire.send(Connect(client_id, username=user, will=Will(will, b"will") if will else None))
    connack = wire.read_packet()
    assert isinstance(connack, Connack) and connack.rc == 0
    return wire


def subscribed(wire: Wire) -> set[tuple[str, bytes]]:
    wire.send(Subscribe(1, tuple((f, 0) for f in FILTERS)))
    return got(wire)


def got(wire: Wire) -> set[tuple[str, bytes]]:
    """Return the messages that arrive before the answer to a PINGREQ."""
    wire.send(Pingreq())
    found = set()
    while not isinstance(packet := wire.read_packet(), Pingresp):
        if isinstance(packet, Publish):
            found.add((packet.topic, packet.payload))
        else:
            assert isinstance(packet, Suback)
    return found


def verdicts(broker: Broker, clients: list[tuple[str, str | None]]) -> set[tuple[str, str, str | None, str]]:
    """Return what succeeded: (what, client id, user, topic)."""
    found = set()
    watch = connected(broker, "watch", "watch")
    try:
        watch.send(*(Publish(topic, b"kept", retain=True) for topic in TOPICS))
        for client_id, user in clients:
            wire = connected(broker, client_id, user)
            found |= {("retained", client_id, user, topic) for topic, _ in subscribed(wire)}
            watch.send(*(Publish(topic, b"live") for topic in TOPICS))
            got(watch)
            found |= {("read", client_id, user, topic) for topic, _ in got(wire)}
            subscribed(watch)
            wire.send(*(Publish(topic, b"from") for topic in TOPICS))
            got(wire)
            found |= {("write", client_id, user, topic) for topic, payload in got(watch) if payload == b"from"}
            wire.send(b"\xe0\x00")
            assert wire.read_frame() is None
            wire.close()
            for topic in TOPICS:
                dying = connected(broker, client_id, user, topic)
                dying.send(b"\xf0\x00")          # no packet of 3.1.1: the broker ends the connection
                assert dying.read_frame() is None
                dying.close()
            found |= {("will", client_id, user, topic) for topic, payload in got(watch) if payload == b"will"}
            watch.close()
            watch = connected(broker, "watch", "watch")
    finally:
        watch.close()
    return found


@pytest.fixture(scope="module")
def brokers() -> Iterator[list[Broker]]:
    config = "listener {port} 127.0.0.1\nallow_anonymous true\nacl_file {dir}/acl\nsys_interval 0\n"
    with Broker(config, {"acl": WATCH}, [MOSQUITTO]) as theirs, Broker(config, {"acl": WATCH}) as ours:
        yield [theirs, ours]


def reload(broker: Broker, rules: str) -> None:
    """Replace the rules; return when they are in force. The last rule names a topic that only this file allows."""
    mark = f"in-force/{random.Random(rules).getrandbits(60)}"
    (broker.dir / "acl").write_text(f"{rules}user mark\ntopic readwrite {mark}\n")
    broker.send_signal(signal.SIGHUP)
    while True:
        wire = connected(broker, "mark", "mark")
        wire.send(Subscribe(1, ((mark, 0),)), Publish(mark, b""))
        done = got(wire)
        wire.close()
        if done:
            return


def by_its_own_name(_what: str, client_id: str, user: str | None, topic: str) -> bool:
    """Return whether Mosquitto 2.0 may allow this by a pattern whose %u or %c stands for a name with `$`; mosq denies it.

    The row of docs/differences.md is `pattern` with `%u` or `%c` as its first level.
    """
    return topic.startswith("$") and any(name is not None and name.startswith("$") for name in (client_id, user))


@pytest.mark.parametrize("part", range(4))
def test_same_verdicts_as_mosquitto(brokers: list[Broker], part: int) -> None:
    for seed in range(tries(50, 5)):
        dice = random.Random(f"{part} {seed}")
        rules = rule_file(dice)
        clients = [(dice.choice(IDS), dice.choice(USERS)) for _ in range(5)]
        said = []
        for broker in brokers:
            reload(broker, rules)
            said.append(verdicts(broker, clients))
        theirs, ours = said
        differ = {item for item in theirs ^ ours if not (item in theirs and by_its_own_name(*item))}
        assert not differ, (seed, sorted(f"{item}: {'mosq' if item in ours else 'Mosquitto'} allows it" for item in differ), rules)
