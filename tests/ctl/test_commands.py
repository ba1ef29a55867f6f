"""Test every command of `mosq ctl`: its request, and its output.

If Debian's mosquitto_ctrl has the command, the request is the same. `SAME`: a row per command of mosquitto_ctrl: the words, the response's data, the
output. The text is that of mosquitto_ctrl 2.1.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from mosq.cli.commands import main
from mosq.tools.ctl import broker, dynsec
from tests.ctl.answering import BROKER, DYNSEC, OWN, Answering

ACL = {"acltype": "publishClientSend", "topic": "a/#", "allow": True, "priority": 5}
CLIENT = {"username": "ann", "clientid": "cid", "disabled": False, "roles": [{"rolename": "r", "priority": 3}, {"rolename": "s"}],
          "groups": [{"groupname": "g", "priority": 1}], "connections": [{"address": "127.0.0.1"}]}
CLIENT_TEXT = """Username:    ann
Clientid:    cid
Disabled:    false
Roles:       r (priority: 3)
             s (priority: -1)
Groups:      g (priority: 1)
Connections: 127.0.0.1
"""
GROUP_TEXT = "Groupname: g\nRoles:     r (priority: 2)\nClients:   ann\n           ben\n"
ROLE_TEXT = ("Rolename: r\nACLs:     publishClientSend    : allow : a/# (priority: 5)\n"
             "          subscribePattern     : deny  : b (priority: -1)\n")  # fmt: skip

# words, the fields of the request beside the command, the response's data, the output
SAME: list[tuple[str, dict[str, Any], dict[str, Any] | None, str]] = [
    ("getDefaultACLAccess", {}, {"acls": [{"acltype": "publishClientSend", "allow": False}, {"acltype": "subscribe", "allow": True}]},
     "publishClientSend    : deny\nsubscribe            : allow\n"),
    ("setDefaultACLAccess subscribe deny", {"acls": [{"acltype": "subscribe", "allow": False}]}, None, ""),
    ("getAnonymousGroup", {}, {"group": {"groupname": "g"}}, "g\n"),
    ("setAnonymousGroup g", {"groupname": "g"}, None, ""),
    ("createClient ann -p secret", {"username": "ann", "password": "secret"}, None, ""),
    ("createClient ann -p secret -i cid", {"username": "ann", "clientid": "cid", "password": "secret"}, None, ""),
    ("createClient ann -c cid -p secret", {"username": "ann", "clientid": "cid", "password": "secret"}, None, ""),
    ("deleteClient ann", {"username": "ann"}, None, ""),
    ("setClientPassword ann secret", {"username": "ann", "password": "secret"}, None, ""),
    ("setClientId ann cid", {"username": "ann", "clientid": "cid"}, None, ""),
    ("setClientId ann", {"username": "ann"}, None, ""),
    ("addClientRole ann r", {"username": "ann", "rolename": "r"}, None, ""),
    ("addClientRole ann r 7", {"username": "ann", "rolename": "r", "priority": 7}, None, ""),
    ("addClientRole ann r -1", {"username": "ann", "rolename": "r"}, None, ""),
    ("removeClientRole ann r", {"username": "ann", "rolename": "r"}, None, ""),
    ("getClient ann", {"username": "ann"}, {"client": CLIENT}, CLIENT_TEXT),
    ("listClients", {}, {"totalCount": 2, "clients": ["ann", "ben"]}, "ann\nben\n"),
    ("listClients 10", {"count": 10}, {"clients": [{"username": "ann"}]}, "ann\n"),
    ("listClients 10 20", {"count": 10, "offset": 20}, {"clients": []}, ""),
    ("enableClient ann", {"username": "ann"}, None, ""),
    ("disableClient ann", {"username": "ann"}, None, ""),
    ("createGroup g", {"groupname": "g"}, None, ""),
    ("deleteGroup g", {"groupname": "g"}, None, ""),
    ("addGroupRole g r", {"groupname": "g", "rolename": "r"}, None, ""),
    ("addGroupRole g r 3", {"groupname": "g", "rolename": "r", "priority": 3}, None, ""),
    ("removeGroupRole g r", {"groupname": "g", "rolename": "r"}, None, ""),
    ("addGroupClient g ann", {"groupname": "g", "username": "ann"}, None, ""),
    ("addGroupClient g ann 3", {"groupname": "g", "username": "ann", "priority": 3}, None, ""),
    ("removeGroupClient g ann", {"groupname": "g", "username": "ann"}, None, ""),
    ("getGroup g", {"groupname": "g"}, {"group": {"groupname": "g", "roles": [{"rolename": "r", "priority": 2}],
                                                 "clients": [{"username": "ann"}, {"username": "ben"}]}}, GROUP_TEXT),
    ("listGroups", {}, {"groups": ["g", "h"]}, "g\nh\n"),
    ("listGroups 1 1", {"count": 1, "offset": 1}, {"groups": ["h"]}, "h\n"),
    ("createRole r", {"rolename": "r"}, None, ""),
    ("deleteRole r", {"rolename": "r"}, None, ""),
    ("addRoleACL r publishClientSend a/# allow", {"rolename": "r", "acltype": "publishClientSend", "topic": "a/#", "allow": True}, None, ""),
    ("addRoleACL r publishClientReceive a/# deny 5", {"rolename": "r", "acltype": "publishClientReceive", "topic": "a/#", "allow": False,
                                                      "priority": 5}, None, ""),
    ("addRoleACL r subscribeLiteral a allow", {"rolename": "r", "acltype": "subscribeLiteral", "topic": "a", "allow": True}, None, ""),
    ("removeRoleACL r subscribePattern a/#", {"rolename": "r", "acltype": "subscribePattern", "topic": "a/#"}, None, ""),
    ("removeRoleACL r unsubscribeLiteral a", {"rolename": "r", "acltype": "unsubscribeLiteral", "topic": "a"}, None, ""),
    ("removeRoleACL r unsubscribePattern a", {"rolename": "r", "acltype": "unsubscribePattern", "topic": "a"}, None, ""),
    ("getRole r", {"rolename": "r"}, {"role": {"rolename": "r", "acls": [ACL, {"acltype": "subscribePattern", "topic": "b", "allow": False}]}},
     ROLE_TEXT),
    ("listRoles", {}, {"roles": ["r"]}, "r\n"),
    ("listRoles 5", {"count": 5}, {"roles": [{"rolename": "r"}]}, "r\n"),
]  # fmt: skip
# commands whose output differs in 2.0
CHANGED_SINCE_2_0 = ("getClient", "getGroup", "getRole", "getDefaultACLAccess")
# wrong requests of 2.0: without the clientid, and with "access" for "allow"
WRONG_IN_2_0 = ("createClient ann -p secret -i cid", "setDefaultACLAccess subscribe deny")

LISTENERS = {"listeners": [{"port": 1883, "protocol": "mqtt", "bind-address": "::1", "tls": False},
                           {"port": 0, "protocol": "mqtt", "socket-path": "/s", "tls": True}, {"port": 81, "tls": False}]}
LISTENERS_TEXT = """Listener 1:
  Port:              1883
  Protocol:          mqtt
  Bind address:      ::1
  TLS:               false

