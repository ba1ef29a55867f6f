"""Kill workers while messages with QoS 1 and 2 go from one to another: none is lost, none is doubled, and their order stays."""

from __future__ import annotations

import random
import signal
import threading
import time

import pytest

from tests.harness.packets import (
    Connack, Connect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe,
)
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.workers.case import Workers, until

STORE = "persistence true\npersistence_location {dir}/\nmax_keepalive 0\nmax_inflight_messages 20\nmax_queued_messages 100000\n"
SESSION = ((P.SESSION_EXPIRY, 600),)
MESSAGES = 300


class Publisher:
    """Publish numbered messages, each until it is acknowledged, over any number of connections."""

    def __init__(self, port: int, name: str, qos: int) -> None:
        self.port, self.name, self.qos = port, name, qos
        self.done = 0
        self.wire: Wire | None = None
        self.thread = threading.Thread(target=self.run)
        self.stage = "publish"

    def run(self) -> None:
        while self.done < MESSAGES:
            try:
                self.step()
            except (OSError, AssertionError, TimeoutError):
                self.close()
                time.sleep(0.02)
        self.close()

    def close(self) -> None:
        if self.wire is not None:
            self.wire.close()
            self.wire = None

    def connect(self) -> Wire:
        wire = Wire(self.port, 5, timeout_s=8)
        self.wire = wire
        wire.send(Connect(self.name, clean=False, props=SESSION))
        answer = wire.read_packet()
        assert isinstance(answer, Connack) and answer.rc == 0
        return wire

    def step(self) -> None:
        again = self.wire is None
        wire = self.wire or self.connect()
        mid = self.done % 60000 + 1
        if self.stage == "publish":
            wire.send(Publish(self.name, b"%d" % self.done, self.qos, mid, dup=again))
            got = self.answer(wire)
            if self.qos == 1:
                assert got == Puback(mid)
                self.done += 1
                return
            assert got == Pubrec(mid)
            self.stage = "release"
        wire.send(Pubrel(mid))
        assert self.answer(wire) == Pubcomp(mid)
        self.stage = "publish"
        self.done += 1

    def answer(self, wire: Wire) -> object:
        got = wire.read_packet()
        assert got is not None
        return got


class Subscriber:
    """Take messages of all publishers, over any number of connections, and note what comes."""

    def __init__(self, port: int, name: str) -> None:
        self.port, self.name = port, name
        self.got: dict[str, list[int]] = {}
        self.released: set[int] = set()
        self.ends = False
        self.thread = threading.Thread(target=self.run)

    def begin(self, topics: list[str]) -> None:
        wire = Wire(self.port, 5)
        wire.send(Connect(self.name, clean=False, props=SESSION))
        assert isinstance(wire.read_packet(), Connack)
        wire.send(Subscribe(1, tuple((topic, 2) for topic in topics)))
        assert isinstance(wire.read_packet(), Suback)
        wire.close()
        self.thread.start()

    def run(self) -> None:
        while not self.ends:
            try:
                self.read()
            except (OSError, AssertionError, TimeoutError):
                time.sleep(0.02)

    def read(self) -> None:
        wire = Wire(self.port, 5, timeout_s=1)
        try:
            wire.send(Connect(self.name, clean=False, props=SESSION))
            answer = wire.read_packet()
            assert isinstance(answer, Connack) and answer.rc == 0
            while not self.ends:
                got = wire.read_packet()
                assert got is not None
                self.take(wire, got)
        finally:
            wire.close()

    def take(self, wire: Wire, got: object) -> None:
        if isinstance(got, Pubrel):
            self.released.discard(got.mid)
            wire.send(Pubcomp(got.mid))
            return
        assert isinstance(got, Publish)
        if got.qos == 2:
            if got.mid not in self.released:        # otherwise it came before, on an earlier connection
                self.got.setdefault(got.topic, []).append(int(got.payload))
                self.released.add(got.mid)
            wire.send(Pubrec(got.mid))
            return
        self.got.setdefault(got.topic, []).append(int(got.payload))
        wire.send(Puback(got.mid))


