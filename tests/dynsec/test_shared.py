"""Test dynamic security of a cluster without processes and Redis: commands that meet other changes and faults, the parent's part, the
agent's part, and which clients a change disconnects."""

from __future__ import annotations

import collections
import contextlib
import copy
import json
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mosq.auth.dynsec.check import readable_directory
from mosq.auth.dynsec.document import Document, First, covers, document_of, is_stamp, next_stamp
from mosq.auth.dynsec.outcome import AWAY, CHANGED, DAMAGED, DONE, DOUBT, ERRORS, LARGE, REFUSED
from mosq.auth.dynsec.shared import SharedCommands, SharedDirectory, changed
from mosq.auth.dynsec.store import read
from mosq.cluster.address import parse_address
from mosq.cluster.entries import Announcement
from mosq.cluster.errors import AwayError, RefusedError
from mosq.cluster.registry import Found
from mosq.cluster.requests import View
from mosq.cluster.terms import Terms
from mosq.config.errors import ConfigError
from mosq.config.parser import load_config
from mosq.server.access import Access
from mosq.server.admin.control import Requester
from mosq.server.node import rules
from mosq.server.node.agent import Identity, NodeAgent
from mosq.server.node.documents import Documents
from mosq.server.node.doors import Doors
from mosq.server.node.parent import NodeParent
from mosq.server.node.rules import Rules
from mosq.server.node.slot import NodeSlot
from mosq.server.node.worker import NodeWorker
from mosq.server.signals import Reading
from mosq.server.workers.channel import Channel, channel_pair
from mosq.server.workers.parent import Parent
from mosq.tools.cluster import check
from tests.dynsec.admin import Object, everything, role, state
from tests.harness.control import Woken, asked
from tests.harness.effort import TIMEOUT_S

CREATE = {"command": "createClient", "username": "bob"}
GROUPS = [{"groupname": "g", "roles": [{"rolename": "r"}], "clients": [{"username": "ann"}]}]


def content(**more: Any) -> bytes:
    return json.dumps(state(**more)).encode()


def names(document: Document) -> set[str]:
    return set(read(document.content())[0].clients)


# ---- commands

class Side:
    """The commands of a worker. `outcomes`: what the agent answers to writes; others write before it if it is CHANGED."""

    def __init__(self, *outcomes: str, look: tuple[str, str] = (DONE, "")) -> None:
        self.outcomes, self.looks = list(outcomes), look
        self.written: list[tuple[str, str, set[str]]] = []
        self.lines: list[str] = []
        self.rules: list[Object] = []
        self.woken = Woken()
        self.directory = SharedDirectory(document_of("1.a", content(clients=[{"username": "ann"}])), "file", lambda *_: None)
        engine = SimpleNamespace(set_roles=lambda rules, _: self.rules.append(rules), clients=list)
        together: Any = SimpleNamespace(begin=self.begin, look=self.look, write=self.write, end=lambda: None)
        self.commands = SharedCommands(self.directory, lambda: [0], lambda: engine,  # type: ignore[arg-type, return-value]
                                       lambda _, line: self.lines.append(line), self.woken, together)

    def begin(self, wake: object) -> Any:
        yield from ()

    def look(self) -> Any:
        yield from ()
        return self.looks

    def write(self, expected: str, stamp: str, written: bytes) -> Any:
        yield from ()
        self.written.append((expected, stamp, set(read(written)[0].clients)))
        outcome = self.outcomes.pop(0)
        if outcome == DONE:
            assert self.commands.take_document(document_of(stamp, written)) == set()
        elif outcome == CHANGED:
            number = len(self.written)
            others = content(clients=[{"username": name} for name in ["ann", *(f"other{n}" for n in range(number))]])
            self.commands.take_document(document_of(f"{number + 1}.other", others))
        return outcome, "a reason" if outcome != DONE else ""

    def ask(self, *commands: Object) -> tuple[list[Object], list[Any]]:
        requester = Requester("boss", "admin", "127.0.0.1", 0)
        [(_, answer)] = asked(self.commands.answer, requester, json.dumps({"commands": commands}).encode(), self.woken)
        return json.loads(answer)["responses"], requester.further_answers


