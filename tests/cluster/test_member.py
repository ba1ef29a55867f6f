"""Test one node without I/O (mosq/cluster/member.py): its requests, starts, stops and kills, step by step."""

from __future__ import annotations

import pytest

from mosq.cluster.entries import Announcement, Entry, announcement_of, entry_of, next_token, read_announcement, text_of
from mosq.cluster.member import FAILURES_MAX, UNABLE_S, Member, NameUsedError, Where
from mosq.cluster.requests import Beat, Change, Join, Leave, Look, Request, Send
from mosq.cluster.terms import Terms
from mosq.log_types import NOTICE, WARNING
from tests.cluster.model import State, apply

TERMS = Terms(lease_s=4.0, margin_s=2.0)
ADDRESS = "10.0.0.1 7883"       # the same for each node: these tests connect nothing
OWN = Announcement(address=ADDRESS).text


class Steps:
    """Nodes with a common Redis and one clock; each request is answered at once, unless Redis is away."""

    def __init__(self) -> None:
        self.now, self.state, self.source, self.away = 0.0, State(0, "id"), "s", False
        self.nodes: list[One] = []

    def node(self, name: str = "a", run: str = "r", count: int = 2, address: str = ADDRESS, **fields) -> One:
        node = One(self, name, run, count, Announcement(address=address, **fields))
        self.nodes.append(node)
        return node

    def run(self, seconds: float) -> None:
        end_s = self.now + seconds
        while self.now < end_s:
            self.now += 0.05
            for node in self.nodes:
                node.step()


class One:
    """One node, with the calls that its workers got."""

    def __init__(self, steps: Steps, name: str, run: str, count: int, announcement: Announcement) -> None:
        self.steps, self.stopped = steps, False
        self.calls: list[tuple] = []
        self.asked: list[Request] = []
        self.tokens: dict[int, int] = {}    # of the last start of each worker
        self.lines: list[str] = []
        self.kinds: list[int] = []          # of the lines
        self.places: list[dict[int, Where | None]] = []         # each change
        self.until_s = 0.0
        self.member = Member(name, run, count, TERMS, self, announcement=announcement, report=self.report, places=self.places.append,
                             random_bits=lambda _: 7)

    def report(self, kind: int, text: str) -> None:
        self.kinds.append(kind)
        self.lines.append(text)

    def step(self) -> None:
        """Ask until there is nothing to ask."""
        while not self.stopped and (request := self.member.turn(self.steps.now)) is not None:
            self.asked.append(request)
            if self.steps.away:
                self.member.failed(self.steps.now, request, "away")
                continue
            self.answer(request)

    def change(self) -> Change:
        """Stop the steps before the next change of the table; return it, without an answer."""
        self.stopped = True
        while not isinstance(request := self.member.turn(self.steps.now), Change):
            self.steps.now += 0.01
            if request is not None:
                self.answer(request)
        return request

    def beat(self) -> Beat:
        """Let time pass until the next beat is due; return it, without an answer."""
        while not isinstance(request := self.member.turn(self.steps.now), Beat):
            self.steps.now += 0.01
            if request is not None:
                self.answer(request)
        return request

    def answer(self, request: Request) -> None:
        self.steps.state, answer = apply(self.steps.state, self.steps.source, "id", self.member.name, self.member.run, request)
        self.member.answered(self.steps.now, self.steps.now, request, answer)

    def start(self, worker: int, token: int, until_s: float) -> None:
        self.calls.append(("start", worker, token))
        self.tokens[worker] = token

    def ended(self, worker: int) -> None:
        """Let the process of a worker end."""
        self.member.ended(worker, self.tokens[worker])

    def stop(self, worker: int) -> None:
        self.calls.append(("stop", worker))

    def kill(self, workers: list[int]) -> None:
        self.calls += [("kill", worker) for worker in workers]

    def lease(self, until_s: float) -> None:
        self.until_s = until_s

    def names(self) -> list[tuple]:
        return [call[:2] for call in self.calls]


def started() -> tuple[Steps, One]:
    """Return a node that runs both workers."""
    steps = Steps()
    node = steps.node()
    steps.run(7)
    assert node.names() == [("start", 0), ("start", 1)]
    node.calls.clear()
    return steps, node


