"""Test that a client which connects after SIGHUP meets the new rules, and that it never waits long for them.

The tests make a reload slow with a FIFO in place of the acl_file: reading it ends when the test has written the rules.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import select
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from mosq.server.reload import HELD_S
from tests.harness.broker import ROOT, Broker
from tests.harness.packets import Connack, Connect, Pingreq, Pingresp, Puback, Publish, Suback, Subscribe
from tests.harness.wire import Wire

NOT_AUTHORIZED = 0x87
CONFIG = "listener {port} 127.0.0.1\nallow_anonymous true\nacl_file {dir}/acl\n"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(CONFIG, {"acl": "topic readwrite old\n"}) as running:
        yield running


def connected(broker: Broker, client_id: str = "c") -> Wire:
    wire = asked(broker, client_id)
    answered(wire)
    return wire


def asked(broker: Broker, client_id: str = "c") -> Wire:
    wire = Wire(broker.port, 5)
    wire.send(Connect(client_id))
    return wire


def answered(wire: Wire) -> None:
    got = wire.read_packet()
    assert isinstance(got, Connack) and got.rc == 0, got


def allowed(wire: Wire, topic: str) -> bool:
    wire.send(Publish(topic, b"x", 1, 7))
    got = wire.read_packet()
    assert isinstance(got, Puback), got
    return got.rc != NOT_AUTHORIZED


def pinged(wire: Wire) -> None:
    wire.send(Pingreq())
    assert isinstance(wire.read_packet(), Pingresp)


def slow_reload(broker: Broker) -> None:
    (broker.dir / "acl").unlink()
    os.mkfifo(broker.dir / "acl")
    (broker.dir / "acl").chmod(0o644)
    broker.send_signal(signal.SIGHUP)


def end_reload(broker: Broker, rules: str) -> None:
    with (broker.dir / "acl").open("w") as fifo:        # waits until the broker reads
        fifo.write(rules)


def test_a_connect_waits_until_the_reload_is_applied(broker: Broker) -> None:
    witness = connected(broker, "witness")
    slow_reload(broker)
    late = [asked(broker, f"c{i}") for i in range(100)]
    for _ in range(3):
        pinged(witness)                                 # connected clients notice nothing, and the loop has read each CONNECT
    assert allowed(witness, "old")
    assert select.select([wire.sock for wire in late], [], [], 0)[0] == []
    end_reload(broker, "topic readwrite new\n")
    for wire in late:
        answered(wire)
        assert allowed(wire, "new") and not allowed(wire, "old")
        wire.close()
    witness.close()


def test_a_connect_waits_until_the_reload_is_refused(broker: Broker) -> None:
    slow_reload(broker)
    late = asked(broker)
    end_reload(broker, "nonsense\n")
    answered(late)
    assert allowed(late, "old")
    late.close()


@pytest.mark.timing
def test_a_connect_does_not_wait_for_a_reload_that_hangs(broker: Broker) -> None:
    slow_reload(broker)
    first = asked(broker, "first")
    answered(first)                                     # after three seconds
    second = connected(broker, "second")                # the time is over for all
    assert allowed(first, "old") and allowed(second, "old")
    deadline = time.monotonic() + 10
    while "Warning: The reload has not ended after 3 seconds" not in broker.log():
        assert time.monotonic() < deadline
        pinged(first)
    end_reload(broker, "topic readwrite new\n")
    deadline = time.monotonic() + 10
    while allowed(second, "old"):
        assert time.monotonic() < deadline
    for wire in (first, second, connected(broker, "third")):
        assert allowed(wire, "new")
        wire.close()


def test_the_warning_comes_when_clients_no_longer_wait() -> None:
    found = re.search(r"RELOAD_HOLD_MS = (\d+)", (ROOT / "cext/broker/lifecycle/reload_hold.pyx").read_text())
    assert found is not None and int(found[1]) == 1000 * HELD_S


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_ends_a_reload_that_hangs(broker: Broker, number: int) -> None:
    slow_reload(broker)
    with (broker.dir / "acl").open("w"):                # waits until the broker reads
        assert broker.process is not None
        # Python runs the handler when a signal interrupts read(); one that arrives just before read() waits for the next one
        for _ in range(5):
            broker.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                broker.process.wait(2)
                break
    assert broker.process.returncode == 0
    assert "terminating" in broker.log() and "not reloaded" not in broker.log()


def test_two_reloads_at_once_are_applied_before_the_client(broker: Broker) -> None:
    slow_reload(broker)
    end_reload(broker, "topic readwrite first\n")
    (broker.dir / "acl").unlink()
    (broker.dir / "acl").write_text("topic readwrite last\n")
    broker.send_signal(signal.SIGHUP)
    wire = connected(broker)
    assert allowed(wire, "last") and not allowed(wire, "first")
    wire.close()


def test_each_client_that_connects_right_after_the_signal_meets_the_new_rules(broker: Broker) -> None:
    for n in range(30):
        (broker.dir / "acl").write_text(f"topic readwrite t{n}\n")
        broker.send_signal(signal.SIGHUP)
        wire = connected(broker)
        assert allowed(wire, f"t{n}") and not allowed(wire, f"t{n - 1}")
        wire.close()


@pytest.mark.parametrize("each", [10, pytest.param(250, marks=pytest.mark.part("hostile"))])     # 400 clients, 10,000 clients
def test_reloads_while_many_clients_connect(broker: Broker, each: int) -> None:
    """Test that each of them gets in, that those that come after the last signal meet the last rules, and that no message is lost."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rules = "topic readwrite t{n}\ntopic readwrite kept\n"
    (broker.dir / "acl").write_text(rules.format(n=0))
    broker.send_signal(signal.SIGHUP)
    reader, writer = connected(broker, "reader"), connected(broker, "writer")
    reader.send(Subscribe(1, (("kept", 1),)))
    assert isinstance(reader.read_packet(), Suback)
    wires = []
    for n in range(40):
        wires += [asked(broker, f"{n} {i}") for i in range(each)]
        (broker.dir / "acl.new").write_text(rules.format(n=n))
        (broker.dir / "acl.new").rename(broker.dir / "acl")
        broker.send_signal(signal.SIGHUP)
        writer.send(Publish("kept", b"%d" % n, 1, n + 1))
    last = [asked(broker, f"last {i}") for i in range(10)]
    for wire in (*wires, *last):
        answered(wire)
    for wire in last:
        assert allowed(wire, "t39") and not allowed(wire, "t38")
    for wire in wires:
        pinged(wire)
    assert [writer.read_packet().mid for _ in range(40)] == list(range(1, 41))
    for n in range(40):
        got = reader.read_packet()
        assert got.payload == b"%d" % n
        reader.send(Puback(got.mid))
    for wire in (*wires, *last, reader, writer):
        wire.close()
