"""Test `mosq cluster leave` and `join` with two nodes that serve: where the workers go, and what clients and connections of the node get."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from mosq.cli.commands import main
from mosq.server.node.parent import what_remains
from mosq.server.node.slot import NodeSlot
from mosq.server.node.worker import topics_of
from tests.cluster.test_serving import WORKERS, Node
from tests.cluster.test_two_nodes import Linked, shared_out
from tests.cluster.test_two_nodes import linked as linked
from tests.harness.broker import free_port
from tests.harness.effort import TIMEOUT_S
from tests.harness.packets import Connect, Disconnect, Publish, Suback, Subscribe, Will
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.workers.case import accepted, until

pytestmark = pytest.mark.part("redis")

REFERENCE = "other.example:1883 third.example:1883"
USE_ANOTHER_SERVER = 0x9C


@pytest.fixture
def run(linked: Linked, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Provide run("leave", "b"), which returns the exit status, the output and the errors."""

    def run_command(name: str, *more: str) -> tuple[int, str, str]:
        status = main(["cluster", name, f"redis://127.0.0.1:{linked.redis.port}", *more, "--secret-file", str(linked.nodes[0].dir / "secret")])
        return status, *capsys.readouterr()

    return run_command


def own_id(linked: Linked, node: Node, prefix: str) -> str:
    """Return a client id of the worker that a node has."""
    [worker] = node.pids()
    return linked.ids(prefix)[worker - 1]


def connect(node: Node, client_id: str, level: int, **how: object) -> Wire:
    client = Wire(node.port, level, host=node.host)
    node.opened.append(client)
    client.send(Connect(client_id, clean=False, **how))
    accepted(client)
    return client


def refuses(node: Node) -> bool:
    try:
        Wire(node.port, 4, host=node.host).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_node_that_is_sent_away_gives_its_worker_and_clients_to_the_other(linked: Linked, run: Callable[..., tuple[int, str, str]]) -> None:
    first, second = linked.node("a"), linked.node("b", f"cluster_reference {REFERENCE}\n")
    first.spawn()
    until(lambda: len(linked.tokens()) == WORKERS, first.log)
    second.spawn()
    until(lambda: len(first.pids()) == len(second.pids()) == 1, lambda: first.log() + second.log())
    names = [own_id(linked, second, prefix) for prefix in ("new", "small", "old")]
    second.pinned(names[2]).close()         # the worker serves
    new = connect(second, names[0], 5, props=((P.SESSION_EXPIRY, 1000),))
    new.send(Subscribe(1, (("t", 1),)))
    assert isinstance(new.read_packet(), Suback)
    small, old = connect(second, names[1], 5, props=((P.MAXIMUM_PACKET_SIZE, 35),)), connect(second, names[2], 4)

    assert run("leave", "b") == (0, "The node b has no worker.\n", "")
    assert new.read_packet() == Disconnect(USE_ANOTHER_SERVER, ((P.SERVER_REFERENCE, REFERENCE),))
    assert small.read_packet() == Disconnect(USE_ANOTHER_SERVER)        # the reference does not fit into what the client accepts
    assert old.read_frame() is None
    until(lambda: len(first.pids()) == WORKERS, first.log)
    first.pinned(names[0])
    assert first.present
    until(lambda: refuses(second), second.log)
    status, out, _ = run("status", "--json")
    assert status == 0
    assert [(one["name"], one["away"], one["workers"]) for one in json.loads(out)["nodes"]] == [("a", False, [1, 2]), ("b", True, [])]
    assert "away" in run("status")[1].splitlines()[3]
    status, _, err = run("leave", "a")
    assert status == 3
    assert "No other living node can take the workers of a." in err

    assert run("join", "b") == (0, "The node b may have workers.\n", "")
    until(lambda: len(second.pids()) == 1, second.log)
    second.pinned(own_id(linked, second, "back"))
    assert not refuses(second)
    assert "This node was sent away" in second.log()
    assert "This node may have workers again." in second.log()