def test_a_node_joins_and_claims_after_lease_and_margin() -> None:
    steps = Steps()
    node = steps.node()
    steps.run(5.9)
    assert node.asked[0] == Join("", OWN)
    assert node.calls == []
    assert isinstance(node.asked[-1], Beat)
    steps.run(1)
    token = next_token(0, 7)
    assert node.calls == [("start", 0, token), ("start", 1, token)]
    assert steps.state.workers == {0: f"{token} a r", 1: f"{token} a r"}
    assert node.until_s > steps.now + 3
    assert {request.source for request in node.asked if isinstance(request, Change)} == {"s"}


def test_the_lease_ends_without_redis_and_workers_start_again_with_other_tokens() -> None:
    steps, node = started()
    steps.away = True
    steps.run(3.9 - TERMS.beat_s)
    assert node.calls == []
    steps.run(0.2 + TERMS.beat_s)
    assert node.names() == [("kill", 0), ("kill", 1)]
    assert node.lines == ["away", "The lease of this node is over: no beat was confirmed in time. Its workers were killed."]
    steps.away = False
    node.calls.clear()
    steps.run(1)
    token = next_token(next_token(0, 7), 7)
    assert node.calls == [("start", 0, token), ("start", 1, token)]
    assert node.lines[-1] == "Redis answers again."
    assert node.kinds == [WARNING, WARNING, NOTICE]


def test_a_node_that_was_stopped_for_long_kills_before_it_asks() -> None:
    steps, node = started()
    asked = len(node.asked)
    steps.now += 60
    node.member.check(steps.now)
    assert node.names() == [("kill", 0), ("kill", 1)]
    assert len(node.asked) == asked


def test_an_answer_that_comes_after_the_lease_starts_nothing() -> None:
    steps = Steps()
    node = steps.node()
    steps.run(5.9)
    request = node.change()
    sent_s = steps.now
    steps.state, answer = apply(steps.state, "s", "id", "a", "r", request)
    node.member.answered(sent_s + 5, sent_s, request, answer)
    assert node.calls == []


def test_a_worker_with_another_node_in_the_table_is_killed() -> None:
    steps, node = started()
    steps.state = steps.state._replace(workers={**steps.state.workers, 1: "99999999999 b q"}, beats={**steps.state.beats, "b": "q 1"},
                                       announcements={**steps.state.announcements, "b": OWN})
    steps.run(1)
    assert node.names() == [("kill", 1)]
    assert node.lines == ["Worker 2 has another node now, and was killed here."]
    assert node.kinds == [NOTICE]


def test_a_worker_that_ended_starts_again_with_another_token() -> None:
    steps, node = started()
    node.ended(1)
    steps.run(0.1)
    assert node.calls == [("start", 1, next_token(next_token(0, 7), 7))]


def test_the_end_of_a_process_that_was_replaced_ends_no_other_one() -> None:
    steps, node = started()
    token = node.tokens[1]
    node.ended(1)
    steps.run(0.1)
    assert node.names() == [("start", 1)]
    node.member.ended(1, token)
    steps.run(2)
    assert node.names() == [("start", 1)]
    assert node.member.running() == {0, 1}


def test_two_nodes_share_and_one_worker_moves_at_a_time() -> None:
    steps = Steps()
    first = steps.node("a", count=4)
    steps.run(7)
    assert len(first.calls) == 4
    first.calls.clear()
    second = steps.node("b", "q", count=4)
    steps.run(8)
    assert first.names() == [("stop", 3)]
    steps.run(8)
    assert first.names() == [("stop", 3)]
    first.ended(3)
    steps.run(1)
    assert second.names() == [("start", 3)]
    steps.run(5)
    assert first.names() == [("stop", 3), ("stop", 2)]
    first.ended(2)
    steps.run(20)
    assert second.names() == [("start", 3), ("start", 2)]
    assert first.names() == [("stop", 3), ("stop", 2)]


def test_workers_of_a_dead_node_go_to_the_others() -> None:
    steps = Steps()
    first, second = steps.node("a", count=4), steps.node("b", "q", count=4)
    steps.run(8)
    assert len(first.calls) == len(second.calls) == 2
    first.stopped = True
    steps.run(5.9)
    assert len(second.calls) == 2
    steps.run(2)
    assert len(second.calls) == 4
    assert second.lines == [f"Worker {worker} of node a, which is dead, starts here." for worker in (1, 3)]


