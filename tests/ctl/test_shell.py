"""Test the shell of `mosq ctl`: commands from standard input, and completion and history on a terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from mosq.cli.commands import main
from mosq.tools.ctl import broker, dynsec
from mosq.tools.ctl.connection import Connection
from mosq.tools.ctl.conversation import Conversation
from mosq.tools.ctl.shell import Shell
from tests.ctl.answering import DYNSEC, OWN, Answering
from tests.harness.broker import ROOT, free_port

DATA: dict[str, dict[str, Any]] = {
    "listClients": {"clients": ["ann", "anton", "ben-7"]}, "listGroups": {"groups": ["grp/1"]}, "listRoles": {"roles": ["role1", "role2"]},
    "getAnonymousGroup": {"group": {"groupname": "grp/1"}}, "listBridges": {"bridges": []},
}  # fmt: skip


def answer(command: dict[str, Any]) -> dict[str, Any]:
    name = command["command"]
    if name == "deleteRole":
        return {"error": "Role not found"}
    return {"data": DATA[name]} if name in DATA else {}


@pytest.fixture(scope="module")
def there() -> Iterator[Answering]:
    with Answering(answer) as made:
        yield made


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def shell(monkeypatch: pytest.MonkeyPatch, text: str, *options: str) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    return main(["ctl", *options])


def at(there: Answering) -> tuple[str, ...]:
    return ("-h", "localhost", "-p", str(there.port))


# ---------------------------------------------------------------- without a terminal

def test_commands_of_a_script(there: Answering, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    there.asked.clear()
    script = "# a comment\ndynsec\nlistRoles\n\nCREATErole 'role 3'\naddRoleACL r subscribeLiteral allow 5 a/b\nreturn\nbroker\nlistBridges\nkickClient c\n"
    assert shell(monkeypatch, script, *at(there)) == 0
    assert capsys.readouterr() == ("role1\nrole2\nOK\nOK\nOK\n", "")
    assert there.asked == [
        (DYNSEC, {"command": "listRoles"}), (DYNSEC, {"command": "createRole", "rolename": "role 3"}),
        (DYNSEC, {"command": "addRoleACL", "rolename": "r", "acltype": "subscribeLiteral", "topic": "a/b", "allow": True, "priority": 5}),
        (OWN, {"command": "listBridges"}), (OWN, {"command": "kickClient", "clientid": "c"})]  # fmt: skip


def test_the_connect_command(there: Answering, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    script = f"auth ann\nsecret\nconnect mqtt://localhost:{there.port}\ndynsec\ngetAnonymousGroup\ndisconnect\nconnect\ndynsec\nlistRoles\nexit\nnever\n"
    assert shell(monkeypatch, script) == 0
    assert capsys.readouterr().out == "password: \ngrp/1\nrole1\nrole2\n"


@pytest.mark.parametrize(("script", "why"), [
    ("dynsec\nnope\n", "Unknown command 'nope'"), ("listRoles\n", "Unknown command 'listRoles'"), ("return\n", "Unknown command 'return'"),
    ("dynsec\ndeleteRole r\n", "deleteRole: Error: Role not found."), ("dynsec\ngetRole\n", "Not enough arguments: rolename missing"),
    ("dynsec\ngetRole 'x\n", "No closing quotation."), ("help nope\n", "Unknown command 'nope'"), ("auth\n", "Unknown command 'auth'"),
    ("dynsec\nlistRole\n", "Unknown command 'listRole'. Did you mean 'listRoles'"), ("dynsce\n", "Unknown command 'dynsce'. Did you mean 'dynsec'?"),
    ("help dissconnect\n", "Unknown command 'dissconnect'. Did you mean 'disconnect'?"),
])
def test_a_script_ends_at_the_first_error(there: Answering, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], script: str, why: str) -> None:
    assert shell(monkeypatch, f"{script}dynsec\nlistRoles\n", *at(there)) == 1
    out, err = capsys.readouterr()
    assert why in err
    assert out == ""


def test_a_user_or_port_option_connects_at_once(there: Answering, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for options in (("-p", str(there.port)), ("-u", "ann", "-P", "secret", "-p", str(there.port))):
        assert shell(monkeypatch, "dynsec\nlistRoles\n", *options) == 0
        assert capsys.readouterr().out == "role1\nrole2\n"


@pytest.mark.parametrize("line", ["dynsec", "listRoles", "disconnect", "RETURN"])
def test_commands_that_need_a_connection(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str) -> None:
    assert shell(monkeypatch, f"{line}\n") == 1
    assert capsys.readouterr().err == "Not connected: `connect` first.\n"
    assert shell(monkeypatch, "nonsense\n") == 1
    assert capsys.readouterr().err == "Unknown command 'nonsense'\n"


def test_no_broker_at_the_address(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell(monkeypatch, "dynsec\n", "-h", "localhost", "-p", str(free_port())) == 1
    assert "Connection refused" in capsys.readouterr().err
    assert shell(monkeypatch, "connect http://x\n") == 1
    assert "Unsupported URL scheme 'http'" in capsys.readouterr().err


def test_json_in_the_shell(there: Answering, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell(monkeypatch, "dynsec\nlistRoles\ncreateRole x\n", "--json", *at(there)) == 0
    assert capsys.readouterr().out == '{"command": "listRoles", "data": {"roles": ["role1", "role2"]}}\n{"command": "createRole"}\n'


def test_help(there: Answering, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell(monkeypatch, "help\nhelp dynsec\ndynsec\nhelp\nhelp addRoleACL\nhelp exit\n", *at(there)) == 0
    out = capsys.readouterr().out
    assert all(f"\n{spec.usage}\n    {spec.help}\n" in out for spec in dynsec.SPECS)
    assert "addRoleACL <rolename> publishClientSend|" in out
    assert out.endswith("exit\n\nQuit the program.\n")
    assert shell(monkeypatch, "help\n") == 0
    assert capsys.readouterr().out.startswith("auth [username]\n")


# ---------------------------------------------------------------- completion

@pytest.fixture
def inside(there: Answering, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    connection = Connection()
    connection.port = there.port
    made = Shell(connection, (dynsec.MODULE, broker.MODULE))
    made.conversation = Conversation(connection)
    made.module = dynsec.MODULE
    there.asked.clear()
    yield made
    made._close()


def completed(shell: Shell, line: str) -> list[str]:
    text = re.split(r"[ \t]", line)[-1]
    begin = len(line) - len(text)
    return shell.completenames(text) if begin == 0 else shell.completedefault(text, line, begin, len(line))


@pytest.mark.parametrize(("line", "found"), [
    ("getA", ["getAnonymousGroup"]), ("GETD", ["getDefaultACLAccess", "getDetails"]), ("re", ["removeClientRole", "removeGroupRole", "removeGroupClient", "removeRoleACL", "return"]),
    ("getClient an", ["ann", "anton"]), ("getClient ", ["ann", "anton", "ben-7"]), ("getGroup g", ["grp/1"]), ("addClientRole ann ro", ["role1", "role2"]),
    ("addClientRole ann role1 ", []), ("addRoleACL r sub", ["subscribeLiteral", "subscribePattern"]), ("addRoleACL r subscribeLiteral t ", ["allow", "deny"]),
    ("setDefaultACLAccess un", ["unsubscribe"]), ("createClient ann -", ["-i", "-c", "-p"]), ("createClient ann -i ", []), ("help getR", ["getRole"]),
    ("nope x", []), ("modifyRole role1 text", ["textName", "textDescription"]),
])
def test_completion(inside: Shell, line: str, found: list[str]) -> None:
    assert completed(inside, line) == found


def test_names_for_completion_are_requested_once(inside: Shell, there: Answering) -> None:
    for _ in range(3):
        completed(inside, "getRole r")
    assert there.asked == [(DYNSEC, {"command": "listRoles"})]
    inside.onecmd("createRole new")
    completed(inside, "getRole r")
    assert [command["command"] for _, command in there.asked] == ["listRoles", "createRole", "listRoles"]


def test_completion_before_a_connection() -> None:
    made = Shell(Connection(), (dynsec.MODULE, broker.MODULE))
    assert completed(made, "") == ["auth", "connect", "exit", "help"]
    assert completed(made, "getClient ") == []


def test_client_ids_are_completed(inside: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    inside.module = broker.MODULE
    monkeypatch.setitem(DATA, "listClients", {"clients": [{"clientid": "c1"}, {"clientid": "d1"}, {}]})
    assert completed(inside, "kickClient c") == []       # an invalid answer
    inside._names.clear()
    monkeypatch.setitem(DATA, "listClients", {"clients": [{"clientid": "c1"}, {"clientid": "d1"}]})
    assert completed(inside, "kickClient c") == ["c1"]
    assert completed(inside, "listClients --state o") == ["offline"]


# ---------------------------------------------------------------- a terminal

class Terminal:
    """Run the shell on a pseudo terminal."""

    def __init__(self, *words: str, home: Path) -> None:
        ours, theirs = pty.openpty()
        self.fd = ours
        env = {**os.environ, "XDG_CONFIG_HOME": str(home), "TERM": "dumb", "INPUTRC": "/dev/null", "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen([sys.executable, "-m", "mosq", "ctl", *words], stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=ROOT,
                                        start_new_session=True)
        os.close(theirs)
        self.seen = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.fd)

    def until(self, text: str) -> str:
        """Return the output up to this text."""
        give_up = time.monotonic() + 20
        while text not in self.seen:
            assert select.select([self.fd], [], [], max(0.0, give_up - time.monotonic()))[0], f"{text!r} did not come: {self.seen!r}"
            try:
                self.seen += os.read(self.fd, 4096).decode()
            except OSError:     # end of the shell
                raise AssertionError(f"{text!r} did not come: {self.seen!r}") from None
        before, _, self.seen = self.seen.partition(text)
        return before

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())


def test_on_a_terminal(there: Answering, home: Path) -> None:
    there.asked.clear()
    with Terminal(home=home) as term:
        term.until("> ")
        term.type("auth ann\n")
        term.until("password: ")
        term.type("secret\n")
        term.until("> ")
        term.type(f"connect mqtt://localhost:{there.port}\n")
        term.until(f"mqtt://localhost:{there.port}> ")
        term.type("dyn\t\n")
        term.until(f"mqtt://localhost:{there.port}|dynsec> ")
        term.type("getAnon\t\n")
        assert "grp/1" in term.until("|dynsec> ")
        term.type("addClientRole ben\trol\t1\n")
        assert "OK" in term.until("|dynsec> ")
        term.type("nope\n")
        term.until("Unknown command 'nope'")
        term.until("|dynsec> ")
        term.type("\x10\x10\x10\n")      # the history: getAnonymousGroup again
        assert "grp/1" in term.until("|dynsec> ")
        term.type("\x03")
        term.type("exit\n")
        assert term.process.wait(10) == 0
    asked = [command for _, command in there.asked if not command["command"].startswith("list")]
    assert asked == [{"command": "getAnonymousGroup"}, {"command": "addClientRole", "username": "ben-7", "rolename": "role1"}, {"command": "getAnonymousGroup"}]
    assert "secret" not in term.seen


def test_the_end_of_input_ends_the_shell(there: Answering, home: Path) -> None:
    with Terminal(*at(there), home=home) as term:
        term.until(f"mqtt://localhost:{there.port}> ")
        term.type("\x04")
        assert term.process.wait(10) == 0
