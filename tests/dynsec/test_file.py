"""Test the JSON file: read as Mosquitto writes it, written so that both read it, completely or not at all; and the first file."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys

import pytest

from mosq.auth.hashes import ARGON2ID, PBKDF2, new_hash
from mosq.config.errors import ConfigError
from mosq.auth.dynsec import first, store
from mosq.auth.dynsec.directory import Directory
from mosq.auth.dynsec.store import FileError, read, tree_of
from tests.dynsec.admin import PASSWORD, Object, Ruled, lets_in, password, role, state
from tests.dynsec.test_broker import client, until_logged
from tests.harness.broker import ROOT

LONG_ENOUGH = "long enough 4 it"


def mode(path: object) -> int:
    return stat.S_IMODE(os.stat(str(path)).st_mode)


def reread(content: Object) -> Object:
    made, warnings = read(json.dumps(content).encode())
    assert warnings == []
    return tree_of(made)


FULL = state(
    changeIndex=7, anonymousGroup="g",
    clients=[client("z", "r", clientid="i", textname="n", textdescription="d", disabled=True), {"username": "a", "roles": [
        {"rolename": "r", "priority": -5}, {"rolename": "q", "priority": 9}]}],
    groups=[{"groupname": "g", "textname": "G", "textdescription": "D", "roles": [{"rolename": "r"}],
             "clients": [{"username": "z", "priority": 3}, {"username": "a"}]}],
    roles=[role("r", ("publishClientSend", "b", True, 1), ("publishClientSend", "a", False, 2), ("unsubscribeLiteral", "u/#", True),
                textname="t", allowwildcardsubs=False), role("q")])


def test_a_file_is_written_as_it_was_read() -> None:
    tree = reread(FULL)
    assert reread(tree) == tree
    assert tree["changeIndex"] == 7 and tree["anonymousGroup"] == "g"
    assert [one["username"] for one in tree["clients"]] == ["a", "admin", "z"]
    a, _, z = tree["clients"]
    assert a == {"username": "a", "roles": [{"rolename": "q", "priority": 9}, {"rolename": "r", "priority": -5}]}
    assert z["disabled"] is True and z["encoded_password"].startswith("$7$101$") and z["password"] in z["encoded_password"]
    assert tree["groups"][0]["clients"] == [{"username": "a"}, {"username": "z", "priority": 3}]
    assert [(rule["topic"], rule["priority"]) for rule in tree["roles"][-1]["acls"]] == [("a", 2), ("b", 1), ("u/#", 0)]
    assert tree["roles"][-1]["allowwildcardsubs"] is False


def test_passwords_in_all_forms() -> None:
    forms = {"two": password("x", 5), "pbkdf2": {"encoded_password": new_hash(PBKDF2, b"x", 5)},
             "argon": {"encoded_password": new_hash(ARGON2ID, b"x")}, "both": {**password("no", 5), "encoded_password": new_hash(PBKDF2, b"x", 5)}}
    made, _ = read(json.dumps({"clients": [{"username": name, **form} for name, form in forms.items()]}).encode())
    for name in forms:
        known = made.clients[name].hash
        assert known is not None and known.matches(b"x") and not known.matches(b"no"), name
    assert "password" not in next(one for one in tree_of(made)["clients"] if one["username"] == "argon")


def test_an_unknown_password_hash_stays_in_the_file() -> None:
    made, warnings = read(b'{"clients": [{"username": "a", "encoded_password": "$9$later"}]}')
    assert "'a' cannot log in" in warnings[0] and "later" not in warnings[0]
    assert tree_of(made)["clients"][0]["encoded_password"] == "$9$later"


@pytest.mark.parametrize(("content", "says"), [
    (b"{", "line 1, column 2"), (b'{\n "clients": [,]}', "line 2, column"), (b"[]", "expected an object"), (b"nonsense", "expected JSON"),
    (b'{"clients": {}}', "`clients` is no list"), (b'{"clients": [1]}', "`clients[0]` has no `username`"),
    (b'{"roles": [{"rolename": ""}]}', "`roles[0]` has no `rolename`"), (b'{"groups": [{"groupname": "g", "clients": [{}]}]}', "`groups[0].clients[0]`"),
    (b'{"roles": [{"rolename": "r", "acls": 5}]}', "`roles[0].acls` is no list"), (b'{"clients": [{"username": "\xff"}]}', "not UTF-8"),
    (b'{"clients": [{"username": "a\\u0007"}]}', "control characters"), (b"[" * 100_000, "nested too deeply"), (b'{"changeIndex": NaN}', "no JSON"),
])
def test_an_error_names_its_place_in_the_file(content: bytes, says: str) -> None:
    with pytest.raises(FileError) as error:
        read(content)
    assert says in str(error.value)


@pytest.mark.parametrize(("content", "says"), [
    (b'{"clients": [{"username": "a"}, {"username": "a"}]}', "repeats the username 'a'"),
    (b'{"clients": [{"username": "a", "roles": [{"rolename": "r"}]}]}', "there is no 'r'"),
    (b'{"groups": [{"groupname": "g", "clients": [{"username": "u"}]}]}', "there is no 'u'"),
    (b'{"anonymousGroup": "g"}', "there is no group 'g'"),
    (b'{"roles": [{"rolename": "r", "acls": [{"acltype": "x", "topic": "t"}]}]}', "no valid acltype"),
    (b'{"roles": [{"rolename": "r", "acls": [{"acltype": "publishClientSend", "topic": "a#"}]}]}', "matches nothing"),
    (b'{"roles": [{"rolename": "r", "acls": [{"acltype": "publishClientSend", "topic": "a"}, {"acltype": "publishClientSend", "topic": "a"}]}]}',
     "a second rule"),
    (b" \n", "empty"),
])
def test_entries_that_mosquitto_skips_cause_a_warning(content: bytes, says: str) -> None:
    _, warnings = read(content)
    assert len(warnings) == 1 and says in warnings[0]


def test_very_many_mistakes_are_few_lines() -> None:
    _, warnings = read(json.dumps({"clients": [{"username": "a"}] * 1000}).encode())
    assert len(warnings) == store.WARNINGS_MAX + 1 and "989 more" in warnings[-1]


# ---------------------------------------------------------------- writing

def no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_file_is_written_completely_or_not_at_all(tmp_path, monkeypatch) -> None:
    path = tmp_path / "d.json"
    path.write_text("before")
    (tmp_path / "d.json.new").write_text("of a crash")
    synced = []
    monkeypatch.setattr(os, "fsync", lambda fd, sync=os.fsync: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), sync(fd)))
    store.write(str(path), {"a": "\u00e9"})
    assert json.loads(path.read_bytes()) == {"a": "\u00e9"}
    assert mode(path) == 0o600
    assert synced == [str(path) + ".new", str(tmp_path)]
    for fails in ("rename", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(os, fails, no_space)
            with pytest.raises(OSError):
                store.write(str(path), {"a": "after"})
        assert json.loads(path.read_bytes()) == {"a": "\u00e9"}
        assert os.listdir(tmp_path) == ["d.json"]


def test_a_link_stays_a_link(tmp_path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/d.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("real/d.json")
    store.write(str(tmp_path / "link.json"), {"a": 1})
    assert (tmp_path / "link.json").is_symlink() and json.loads((tmp_path / "real/d.json").read_bytes()) == {"a": 1}


def test_a_broken_file_is_an_error_at_start_and_stays_unchanged() -> None:
    broker = Ruled()
    broker.put('{"clients": [')
    with pytest.raises(RuntimeError) as error:
        broker.start()
    assert "dynsec.json': line 1, column" in str(error.value) and "mosq.conf:3" in str(error.value)
    assert broker.file.read_text() == '{"clients": ['
    broker.close()


def test_changes_outlive_the_broker() -> None:
    with Ruled(state()) as broker:
        boss = broker.admin()
        boss.does("createRole", rolename="r", acls=[{"acltype": "publishClientSend", "topic": "t\u00e9", "allow": True, "priority": 4}])
        boss.does("createClient", username="ann", password="ann", roles=[{"rolename": "r"}])
        asked = [{"command": name, "verbose": True} for name in ("listRoles", "listGroups")] + [{"command": "getClient", "username": "ann"}]
        before = boss.ask(*asked)
        assert mode(broker.file) == 0o600
        broker.restart()
        boss = broker.admin(client_id="again")
        assert boss.ask(*asked) == before
        assert boss.ask({"command": "getDetails"})[0]["data"]["changeIndex"] == 2
        assert lets_in(broker.port, "ann", "ann")


def test_a_write_error_is_logged_and_the_change_applies() -> None:
    with Ruled(state()) as broker:
        boss = broker.admin()
        (broker.dir / "dynsec.json.new").mkdir()
        boss.does("createClient", username="ann", password="ann")
        until_logged(broker, "Error saving Dynamic security plugin config: ")
        assert lets_in(broker.port, "ann", "ann")
        assert [one["username"] for one in broker.written()["clients"]] == ["admin"]
        (broker.dir / "dynsec.json.new").rmdir()


# ---------------------------------------------------------------- the first file

def fresh(env: dict[str, str], *lines: str, files: dict[str, str] | None = None) -> Ruled:
    return Ruled(config="".join(f"{line}\n" for line in lines), env=env, files=files)


def test_the_first_password_is_from_the_environment() -> None:
    with fresh({first.ENVIRONMENT: LONG_ENOUGH}) as broker:
        assert lets_in(broker.port, "admin", LONG_ENOUGH)
        assert mode(broker.file) == 0o600 and not os.path.exists(f"{broker.file}.pw")
        assert "MOSQUITTO_DYNSEC_PASSWORD environment variable" in broker.log() and LONG_ENOUGH not in broker.log()
        assert [one["username"] for one in broker.written()["clients"]] == ["admin"]
        boss = broker.admin(word=LONG_ENOUGH)
        assert boss.ask({"command": "listRoles"}, {"command": "listGroups"}, {"command": "getAnonymousGroup"}) == [
            {"command": "listRoles", "data": {"totalCount": 7, "roles": [
                "broker-admin", "client", "dynsec-admin", "super-admin", "sys-notify", "sys-observe", "topic-observe"]}},
            {"command": "listGroups", "data": {"totalCount": 1, "groups": ["unauthenticated"]}},
            {"command": "getAnonymousGroup", "data": {"group": {"groupname": "unauthenticated"}}}]


def test_the_first_password_is_from_the_init_file() -> None:
    with fresh({first.ENVIRONMENT: LONG_ENOUGH}, "plugin_opt_password_init_file {dir}/init", files={"init": "of the file \r\nmore\n"}) as broker:
        assert lets_in(broker.port, "admin", "of the file")
        assert "of the file" not in broker.log()


def test_missing_first_passwords_are_generated_into_a_file() -> None:
    with fresh({}) as broker:
        path = f"{broker.file}.pw"
        assert mode(path) == 0o600
        with open(path) as file:
            made = dict(line.split() for line in file)
        assert sorted(made) == ["admin", "democlient"]
        for name, word in made.items():
            assert len(word) == first.PASSWORD_CHARS and lets_in(broker.port, name, word)
            assert word not in broker.log()


@pytest.mark.parametrize(("content", "env", "says"), [
    (None, {}, "file not accessible"), (b"", {}, "file empty"), (b" \n", {}, "password is empty"), (..., {first.ENVIRONMENT: "short"}, "at least 12"),
])
def test_no_password_no_file(tmp_path, monkeypatch, content, env, says) -> None:
    monkeypatch.delenv(first.ENVIRONMENT, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    init = tmp_path / "init"
    if isinstance(content, bytes):
        init.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        Directory(str(tmp_path / "d.json"), None if content is ... else str(init), lambda *_: None)
    assert says in str(error.value)
    assert not (tmp_path / "d.json").exists() and not (tmp_path / "d.json.pw").exists()


def test_a_check_of_the_configuration_writes_nothing(tmp_path) -> None:
    (tmp_path / "m.conf").write_text(f"user root\nlistener 1883\nplugin dynamic-security\nplugin_opt_config_file {tmp_path}/d.json\n")

    done = subprocess.run([sys.executable, "-m", "mosq", "-c", str(tmp_path / "m.conf"), "--test-config"], cwd=ROOT, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path) == ["m.conf"]


@pytest.mark.parametrize(("lines", "says"), [
    ("plugin dynamic-security\n", "needs a line `plugin_opt_config_file FILE`"),
    ("plugin dynamic-security\nplugin_opt_config_file {dir}/a\nplugin dynamic-security\nplugin_opt_config_file {dir}/b\n", "can only be loaded once"),
    ("dynamic_security {dir}/a\nplugin_opt_nosuch x\n", "Unknown option 'plugin_opt_nosuch'"),
    ("dynamic_security {dir}/no/such/folder\n", "Unable to write the dynamic security file"),
    ("dynamic_security {dir}\n", "Unable to open the dynamic security file"),
])
def test_contradictory_options_are_an_error(lines: str, says: str) -> None:
    broker = Ruled(config="listener {port} 127.0.0.1\nallow_anonymous true\n" + lines, env={first.ENVIRONMENT: LONG_ENOUGH})
    with pytest.raises(RuntimeError) as error:
        broker.start()
    assert says in str(error.value) and "mosq.conf:" in str(error.value)
    broker.close()


def test_the_admin_password_of_the_tests_matches() -> None:
    assert read(json.dumps(state()).encode())[0].clients["admin"].hash.matches(PASSWORD.encode())