def test_a_node_of_a_living_name_is_refused() -> None:
    steps, node = started()
    other = steps.node("a", "q")
    steps.run(3)
    assert isinstance(other.member.error, NameUsedError)
    assert other.member.out
    assert str(other.member.error) == "a node with the name a lives already; each node needs a name of its own"
    assert node.calls == other.calls == []


def test_a_node_whose_name_was_taken_ends() -> None:
    steps, node = started()
    node.stopped = True
    other = steps.node("a", "q")
    steps.run(15)
    assert other.names() == [("start", 0), ("start", 1)]
    assert any(isinstance(request, Look) for request in other.asked)
    node.stopped = False
    steps.run(1)
    assert node.names() == [("kill", 0), ("kill", 1)]
    assert str(node.member.error) == "another process has joined as a, because this one gave no sign of life"
    assert [line for line in node.lines if "another process" in line] == []     # the program that runs the node logs it
    assert other.member.error is None


def test_a_node_that_leaves_gives_all_workers_at_once() -> None:
    steps = Steps()
    first, second = steps.node("a", count=8), steps.node("b", "q", count=8)
    steps.run(12)
    first.calls.clear()
    first.member.leave()
    steps.run(1)
    assert first.calls == [("stop", worker) for worker in (0, 2, 4, 6)]
    assert first.lines[-1] == "Workers 1, 3, 5, 7 go to other nodes."
    for worker in (0, 2, 4, 6):
        first.ended(worker)
    beats = [request for request in first.asked if isinstance(request, Beat)]
    steps.run(0.1)
    assert sum(isinstance(request, Beat) for request in first.asked) == len(beats) + 2      # not one for each worker
    steps.run(1)
    assert first.member.out
    assert first.member.error is None
    assert isinstance(first.asked[-1], Leave)
    steps.run(1)
    assert sorted(second.names()) == [("start", worker) for worker in range(8)]
    assert list(steps.state.beats) == ["b"]


def test_a_node_leaves_although_the_other_one_is_younger_than_a_lease() -> None:
    steps, node = started()
    steps.node("b", "q")
    steps.run(1)
    node.member.leave()
    steps.run(1)
    assert node.names() == [("stop", 0), ("stop", 1)]


def test_a_node_that_leaves_waits_for_a_sign_of_life_of_another_one() -> None:
    steps, node = started()
    other = steps.node("b", "q")
    other.member.turn(steps.now)        # it has joined, and then it is stopped
    other.answer(Join("", OWN))
    other.stopped = True
    node.member.leave()
    steps.run(3)
    assert node.calls == []
    other.stopped = False
    steps.run(2)
    assert node.names() == [("stop", 0), ("stop", 1)]


def test_the_last_node_that_leaves_stops_all() -> None:
    steps, node = started()
    node.member.leave()
    steps.run(1)
    assert node.names() == [("stop", 0), ("stop", 1)]
    node.ended(0)
    node.ended(1)
    steps.run(1)
    assert node.member.out
    assert all(not entry_of(text).name for text in steps.state.workers.values())


def test_redis_that_forgot_a_node_or_its_announcement_learns_them_again() -> None:
    steps, node = started()
    steps.state = steps.state._replace(announcements={"a": Announcement(5, address=ADDRESS).text})
    steps.run(2)
    assert steps.state.announcements == {"a": OWN}
    steps.state = steps.state._replace(beats={}, announcements={})
    steps.run(2)
    assert steps.state.announcements == {"a": OWN}
    assert node.calls == []


def test_another_server_delays_claims_by_lease_and_margin() -> None:
    steps, node = started()
    node.ended(0)
    steps.source = "t"
    steps.run(5.9)
    assert node.calls == []
    steps.run(1)
    assert node.names() == [("start", 0)]


@pytest.mark.parametrize(("state", "line"), [
    (State(0), "Redis has no data of this cluster: it was started empty, or the keys were deleted"),
    (State(0, "another"), "Redis has another cluster of this name: the data of this one were replaced. Restore the data, or restart each node to let it join the other cluster"),
], ids=["empty", "another"])
def test_a_redis_without_the_cluster_ends_the_lease_and_is_reported_once(state: State, line: str) -> None:
    steps, node = started()
    before, steps.state = steps.state, state
    steps.run(8)
    assert node.names() == [("kill", 0), ("kill", 1)]
    assert node.lines.count(line) == 1
    assert node.kinds[node.lines.index(line)] == WARNING
    assert steps.state == state
    steps.state = before
    steps.run(2)
    assert node.names()[2:] == [("start", 0), ("start", 1)]


