"""Test dynamic security in a broker: logins, rights, and the effect of changes on connected clients."""

from __future__ import annotations

import base64
import http.client
import json
import signal
import time

import pytest

import mosq
from mosq.auth.hashes import PBKDF2, new_hash
from tests.dynsec.admin import LET_IN, Admin, PASSWORD, REFUSED, Object, Ruled, lets_in, login, password, role, state
from tests.harness.broker import Broker, free_port
from tests.harness.packets import Connect, Publish, Subscribe, Unsubscribe, Will
from tests.harness.wire import Wire

WAIT_S = 20
NOT_AUTHORISED = 0x87
KICKED = 0x98


def client(name: str, *roles: str, **more: object) -> Object:
    return {"username": name, "roles": [{"rolename": one} for one in roles], **password(name), **more}


def until_logged(broker: Broker, text: str) -> None:
    give_up = time.monotonic() + WAIT_S
    while text not in broker.log():
        assert time.monotonic() < give_up, broker.log()
        time.sleep(0.005)


def user(broker: Ruled, name: str, level: int = 5, **more: object) -> Wire:
    wire, rc = login(broker.port, name, name, name, level, **more)
    assert rc == LET_IN
    return wire


def acked(wire: Wire, topic: str) -> int:
    wire.send(Publish(topic, b"x", 1, 7))
    return int(wire.read_packet().rc)


def subscribed(wire: Wire, *filters: str) -> tuple[int, ...]:
    wire.send(Subscribe(3, tuple((one, 0) for one in filters)))
    return tuple(wire.read_packet().codes)


# ---------------------------------------------------------------- log-ins

def test_logins_of_configured_clients() -> None:
    content = state(clients=[
        client("ann"), client("off", disabled=True), client("bound", clientid="the one"),
        {"username": "none"}, {"username": "new", "encoded_password": "$7$1$c2FsdHNhbHQ=$" + password("x", 1)["password"]},
        {"username": "bad", "encoded_password": "$7$nonsense"}])
    with Ruled(content, config="auth_backoff false\n") as broker:
        assert lets_in(broker.port, "ann", "ann")
        for name, word in (("ann", "wrong"), ("ann", ""), ("ann", None), ("off", "off"), ("bound", "bound"), ("nobody", "x"), ("none", ""),
                           ("none", None), ("bad", "nonsense")):
            assert not lets_in(broker.port, name, word), name
        assert lets_in(broker.port, "bound", "bound", "the one")
        assert lets_in(broker.port, None, None)         # allow_anonymous decides
        assert "'bad' cannot log in" in broker.log()
        assert "nonsense" not in broker.log()


def test_without_allow_anonymous_a_name_is_needed() -> None:
    config = "listener {port} 127.0.0.1\ndynamic_security {dir}/dynsec.json\n"
    with Ruled(state(clients=[client("ann")]), config=config) as broker:
        assert lets_in(broker.port, "ann", "ann")
        assert not lets_in(broker.port, None, None)


def test_other_users_may_be_in_a_password_file() -> None:
    users = f"ben:{new_hash(PBKDF2, b'ben', 1)}\nann:{new_hash(PBKDF2, b'other', 1)}\n"
    with Ruled(state(clients=[client("ann")]), config="password_file {dir}/passwd\nauth_backoff false\n", files={"passwd": users}) as broker:
        assert lets_in(broker.port, "ann", "ann") and lets_in(broker.port, "ben", "ben")
        assert not lets_in(broker.port, "ann", "other")         # dynamic security decides about its own users
        ben, _ = login(broker.port, "ben", "ben", "ben", 5)
        assert acked(ben, "a") == NOT_AUTHORISED                # it has no rules for this user's topics
        ben.close()


# ---------------------------------------------------------------- rules