def test_a_change_is_in_force_before_its_response() -> None:
    side = Side(DONE)
    responses, kicks = side.ask(CREATE, {"command": "deleteClient", "username": "ann"})
    assert responses == [{"command": "createClient"}, {"command": "deleteClient"}]
    assert [set(one.usernames) for one in kicks] == [{"ann"}]
    [(expected, stamp, users)] = side.written
    assert (expected, stamp.partition(".")[0], users) == ("1.a", "2", {"admin", "bob"})
    assert side.directory.document.stamp == stamp and set(side.directory.state.clients) == users
    assert len(side.rules) == 1


def test_commands_run_again_on_the_document_of_a_faster_node() -> None:
    side = Side(CHANGED, CHANGED, DONE)
    assert side.ask(CREATE)[0] == [{"command": "createClient"}]
    assert [(expected, sorted(users)) for expected, _, users in side.written] == [
        ("1.a", ["admin", "ann", "bob"]), ("2.other", ["admin", "ann", "bob", "other0"]),
        ("3.other", ["admin", "ann", "bob", "other0", "other1"])]
    assert sum("createClient" in line for line in side.lines) == 1


@pytest.mark.parametrize("status", [AWAY, DOUBT, REFUSED, DAMAGED])
def test_a_change_without_confirmation_is_an_error_and_not_in_force(status: str) -> None:
    side = Side(status)
    responses, kicks = side.ask(CREATE, {"command": "deleteClient", "username": "ann"}, {"command": "listRoles"})
    assert [one.get("error") for one in responses] == [ERRORS[status], ERRORS[status], None]
    assert kicks == [] and side.rules == []
    assert set(side.directory.state.clients) == {"admin", "ann"}
    assert side.lines == ["Error: A change of dynamic security was not confirmed: a reason."]


def test_only_reading_commands_are_answered_while_redis_is_away() -> None:
    side = Side(look=(AWAY, "Redis is gone"))
    assert side.ask({"command": "listClients"})[0][0]["data"]["clients"] == ["admin", "ann"]
    assert side.ask(CREATE)[0] == [{"command": "createClient", "error": ERRORS[AWAY]}]
    assert side.written == []
    assert side.ask({**CREATE, "username": "ann"})[0] == [{"command": "createClient", "error": "Client already exists"}]


def test_a_document_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    side = Side()
    monkeypatch.setattr("mosq.auth.dynsec.shared.BYTES_MAX", len(content()))
    assert side.ask(CREATE)[0] == [{"command": "createClient", "error": ERRORS[LARGE]}]
    assert side.written == []


def test_a_document_that_comes_while_commands_run_is_not_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    side = Side(CHANGED, DONE)
    run = side.commands.execute

    def execute(*arguments: Any) -> Any:
        if not side.written:
            side.commands.take_document(document_of("2.other", content(clients=[{"username": "eve"}])))
        return run(*arguments)

    monkeypatch.setattr(side.commands, "execute", execute)
    side.ask(CREATE)
    assert side.written[0][0] == "1.a"          # the version that the commands have seen


# ---- which clients a change disconnects

@pytest.mark.parametrize(("change", "users"), [
    (lambda tree: tree["clients"].pop(), {"ann"}),
    (lambda tree: tree["clients"].append({"username": "new"}), set()),
    (lambda tree: tree["clients"][-1].update(disabled=True), {"ann"}),
    (lambda tree: tree["clients"][-1].update(clientid="c"), {"ann"}),
    (lambda tree: tree["clients"][-1].update(textname="Ann"), set()),
    (lambda tree: tree["clients"][-1].update(roles=[{"rolename": "r", "priority": 3}]), {"ann"}),
    (lambda tree: tree["groups"][0].update(clients=[]), {"ann"}),
    (lambda tree: tree["groups"][0].update(textname="x"), set()),
    (lambda tree: tree["groups"][0].update(roles=[]), {"ann"}),
    (lambda tree: tree["roles"][-1].update(allowwildcardsubs=False), {"ann"}),
    (lambda tree: tree["roles"][-1]["acls"].pop(), {"ann"}),
    (lambda tree: tree["roles"][-1].update(textname="x"), set()),
    (lambda tree: tree["roles"].append({"rolename": "n"}), set()),
    (lambda tree: tree["roles"][0]["acls"].pop(), {"admin"}),
    (lambda tree: tree.update(anonymousGroup="g"), {None}),
    (lambda tree: tree["defaultACLAccess"].update(subscribe=True), set()),
])
def test_the_users_whose_rights_or_logins_differ_are_disconnected(change: Any, users: set[str | None]) -> None:
    tree = state(roles=[everything("r", "a/#")], groups=GROUPS, clients=[{"username": "ann"}])
    after = copy.deepcopy(tree)
    change(after)
    earlier, later = (read(json.dumps(one).encode())[0] for one in (tree, after))
    assert changed(earlier, later) == users
    assert changed(earlier, earlier) == set()


