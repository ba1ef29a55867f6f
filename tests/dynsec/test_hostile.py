"""Test thousands of senseless commands: each gets an answer, none is half done, and the result can be written, read and compiled."""

from __future__ import annotations

import json
import random

import pytest

from cext.testing.roles_api import PyRoles
from mosq.server.admin.control import Requester
from mosq.auth.dynsec.commands import COMMANDS, Commands
from mosq.auth.dynsec.directory import Directory
from mosq.auth.dynsec.model import State
from mosq.auth.dynsec.store import read, tree_of
from tests.dynsec.admin import state
from tests.harness.control import Woken, asked
from tests.harness.effort import tries

NAMES = ("a", "b", "c", "admin", "all", "\u00e9", "x y")
VALUES: tuple[object, ...] = (None, True, False, 0, -1, 5, 1e300, -1e300, 2.5, 10**400, "", "a", "b", "a#", "+/%u", "\0", "a\0b", "\ud800", "\udc80", "\x07", [], {}, [1],
                              [[]], [{}], "x" * 70_000, "/" * 300)
KINDS = ("publishClientSend", "PUBLISHclientRECEIVE", "subscribePattern", "subscribeLiteral", "unsubscribeLiteral", "unsubscribePattern", "subscribe", "nosuch")
FIELDS = ("username", "groupname", "rolename", "clientid", "textname", "textdescription", "priority", "topic", "acltype", "allow", "verbose", "count", "offset",
          "allowwildcardsubs", "correlationData", "roles", "groups", "clients", "acls")


def value(dice: random.Random, field: str) -> object:
    if dice.random() < 0.12:
        return dice.choice(VALUES)
    if field in ("username", "groupname", "rolename", "clientid", "textname", "textdescription", "correlationData"):
        return dice.choice(NAMES)
    if field == "topic":
        return dice.choice(("a", "a/#", "+/b", "%u/%c", "$share/g/a", "#"))
    if field == "acltype":
        return dice.choice(KINDS)
    if field in ("allow", "verbose", "allowwildcardsubs"):
        return dice.random() < 0.5
    if field in ("priority", "count", "offset"):
        return dice.randint(-5, 5)
    inner = {"roles": ("rolename", "priority"), "groups": ("groupname", "priority"), "clients": ("username", "priority"),
             "acls": ("acltype", "topic", "priority", "allow")}[field]
    return [{name: value(dice, name) for name in inner if dice.random() < 0.95} for _ in range(dice.randint(0, 3))]


def command(dice: random.Random) -> object:
    made: dict[str, object] = {"command": dice.choice(list(COMMANDS)) if dice.random() < 0.98 else dice.choice(VALUES)}
    if "password" not in str(made["command"]).lower():
        made |= {field: value(dice, field) for field in FIELDS if dice.random() < 0.7}
    return made


def is_whole(made: State) -> None:
    """Check that both ends of each membership exist."""
    assert all(made.clients[name].username == name for name in made.clients)
    for client in made.clients.values():
        assert all(client.username in made.roles[name].clients for name in client.roles)
        assert all(made.groups[name].clients[client.username] == priority for name, priority in client.groups.items())
    for group in made.groups.values():
        assert all(group.groupname in made.roles[name].groups for name in group.roles)
        assert all(group.groupname in made.clients[name].groups for name in group.clients)
    for role in made.roles.values():
        assert all(role.rolename in made.clients[name].roles for name in role.clients)
        assert all(role.rolename in made.groups[name].roles for name in role.groups)
    assert made.anonymous is None or made.anonymous in made.groups


class FakeEngine:
    def __init__(self) -> None:
        self.roles: PyRoles | None = None

    def set_roles(self, spec: dict, places: list[int]) -> None:
        assert places == [0]
        self.roles = PyRoles(spec)

    def clients(self) -> list[dict]:
        return [{"id": "c", "username": "a", "address": "127.0.0.1"}, {"id": "d", "username": None, "address": None}]


@pytest.mark.again("hostile")
@pytest.mark.parametrize("seed", range(tries(12, 2)))
def test_random_commands_leave_a_consistent_state(tmp_path, seed: int) -> None:
    path = tmp_path / "d.json"
    path.write_text(json.dumps(state()))
    lines: list[str] = []
    engine, directory = FakeEngine(), Directory(str(path), None, lambda *_: None)
    directory.save = lambda: None                       # the file is compared at the end
    commands = Commands(directory, lambda: [0], lambda: engine, lambda _, line: lines.append(line), woken := Woken())
    dice = random.Random(seed)
    done = 0
    for _ in range(400):
        requester = Requester("c\n", dice.choice((None, "admin")), "127.0.0.1", 0)
        payload = json.dumps({"commands": [command(dice) for _ in range(dice.randint(0, 4))]}).encode()
        if dice.random() < 0.05:
            payload = payload[:dice.randrange(len(payload))]
        ((topic, answer),) = asked(commands.answer, requester, payload, woken)
        assert topic == "$CONTROL/dynamic-security/v1/response"
        said = json.loads(answer.decode("utf-8", "surrogateescape"))["responses"]
        assert all({"command"} <= set(one) <= {"command", "data", "error", "correlationData"} for one in said)
        done += sum("error" not in one for one in said)
        assert not any("Internal" in one.get("error", "") and one["command"].lower() not in ("createclient", "creategroup", "addclientrole") for one in said)
        is_whole(directory.state)
        assert all(then.kind == "kick" for then in requester.further_answers)
    assert done > 150
    again, _ = read(json.dumps(tree_of(directory.state)).encode("utf-8", "surrogatepass"))
    assert tree_of(again) == tree_of(directory.state)
    assert engine.roles is not None and all("\n" not in line for line in lines)
