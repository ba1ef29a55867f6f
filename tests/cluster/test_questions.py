"""Test questions between workers on different machines: lists, commands and traces; workers that are stopped, older or hostile."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mosq.cluster import wires
from mosq.cluster.questions.asker import ANSWER_S, HEAD
from mosq.cluster.questions.forms import ANSWER_BYTES, QUESTION_BYTES
from mosq.server.admin.inspect import own_process
from tests.cluster.pair import SECRET, WIRES_HOST, Node, cluster, id_of
from tests.cluster.test_reach import NO_SUBSCRIBER, proved
from tests.harness.packets import Disconnect, Puback, Publish
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.workers.case import until
from tests.workers.test_links import publish, subscribe
from tests.workers.test_traces import Reader

TOPIC = "$CONTROL/mosq/broker/v1"
CONFIG = "enable_control_api true\ncontrol_loopback true\nmax_keepalive 0\nsys_interval 0\nobserve_messages 1\n"


class Asking:
    """A client that sends commands to its worker."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def ask(self, name: str, **fields: Any) -> dict[str, Any]:
        """Send a command; return the response."""
        self.send(name, **fields)
        return self.response()

    def send(self, name: str, **fields: Any) -> None:
        self.wire.send(Publish(TOPIC, json.dumps({"commands": [{"command": name, **fields}]}).encode(), 1, 7))

    def response(self) -> dict[str, Any]:
        while not isinstance(got := self.wire.read_packet(), Publish):
            pass
        [response] = json.loads(got.payload)["responses"]
        return response  # type: ignore[no-any-return]

    def clients(self, **fields: Any) -> tuple[dict[str, int], set[int]]:
        """Return the connected clients of all pages with their workers, and the workers that were away."""
        found, away, cursor = {}, set(), 0
        while True:
            page = self.ask("listClients", cursor=cursor, state="connected", **fields)["data"]
            found |= {one["clientid"]: one["worker"] for one in page["clients"]}
            away.update(page.get("workersAway", ()))
            cursor = page["cursor"]
            if cursor == 0:
                return found, away

    def sure(self, name: str, **fields: Any) -> dict[str, Any]:
        """Send a command until all workers have answered: one may be late on a busy machine."""
        return until(lambda: found if "no answer" not in (found := self.ask(name, **fields)).get("error", "") else None)

    def until_all(self) -> dict[str, int]:
        """Return the clients, when all workers answer."""
        return until(lambda: found if not (found := self.clients())[1] else None)[0]


def asking(node: Node) -> Asking:
    return Asking(node.connect(id_of(node.slot, node.n, "asks")))


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Node]]:
    with cluster(2, CONFIG) as running:
        yield running


def test_the_age_of_a_node_without_worker_1_is_not_that_of_the_machine(nodes: list[Node]) -> None:
    for node in nodes:
        uptime = asking(node).ask("getStats")["data"]["process"]["uptime"]
        assert uptime <= own_process()["uptime"] + 1        # the nodes are younger than the process of this test


def test_each_worker_lists_finds_and_disconnects_the_clients_of_all(nodes: list[Node]) -> None:
    for node in nodes:
        names = {one.slot: [id_of(one.slot, 2, f"listed{node.slot}.{i}.") for i in range(5)] for one in nodes}
        clients = {name: one.connect(name) for one in nodes for name in names[one.slot]}
        asks = asking(node)
        expected = {name: slot + 1 for slot in names for name in names[slot]}

        def listed(asks: Asking = asks, clients: dict[str, Wire] = clients) -> dict[str, int]:
            return {name: worker for name, worker in asks.clients(count=3)[0].items() if name in clients}

        until(lambda listed=listed, expected=expected: listed() == expected)       # type: ignore[misc]
        far = names[1 - node.slot][0]
        one = asks.sure("getClient", clientid=far)["data"]["client"]
        assert (one["clientid"], one["worker"], one["connected"]) == (far, 2 - node.slot, True)
        subscribe(clients[far], "a/b", qos=1)
        assert asks.sure("listSubscriptions", clientid=far)["data"]["subscriptions"] == [{"topic": "a/b", "qos": 1}]
        assert asks.sure("getClient", clientid="nobody")["error"] == "Client not found"
        assert "error" not in asks.sure("kickClient", clientid=far)
        assert isinstance(clients[far].read_packet(), Disconnect)
        assert asks.sure("kickClient", clientid=far)["error"] == "Client not connected"
        assert {(one["from"], one["to"]) for one in asks.ask("listLinks")["data"]["links"]} == {(1, 2), (2, 1)}
        asks.wire.close()


