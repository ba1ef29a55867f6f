"""Test that a will which other workers get survives the kill of its worker, of the others, and of both, and comes once with QoS 2."""

from __future__ import annotations

import signal
import time

import pytest

from tests.harness.packets import Connack, Connect, Publish, Pubcomp, Pubrec, Pubrel, Suback, Subscribe, Will
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.workers.case import Workers, until

STORE = "persistence true\npersistence_location {dir}/\nmax_keepalive 0\ncluster_watchdog 60\n"
SESSION = ((P.SESSION_EXPIRY, 600),)


def subscriber(broker: Workers, name: str, qos: int, topic: str) -> Wire:
    wire = broker.connect(name, clean=False, props=SESSION)
    wire.send(Subscribe(1, ((topic, qos),)))
    wire.expect_packet(Suback(1, (qos,)))
    return wire


def payloads(broker: Workers, name: str, ends: str) -> list[bytes]:
    """Connect again and return the payloads of what is queued, up to a message that another client publishes now."""
    for attempt in range(100):
        try:
            wire = Wire(broker.port, 5)
            broker.opened.append(wire)
            wire.send(Connect(name, clean=False, props=SESSION))
            assert isinstance(wire.read_packet(), Connack)
            break
        except (AssertionError, OSError):
            assert attempt < 99
            time.sleep(0.1)
    found: list[bytes] = []
    while ends.encode() not in found:
        got = wire.read_packet()
        if isinstance(got, Publish):
            found.append(got.payload)
            if got.qos == 2:
                wire.send(Pubrec(got.mid))
        else:
            assert isinstance(got, Pubrel), got
            wire.send(Pubcomp(got.mid))
    return found[:-1]


def finish(broker: Workers, name: str, topic: str) -> None:
    """Publish the last message with QoS 2; worker 1 has sent its wills before it serves a client."""
    wire = broker.connect(name)
    wire.send(Publish(topic, b"end", 2, 1))
    wire.expect_packet(Pubrec(1))
    wire.send(Pubrel(1))
    wire.expect_packet(Pubcomp(1))


def again(broker: Workers, number: int, before: int) -> None:
    until(lambda: broker.pids().get(number, before) != before)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("qos", [1, 2])
def test_both_workers_are_killed_before_the_other_one_has_read_the_will(qos: int, clean: bool) -> None:
    with Workers(2, STORE) as broker:
        name = broker.id_on(2)
        subscriber(broker, name, 2, "will/#")
        last = broker.id_on(1)
        dying = Wire(broker.port, 5)
        dying.send(Connect(broker.id_on(1), clean=clean, props=() if clean else SESSION, will=Will("will/1", b"gone", qos)))
        assert isinstance(dying.read_packet(), Connack)
        time.sleep(0.2)         # the record of the will is committed
        two = broker.kill(2, signal.SIGSTOP)
        dying.close()
        time.sleep(0.3)         # worker 1 has sent the will, and keeps its record
        one = broker.kill(1)
        broker.kill(2)
        again(broker, 1, one)
        again(broker, 2, two)
        finish(broker, last, "will/end")
        assert payloads(broker, name, "end") == [b"gone"]


@pytest.mark.parametrize("killed", ["own", "other"])
def test_a_will_with_qos_2_comes_once_if_one_worker_is_killed(killed: str) -> None:
    with Workers(2, STORE) as broker:
        name = broker.id_on(2)
        subscriber(broker, name, 2, "will/#")
        last = broker.id_on(1)
        dying = Wire(broker.port, 5)
        dying.send(Connect(broker.id_on(1), will=Will("will/1", b"gone", 2, retain=True)))
        assert isinstance(dying.read_packet(), Connack)
        time.sleep(0.2)
        broker.kill(2, signal.SIGSTOP)
        dying.close()
        time.sleep(0.3)
        if killed == "own":                 # worker 2 reads the will of both runs
            before = broker.kill(1)
            broker.kill(2, signal.SIGCONT)
            again(broker, 1, before)
        else:
            before = broker.kill(2)
            again(broker, 2, before)
        finish(broker, last, "will/end")
        assert payloads(broker, name, "end") == [b"gone"]
        reader = broker.connect(broker.id_on(1))
        reader.send(Subscribe(1, (("will/1", 0),)))
        assert isinstance(reader.read_packet(), Suback)
        reader.expect_packet(Publish("will/1", b"gone", retain=True))


