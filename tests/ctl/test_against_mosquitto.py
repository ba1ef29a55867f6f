"""`mosq ctl` and a real Mosquitto with its dynamic security plugin, both as Debian has them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from glob import glob
from pathlib import Path

import pytest

from mosq.commands import main
from tests.harness.broker import free_port

pytestmark = pytest.mark.interop
CONFIG = """listener {port} 127.0.0.1
plugin {plugin}
plugin_opt_config_file {dir}/dynsec.json
"""


class Theirs:
    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        found = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
        plugins = glob("/usr/lib/*/mosquitto_dynamic_security.so")
        assert found, "Debian's mosquitto"
        assert plugins, "Debian's mosquitto"
        assert main(["ctl", "dynsec", "init", str(folder / "dynsec.json"), "admin", "secret"]) == 0
        folder.chmod(0o777)     # started as root it becomes somebody else
        (folder / "dynsec.json").chmod(0o666)
        (folder / "conf").write_text(CONFIG.format(port=self.port, plugin=plugins[0], dir=folder))
        self.process = subprocess.Popen([found, "-c", str(folder / "conf")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if "running" in line and "version" in line:
                return
        raise AssertionError("it did not start")

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=10)

    def ctl(self, *words: str) -> int:
        return main(["ctl", "-p", str(self.port), "-u", "admin", "-P", "secret", *words])


@pytest.fixture(scope="module")
def theirs() -> Iterator[Theirs]:
    with tempfile.TemporaryDirectory(prefix="mosq-test-") as folder:     # pytest's own folders let nobody else in
        made = Theirs(Path(folder))
        yield made
        made.close()


STORY = """createClient ann -p x -i cid
createClient ben -p y
createRole r
addRoleACL r publishClientSend a/# allow 5
addRoleACL r subscribePattern b/# deny
addClientRole ann r 3
createGroup g
addGroupClient g ann 2
addGroupRole g r
setAnonymousGroup g
setDefaultACLAccess subscribe allow
setClientId ben other
setClientPassword ben z
disableClient ben
removeRoleACL r subscribePattern b/#
"""
AFTER = [
    ("listClients", "admin\nann\nben\n"), ("listGroups", "g\n"), ("listRoles", "admin\nr\n"), ("getAnonymousGroup", "g\n"),
    ("getClient ann", "Username:    ann\nClientid:    cid\nRoles:       r (priority: 3)\nGroups:      g (priority: 2)\nConnections:\n"),
    ("getRole r", "Rolename: r\nACLs:     publishClientSend    : allow : a/# (priority: 5)\n"),
    ("getGroup g", "Groupname: g\nRoles:     r (priority: -1)\nClients:   ann\n"),
    ("getDefaultACLAccess", "publishClientSend    : deny\npublishClientReceive : allow\nsubscribe            : allow\nunsubscribe          : allow\n"),
    ("listClients 1 1", "ann\n"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


def test_a_story(theirs: Theirs, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    for line in STORY.splitlines():
        assert theirs.ctl("dynsec", *line.split()) == 0, line
        assert capsys.readouterr() == ("", ""), line
    for words, text in AFTER:
        assert theirs.ctl("dynsec", *words.split()) == 0
        assert capsys.readouterr().out == text
    assert theirs.ctl("--json", "dynsec", "getClient", "ben") == 0
    assert json.loads(capsys.readouterr().out)["data"]["client"]["disabled"] is True
    assert theirs.ctl("dynsec", "createClient", "ann", "-p", "x") == 1
    assert capsys.readouterr().err == "createClient: Error: Client already exists.\n"


def test_what_it_has_not(theirs: Theirs, capsys: pytest.CaptureFixture[str]) -> None:
    """Its administrator may not ask there, and Debian's has no such topic."""
    assert theirs.ctl("broker", "listClients") == 1
    assert capsys.readouterr().err == "Publish error: Not authorized\n"
