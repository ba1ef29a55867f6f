"""Test that the durability of a listener or a topic goes with a message to another worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.faults import Faults
from tests.harness.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.workers.case import Workers

SESSION = ((P.SESSION_EXPIRY, 600),)
TOPICS = "durability_topic strict strict/#\ndurability_topic group group/#\ndurability_topic async async/#\ndurability_topic none none/#\n"
STORE = "persistence true\npersistence_location {dir}/\n"
EIO = 5


@pytest.fixture
def faults() -> Iterator[Faults]:
    made = Faults()
    yield made
    made.close()


def publisher(broker: Workers) -> Wire:
    """Make a durable session at worker 2; return a client at worker 1, whose messages worker 1 does not store."""
    client = broker.connect(broker.id_on(2), clean=False, props=SESSION)
    client.send(Subscribe(1, (("#", 2),)))
    assert isinstance(client.read_packet(), Suback)
    client.close()
    return broker.connect(broker.id_on(1))


def is_silent(client: Wire) -> bool:
    try:
        client.read_packet(0.5)
    except TimeoutError:
        return True
    return False


@pytest.mark.parametrize(("level", "topic", "waits"), [
    ("group", "strict/1", True), ("group", "group/1", False), ("async", "strict/1", True), ("strict", "any", True),
])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_waits_for_the_disk_of_another_worker_if_its_level_is_strict(faults: Faults, level: str, topic: str, waits: bool, qos: int) -> None:
    """No sync succeeds. With `durability strict` each batch is synced, as with one process."""
    broker = Workers(2, f"{STORE}durability {level}\n{TOPICS}")
    broker.env |= faults.env
    with broker:
        client = publisher(broker)
        faults.set(sync_errno=EIO)
        client.send(Publish(topic, b"m", qos, 7))
        if qos == 2:                # its own worker stores nothing of it: the session of the client is clean
            assert isinstance(client.read_packet(), Pubrec)
            client.send(Pubrel(7))
        if waits:
            assert is_silent(client)
            faults.heal()
        assert isinstance(client.read_packet(), Puback if qos == 1 else Pubcomp)


@pytest.mark.parametrize(("level", "topic", "waits"), [
    ("group", "any", True), ("async", "group/1", True), ("group", "async/1", False), ("group", "none/1", False), ("async", "any", False),
])
def test_a_message_waits_for_a_write_of_another_worker_from_the_level_group_on(faults: Faults, level: str, topic: str, waits: bool) -> None:
    broker = Workers(2, f"{STORE}durability {level}\n{TOPICS}")
    broker.env |= faults.env
    with broker:
        client = publisher(broker)
        faults.set(stalled=1)
        client.send(Publish(topic, b"m", 1, 7))
        if waits:
            assert is_silent(client)
            faults.heal()
        assert isinstance(client.read_packet(), Puback)


def test_a_long_delivery_at_another_worker_is_synced_if_the_level_is_strict(faults: Faults) -> None:
    """60 subscribers are more than a turn of the other worker allows: it makes a job of them."""
    broker = Workers(2, f"{STORE}{TOPICS}turn_budget 1000\n")
    broker.env |= faults.env
    with broker:
        name = broker.id_on(2)
        held = 0
        while held < 60:
            broker.named += 1
            client = broker.connect(f"many{broker.named}", clean=False, props=SESSION)
            if broker.holder(client) == 2:
                client.send(Subscribe(1, (("#", 1),)))
                assert isinstance(client.read_packet(), Suback)
                held += 1
            client.close()
        client = broker.connect(broker.id_on(1))
        faults.set(sync_errno=EIO)
        client.send(Publish("group/1", name.encode(), 1, 7))
        assert isinstance(client.read_packet(), Puback)
        client.send(Publish("strict/1", name.encode(), 1, 8))
        assert is_silent(client)
        faults.heal()
        assert isinstance(client.read_packet(), Puback)
