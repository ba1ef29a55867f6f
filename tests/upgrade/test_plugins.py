"""Test that the plugins of the new process, in Python and native ones, hear of the clients that moved, and decide about them."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.harness.effort import TIMEOUT_S
from tests.harness.packets import (
    Connack, Connect, Disconnect, Pingreq, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe, Will,
)
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.native.conftest import compiled as compiled
from tests.upgrade.case import MEMORY, STORE, Upgraded
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
    def close(self):
        self.note("close")
"""


# Decides about nothing on hold/# while the file is there. Notes the questions about it.
HOLDS = """
import os
import time
from mosq.auth.plugin import ALLOW, READ, WRITE, Plugin

class Holds(Plugin):
    def __init__(self, options):
        self.file, self.notes = options["file"], options["notes"]
    def authenticate(self, request):
        return ALLOW
    def authorize(self, request):
        if request.topic.startswith(("hold/read", "hold/write", "hold/will")):
            held = WRITE if request.topic != "hold/read" else READ
            with open(self.notes, "a") as file:
                file.write(f"{os.getpid()} {request.access} {request.topic}\\n")
            while request.access == held and os.path.exists(self.file):
                time.sleep(0.002)
        return ALLOW
"""


BURST = 50


class Held:
    """A broker whose plugin decides about nothing on hold/# until `release`."""

    def __init__(self, folder: Path) -> None:
        (folder / "holds_of_test.py").write_text(HOLDS)
        self.program = folder / "program.py"
        self.program.write_text(PROGRAM)
        self.file, self.notes = folder / "hold", folder / "questions"
        self.file.write_text("")
        self.notes.write_text("")
        self.config = (f"listener {{port}} 127.0.0.1\n{{store}}plugin python:holds_of_test:Holds\nplugin_opt_file {self.file}\n"
                       f"plugin_opt_notes {self.notes}\nauth_timeout 60\n")

    def broker(self, store: str) -> Upgraded:
        return Upgraded(self.config.replace("{store}", store), command=[sys.executable, str(self.program)])

    def wait_asked(self, pid: int, question: str) -> None:
        """Wait until a process has asked its plugin."""
        deadline = time.monotonic() + TIMEOUT_S
        while f"{pid} {question}" not in self.notes.read_text().splitlines():
            assert time.monotonic() < deadline, self.notes.read_text()
            time.sleep(0.002)

    def release(self) -> None:
        self.file.unlink()


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return Held(tmp_path)


def session(broker: Upgraded, name: str, *more: Subscribe, will: Will | None = None) -> Wire:
    """Connect a session that stays."""
    wire = broker.wire()
    wire.send(Connect(name, clean=False, will=will, props=((P.SESSION_EXPIRY, 3600),)), *more)
    assert isinstance(wire.read_packet(), Connack)
    for _ in more:
        assert isinstance(wire.read_packet(), Suback)
    return wire


def only(wire: Wire, qos: int) -> None:
    """Read the message that waited: once, and not as a repetition."""
    got = wire.read_packet()
    assert isinstance(got, Publish) and (got.payload, got.qos, got.dup) == (b"x", qos, False)
    if qos:
        wire.send(Puback(got.mid))
    wire.send(Pingreq())
    wire.expect_packet(Pingresp())


@pytest.mark.parametrize("fails", [False, True], ids=["upgraded", "thawed"])
@pytest.mark.parametrize("store", [MEMORY, STORE], ids=["memory", "store"])
def test_deliveries_that_wait_for_a_plugin_move(held: Held, store: str, fails: bool) -> None:
    with held.broker(store) as broker:
        here, away = session(broker, "here", Subscribe(1, (("hold/read", 1),))), session(broker, "away", Subscribe(1, (("hold/read", 1),)))
        low = session(broker, "low", Subscribe(1, (("hold/read", 0),)))
        away.send(Disconnect())
        away.expect_closed()
        sender = session(broker, "sender")
        sender.send(Publish("hold/read", b"x", 1, 1))
        sender.expect_packet(Puback(1, 0))
        held.wait_asked(broker.pid(), "1 hold/read")
        if fails:
            held.program.write_text(STEPS.replace("{step}", "wait_go").replace("{act}", "sys.exit(1)"))
            broker.fail()
        else:
            for _ in range(2):
                broker.upgrade()
                held.wait_asked(broker.pid(), "1 hold/read")
        held.release()
        only(here, 1)
        only(low, 0)
        only(session(broker, "away"), 1)


@pytest.mark.parametrize("store", [MEMORY, STORE], ids=["memory", "store"])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_publish_that_waits_for_a_plugin_moves(held: Held, store: str, qos: int) -> None:
    with held.broker(store) as broker:
        receiver, sender = session(broker, "r", Subscribe(1, (("hold/write", 1),))), session(broker, "s")
        sender.send(Publish("hold/write", b"x", qos, 1))
        for _ in range(2):
            held.wait_asked(broker.pid(), "2 hold/write")
            broker.upgrade()
        held.wait_asked(broker.pid(), "2 hold/write")
        held.release()
        if qos == 2:
            sender.expect_packet(Pubrec(1, 0))
            sender.send(Pubrel(1))
        only(receiver, 1)
        sender.expect_packet(Puback(1, 0) if qos == 1 else Pubcomp(1))