def test_clients_without_a_name_are_disconnected_when_their_group_has_other_rights() -> None:
    tree = state(roles=[role("r", ("subscribePattern", "a", True))], groups=GROUPS, clients=[{"username": "ann"}], anonymousGroup="g")
    after = copy.deepcopy(tree)
    after["roles"][-1]["acls"][0]["allow"] = False
    assert changed(*(read(json.dumps(one).encode())[0] for one in (tree, after))) == {None, "ann"}


def test_stamps() -> None:
    assert all(covers(*pair) for pair in (("", ""), ("1.a", ""), ("1.a", "1.a"), ("10.a", "9.b")))
    assert not any(covers(*pair) for pair in (("", "1.a"), ("1.a", "1.b"), ("9.a", "10.b"), ("1.a", "x")))
    assert next_stamp("").partition(".")[0] == "1" and next_stamp("41.ab").partition(".")[0] == "42"
    assert next_stamp("1.a") != next_stamp("1.a")
    assert all(map(is_stamp, (next_stamp(""), "7.a"))) and not any(map(is_stamp, ("", "7", "x.a", "7.", ".a", "7.a b", "9" * 19 + ".a")))


# ---- the agent's part

class Store:
    """The document in a Redis that may be away."""

    def __init__(self, stamp: str = "", text: bytes = b"") -> None:
        self.stamp, self.text, self.was_made = stamp, text, bool(stamp)
        self.errors: list[AwayError] = []
        self.replaced: list[str] = []

    def document(self, known: str = "") -> Found:
        if self.errors:
            raise self.errors[0]
        return Found(self.stamp, self.text if self.stamp != known else b"", self.was_made)

    def replace_document(self, expected: str, stamp: str, text: bytes) -> tuple[str, str]:
        self.replaced.append(stamp)
        if self.errors:
            raise self.errors[0]
        if expected != self.stamp:
            return CHANGED, self.stamp
        self.stamp, self.text, self.was_made = stamp, text, True
        return DONE, stamp


class Agent:
    """The part of the agent."""

    def __init__(self, store: Store) -> None:
        self.lines: list[str] = []
        self.sent: list[tuple[str, ...]] = []
        self.rules = Rules(store, Terms(0.2, 0.1), lambda _, text: self.lines.append(text), self.send)      # type: ignore[arg-type]

    def send(self, message: Object, fds: list[int]) -> None:
        self.sent.append((message["is"], message.get("stamp", message.get("status"))))

    def ask(self, what: str, expected: str = "", stamp: str = "", text: bytes = b"") -> tuple[str, ...]:
        fds = [document_of(stamp, text).fd] if what == "write" else []
        self.rules.ask({"do": what, "worker": 0, "pid": 1, "number": 1, "expected": expected, "stamp": stamp}, fds)
        self.rules._jobs.get()()
        return self.sent[-1]


def test_a_change_that_redis_does_not_confirm_is_in_doubt_only_if_it_was_sent() -> None:
    store = Store("1.a", content())
    agent = Agent(store)
    agent.rules.begin(None)
    for error, status in ((AwayError("gone"), DOUBT), (AwayError("gone", sent=False), AWAY), (AwayError("full", refused=True), REFUSED)):
        store.errors, store.replaced = [error], []
        assert agent.ask("write", "1.a", "2.b", content()) == ("answer", status)
        assert len(store.replaced) > 1 or status == REFUSED     # it is sent again
    assert agent.rules.stamp == "1.a"
    store.errors = []
    store.stamp = "2.b"             # it was made, though
    assert agent.ask("look") == ("answer", DONE)
    assert agent.sent[-2] == ("rules", "2.b") and agent.rules.stamp == "2.b"


