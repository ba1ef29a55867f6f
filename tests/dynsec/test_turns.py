"""Test the effect of a message of many commands on the control thread, and the result if something fails."""

from __future__ import annotations

import json
import signal
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from mosq.server.admin import commands as envelope
from mosq.server.admin.control import Requester, ControlTopics
from mosq.auth.hashes import Hash
from mosq.auth.dynsec import context, hashing, on_roles
from mosq.auth.dynsec import commands as dynsec
from mosq.auth.dynsec.commands import TOPIC, Commands
from mosq.auth.dynsec.directory import Directory
from mosq.records import CommandRequest
from tests.dynsec.admin import Object, Ruled, lets_in, password, state
from tests.harness.control import WAIT_S, Woken, asked
from tests.harness.faults import until

if TYPE_CHECKING:
    from pathlib import Path

HELD = [{"username": name, "roles": [{"rolename": "r"}]} for name in ("ann", "ben")]


class Side:
    """Run dynamic security without a broker."""

    def __init__(self, path: Path, **content: Any) -> None:
        path.write_text(json.dumps(state(**content)))
        self.lines: list[str] = []
        self.directory = Directory(str(path), None, lambda *_: None)
        self.woken = Woken()
        self.connections_asked = 0
        self.refuses: list[Exception] = []
        self.places = [0]
        self.in_force: Object = {}
        engine = SimpleNamespace(set_roles=self.set_roles, clients=self.clients)
        self.commands = Commands(self.directory, lambda: self.places, lambda: engine,  # type: ignore[arg-type, return-value]
                                 lambda _, line: self.lines.append(line), self.woken)  # fmt: skip

    def set_roles(self, spec: Object, places: list[int]) -> None:
        if self.refuses:
            raise self.refuses.pop()
        self.in_force = spec

    def clients(self) -> list[Object]:
        self.connections_asked += 1
        return [{"id": "c", "username": "ann", "address": "127.0.0.1"}]

    def ask(self, *given: Object) -> tuple[list[Object], list[tuple[Any, ...]]]:
        requester = Requester("boss", "admin", "127.0.0.1", 0)
        [(topic, answer)] = asked(self.commands.answer, requester, json.dumps({"commands": given}).encode(), self.woken)
        assert topic == f"{TOPIC}/response"
        return json.loads(answer)["responses"], requester.further_answers


@pytest.fixture
def side(tmp_path: Path) -> Side:
    return Side(tmp_path / "d.json", clients=HELD, roles=[{"rolename": "r", "acls": []}])


# ---------------------------------------------------------------- bounds

def test_answers_are_bounded(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "RESPONSES_BYTES_MAX", 2000)
    listing = {"command": "listClients", "verbose": True, "correlationData": "x"}
    said, _ = side.ask({"command": "createRole", "rolename": "new"}, *[listing] * 500, {"command": "createRole", "rolename": "late"})
    assert said[-1] == {"command": "listClients", "error": "Too many commands at once", "correlationData": "x"}
    assert all("data" in one for one in said[1:-1])
    assert len(json.dumps(said[:-2])) < 2100 + len(said) * 20
    assert {"new", "late"} & set(side.directory.state.roles) == {"new"}         # exactly the answered commands are done
    assert side.connections_asked == 1


def test_a_batch_yields_between_its_commands(side: Side) -> None:
    work = side.commands.answer(Requester("boss", "admin", "", 0), json.dumps({"commands": [{"command": "getDetails"}] * 7}).encode())
    assert [next(work) for _ in range(7)] == [True] * 7
    with pytest.raises(StopIteration) as stop:
        next(work)
    assert len(json.loads(stop.value.value[0][1])["responses"]) == 7


# ---------------------------------------------------------------- passwords

