"""Test that the plugins of the new process, in Python and native ones, hear of the clients that moved, and decide about them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.harness.packets import Connack, Connect, Pingreq, Pingresp, Puback, Publish, Suback, Subscribe
from tests.native.conftest import compiled as compiled
from tests.upgrade.case import MEMORY, Upgraded
from tests.upgrade.test_failures import PROGRAM, STEPS

NOTES = """
import os
from mosq.auth.plugin import ALLOW, Plugin

class Notes(Plugin):
    def __init__(self, options):
        self.file = options["file"]
        self.note("begin")
    def note(self, text):
        with open(self.file, "a") as file:
            file.write(f"{os.getpid()} {text}\\n")
    def authenticate(self, request):
        return ALLOW
    def authorize(self, request):
        self.note(f"authorize {request.client_id} {request.topic}")
        return ALLOW
    def connected(self, event):
        self.note(f"connected {event.client_id} {event.username}")
    def disconnected(self, event):
        self.note(f"disconnected {event.client_id}")
"""


def test_a_python_plugin_hears_of_clients_that_moved(tmp_path: Path) -> None:
    (tmp_path / "notes_of_test.py").write_text(NOTES)
    notes = tmp_path / "notes"
    config = "listener {port} 127.0.0.1\n" + MEMORY + f"plugin python:notes_of_test:Notes\nplugin_opt_file {notes}\n"
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with Upgraded(config, command=[sys.executable, str(program)]) as broker:
        wire = broker.wire()
        wire.send(Connect("c", username="ann", password=b"x"))
        assert isinstance(wire.read_packet(), Connack)
        old = broker.pid()
        new = broker.upgrade()
        wire.send(Publish("t", b"x", 1, 1))
        wire.expect_packet(Puback(1, 0x10))
        lines = notes.read_text().splitlines()
        assert f"{old} connected c ann" in lines and f"{old} disconnected c" not in lines
        assert f"{new} connected c ann" in lines and f"{new} authorize c t" in lines
        program.write_text(STEPS.replace("{step}", "wait_go").replace("{act}", "sys.exit(1)"))
        broker.fail()
        wire.send(Publish("u", b"x", 1, 1))
        wire.expect_packet(Puback(1, 0x10))
        assert f"{new} authorize c u" in notes.read_text().splitlines()


@pytest.mark.parametrize("thread", ["own", "loop"])
def test_a_native_plugin_hears_of_clients_that_moved(compiled, thread: str) -> None:
    """The plugin publishes what it hears; the client that receives it has moved too."""
    config = ("listener {port} 127.0.0.1\nallow_anonymous true\n" + MEMORY +
              f"plugin {compiled('events')}\nplugin_opt_events clients\nplugin_thread {thread}\n")
    with Upgraded(config) as broker:
        watcher, wire = broker.wire(), broker.wire()
        watcher.send(Connect("watcher"), Subscribe(1, (("events", 0),)))
        while not isinstance(watcher.read_packet(), Suback):
            pass
        wire.send(Connect("c", username="ann"))
        assert isinstance(wire.read_packet(), Connack)
        for times in range(3):
            while (got := watcher.read_packet()).payload != b"connect c as ann reason 0 known 1":
                assert not got.payload.startswith(b"disconnect")
            broker.upgrade()
        wire.send(Pingreq())
        wire.expect_packet(Pingresp())