def test_roles_decide_about_publish_and_subscribe() -> None:
    content = state(
        clients=[client("ann", "r"), client("ben")],
        roles=[role("r", ("publishClientSend", "a/#", True), ("publishClientSend", "a/no", False, 5), ("publishClientSend", "own/%u/%c", True),
                    ("publishClientReceive", "a/secret", False), ("subscribePattern", "a/#", True), ("subscribeLiteral", "b/+", True),
                    ("unsubscribePattern", "a/keep", False), ("subscribePattern", "$share/g/a/#", True))])
    with Ruled(content) as broker:
        ann, ben, boss = user(broker, "ann"), user(broker, "ben"), broker.admin(level=5)
        assert [acked(ann, topic) for topic in ("a", "a/b", "own/ann/ann")] == [0x10, 0x10, 0x10]
        assert [acked(ann, topic) for topic in ("a/no", "b", "own/ann/ben", "own/ben/ann", "$CONTROL/x", "$SYS/x")] == [NOT_AUTHORISED] * 6
        assert acked(ben, "a") == NOT_AUTHORISED
        assert subscribed(ann, "a/#", "a/+", "b/+", "$share/g/a/b") == (0, 0, 0, 0)
        assert subscribed(ann, "b/x", "#", "c", "$share/h/a", "$CONTROL/#") == (NOT_AUTHORISED,) * 5
        assert subscribed(ann, "a/keep") == (0,)
        ann.send(Unsubscribe(4, ("a/keep", "a/+", "b/+", "$share/g/a/b")))
        assert ann.read_packet().codes == (NOT_AUTHORISED, 0, 0, 0)
        boss.wire.send(Publish("a/secret", b"1"), Publish("a/open", b"2"))
        assert ann.read_packet().payload == b"2"
        ann.expect_nothing()
        for wire in (ann, ben):
            wire.close()


def test_3_1_1_gets_a_refused_suback() -> None:
    with Ruled(state(clients=[client("ann")])) as broker:
        ann = user(broker, "ann", 4)
        assert subscribed(ann, "a") == (0x80,)
        ann.close()


def test_groups_anonymous_group_and_defaults() -> None:
    content = state(
        clients=[client("ann", "deny")], roles=[role("deny", ("publishClientSend", "x", False)), role("allow", ("publishClientSend", "#", True)),
                                                role("plain", ("subscribePattern", "#", True), allowwildcardsubs=False)],
        groups=[{"groupname": "g", "roles": [{"rolename": "allow"}, {"rolename": "plain"}], "clients": [{"username": "ann"}]}], anonymousGroup="g")
    with Ruled(content) as broker:
        ann = user(broker, "ann")
        anonymous, rc = login(broker.port, None, None, "anonymous", 5)
        assert rc == LET_IN
        assert (acked(ann, "x"), acked(ann, "y"), acked(anonymous, "x")) == (NOT_AUTHORISED, 0x10, 0x10)
        assert subscribed(ann, "a", "+") == (0, NOT_AUTHORISED)
        broker.admin().does("setDefaultACLAccess", acls=[{"acltype": "subscribe", "allow": True}, {"acltype": "publishClientSend", "allow": True}])
        assert acked(ann, "x") == NOT_AUTHORISED                # still connected, and the rules come before the defaults
        assert subscribed(anonymous, "$SYS/x", "$CONTROL/x") == (0, NOT_AUTHORISED)     # never by default
        for wire in (ann, anonymous):
            wire.close()


# ---------------------------------------------------------------- changes

