"""Test the connections for questions between nodes (mosq/cluster/questions/asker.py): their bounds, and answers that come late."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mosq.cluster.questions import asker as module
from mosq.cluster.questions.asker import HEAD, UNREAD_S, Asker
from tests.workers.case import until

LISTED = {"value": [{"trace": 1, "kind": "topic", "what": "a", "clientid": "r"}]}


class Scene:
    """The asker of worker 1 of three, whose connections are served by a thread of the test."""

    def __init__(self) -> None:
        self.asker, self.poll = Asker(0, 3), select.epoll()
        self.asker.watch(self.poll, lambda: None)
        self.peers: list[tuple[int, bool]] = []
        self.asker.serve(lambda name, args: {"kick": False, "trace_list": LISTED["value"] * self.rows}[name], lambda *peer: self.peers.append(peer))
        self.rows = 1000                # of the answer to trace_list
        self.later_s = 0.0              # how far the time of the turns is ahead
        self.ended: list[int | None] = []
        self.calls: list[Any] = []
        self.over = False
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.others: list[socket.socket] = []

    def run(self) -> None:
        while not self.over:
            while self.calls:
                self.calls.pop()()
            for fd, events in self.poll.poll(0.005):
                self.ended.append(self.asker.event(fd, events))
            self.asker.turn(time.monotonic() + self.later_s)

    def connect(self, slot: int, own: bool) -> socket.socket:
        """Return the other end of a connection with a worker."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.settimeout(20)
        self.others.append(theirs)
        done = threading.Event()
        self.calls.append(lambda: (self.asker.open(slot, ours, own), done.set()))
        if not self.thread.is_alive():
            self.thread.start()
        assert done.wait(20)
        return theirs

    def ask(self, places: list[int]) -> tuple[threading.Thread, dict[int, Any]]:
        """Ask in a thread, which fills the answers."""
        found: dict[int, Any] = {}
        thread = threading.Thread(target=lambda: found.update(self.asker.ask(places, "trace_list")), daemon=True)
        thread.start()
        return thread, found

    def close(self) -> None:
        self.over = True
        self.thread.join(20)
        for one in self.others:
            one.close()


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    try:
        yield made
    finally:
        made.close()


def question(sock: socket.socket) -> int:
    """Read a question; return its number."""
    length, number = HEAD.unpack(exactly(sock, HEAD.size))
    exactly(sock, length)
    return int(number)


def exactly(sock: socket.socket, n: int) -> bytes:
    data = b""
    while len(data) < n:
        part = sock.recv(n - len(data))
        assert part, "the connection has ended"
        data += part
    return data


def answer(number: int, value: Any = LISTED) -> bytes:
    content = json.dumps(value).encode()
    return HEAD.pack(len(content), number) + content


def test_workers_are_asked_at_the_same_time_and_may_answer_in_pieces(scene: Scene) -> None:
    first, second = scene.connect(1, own=True), scene.connect(2, own=True)
    thread, found = scene.ask([1, 2])
    numbers = question(first), question(second)
    second.sendall(answer(numbers[1]))
    for byte in answer(numbers[0]):
        first.sendall(bytes([byte]))
    thread.join(20)
    assert found == {1: LISTED["value"], 2: LISTED["value"]}
    assert scene.peers == [(1, True), (2, True)] and scene.asker.away() == []


def test_a_late_answer_is_not_kept_and_lets_its_worker_be_asked_again(scene: Scene) -> None:
    sock = scene.connect(1, own=True)
    thread, found = scene.ask([1])
    late = answer(question(sock))
    sock.sendall(late[:30])
    thread.join(20)
    assert found == {} and scene.asker.away() == [1, 2]
    until(lambda: scene.asker._held == 0)
    assert scene.asker.ask([1], "trace_list") == {}         # it is not asked
    sock.sendall(late[30:])
    until(lambda: scene.asker.away() == [2])
    thread, found = scene.ask([1])
    sock.sendall(answer(question(sock)))
    thread.join(20)
    assert found == {1: LISTED["value"]} and scene.asker._held == 0


def test_an_answer_to_another_question_or_for_another_worker_is_not_kept(scene: Scene) -> None:
    first, second = scene.connect(1, own=True), scene.connect(2, own=True)
    thread, found = scene.ask([1, 2])
    numbers = question(first), question(second)
    first.sendall(answer(numbers[1], {"value": []}) + answer(0, {"value": []}) + answer(2**64 - 1, {"value": []}) + answer(numbers[0]))
    second.sendall(answer(numbers[1]))
    thread.join(20)
    assert found == {1: LISTED["value"], 2: LISTED["value"]}


def test_answers_beyond_the_bound_of_all_count_as_none(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = scene.connect(1, own=True), scene.connect(2, own=True)
    monkeypatch.setattr(module, "HELD_BYTES", len(answer(1)) + 10)
    thread, found = scene.ask([1, 2])
    first.sendall(answer(question(first)))
    until(lambda: scene.asker._held > 0)
    second.sendall(answer(question(second)))
    thread.join(20)
    assert found == {1: LISTED["value"]} and scene.asker._held == 0


def test_the_end_of_a_connection_is_no_answer_and_delays_none(scene: Scene) -> None:
    sock = scene.connect(1, own=True)
    thread, found = scene.ask([1])
    question(sock)
    sock.close()
    thread.join(20)
    assert found == {} and scene.asker.away() == [1, 2]
    assert 1 in scene.ended


def test_a_worker_that_does_not_read_is_not_asked(scene: Scene) -> None:
    scene.connect(1, own=True)
    sent = 0
    while scene.asker.notify(1, "trace_news", 1, 0, [b"{}"] * 10_000, (0, 0, 0)):
        sent += 1
    assert 0 < sent < 1000


def test_one_question_at_a_time_is_answered_and_an_unread_answer_ends_its_connection(scene: Scene) -> None:
    sock = scene.connect(1, own=False)
    content = json.dumps(["trace_list", []]).encode()
    sock.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            sock.send(HEAD.pack(len(content), 5) + content)
    until(lambda: any(line.out for line in scene.asker._lines.values()))
    assert scene.asker._work.qsize() == 0
    scene.later_s = UNREAD_S + 1
    until(lambda: scene.peers == [(1, False)])
    assert not scene.asker._lines


def test_an_answer_that_is_read_slowly_keeps_its_connection(scene: Scene) -> None:
    scene.rows = 40_000
    sock = scene.connect(1, own=False)
    content = json.dumps(["trace_list", []]).encode()
    sock.sendall(HEAD.pack(len(content), 5) + content)
    [line] = scene.asker._lines.values()
    until(lambda: line.out)
    for _ in range(4):
        scene.later_s += 0.7 * UNREAD_S
        left = len(line.out)
        assert left
        while len(line.out) == left:
            assert sock.recv(1 << 16)
    assert scene.peers == [] and list(scene.asker._lines.values()) == [line]


def test_a_new_connection_takes_the_place_of_the_one_before(scene: Scene) -> None:
    before, sock = scene.connect(1, own=False), scene.connect(1, own=False)
    assert before.recv(1) == b""
    assert scene.peers == [(1, False)]
    content = json.dumps(["kick", ["a"]]).encode()
    sock.sendall(HEAD.pack(len(content), 7) + content)
    length, number = HEAD.unpack(exactly(sock, HEAD.size))
    assert (number, exactly(sock, length)) == (7, b'{"value":false}')
