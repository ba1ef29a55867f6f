"""Test the drops by listener: two listeners, clients that leave, a reload, a listener that is removed. The sums are always the drops of the broker."""

from __future__ import annotations

from tests.harness.broker import free_port
from tests.harness.packets import Connack, Connect, Disconnect, Puback, Publish, Suback, Subscribe
from tests.harness.plane import Plane
from tests.harness.wire import Wire

LIMITS = {"message_size_limit": 10, "max_queued_messages": 1, "max_inflight_messages": 1}
LARGE = b"x" * 11


def client(plane: Plane, name: str, place: int = 0, clean: bool = True) -> Wire:
    wire = plane.connect(Connect(name, clean), security=place)
    got = wire.read_packet()
    assert isinstance(got, Connack) and got.rc == 0
    return wire


def publish(wire: Wire, *payloads: bytes) -> None:
    wire.send(*[Publish("t", payload, 1, n + 1) for n, payload in enumerate(payloads)])
    for _ in payloads:
        assert isinstance(wire.read_packet(), Puback)


def drops(plane: Plane) -> dict[str, dict[str, int]]:
    """Return the drops above 0, after a check of their sums."""
    found, stats = plane.engine.listener_drops(), plane.stats()
    for reason in next(iter(found.values())):
        assert sum(counts[reason] for counts in found.values()) == stats[f"drops_{reason}"]
    return {label: {reason: count for reason, count in counts.items() if count} for label, counts in found.items()}


def plane_of(*, places: int = 2) -> Plane:
    return Plane(*[{} for _ in range(places)], settings=LIMITS, allow_anonymous=True)


def test_each_listener_counts_the_drops_of_its_clients() -> None:
    with plane_of() as plane:
        one, two = (f"127.0.0.1:{port}" for port in plane.ports)
        assert drops(plane) == {one: {}, two: {}, "other": {}}
        publish(client(plane, "a"), LARGE, LARGE)
        slow, sender = client(plane, "slow", 1), client(plane, "b", 1)
        slow.send(Subscribe(1, [("t", 1)]))
        assert isinstance(slow.read_packet(), Suback)
        publish(sender, LARGE, *[b"12345"] * 5)
        # the receiver's listener counts what its queue drops: one delivery is in flight, and one waits
        assert drops(plane) == {one: {"payload_size": 2}, two: {"payload_size": 1, "queue_messages": 3}, "other": {}}


def test_drops_of_an_offline_session_belong_to_no_listener() -> None:
    with plane_of() as plane:
        one, two = (f"127.0.0.1:{port}" for port in plane.ports)
        away = client(plane, "away", 0, clean=False)
        away.send(Subscribe(1, [("t", 1)]))
        assert isinstance(away.read_packet(), Suback)
        away.send(Disconnect())
        away.expect_closed()
        publish(client(plane, "b", 1), *[b"12345"] * 4)
        assert drops(plane) == {one: {}, two: {}, "other": {"queue_messages": 3}}


def test_a_reload_keeps_the_drops_of_listeners_that_stay() -> None:
    with plane_of() as plane:
        one, two = (f"127.0.0.1:{port}" for port in plane.ports)
        first, second = client(plane, "a"), client(plane, "b", 1)
        publish(first, LARGE)
        publish(second, LARGE, LARGE)
        third = free_port()
        kept = [plane.listeners[1], {**plane.listeners[0], "max_qos": 1}, {**plane.listeners[1], "port": third, "security": 0}]
        plane.engine.reload(plane.settings, kept, plane.securities)
        assert drops(plane) == {two: {"payload_size": 2}, one: {"payload_size": 1}, f"127.0.0.1:{third}": {}, "other": {}}
        publish(first, LARGE)
        publish(second, LARGE)
        assert drops(plane) == {two: {"payload_size": 3}, one: {"payload_size": 2}, f"127.0.0.1:{third}": {}, "other": {}}
        plane.engine.reload(plane.settings, kept[:1], plane.securities)
        assert drops(plane) == {two: {"payload_size": 3}, "other": {"payload_size": 2}}


def test_listeners_have_the_names_of_their_addresses(tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = str(tmp_path / "söck")
    with plane_of(places=1) as plane:
        [given] = plane.listeners
        port, name = free_port(), f"127.0.0.1:{plane.port}"
        plane.engine.reload(plane.settings, [given, {**given, "path": path, "port": 0}, {**given, "host": "", "port": port}], plane.securities)
        assert list(drops(plane)) == [name, path, str(port), "other"]