def leave_will(broker: Upgraded, held: Held) -> None:
    """Lose the connection of a client with a will that the plugin does not decide about."""
    session(broker, "w", will=Will("hold/will", b"x", 1)).close()
    held.wait_asked(broker.pid(), "2 hold/will")
    broker.wait_log("Client w ")


def test_a_will_that_waits_for_a_plugin_moves_with_the_store(held: Held) -> None:
    with held.broker(STORE) as broker:
        receiver = session(broker, "r", Subscribe(1, (("hold/will", 1),)))
        leave_will(broker, held)
        broker.upgrade()
        held.wait_asked(broker.pid(), "2 hold/will")
        held.release()
        only(receiver, 1)


def test_a_will_that_waits_for_a_plugin_delays_an_upgrade_without_a_store(held: Held) -> None:
    with held.broker(MEMORY) as broker:
        receiver = session(broker, "r", Subscribe(1, (("hold/will", 1),)))
        leave_will(broker, held)
        broker.fail()
        held.release()
        only(receiver, 1)
        broker.upgrade()


def test_a_command_that_was_acknowledged_is_answered(tmp_path: Path) -> None:
    """A client sends commands, some at a time, while the broker is upgraded."""
    config = "listener {port} 127.0.0.1\nallow_anonymous true\nenable_control_api true\nacl_file {dir}/acl\n" + MEMORY
    (tmp_path / "acl").write_text("topic readwrite #\ntopic readwrite $CONTROL/#\n")
    with Upgraded(config.replace("{dir}/acl", str(tmp_path / "acl"))) as broker:
        wire = broker.wire()
        wire.send(Connect("c"), Subscribe(1, (("$CONTROL/broker/v1/response", 1),)))
        sent = acknowledged = answered = 0
        for _ in range(3):
            before, running = broker.begin(), broker.log().count("has taken over")
            while broker.pid() == before or broker.log().count("has taken over") == running:
                sent += BURST
                wire.send(*(Publish("$CONTROL/broker/v1", b'{"commands": [{"command": "listPlugins"}]}', 1, n + 1) for n in range(BURST)))
                while acknowledged < sent or answered < sent:
                    got = wire.read_packet()
                    acknowledged += isinstance(got, Puback)
                    answered += isinstance(got, Publish) and b"plugins" in got.payload
            broker.wait_end(before)


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


def noted(notes: Path, pid: int) -> list[str]:
    """Return what the plugin of one process has noted."""
    return [text for number, _, text in (line.partition(" ") for line in notes.read_text().splitlines()) if number == str(pid)]


def test_the_order_of_the_first_and_last_calls_of_a_plugin(tmp_path: Path) -> None:
    """The instance of the new process begins before the old one closes. One whose process does not take over closes nothing."""
    (tmp_path / "notes_of_test.py").write_text(NOTES)
    notes = tmp_path / "notes"
    config = "listener {port} 127.0.0.1\n" + MEMORY + f"plugin python:notes_of_test:Notes\nplugin_opt_file {notes}\n"
    program = tmp_path / "program.py"
    program.write_text(STEPS.replace("{step}", "wait_go").replace("{act}", "sys.exit(1)"))
    with Upgraded(config, command=[sys.executable, str(program)]) as broker:
        broker.fail()
        first = broker.pid()
        failed = {int(line.split()[0]) for line in notes.read_text().splitlines()} - {first}
        assert [noted(notes, pid) for pid in (first, *failed)] == [["begin"], ["begin"]]
        program.write_text(PROGRAM)
        second = broker.upgrade()
        broker.wait_end(first)
        lines = notes.read_text().splitlines()
        assert lines.index(f"{second} begin") < lines.index(f"{first} close")
        assert noted(notes, second) == ["begin"]
    assert noted(notes, second) == ["begin", "close"]


@pytest.mark.parametrize("thread", ["own", "loop"])
def test_a_native_plugin_is_cleaned_up_in_the_process_that_ends(compiled, thread: str) -> None:
    config = ("listener {port} 127.0.0.1\nallow_anonymous true\n" + MEMORY + f"plugin {compiled('turns')}\nplugin_thread {thread}\n")
    with Upgraded(config) as broker:
        first = broker.pid()
        second = broker.upgrade()
        broker.wait_log(f"turns: cleanup in {first}")
        log = broker.log()
        assert log.index(f"turns: init in {first}") < log.index(f"turns: init in {second}") < log.index(f"turns: cleanup in {first}")
        assert f"turns: cleanup in {second}" not in log


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