def test_wills_of_an_ordinary_stop_come_after_the_next_start() -> None:
    with Workers(2, STORE) as broker:
        name = broker.id_on(2)
        subscriber(broker, name, 2, "will/#").close()
        last = broker.id_on(1)
        dying = broker.connect(broker.id_on(1), clean=False, props=SESSION, will=Will("will/1", b"gone", 1))
        broker.stop()
        dying.close()
        broker.start()
        finish(broker, last, "will/end")
        assert payloads(broker, name, "end") == [b"gone"]


def test_a_will_below_sys_does_not_come_after_the_next_start() -> None:
    """It would replace what its client, such as a bridge, has published since."""
    state = "$SYS/broker/connection/b/state"
    with Workers(2, STORE) as broker:
        wire = Wire(broker.port, 5)
        wire.send(Connect(broker.id_on(1), will=Will(state, b"0", 1, retain=True)))
        assert isinstance(wire.read_packet(), Connack)
        time.sleep(0.2)         # the record of the will is committed
        broker.kill(2, signal.SIGSTOP)
        wire.close()
        time.sleep(0.3)         # worker 1 has sent the will
        one, two = broker.kill(1), broker.kill(2)
        again(broker, 1, one)
        again(broker, 2, two)
        for place in (1, 2):
            reader = broker.connect(broker.id_on(place))
            reader.send(Subscribe(1, ((state, 0),)))
            assert isinstance(reader.read_packet(), Suback)
            reader.expect_nothing()


def test_the_record_of_a_will_ends_when_all_workers_have_it() -> None:
    with Workers(3, STORE) as broker:
        names = [broker.id_on(number) for number in (2, 3)]
        for name in names:
            subscriber(broker, name, 2, "will/#")
        dying, last = broker.id_on(1), broker.id_on(1)
        for life in range(20):
            wire = Wire(broker.port, 5)
            wire.send(Connect(dying, will=Will("will/1", b"%d" % life, 1 + life % 2)))
            assert isinstance(wire.read_packet(), Connack)
            wire.close()
        time.sleep(0.5)
        before = broker.kill(1)
        again(broker, 1, before)
        finish(broker, last, "will/end")
        for name in names:
            assert sorted(payloads(broker, name, "end"), key=int) == [b"%d" % life for life in range(20)]


def test_wills_that_a_start_has_restored_survive_a_kill_of_that_start() -> None:
    """Worker 2 is stopped in its start, so worker 1 cannot send the wills of clients without a session, but it cleans its store."""
    with Workers(2, STORE) as broker:
        name = broker.id_on(2)
        subscriber(broker, name, 2, "will/#")
        wanted = set()
        for i in range(4):
            dying = Wire(broker.port, 5)
            broker.opened.append(dying)
            dying.send(Connect(broker.id_on(1), will=Will(f"will/{i}", b"%d" % i, 2)))
            assert isinstance(dying.read_packet(), Connack)
            wanted.add(b"%d" % i)
        time.sleep(0.2)         # the records of the wills are committed
        old = set(broker.children())
        store = broker.dir / "mosquitto.db.store/worker.1"

        def segments() -> dict[str, int]:
            return {one.name: one.stat().st_ino for one in store.glob("segment.*")} | {"": len((store / "segment.000001").read_bytes())}

        assert broker.process is not None
        before = segments()
        one, two = broker.pids()[1], broker.pids()[2]
        broker.kill(1)
        broker.kill(2)
        until(lambda: len(set(broker.children()) - old) == 2 and len(broker.pids()) == 2)
        broker.kill(2, signal.SIGSTOP)
        until(lambda: segments() != before, broker.log)
        time.sleep(0.5)         # the cleaning is done
        again_1 = broker.kill(1)
        broker.kill(2, signal.SIGCONT)
        again(broker, 1, again_1)
        assert one != again_1 and two not in broker.pids().values()
        finish(broker, broker.id_on(1), "will/end")
        assert set(payloads(broker, name, "end")) == wanted
