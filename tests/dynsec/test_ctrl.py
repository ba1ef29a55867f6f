"""Test administration by Debian's mosquitto_ctrl, and files that move from one broker to the other."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.dynsec.admin import PASSWORD, Ruled, lets_in, login, state
from tests.dynsec.test_broker import acked, client
from tests.harness.packets import Publish, Subscribe

CTRL = shutil.which("mosquitto_ctrl") or "mosquitto_ctrl"
pytestmark = pytest.mark.interop


def ctrl(broker: Ruled, *words: str, fails: str = "", word: str = PASSWORD) -> str:
    """Return its output without the warning that there is no TLS."""
    done = subprocess.run([CTRL, "-h", "127.0.0.1", "-p", str(broker.port), "-u", "admin", "-P", word, "dynsec", *words], capture_output=True,
                          text=True, timeout=20, check=False)
    said = done.stdout + "".join(line for line in done.stderr.splitlines(keepends=True) if line.strip() and not line.startswith(("Warning:", "This means")))
    if fails:
        assert fails in said, said
    else:
        assert done.returncode == 0 and "rror" not in said, said
    return said


# all of its commands except `init`, which writes a file and connects to no broker
SCRIPT = (
    ("createRole", "r"), ("addRoleACL", "r", "publishClientSend", "t/#", "allow", "5"), ("addRoleACL", "r", "publishClientSend", "t/no", "deny", "9"),
    ("addRoleACL", "r", "publishClientReceive", "t/#", "allow", "5"), ("addRoleACL", "r", "subscribePattern", "t/#", "allow", "5"),
    ("addRoleACL", "r", "subscribeLiteral", "l", "allow"), ("addRoleACL", "r", "unsubscribePattern", "t/#", "allow"),
    ("addRoleACL", "r", "unsubscribeLiteral", "l", "allow"), ("removeRoleACL", "r", "unsubscribeLiteral", "l"), ("createRole", "gone"), ("deleteRole", "gone"),
    ("listRoles",), ("listRoles", "1", "1"), ("getRole", "r"),
    ("createClient", "ann", "-p", "ann"), ("createClient", "bound", "-p", "x", "-c", "id"), ("createClient", "gone", "-p", "x"), ("deleteClient", "gone"),
    ("setClientPassword", "bound", "y"), ("addClientRole", "ann", "r", "7"), ("addClientRole", "bound", "r"), ("removeClientRole", "bound", "r"),
    ("disableClient", "bound"), ("enableClient", "bound"), ("setClientId", "bound", "other"), ("listClients",), ("listClients", "2", "1"),
    ("getClient", "ann"), ("getClient", "bound"),
    ("createGroup", "g"), ("createGroup", "h"), ("deleteGroup", "h"), ("addGroupRole", "g", "r", "3"), ("addGroupClient", "g", "ann", "2"),
    ("addGroupClient", "g", "bound"), ("removeGroupClient", "g", "bound"), ("getGroup", "g"), ("listGroups",), ("setAnonymousGroup", "g"), ("getAnonymousGroup",),
    ("createRole", "s"), ("addGroupRole", "g", "s"), ("removeGroupRole", "g", "s"),
    ("setDefaultACLAccess", "subscribe", "allow"), ("setDefaultACLAccess", "publishClientReceive", "deny"), ("getDefaultACLAccess",), ("getClient", "ann"),
)


def played(real: bool) -> tuple[list[str], list[object]]:
    with Ruled(state(), real) as broker:
        said = [ctrl(broker, *words) for words in SCRIPT]
        said += [ctrl(broker, *words, fails="rror") for words in (
            ("getClient", "none"), ("createRole", "r"), ("addRoleACL", "r", "publishClientSend", "a#", "allow"))]
        verdicts: list[object] = [lets_in(broker.port, *who) for who in (("ann", "ann"), ("ann", "x"), ("bound", "y"), ("bound", "y", "other"), ("gone", "x"))]
        ann, _ = login(broker.port, "ann", "ann", "ann", 5)
        verdicts += [acked(ann, topic) in (0, 0x10) for topic in ("t", "t/a", "t/no", "u")]
        ann.send(Subscribe(1, (("t/#", 0), ("l", 0), ("any", 0), ("t/no", 0))))
        verdicts.append(ann.read_packet().codes)
        for topic in ("t/a", "any"):
            boss = broker.admin(client_id=f"boss {topic}")
            boss.wire.send(Publish(topic, topic.encode(), 1, 5))
            boss.wire.read_packet()
        verdicts.append(ann.read_packet().payload)
        ann.expect_nothing()
        ann.close()
        return said, verdicts


def test_every_command_of_mosquitto_ctrl() -> None:
    ours, theirs = played(False), played(True)
    for words, one, other in zip((*SCRIPT, "none", "again", "bad"), ours[0], theirs[0], strict=True):
        assert one == other, words
    assert ours[1] == theirs[1]
    assert ours[1][:9] == [True, False, False, True, False, True, True, False, False]


def test_init_of_mosquitto_ctrl(tmp_path) -> None:
    path = tmp_path / "made.json"
    subprocess.run([CTRL, "dynsec", "init", str(path), "admin", PASSWORD], check=True, capture_output=True)
    with Ruled(json.loads(path.read_bytes())) as broker:
        assert ctrl(broker, "listClients") == "admin\n"
        ctrl(broker, "createClient", "ann", "-p", "ann")
        assert lets_in(broker.port, "ann", "ann") and not lets_in(broker.port, "ann", "x")


def test_a_file_is_exchanged_with_mosquitto_in_both_directions() -> None:
    """Test a file of Mosquitto that mosq changes and Mosquitto then reads: the answers are always the same."""
    asked = [{"command": "listRoles", "verbose": True}, {"command": "listGroups", "verbose": True}, {"command": "getDefaultACLAccess"},
             {"command": "getAnonymousGroup"}, {"command": "listClients"}]

    def state_of(broker: Ruled) -> str:
        said = broker.admin(client_id="asks").ask(*asked)
        for one in said[0]["data"]["roles"]:
            one.pop("allowwildcardsubs", None)
        return json.dumps(said)

    with Ruled(state(clients=[client("zoe", "all")]), real=True) as broker:
        for words in SCRIPT:
            ctrl(broker, *words)
        before = state_of(broker)
        file = broker.written()
    assert any("salt" in one for one in file["clients"]) or any("encoded_password" in one for one in file["clients"])
    with Ruled(file) as broker:
        assert state_of(broker) == before
        assert lets_in(broker.port, "ann", "ann") and lets_in(broker.port, "zoe", "zoe") and not lets_in(broker.port, "zoe", "x")
        ctrl(broker, "createClient", "new", "-p", "new")
        ctrl(broker, "setClientPassword", "zoe", "other")
        before = state_of(broker)
        file = broker.written()
    with Ruled(file, real=True) as broker:
        assert state_of(broker) == before
        assert lets_in(broker.port, "new", "new") and lets_in(broker.port, "ann", "ann")
        assert lets_in(broker.port, "zoe", "other") and not lets_in(broker.port, "zoe", "zoe")
