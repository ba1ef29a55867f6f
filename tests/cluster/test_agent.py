"""Test the threads of an agent (mosq/cluster/agent.py) with a Redis that hangs, fails or answers, and real time."""

from __future__ import annotations

import queue
import threading

import pytest

from mosq.cluster.address import parse_address
from mosq.cluster.agent import Agent
from mosq.cluster.entries import Announcement
from mosq.cluster.errors import AwayError, RefusedError
from mosq.cluster.member import Member, NameUsedError
from mosq.cluster.requests import DONE, USED, Answer, Beat, Inspect, Note, Request
from mosq.cluster.terms import Terms
from mosq.log_types import ERROR, WARNING
from mosq.server.node.agent import Identity, NodeAgent
from mosq.server.node.lease import Lease
from mosq.server.workers.channel import channel_pair
from tests.cluster.model import State, apply
from tests.harness.effort import TIMEOUT_S


class Fake:
    """A Redis in this process, and the workers of the node. Each call of the workers is an event."""

    def __init__(self) -> None:
        self.state, self.lock = State(0, "id"), threading.Lock()
        self.hangs = threading.Event()
        self.goes_on = threading.Event()
        self.error: Exception | None = None
        self.closed = threading.Event()
        self.calls: queue.SimpleQueue[tuple] = queue.SimpleQueue()
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.member = Member("a", "r", 1, Terms(0.3, 0.1), self, report=lambda _, text: self.lines.put(text))
        self.agent = Agent(self, self.member)
        self.raised: BaseException | None = None
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        try:
            self.agent.run()
        except NameUsedError as error:
            self.raised = error

    def __enter__(self) -> Fake:
        self.thread.start()
        assert self.next()[:2] == ("start", 0)
        return self

    def __exit__(self, *_: object) -> None:
        self.goes_on.set()
        self.agent.stop()
        self.thread.join(TIMEOUT_S)
        assert not self.thread.is_alive()

    def next(self) -> tuple:
        return self.calls.get(timeout=TIMEOUT_S)

    def next_until(self, *names: str) -> list[str]:
        """Return the names of calls up to the first that is one of these. A busy machine loses leases."""
        found = [self.next()[0]]
        while found[-1] not in names:
            found.append(self.next()[0])
        return found

    # ---- Redis

    def ask(self, request: Request) -> Answer:
        if self.hangs.is_set():
            self.goes_on.wait()
        if self.error is not None:
            raise self.error
        with self.lock:
            self.state, answer = apply(self.state, "s", "id", "a", "r", request)
        return answer

    def close(self) -> None:
        self.closed.set()

    # ---- workers

    def start(self, worker: int, token: int, until_s: float) -> None:
        self.token = token
        self.calls.put(("start", worker, token))

    def stop(self, worker: int) -> None:
        self.calls.put(("stop", worker))
        self.agent.ended(worker, self.token)

    def kill(self, workers: list[int]) -> None:
        for worker in workers:
            self.calls.put(("kill", worker))

    def lease(self, until_s: float) -> None:
        pass


def test_workers_are_killed_while_a_request_hangs_and_start_when_redis_answers_again() -> None:
    with Fake() as fake:
        fake.hangs.set()
        assert fake.next_until("kill")[-1] == "kill"
        fake.hangs.clear()
        fake.goes_on.set()
        assert fake.next_until("start")[-1] == "start"


@pytest.mark.parametrize("error", [AwayError("gone"), RuntimeError("a fault")], ids=["away", "fault"])
def test_workers_are_killed_when_redis_fails_and_the_log_has_the_reason(error: Exception) -> None:
    with Fake() as fake:
        fake.error = error
        while str(error) not in fake.lines.get(timeout=TIMEOUT_S):
            pass
        assert fake.next_until("kill")[-1] == "kill"
        fake.error = None
        assert fake.next_until("start")[-1] == "start"


def test_a_stop_kills_the_workers_and_closes_the_connection() -> None:
    with Fake() as fake:
        fake.agent.stop()
        fake.thread.join(TIMEOUT_S)
        assert fake.next_until("kill")[-1] == "kill"
        assert fake.member.running() == set()
        assert fake.closed.wait(TIMEOUT_S)


