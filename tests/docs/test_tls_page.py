"""Run the commands of docs/tls.md in their order, with a real broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_drop_in import logged
from tests.harness.broker import ROOT, Broker, free_port
from tests.harness.effort import TIMEOUT_S

PAGE = (ROOT / "docs/tls.md").read_text()
LINES = "cafile lab/certs/ca.crt\nrequire_certificate true\nuse_identity_as_username true\n"


def block(text: str) -> str:
    """Return the block of commands that contains a text."""
    [found] = [block for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) if text in block]
    return str(found)


class Shell:
    """Run blocks of the page in one folder, with another port."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        folder.chmod(0o755)
        wrapper = folder / "bin/mosq"
        wrapper.parent.mkdir()
        wrapper.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m mosq "$@"\n')
        wrapper.chmod(0o755)

    def run(self, commands: str) -> str:
        """Return the output. A command that fails ends the block."""
        # a broker in the background keeps its standard error: a file, so that nothing waits for its end
        with (self.folder / "errors").open("a+") as errors:
            done = subprocess.run(["sh", "-ec", commands.replace("8883", str(self.port))], cwd=self.folder, stdout=subprocess.PIPE, stderr=errors,
                                  text=True, timeout=TIMEOUT_S, check=False, env={**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}"})
        assert done.returncode == 0, (done.stdout, (self.folder / "errors").read_text())
        return done.stdout


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Provide a folder that the user of a broker that root starts can reach."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_the_commands_of_the_page_work(tmp_path: Path) -> None:
    """The first two commands write the files and start a broker; then its port, user and process are known."""
    shell = Shell(tmp_path)
    first = block("mosq init lab").splitlines(keepends=True)
    said = shell.run(first[0].replace(" -y", f" -p {shell.port} -y"))
    password = re.findall(r"Password of ann: (\S+)", said)[0]
    conf = tmp_path / "lab/mosq.conf"
    conf.write_text(conf.read_text() + f"pid_file {tmp_path}/pid\nlog_dest file {tmp_path}/log\n")
    for name in ("pid", "log"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o666)
    shell.run(first[1].replace("-d", "-d >/dev/null 2>&1"))
    try:
        assert shell.run("".join(first[2:]).replace("PASSWORD", password)) == "hi\n"
        shell.run(block("server.csr").replace("PID", (tmp_path / "pid").read_text().strip()))
        assert shell.run(first[3].replace("PASSWORD", password)) == "hi\n"
    finally:
        shell.run("kill $(cat pid); while kill -0 $(cat pid) 2>/dev/null; do sleep 0.02; done")
    shell.run(block("-subj /CN=sensor-7"))
    assert LINES in PAGE
    conf.write_text(conf.read_text().replace("keyfile", f"{LINES.replace(' lab', f' {tmp_path}/lab')}keyfile", 1))
    (tmp_path / "lab/acl").write_text("user sensor-7\ntopic readwrite hello/#\n")
    shell.run(first[1].replace("-d", "-d >/dev/null 2>&1"))
    try:
        shell.run(block("--cert sensor-7.crt"))
    finally:
        shell.run("kill $(cat pid); while kill -0 $(cat pid) 2>/dev/null; do sleep 0.02; done")


def test_the_commands_about_pre_shared_keys_work(tmp_path: Path) -> None:
    """A client of Mosquitto logs in with the key of the page's file, and not with another one."""
    tmp_path.chmod(0o755)
    (tmp_path / "lab").mkdir()
    shell = Shell(tmp_path)
    shell.run(block("openssl rand"))
    [lines] = re.findall(r"^```\n(listener 8884\n.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    [publish] = re.findall(r"^mosquitto_pub .*--psk KEY.*$", PAGE, re.MULTILINE)
    broker = Broker(lines.replace("listener 8884", "listener {port} 127.0.0.1").replace("lab/psk", f"{tmp_path}/lab/psk"))
    key = (tmp_path / "lab/psk").read_text().strip().removeprefix("sensor-7:")
    assert len(key) == 64
    with broker:
        command = publish.replace("8884", f"{broker.port} -h 127.0.0.1")
        shell.run(command.replace("KEY", key))
        logged(broker, "u'sensor-7'")
        assert subprocess.run(command.replace("KEY", "00" * 32).split(), capture_output=True, timeout=TIMEOUT_S, check=False).returncode
