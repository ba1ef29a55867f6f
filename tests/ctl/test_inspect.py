"""Test `$CONTROL/mosq/broker/v1` as docs/control.md describes it: clients, subscriptions, kicks, drops, bridges."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

import mosq
from mosq.server.admin import bridges, inspect
from mosq.log_types import DEBUG, INFORMATION
from mosq.server.admin.control import Requester
from mosq.tools.ctl import show
from mosq.version import VERSION
from tests.harness.control import asked
from tests.harness.packets import Connack, Connect, Disconnect, Puback, Publish, Suback, Subscribe, Will
from tests.harness.plane import Plane
from tests.harness.properties import P
from tests.harness.wire import Wire

TOPIC, ANSWER = "$CONTROL/mosq/broker/v1", "$CONTROL/mosq/broker/v1/response"


class Scene:
    """Run a broker and a client that sends requests."""

    def __init__(self, stack: ExitStack, **options: Any) -> None:
        self.broker = stack.enter_context(mosq.Broker(enable_control_api=True, **options))
        self.stack = stack
        self.admin = self.client("admin")

    def client(self, name: str, level: int = 5, **more: Any) -> Wire:
        wire = Wire(self.broker.port, level)
        self.stack.callback(wire.close)
        wire.send(Connect(name, **more))
        assert isinstance(wire.read_packet(), Connack)
        return wire

    def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        """Send a request; return the response."""
        self.admin.send(Publish(TOPIC, json.dumps({"commands": [{"command": command, **fields}]}).encode(), 1, 7))
        self.admin.expect_packet(Puback(7))
        got = self.admin.read_packet()
        assert isinstance(got, Publish)
        assert (got.topic, got.qos, got.retain) == (ANSWER, 0, False)
        [response] = json.loads(got.payload)["responses"]
        assert response["command"] == command
        return response  # type: ignore[no-any-return]

    def data(self, command: str, **fields: Any) -> dict[str, Any]:
        return self.ask(command, **fields)["data"]  # type: ignore[no-any-return]


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(stack)


def subscribe(wire: Wire, *filters: tuple[str, int], props: Any = ()) -> None:
    wire.send(Subscribe(1, filters, props=props))
    assert isinstance(wire.read_packet(), Suback)


def test_a_client(scene: Scene) -> None:
    wire = scene.client("one", username="ann", password=b"x", keepalive=33, will=Will("w", b""))
    subscribe(wire, ("a", 1), ("b", 0))
    told = scene.data("getClient", clientid="one")["client"]
    assert told == {
        "clientid": "one", "username": "ann", "connected": True, "address": "127.0.0.1", "port": wire.sock.getsockname()[1],
        "listener": scene.broker.port, "protocol": "mqtt", "tls": False, "version": "5.0", "keepalive": 33, "window": told["window"],
        "unsentBytes": 0, "sessionExpiry": 0, "will": True, "subscriptions": 2, "queued": 0, "inflight": 0, "pending": 0, "inbox": 0,
        "queueBytes": 0}  # fmt: skip
    assert told["window"] >= 1


def test_queued_messages_are_counted(scene: Scene) -> None:
    wire = scene.client("slow", clean=False, props=((P.SESSION_EXPIRY, 100), (P.RECEIVE_MAXIMUM, 2)))
    subscribe(wire, ("t", 1))
    for n in range(5):
        scene.admin.send(Publish("t", b"12345", 1, 20 + n))
        assert isinstance(scene.admin.read_packet(), Puback)
    told = scene.data("getClient", clientid="slow")["client"]
    assert (told["inflight"], told["queued"], told["pending"], told["window"]) == (2, 3, 5, 2)
    assert told["queueBytes"] > 0
    wire.close()
    while scene.data("getClient", clientid="slow")["client"]["connected"]:
        pass
    told = scene.data("getClient", clientid="slow")["client"]
    assert told.keys() == {"clientid", "username", "connected", "endsIn", "sessionExpiry", "will", "subscriptions", "queued", "inflight", "pending",
                           "inbox", "queueBytes"}
    assert (told["pending"], told["inflight"], told["sessionExpiry"]) == (5, 0, 100)
    assert 90 <= told["endsIn"] <= 100


@pytest.mark.parametrize("level", [3, 4])
def test_a_client_of_mqtt_3(scene: Scene, level: int) -> None:
    scene.client("old", level=level, clean=False)
    told = scene.data("getClient", clientid="old")["client"]
    assert (told["version"], told["sessionExpiry"]) == ({3: "3.1", 4: "3.1.1"}[level], None)


def test_clients_are_listed_in_pages(scene: Scene) -> None:
    names = {f"c{n}" for n in range(250)}
    for name in names:
        scene.client(name, username=name[:2], password=b"")
    seen: list[str] = []
    cursor, pages = 0, 0
    while True:
        data = scene.data("listClients", count=50, cursor=cursor)
        seen += [one["clientid"] for one in data["clients"]]
        cursor, pages = data["cursor"], pages + 1
        if cursor == 0:
            break
        assert len(data["clients"]) >= 50
    assert sorted(seen) == sorted({*names, "admin"})
    assert pages >= 4
    assert {one["clientid"] for one in scene.data("listClients", count=1000, prefix="c24")["clients"]} == {"c24", *(f"c24{n}" for n in range(10))}
    assert len(scene.data("listClients", count=1000, username="c9")["clients"]) == 11


def test_only_those_that_are_connected_or_not(scene: Scene) -> None:
    wire = scene.client("gone", level=4, clean=False)
    wire.close()
    while scene.data("getClient", clientid="gone")["client"]["connected"]:
        pass
    assert [one["clientid"] for one in scene.data("listClients", connected=True)["clients"]] == ["admin"]
    assert [one["clientid"] for one in scene.data("listClients", connected=False)["clients"]] == ["gone"]


def test_subscriptions(scene: Scene) -> None:
    wire = scene.client("one")
    subscribe(wire, ("a/+", 1), ("$share/g/b/#", 2), props=((P.SUBSCRIPTION_ID, 7),))
    subscribe(wire, ("c", 0x0C))
    data = scene.data("listSubscriptions", clientid="one")
    assert (data["clientid"], data["totalCount"], data["more"]) == ("one", 3, 0)
    assert sorted(data["subscriptions"], key=lambda one: str(one["topic"])) == [
        {"topic": "$share/g/b/#", "qos": 2, "identifier": 7}, {"topic": "a/+", "qos": 1, "identifier": 7},
        {"topic": "c", "qos": 0, "noLocal": True, "retainAsPublished": True}]  # fmt: skip


def test_subscriptions_are_listed_in_pages(scene: Scene) -> None:
    wire = scene.client("many")
    subscribe(wire, *((f"t/{n}", 0) for n in range(2500)))
    seen: set[str] = set()
    for offset, more in ((0, 1500), (1000, 500), (2000, 0), (2500, 0), (100_000, 0)):
        data = scene.data("listSubscriptions", clientid="many", offset=offset)
        assert (data["totalCount"], data["more"]) == (2500, more)
        seen |= {one["topic"] for one in data["subscriptions"]}
    assert seen == {f"t/{n}" for n in range(2500)}


def test_a_kick(scene: Scene) -> None:
    wire = scene.client("one", will=Will("gone", b"w"))
    watch = scene.client("watch")
    subscribe(watch, ("gone", 0))
    assert scene.ask("kickClient", clientid="one") == {"command": "kickClient"}
    wire.expect_packet(Disconnect(0x98))
    wire.expect_closed()
    watch.expect_packet(Publish("gone", b"w"))
    assert scene.ask("kickClient", clientid="one") == {"command": "kickClient", "error": "Client not connected"}


def test_tables_name_the_workers_that_have_not_answered() -> None:
    away = {"workersAway": [2, 3]}
    for lines in (show.sessions({"clients": [], "cursor": 0, **away}), show.bridges({"bridges": [], **away}),
                  show.links({"links": [], **away}), show.stats({"version": "1", **away})):
        assert [line.split(":")[0] for line in lines][-2:] == ["Worker 2 has not answered", "Worker 3 has not answered"]


def test_stats_show_the_reasons_of_drops() -> None:
    with ExitStack() as stack:
        scene = Scene(stack, max_queued_messages=1, max_inflight_messages=1)
        wire = scene.client("slow", clean=False)
        subscribe(wire, ("t", 1))
        for n in range(5):
            scene.admin.send(Publish("t", b"12345", 1, 20 + n))
            assert isinstance(scene.admin.read_packet(), Puback)
        data = scene.data("getStats")
        assert data["drops"]["queue_messages"] == 3
        assert data["clients"]["clients_connected"] == 2
        assert data.keys() == {"version", "process", "clients", "messages", "queues", "subscriptions", "drops", "refused", "disk"}
        assert data["disk"]["state"] == "ok"
        assert data["version"] == VERSION
        assert 0 <= data["process"]["uptime"] < 1e9
        assert data["process"]["cpuSeconds"] > 0
        assert data["process"]["residentBytes"] > 1 << 20
        assert data["refused"].keys() >= {"max_connections", "access"}
        assert data["queues"]["store_messages"] >= 2


def test_reads_are_debug_lines_and_kicks_are_not() -> None:
    lines: list[tuple[int, str]] = []
    engine = SimpleNamespace(kick=lambda client_id: True)
    handler = inspect.commands(lambda: engine, None, lambda kind, line: lines.append((kind, line)))  # type: ignore[arg-type, return-value]
    payload = b'{"commands":[{"command":"LISTbridges"},{"command":"kickClient","clientid":"x"}]}'
    list(handler(Requester("me", None, "", 0), payload))
    assert lines == [(DEBUG, "Broker: me/(null) | listBridges"), (INFORMATION, "Broker: me/(null) | kickClient")]


def test_each_reason_of_drops_has_its_last_drop_as_an_example() -> None:
    with ExitStack() as stack:
        scene = Scene(stack, max_queued_messages=1, max_inflight_messages=1, message_size_limit=100)
        assert scene.data("listDrops") == {"drops": []}
        wire = scene.client("s" * 300, clean=False)
        subscribe(wire, ("t/#", 1))
        begun_s = int(time.time())
        for n in range(5):
            scene.admin.send(Publish("t/" + "é" * 700, b"12345", 1, 20 + n))
            assert isinstance(scene.admin.read_packet(), Puback)
        big = scene.client("big")
        big.send(Publish("far/too/large", b"x" * 101, 1, 3))
        assert isinstance(big.read_packet(), Puback)
        full, large = scene.data("listDrops")["drops"]
        assert begun_s - 1 <= full.pop("lastTime") <= time.time() + 1
        listener = f"127.0.0.1:{scene.broker.ports[0]}"
        assert full == {"reason": "queue_messages", "count": 3, "listeners": {listener: 3}, "clientid": "s" * 256, "clientidCut": True, "topic": "t/" + "é" * 511,
                        "topicCut": True}  # fmt: skip
        assert begun_s - 1 <= large.pop("lastTime") <= time.time() + 1
        assert large == {"reason": "payload_size", "count": 1, "listeners": {listener: 1}, "clientid": "big", "topic": "far/too/large"}


@pytest.mark.parametrize(("command", "fields", "error"), [
    ("getClient", {}, "Invalid/missing clientid"), ("getClient", {"clientid": 3}, "Invalid/missing clientid"),
    ("getClient", {"clientid": ""}, "Invalid/missing clientid"), ("getClient", {"clientid": "x" * 65_536}, "Invalid/missing clientid"),
    ("getClient", {"clientid": "nobody"}, "Client not found"), ("listSubscriptions", {"clientid": "nobody"}, "Client not found"),
    ("kickClient", {"clientid": "nobody"}, "Client not connected"),
    ("listSubscriptions", {"clientid": "admin", "offset": -1}, "Invalid offset: expected 0 to 100000"),
    ("listSubscriptions", {"clientid": "admin", "offset": 100_001}, "Invalid offset: expected 0 to 100000"),
    ("listClients", {"count": 0}, "Invalid count: expected 1 to 1000"), ("listClients", {"count": "1"}, "Invalid count"),
    ("listClients", {"count": True}, "Invalid count"), ("listClients", {"count": 1.5}, "Invalid count"),
    ("listClients", {"count": 1e400}, "Invalid count"),
    ("listClients", {"cursor": 1 << 32}, f"Invalid cursor: expected 0 to {0xFFFFFFFF}"),
    ("listClients", {"connected": 1}, "Invalid connected"), ("listClients", {"prefix": 1}, "Invalid/missing prefix"),
])
def test_errors_are_returned(scene: Scene, command: str, fields: dict[str, Any], error: str) -> None:
    text = json.dumps({"commands": [{"command": command, **fields}]}).replace("Infinity", "1e400")
    scene.admin.send(Publish(TOPIC, text.encode(), 1, 7))
    scene.admin.expect_packet(Puback(7))
    got = scene.admin.read_packet()
    assert isinstance(got, Publish)
    assert json.loads(got.payload) == {"responses": [{"command": command, "error": error}]}


def test_the_response_goes_to_its_client_only(scene: Scene) -> None:
    other = scene.client("other")
    subscribe(other, ("$CONTROL/#", 0), (ANSWER, 0))
    assert scene.data("listBridges") == {"bridges": []}
    other.expect_nothing()


def test_list_bridges_returns_their_states() -> None:
    told = [{"name": "b", "state": "connected"}]
    handler = inspect.commands(lambda: None, lambda: told, lambda kind, text: None)  # type: ignore[arg-type, return-value]
    [(topic, answer)] = asked(handler, Requester("c", None, "", 0), b'{"commands":[{"command":"listBridges"}]}')
    assert (topic, json.loads(answer)["responses"][0]["data"]) == (ANSWER, {"bridges": told})


def test_connections_of_the_embedding_program_are_not_listed(scene: Scene) -> None:
    with scene.broker.subscribe("t"):
        assert [one["clientid"] for one in scene.data("listClients")["clients"]] == ["admin"]


RULES = "user ann\ntopic write $CONTROL/mosq/broker/v1\nuser ben\ntopic readwrite #\ntopic readwrite $CONTROL/broker/#\n"


def test_requests_need_an_acl_rule(tmp_path: Any) -> None:
    (tmp_path / "acl").write_text(RULES)
    with mosq.Broker(allow_anonymous=True, enable_control_api=True, acl_file=str(tmp_path / "acl")) as broker:
        for user, rc in (("ann", 0), ("ben", 0x87), (None, 0x87)):
            wire = Wire(broker.port, 5)
            wire.send(Connect("c", username=user, password=b"" if user else None))
            wire.read_packet()
            wire.send(Publish(TOPIC, b"{}", 1, 7))
            wire.expect_packet(Puback(7, rc))
            if rc == 0:
                assert isinstance(wire.read_packet(), Publish)
            wire.close()


# ---------------------------------------------------------------- the engine

def test_sessions_are_read_in_slices() -> None:
    with Plane(allow_anonymous=True) as plane:
        for n in range(30):
            plane.user(f"c{n}")
        rows, cursor = plane.engine.sessions(0, 5)
        assert 5 <= len(rows) < 20
        assert cursor
        seen = [row["id"] for row in rows]
        while cursor:
            rows, cursor = plane.engine.sessions(cursor, 5)
            seen += [row["id"] for row in rows]
        assert sorted(seen) == sorted(f"c{n}" for n in range(30))
        with pytest.raises(ValueError, match="cannot skip"):
            plane.engine.session("c1", 100_001)
        assert plane.engine.session("nobody") is None
    with pytest.raises(RuntimeError):
        plane.engine.sessions()


def test_long_names_end_a_slice_early() -> None:
    """One answer with 1000 of them was 65 MB, and took 800 MB in the control plane."""
    names = {f"{n}{'x' * 60_000}" for n in range(60)}
    with Plane(allow_anonymous=True) as plane:
        for name in names:
            user = plane.user(name)
        filters = [f"{n}/{'y' * 60_000}" for n in range(40)]
        for n in range(0, 40, 10):
            user.send(Subscribe(n + 1, tuple((one, 0) for one in filters[n:n + 10])))
            assert isinstance(user.read_packet(), Suback)
        seen, cursor, most = [], 0, 0
        while True:
            rows, cursor = plane.engine.sessions(cursor, 1000)
            most = max(most, len(rows))
            seen += [row["id"] for row in rows]
            if cursor == 0:
                break
        assert set(seen) == names
        assert most <= 30
        first = plane.engine.session(name)
        n = len(first.subscriptions)
        rest = plane.engine.session(name, n)
        assert (n <= 18, first.left_out, n + len(rest.subscriptions) + rest.left_out) == (True, 40 - n, 40)
        assert {one.filter for one in first.subscriptions}.isdisjoint(one.filter for one in rest.subscriptions)


def test_a_page_of_long_names_ends_early(scene: Scene) -> None:
    names = {f"{n}{'x' * 60_000}" for n in range(40)}
    for name in names:
        scene.client(name)
    seen, cursor, pages = [], 0, 0
    while True:
        data = scene.data("listClients", count=1000, cursor=cursor)
        seen += [one["clientid"] for one in data["clients"]]
        assert sum(map(len, seen)) <= (pages + 1) * (3 << 20)
        cursor, pages = data["cursor"], pages + 1
        if cursor == 0:
            break
    assert sorted(seen) == sorted({*names, "admin"})
    assert pages >= 2


def test_states_of_bridges() -> None:
    """Test the states of bridges as mosq/server/bridge has them."""
    def link(name: str, state: str, due_s: float = float("inf"), up_s: float | None = None) -> SimpleNamespace:
        return SimpleNamespace(name=name, state=state, host="::1", port=1883, due_s=due_s, up_s=up_s)

    links = SimpleNamespace(policies={"a": link("a", "up", up_s=60.0), "b": link("b", "pause", 105.4), "c": link("c", "opening")},
                            now_s=lambda: 100.0, engine=SimpleNamespace(bridges=lambda: [{"name": "b", "pending": 7}]))
    assert bridges.states(links) == [
        {"name": "a", "state": "connected", "address": "[::1]:1883", "connectedFor": 40, "nextTryIn": None, "queued": None},
        {"name": "b", "state": "waiting", "address": "[::1]:1883", "connectedFor": None, "nextTryIn": 5, "queued": 7},
        {"name": "c", "state": "connecting", "address": "[::1]:1883", "connectedFor": None, "nextTryIn": None, "queued": None}]  # fmt: skip