def test_passwords_are_hashed_elsewhere(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()

    def made(word: bytes) -> Hash:
        threads.add(threading.current_thread())
        return real(word)

    real = hashing.made
    monkeypatch.setattr(hashing, "made", made)
    monkeypatch.setattr(context, "made", made)
    said, then = side.ask({"command": "CREATEclient", "username": "new", "password": "1", "correlationData": "a"}, {"command": "nonsense", "password": "x"},
                          {"command": "setClientPassword", "username": "new", "password": "2"}, {"command": "createClient", "username": "no"},
                          {"command": "createClient", "username": "new", "password": "3"}, {"command": "modifyClient", "username": "ann", "PASSWORD": "2"},
                          {"command": "createClient", "username": "empty", "password": ""})
    assert said == [{"command": "CREATEclient", "correlationData": "a"}, {"command": "nonsense", "error": "Unknown command"},
                    {"command": "setClientPassword"}, {"command": "createClient"}, {"command": "createClient", "error": "Client already exists"},
                    {"command": "modifyClient"}, {"command": "createClient"}]
    assert threads
    assert threading.current_thread() not in threads
    clients = side.directory.state.clients
    new, ann, empty = (clients[name].hash for name in ("new", "ann", "empty"))
    assert new is not None and ann is not None and empty is not None
    assert new.matches(b"2") and ann.matches(b"2") and empty.matches(b"")
    assert new.salt != ann.salt         # equal passwords must not be visible
    assert clients["no"].hash is None
    assert then[0].kind == "kick" and set(then[0].usernames) == {"new", "ann"}


def test_commands_wait_for_hashes_while_reads_are_answered(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    may_go_on = threading.Event()

    def made(word: bytes) -> Hash:
        assert may_go_on.wait(WAIT_S)
        return real(word)

    real = hashing.made
    monkeypatch.setattr(hashing, "made", made)
    topics = ControlTopics(lambda _, line: None, side.woken)
    side.commands.add_to(topics)
    topics.add("$CONTROL/other", lambda requester, payload: [("answer", payload)])

    def request(topic: str, *given: Object) -> CommandRequest:
        return CommandRequest(1, 0, "boss", "admin", "::1", topic, json.dumps({"commands": given}).encode(), None)

    role = {"command": "createRole", "rolename": "new"}
    answers, _ = topics.take([request(TOPIC, role, {"command": "setClientPassword", "username": "ann", "password": "x"}),
                              request(TOPIC, {"command": "deleteRole", "rolename": "new"}), request("$CONTROL/other")])
    until(lambda: answers.extend(topics.take([])[0]) or answers)       # a turn on a busy machine may end before the third request
    assert [answer.topic for answer in answers] == ["answer"]
    assert "new" not in side.directory.state.roles
    may_go_on.set()
    answers = []
    while len(answers) < 3:
        assert side.woken.wait(WAIT_S)
        side.woken.clear()
        answers += topics.take([])[0]
    assert [answer.kind for answer in answers] == ["publish", "kick", "publish"]         # in the order of the commands
    assert b"error" not in answers[2].payload


def test_a_directory_replaced_during_a_batch_is_not_changed(side: Side) -> None:
    work = side.commands.answer(Requester("boss", "admin", "", 0), b'{"commands":[{"command":"createRole","rolename":"a"},{"command":"createRole","rolename":"b"}]}')
    assert next(work)
    side.places = []
    side.directory.hashing.close(WAIT_S)
    with pytest.raises(StopIteration) as stop:
        next(work)
    assert stop.value.value == []
    assert side.in_force == {}


def test_close_ends_a_batch_that_was_never_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed, woken = hashing.Hashing(), Woken()
    monkeypatch.setattr(threading.Thread, "start", lambda thread: None)         # the thread does not start in time
    monkeypatch.setattr(threading.Thread, "ident", 1)
    monkeypatch.setattr(threading.Thread, "join", lambda thread, within_s: None)
    batch = hashed.begin({0: b"x"}, woken)
    assert not batch.is_done
    hashed.close(WAIT_S)
    assert batch.is_done and woken.is_set()
    assert batch.hashes == {}


def test_without_a_thread_passwords_are_hashed_in_the_caller(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    def starts(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", starts)
    said, _ = side.ask({"command": "setClientPassword", "username": "ann", "password": "2"})
    assert said == [{"command": "setClientPassword"}]
    ann = side.directory.state.clients["ann"].hash
    assert ann is not None and ann.matches(b"2")


def test_a_reload_while_many_passwords_are_hashed() -> None:
    """Test that signals are handled during hashing, and that commands in progress continue afterwards."""
    with Ruled(state(clients=[{"username": "ann", **password("ann")}])) as broker:
        boss = broker.admin()
        made = [{"command": "createClient", "username": f"u{i}", "password": f"p{i}"} for i in range(300)]
        boss.publish(json.dumps({"commands": made}).encode())
        broker.send_signal(signal.SIGHUP)
        assert lets_in(broker.port, "ann", "ann")
        assert json.loads(boss.hear()) == {"responses": [{"command": "createClient"}] * 300}
        assert lets_in(broker.port, "u299", "p299")
        assert len(broker.written()["clients"]) == 302


# ---------------------------------------------------------------- failures

def test_rules_that_cannot_be_applied(side: Side) -> None:
    side.refuses = [MemoryError()]
    said, then = side.ask({"command": "getDetails"}, {"command": "deleteRole", "rolename": "r", "correlationData": "1"}, {"command": "disableClient", "username": "ann"})
    assert "data" in said[0]
    assert said[1:] == [{"command": "deleteRole", "error": "Internal error", "correlationData": "1"}, {"command": "disableClient", "error": "Internal error"}]
    assert then[0].kind == "kick" and set(then[0].usernames) == {"ann", "ben"}
    assert any("could not be put in force" in line and "MemoryError" in line for line in side.lines)
    assert side.in_force == {}
    said, _ = side.ask({"command": "getDetails"})           # the next message tries again
    assert "data" in said[0]
    assert len(side.in_force["roles"]) == 2                 # admin, all
    side.in_force = {}
    side.ask({"command": "getDetails"})
    assert side.in_force == {}                              # the broker tries only once


def test_a_failed_command_does_not_stop_the_others(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(of: context.Doing) -> None:
        on_roles.create(of)
        of.kicks.add("ben")
        raise KeyError("secret")

    monkeypatch.setitem(dynsec.COMMANDS, "createrole", fails)
    said, then = side.ask({"command": "disableClient", "username": "ann"}, {"command": "createRole", "rolename": "half"}, {"command": "getDetails"})
    assert [one.get("error") for one in said] == [None, "Internal error", None]
    assert set(then[0].usernames) == {"ann", "ben"}
    assert [line for line in side.lines if "failed" in line] == ["Error: A command of dynamic security failed: createrole: KeyError."]
    assert len(side.in_force["roles"]) == len(side.directory.state.roles) == 4