def test_a_change_that_may_have_been_made_stays_in_doubt_when_redis_refuses_its_repetition() -> None:
    store = Store("1.a", content())
    agent = Agent(store)
    agent.rules.begin(None)
    errors = [AwayError("too few replicas"), AwayError("out of memory", refused=True)]

    def replace_document(expected: str, stamp: str, text: bytes) -> tuple[str, str]:
        raise errors.pop(0)

    store.replace_document = replace_document       # type: ignore[method-assign]
    assert agent.ask("write", "1.a", "2.b", content()) == ("answer", DOUBT) and errors == []


def test_a_defect_leaves_a_change_in_doubt() -> None:
    store = Store("1.a", content())
    agent = Agent(store)
    agent.rules.begin(None)
    store.replace_document = lambda *_: {}["none"]   # type: ignore[method-assign]
    assert agent.ask("write", "1.a", "2.b", content()) == ("answer", DOUBT)
    assert "KeyError" in agent.lines[-1]


def test_a_first_document_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "BYTES_MAX", 100)
    (tmp_path / "large").write_bytes(content())
    store = Store()
    with pytest.raises(RefusedError, match="it has at most 100: remove clients"):
        Agent(store).rules.begin(First(str(tmp_path / "large"), None, None))
    assert store.replaced == []


def test_a_conflict_brings_the_newest_document_before_the_answer() -> None:
    store = Store("1.a", content())
    agent = Agent(store)
    agent.rules.begin(None)
    store.stamp, store.text = "2.other", content(clients=[{"username": "eve"}])
    assert agent.ask("write", "1.a", "2.b", content()) == ("answer", CHANGED)
    assert agent.sent[-2] == ("rules", "2.other")
    assert agent.rules.document is not None and "eve" in names(agent.rules.document)
    assert agent.ask("write", "2.other", "3.b", content()) == ("answer", DONE)
    assert agent.sent[-2] == ("rules", "3.b")


@pytest.mark.parametrize(("stamp", "text"), [("2.b", b"{"), ("2.b", b""), ("2.b", b"[]"), ("two", content()), ("", b"")])
def test_a_damaged_document_is_reported_once_and_not_taken(stamp: str, text: bytes) -> None:
    store = Store("1.a", content())
    agent = Agent(store)
    agent.rules.begin(None)
    store.stamp, store.text = stamp, text
    for _ in range(2):
        assert agent.ask("look") == ("answer", DAMAGED)
        assert agent.ask("write", "1.a", "2.c", content()) == ("answer", DAMAGED)
    assert agent.rules.stamp == "1.a" and agent.rules.damaged == stamp
    assert len(agent.lines) == 1
    with pytest.raises(RefusedError, match="dynamic security"):
        Agent(store).rules.begin(First("file", None, None))
    Agent(store).rules.begin(None)          # a node that does not use it is not refused
    store.stamp, store.text = "3.c", content()
    assert agent.ask("look") == ("answer", DONE)
    assert agent.rules.damaged is None


def test_a_first_document_whose_confirmation_is_missing_is_sent_again(tmp_path: Path) -> None:
    store = Store()
    agent, first = Agent(store), First(str(tmp_path / "dynsec.json"), None, None)
    store.errors = [AwayError("gone")]
    store.document = lambda known="": Found("", b"", False)     # type: ignore[method-assign]
    with pytest.raises(AwayError):
        agent.rules.begin(first)
    passwords = (tmp_path / "dynsec.json.pw").read_text()
    del store.document
    store.errors = []
    agent.rules.begin(first)
    assert store.replaced[0] == store.replaced[1] == agent.rules.stamp
    assert (tmp_path / "dynsec.json.pw").read_text() == passwords and not (tmp_path / "dynsec.json").exists()


def test_a_node_that_is_late_removes_its_passwords_and_a_wrong_file_is_an_error(tmp_path: Path) -> None:
    store = Store("1.other", content())
    store.document = lambda known="": Found("", b"", False) if not store.replaced else Store.document(store, known)  # type: ignore[method-assign]
    agent = Agent(store)
    agent.rules.begin(First(str(tmp_path / "dynsec.json"), None, None))
    assert agent.rules.stamp == "1.other" and os.listdir(tmp_path) == []
    assert "Another node has made the first document" in agent.lines[-1]
    (tmp_path / "wrong").write_text("{")
    with pytest.raises(RefusedError, match="Error in the dynamic security file"):
        Agent(Store()).rules.begin(First(str(tmp_path / "wrong"), None, None))
    later = Agent(store)
    later.rules.begin(First(str(tmp_path / "wrong"), None, None))       # it is not used any more
    assert "differs from version 1" in later.lines[0]