def test_a_request_without_an_answer_that_was_carried_out_starts_the_worker_with_another_token() -> None:
    steps = Steps()
    node = steps.node(count=1)
    steps.run(5.9)
    request = node.change()
    steps.state, _ = apply(steps.state, "s", "id", "a", "r", request)
    node.member.failed(steps.now, request, "no answer")
    node.stopped = False
    steps.run(2)
    assert node.calls == [("start", 0, next_token(next_token(0, 7), 7))]


def test_tokens_grow_and_keep_their_random_bits() -> None:
    token = next_token(next_token(0, 0xFFFFFF), 3)
    assert token == (2 << 24) + 3
    assert token < 1 << 53


def test_a_beat_that_was_not_written_extends_no_lease_and_the_next_one_is_above_it() -> None:
    steps, node = started()
    until_s = node.until_s
    steps.state = steps.state._replace(beats={"a": "r 99999999999"})
    node.answer(node.beat())
    assert node.until_s == until_s
    assert node.lines == ["Redis has a later beat of this node than its last one: another program has written it."]
    steps.run(1)
    assert node.until_s > until_s and node.lines[1:] == ["Redis answers again."]
    assert int(steps.state.beats["a"].split()[1]) > 99999999999


def test_a_beat_that_is_no_number_is_replaced() -> None:
    steps, node = started()
    until_s = node.until_s
    steps.state = steps.state._replace(beats={"a": "r text"})
    request = node.beat()
    node.answer(request)
    assert node.until_s > until_s and steps.state.beats == {"a": f"r {request.number}"}


@pytest.mark.parametrize("entry", [Entry(0, "", ""), Entry(5, "", ""), Entry(5, "a", "r")])
def test_an_entry_is_read_as_it_was_written(entry: Entry) -> None:
    assert entry_of(text_of(entry)) == entry


def test_fields_of_a_later_version_are_left_out() -> None:
    assert read_announcement('{"capacity":3,"later":1,"protocols":[1,4]}') == (Announcement(3, protocols=(1, 4)), "")


@pytest.mark.parametrize(("text", "left_out"), [
    ("", "all of them"), ("{", "all of them"), ("[]", "all of them"), ('{"capacity":1001}', "capacity"), ('{"capacity":"2"}', "capacity"),
    ('{"capacity":true,"leaving":1}', "capacity, leaving"), ('{"protocols":[1]}', "protocols"), ('{"protocols":[1,"2"]}', "protocols"),
    ('{"version":3,"address":"host"}', "version, address"), ('{"address":["host",1]}', "address"),
    ("[" * 1200, "all of them"), ('{"version":"' + "1" * 70000 + '"}', "all of them"),
])
def test_values_of_an_announcement_that_are_not_understood_have_their_defaults(text: str, left_out: str) -> None:
    assert read_announcement(text) == (Announcement(), left_out)


@pytest.mark.parametrize("text", ["", '{"capacity":2000,"address":"host"}'])
def test_a_strange_announcement_ends_no_other_node_and_is_reported_once(text: str) -> None:
    steps = Steps()
    node = steps.node(address="10.0.0.1 7883")
    steps.run(7)
    node.calls.clear()
    steps.state = steps.state._replace(beats={**steps.state.beats, "b": "q 1"}, announcements={**steps.state.announcements, "b": text},
                                       workers={**steps.state.workers, 1: "99999999999 b q"})
    steps.run(3)
    assert node.names() == [("kill", 1)]
    assert node.member.running() == {0}
    assert set(node.places[-1]) == {0}
    assert len([line for line in node.lines if "The node b announces values" in line]) == 1


