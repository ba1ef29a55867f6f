"""Test two nodes that serve clients at the same time, with a real Redis: messages between their workers, and the death of one of them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mosq.cluster.questions.asker import ANSWER_S
from tests.cluster.servers import Redis
from tests.cluster.test_questions import Asking
from tests.cluster.test_serving import WORKERS, Cluster, Node, publish, receive
from tests.harness.effort import TIMEOUT_S
from tests.harness.packets import Suback, Subscribe
from tests.harness.broker import command, free_port
from tests.harness.wire import Wire
from tests.workers.case import until

pytestmark = pytest.mark.part("redis")

SECRET = b"s" * 32


class Linked(Cluster):
    """A cluster whose nodes have addresses of their own, and the same ports."""

    def __init__(self, redis: Redis, **options: float) -> None:
        super().__init__(redis, SECRET, **options)      # type: ignore[arg-type]
        self.port, self.wires_port = free_port(), free_port()

    def node(self, name: str, config: str = "") -> Node:
        host = f"127.0.1.{len(self.nodes) + 1}"
        listeners = f"listener {self.port} {host}\nallow_anonymous true\ncluster_listener {self.wires_port} {host}\n"
        node = super().node(name, f"{listeners}cluster_secret_file {{dir}}/secret\n{config}")
        node.port, node.host = self.port, host
        (node.dir / "secret").write_bytes(SECRET)
        (node.dir / "secret").chmod(0o600)
        return node


@pytest.fixture
def linked() -> Iterator[Linked]:
    with Redis() as redis:
        running = Linked(redis)
        try:
            yield running
        finally:
            running.close()


def shared_out(linked: Linked, config: str = "") -> tuple[Node, Node]:
    """Start two nodes, and return them when each of them has one worker that serves clients."""
    first, second = linked.node("a", config), linked.node("b", config)
    first.spawn()
    until(lambda: len(linked.tokens()) == WORKERS, first.log)
    second.spawn()
    until(lambda: len(first.pids()) == len(second.pids()) == 1, lambda: first.log() + second.log())
    return first, second


def subscribed(node: Node, client_id: str, topic: str, qos: int) -> Wire:
    client = node.pinned(client_id)
    client.send(Subscribe(1, ((topic, qos),)))
    answer = client.read_packet()
    assert isinstance(answer, Suback) and answer.codes[0] == qos, answer
    return client


def test_messages_between_nodes_and_the_death_of_one(linked: Linked) -> None:
    first, second = shared_out(linked)
    # each client of both workers connects to each node: half of them are relayed
    clients = {name: subscribed(node, name, "t/#", 2) for node, prefix in ((first, "f"), (second, "s")) for name in linked.ids(prefix)}
    [at_first, at_second] = (node.pinned(linked.ids("p")[place]) for place, node in ((0, first), (1, second)))
    for n in range(20):
        publish(at_first if n % 2 else at_second, n, 1 + n % 2)
    for client in clients.values():
        got = receive(client, 20)
        for parity in (0, 1):
            assert [one for one in got if one[0] % 2 == parity] == [(n, 1 + n % 2) for n in range(parity, 20, 2)]
        client.close()
    publish(at_first, 20, 2)
    second.die()
    until(lambda: len(first.pids()) == WORKERS, first.log)
    publisher = first.pinned(linked.ids("q")[0])
    publish(publisher, 21, 1)
    for name in clients:
        client = first.pinned(name)
        assert first.present
        assert receive(client, 2) == [(20, 2), (21, 1)]


def test_a_worker_that_cannot_start_goes_to_the_other_node_and_status_shows_it(linked: Linked) -> None:
    first, second = linked.node("a"), linked.node("b", "acl_file {dir}/acl\n")
    (second.dir / "acl").write_text("topic readwrite #\n")
    first.spawn()
    until(lambda: len(linked.tokens()) == WORKERS, first.log)
    second.spawn()
    until(lambda: len(first.pids()) == len(second.pids()) == 1, lambda: first.log() + second.log())
    [worker] = second.pids()
    client_id = linked.ids("s")[worker - 1]
    subscribed(second, client_id, "t/#", 1).close()
    (second.dir / "acl").unlink()
    second.kill(worker)
    until(lambda: len(first.pids()) == WORKERS, lambda: first.log() + second.log())
    first.pinned(client_id)
    assert first.present
    assert f"Warning: Worker {worker} could not start on this node 4 times in a row." in second.log()
    [other] = set(range(1, WORKERS + 1)) - {worker}
    found = run_status(linked)
    assert {node["name"]: node["unable"] for node in found["nodes"]} == {"a": [], "b": [worker]}
    assert f"Worker {worker} could not start on the node b; its log has the reason." in found["trouble"]
    (second.dir / "acl").write_text("topic readwrite #\n")      # the other worker can come
    until(lambda: list(second.pids()) == [other], second.log)


def run_status(linked: Linked) -> dict[str, Any]:
    command = [sys.executable, "-m", "mosq", "cluster", "status", linked.address, "--json", "--secret-file", str(linked.nodes[0].dir / "secret")]
    return json.loads(subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S).stdout)


def test_either_node_lists_finds_and_disconnects_the_clients_of_both(linked: Linked) -> None:
    first, second = nodes = shared_out(linked, "enable_control_api true\ncontrol_loopback true\n")
    worker = {node: next(iter(node.pids())) for node in nodes}
    at = {worker[node]: node.name for node in nodes}
    names = dict(enumerate(linked.ids("listed"), 1))
    clients = {name: nodes[number % 2].pinned(name) for number, name in names.items()}      # some are relayed
    asks = {node: Asking(node.pinned(linked.ids("asks")[worker[node] - 1], clean=True)) for node in nodes}
    expected = {name: (number, at[number]) for number, name in names.items()}

    def found(node: Node) -> dict[str, tuple[int, str]]:
        rows = asks[node].ask("listClients")["data"]["clients"]
        return {one["clientid"]: (one["worker"], one.get("node")) for one in rows if one["clientid"] in clients}

    for node in nodes:
        until(lambda node=node: found(node) == expected, lambda: first.log() + second.log())       # type: ignore[misc]
        for number, name in names.items():
            assert asks[node].sure("getClient", clientid=name)["data"]["client"]["node"] == at[number]
    far = names[worker[second]]
    assert "error" not in asks[first].sure("kickClient", clientid=far)
    assert clients[far].read_frame() is None
    assert asks[first].sure("kickClient", clientid=far)["error"] == "Client not connected"

    def table() -> str:
        done = subprocess.run([*command(), "ctl", "-h", first.host, "-p", str(first.port), "-i", linked.ids("ctl")[worker[first] - 1], "broker", "listClients"],
                              capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    lines = table().splitlines()
    assert lines[0].split()[:3] == ["CLIENT", "WORKER", "NODE"]
    assert [far, str(worker[second]), "b"] in [line.split()[:3] for line in lines]
    second.kill(worker[second], signal.SIGSTOP)
    try:
        assert asks[first].ask("listClients")["data"]["workersAway"] == [worker[second]]
        begun_s = time.monotonic()
        for _ in range(5):
            assert names[worker[first]] in [one["clientid"] for one in asks[first].ask("listClients")["data"]["clients"]]
        assert time.monotonic() - begun_s < 5 * ANSWER_S        # they did not wait for it again
        assert f"Worker {worker[second]} has not answered: its clients are missing.\n" in table()
    finally:
        second.kill(worker[second], signal.SIGCONT)
    until(lambda: "workersAway" not in asks[first].ask("listClients")["data"])