def test_beats_ask_for_a_reading_only_if_the_stamp_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(rules, "time", SimpleNamespace(monotonic=lambda: now[0]))
    agent = Agent(Store("1.a", content()))
    agent.rules.begin(None)
    for at_s, stamp, jobs in ((100.0, "1.a", 0), (100.0, "2.b", 1), (100.0, "2.b", 1), (100.1, "2.b", 2)):
        now[0] = at_s
        agent.rules.seen(stamp)
        assert agent.rules._jobs.qsize() == jobs
    agent.rules.damaged = "2.b"             # looked at less often
    for at_s, jobs in ((100.2, 2), (100.4, 3)):
        now[0] = at_s
        agent.rules.seen("2.b")
        assert agent.rules._jobs.qsize() == jobs


def test_the_lease_moves_only_when_the_workers_use_the_document_of_the_beat() -> None:
    ours, theirs = channel_pair()
    lease = SimpleNamespace(ends=[])
    lease.move = lease.ends.append
    agent = NodeAgent(Identity(parse_address("redis://127.0.0.1"), "mosq", "a", b"", Announcement(), first=First("/f", None, None)), theirs, lease)     # type: ignore[arg-type]
    agent._rules = Agent(Store()).rules
    kept: list[tuple[str, str]] = []
    keeper: Any = SimpleNamespace(keep=lambda *field: kept.append(field))

    def beat(stamp: str, until_s: float) -> list[float]:
        agent._viewed(View("", {}, {}, {}, {}, stamp))
        agent.lease(until_s)
        return lease.ends

    assert beat("", 1.0) == [1.0]
    assert beat("1.a", 2.0) == [1.0]
    agent._take(keeper, {"do": "used", "stamp": "1.a"}, [])
    assert lease.ends == [1.0, 2.0] and kept == [("dynsec a", "1")]
    assert beat("2.b", 3.0) == [1.0, 2.0]
    agent._identity = agent._identity._replace(first=None)     # a node that does not use the document notes no version of it
    agent._take(keeper, {"do": "used", "stamp": "1.a"}, [])
    assert kept == [("dynsec a", "1")]
    agent._rules.damaged = "2.b"            # the rules in force stay
    assert beat("2.b", 4.0) == [1.0, 2.0, 4.0]
    agent._take(keeper, {"do": "used", "stamp": "9.c"}, [])
    assert beat("8.d", 5.0)[-1] == 5.0      # a beat that was on its way while this node made a later version
    ours.close()
    theirs.close()


# ---- the parent's part

@contextlib.contextmanager
def slots(n: int) -> Iterator[tuple[list[NodeSlot], list[Channel]]]:
    """Provide workers that serve clients, and the other ends of their channels."""
    made, ends = [NodeSlot(place) for place in range(n)], []
    for slot in made:
        ours, theirs = channel_pair()
        ends.append(theirs)
        slot.pid, slot.channel, slot.ready, slot.uses = 100 + slot.place, ours, True, 0
    yield made, ends
    for slot, end in zip(made, ends, strict=True):
        end.close()
        assert slot.channel is not None
        slot.channel.close()


def received(end: Channel) -> list[Object]:
    found = []
    for message, fds in end.receive():
        found.append(message)
        for fd in fds:
            os.close(fd)
    return found


