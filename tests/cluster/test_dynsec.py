"""Test dynamic security over two nodes with a real Redis: one document, changes from both nodes, and faults of nodes and Redis."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal

import pytest

from mosq.auth.dynsec.outcome import AWAY, DAMAGED, ERRORS
from mosq.cluster import scripts
from tests.cluster.servers import Redis
from tests.cluster.test_serving import WORKERS, Node
from tests.cluster.test_two_nodes import Linked, run_status
from tests.cluster.test_two_nodes import linked as linked
from tests.dynsec.admin import LET_IN, PASSWORD, REFUSED_5, TOPIC, Object, state
from tests.dynsec.test_broker import KICKED, client
from tests.harness.packets import Connack, Connect, Disconnect, Pingreq, Pingresp, Publish, Subscribe, decode
from tests.harness.proxy import Proxy
from tests.harness.wire import Wire
from tests.workers.case import until

pytestmark = pytest.mark.part("dynsec")

RULES = "dynamic_security {dir}/dynsec.json\nauth_backoff false\n"
KEY = "mosq:{mosq}:dynsec"
ACL = "topic readwrite #\n"
LEASE_OVER = "the lease of this node is over"


class Boss:
    """An administrator at one node. It ignores responses to others, which it may read, too."""

    def __init__(self, node: Node, client_id: str, password: str = PASSWORD) -> None:
        self.name = client_id
        self.wire = at(node, client_id, "admin", password)
        self.wire.send(Subscribe(1, (("$CONTROL/dynamic-security/#", 0),)))
        assert self.wire.read_packet().codes == (0,)

    def send(self, *commands: Object) -> None:
        self.wire.send(Publish(TOPIC, json.dumps({"commands": [{**one, "correlationData": self.name} for one in commands]}).encode()))

    def hear(self) -> list[Object]:
        while True:
            responses: list[Object] = json.loads(self.wire.read_packet().payload)["responses"]
            if responses[0].pop("correlationData") == self.name:
                return [{name: value for name, value in one.items() if name != "correlationData"} for one in responses]

    def ask(self, *commands: Object) -> list[Object]:
        self.send(*commands)
        return self.hear()

    def does(self, command: str, **more: object) -> None:
        assert self.ask({"command": command, **more}) == [{"command": command}]


def tried(node: Node, client_id: str, user: str, password: str) -> tuple[Wire | None, int]:
    """Return a connection and the answer to its CONNECT; -1: there is none, because no worker serves the client now."""
    try:
        wire = Wire(node.port, 5, host=node.host)
        node.opened.append(wire)
        wire.send(Connect(client_id, username=user, password=password.encode()))
        raw = wire.read_frame()
    except OSError:
        return None, -1
    if raw is None:
        return None, -1
    answer = decode(5, raw)
    assert isinstance(answer, Connack), answer
    return wire, answer.rc


def at(node: Node, client_id: str, user: str, password: str) -> Wire:
    """Connect a client, again while workers start."""
    found: list[Wire] = []

    def accepted() -> bool:
        wire, rc = tried(node, client_id, user, password)
        if wire is not None and rc == LET_IN:
            found.append(wire)
        return rc == LET_IN

    until(accepted, node.log)
    return found[0]


def two(linked: Linked, *contents: Object | None, config: str = "", at_second: str = "") -> tuple[Node, Node]:
    """Start two nodes with dynamic security, each with one worker, and with files that have these contents. `at_second`: the address
    of Redis for the second node."""
    nodes = linked.node("a", RULES + config), linked.node("b", RULES + config)
    if at_second:
        nodes[1].config.write_text(nodes[1].config.read_text().replace(linked.address, at_second))
    for node in nodes:
        (node.dir / "acl").write_text(ACL)
    for node, content in zip(nodes, contents, strict=False):
        if content is not None:
            (node.dir / "dynsec.json").write_text(json.dumps(content))
            (node.dir / "dynsec.json").chmod(0o666)
    nodes[0].spawn()
    until(lambda: len(linked.tokens()) == WORKERS, nodes[0].log)
    nodes[1].spawn()
    until(lambda: all(len(node.pids()) == 1 for node in nodes), lambda: nodes[0].log() + nodes[1].log())
    return nodes


def ids_here(linked: Linked, node: Node, prefix: str) -> str:
    """Return a client id of the worker of a node."""
    [worker] = node.pids()
    return linked.ids(prefix)[worker - 1]


def version(linked: Linked) -> int:
    return int(linked.redis.client.hget(KEY, "stamp").partition(".")[0])


def test_a_client_made_at_one_node_logs_in_at_the_other_and_a_deleted_one_is_disconnected(linked: Linked) -> None:
    first, second = two(linked, state(clients=[client("ann")]), state(clients=[client("eve")]))
    assert "the first document of the cluster was made from the file" in first.log()
    assert second.log().count("dynsec.json differs from version 1 of the document in Redis.") == 1
    boss = Boss(first, ids_here(linked, first, "boss"))
    boss.does("createClient", username="bob", password="p")
    ann, bob = (at(second, ids_here(linked, second, name), name, word) for name, word in (("ann", "ann"), ("bob", "p")))
    assert tried(second, ids_here(linked, second, "eve"), "eve", "eve")[1] == REFUSED_5
    boss.does("deleteClient", username="bob")
    packet = bob.read_packet()
    assert isinstance(packet, Disconnect) and packet.rc == KICKED
    assert tried(second, ids_here(linked, second, "bob"), "bob", "p")[1] == REFUSED_5
    boss.does("modifyClient", username="ann", textname="Ann")       # changes no right, so the other node disconnects no client
    other = Boss(second, ids_here(linked, second, "other"))
    [listed] = other.ask({"command": "getClient", "username": "ann"})       # a node that is asked has the newest document
    assert listed["data"]["client"]["textname"] == "Ann"
    ann.send(Pingreq())
    assert isinstance(ann.read_packet(), Pingresp)
    assert second.process is not None
    second.process.send_signal(signal.SIGHUP)       # a reload does not bring the rules of the file, or those of its begin
    until(lambda: "Reloading config." in second.log(), second.log)
    boss.does("createClient", username="cat", password="p")
    at(second, ids_here(linked, second, "cat"), "cat", "p")
    assert tried(second, ids_here(linked, second, "eve"), "eve", "eve")[1] == REFUSED_5
    assert version(linked) == 5
    until(lambda: [node["dynsec_version"] for node in run_status(linked)["nodes"]] == ["5", "5"])


def test_a_change_holds_at_a_node_whose_reload_lasts(linked: Linked) -> None:
    first, second = two(linked, state(clients=[client("ann")]), config="acl_file {dir}/acl\n")
    ann, boss = at(second, ids_here(linked, second, "ann"), "ann", "ann"), Boss(first, ids_here(linked, first, "boss"))
    pids, rules = second.pids(), second.dir / "acl"
    rules.unlink()
    os.mkfifo(rules, 0o666)
    assert second.process is not None
    second.process.send_signal(signal.SIGHUP)
    writer: list[int] = []

    def opened() -> bool:               # as soon as the worker reads
        with contextlib.suppress(OSError):
            writer.append(os.open(rules, os.O_WRONLY | os.O_NONBLOCK))
        return bool(writer)

    until(opened, second.log)
    boss.does("deleteClient", username="ann")
    packet = ann.read_packet()          # a worker that is killed sends none
    assert isinstance(packet, Disconnect) and packet.rc == KICKED
    until(lambda: [node["dynsec_version"] for node in run_status(linked)["nodes"]] == ["2", "2"])
    os.write(writer[0], ACL.encode())
    os.close(writer[0])
    assert tried(second, ids_here(linked, second, "ann"), "ann", "ann")[1] == REFUSED_5
    assert second.pids() == pids and "reloaded" not in second.log()


def test_commands_of_both_nodes_at_one_time_all_take_effect(linked: Linked) -> None:
    nodes = two(linked, state())
    bosses = [Boss(node, ids_here(linked, node, "boss")) for node in nodes]
    for turn in range(10):
        for boss in bosses:         # both change the same version, or one of them finds that of the other
            boss.send({"command": "createClient", "username": f"u{turn}-{bosses.index(boss)}", "password": "p"})
        assert [boss.hear() for boss in bosses] == [[{"command": "createClient"}]] * 2
    names = {"admin", *(f"u{turn}-{place}" for turn in range(10) for place in (0, 1))}
    for boss in bosses:
        [listed] = boss.ask({"command": "listClients"})
        assert set(listed["data"]["clients"]) == names
    assert version(linked) == 21


def test_a_change_outlives_its_node_that_is_killed_before_the_response(linked: Linked) -> None:
    first = linked.node("a", RULES)
    (first.dir / "dynsec.json").write_text(json.dumps(state()))
    (first.dir / "dynsec.json").chmod(0o666)
    first.spawn()
    first.wait_serves()
    at(first, linked.ids("link")[0], "admin", PASSWORD).close()      # the workers have their links
    os.kill(first.pids()[2], signal.SIGSTOP)        # the response waits for this worker, which accepts no connection either
    boss = at(first, linked.ids("boss")[0], "admin", PASSWORD)
    boss.send(Publish(TOPIC, json.dumps({"commands": [{"command": "createClient", "username": "bob", "password": "p"}]}).encode()))
    until(lambda: version(linked) == 2, first.log)
    first.die()
    second = linked.node("b", RULES)
    second.spawn()
    at(second, "bob", "bob", "p")
    assert "Generated passwords" not in second.log()


def test_without_redis_logins_go_on_and_changes_are_refused() -> None:
    with Redis() as redis:
        linked = Linked(redis, lease_s=8.0)         # long enough for all that follows
        try:
            node = linked.node("a", RULES)
            (node.dir / "dynsec.json").write_text(json.dumps(state(clients=[client("ann")])))
            (node.dir / "dynsec.json").chmod(0o666)
            node.spawn()
            node.wait_serves()
            boss = Boss(node, linked.ids("boss")[0])
            redis.kill()
            command = {"command": "createClient", "username": "bob", "password": "p"}
            assert boss.ask(command, {"command": "listClients"}) == [
                {"command": "createClient", "error": ERRORS[AWAY]},
                {"command": "listClients", "data": {"totalCount": 3, "clients": ["admin", "ann", "bob"]}}]
            assert boss.ask({"command": "listClients"})[0]["data"]["clients"] == ["admin", "ann"]
            assert tried(node, linked.ids("ann")[1], "ann", "ann")[1] == LET_IN
            assert tried(node, linked.ids("bob")[1], "bob", "p")[1] == REFUSED_5
            assert "Error: A change of dynamic security was not confirmed: Redis at " in node.log()
        finally:
            linked.close()


def test_a_damaged_document_is_refused_and_the_rules_stay(linked: Linked) -> None:
    nodes = two(linked, state(clients=[client("ann")]))
    bosses = [Boss(node, ids_here(linked, node, "boss")) for node in nodes]
    good = linked.redis.client.hget(KEY, "text")
    for fields in ({"text": good[:100], "stamp": "2.ab"}, {"text": good, "stamp": "x"}):
        linked.redis.client.hset(KEY, mapping=fields)
        for node, boss in zip(nodes, bosses, strict=True):
            assert boss.ask({"command": "deleteClient", "username": "ann"}) == [{"command": "deleteClient", "error": ERRORS[DAMAGED]}]
            at(node, ids_here(linked, node, "ann"), "ann", "ann")
            assert "Error: the document of dynamic security in Redis is damaged" in node.log()
    linked.redis.client.delete(KEY)
    assert bosses[0].ask({"command": "deleteClient", "username": "ann"}) == [{"command": "deleteClient", "error": ERRORS[DAMAGED]}]
    until(lambda: all("the key was deleted" in node.log() for node in nodes))
    third = linked.node("c", RULES)
    third.spawn()
    until(lambda: "Redis has no document of dynamic security any more" in third.log() and not third.alive(), third.log)
    repaired = json.loads(good)
    repaired["clients"] = [one for one in repaired["clients"] if one["username"] == "admin"]
    linked.redis.client.hset(KEY, mapping={"text": json.dumps(repaired), "stamp": "3.repaired"})
    for node in nodes:
        until(lambda node=node: tried(node, ids_here(linked, node, "ann"), "ann", "ann")[1] == REFUSED_5, node.log)
    bosses[1].does("createClient", username="bob", password="p")


def test_nodes_that_start_together_make_one_document(linked: Linked) -> None:
    nodes = [linked.node(name, RULES) for name in "ab"]
    for node in nodes:
        node.spawn()
    until(lambda: all(len(node.pids()) == 1 for node in nodes), lambda: nodes[0].log() + nodes[1].log())
    [passwords] = [node.dir / "dynsec.json.pw" for node in nodes if (node.dir / "dynsec.json.pw").exists()]
    password = passwords.read_text().split()[1]
    for node in nodes:
        Boss(node, ids_here(linked, node, "boss"), password)
        assert not (node.dir / "dynsec.json").exists()
    assert version(linked) == 1


def test_a_node_that_lost_its_lease_serves_with_the_newest_document(linked: Linked) -> None:
    """Its agent gets the document later than a worker, which has the one of before and ends with the lease that is over."""
    with Proxy(linked.redis.port) as proxy:
        first, second = two(linked, state(clients=[client("ann")]), at_second=f"redis://127.0.0.1:{proxy.port}")

        def logs() -> str:
            return first.log() + second.log()

        agent = second.agent()
        os.kill(agent, signal.SIGSTOP)
        until(lambda: len(first.pids()) == WORKERS and not second.pids(), logs)
        Boss(first, linked.ids("boss")[0]).does("deleteClient", username="ann")
        proxy.hold(b"EVALSHA\r\n$40\r\n" + hashlib.sha1(scripts.READ.encode()).hexdigest().encode())      # its reading of the document
        ended = second.log().count(LEASE_OVER)
        os.kill(agent, signal.SIGCONT)
        until(lambda: second.log().count(LEASE_OVER) > ended, logs)
        proxy.hold(b"")
        until(lambda: len(second.pids()) == 1, logs)
        for node in (first, second):
            rcs: list[int] = []
            until(lambda node=node, rcs=rcs: rcs.append(tried(node, ids_here(linked, node, "ann"), "ann", "ann")[1]) or rcs[-1] != -1, node.log)
            assert LET_IN not in rcs
