"""Test `mosq ctl dynsec init` and `-f FILE dynsec setClientPassword`: the plugin's file, without a broker."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from mosq.cli.commands import main
from mosq.tools.ctl.command import CREATED

DEFAULTS = {"publishClientSend": False, "publishClientReceive": True, "subscribe": False, "unsubscribe": True}


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def is_password(client: dict[str, Any], password: str) -> bool:
    salt, digest = (base64.b64decode(client[name]) for name in ("salt", "password"))
    return len(salt) == 12 and hashlib.pbkdf2_hmac("sha512", password.encode(), salt, client["iterations"]) == digest


def test_init(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / "d.json"
    assert main(["ctl", "dynsec", "init", str(path), "admin", "pässword"]) == 0
    assert capsys.readouterr().out == CREATED.format(user="admin", file=path) + "\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    tree = json.loads(path.read_text())
    assert tree.keys() == {"clients", "roles", "defaultACLAccess"}
    assert tree["defaultACLAccess"] == DEFAULTS
    [client], [role] = tree["clients"], tree["roles"]
    assert (client["username"], client["roles"], role["rolename"]) == ("admin", [{"rolename": "admin"}], "admin")
    assert is_password(client, "pässword")
    acls = [(acl["acltype"], acl["topic"]) for acl in role["acls"] if acl["allow"]]
    assert ("publishClientSend", "$CONTROL/dynamic-security/#") in acls
    assert len(acls) == 8
    assert ("publishClientSend", "#") not in acls


def test_init_asks_for_the_password(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for lines, status in (("a\nb\n", 1), ("\n", 1), ("secret\nsecret\n", 0)):
        monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
        assert main(["ctl", "dynsec", "init", str(home / "d.json"), "admin"]) == status
    out, err = capsys.readouterr()
    assert "New password for admin: \nReenter password for admin: \n" in out
    assert "Passwords do not match." in err
    assert "Password is empty." in err
    assert is_password(json.loads((home / "d.json").read_text())["clients"][0], "secret")


def test_init_overwrites_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "d.json").write_text("mine")
    assert main(["ctl", "dynsec", "init", str(home / "d.json"), "admin", "x"]) == 1
    assert capsys.readouterr().err == f"dynsec init: Unable to open '{home}/d.json' for writing (File exists).\n"
    assert (home / "d.json").read_text() == "mine"


@pytest.mark.parametrize(("words", "why"), [("f", "Missing argument 'ADMIN-USER'"), ("f u p more", "unexpected extra argument")])
def test_init_mistakes(capsys: pytest.CaptureFixture[str], words: str, why: str) -> None:
    assert main(["ctl", "dynsec", "init", *words.split()]) == 3
    assert why in capsys.readouterr().err


FILE = {"defaultACLAccess": DEFAULTS, "clients": [{"username": "ann", "encoded_password": "$7$1$x$y", "disabled": True},
                                                  {"username": "ben", "password": "p", "salt": "s", "iterations": 5}], "more": ["é"]}  # fmt: skip


def test_a_new_password(home: Path) -> None:
    path = home / "d.json"
    path.write_text(json.dumps(FILE))
    path.chmod(0o600)
    assert main(["ctl", "-f", str(path), "dynsec", "setClientPassword", "ann", "new"]) == 0
    tree = json.loads(path.read_text())
    assert is_password(tree["clients"][0], "new")
    assert tree["clients"][0].keys() == {"username", "disabled", "password", "salt", "iterations"}
    assert (tree["clients"][1], tree["more"]) == (FILE["clients"][1], FILE["more"])      # type: ignore[index]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(one.name for one in home.iterdir()) == ["d.json"]


@pytest.mark.parametrize(("content", "why"), [
    (None, "Unable to open"), ("x", "is not valid JSON"), ("[" * 100_000, "is not valid JSON"), ("[]", "is not a valid dynamic-security"),
    ('{"clients":1}', "is not a valid dynamic-security"), ('{"clients":[{"username":"ben"},3]}', "Client ann not found."),
])
def test_invalid_files_are_refused_and_unchanged(home: Path, capsys: pytest.CaptureFixture[str], content: str | None, why: str) -> None:
    path = home / "d.json"
    if content is not None:
        path.write_text(content)
    assert main(["ctl", "-f", str(path), "dynsec", "setClientPassword", "ann", "new"]) == 1
    assert why in capsys.readouterr().err
    assert content is None or path.read_text() == content