def test_a_long_client_id_is_found(nodes: list[Node]) -> None:
    name = id_of(1, 2, "x" * 60_000)
    nodes[1].connect(name)
    asks = asking(nodes[0])
    asks.until_all()
    assert asks.sure("getClient", clientid=name)["data"]["client"]["worker"] == 2


def test_hot_topics_and_queues_of_all_workers_are_shown(nodes: list[Node]) -> None:
    name = id_of(1, 2, "queues")
    queues = nodes[1].connect(name, clean=False, props=((P.SESSION_EXPIRY, 600),))
    subscribe(queues, "hot/far", qos=1)
    queues.send(Disconnect())
    sender = nodes[1].connect(id_of(1, 2, "sends"))
    asks = asking(nodes[0])
    asks.until_all()
    until(lambda: not asks.ask("getClient", clientid=name)["data"]["client"]["connected"])
    publish(sender, "hot/far", b"1", 1, 1)
    found = until(lambda: found if (found := asks.ask("hot")["data"])["queued"] else None)
    assert "hot/far" in [one["topic"] for one in found["topics"]]
    assert asks.ask("listBridges")["data"] == {"bridges": []}


@pytest.mark.parametrize("at", [0, 1])
def test_a_trace_has_the_events_of_all_workers_and_ends_at_all(nodes: list[Node], at: int) -> None:
    asking(nodes[at]).until_all()
    reads = Reader(nodes[at].connect(id_of(at, 2, "reads")))
    reads.trace(topic="traced/#")
    for node in nodes:
        sender = node.connect(id_of(node.slot, 2, "sends"))
        sender.send(Publish(f"traced/{node.slot}", b"1", 1, 1))
        sender.expect_packet(Puback(1, NO_SUBSCRIBER))
    found: list[dict[str, Any]] = []
    while {(one["worker"], one["event"]) for one in found} < {(1, "received"), (2, "received")}:
        found += reads.batch()
    assert {one["worker"]: one["topic"] for one in found if one["event"] == "received"} == {1: "traced/0", 2: "traced/1"}
    other = Reader(nodes[1 - at].connect(id_of(1 - at, 2, "other")))
    [row] = other.ask("listTraces")["data"]["traces"]
    assert (row["worker"], row["what"]) == (at + 1, "traced/#")
    reads.ask("stopTrace", trace=reads.number)
    until(lambda: not other.ask("listTraces")["data"]["traces"])


# ---------------------------------------------------------------- workers that are away

def test_a_stopped_worker_is_named_and_delays_one_answer_only() -> None:
    with cluster(3, CONFIG) as nodes:
        asks = asking(nodes[0])
        asks.until_all()
        nodes[1].suspend()
        found, away = asks.clients()
        assert 2 in away and found[id_of(0, 3, "asks")] == 1
        begun_s = time.monotonic()
        for _ in range(10):
            assert 2 in asks.clients()[1]
        assert time.monotonic() - begun_s < 10 * ANSWER_S       # they did not wait for it again
        nodes[1].resume()
        asks.until_all()


def test_a_worker_of_an_older_version_is_away_and_logs_nothing() -> None:
    with cluster(2, CONFIG, older=1) as nodes:
        sender, receiver = nodes[0].connect(id_of(0, 2, "pub")), nodes[1].connect(id_of(1, 2, "sub"))
        subscribe(receiver, "works", qos=1)
        publish(sender, "works", b"1", 1, 1)
        for node in nodes:
            asks = asking(node)
            assert asks.clients()[1] == {2 - node.slot}
            assert asks.ask("kickClient", clientid=id_of(1 - node.slot, 2, "pub" if node.slot else "sub"))["error"] == \
                f"Client not connected; no answer from worker {2 - node.slot}"
            assert "is refused" not in node.log() and "has refused" not in node.log()


# ---------------------------------------------------------------- a hostile worker, which has the secret

HOSTILE, TOKEN = 2, 2       # the place of a worker whose process has ended, and the token of the next one