def test_an_answer_waits_until_all_workers_use_the_document() -> None:
    with slots(3) as (made, ends):
        made[2].ready = False               # it starts, and serves no client before it has read the message
        told: list[Object] = []
        parent = Documents(made, 4.0, document_of("1.a", b"1"), lambda message, fds: told.append(message))
        parent.look(0.0)
        assert told == [{"do": "used", "stamp": "1.a"}]
        parent.asked(made[0], {"is": "write", "number": 1, "expected": "1.a", "stamp": "2.b"}, [])
        assert told[1:] == [{"do": "write", "worker": 0, "pid": 100, "number": 1, "expected": "1.a", "stamp": "2.b"}]
        parent.came("2.b", document_of("2.b", b"2").fd, 10.0)
        parent.answered({"is": "answer", "worker": 0, "pid": 100, "number": 1, "status": DONE, "why": ""})
        parent.answered({"is": "answer", "worker": 1, "pid": 101, "number": 8, "status": AWAY, "why": "gone"})
        parent.answered({"is": "answer", "worker": 1, "pid": 99, "number": 9, "status": AWAY, "why": ""})     # of an earlier process
        parent.came("3.c", document_of("3.c", b"3").fd, 10.0)
        for place in (0, 0, 1):
            parent.asked(made[place], {"is": "uses", "count": made[place].uses + 1}, [])
            parent.look(10.1)
        given = [{"do": "rules", "stamp": "2.b", "count": 1}, {"do": "rules", "stamp": "3.c", "count": 2}]
        assert received(ends[0]) == [*given, {"do": "answer", "number": 1, "status": DONE, "why": ""}]
        assert received(ends[1]) == [*given, {"do": "answer", "number": 8, "status": AWAY, "why": "gone"}]
        assert received(ends[2]) == given
        assert told[2:] == [{"do": "used", "stamp": "2.b"}] and parent.due_s == 12.0
        made[1].ready = False           # it has ended
        parent.look(10.2)
        assert told[3:] == [{"do": "used", "stamp": "3.c"}] and parent.due_s is None


def test_a_worker_that_does_not_take_a_document_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    with slots(2) as (made, _):
        killed: list[int] = []
        for slot in made:
            monkeypatch.setattr(slot, "kill", lambda number, place=slot.place: killed.append(place))
        parent = Documents(made, 4.0, document_of("1.a", b"1"), lambda *_: None)
        parent.came("2.b", document_of("2.b", b"2").fd, 10.0)
        parent.asked(made[0], {"is": "uses", "count": 1}, [])
        parent.look(10.0)
        for at_s, found in ((11.9, []), (12.0, [1]), (13.0, [1]), (14.0, [1, 1])):
            parent.look(at_s)
            assert killed == found
        assert made[1].killed_for == "has not taken a change of dynamic security within 2 seconds"


def test_a_parent_that_has_not_read_for_long_kills_no_worker_that_uses_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    with slots(1) as (made, [end]):
        killed: list[int] = []
        clock_s = [10.0]
        monkeypatch.setattr(made[0], "kill", killed.append)
        monkeypatch.setattr("mosq.server.node.parent.time.monotonic", lambda: clock_s[0])
        parent = object.__new__(NodeParent)
        agent: Any = SimpleNamespace(receive=list, closed=False)
        parent.slots, parent._agent, parent._status, parent._left, parent._leave_s, parent._kills = made, agent, 0, False, None, []
        parent._doors, parent._http_doors, parent._empty_s = Doors(()), Doors(()), None
        parent._documents = Documents(made, 4.0, document_of("1.a", b"1"), lambda *_: None)
        parent._documents.came("2.b", document_of("2.b", b"2").fd, 10.0)

        def turn(lasts_s: float, uses: int) -> None:
            def of_one_machine(self: Parent, starting: bool) -> bool:
                parent._documents.asked(made[0], {"is": "uses", "count": uses}, [])     # read at the begin of the turn
                clock_s[0] += lasts_s           # a reload reads files
                return True

            monkeypatch.setattr(Parent, "_turn", of_one_machine)
            assert parent._turn()

        turn(5.0, 0)
        assert not killed                       # perhaps the worker has answered after that
        turn(5.0, 1)
        parent._documents.came("3.c", document_of("3.c", b"3").fd, 20.0)
        turn(5.0, 1)
        assert not killed
        turn(0.0, 1)
        assert killed == [signal.SIGKILL]       # it has not
        received(end)


def test_a_node_with_another_version_is_a_difference() -> None:
    found: Any = SimpleNamespace(document="3.a", used={"a": "3", "b": "2", "dead": "1"})
    assert list(check._of_documents(found, {"a", "b", "c"})) == [
        "The node b uses version 2 of the document of dynamic security, and Redis has version 3."]


# ---- the worker's part

