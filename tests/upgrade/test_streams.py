"""Test that streams continue over an upgrade, and over one that fails: each acknowledged message is in the files once, and each subscriber to a
stream gets each record once."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mosq.journal.stream import Record, Stream
from tests.harness.packets import Connack, Connect, Puback, Publish, Subscribe
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.pipeline.journals import Journal
from tests.upgrade.case import STORE, Upgraded
from tests.upgrade.test_failures import PROGRAM, STEPS

CONFIG = "listener {port} 127.0.0.1\nallow_anonymous true\n" + STORE + "stream all t/#\nstream two t/# shards 2\nstream_events true\n"
BROKEN = STEPS.replace("{step}", "wait_go").replace("{act}", "os.kill(os.getpid(), 9)")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Upgraded]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with Upgraded(CONFIG, command=[sys.executable, str(program)]) as started:
        started.program = program
        yield started


def client(broker: Upgraded, name: str, *, durable: bool = False) -> Wire:
    wire = broker.wire()
    wire.send(Connect(name, clean=not durable, props=((P.SESSION_EXPIRY, 3600),) if durable else ()))
    assert isinstance(wire.read_packet(), Connack)
    return wire


def again(broker: Upgraded, n: int) -> None:
    """Upgrade, every third time with a process that fails when it has everything."""
    if n % 3 == 1:
        broker.program.write_text(BROKEN)
        broker.fail()
        broker.program.write_text(PROGRAM)
    else:
        broker.upgrade()


def publish(wire: Wire, lo: int, hi: int) -> None:
    for n in range(lo, hi):
        wire.send(Publish(f"t/{n % 7}", b"%d" % n, 1, n % 60000 + 1))
        assert isinstance(wire.read_packet(), Puback)


def all_records(broker: Upgraded, name: str) -> list[Record]:
    pid = broker.pid()
    os.kill(pid, signal.SIGTERM)
    broker.wait_end(pid)
    stream = Stream(broker.dir / "mosquitto.db.store" / "streams" / name)
    return [record for shard, mark in enumerate(stream.marks()) for record in stream.read(mark.first_seq, 1 << 40, shard=shard)]


@pytest.mark.parametrize("name", ["all", "two"])
def test_each_message_is_in_the_stream_once(broker: Upgraded, name: str) -> None:
    wire = client(broker, "pub")
    sent = 0
    ends = threading.Event()

    def load() -> None:
        nonlocal sent
        while not ends.is_set():
            publish(wire, sent, sent + 10)
            sent += 10

    thread = threading.Thread(target=load)
    thread.start()
    for n in range(6):
        again(broker, n)
    ends.set()
    thread.join()
    found = sorted(int(record.payload) for record in all_records(broker, name))
    assert found == list(range(sent)) and sent


def test_subscriptions_to_a_stream_continue(broker: Upgraded) -> None:
    """One has read all, one does not read its records, one is offline, and one waits for records of the future."""
    wire = client(broker, "pub")
    publish(wire, 0, 50)
    reader, slow, offline, late = (client(broker, name, durable=name == "offline") for name in ("reader", "slow", "offline", "late"))
    for one, place, qos in ((reader, "first", 0), (slow, "first", 1), (offline, "first", 1), (late, "60", 0)):
        one.send(Subscribe(1, ((f"$stream/all/{place}/t/#", qos),)))
        assert one.read_packet().codes == (qos,)
    got = [int(reader.read_packet().payload) for _ in range(50)]
    offline.close()
    for n in range(4):
        again(broker, n)
        publish(wire, 50 + 10 * n, 60 + 10 * n)
        got += [int(reader.read_packet().payload) for _ in range(10)]
    assert got == list(range(90))
    assert [int(late.read_packet().payload) for _ in range(30)] == list(range(60, 90))
    for at in (slow, None):
        if at is None:
            at = broker.wire()
            at.send(Connect("offline", clean=False, props=((P.SESSION_EXPIRY, 3600),)))
            assert at.read_packet().session
        found: dict[int, bool] = {}
        while len(found) < 90:
            packet = at.read_packet()
            assert int(packet.payload) == len(found)
            found[int(packet.payload)] = True
            at.send(Puback(packet.mid))
        at.expect_nothing()
    reader.expect_nothing()


def test_subscriptions_to_the_parts_of_former_workers_continue(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    broker = Upgraded(CONFIG, command=[sys.executable, str(program)])
    broker.program = program
    for number in (1, 2):
        part = Journal(broker.dir / "mosquitto.db.store/streams/all", f"worker.{number}")
        for n in range(40):
            part.put("t/old", b"%d" % (1000 * number + n), flags=1)
        part.commit()
        part.close()
    with broker:
        wire = client(broker, "pub")
        reader, slow = client(broker, "reader"), client(broker, "slow")
        for one, qos in ((reader, 0), (slow, 1)):
            one.send(Subscribe(1, (("$stream/all/first/t/#", qos),)))
            assert one.read_packet().codes == (qos,)
        got: list[int] = [int(reader.read_packet().payload) for _ in range(80)]
        for n in range(3):
            again(broker, n)
            publish(wire, 10 * n, 10 * n + 10)
            got += [int(reader.read_packet().payload) for _ in range(10)]
        want = [*range(30), *range(1000, 1040), *range(2000, 2040)]
        assert sorted(got) == want
        found: set[int] = set()
        while len(found) < len(want):
            packet = slow.read_packet()
            found.add(int(packet.payload))
            slow.send(Puback(packet.mid))
        slow.expect_nothing()
        reader.expect_nothing()
        assert sorted(found) == want


def test_the_events_of_the_new_process_begin_with_the_clients_that_moved(broker: Upgraded) -> None:
    mover, stored = client(broker, "mover"), client(broker, "stored", durable=True)
    mover.send(Subscribe(1, (("m", 1),)))
    assert mover.read_packet() and stored
    broker.upgrade()
    found = all_records(broker, "events")
    start = max(at for at, record in enumerate(found) if json.loads(record.payload or b"{}").get("sessions") is not None)
    later = [(record.client_id, record.topic) for record in found[start:]]
    assert json.loads(found[start].payload)["sessions"] == 2
    assert ("mover", "") in later and ("stored", "") in later and ("mover", "m") in later


@pytest.mark.parametrize("part", ["", "streams/two"], ids=["store", "stream"])
@pytest.mark.parametrize("ends", [False, True], ids=["returns", "stopped"])
def test_no_client_is_served_until_the_store_can_be_opened_again(broker: Upgraded, part: str, ends: bool) -> None:
    """The new process replaces a folder by a file, and fails."""
    place, away = broker.dir / "mosquitto.db.store" / part, broker.dir / "away"
    wire, reader = client(broker, "pub"), client(broker, "reader")
    reader.send(Subscribe(1, (("$stream/two/first/t/#", 0),)))
    assert reader.read_packet().codes == (0,)
    publish(wire, 0, 20)
    broker.program.write_text(STEPS.replace("{step}", "wait_go").replace(
        "{act}", f"os.rename({str(place)!r}, {str(away)!r}); open({str(place)!r}, 'w').close(); sys.exit(1)"))
    broker.fail()
    broker.wait_log("Error: Upgrade: no client is served until the store can be opened again: ")
    if ends:
        pid = broker.pid()              # its file may be gone at once
        os.kill(pid, signal.SIGTERM)
        broker.wait_end(pid)
        assert "did not stop in time" not in broker.log()
        return
    wire.send(Publish("t/6", b"20", 1, 21))
    place.unlink()
    away.rename(place)
    broker.wait_log("Upgrade: the store is open again, and clients are served.")
    wire.expect_packet(Puback(21, 0x10))
    broker.program.write_text(PROGRAM)
    publish(wire, 21, 30)
    broker.upgrade()
    publish(wire, 30, 40)
    assert sorted(int(reader.read_packet().payload) for _ in range(40)) == list(range(40))
    assert sorted(int(record.payload) for record in all_records(broker, "two")) == list(range(40))