@pytest.mark.parametrize("text", ["", "[" * 1200, '{"version":' + "1" * 5000 + "}"], ids=["deleted", "nested", "large number"])
def test_damaged_announcements_of_living_nodes_end_and_move_nothing(text: str) -> None:
    steps = Steps()
    nodes = [steps.node(name, name, count=3) for name in "abc"]
    steps.run(9)
    running = [node.member.running() for node in nodes]
    assert sorted(map(len, running)) == [1, 1, 1]
    texts = dict(steps.state.announcements)
    for node in nodes:
        node.calls.clear()
    steps.state = steps.state._replace(announcements=dict.fromkeys("abc", text))
    steps.run(20)
    assert [node.member.error for node in nodes] == [None] * 3
    assert [node.member.running() for node in nodes] == running and not any(node.calls for node in nodes)
    assert steps.state.announcements == texts


@pytest.mark.parametrize("away", [False, True])
def test_a_node_without_workers_is_not_refused_while_an_announcement_is_missing(away: bool) -> None:
    steps, first = started()
    second = steps.node("b", "q")
    steps.run(1)
    first.stopped = away                # the first one cannot announce itself again while it hangs
    steps.state = steps.state._replace(announcements=dict.fromkeys("ab", ""))
    steps.run(4)
    first.stopped = False
    steps.run(1)
    assert first.member.error is second.member.error is None
    assert second.member.running() == set()


def test_a_worker_without_a_node_waits_for_the_announcement_of_each_living_node() -> None:
    steps = Steps()
    node, other = steps.node("a"), steps.node("b", "q")
    steps.run(9)
    [worker], [free] = node.member.running(), other.member.running()
    node.calls.clear()
    other.stopped = True                # it hangs, and lives
    steps.state = steps.state._replace(announcements={**steps.state.announcements, "b": ""},
                                       workers={**steps.state.workers, free: f"{other.tokens[free]}"})
    steps.run(1)
    node.ended(worker)
    steps.run(1)
    assert node.names() == [("start", worker)]      # its own worker starts again
    steps.run(6)                        # until the other one is dead
    assert node.names() == [("start", worker), ("start", free)]


@pytest.mark.parametrize("capacity", [0, 1001])
def test_a_capacity_has_bounds(capacity: int) -> None:
    with pytest.raises(ValueError, match="from 1 to 1000"):
        Announcement(capacity)


@pytest.mark.parametrize(("lease_s", "margin_s"), [(0.05, 1), (3601, 1), (4, 0)])
def test_times_have_bounds(lease_s: float, margin_s: float) -> None:
    with pytest.raises(ValueError):
        Terms(lease_s, margin_s)


def test_a_node_knows_where_each_worker_is() -> None:
    steps = Steps()
    first = steps.node("a", address="10.0.0.1 7883")
    steps.run(20)
    tokens = dict(first.tokens)
    assert first.places[-1] == {worker: Where("10.0.0.1", 7883 + worker, tokens[worker]) for worker in range(2)}
    second = steps.node("b", "r2", address="10.0.0.2 7883")
    steps.run(8)
    [(_, moved)] = [call for call in first.calls if call[0] == "stop"]
    first.ended(moved)
    steps.run(20)
    expected = {1 - moved: Where("10.0.0.1", 7884 - moved, tokens[1 - moved]), moved: Where("10.0.0.2", 7883 + moved, second.tokens[moved])}
    assert first.places[-1] == second.places[-1] == expected
    second.stopped = True               # dead: its worker has no process any more, and then another one
    steps.run(20)
    assert [places[moved] for places in first.places[-2:]] == [None, Where("10.0.0.1", 7883 + moved, first.tokens[moved])]


def test_a_node_without_an_address_has_no_place() -> None:
    steps = Steps()
    node = steps.node("a", address="")
    steps.run(20)
    assert node.places[-1] == {}
    assert node.member.running() == {0, 1}


def test_a_slow_redis_is_reported_at_its_beginning_and_its_end() -> None:
    steps = Steps()
    node = steps.node()
    steps.run(8)
    lines = len(node.lines)

    def beats(*took_s: float) -> list[str]:
        for seconds in took_s:
            request = node.beat()
            steps.now += seconds
            steps.state, answer = apply(steps.state, steps.source, "id", node.member.name, node.member.run, request)
            node.member.answered(steps.now, steps.now - seconds, request, answer)
        return node.lines[lines:]

    assert beats(*[0.2] * 4, 0.01, *[0.2] * 4) == []
    assert beats(0.2) == ["Redis is slow: its answers take 200 ms, and each acknowledgement waits for one."]
    assert len(beats(0.2, 0.01, 0.2, *[0.01] * 4)) == 1
    assert beats(0.01)[1:] == ["Redis is quick again."]