@pytest.mark.parametrize("how", ["leave", "the parent is killed"])
def test_a_will_with_a_delay_waits_over_a_move(linked: Linked, run: Callable[..., tuple[int, str, str]], how: str) -> None:
    """Test that the wills of clients that come back in time are not sent, although their worker has stopped [v5 3.1.3.2.2, 3.1.3-9]."""
    first, second = linked.node("a"), linked.node("b")
    first.spawn()
    until(lambda: len(linked.tokens()) == WORKERS, first.log)
    second.spawn()
    until(lambda: len(first.pids()) == len(second.pids()) == 1, lambda: first.log() + second.log())
    watcher_id, marker_id = own_id(linked, first, "watcher"), own_id(linked, first, "marker")
    names = [own_id(linked, second, prefix) for prefix in ("away", "here")]
    watcher = connect(first, watcher_id, 5, props=((P.SESSION_EXPIRY, 1000),))
    watcher.send(Subscribe(1, (("will/+", 1),)))
    assert isinstance(watcher.read_packet(), Suback)
    second.pinned(own_id(linked, second, "probe")).close()      # the worker serves
    for name in names:
        will = Will(f"will/{name}", b"gone", 1, props=((P.WILL_DELAY, 600),))
        client = connect(second, name, 5, props=((P.SESSION_EXPIRY, 1000),), will=will)
        if name == names[0]:
            client.close()
            second.wait_log(f"Client {name} [")
    if how == "leave":
        assert run("leave", "b")[0] == 0
    else:
        second.send_signal(signal.SIGKILL)
    until(lambda: len(first.pids()) == WORKERS, first.log)
    for name in names:
        first.pinned(name)
        assert first.present
    first.pinned(marker_id).send(Publish("will/marker", b"now", 1, 1))
    got = watcher.read_packet()
    assert isinstance(got, Publish) and got.topic == "will/marker"


def test_clients_that_another_node_relays_get_the_reason_when_their_worker_moves(linked: Linked, run: Callable[..., tuple[int, str, str]]) -> None:
    first, second = linked.node("a"), linked.node("b", f"cluster_reference {REFERENCE}\n")
    first.spawn()
    until(lambda: len(linked.tokens()) == WORKERS, first.log)
    second.spawn()
    until(lambda: len(first.pids()) == len(second.pids()) == 1, lambda: first.log() + second.log())
    names = [own_id(linked, second, f"far{n}") for n in range(20)]
    second.pinned(own_id(linked, second, "serves")).close()
    clients = [connect(first, name, 5) for name in names]
    for client in clients:
        client.send(Subscribe(1, (("t", 0),)))
        assert isinstance(client.read_packet(), Suback)
    sender = connect(first, own_id(linked, first, "sender"), 5)
    for n in range(200):                # the moment of the move finds messages in both directions
        sender.send(Publish("t", b"x" * 1000))
    for client in clients:
        client.send(*[Publish("other", b"y" * 1000)] * 50)
    assert run("leave", "b", "--within", "0")[0] == 0
    for client in clients:
        assert disconnected(client) == Disconnect(USE_ANOTHER_SERVER, ((P.SERVER_REFERENCE, REFERENCE),))


def disconnected(client: Wire) -> object:
    """Return the packet behind all messages."""
    while isinstance(got := client.read_packet(), Publish):
        pass
    return got


def test_a_node_that_is_started_again_is_not_away_any_more(linked: Linked, run: Callable[..., tuple[int, str, str]]) -> None:
    first, second = shared_out(linked)
    assert run("leave", "b")[0] == 0
    second.send_signal(signal.SIGTERM)
    assert second.process.wait(TIMEOUT_S) == 0      # type: ignore[union-attr]
    assert linked.redis.client.hgetall("mosq:{mosq}:away") == {}
    second.spawn()
    until(lambda: len(first.pids()) == len(second.pids()) == 1, lambda: first.log() + second.log())


def test_a_node_that_is_unknown_or_silent_is_not_sent_away(linked: Linked, run: Callable[..., tuple[int, str, str]]) -> None:
    _, second = shared_out(linked)
    status, _, err = run("leave", "z")
    assert status == 3 and "The cluster has no node z." in err
    assert run("join", "z")[0] == 3
    second.die()
    status, _, err = run("leave", "b")
    assert status == 3 and "The node b gives no sign of life" in err
    assert linked.redis.client.hgetall("mosq:{mosq}:away") == {}