Listener 2:
  Port:              0
  Protocol:          mqtt
  Socket path:       /s
  TLS:               true

Listener 3:
  Port:              81
  TLS:               false

"""
PLUGINS = {"plugins": [{"name": "dynamic-security", "control-endpoints": [DYNSEC, "$CONTROL/x/v1"]}, {"name": "p", "version": "1", "control-endpoints": []}]}
PLUGINS_TEXT = f"""Plugin:            dynamic-security
Control endpoints: {DYNSEC}
                   $CONTROL/x/v1
Plugin:            p
Version:           1
"""
ONE = {"clientid": "c1", "username": None, "connected": True, "address": "127.0.0.1", "port": 5, "listener": 1883, "protocol": "mqtt", "tls": False,
       "version": "5.0", "keepalive": 60, "window": 20, "unsentBytes": 0, "sessionExpiry": 10, "will": True, "subscriptions": 2, "queued": 3,
       "inflight": 1, "pending": 4, "inbox": 0, "queueBytes": 100}  # fmt: skip
TWO = {"clientid": "c2", "username": "ann", "connected": False, "endsIn": 90, "sessionExpiry": 100, "will": False, "subscriptions": 0, "queued": 0,
       "inflight": 0, "pending": 0, "inbox": 0, "queueBytes": 0}  # fmt: skip
CLIENTS_TEXT = """CLIENT  USER  ADDRESS    PROTOCOL  MQTT  KEEPALIVE  SUBS  QUEUED  INFLIGHT  SESSION
c1      -     127.0.0.1  mqtt      5.0          60     2       3         1  connected, kept 10 s
c2      ann   -          -         -     -             0       0         0  offline, ends in 90 s
"""

QUEUE = {"queue_length": 12, "queue_bytes": 3456, "queue_age_seconds": 70.25, "unsent_bytes": 0, "inflight": 20}
IDLE = {"queue_length": 0, "queue_bytes": 0, "queue_age_seconds": None, "unsent_bytes": 0, "inflight": 0}
RATES = {"messages_per_second": 1234.56, "bytes_per_second": 20000, "error": 0.25}
HOT = {"sampled": 64, "window_s": 41.5, "topics": [{"topic": "a/<b>\x1b[2J", **RATES}], "prefixes": [{"prefix": "a", "levels": 1, **RATES}],
       "publishers": [{"client_id": "p" * 100, **RATES}], "receivers": [],
       "slow": [{"client_id": "c1", "connected": True, "delay_seconds": 0.0123, **QUEUE},
                {"client_id": "c2", "connected": False, "delay_seconds": 0.000005, **IDLE}]}  # fmt: skip
HOT_TEXT = """One message in 64 was sampled, for 42 s.

  DELAY  QUEUED  BYTES     AGE  UNSENT  INFLIGHT  SLOW CLIENT