def without_repeats(numbers: list[int]) -> list[int]:
    """Leave out what a QoS 1 subscriber may get again: each run of repetitions begins with a number that came before."""
    found: list[int] = []
    for one in numbers:
        if not found or one > found[-1]:
            found.append(one)
    return found


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_or_doubled_when_workers_are_killed(seed: int) -> None:
    dice = random.Random(seed)
    with Workers(2, STORE) as broker:
        publishers = [Publisher(broker.port, broker.id_on(1 + i % 2, f"p{i}x"), 1 + i // 2) for i in range(4)]
        subscribers = [Subscriber(broker.port, broker.id_on(number, f"s{number}x")) for number in (1, 2)]
        for one in subscribers:
            one.begin([publisher.name for publisher in publishers])
        for publisher in publishers:
            publisher.thread.start()
        for _ in range(6):
            time.sleep(dice.uniform(0.1, 0.5))
            number = dice.choice((1, 2))
            before = broker.pids().get(number)
            if before is not None:
                broker.kill(number)
                until(lambda number=number, before=before: broker.pids().get(number, before) != before)
        for publisher in publishers:
            publisher.thread.join(60)
            assert not publisher.thread.is_alive(), (publisher.done, publisher.stage, broker.log()[-3000:])
        wanted = list(range(MESSAGES))
        for one in subscribers:
            until(lambda one=one: all(without_repeats(one.got.get(p.name, [])) == wanted for p in publishers),
                  lambda one=one: repr({p.name: one.got.get(p.name, [])[-30:] for p in publishers}))
        for one in subscribers:
            one.ends = True
            one.thread.join()
            for publisher in publishers:
                if publisher.qos == 2:
                    assert one.got[publisher.name] == wanted, "a message with QoS 2 was lost, doubled or out of order"


def test_a_group_gets_a_qos_2_message_once_if_its_members_change_before_the_publisher_is_back() -> None:
    with Workers(3, STORE + "cluster_watchdog 60\n") as broker:
        name = broker.id_on(1)
        sender = broker.connect(name, clean=False, props=SESSION)
        members = [broker.connect(broker.id_on(number)) for number in (2, 3)]
        late = broker.id_on(1)
        for member in members:
            member.send(Subscribe(1, (("$share/g/once", 2), ("ends", 2))))
            assert isinstance(member.read_packet(), Suback)
        count = 12
        for mid in range(1, count + 1):
            sender.send(Publish("once", b"%d" % mid, 2, mid))
            sender.expect_packet(Pubrec(mid))
        broker.kill(2, signal.SIGSTOP)
        for mid in range(1, count + 1):
            sender.send(Pubrel(mid))
        time.sleep(0.3)                 # those for worker 3 are delivered; PUBCOMP comes in order, so nothing shows that
        before = broker.kill(1)
        broker.kill(2, signal.SIGCONT)
        until(lambda: broker.pids().get(1, before) != before)
        new = broker.connect(late)
        new.send(Subscribe(1, (("$share/g/once", 2), ("ends", 2))))
        assert isinstance(new.read_packet(), Suback)
        sender = broker.connect(name, clean=False, props=SESSION)
        for mid in range(1, count + 1):
            sender.send(Pubrel(mid))
            sender.expect_packet(Pubcomp(mid))
        sender.send(Publish("ends", b"end", 2, 100))
        sender.expect_packet(Pubrec(100))
        sender.send(Pubrel(100))
        found = [payload for member in (*members, new) for payload in until_end(member)]
        assert sorted(map(int, found)) == list(range(1, count + 1))


def until_end(client: Wire) -> list[bytes]:
    """Return the payloads of QoS 2 messages up to `end`, which is not among them."""
    found: list[bytes] = []
    while b"end" not in found:
        got = client.read_packet()
        if isinstance(got, Publish):
            found.append(got.payload)
            client.send(Pubrec(got.mid))
        else:
            assert isinstance(got, Pubrel)
            client.send(Pubcomp(got.mid))
    return found[:-1]