# ---- sent away

def send(steps: Steps, one: One, away: bool) -> None:
    """Do what `mosq cluster leave` and `join` do."""
    steps.state, answer = apply(steps.state, "s", "id", one.member.name, one.member.run, Send(away))
    assert answer.status == "done"


def test_a_node_that_is_sent_away_gives_its_workers_away_and_stays_a_node() -> None:
    steps, node = started()
    other = steps.node("b", "q")
    steps.run(7)
    send(steps, node, True)
    for _ in range(2):
        steps.run(3)
        for worker in node.member.running():
            if ("stop", worker) in node.calls:
                node.ended(worker)
    steps.run(3)
    assert node.member.running() == set()
    assert other.member.running() == {0, 1}
    assert node.member.away and not node.member.out
    assert announcement_of(steps.state.announcements["a"]).leaving
    assert node.member.nodes() == {"a": "leaves", "b": "lives"}
    assert [entry.name for entry in node.member.owners()] == ["b", "b"]
    assert "This node was sent away: it gives its workers to others, and starts none." in node.lines
    steps.run(20)
    assert node.member.running() == set()
    send(steps, node, False)
    steps.run(3)
    assert not announcement_of(steps.state.announcements["a"]).leaving
    assert node.lines[-1] == "This node may have workers again."
    steps.run(6)
    [worker] = [call[1] for call in other.calls if call[0] == "stop"]
    other.ended(worker)
    steps.run(3)
    assert node.member.running() == {worker}


def test_a_node_that_is_sent_away_keeps_its_workers_while_no_other_node_is_there() -> None:
    steps, node = started()
    send(steps, node, True)
    steps.run(20)
    assert node.member.running() == {0, 1}
    assert node.calls == []
    assert not node.member.others


def test_another_run_of_a_node_is_not_away() -> None:
    steps, node = started()
    send(steps, node, True)
    steps.run(2)
    node.stopped = True
    again = steps.node("a", "next")
    steps.run(20)
    assert again.member.running() == {0, 1}
    assert not again.member.away


def test_a_node_that_is_away_leaves_as_another_one() -> None:
    steps, node = started()
    other = steps.node("b", "q")
    steps.run(1)
    send(steps, node, True)
    node.member.leave()
    for _ in range(3):
        steps.run(7)
        for worker in node.member.running():
            if ("stop", worker) in node.calls:
                node.ended(worker)
    assert node.member.out
    assert steps.state.away == {}
    assert other.member.running() == {0, 1}


# ---- nodes that cannot reach each other

def test_a_second_node_is_refused_if_the_first_has_no_address() -> None:
    steps = Steps()
    first = steps.node("b", address="")
    steps.run(7)
    second = steps.node("a", "q")
    steps.run(3)
    assert str(second.member.error) == ("the node b has no cluster_listener, so no other node can reach its workers. Give each node of the "
                                        "cluster the option cluster_listener, or run one node at a time")
    assert second.member.out and list(steps.state.beats) == ["b"]
    assert first.member.running() == {0, 1} and not first.member.others
    steps.run(20)
    assert first.names() == [("start", 0), ("start", 1)]


def test_a_second_node_without_an_address_is_refused() -> None:
    steps, first = started()
    second = steps.node("0", "q", address="")
    steps.run(3)
    assert str(second.member.error).startswith("this node has no cluster_listener, so no other node can reach its workers, and the node a lives. Give")
    assert second.member.out and list(steps.state.beats) == ["a"]
    steps.run(10)
    assert first.calls == []


def test_of_two_nodes_that_start_together_the_one_with_an_address_stays() -> None:
    steps = Steps()
    first, second = steps.node("a", "q", address=""), steps.node("b")
    steps.run(20)
    assert first.member.out and second.member.running() == {0, 1}


def test_of_two_nodes_without_an_address_that_start_together_one_stays() -> None:
    steps = Steps()
    first, second = steps.node("a", address=""), steps.node("b", "q", address="")
    steps.run(20)
    assert second.member.out and first.member.running() == {0, 1}