@pytest.fixture(scope="module")
def three() -> Iterator[list[Node]]:
    """Run three workers, of which the last one ends."""
    with cluster(3, CONFIG) as nodes:
        nodes[HOSTILE].die()
        yield nodes


def hostile(node: Node) -> socket.socket:
    """Return a connection for questions of the next process of the last worker."""
    return proved(node, wires.QUESTIONS, HOSTILE, TOKEN)[0]


def message(content: bytes, number: int = 1, length: int | None = None) -> bytes:
    return HEAD.pack(len(content) if length is None else length, number) + content


def answer_on(sock: socket.socket) -> bytes:
    """Return the next answer on a connection for questions; b"": it has ended."""
    try:
        data = b""
        while len(data) < HEAD.size or len(data) < HEAD.size + HEAD.unpack(data[:HEAD.size])[0]:
            part = sock.recv(1 << 16)
            if not part:
                return b""
            data += part
        return data[HEAD.size:]
    except ConnectionResetError:
        return b""


NO_ANSWER = b'{"error":0}'
BAD = [b"", b"\0", b"null", b"[]", b"{}", b'["kick"]', b'["kick",["a"', b'["kick",[1]]', b'["clients",[]]', b'["__class__",[]]', b'["trace_end",[0,1]]',
       b"[" * 100_000, b'["kick",["\\ud800"]]', b'["sessions",[4294967296,1]]', b'["sessions",[0,1001]]', b'["sessions",[true,1]]',
       b'["hot",["everything"]]', b'["session",["a",NaN]]', b"\xff", b"\x80\x04]\x94.", b'["kick",["' + b"x" * 65536 + b'"]]']


def test_questions_of_another_form_get_no_answer(three: list[Node]) -> None:
    with hostile(three[0]) as sock:
        for content in BAD:
            sock.sendall(message(content, 9))
            assert answer_on(sock) == NO_ANSWER, content[:40]
        sock.sendall(message(b'["kick",["no such client"],"of a later version"]'))
        assert answer_on(sock) == b'{"value":false}'


FOLLOWS = {"kind": "topic", "what": "YQ==", "shown": "a", "owner": 1, "payload": 128, "rate": 10, "seconds": 60, "most": 10}


@pytest.mark.parametrize("wrong", [{"what": "YS8jL2I="}, {"rate": 2**32 - 1}, {"payload": 2**32 - 1}, {"seconds": 2**32 - 1}, {"kind": "address", "network": "YQ=="}])
def test_a_trace_that_no_worker_begins_is_an_error(three: list[Node], wrong: dict[str, object]) -> None:
    with hostile(three[0]) as sock:
        sock.sendall(message(json.dumps(["trace_begin", [HOSTILE, 1, FOLLOWS | wrong]]).encode()))
        assert json.loads(answer_on(sock)) == {"error": errno.EINVAL}
    assert "error" in asking(three[0]).ask("kickClient", clientid="nobody")


def test_traces_beyond_the_places_for_them_are_refused_and_end_with_the_connection(three: list[Node]) -> None:
    with hostile(three[0]) as sock:
        def begin() -> dict[str, object]:
            sock.sendall(message(json.dumps(["trace_begin", [HOSTILE, next(numbers), FOLLOWS]]).encode()))
            return json.loads(answer_on(sock))      # type: ignore[no-any-return]

        numbers = itertools.count(1)
        assert [begin() for _ in range(5)] == [{"value": None}] * 4 + [{"error": errno.EAGAIN}]
        sock.sendall(message(json.dumps(["trace_news", [1, HOSTILE, ["e30="], [0, 0, 0]]]).encode(), 0))        # no trace of this worker
    reads = Reader(three[0].connect(id_of(0, 3, "reads")))
    number = until(lambda: reads.ask("startTrace", topic="a").get("data"))["trace"]
    reads.ask("stopTrace", trace=number)
    until(lambda: not reads.ask("listTraces")["data"]["traces"])


def test_a_question_that_is_too_large_ends_its_connection(three: list[Node]) -> None:
    with hostile(three[0]) as sock:
        sock.sendall(message(b"", length=QUESTION_BYTES + 1))
        assert answer_on(sock) == b""