CHANGES: dict[str, Object] = {      # for the client {u}, which has the role {u}-r and is in the group {u}-g, which has {u}-gr
    "deleteClient": {"username": "{u}"}, "disableClient": {"username": "{u}"}, "setClientPassword": {"username": "{u}", "password": "x"},
    "setClientId": {"username": "{u}", "clientid": "x"}, "modifyClient": {"username": "{u}", "textname": "x"},
    "addClientRole": {"username": "{u}", "rolename": "other"}, "removeClientRole": {"username": "{u}", "rolename": "{u}-r"},
    "addGroupClient": {"username": "{u}", "groupname": "h"}, "removeGroupClient": {"username": "{u}", "groupname": "{u}-g"},
    "addGroupRole": {"groupname": "{u}-g", "rolename": "other"}, "removeGroupRole": {"groupname": "{u}-g", "rolename": "{u}-gr"},
    "modifyGroup": {"groupname": "{u}-g"}, "deleteGroup": {"groupname": "{u}-g"}, "deleteRole": {"rolename": "{u}-gr"},
    "addRoleACL": {"rolename": "{u}-r", "acltype": "subscribePattern", "topic": "x", "allow": True},
    "removeRoleACL": {"rolename": "{u}-gr", "acltype": "publishClientSend", "topic": "x"},
    "modifyRole": {"rolename": "{u}-r", "acls": []},
}


def grouped(*users: str) -> Object:
    return state(
        clients=[*(client(name, f"{name}-r") for name in users), client("ben", "ben-r")],
        roles=[role("other"), role("ben-r"), *(role(f"{name}-r", ("publishClientSend", "will", True)) for name in users),
               *(role(f"{name}-gr", ("publishClientSend", "x", True)) for name in users)],
        groups=[{"groupname": "h"}, *({"groupname": f"{name}-g", "roles": [{"rolename": f"{name}-gr"}], "clients": [{"username": name}]}
                                      for name in users)])


def test_only_changed_clients_are_kicked_and_without_a_will() -> None:
    with Ruled(grouped(*CHANGES)) as broker:
        boss = broker.admin(level=5)
        assert subscribed(boss.wire, "will") == (0,)
        wires = {name: user(broker, name, will=Will("will", b"1")) for name in (*CHANGES, "ben")}
        for command, arguments in CHANGES.items():
            named = {field: value.replace("{u}", command) if isinstance(value, str) else value for field, value in arguments.items()}
            boss.does(command, **named)
            wire = wires.pop(command)
            assert wire.read_packet().rc == KICKED, command
            wire.expect_closed()
            until_logged(broker, f"Client {command} [127.0.0.1")
            for other in wires.values():
                other.expect_nothing()
            wire.close()
        boss.wire.expect_nothing()                  # no will was published
        for wire in wires.values():
            wire.close()


@pytest.mark.parametrize(("command", "more"), [("disableClient", {}), ("setClientPassword", {"password": "x"}), ("deleteClient", {})])
def test_a_client_changed_during_its_login_does_not_stay(command: str, more: Object) -> None:
    slow = {"username": "slow", **password("slow", 300_000)}         # hashing takes at least a tenth of a second
    with Ruled(state(clients=[slow]), config="auth_cache_seconds 0\nauth_timeout 60\n") as broker:
        boss = broker.admin()
        wire = Wire(broker.port, 4, WAIT_S)
        wire.send(Connect("slow", username="slow", password=b"slow"))
        until_logged(broker, "New connection from")
        boss.does(command, username="slow", **more)
        if wire.read_packet().rc == LET_IN:         # the hash was faster than the command
            wire.expect_closed()
        wire.close()


def test_commands_without_effect_on_clients_kick_no_client() -> None:
    with Ruled(grouped("ann")) as broker:
        boss, ann = broker.admin(), user(broker, "ann")
        boss.does("createClient", username="c")
        boss.does("createRole", rolename="r9")
        boss.does("createGroup", groupname="g9")
        boss.does("enableClient", username="ann")
        boss.does("modifyRole", rolename="ann-r", textname="x")
        boss.ask({"command": "listClients", "verbose": True}, {"command": "getRole", "rolename": "ann-r"})
        ann.expect_nothing()
        ann.close()


def test_clients_without_a_name_are_disconnected_when_their_group_changes() -> None:
    with Ruled(state(groups=[{"groupname": "g"}, {"groupname": "h"}], roles=[role("r")])) as broker:
        boss = broker.admin()
        for command, arguments in (("setAnonymousGroup", {"groupname": "g"}), ("addGroupRole", {"groupname": "g", "rolename": "r"}),
                                   ("addRoleACL", {"rolename": "r", "acltype": "subscribePattern", "topic": "x", "allow": True})):
            wire, _ = login(broker.port, None, None, "anonymous", 5)
            boss.does(command, **arguments)
            assert wire.read_packet().rc == KICKED
            wire.close()


