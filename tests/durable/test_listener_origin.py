"""Test that sessions, wills and publishers of retained messages keep the rules of their listener over a restart with another configuration, with
`per_listener_settings`: listeners in another order, a new one, one that is removed, at another address or at another port."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mosq._core import record_encode
from mosq.tools.db import kinds
from mosq.tools.db.mosquitto_import import import_file
from mosq.tools.db.store import write_store
from tests.db import mosquitto_db as db
from tests.durable.test_restart import FOR_LONG, KEEP, Kept, nothing_more, publish, read_publishes, subscribe
from tests.harness.broker import free_port
from tests.harness.packets import Connack, Connect, Disconnect, Puback, Will
from tests.harness.properties import P
from tests.harness.wire import Wire

RULES = {"all": "topic readwrite #\n", "less": "topic readwrite open/#\n"}
LATER = ((P.WILL_DELAY, 1),)
# configuration after the restart, and the words that the session through `less` may still read or write
CHANGES = {
    "the same": (["less", "all"], ["open"]),
    "another order": (["all", "less"], ["open"]),
    "a new one in front": (["new", "less", "all"], ["open"]),
    "at another address": (["less 0.0.0.0", "all"], ["open"]),
    "two at its port": (["less 127.0.0.2", "less 127.0.0.3", "all"], []),
    "removed": (["all"], []),
    "at another port": (["moved", "all"], []),
    "the rules of the broker": ([], []),
}


class Listeners(Kept):
    """Run a broker with listeners `less`, whose rules allow `open/#`, and `all`, in the order of a list."""

    def __init__(self) -> None:
        super().__init__("")
        self.ports = {"less": free_port(), "all": self.port, "new": free_port(), "moved": free_port()}
        for name, rules in RULES.items():
            (self.dir / name).write_text(rules)
            (self.dir / name).chmod(0o644)
        self.configure(["less", "all"])

    def configure(self, listeners: list[str]) -> None:
        text = KEEP + "check_retain_source true\nuser root\n"
        text += "per_listener_settings true\n" if listeners else "listener {port} 127.0.0.1\nallow_anonymous true\n"
        for one in listeners:
            name, _, address = one.partition(" ")
            rules = "all" if name in ("all", "new") else "less"
            text += f"listener {self.ports[name]} {address or '127.0.0.1'}\nallow_anonymous true\nacl_file {{dir}}/{rules}\n"
        self.config.write_text(text.replace("{dir}", str(self.dir)).replace("{port}", str(self.port)))

    def through(self, listener: str, name: str, clean: bool = False, will: Will | None = None) -> Wire:
        wire = Wire(self.ports[listener], 5)
        self.opened.append(wire)
        wire.send(Connect(name, clean, will=will, props=() if clean else FOR_LONG))
        connack = wire.read_packet()
        assert isinstance(connack, Connack) and connack.rc == 0
        return wire

    def changed(self, listeners: list[str]) -> None:
        subscribe(self.through("all", "settle"), ("none", 1))       # all earlier changes are on record
        self.die()
        self.configure(listeners)
        self.start()

    def payloads(self, name: str, n: int) -> list[bytes]:
        wire = self.through("all", name)
        got = sorted(packet.payload for packet in read_publishes(wire, n))
        wire.send(*(Puback(mid) for mid in range(1, n + 1)))
        nothing_more(wire)
        return got


@pytest.fixture
def broker() -> Iterator[Listeners]:
    with Listeners() as running:
        yield running


def leave(wire: Wire) -> None:
    wire.send(Disconnect())
    wire.expect_closed()


def offline(broker: Listeners, listener: str, name: str, *filters: str) -> None:
    wire = broker.through(listener, name)
    subscribe(wire, *((f, 1) for f in filters))
    leave(wire)


def cases(*names: str) -> pytest.MarkDecorator:
    chosen = names or tuple(CHANGES)
    return pytest.mark.parametrize(("listeners", "words"), [CHANGES[name] for name in chosen], ids=chosen)


@cases()
@pytest.mark.parametrize("restarts", [1, 2])
def test_an_offline_session_reads_what_its_listener_allows(broker: Listeners, listeners: list[str], words: list[str], restarts: int) -> None:
    offline(broker, "less", "s", "+/+")
    for _ in range(restarts):
        broker.changed(listeners)
    publisher = broker.through("all", "pub", True)
    for word in ("closed", "open"):
        publish(publisher, f"{word}/1", word.encode())
    assert broker.payloads("s", len(words)) == [word.encode() for word in words]
    missing = "1 sessions came through listeners that do not exist any more" in broker.log()
    assert missing is (not words)


@cases()
@pytest.mark.parametrize("stored", [False, True])
def test_restored_wills_are_decided_by_the_listener_of_their_client(broker: Listeners, listeners: list[str], words: list[str], stored: bool) -> None:
    offline(broker, "all", "watcher", "+/w")
    for word in ("closed", "open"):
        broker.through("less", word, not stored, Will(f"{word}/w", word.encode(), 1, props=LATER if stored else ()))
    broker.changed(listeners)
    watcher = broker.through("all", "watcher")
    assert [packet.payload for packet in read_publishes(watcher, len(words))] == [word.encode() for word in words]
    if not stored:
        nothing_more(watcher)


@cases()
def test_retained_messages_are_decided_by_the_listener_of_their_publisher(broker: Listeners, listeners: list[str], words: list[str]) -> None:
    publish(broker.through("less", "one", True), "open/r", b"open", retain=True)
    publish(broker.through("all", "two", True), "closed/r", b"closed", retain=True)
    broker.changed(listeners)
    broker.changed(listeners)
    reader = broker.through("all", "reader", True)
    subscribe(reader, ("+/r", 1))
    # the listener `all` never changes; without per_listener_settings it is found by its address, too
    assert sorted(packet.payload for packet in read_publishes(reader, 1 + len(words))) == sorted([b"closed", *(word.encode() for word in words)])
    nothing_more(reader)


def test_a_listener_that_comes_back_gives_its_rules_back(broker: Listeners) -> None:
    offline(broker, "less", "s", "+/+")
    broker.changed(["all"])
    broker.changed(["all", "less"])
    publisher = broker.through("all", "pub", True)
    for word in ("closed", "open"):
        publish(publisher, f"{word}/1", word.encode())
    assert broker.payloads("s", 1) == [b"open"]


@pytest.mark.parametrize("listeners", [[], ["less", "all"]])
def test_a_session_under_the_rules_of_the_broker_keeps_them(broker: Listeners, listeners: list[str]) -> None:
    """Test a listener that is removed where all have the same rules: nothing changes for its sessions. With `per_listener_settings` the port decides."""
    broker.stop()
    broker.configure([])
    broker.config.write_text(broker.config.read_text() + f"listener {broker.ports['less']}\n")
    broker.start()
    offline(broker, "less", "s", "+/+")
    broker.changed(listeners)
    publisher = broker.through("all", "pub", True)
    for word in ("closed", "open"):
        publish(publisher, f"{word}/1", word.encode())
    wanted = [b"open"] if listeners else [b"closed", b"open"]
    assert broker.payloads("s", len(wanted)) == wanted


@pytest.mark.parametrize(("position", "words"), [(0, [b"open"]), (1, [b"closed", b"open"]), (7, [])])
def test_a_record_of_an_older_version_has_the_position_of_its_listener(position: int, words: list[bytes]) -> None:
    fields = {"sno": 1, "connected": False, "expiry_s": 3600, "ends_wall_ms": 0, "next": 0, "id": b"s", "user": None, "security": position, "mount": b""}
    sub = {"sno": 1, "filter": b"+/+", "options": 1, "sub_id": 0}
    broker = Listeners()
    write_store(str(broker.dir / "mosquitto.db.store"), [(kind, record_encode(kind, f)) for kind, f in ((kinds.SESSION, fields), (kinds.SUB, sub))],
                "test", False, str(broker.dir))
    with broker:
        publisher = broker.through("all", "pub", True)
        for word in ("closed", "open"):
            publish(publisher, f"{word}/1", word.encode())
        assert broker.payloads("s", len(words)) == words


@pytest.mark.parametrize(("listener", "words"), [("less", [b"open"]), ("all", [b"closed", b"open"]), ("moved", [])])
def test_an_imported_session_has_the_rules_of_the_port_in_the_file(listener: str, words: list[bytes]) -> None:
    broker = Listeners()
    path = broker.dir / "theirs.db"
    path.write_bytes(db.header() + db.config() + db.client(b"s", port=broker.ports[listener]) + db.subscription(b"s", b"+/+", 1)
                     + db.message(1, b"open/r", b"kept", source=b"pub", port=broker.ports[listener]) + db.retain(1))
    import_file(str(path), str(broker.dir / "mosquitto.db.store"), 1000.0)
    with broker:
        publisher = broker.through("all", "pub", True)
        for word in ("closed", "open"):
            publish(publisher, f"{word}/1", word.encode())
        assert broker.payloads("s", len(words)) == words
        reader = broker.through("all", "reader", True)
        subscribe(reader, ("open/r", 1))
        assert [packet.payload for packet in read_publishes(reader, bool(words))] == [b"kept"] * bool(words)
        nothing_more(reader)