class Node:
    """A worker that takes documents, without its engine."""

    def __init__(self) -> None:
        self.side = Side()
        self.lines: list[str] = []
        self.answers: list[Any] = []
        self.ours, theirs = channel_pair()
        self.worker = object.__new__(NodeWorker)
        self.worker.channel, self.worker._prepared, self.worker._waiting = theirs, None, collections.deque()
        self.control: Any = SimpleNamespace(
            access=SimpleNamespace(commands=self.side.commands), log=SimpleNamespace(report=lambda _, text: self.lines.append(text)),
            signals=SimpleNamespace(reading=Reading()),
            engine=SimpleNamespace(answer=self.answers.extend, hold_connects=lambda _: None, begin_reload=lambda _: None))

    def take(self, text: bytes) -> list[Object]:
        self.worker._do(self.control, {"do": "rules", "stamp": "2.b", "count": 7}, [document_of("2.b", text).fd])
        return received(self.ours)

    def close(self) -> None:
        self.ours.close()
        if not self.worker.channel.closed:
            self.worker.channel.close()


def test_a_worker_uses_a_new_document_and_disconnects_the_clients_that_it_concerns() -> None:
    node = Node()
    tree = json.loads(node.side.directory.document.content())
    tree["clients"] = [one for one in tree["clients"] if one["username"] != "ann"]
    assert node.take(json.dumps(tree).encode()) == [{"is": "uses", "count": 7}]
    assert [one.usernames for one in node.answers] == [["ann"]] and len(node.side.rules) == 1
    newest = node.side.directory.document
    node.side.directory.document = document_of("1.a", content())    # a reload was prepared with the document of before
    node.worker._apply(node.control)
    assert len(node.side.rules) == 2 and node.side.directory.document is newest
    assert "ann" not in node.side.directory.state.clients
    node.close()


def test_a_worker_uses_a_document_that_comes_while_it_reads_a_configuration() -> None:
    node = Node()
    used: list[Object] = []

    def load() -> None:                 # it lasts until the document is in use
        poll = select.poll()
        poll.register(node.ours.fileno(), select.POLLIN)
        for count in (7, 8):
            node.ours.send({"do": "passage", "count": count})
            node.ours.send({"do": "rules", "stamp": f"{count}.a", "count": count}, [document_of("", content()).fd])
        while len(used) < 3:
            assert poll.poll(1000 * TIMEOUT_S)
            used.extend(received(node.ours))
        raise ConfigError("read")

    node.control.load = load
    node.worker._waiting.append(({"do": "rules", "stamp": "6.a", "count": 6}, [document_of("", content()).fd]))    # it came with `check`
    node.worker._check(node.control, {"do": "check", "round": 1, "reloads": 1, "content": "", "state": ""})
    assert [(one["is"], one["count"]) for one in used] == [("uses", 6), ("uses", 7), ("uses", 8)]
    assert [(message, fds) for message, fds in node.worker._waiting] == [({"do": "passage", "count": 7}, []), ({"do": "passage", "count": 8}, [])]
    assert [one["error"] for one in received(node.ours)] == ["read"]
    node.close()


def test_a_worker_that_cannot_use_a_document_ends() -> None:
    node = Node()
    assert node.take(b"{") == []
    assert node.worker.channel.closed and "A change of dynamic security cannot be taken" in node.lines[0]
    node.close()


def test_a_worker_without_a_document_does_not_read_the_file(tmp_path: Path) -> None:
    (tmp_path / "dynsec.json").write_bytes(content())
    (tmp_path / "mosq.conf").write_text(f"listener 1883\npersistence true\ncluster redis://host\ncluster_node a\ndynamic_security {tmp_path}/dynsec.json\n")
    config = load_config(str(tmp_path / "mosq.conf"))
    with pytest.raises(ConfigError, match="has no document of dynamic security yet"):
        Access(config, lambda *_: None, None)
    access = Access(config, lambda *_: None, None, document=document_of("1.a", content(clients=[{"username": "eve"}])))
    assert access.directory is not None and set(access.directory.state.clients) == {"admin", "eve"}
    access.close()


def test_a_node_needs_no_folder_for_the_file(tmp_path: Path) -> None:
    text = f"listener 1883\npersistence true\n{{}}dynamic_security {tmp_path}/missing/dynsec.json\n"
    for name, lines in (("node", "cluster redis://host\ncluster_node a\n"), ("alone", "")):
        (tmp_path / name).write_text(text.format(lines))
    readable_directory(load_config(str(tmp_path / "node")))
    with pytest.raises(ConfigError, match="Unable to write the dynamic security file"):
        readable_directory(load_config(str(tmp_path / "alone")))