def test_a_node_that_could_not_leave_names_the_workers_that_remain() -> None:
    slots = [NodeSlot(place) for place in range(4)]
    assert what_remains(slots) == "No worker runs here. After the lease, other nodes may start the workers that it had."
    slots[2].pid = 7
    assert what_remains(slots) == "Worker 3 did not move, and ends now. After the lease, other nodes may start it."
    slots[0].pid = 8
    assert what_remains(slots) == "Workers 1, 3 did not move, and end now. After the lease, other nodes may start them."


def test_each_worker_publishes_the_state_of_the_cluster(linked: Linked) -> None:
    first, second = shared_out(linked)
    expected = {"name": "mosq", "nodes/count": "2", "nodes/a/state": "lives", "nodes/b/state": "lives", "workers/count": "2", "workers/here": "1",
                "workers/elsewhere": "1", "links/up": "2", "links/down": "0", **{f"workers/{number}/node": name for name, node in
                                                                                 (("a", first), ("b", second)) for number in node.pids()}}
    for node in (first, second):
        client = node.pinned(own_id(linked, node, "sys"))       # and stays, so the second node has one client more
        client.send(Subscribe(1, (("$SYS/broker/cluster/#", 0),)))
        shown = Shown(client)
        clients = str([first, second].index(node) + 1)
        shown.wait_for({**expected, "node": node.name, "workers/1/lag": "0", "workers/2/lag": "0", "clients/connected": clients,
                        "clients/total": clients, "subscriptions/count": clients, **{f"workers/{number}/clients": "1" for number in node.pids()}})
        assert 0 < float(shown.topics["lease/left"]) <= linked.facts.terms.lease_s


def test_a_client_at_another_node_is_found_and_disconnected(linked: Linked, run: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("topic readwrite $CONTROL/mosq/#\n")
    first, second = shared_out(linked, f"enable_control_api true\nacl_file {tmp_path}/acl\n")
    [number] = second.pids()
    client_id = own_id(linked, second, "x")
    client = connect(first, client_id, 5)
    status, out, _ = run("where", client_id)
    beside = re.fullmatch(rf"{client_id}: worker {number}, node b\. A client with the id (ctl-\d+) is at the same worker\.\n", out)
    assert status == 0 and beside, out
    assert main(["ctl", "-h", first.host, "-p", str(first.port), "-i", beside[1], "broker", "kickClient", client_id]) == 0
    assert isinstance(client.read_packet(), Disconnect)


@pytest.fixture
def watched(linked: Linked) -> Watched:
    """Provide two nodes with an HTTP listener each."""
    return Watched(linked)


class Watched:
    """Two nodes with an HTTP listener each; `shower` has worker 1, which answers."""

    def __init__(self, linked: Linked) -> None:
        self.web = free_port()
        config = f"listener {self.web} {{host}}\nprotocol http_api\nhttp_metrics true\nlog_format json\n"
        first, second = (linked.node(name, config.replace("{host}", f"127.0.1.{number}")) for number, name in ((1, "a"), (2, "b")))
        first.spawn()
        until(lambda: len(linked.tokens()) == WORKERS, first.log)
        second.spawn()
        until(lambda: len(first.pids()) == len(second.pids()) == 1, lambda: first.log() + second.log())
        self.owner = {number: node.name for node in (first, second) for number in node.pids()}
        self.shower, self.other = (first, second) if 1 in first.pids() else (second, first)

    def get(self, path: str, node: Node | None = None) -> str:
        """Return a page. Raises OSError, also for an answer with another status than 200."""
        with urllib.request.urlopen(f"http://{(node or self.shower).host}:{self.web}{path}", timeout=TIMEOUT_S) as answer:
            return answer.read().decode()

    def metrics(self) -> dict[str, float]:
        try:
            lines = self.get("/metrics").splitlines()
        except OSError:
            return {}
        return sorted_labels({name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))})

    def wait_metrics(self, expected: dict[str, float]) -> None:
        until(lambda: expected.items() <= self.metrics().items(), lambda: str({k: v for k, v in self.metrics().items() if "cluster" in k}))

    def refuses(self, node: Node) -> bool:
        try:
            self.get("/metrics", node)
        except urllib.error.URLError as error:
            return isinstance(error.reason, ConnectionRefusedError)
        except OSError:                 # the connection was accepted before
            pass
        return False


