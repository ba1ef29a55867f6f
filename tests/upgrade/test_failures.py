"""Test that an upgrade that fails at any step leaves the old process as it was, and that a process that dies leaves the other one."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mosq.cli.commands_signal import children
from tests.harness.faults import until
from tests.harness.packets import Connack, Connect, Pingreq, Pingresp, Puback, Publish, Pubrec, Pubrel, Subscribe
from tests.harness.properties import P
from tests.upgrade.case import MEMORY, STORE, Upgraded, is_running

LISTENER = "listener {port} 127.0.0.1\nallow_anonymous true\n"
# The program of the broker, which a test replaces while the broker runs
PROGRAM = "import sys\nfrom mosq.cli import main\nsys.exit(main())\n"
# A new process that reports the steps of a right one up to a certain one, and then does what the test says
STEPS = """import os, sys, json, time, signal
if "MOSQ_UPGRADE_FD" not in os.environ:
    from mosq.cli import main
    sys.exit(main())
import mosq.server.upgrade.arrival as arrival
from mosq.server.upgrade.channel import send
def act():
    {act}
def before(name):
    right = getattr(arrival.Arrival, name)
    def wrong(self, *more):
        global me
        me = self
        act()
        return right(self, *more)
    setattr(arrival.Arrival, name, wrong)
