"""Test that a message of another worker for many subscribers is delivered in slices: turns stay short, other messages pass it, and the order of its topic
stays. Turns are counted, not timed: the work of the largest turn, and the place of a message among those that were sent before it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.faults import Faults
from tests.harness.packets import Connack, Connect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.workers.case import Workers, pinged, until

BUDGET = 2000
WIDE = 10 * BUDGET              # for a message to 300 clients in one turn
WORST = 3 * BUDGET + 1000       # see tests/broker/test_turn_budget.py
CLIENTS = 300                   # about half of them are at worker 2, and stay; each of these costs 51 units of work for a message
MESSAGES = 20
CONFIG = f"turn_budget {BUDGET}\nsys_interval 1\nmax_keepalive 0\nmax_inflight_messages 100\nmax_queued_messages 0\n"
STORE = "persistence true\npersistence_location {dir}/\n"
SESSION = ((P.SESSION_EXPIRY, 600),)


def subscribe(wire: Wire, *filters: str, qos: int) -> None:
    wire.send(Subscribe(1, tuple((one, qos) for one in filters)))
    wire.expect_packet(Suback(1, (qos,) * len(filters)))


def crowd(broker: Workers, qos: int) -> list[Wire]:
    """Subscribe clients of worker 2. At worker 1, the publisher would wait for its deliveries."""
    found = [wire for wire in (broker.connect(f"crowd{n}") for n in range(CLIENTS)) if broker.holder(wire) == 2]
    for wire in found:
        subscribe(wire, "wide", qos=qos)
    return found


def numbers(wire: Wire, upto: bytes) -> list[bytes]:
    found: list[bytes] = []
    while upto not in found:
        got = wire.read_packet()
        assert isinstance(got, Publish), got
        found.append(got.payload)
        if got.qos == 1:
            wire.send(Puback(got.mid))
    return found


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def longest_turn(wire: Wire) -> int:
    """Return the work of the largest turn of the client's worker, after the interval in which everything was done."""
    time.sleep(2.2)
    wire.send(Subscribe(2, (("$SYS/broker/turn/work/maximum", 0),)))
    wire.expect_packet(Suback(2, (0,)))
    got = wire.read_packet()
    assert isinstance(got, Publish)
    return int(got.payload)


@pytest.mark.parametrize("qos", [0, 1])
def test_other_messages_pass_a_wide_one_and_its_topic_stays_in_order(qos: int) -> None:
    with Workers(2, CONFIG) as broker:
        clients = crowd(broker, qos)
        sender = broker.connect(broker.id_on(1))
        reader = broker.connect(broker.id_on(2))
        subscribe(reader, "wide", "honest", qos=qos)
        sender.send(*(Publish("wide", b"%d" % n, qos, n + 1 if qos else 0) for n in range(MESSAGES)), Publish("honest", b"here", 0))
        wanted = [b"%d" % n for n in range(MESSAGES)]
        got = numbers(reader, wanted[-1])
        rest = got + (numbers(reader, b"here") if b"here" not in got else [])
        place = rest.index(b"here")
        assert [one for one in rest if one != b"here"] == wanted
        assert place < MESSAGES // 2, f"{place} of {MESSAGES} messages for {CLIENTS} clients came before another one"
        for wire in clients:
            assert numbers(wire, wanted[-1]) == wanted
        if qos:
            assert sorted(sender.read_packet().mid for _ in range(MESSAGES)) == list(range(1, MESSAGES + 1))     # type: ignore[union-attr]
        longest = longest_turn(reader)
        assert longest <= WORST, f"the longest turn took {longest} units of work"


def test_a_worker_that_is_killed_in_a_wide_delivery_gets_the_message_again() -> None:
    with Workers(2, CONFIG + STORE) as broker:
        names = [f"crowd{n}" for n in range(CLIENTS)]
        for name in names:
            wire = broker.connect(name, clean=False, props=SESSION)
            subscribe(wire, "wide", qos=1)
            wire.close()
        sender = broker.connect(broker.id_on(1))
        for kill in range(4):
            sender.send(*(Publish("wide", b"%d" % (kill * MESSAGES + n), 1, n + 1) for n in range(MESSAGES)))
            time.sleep(0.002 * kill)
            before = broker.kill(2)
            until(lambda before=before: broker.pids().get(2, before) != before)       # type: ignore[misc]
            assert sorted(sender.read_packet().mid for _ in range(MESSAGES)) == list(range(1, MESSAGES + 1))     # type: ignore[union-attr]
        wanted = [b"%d" % n for n in range(4 * MESSAGES)]
        for name in names:
            wire = Wire(broker.port, 5)
            broker.opened.append(wire)
            wire.send(Connect(name, clean=False, props=SESSION))
            assert isinstance(wire.read_packet(), Connack)
            got = numbers(wire, wanted[-1])
            first = [one for n, one in enumerate(got) if one not in got[:n]]
            assert first == wanted, name


