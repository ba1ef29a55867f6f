"""Test that several workers are one broker to the outside: control topics, `$SYS`, the HTTP API, and what they show while a worker is away."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as families

from tests.harness.broker import command, free_port
from tests.harness.packets import Connack, Connect, Disconnect, Puback, Publish, Suback, Subscribe
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.http.dashboard import USERS
from tests.http.dashboard import Scene as Dashboard
from tests.workers.case import WAIT_S, Workers, pinged, until

TOPIC = "$CONTROL/mosq/broker/v1"
HTTP = "listener {web} 127.0.0.1\nprotocol http_api\nhttp_dir {dir}\nhttp_metrics true\nhttp_dashboard true\n"
ADMIN = "listener {port} 127.0.0.1\nallow_anonymous true\nacl_file {dir}/acl\n"
ACL = "topic readwrite #\ntopic readwrite $CONTROL/#\ntopic read $SYS/#\n"


class Scene:
    """Two workers, with a client on each of them."""

    def __init__(self, config: str = "", n: int = 2, files: dict[str, str] | None = None) -> None:
        self.web = free_port()
        self.broker = Workers(n, f"enable_control_api true\nsys_interval 1\n{config}{ADMIN}{HTTP.replace('{web}', str(self.web))}", {"acl": ACL, **(files or {})})
        self.broker.start()
        self.ids = {number: self.broker.id_on(number) for number in range(1, n + 1)}
        self.clients = {number: self.broker.connect(name) for number, name in self.ids.items()}
        self.n = 10

    def ask(self, number: int, name: str, **fields: Any) -> dict[str, Any]:
        """Send a command from the client of a worker; return the response."""
        client = self.clients[number]
        self.n += 1
        client.send(Publish(TOPIC, json.dumps({"commands": [{"command": name, **fields}]}).encode(), 1, self.n))
        client.expect_packet(Puback(self.n))
        got = client.read_packet()
        assert isinstance(got, Publish), got
        [response] = json.loads(got.payload)["responses"]
        return response  # type: ignore[no-any-return]

    def data(self, number: int, name: str, **fields: Any) -> dict[str, Any]:
        return self.ask(number, name, **fields)["data"]  # type: ignore[no-any-return]

    def listed(self, number: int, **fields: Any) -> list[str]:
        """Return the client ids of all pages."""
        found: list[str] = []
        cursor = 0
        while True:
            page = self.data(number, "listClients", cursor=cursor, **fields)
            found += [one["clientid"] for one in page["clients"]]
            cursor = page["cursor"]
            if cursor == 0:
                return found

    def get(self, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.web, timeout=20)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            assert answer.status == 200, (answer.status, answer.read())
            return answer.read()
        finally:
            connection.close()

    def metrics(self) -> dict[tuple[str, ...], float]:
        text = self.get("/metrics").decode()
        return {(one.name, *one.labels.values()): one.value for family in families(text) for one in family.samples}

    def close(self) -> None:
        self.broker.close()


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    try:
        yield made
    finally:
        made.close()


def subscribed(client: Wire, topic: str, qos: int = 0) -> list[bytes]:
    """Return the messages that came before SUBACK, which waits for the other workers [v5 3.8.4]."""
    client.send(Subscribe(3, ((topic, qos),)))
    early = []
    while isinstance(answer := client.read_packet(), Publish):
        early.append(answer.payload)
    assert isinstance(answer, Suback)
    return early


def published(client: Wire, topic: str, n: int, qos: int = 1) -> None:
    for i in range(n):
        client.send(Publish(topic, b"x", qos, i + 1 if qos else None))
        if qos:
            answer = client.read_packet()
            assert isinstance(answer, Puback), answer


def test_each_worker_lists_the_clients_of_all(scene: Scene) -> None:
    more = [scene.broker.connect(f"more{i}") for i in range(20)]
    expected = sorted([*scene.ids.values(), *(f"more{i}" for i in range(20))])
    assert len({scene.broker.holder(one) for one in more}) == 2
    for number in (1, 2):
        assert sorted(one for one in scene.listed(number, state="connected", count=3) if one in expected) == expected
        for name in scene.ids.values():
            assert scene.data(number, "getClient", clientid=name)["client"]["connected"]
        workers = {one["clientid"]: one["worker"] for one in scene.data(number, "listClients")["clients"]}
        for holder, name in scene.ids.items():
            assert workers[name] == holder == scene.data(number, "getClient", clientid=name)["client"]["worker"]
    assert scene.ask(1, "getClient", clientid="nobody")["error"] == "Client not found"


def test_metrics_show_the_load_of_each_worker(scene: Scene) -> None:
    before = scene.metrics()
    subscribed(scene.clients[2], "n")
    published(scene.clients[1], "m", 20, qos=0)
    pinged(scene.clients[1])
    published(scene.clients[2], "n", 5, qos=0)
    assert [type(scene.clients[2].read_packet()) for _ in range(5)] == [Publish] * 5
    after = scene.metrics()
    for number, received, sent in (("1", 20, 0), ("2", 5, 5)):
        assert after["mosq_worker_publish_received_total", number] - before["mosq_worker_publish_received_total", number] == received
        assert after["mosq_worker_publish_sent_total", number] - before["mosq_worker_publish_sent_total", number] == sent
        assert after["mosq_worker_clients_connected", number] == 1
        assert after["mosq_worker_cpu_seconds_total", number] > before["mosq_worker_cpu_seconds_total", number] > 0


def test_a_command_reaches_the_client_of_another_worker(scene: Scene) -> None:
    subscribed(scene.clients[2], "a/b")
    found = scene.data(1, "listSubscriptions", clientid=scene.ids[2])
    assert [one["topic"] for one in found["subscriptions"]] == ["a/b"]
    assert "error" not in scene.ask(1, "kickClient", clientid=scene.ids[2])
    assert isinstance(scene.clients[2].read_packet(), Disconnect)
    assert scene.ask(1, "kickClient", clientid=scene.ids[2])["error"] == "Client not connected"


def test_statistics_are_sums(scene: Scene) -> None:
    subscribed(scene.clients[1], "sum/1")
    subscribed(scene.clients[2], "sum/2")
    before = scene.data(1, "getStats")
    published(scene.clients[1], "none/1", 3)
    published(scene.clients[2], "none/2", 4)
    after = scene.data(2, "getStats")
    assert after["clients"]["clients_connected"] == 2
    # the questions of this test are messages too, with an answer each
    assert 7 <= after["messages"]["publish_in"] - before["messages"]["publish_in"] <= 9
    assert after["subscriptions"]["subscriptions"] == before["subscriptions"]["subscriptions"] == 2
    assert after["process"]["cpuSeconds"] >= before["process"]["cpuSeconds"] > 0
    memory = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in scene.broker.pids().values()]
    resident, divided = (sum(int(one.partition(f"\n{name}:")[2].split()[0]) << 10 for one in memory) for name in ("Rss", "Pss"))
    assert divided < 0.9 * resident             # the processes share pages
    assert after["process"]["residentBytes"] == pytest.approx(divided, rel=0.05)
    assert before["process"]["uptime"] <= after["process"]["uptime"] < 100


def test_sys_is_the_same_on_each_worker(scene: Scene) -> None:
    more = [scene.broker.connect(f"more{i}") for i in range(20)]
    assert len({scene.broker.holder(one) for one in more}) == 2
    for number in (1, 2):
        seen = subscribed(scene.clients[number], "$SYS/broker/clients/connected")
        until_s = time.monotonic() + WAIT_S
        while not seen or seen[-1] != b"22":
            assert time.monotonic() < until_s, seen
            message = scene.clients[number].read_packet()
            assert isinstance(message, Publish)
            seen.append(message.payload)


def test_counters_do_not_fall_when_a_worker_is_killed() -> None:
    scene = Scene()
    try:
        for number in (1, 2):
            published(scene.clients[number], f"n/{number}", 20)
        for number in (2, 1):
            until(lambda: scene.metrics()["mosq_worker_up", "1"] == scene.metrics()["mosq_worker_up", "2"] == 1)
            before = scene.metrics()
            assert before["mosq_publish_received_total",] >= 40
            pid = scene.broker.kill(number)
            until(lambda: pid not in scene.broker.pids().values() and len(scene.broker.pids()) == 2)     # noqa: B023 - called at once
            until(lambda: scene.metrics()["mosq_worker_up", "1"] == scene.metrics()["mosq_worker_up", "2"] == 1)
            after = scene.metrics()
            fell = {name: (value, after[name]) for name, value in before.items()
                    if name[0].endswith(("_total", "_count", "_bucket", "_sum")) and after[name] < value}
            assert not fell
            assert after["mosq_clients_connected",] == 2 - (number == 2) - 2 * (number == 1)
    finally:
        scene.close()


def test_a_stopped_worker_delays_no_answer_for_long(scene: Scene) -> None:
    pid = scene.broker.kill(2, signal.SIGSTOP)
    try:
        time.sleep(2.5)
        began = time.monotonic()
        page = scene.data(1, "listClients")
        assert page["workersAway"] == [2]
        assert scene.ids[1] in [one["clientid"] for one in page["clients"]]
        assert scene.data(1, "getStats")["workersAway"] == [2]
        assert time.monotonic() - began < 1
    finally:
        scene.broker.kill(2, signal.SIGCONT)
    until(lambda: "workersAway" not in scene.data(1, "getStats"))
    assert scene.broker.pids()[2] == pid


def test_the_table_of_clients_names_a_worker_that_does_not_answer(scene: Scene) -> None:
    """Also in the first two seconds, in which it is asked: the answer comes after one second."""
    name = scene.broker.id_on(1, "ctl")

    def listed() -> str:
        done = subprocess.run([*command(), "ctl", "-p", str(scene.broker.port), "-i", name, "broker", "listClients"],
                              capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "has not answered" not in listed()
    scene.broker.kill(2, signal.SIGSTOP)
    try:
        page = scene.data(1, "listClients")
        assert page["workersAway"] == [2] and scene.ids[2] not in [one["clientid"] for one in page["clients"]]
        table = listed()
        assert scene.ids[1] in table and table.endswith("Worker 2 has not answered: its clients are missing.\n")
    finally:
        scene.broker.kill(2, signal.SIGCONT)
    until(lambda: "has not answered" not in listed())


def test_the_http_api_is_served_by_worker_1_also_after_its_restart(scene: Scene) -> None:
    systree = json.loads(scene.get("/api/v1/systree"))
    assert int(systree["$SYS/broker/clients/connected"]) == 2
    scene.broker.kill(1)
    until(lambda: 1 in scene.broker.pids())
    assert int(json.loads(scene.get("/api/v1/systree"))["$SYS/broker/clients/connected"]) == 1
    rows = json.loads(scene.get("/dashboard/api/clients"))["clients"]
    assert [one["clientid"] for one in rows] == [scene.ids[2]]


def test_links_have_figures(scene: Scene) -> None:
    subscribed(scene.clients[2], "to/2", 1)
    published(scene.clients[1], "to/2", 5)
    for _ in range(5):
        assert isinstance(scene.clients[2].read_packet(), Publish)
    rows = {(one["from"], one["to"]): one for one in scene.data(1, "listLinks")["links"]}
    assert set(rows) == {(1, 2), (2, 1)}
    link = rows[1, 2]
    assert link["connected"] and link["routes"] == 1 and link["sent"] == 5
    assert link["unacknowledged"] == link["queued"] == link["queuedBytes"] == link["dropped"] == 0
    assert 0 < link["latencySeconds"] <= link["latencySecondsMax"] < 5
    assert rows[2, 1]["routes"] == 0
    done = subprocess.run([*command(), "ctl", "-p", str(scene.broker.port), "broker", "listLinks"],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "UNACKNOWLEDGED" in done.stdout and "LATENCYMS" in done.stdout
    metrics = scene.metrics()
    assert metrics["mosq_link_messages_total", "2"] == 5
    found = {one.name: one.labels for family in families(scene.get("/metrics").decode()) for one in family.samples
             if one.name.startswith("mosq_link_") and one.labels["to"] == "2"}
    gauges = [f"mosq_link_{name}" for name in ("unacknowledged_messages", "queued_messages", "queued_bytes", "latency_seconds")]
    assert found == {**{name: {"from": "1", "to": "2"} for name in gauges}, "mosq_link_messages_total": {"to": "2"},
                     "mosq_link_dropped_messages_total": {"to": "2"}}


def test_a_message_for_a_stopped_worker_is_counted_at_its_link(scene: Scene) -> None:
    subscribed(scene.clients[2], "to/2", 1)
    scene.broker.kill(2, signal.SIGSTOP)
    try:
        for i in range(3):
            scene.clients[1].send(Publish("to/2", b"x", 1, i + 1))
        time.sleep(2.5)             # until it is known as away
        scene.clients[1].send(Publish(TOPIC, b'{"commands":[{"command":"listLinks"}]}', 0))
        answer = scene.clients[1].read_packet()
        assert isinstance(answer, Publish), answer
        [response] = json.loads(answer.payload)["responses"]
        [link] = response["data"]["links"]
        assert (link["from"], link["to"], link["unacknowledged"]) == (1, 2, 3)
    finally:
        scene.broker.kill(2, signal.SIGCONT)
    for i in range(3):
        scene.clients[1].expect_packet(Puback(i + 1))


def test_each_log_line_comes_once_on_its_topic_from_all_workers() -> None:
    scene = Scene("log_dest topic\nlog_dest stderr\n", n=3)
    try:
        for client in scene.clients.values():
            subscribed(client, "$SYS/broker/log/#")
        name = scene.broker.id_on(2, "late")
        scene.broker.wait_log(f"Client {name} [")       # its end
        assert scene.broker.stop() == 0
        for client in scene.clients.values():
            lines = Counter(lines_until_the_end(client))
            assert set(lines.values()) == {1}, lines
            assert any(f" as {name} " in line for line in lines), lines
            assert any(line.endswith(" terminating") for line in lines), lines
    finally:
        scene.close()


def lines_until_the_end(client: Wire) -> Iterator[str]:
    """Yield the log lines that a client gets until the broker closes its connection."""
    while isinstance(got := client.read_packet(), Publish):
        yield got.payload.decode()


def test_the_uptime_is_that_of_the_broker_after_a_restart_of_worker_1(scene: Scene) -> None:
    def uptimes() -> set[int]:
        return {json.loads(scene.get("/health"))["uptime"], json.loads(scene.get("/api/v1/health"))["uptime"],
                json.loads(scene.get("/api/v1/systree"))["$SYS/broker/uptime"], json.loads(scene.get("/dashboard/api/session"))["uptime"]}

    until(lambda: min(uptimes()) >= 3)
    before = scene.broker.kill(1)
    until(lambda: scene.broker.pids().get(1, before) != before)
    assert min(uptimes()) >= 3


def test_mosq_top_shows_all_workers(scene: Scene) -> None:
    done = subprocess.run([*command(), "top", "-p", str(scene.broker.port), "--json"], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    for name in scene.ids.values():
        assert name in done.stdout


def test_sighup_with_a_dashboard_serves_it_again(scene: Scene) -> None:
    scene.broker.send_signal(signal.SIGHUP)
    scene.broker.wait_log("Reloading config.")

    def served() -> bool:
        try:
            return bool(scene.get("/api/v1/version"))
        except OSError:                                 # the web server of before ended while it had the request
            return False

    until(served)
    assert scene.data(1, "getStats")["clients"]["clients_connected"] == 2


def test_the_button_of_the_dashboard_reloads_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """`retain_available` is in the CONNACK of each client, whichever worker it belongs to."""
    monkeypatch.setenv("MOSQ_BROKER", f"{sys.executable} -m mosq --workers 2")
    with Dashboard() as page:
        def connected(i: int) -> Connack:
            client = Wire(page.broker.port, 5)
            client.send(Connect(f"c{i}", username="device", password=USERS["device"].encode()))
            answer = client.read_packet()
            client.close()
            assert isinstance(answer, Connack)
            return answer

        assert not any((P.RETAIN_AVAILABLE, 0) in connected(i).props for i in range(12))
        page.broker.config.write_text("retain_available false\n" + page.broker.config.read_text())
        assert page.change("reload", {}) == (200, {})
        until(lambda: all((P.RETAIN_AVAILABLE, 0) in connected(i).props for i in range(12)), page.broker.log)
        assert page.broker.log().count("Reloading config.") == 1


def test_the_dashboard_shows_the_configuration_of_all_workers() -> None:
    bridges = [f"connection {name}\naddress 127.0.0.1:1\nlocal_clientid {name}\ntopic # out\n" for name in "abcdefgh"]
    scene = Scene(f"memory_limit 1000000000\n{''.join(bridges)}")
    try:
        rows = {(option, scope): value for option, scope, value, *_ in json.loads(scene.get("/dashboard/api/config"))["rows"]}
        assert rows["memory_limit", "the broker"] == "1000000000"
        assert sum(option == "local_clientid" for option, _ in rows) == len(bridges)
    finally:
        scene.close()
