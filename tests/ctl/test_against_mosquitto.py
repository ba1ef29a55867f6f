"""Test `mosq ctl` with real brokers with dynamic security, Debian's Mosquitto and mosq, by the same commands."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from glob import glob
from pathlib import Path

import pytest

from mosq.cli.commands import main
from mosq.tools.ctl import conversation
from tests.harness.broker import ROOT, free_port

pytestmark = pytest.mark.interop
CONFIG = """listener {port} 127.0.0.1
plugin {plugin}
plugin_opt_config_file {dir}/dynsec.json
"""


def theirs() -> tuple[list[str], str]:
    """Return the command of Debian's Mosquitto, and its plugin."""
    found = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
    plugins = glob("/usr/lib/*/mosquitto_dynamic_security.so")
    assert found, "Debian's mosquitto"
    assert plugins, "Debian's mosquitto"
    return [found], plugins[0]


class Broker:
    def __init__(self, folder: Path, command: list[str], plugin: str) -> None:
        self.port = free_port()
        self.is_ours = command[0] == sys.executable
        assert main(["ctl", "dynsec", "init", str(folder / "dynsec.json"), "admin", "secret"]) == 0
        folder.chmod(0o777)     # Mosquitto changes its user if root starts it
        (folder / "dynsec.json").chmod(0o666)
        (folder / "conf").write_text(CONFIG.format(port=self.port, plugin=plugin, dir=folder) + ("enable_control_api true\n" if self.is_ours else ""))
        self.process = subprocess.Popen([*command, "-c", str(folder / "conf")], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env={**os.environ, "PYTHONPATH": str(ROOT)})
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


@pytest.fixture(scope="module", params=["mosquitto", "mosq"])
def there(request: pytest.FixtureRequest) -> Iterator[Broker]:
    command, plugin = theirs() if request.param == "mosquitto" else ([sys.executable, "-m", "mosq"], "/lib/mosquitto_dynamic_security.so")
    with tempfile.TemporaryDirectory(prefix="mosq-test-") as folder:     # other users cannot enter pytest's own folders
        made = Broker(Path(folder), command, plugin)
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


def test_a_dialog_has_the_same_output(there: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    for line in STORY.splitlines():
        assert there.ctl("dynsec", *line.split()) == 0, line
        assert capsys.readouterr() == ("", ""), line
    for words, text in AFTER:
        assert there.ctl("dynsec", *words.split()) == 0
        # since 2.1 there is an empty list of connections, and no line for it
        assert capsys.readouterr().out == (text.removesuffix("Connections:\n") if there.is_ours else text)
    assert there.ctl("--json", "dynsec", "getClient", "ben") == 0
    assert json.loads(capsys.readouterr().out)["data"]["client"]["disabled"] is True
    assert there.ctl("dynsec", "createClient", "ann", "-p", "x") == 1
    assert capsys.readouterr().err == "createClient: Error: Client already exists.\n"


def test_list_clients_needs_a_rule(there: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    """Test that a rule must allow it; Debian's broker answers nothing there."""
    assert there.ctl("broker", "listClients") == 1
    assert capsys.readouterr().err == f"Publish error: Not authorized{conversation.HINT}\n"
    if there.is_ours:
        assert there.ctl("dynsec", "createRole", "ops") == 0
        assert there.ctl("dynsec", "addRoleACL", "ops", "publishClientSend", "$CONTROL/mosq/broker/v1", "allow") == 0
        assert there.ctl("dynsec", "addClientRole", "admin", "ops") == 0
        capsys.readouterr()
        assert there.ctl("-i", "me", "--json", "broker", "listClients") == 0
        assert [one["username"] for one in json.loads(capsys.readouterr().out)["data"]["clients"]] == ["admin"]