def test_a_half_question_and_unread_answers_delay_no_other_worker(three: list[Node]) -> None:
    with hostile(three[0]) as half:
        half.sendall(message(b'["ki', length=100))
        asks = asking(three[1])
        until(lambda: asks.clients()[1] == {HOSTILE + 1})
    with hostile(three[0]) as greedy:
        greedy.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:                 # its answers are not read, so the worker does not read its questions
                greedy.send(message(b'["sessions",[0,1000]]') * 1000)
        until(lambda: asks.clients()[1] == {HOSTILE + 1})
    assert three[0].alive()


class Taker:
    """The next process of the last worker, which a node asks. It answers as it likes."""

    def __init__(self, node: Node, stack: contextlib.ExitStack) -> None:
        Taker.tokens += 1
        self.own = wires.Own("one", SECRET, HOSTILE, Taker.tokens)
        listening = stack.enter_context(socket.create_server((WIRES_HOST, 0)))
        listening.settimeout(20)
        node.know({HOSTILE: (WIRES_HOST, listening.getsockname()[1], Taker.tokens)})
        self.sock: socket.socket | None = None
        while self.sock is None:
            sock = stack.enter_context(listening.accept()[0])
            sock.settimeout(20)
            side = wires.Accepting(self.own, os.urandom(wires.NONCE_BYTES), lambda _: 0)
            while side.wants:
                sock.sendall(side.take(sock.recv(side.wants)))
            if side.kind == wires.QUESTIONS:
                self.sock = sock

    tokens = TOKEN

    def question(self) -> tuple[int, Any]:
        """Return the next question and its number."""
        assert self.sock is not None
        length, number = HEAD.unpack(exactly(self.sock, HEAD.size))
        return number, json.loads(exactly(self.sock, length))

    def answer(self, message: bytes) -> None:
        assert self.sock is not None
        self.sock.sendall(message)


def exactly(sock: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        data += sock.recv(n - len(data))
    return data


ROW = {"id": "x", "username": None, "connected": False, "subscriptions": 0, "pending": 0, "waiting": 0, "inflight": 0, "inbox": 0, "queue_bytes": 0,
       "expiry_s": None, "will": False}
ANSWERS = [b"", b"\0", b"[]", b"{}", b'{"value":null}', b'{"value":[[],-1]}', b'{"error":11}', b'{"error":"a"}', b"[" * 1_000_000, b"\x80\x04]\x94.",
           json.dumps({"value": [[{**ROW, "id": 1}], 0]}).encode(), json.dumps({"value": [[{**ROW, "connected": True}], 0]}).encode(),
           b'{"value":[[' + json.dumps(ROW).encode().replace(b'"x"', b'"\\ud800"') + b"],0]}"]


def test_answers_of_another_form_count_as_none(three: list[Node]) -> None:
    with contextlib.ExitStack() as stack:
        taker = Taker(three[0], stack)
        asks = asking(three[0])
        until(lambda: "data" in asks.ask("getStats"))
        for content in ANSWERS:
            asks.send("listClients", cursor=HOSTILE << 32)
            number, question = taker.question()
            assert question[0] == "sessions"
            taker.answer(message(content, number))
            assert asks.response()["data"] == {"clients": [], "cursor": 0, "workersAway": [HOSTILE + 1]}, content[:40]
        asks.send("listClients", cursor=HOSTILE << 32)
        number, _ = taker.question()
        taker.answer(message(b"late", number + 1) + message(json.dumps({"value": [[{**ROW, "new": [1]}], 0, "new"]}).encode(), number))
        assert [one["worker"] for one in asks.response()["data"]["clients"]] == [HOSTILE + 1]


@pytest.mark.parametrize("head", [HEAD.pack(ANSWER_BYTES + 1, 1), HEAD.pack(0xFFFFFFFF, 0)])
def test_an_answer_that_is_too_large_ends_its_connection(three: list[Node], head: bytes) -> None:
    with contextlib.ExitStack() as stack:
        taker = Taker(three[0], stack)
        asks = asking(three[0])
        until(lambda: "data" in asks.ask("getStats"))
        asks.send("listClients", cursor=HOSTILE << 32)
        taker.question()
        taker.answer(head)
        assert asks.response()["data"]["workersAway"] == [HOSTILE + 1]
        assert taker.sock is not None and taker.sock.recv(1) == b""