@dataclass
class Half:
    """A message that some of the sessions have: worker 2 finds no memory to record further deliveries."""

    broker: Workers
    faults: Faults
    names: list[str]            # sessions of worker 2 that subscribe to it
    sender_id: str
    sender: Wire                # has released or published it
    stored: Wire                # has sent a SUBSCRIBE that is in the batch being written, and one that is in the open batch


@contextmanager
def half_delivered(near: bool, qos: int, budget: int) -> Iterator[Half]:
    """The open batch has room for 256 deliveries; more memory is refused, and the batch before it is being written. `near`: the sender
    is at worker 2 too."""
    faults = Faults()
    config = CONFIG.replace(f"turn_budget {BUDGET}", f"turn_budget {budget}") + STORE
    with Workers(2, config, env=faults.env) as broker:
        names = []
        for n in range(2 * CLIENTS):
            wire = broker.connect(f"crowd{n}", clean=False, props=SESSION)
            if broker.holder(wire) == 2:
                names.append(f"crowd{n}")
                subscribe(wire, "wide", qos=qos)
            wire.close()
        assert len(names) > 256
        stored = broker.connect(broker.id_on(2, "stored"), clean=False, props=SESSION)
        sender_id = broker.id_on(2 if near else 1, "sender")
        sender = broker.connect(sender_id, clean=False, props=SESSION)
        other = broker.connect(broker.id_on(2))
        subscribe(broker.connect(broker.id_on(1)), "wide", qos=qos)     # if the sender is at worker 2, it also waits for worker 1
        if qos == 2:
            sender.send(Publish("wide", b"1", 2, 1))
            assert isinstance(sender.read_packet(), Pubrec)
        faults.set(stalled=1)
        stored.send(Subscribe(3, (("x", 1),)))
        until(lambda: faults.waiting)
        stored.send(Subscribe(4, (("y", 1),)))          # the open batch has its memory when its first record is there
        pinged(other)                                   # the reply is sent at the end of a turn that read the SUBSCRIBE
        faults.set(realloc_from=256 * 24 + 1)
        sender.send(Pubrel(1) if qos == 2 else Publish("wide", b"1", 1, 1))
        pinged(other)
        yield Half(broker, faults, names, sender_id, sender, stored)
    faults.close()


@pytest.mark.timing             # sanitizers have their own allocator, without such faults
@pytest.mark.parametrize(("near", "qos", "budget"), [     # not: an own QoS 1 message in one turn. Its publisher is disconnected, and may publish again
    (False, 1, BUDGET), (False, 2, BUDGET), (False, 1, WIDE), (False, 2, WIDE), (True, 1, BUDGET),
    (True, 2, BUDGET), (True, 2, WIDE),
])
def test_a_fan_out_without_memory_in_its_middle_waits_and_no_session_gets_it_twice(near: bool, qos: int, budget: int) -> None:
    with half_delivered(near, qos, budget) as half:
        worker = half.broker.pids()[2]
        cpu = cpu_seconds(worker)
        with pytest.raises(TimeoutError):       # it is not read either
            half.sender.read_packet(0.5)
        assert cpu_seconds(worker) - cpu < 0.2, "it does not rest while it waits for memory"
        half.faults.heal()
        answer = half.sender.read_packet()
        assert isinstance(answer, Pubcomp if qos == 2 else Puback), answer
        half.sender.send(Publish("wide", b"2", 1, 2))
        assert isinstance(half.sender.read_packet(), Puback)
        for name in half.names:
            wire = half.broker.connect(name, clean=False, props=SESSION)
            got = [one for _ in range(2) if isinstance(one := wire.read_packet(), Publish)]
            assert [one.payload for one in got] == [b"1", b"2"], name
            wire.close()


@pytest.mark.timing             # sanitizers have their own allocator, without such faults
def test_a_release_that_a_kill_catches_between_its_deliveries_is_made_again() -> None:
    """The batch with the first deliveries is in the store. Those sessions may get the message twice [ADR 2], and all get it."""
    with half_delivered(True, 2, BUDGET) as half:
        half.faults.set(stalled=0)
        for mid in (3, 4):
            half.stored.expect_packet(Suback(mid, (1,)))
        before = half.broker.kill(2)
        half.faults.heal()
        until(lambda: half.broker.pids().get(2, before) != before)
        again = half.broker.connect(half.sender_id, clean=False, props=SESSION)
        again.send(Pubrel(1))
        again.expect_packet(Pubcomp(1))
        again.send(Publish("wide", b"2", 1, 2))
        assert isinstance(again.read_packet(), Puback)
        for name in half.names:
            wire = half.broker.connect(name, clean=False, props=SESSION)
            got = numbers(wire, b"2")
            assert got[0] == b"1" and set(got) == {b"1", b"2"}, name
            wire.close()