def test_a_client_that_changes_itself_gets_the_answer_first() -> None:
    with Ruled(state()) as broker:
        boss = broker.admin(level=5)
        boss.does("setClientPassword", username="admin", password="another word")
        assert boss.wire.read_packet().rc == KICKED
        assert not lets_in(broker.port, "admin", PASSWORD)
        assert lets_in(broker.port, "admin", "another word")


def test_several_commands_in_one_message() -> None:
    with Ruled(state()) as broker:
        said = broker.admin().ask(
            {"command": "createRole", "rolename": "r", "correlationData": "1", "acls": [{"acltype": "publishClientSend", "topic": "t", "allow": True}]},
            {"command": "createRole", "rolename": "r", "correlationData": "2"},
            {"command": "createClient", "username": "ann", "password": "ann", "roles": [{"rolename": "r"}]})
        assert said == [{"command": "createRole", "correlationData": "1"},
                        {"command": "createRole", "error": "Role already exists", "correlationData": "2"}, {"command": "createClient"}]
        ann = user(broker, "ann")
        assert acked(ann, "t") == 0x10
        ann.close()


def test_connections_are_listed() -> None:
    with Ruled(state(clients=[client("ann"), client("bound", clientid="bound")])) as broker:
        boss, ann, bound = broker.admin(), user(broker, "ann"), user(broker, "bound")
        said = boss.ask({"command": "getClient", "username": "ann"}, {"command": "getClient", "username": "bound"}, {"command": "listClients", "verbose": True})
        assert [one["data"]["client"]["connections"] for one in said[:2]] == [[{"address": "127.0.0.1"}]] * 2
        assert [one["connections"] for one in said[2]["data"]["clients"]] == [[{"address": "127.0.0.1"}]] * 3
        for wire in (ann, bound):
            wire.close()


def test_only_allowed_clients_send_commands_and_read_answers() -> None:
    content = state(clients=[client("ann", "all"), client("ear", "ears")],
                    roles=[role("ears", ("subscribePattern", "$CONTROL/#", True), ("publishClientReceive", "$CONTROL/#", True))])
    with Ruled(content) as broker:
        ann, ear = user(broker, "ann"), user(broker, "ear")
        assert subscribed(ann, "$CONTROL/#") == (NOT_AUTHORISED,)
        assert subscribed(ear, "$CONTROL/dynamic-security/v1/response") == (0,)
        command = b'{"commands": [{"command": "deleteClient", "username": "admin"}]}'
        for wire in (ann, ear):
            wire.send(Publish("$CONTROL/dynamic-security/v1", command, 1, 1))
            assert wire.read_packet().rc == NOT_AUTHORISED
        boss = broker.admin()
        assert boss.ask({"command": "listRoles", "count": 1})[0]["data"]["totalCount"] == 3
        assert b"listRoles" in ear.read_packet().payload       # the answer is published, as in Mosquitto
        for wire in (ann, ear):
            wire.close()


def test_an_unguarded_listener_cannot_send_commands() -> None:
    other = free_port()
    config = ("per_listener_settings true\nlistener {port} 127.0.0.1\nplugin dynamic-security\nplugin_opt_config_file {dir}/dynsec.json\n"
              f"listener {other} 127.0.0.1\nallow_anonymous true\n")
    with Ruled(state(), config=config) as broker:
        wire, rc = login(other, None, None, "c", 5)
        assert rc == LET_IN and subscribed(wire, "$CONTROL/#", "x") == (0, 0)       # this listener has no rules
        wire.send(Publish("$CONTROL/dynamic-security/v1", b'{"commands": [{"command": "deleteClient", "username": "admin"}]}'))
        wire.expect_nothing()
        assert broker.admin().ask({"command": "listClients"})[0]["data"]["clients"] == ["admin"]
        wire.close()


