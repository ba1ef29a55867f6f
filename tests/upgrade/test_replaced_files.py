"""Test that a broker works on, hands over and stops after its files were replaced by those of a version that does not fit to the process.

The files are those of a copy. Each module that the old process imports after that raises ImportError in it; the new process can import all.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mosq.server.signals import REOPEN_LOG
from tests.auth.test_broker import users
from tests.harness.broker import ROOT
from tests.harness.packets import Connack, Connect, Pingreq, Pingresp, Puback, Publish, Suback, Subscribe
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.upgrade.case import MEMORY, STORE, Upgraded
from tests.upgrade.test_failures import LISTENER

# `python -c` would put the folder of the repository before the copy
PROGRAM = """import sys
sys.path.insert(0, {copy!r})
import mosq
assert mosq.__file__.startswith({copy!r})
from mosq.cli import main
sys.exit(main())
"""
AT_THE_END = """
import os
if os.getpid() == {pid}:
    os.write(2, b"too late: " + __name__.encode() + b"\\n")
    raise ImportError("a module of another version")
"""
KINDS = {
    "memory": LISTENER + MEMORY,
    "store": LISTENER + STORE,
    "stream": LISTENER + STORE + "stream all t/#\n",
    "files": "listener {port} 127.0.0.1\npassword_file {dir}/passwd\nallow_anonymous true\nacl_file {dir}/acl\n" + STORE,
    "control": LISTENER + MEMORY + "enable_control_api true\n",
    "bridge": LISTENER + MEMORY + "connection b\naddress 127.0.0.1:1\ntopic # both 2\n",
    "plugin": LISTENER + MEMORY + "plugin /usr/lib/mosquitto_sparkplug_aware.so\n",
}
TREE = "b (c, 1)"                  # SIGUSR2 prints it
ACL = "pattern readwrite t/#\n"


class Replaced(Upgraded):
    """A broker that runs from a copy of the modules."""

    def __init__(self, kind: str, copy: Path) -> None:
        self.copy = copy
        shutil.copytree(ROOT / "mosq", copy / "mosq", ignore=shutil.ignore_patterns("__pycache__"), copy_function=copied)
        program = copy / "program.py"
        program.write_text(PROGRAM.format(copy=str(copy)))
        super().__init__(KINDS[kind], {"acl": ACL, "passwd": users(ann="secret")}, command=[sys.executable, str(program)])

    def replace(self) -> None:
        """Replace all files as a package does, with new ones of the same names."""
        os.kill(self.pid(), signal.SIGUSR2)
        self.wait_log(TREE)             # signals have effects only after the last modules are loaded
        for path in (self.copy / "mosq").rglob("*.py"):
            new = path.with_suffix(".dpkg-new")
            new.write_text(path.read_text() + AT_THE_END.format(pid=self.pid()))
            new.rename(path)

        for path in (self.copy / "mosq").rglob("*.py"):
            new = path.with_suffix(".new")
            new.write_text(path.read_text() + AT_THE_END.format(pid=self.pid()))
            new.rename(path)

    def signal_all(self, client: Wire) -> None:
        """Send all signals that change nothing, each after the one before had its effect."""
        right = self.config.read_text()
        for n, lines in enumerate((right, right + "no_such_option 1\n", right), 1):
            self.config.write_text(lines)
            os.kill(self.pid(), signal.SIGHUP)
            self.wait_log("Reloading config.", n)
            # a reload holds new clients until it ends
            self.login(f"after reload {n}")
        assert self.log().count("The configuration was not reloaded") == 1
        for number in (signal.SIGUSR1, REOPEN_LOG, signal.SIGUSR2):
            os.kill(self.pid(), number)
        self.wait_log(TREE, 2)
        client.send(Pingreq())
        client.expect_packet(Pingresp())

    def login(self, name: str) -> Wire:
        wire = self.wire()
        wire.send(Connect(name, username="ann", password=b"secret", clean=False, props=((P.SESSION_EXPIRY, 3600),)))
        assert isinstance(wire.read_packet(), Connack)
        return wire

    def client(self) -> Wire:
        """Return a client with a subscription, after it has published something that a store keeps."""
        wire = self.login("c")
        wire.send(Publish("t/a", b"x", 1, 1, retain=True))
        assert isinstance(wire.read_packet(), Puback)
        wire.send(Subscribe(2, (("t/b", 1),)))
        assert isinstance(wire.read_packet(), Suback)
        return wire


def copied(source: str, target: str) -> None:
    """Copy modules of Python, and link compiled ones, which are large."""
    (os.symlink if source.endswith(".so") else shutil.copyfile)(source, target)


@pytest.fixture(params=list(KINDS))
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Replaced]:
    with Replaced(request.param, tmp_path) as started:
        yield started


def test_signals_and_an_upgrade(broker: Replaced) -> None:
    client = broker.client()
    broker.replace()
    broker.signal_all(client)
    broker.upgrade()
    client.send(Publish("t/b", b"y", 1, 3))
    got = {type(client.read_packet()), type(client.read_packet())}
    assert got == {Puback, Publish}
    assert "too late" not in broker.log()


def test_a_stop(broker: Replaced) -> None:
    broker.client()
    broker.replace()
    assert broker.stop() == 0
    assert "too late" not in broker.log() and "Error" not in broker.log(), broker.log()
    if "persistence true" in broker.config.read_text():
        assert (broker.dir / "mosquitto.db").stat().st_size > 0