before("{step}")
from mosq.cli import main
sys.exit(main())
"""


# What a process does to get a state of the next format: a copy in which one byte, the number of the format, is different
NEXT_FORMAT = """
    data = bytearray(os.pread(me._state_fd, os.fstat(me._state_fd).st_size, 0)); data[8] += 1
    fd = os.memfd_create("x", os.MFD_ALLOW_SEALING); os.write(fd, data)
    import fcntl; fcntl.fcntl(fd, 1033, 15); me._state_fd = fd""".strip()


@pytest.fixture(params=[MEMORY, STORE], ids=["memory", "store"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Upgraded]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with Upgraded(LISTENER + request.param, command=[sys.executable, str(program)]) as started:
        started.program = program
        yield started


class Pair:
    """A durable receiver with a delivery in flight, and a sender with a message that is not released."""

    def __init__(self, broker: Upgraded) -> None:
        self.receiver, self.sender = broker.wire(), broker.wire()
        self.receiver.send(Connect("r", clean=False, props=((P.SESSION_EXPIRY, 3600),)), Subscribe(1, (("t", 1),)))
        self.sender.send(Connect("s"))
        for wire in (self.receiver, self.sender):
            assert isinstance(wire.read_packet(), Connack)
        self.receiver.read_packet()
        self.n = 0
        self.held: list[int] = []
        self.sender.send(Publish("t", b"qos 2", 2, 1))
        self.sender.expect_packet(Pubrec(1))

    def step(self) -> None:
        """Send a message: it arrives once, and without DUP. It is acknowledged one step later."""
        self.n += 1
        self.sender.send(Publish("t", b"%d" % self.n, 1, 100 + self.n))
        self.sender.expect_packet(Puback(100 + self.n))
        got = self.receiver.read_packet()
        assert (got.payload, got.dup) == (b"%d" % self.n, False)
        while self.held:
            self.receiver.send(Puback(self.held.pop()))
        self.held.append(got.mid)
        self.receiver.expect_nothing()

    def finish(self) -> None:
        self.step()
        self.sender.send(Pubrel(1))
        self.sender.read_packet()
        got = self.receiver.read_packet()
        assert (got.payload, got.dup) == (b"qos 2", False)
        self.receiver.send(Puback(got.mid))
        self.receiver.expect_nothing()


@pytest.mark.parametrize("program", ["import nothing_of_this_name", "raise SystemExit(7)", "this is no Python", "import time; time.sleep(60)",
                                     "import os; os.kill(os.getpid(), 9)"])
def test_a_broken_program_changes_nothing(broker: Upgraded, program: str) -> None:
    pair = Pair(broker)
    pair.step()
    broker.program.write_text(program)
    broker.fail()
    pair.step()
    broker.program.write_text(PROGRAM)
    broker.upgrade()
    pair.finish()


@pytest.mark.parametrize("step", ["hello", "restore", "wait_go"])
@pytest.mark.parametrize("act", ["os.kill(os.getpid(), 9)", "sys.exit(1)", "raise MemoryError", "time.sleep(60)",
                                 'send(me._channel, {"is": "hello", "protocol": 99})', 'send(me._channel, {"is": "nonsense"})',
                                 'me._channel.send(b"[1")'])
def test_a_new_process_that_fails_at_a_step_changes_nothing(broker: Upgraded, step: str, act: str) -> None:
    pair = Pair(broker)
    pair.step()
    broker.program.write_text(STEPS.replace("{step}", step).replace("{act}", act))
    broker.fail()
    pair.step()
    assert not [child for child in children(broker.pid()) if is_running(child)]
    broker.program.write_text(PROGRAM)
    broker.upgrade()
    pair.finish()


def test_a_state_of_the_next_format_is_refused(broker: Upgraded) -> None:
    pair = Pair(broker)
    pair.step()
    broker.program.write_text(STEPS.replace("{step}", "restore").replace("{act}", NEXT_FORMAT))
    broker.fail()
    assert "the handed-over state has format 2, this version reads format 1" in broker.log()
    pair.finish()


def test_a_damaged_state_is_refused(broker: Upgraded) -> None:
    """Each copy has one changed byte, is cut, or is not sealed."""
    other = """
    data = bytearray(os.pread(me._state_fd, os.fstat(me._state_fd).st_size, 0)); WRONG
    fd = os.memfd_create("x", os.MFD_ALLOW_SEALING); os.write(fd, data)
    import fcntl; CLOSING; me._state_fd = fd"""
    pair = Pair(broker)
    seal = "fcntl.fcntl(fd, 1033, 15)"
    for wrong, sealed in (("data[-3] ^= 1", seal), ("data[40] ^= 255", seal), ("del data[20:]", seal), ("del data[-8:]", seal), ("pass", "pass")):
        pair.step()
        act = other.replace("WRONG", wrong).replace("CLOSING", sealed).strip()
        broker.program.write_text(STEPS.replace("{step}", "restore").replace("{act}", act))
        broker.fail()
        assert "the handed-over state is damaged" in broker.log()
    pair.finish()


@pytest.mark.parametrize("step", ["wait_go"])
def test_the_new_process_goes_on_if_the_old_one_is_killed_after_it_has_everything(broker: Upgraded, step: str) -> None:
    pair = Pair(broker)
    pair.step()
    broker.program.write_text(STEPS.replace("{step}", step).replace("{act}", "os.kill(os.getppid(), 9)"))
    before = broker.begin()
    broker.wait_log("the old process ended without a word")
    broker.wait_log(" running\n", 2)
    assert broker.pid() != before
    broker.program.write_text(PROGRAM)
    pair.step()
    broker.upgrade()
    pair.finish()


@pytest.mark.parametrize("step", ["hello", "restore"])
def test_a_killed_old_process_before_that_leaves_no_process(broker: Upgraded, step: str) -> None:
    """As after any kill: the clients connect to the next process. With a store, nothing acknowledged is lost."""
    broker.program.write_text(STEPS.replace("{step}", step).replace("{act}", "os.kill(os.getppid(), 9); time.sleep(0.2)"))
    before = broker.begin()
    broker.wait_end(before)
    if step == "restore":                       # it had everything
        broker.wait_log("the old process ended without a word")
        return
    broker.wait_log("Upgrade: the old process ended before it had handed over everything")


def test_a_second_request_during_an_upgrade_is_refused(broker: Upgraded) -> None:
    pair = Pair(broker)
    broker.program.write_text(STEPS.replace("{step}", "hello").replace("{act}", "time.sleep(1)"))
    before = broker.begin()
    broker.wait_log("Upgrade: starting")
    os.kill(before, int(signal.SIGRTMIN) + 1)
    broker.wait_log("Warning: Upgrade: one is under way already.")
    pair.step()                                 # clients are served until the new process is ready
    broker.wait_log("has taken over")
    broker.wait_end(before)
    pair.finish()


def test_sighup_ends_an_upgrade_and_sigterm_ends_the_broker(broker: Upgraded) -> None:
    pair = Pair(broker)
    broker.program.write_text(STEPS.replace("{step}", "hello").replace("{act}", "time.sleep(60)"))
    before = broker.begin()
    broker.wait_log("Upgrade: starting")
    os.kill(before, signal.SIGHUP)
    broker.wait_log("the configuration is read again. This process goes on.")
    pair.finish()
    broker.begin()
    broker.wait_log("Upgrade: starting", 2)
    until(lambda: children(before))         # the line comes before the process
    new = children(before)
    os.kill(before, signal.SIGTERM)
    broker.wait_end(before)
    assert new and not any(is_running(one) for one in new)


def test_a_missing_listener_is_refused(broker: Upgraded) -> None:
    pair = Pair(broker)
    text = broker.config.read_text()
    broker.config.write_text(text.replace("127.0.0.1", "127.0.0.2", 1))
    broker.fail()
    assert "does not have the listener of a connection any more" in broker.log()
    broker.config.write_text(text)
    broker.upgrade()
    pair.finish()


def test_a_client_that_connects_during_the_freeze_is_served_afterwards(broker: Upgraded) -> None:
    broker.program.write_text(STEPS.replace("{step}", "wait_go").replace("{act}", "time.sleep(1)"))
    pair = Pair(broker)
    broker.begin()
    broker.wait_log("Upgrade: starting")
    late = []
    deadline = time.monotonic() + 20
    while "has taken over" not in broker.log():
        assert time.monotonic() < deadline
        late.append(broker.wire())
        late[-1].send(Connect(f"late{len(late)}"))
        time.sleep(0.05)
    for wire in late:
        assert isinstance(wire.read_packet(), Connack)
        wire.send(Pingreq())
        wire.expect_packet(Pingresp())
    pair.finish()