12.3 ms      12   3456  70.2 s       0        20  c1
 5.0 us       0      0       -       0         0  c2 (offline)

  MSG/S   BYTES/S  ERROR  TOPIC
1,234.6  20,000.0    0.2  a/<b>\\x1b[2J

  MSG/S   BYTES/S  ERROR  PREFIX
1,234.6  20,000.0    0.2  a

  MSG/S   BYTES/S  ERROR  PUBLISHER
1,234.6  20,000.0    0.2  ppppppppppppppppppppppppppppppppppppppppppppppppppppppppppp…
"""
NOT_HOT = {"sampled": 0, "window_s": 0, "hint": "Off.", "topics": [], "prefixes": [], "publishers": [], "receivers": [], "slow": []}
NOT_HOT_TEXT = "Off.\n\nDELAY  QUEUED  BYTES  AGE  UNSENT  INFLIGHT  SLOW CLIENT\n"

# module, words, topic, the fields of the request beside the command, data, output
OURS: list[tuple[str, str, str, dict[str, Any], dict[str, Any] | None, str]] = [
    ("broker", "listListeners", BROKER, {}, LISTENERS, LISTENERS_TEXT),
    ("broker", "listPlugins", BROKER, {}, PLUGINS, PLUGINS_TEXT),
    ("broker", "listClients", OWN, {}, {"clients": [ONE, TWO], "cursor": 0}, CLIENTS_TEXT),
    ("broker", "listClients 2 7 --prefix c --username ann --state offline", OWN,
     {"count": 2, "cursor": 7, "prefix": "c", "username": "ann", "connected": False}, {"clients": [], "cursor": 9},
     CLIENTS_TEXT.partition("\n")[0].replace("CLIENT  USER  ADDRESS    PROTOCOL", "CLIENT  USER  ADDRESS  PROTOCOL") +
     "\nMore clients follow: use the cursor 9.\n"),
    ("broker", "listClients --state connected", OWN, {"connected": True}, {"clients": [], "cursor": 0},
     "CLIENT  USER  ADDRESS  PROTOCOL  MQTT  KEEPALIVE  SUBS  QUEUED  INFLIGHT  SESSION\n"),
    ("broker", "getClient c2", OWN, {"clientid": "c2"}, {"client": {"clientid": "c2", "username": None, "connected": False, "queued": 3}},
     "clientid:  c2\nusername:  -\nconnected: no\nqueued:    3\n"),
    ("broker", "kickClient c1", OWN, {"clientid": "c1"}, None, ""),
    ("broker", "listSubscriptions c1 1000", OWN, {"clientid": "c1", "offset": 1000},
     {"clientid": "c1", "totalCount": 5000, "more": 2, "subscriptions": [{"topic": "a/#", "qos": 1, "identifier": 3, "noLocal": True}, {"topic": "b", "qos": 0}]},
     "TOPIC  QOS  ID  OPTIONS\na/#      1   3  no local\nb        0  -   -\nThere are 2 more.\n"),
    ("broker", "getStats", OWN, {}, {"clients": {"clients_connected": 3}, "drops": {"queue_messages": 1, "memory": 0}},
     "clients:\n  clients_connected: 3\ndrops:\n  queue_messages: 1\n  memory:         0\n"),
    ("broker", "listBridges", OWN, {}, {"bridges": [{"name": "b", "state": "connected"}, {"name": "long", "state": "down", "why": "refused"}]},
     "NAME  STATE      WHY\nb     connected  -\nlong  down       refused\n"),
    ("broker", "listBridges", OWN, {}, {"bridges": []}, ""),
    ("broker", "hot 2", OWN, {"limit": 2}, HOT, HOT_TEXT),
    ("broker", "hot", OWN, {}, NOT_HOT, NOT_HOT_TEXT),
    ("broker", "listDrops", OWN, {}, {"drops": [{"reason": "quota", "count": 3, "listeners": {"1883": 2, "other": 1}, "clientid": None, "topic": "a"}]},
     "REASON  COUNT  LISTENERS        CLIENTID  TOPIC\nquota       3  1883 2, other 1  -         a\n"),
    ("broker", "listLinks", OWN, {}, {"links": [
        {"from": 1, "to": 2, "connected": True, "routes": 3, "latencySeconds": 0.00125, "latencySecondsMean": 0.002, "latencySecondsMax": None}]},
     "FROM  TO  CONNECTED  ROUTES  LATENCYMS  MEANMS  MAXMS\n   1   2  yes             3  1.25       2.0     -\n"),
    ("broker", "listLinks", OWN, {}, {"links": []}, "The broker has one process, so it has no links.\n"),
    ("dynsec", "getDetails", DYNSEC, {}, {"clientCount": 3, "changeIndex": 12}, "clientCount: 3\nchangeIndex: 12\n"),
    ("dynsec", "modifyClient ann textName Ann", DYNSEC, {"username": "ann", "textName": "Ann"}, None, ""),
    ("dynsec", "modifyGroup g textDescription x", DYNSEC, {"groupname": "g", "textDescription": "x"}, None, ""),
    ("dynsec", "modifyRole r allowWildcardSubs false", DYNSEC, {"rolename": "r", "allowWildcardSubs": False}, None, ""),
]  # fmt: skip
ROWS = [*(("dynsec", words, DYNSEC, *row) for words, *row in SAME), *OURS]


@pytest.fixture(scope="module")
def there() -> Iterator[Answering]:
    with Answering() as made:
        yield made


@pytest.fixture(autouse=True)
def no_options_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def ctl(there: Answering, *words: str, data: dict[str, Any] | None = None) -> int:
    there.asked.clear()
    there.answer = lambda command: {} if data is None else {"data": data}
    return main(["ctl", "-p", str(there.port), *words])


@pytest.mark.parametrize(("module", "words", "topic", "asked", "data", "text"), ROWS, ids=[f"{row[0]} {row[1]}" for row in ROWS])
def test_command(there: Answering, capsys: pytest.CaptureFixture[str], module: str, words: str, topic: str, asked: dict[str, Any],
                 data: dict[str, Any] | None, text: str) -> None:
    assert ctl(there, module, *words.split(), data=data) == 0
    assert there.asked == [(topic, {"command": words.split()[0], **asked})]
    assert capsys.readouterr() == (text, "")


def test_every_command_has_a_row() -> None:
    known = {("dynsec", spec.name) for spec in dynsec.SPECS} | {("broker", spec.name) for spec in broker.SPECS}
    assert known == {(row[0], row[1].split()[0]) for row in ROWS}


@pytest.mark.interop
@pytest.mark.parametrize(("words", "asked", "data", "text"), [row for row in SAME if row[0] not in WRONG_IN_2_0])
def test_mosquitto_ctrl_sends_and_prints_the_same(there: Answering, words: str, asked: dict[str, Any], data: dict[str, Any] | None, text: str) -> None:
    there.asked.clear()
    there.answer = lambda command: {} if data is None else {"data": data}
    done = subprocess.run([theirs(), "-p", str(there.port), "dynsec", *words.split()], capture_output=True, text=True, timeout=20, check=True)
    assert there.asked == [(DYNSEC, {"command": words.split()[0], **asked})]
    if words.split()[0] not in CHANGED_SINCE_2_0:
        assert done.stdout == text


def theirs() -> str:
    found = shutil.which("mosquitto_ctrl", path=f"{os.environ['PATH']}:/usr/bin")
    assert found is not None, "mosquitto_ctrl comes with Debian's mosquitto"
    return found


# ---------------------------------------------------------------- common behaviour of all commands

@pytest.mark.parametrize("place", ["before", "after"])
def test_json(there: Answering, capsys: pytest.CaptureFixture[str], place: str) -> None:
    words = ["--json", "dynsec", "getClient", "ann"] if place == "before" else ["dynsec", "getClient", "ann", "--json"]
    assert ctl(there, *words, data={"client": CLIENT}) == 0
    assert json.loads(capsys.readouterr().out) == {"command": "getClient", "data": {"client": CLIENT}}


def test_a_long_name_moves_its_own_row_only(there: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    long = {**ONE, "clientid": "x" * 60_000}
    assert ctl(there, "broker", "listClients", data={"clients": [ONE, long], "cursor": 0}) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines if "x" * 60_000 not in line) < 200
    assert "x" * 60_000 in "".join(lines)


def test_names_that_the_terminal_lacks_are_escapes(there: Answering) -> None:
    """One such name ended the command with an error."""
    there.answer = lambda command: {"data": {"clients": [{**ONE, "clientid": "名"}], "cursor": 0}}
    for words in (["broker", "listClients"], ["--json", "broker", "listClients"]):
        done = subprocess.run([sys.executable, "-m", "mosq", "ctl", "-p", str(there.port), *words], capture_output=True, timeout=60, check=False,
                              env={**os.environ, "PYTHONIOENCODING": "latin-1"})
        assert (done.returncode, b"\\u540d" in done.stdout) == (0, True), done.stderr


def test_json_cannot_control_the_terminal(there: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    client = {**CLIENT, "textname": "\x9b2J\x7f\u202e\ud800名"}
    assert ctl(there, "--json", "dynsec", "getClient", "ann", data={"client": client}) == 0
    text = capsys.readouterr().out
    assert text.rstrip("\n").isprintable()
    assert json.loads(text)["data"]["client"] == client


@pytest.mark.parametrize("level", ["31", "mqttv31", "311", "mqttv311", "5", "mqttv5"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_versions_and_qos(there: Answering, capsys: pytest.CaptureFixture[str], level: str, qos: str) -> None:
    assert ctl(there, "-V", level, "-q", qos, "dynsec", "listRoles", data={"roles": ["r"]}) == 0
    assert ctl(there, "-V", level, "-q", qos, "broker", "kickClient", "c") == 0
    assert capsys.readouterr() == ("r\n", "")


def test_an_error_is_printed(there: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    there.answer = lambda command: {"error": "Client already exists"}
    assert main(["ctl", "-p", str(there.port), "dynsec", "createClient", "ann", "-p", "x"]) == 1
    assert capsys.readouterr() == ("", "createClient: Error: Client already exists.\n")
    assert main(["ctl", "-p", str(there.port), "--json", "dynsec", "createClient", "ann", "-p", "x"]) == 1
    assert json.loads(capsys.readouterr().out) == {"command": "createClient", "error": "Client already exists"}


@pytest.mark.parametrize("data", [None, {}, {"client": 3}, {"client": {}}, {"client": {"username": 3}}, {"client": {"username": "a", "roles": [{}]}},
                                  {"client": {"username": "a", "roles": [{"rolename": "r", "priority": "x"}]}}])
def test_an_invalid_response(there: Answering, capsys: pytest.CaptureFixture[str], data: Any) -> None:
    assert ctl(there, "dynsec", "getClient", "a", data=data) == 1
    assert capsys.readouterr().err == "Error: Invalid response from server.\n"


def test_names_do_not_steer_the_terminal(there: Answering, capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl(there, "dynsec", "listRoles", data={"roles": ["\x1b]0;x\x07", "é"]}) == 0
    assert capsys.readouterr().out == "\\x1b]0;x\\x07\né\n"


@pytest.mark.parametrize("words", ["DYNSEC listroles", "dynsec LISTROLES", "DynSec ListRoles"])
def test_case_does_not_matter(there: Answering, words: str) -> None:
    assert ctl(there, *words.split(), data={"roles": []}) == 0
    assert there.asked == [(DYNSEC, {"command": "listRoles"})]


@pytest.mark.parametrize(("words", "text"), [
    ("dynsec getClient", "Not enough arguments: username missing"), ("dynsec getClient a b", "Too many arguments: 'b'"),
    ("dynsec addRoleACL r nope t allow", "'nope' is not a valid acltype; expected publishClientSend or"), ("dynsec addRoleACL r subscribeLiteral t maybe", "is not a valid access"),
    ("dynsec addClientRole a r x", "'x' is not a number"), ("dynsec createClient a -i", "-i argument given, but no clientid provided"),
    ("dynsec nope", "No such command 'nope'"), ("nope listRoles", "No such command 'nope'"), ("-V 4 dynsec listRoles", "Invalid protocol version '4'"),
    ("-q 3 dynsec listRoles", "3 is not in the range"), ("-p 65536 dynsec listRoles", "65536 is not in the range"),
    ("--cert c dynsec listRoles", "Both certfile and keyfile"), ("--psk 00 dynsec listRoles", "--psk-identity required"),
    ("--psk 00 --psk-identity i --cafile c dynsec listRoles", "Only one of"), ("--keyform engine dynsec listRoles", "must be 'pem'"),
    ("--tls-engine x dynsec listRoles", "not supported"), ("-L http://h dynsec listRoles", "Unsupported URL scheme 'http'"),
    ("-L mqtt:///x dynsec listRoles", "names no host"), ("-L mqtt://:x@h dynsec listRoles", "Empty username"), ("-L mqtt://h:x dynsec listRoles", "is not a URL"),
    ("-o /no/such dynsec listRoles", "Unable to read the options file /no/such"), ("--nope dynsec", "No such option"),
    ("dynsec modifyRole r nope x", "is not a valid property"),
    ("broker listClint", "No such command 'listClint'. Did you mean 'listClients'"), ("dynesc listRoles", "Did you mean 'dynsec'?"),
    ("DYNSEC creatclient", "Did you mean 'createClient'"), ("listRoles", "Did you mean `mosq ctl dynsec listRoles`?"),
    ("dynsec addRoleACL r subscribeLitteral t allow", "Did you mean 'subscribeLiteral'"), ("retained list", "No such command 'list'."),
])
def test_mistakes(capsys: pytest.CaptureFixture[str], words: str, text: str) -> None:
    assert main(["ctl", *words.split()]) == 3
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("words", ["dynsec", "broker"])
def test_a_module_alone_prints_its_commands(capsys: pytest.CaptureFixture[str], words: str) -> None:
    assert main(["ctl", words]) == 1
    alone = capsys.readouterr().out
    assert main(["ctl", words, "help"]) == 0
    assert capsys.readouterr().out.partition("\n")[2] == alone.partition("\n")[2]
    assert all(spec.name in alone for spec in (dynsec.SPECS if words == "dynsec" else broker.SPECS))