@pytest.mark.parametrize("again", ["", "log_type all\n"])
def test_a_reload_keeps_the_changes_of_commands(again: str) -> None:
    with Ruled(state(clients=[client("ann", "all")])) as broker:
        boss, ann = broker.admin(), user(broker, "ann")
        boss.does("createClient", username="ben", password="ben", roles=[{"rolename": "all"}])
        broker.put("nonsense: the file is not read again")
        broker.config.write_text(broker.config.read_text() + again)
        broker.send_signal(signal.SIGHUP)
        until_logged(broker, "Reloading config.")
        boss.does("createRole", rolename="since")
        assert acked(ann, "t") == 0x10
        ben = user(broker, "ben")
        assert acked(ben, "t") == 0x10
        assert {one["username"] for one in broker.written()["clients"]} == {"admin", "ann", "ben"}
        for wire in (ann, ben):
            wire.close()


def test_a_reload_can_add_and_remove_dynamic_security() -> None:
    with Ruled(state(clients=[client("ann")])) as broker:
        with_it = broker.config.read_text()
        without = "".join(line for line in with_it.splitlines(keepends=True) if "plugin" not in line)
        for text, rc, refused in ((without, LET_IN, 0x10), (with_it, REFUSED, NOT_AUTHORISED), (without, LET_IN, 0x10)):
            broker.config.write_text(text)
            broker.send_signal(signal.SIGHUP)
            give_up = time.monotonic() + WAIT_S
            while lets_in(broker.port, "nobody", "x") != (rc == LET_IN):
                assert time.monotonic() < give_up, broker.log()
            wire, said = login(broker.port, None, None, "c", 5)
            assert (said, acked(wire, "t")) == (LET_IN, refused)
            wire.close()


def test_retained_messages_of_a_client_that_lost_its_rights() -> None:
    content = state(clients=[client("ann", "r")], roles=[role("r", ("publishClientSend", "t", True))])
    with Ruled(content, config="check_retain_source true\n") as broker:
        ann, boss = user(broker, "ann"), broker.admin()
        ann.send(Publish("t", b"kept", 1, 1, retain=True))
        assert ann.read_packet().rc == 0x10
        boss.does("removeClientRole", username="ann", rolename="r")
        assert subscribed(boss.wire, "t") == (0,)
        boss.wire.expect_nothing()
        boss.does("addClientRole", username="ann", rolename="r")
        assert subscribed(boss.wire, "t") == (0,)
        assert boss.wire.read_packet().payload == b"kept"
        ann.close()


def test_dynamic_security_decides_before_an_acl_file() -> None:
    with Ruled(state(clients=[client("ann", "r")], roles=[role("r", ("publishClientSend", "no", False))]), config="acl_file {dir}/acl\n",
               files={"acl": "user ann\ntopic write no\ntopic write file\n"}) as broker:
        ann = user(broker, "ann")
        assert [acked(ann, topic) for topic in ("no", "file", "other")] == [NOT_AUTHORISED, 0x10, NOT_AUTHORISED]
        ann.close()


def test_dynamic_security_in_an_embedded_broker(tmp_path) -> None:
    path = tmp_path / "d.json"
    path.write_text(json.dumps(state(clients=[client("ann")])))
    with mosq.Broker(dynamic_security=str(path)) as broker:
        assert lets_in(broker.port, "ann", "ann") and not lets_in(broker.port, "ann", "x")
        boss = Admin(broker.port, "admin", PASSWORD, "boss", 4)
        boss.does("deleteClient", username="ann")
        assert not lets_in(broker.port, "ann", "ann")
        boss.does("createClient", username="new", password="hashed elsewhere")
        assert lets_in(broker.port, "new", "hashed elsewhere")
        assert subscribed(boss.wire, "t") == (0,)
        broker.publish("t", b"x")                   # the embedding program has all rights
        assert boss.wire.read_packet().payload == b"x"
        boss.wire.close()