def test_a_node_leaves_when_its_workers_have_ended() -> None:
    with Fake() as fake:
        fake.agent.leave()
        fake.thread.join(TIMEOUT_S)
        assert fake.member.out
        assert fake.raised is None
        assert fake.state.beats == {}


def test_a_worker_that_ends_starts_again() -> None:
    with Fake() as fake:
        fake.agent.ended(0, fake.token)
        assert fake.next_until("start")[-1] == "start"


def test_a_name_that_was_taken_ends_the_agent_with_an_error() -> None:
    with Fake() as fake:
        plain = fake.ask
        fake.ask = lambda request: Answer(USED) if isinstance(request, Beat) else plain(request)  # type: ignore[method-assign]
        fake.thread.join(TIMEOUT_S)
        assert isinstance(fake.raised, NameUsedError)
        assert fake.next_until("kill")[-1] == "kill"


def test_an_agent_that_fails_has_not_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent then ends with a status after which systemd starts the node again."""
    ours, theirs = channel_pair()
    identity = Identity(parse_address("redis://127.0.0.1"), "mosq", "a", b"", Announcement())
    agent = NodeAgent(identity, theirs, Lease())

    def fail() -> None:
        raise ZeroDivisionError("a text of its own")

    monkeypatch.setattr(agent, "_open", fail)
    with pytest.raises(ZeroDivisionError):
        agent.run()
    [(message, _)] = ours.receive()
    assert message == {"is": "report", "type": ERROR, "text": "Error: the agent of this node failed: ZeroDivisionError('a text of its own')"}
    ours.close()
    theirs.close()


def test_answers_that_make_no_sense_delay_the_start_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = channel_pair()
    agent = NodeAgent(Identity(parse_address("redis://127.0.0.1"), "mosq", "a", b"", Announcement()), theirs, Lease())
    errors = [TypeError("no text"), TypeError("no text"), RefusedError("over")]

    def facts(self: object) -> None:
        raise errors.pop(0)

    monkeypatch.setattr("mosq.cluster.registry.Registry.facts", facts)
    monkeypatch.setattr(agent, "_wait", lambda _: "")
    agent.run()
    assert [message for message, _ in ours.receive()] == [
        {"is": "report", "type": WARNING,
         "text": "Warning: The client of Redis failed: TypeError('no text'). This node opens no listener until Redis answers."},
        {"is": "refused", "text": "over"}, {"is": "left"}]
    ours.close()
    theirs.close()


def test_the_settings_of_redis_are_looked_at_again_and_reported_once_for_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mosq.cluster.agent.INSPECT_S", 0.01)
    answers = ["", "evicts", "evicts", "", "evicts again"]
    seen: queue.SimpleQueue[str] = queue.SimpleQueue()
    fake = Fake()
    fake.agent = Agent(fake, fake.member, inspected=seen.put)
    plain = fake.ask

    def ask(request: Request) -> Answer:
        if not isinstance(request, Inspect):
            return plain(request)
        return Answer(DONE, warning=answers.pop(0) if len(answers) > 1 else answers[0])

    fake.ask = ask      # type: ignore[method-assign]
    with fake:
        assert [seen.get(timeout=TIMEOUT_S) for _ in range(3)] == ["evicts", "", "evicts again"]


def test_a_field_that_must_come_to_redis_is_sent_until_it_is_there() -> None:
    with Fake() as fake:
        plain, notes = fake.ask, queue.SimpleQueue()

        def ask(request: Request) -> Answer:
            if not isinstance(request, Note):
                return plain(request)
            notes.put(request)
            if lost.pop():
                raise AwayError("gone")
            return Answer(DONE, None, "", {})

        lost = [False, False, True, True]
        fake.ask = ask      # type: ignore[method-assign]
        fake.agent.keep("lost 1", "text")
        for _ in range(3):
            assert notes.get(timeout=TIMEOUT_S) == Note((("lost 1", "text"),))
        fake.agent.note(0, "figures")
        assert notes.get(timeout=TIMEOUT_S) == Note(((0, "figures"),))