def test_a_node_without_an_address_continues_the_workers_of_a_dead_one() -> None:
    steps = Steps()
    first = steps.node("a", address="")
    steps.run(7)
    first.stopped = True
    second = steps.node("b", "q", address="")
    steps.run(10)
    assert second.member.error is None and second.member.running() == {0, 1}


@pytest.mark.parametrize(("addresses", "stays"), [(("", ADDRESS), 1), ((ADDRESS, ""), 0), (("", ""), 0)])
def test_nodes_apart_that_have_workers_after_a_partition_never_run_some_together(addresses: tuple[str, str], stays: int) -> None:
    steps = Steps()
    second = steps.node("b", "q", address=addresses[1])
    steps.run(7)
    second.stopped = True
    first = steps.node("a", address=addresses[0])
    first.answer(first.change())
    first.member.failed(steps.now, first.change(), "away")      # the claim of the other worker did not arrive
    first.stopped = second.stopped = False
    nodes = first, second
    for _ in range(400):
        steps.run(0.05)
        assert not (first.member.running() and second.member.running())
        for node in nodes:
            for worker in [call[1] for call in node.calls if call[0] == "stop"]:
                node.calls.remove(("stop", worker))
                node.ended(worker)
    assert nodes[stays].member.running() == {0, 1} and nodes[1 - stays].member.running() == set()


# ---- workers that cannot start

def fail(node: One, worker: int, times: int) -> None:
    """Let starts of a worker fail."""
    for _ in range(times):
        node.member.check(node.steps.now)
        node.member.ended(worker, node.tokens[worker], failed=True)
        node.steps.run(1)


def test_a_worker_that_cannot_start_goes_to_another_node() -> None:
    steps = Steps()
    first, second = steps.node("a"), steps.node("b", "q")
    steps.run(8)
    assert first.member.running() == {0} and second.member.running() == {1}
    fail(first, 0, FAILURES_MAX - 1)
    assert first.member.running() == {0}
    fail(first, 0, 1)
    assert first.member.running() == set() and second.member.running() == {0, 1}
    assert announcement_of(steps.state.announcements["a"]).unable == (0,)
    assert [line for line in first.lines if "could not start" in line] == [
        "Worker 1 could not start on this node 4 times in a row. It goes to a node that has not failed to start it, if there is one; the "
        "lines above have the reason."]
    steps.run(20)                       # the other worker comes in its place
    assert second.names()[-1] == ("stop", 1)
    second.ended(1)
    steps.run(20)
    assert first.member.running() == {1} and second.member.running() == {0}
    steps.run(UNABLE_S)
    assert announcement_of(steps.state.announcements["a"]).unable == ()
    assert first.member.running() == {1} and second.member.running() == {0}


def test_a_worker_that_no_node_can_start_stays_where_it_failed_last() -> None:
    steps = Steps()
    first, second = steps.node("a"), steps.node("b", "q")
    steps.run(8)
    fail(first, 0, FAILURES_MAX)
    fail(second, 0, FAILURES_MAX + 2)
    assert second.member.running() == {0, 1} and first.member.running() == set()
    second.member.serves(0, second.tokens[0])
    steps.run(1)
    assert [announcement_of(steps.state.announcements[name]).unable for name in ("a", "b")] == [(0,), ()]


def test_a_worker_that_has_served_between_two_failures_stays() -> None:
    steps, node = started()
    steps.node("b", "q", capacity=1)
    steps.run(1)
    for _ in range(3):
        fail(node, 0, FAILURES_MAX - 1)
        node.member.serves(0, node.tokens[0])
    assert node.member.running() == {0, 1}


def test_starts_that_fail_without_redis_do_not_count() -> None:
    steps, node = started()
    for _ in range(FAILURES_MAX):
        steps.away = True
        steps.run(1)
        node.member.ended(0, node.tokens[0], failed=True)
        steps.away = False
        steps.run(1)
    assert node.member.announcement.unable == ()


def test_a_single_node_reports_a_worker_that_cannot_start_and_tries_it_again() -> None:
    steps, node = started()
    fail(node, 0, 2 * FAILURES_MAX)
    assert node.member.running() == {0, 1}
    assert announcement_of(steps.state.announcements["a"]).unable == (0,)
    assert len([line for line in node.lines if "could not start" in line]) == 1