def test_the_pages_of_the_http_api() -> None:
    web = free_port()
    content = state(clients=[client("ann", "no"), client("ben")], roles=[role("no", ("publishClientReceive", "/api/#", False))])
    config = f"listener {{port}} 127.0.0.1\ndynamic_security {{dir}}/dynsec.json\nauth_backoff false\nlistener {web} 127.0.0.1\nprotocol http_api\n"
    with Ruled(content, config=config) as broker:
        boss = broker.admin()

        def status(name: str, word: str) -> int:
            connection = http.client.HTTPConnection("127.0.0.1", web, timeout=WAIT_S)
            credentials = base64.b64encode(f"{name}:{word}".encode()).decode()
            connection.request("GET", "/api/v1/version", headers={"Authorization": f"Basic {credentials}"})
            code = connection.getresponse().status
            connection.close()
            return code

        assert [status("ann", "ann"), status("ben", "ben"), status("ben", "x")] == [403, 200, 401]
        boss.does("removeClientRole", username="ann", rolename="no")
        assert status("ann", "ann") == 200
        boss.does("setDefaultACLAccess", acls=[{"acltype": "publishClientReceive", "allow": False}])
        assert status("ann", "ann") == 403


def test_under_a_mount_point_rules_see_the_whole_topic() -> None:
    config = "listener {port} 127.0.0.1\nmount_point m/\ndynamic_security {dir}/dynsec.json\n"
    content = state(clients=[client("ann", "r")], roles=[role("r", ("publishClientSend", "m/t", True), ("subscribePattern", "m/a/#", True),
                                                           ("subscribeLiteral", "$share/g/m/b", True), ("unsubscribePattern", "m/a/no", False))])
    with Ruled(content, config=config) as broker:
        ann = user(broker, "ann")
        assert (acked(ann, "t"), acked(ann, "m/t")) == (0x10, NOT_AUTHORISED)
        assert subscribed(ann, "a/x", "m/a/x", "$share/g/b", "$share/g/m/b", "a/no") == (0, NOT_AUTHORISED, 0, NOT_AUTHORISED, 0)
        ann.send(Unsubscribe(4, ("a/x", "a/no")))
        assert ann.read_packet().codes == (0, NOT_AUTHORISED)
        ann.close()


def test_dynamic_security_with_a_python_plugin_that_defers() -> None:
    with Ruled(state(clients=[client("ann", "r")], roles=[role("r", ("publishClientSend", "t", True), ("subscribePattern", "s", True))]),
               config="plugin python:tests.dynsec.defers:Defers\n") as broker:
        ann = user(broker, "ann")
        assert (acked(ann, "t"), acked(ann, "u"), acked(ann, "never")) == (0x10, NOT_AUTHORISED, 0x10)
        assert subscribed(ann, "s", "u") == (0, NOT_AUTHORISED)
        ann.close()
        assert not lets_in(broker.port, "ann", "x")


def test_queued_messages_are_checked_when_the_client_returns() -> None:
    """Test that queued messages are checked by the rules at the time of the delivery."""
    content = state(clients=[client("ann", "r")], roles=[role("r", ("subscribePattern", "t/#", True)), role("no", ("publishClientReceive", "t/no", False))])
    with Ruled(content) as broker:
        boss, ann = broker.admin(), user(broker, "ann", 4, clean=False)
        ann.send(Subscribe(3, (("t/#", 1),)))
        assert ann.read_packet().codes == (1,)
        ann.close()
        until_logged(broker, "Client ann [127.0.0.1")
        boss.wire.send(Publish("t/no", b"1", 1, 1), Publish("t/yes", b"2", 1, 2))
        for _ in range(2):
            boss.wire.read_packet()
        boss.does("addClientRole", username="ann", rolename="no")
        ann = user(broker, "ann", 4, clean=False)
        assert ann.read_packet().payload == b"2"
        ann.expect_nothing()
        ann.close()