def test_metrics_and_lines_of_the_log_show_the_cluster(linked: Linked, watched: Watched) -> None:
    watched.wait_metrics({'mosq_cluster_node_up{node="a"}': 1, 'mosq_cluster_node_up{node="b"}': 1, "mosq_cluster_links_up": 2,
                          "mosq_cluster_links_down": 0, "mosq_cluster_clients_connected": 0, "mosq_cluster_sessions": 0, "mosq_cluster_subscriptions": 0,
                          'mosq_cluster_commit_lag_seconds{worker="1"}': 0,
                          'mosq_cluster_commit_lag_seconds{worker="2"}': 0,
                          **{f'mosq_cluster_worker_up{{node="{name}",worker="{number}"}}': 1 for number, name in watched.owner.items()}})
    found = watched.metrics()
    assert 0 < found["mosq_cluster_lease_seconds"] <= linked.facts.terms.lease_s
    assert [name for name in found if name.startswith("mosq_worker_up")] == ['mosq_worker_up{worker="1"}']      # the other one is not here
    lines = [json.loads(line) for line in watched.shower.log().splitlines() if line.startswith("{")]
    assert {line["node"] for line in lines} == {watched.shower.name}


def test_pages_answer_while_the_other_node_is_stopped_and_dead(linked: Linked, watched: Watched) -> None:
    assert watched.refuses(watched.other)           # it does not have worker 1
    watched.other.send_signal(signal.SIGSTOP)
    for pid in watched.other.children():
        os.kill(pid, signal.SIGSTOP)
    pages = ("/metrics", "/health", "/api/v1/systree", "/api/v1/listeners", "/ready")
    for page in pages:
        assert watched.get(page)
    watched.other.die()
    for page in pages:
        assert watched.get(page)
    watched.wait_metrics({f'mosq_cluster_node_up{{node="{watched.other.name}"}}': 0,
                          f'mosq_cluster_worker_up{{node="{watched.shower.name}",worker="2"}}': 1})


def test_pages_refuse_when_redis_is_away_for_longer_than_the_lease(linked: Linked, watched: Watched) -> None:
    linked.redis.kill()
    until(lambda: watched.refuses(watched.shower), watched.shower.log)
    linked.redis.start()
    until(lambda: watched.metrics(), watched.shower.log)


def sorted_labels(metrics: dict[str, float]) -> dict[str, float]:
    """Return metrics with their labels in the order of the alphabet."""
    return {name.partition("{")[0] + ("{" + ",".join(sorted(name.partition("{")[2].removesuffix("}").split(","))) + "}" if "{" in name else ""): value
            for name, value in metrics.items()}


class Shown:
    """The topics below $SYS/broker/cluster/ that a client has got."""

    def __init__(self, client: Wire) -> None:
        self.client, self.topics = client, {}

    def now(self) -> dict[str, str]:
        got = self.client.read_packet()
        if isinstance(got, Publish):
            self.topics[got.topic.removeprefix("$SYS/broker/cluster/")] = got.payload.decode()
        return self.topics

    def wait_for(self, expected: dict[str, str]) -> None:
        until(lambda: expected.items() <= self.now().items(), lambda: str(self.topics))


def test_a_worker_without_a_node_and_a_silent_node_are_shown() -> None:
    topics = topics_of({"cluster": "c", "node": "a", "nodes": {"a": "lives", "b": "silent"}, "workers": ["a", None], "links_up": 0, "links_down": 1,
                        "down": [[1, 2]], "lag_ms": {"1": 250}, "lease_s": 3.14,
                        "counts": {"clients": 4, "sessions": 6, "subscriptions": 9}, "clients": {"1": 4}})
    assert topics == {"name": "c", "node": "a", "nodes/count": "1", "nodes/a/state": "lives", "nodes/b/state": "silent", "workers/count": "2",
                      "workers/here": "1", "workers/elsewhere": "0", "workers/1/node": "a", "workers/2/node": "-", "workers/1/lag": "0.25",
                      "lease/left": "3.1", "links/up": "0", "links/down": "1", "workers/1/clients": "4", "clients/connected": "4",
                      "clients/total": "6", "subscriptions/count": "9"}
