"""Test subscriptions to streams with several workers: a subscriber of any worker reads the parts of all."""

from __future__ import annotations

import signal
import threading
from collections import defaultdict

import pytest

from mosq.journal import Stream
from tests.harness.packets import Connect, Puback, Publish, Suback, Subscribe, Unsubscribe
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.workers.case import Workers, accepted, until
from tests.workers.test_streams import STORE, STREAM, folder, publish, records

FIRST = "$stream/all/first/#"


def subscribe(client: Wire, topic: str, code: int = 1, qos: int = 1) -> None:
    client.send(Subscribe(1, ((topic, qos),)))
    assert client.read_packet() == Suback(1, (code,))


def place(message: Publish) -> tuple[int, int]:
    """Return the shard and the sequence number of a message."""
    user = dict(pair for name, pair in message.props if name == P.USER and isinstance(pair, tuple))
    return int(user["mosq-shard"]), int(user["mosq-seq"])


def received(client: Wire, n: int) -> list[Publish]:
    """Receive and acknowledge n messages."""
    found = []
    while len(found) < n:
        message = client.read_packet()
        assert isinstance(message, Publish), message
        if message.qos:
            client.send(Puback(message.mid))
        found.append(message)
    return found


def in_order(messages: list[Publish]) -> bool:
    """Return whether each shard's numbers rise by one, from 0, for all records that are in the stream."""
    numbers: dict[int, list[int]] = defaultdict(list)
    for message in messages:
        shard, seq = place(message)
        numbers[shard].append(seq)
    return all(one == list(range(one[0], one[0] + len(one))) for one in numbers.values())


@pytest.mark.parametrize("n", [2, 3])
def test_a_subscriber_of_any_worker_gets_the_records_of_all(n: int) -> None:
    with Workers(n, STREAM) as broker:
        publishers = {number: broker.connect(broker.id_on(number)) for number in range(1, n + 1)}
        sent = []
        for mid in range(1, 31):
            for number, client in publishers.items():
                sent.append(b"%d-%d" % (number, mid))
                publish(client, f"a/{mid % 7}", sent[-1], mid % 3, mid)
        for number in publishers:
            reader = broker.connect(broker.id_on(number, "reader"))
            subscribe(reader, FIRST, 0, 0)          # with QoS 1, messages of QoS 0 pass those that wait for the window
            stored = received(reader, len(sent))
            for mid, client in publishers.items():          # and those that follow
                publish(client, "a/live", b"live %d" % mid, 1, 90 + number)
            live = received(reader, n)
            assert sorted(one.payload for one in stored) == sorted(sent)
            assert sorted(one.payload for one in live) == sorted(b"live %d" % mid for mid in publishers)
            assert in_order(stored + live)
            assert {place(one)[0] // 64 for one in stored} == set(publishers)
            order: dict[tuple[bytes, str], list[int]] = defaultdict(list)
            for one in stored:
                if one.payload.startswith(b"live"):
                    continue
                who, mid_text = one.payload.split(b"-")
                order[who, one.topic].append(int(mid_text))
            assert all(mids == sorted(mids) for mids in order.values())
            sent += [one.payload for one in live]


def test_a_reader_waits_for_records_of_other_workers_only() -> None:
    with Workers(2, STREAM) as broker:
        reader = broker.connect(broker.id_on(1))
        subscribe(reader, "$stream/all/first/a/+")
        publisher = broker.connect(broker.id_on(2))
        for mid in range(1, 40):
            publish(publisher, "a/x" if mid % 2 else "a/x/y", b"%d" % mid, 1, mid)
        assert [int(one.payload) for one in received(reader, 20)] == list(range(1, 40, 2))


def test_positions_survive_a_reconnect_to_the_session() -> None:
    with Workers(2, STREAM) as broker:
        name = broker.id_on(1, "reader")
        reader = broker.connect(name, clean=False, props=((P.SESSION_EXPIRY, 100),))
        subscribe(reader, FIRST)
        publishers = [broker.connect(broker.id_on(number)) for number in (1, 2)]
        for mid in range(1, 11):
            for client in publishers:
                publish(client, f"a/{mid % 3}", b"%d" % mid, 1, mid)
        got = received(reader, 20)
        reader.close()
        for mid in range(11, 21):
            for client in publishers:
                publish(client, f"a/{mid % 3}", b"%d" % mid, 1, mid)
        again = Wire(broker.port, 5)
        broker.opened.append(again)
        again.send(Connect(name, clean=False, props=((P.SESSION_EXPIRY, 100),)))
        assert accepted(again).session
        got += received(again, 20)
        assert in_order(got)
        assert sorted(one.payload for one in got) == sorted(b"%d" % mid for mid in range(1, 21) for _ in publishers)


def test_a_place_names_shards() -> None:
    with Workers(2, STORE + "stream all a/#\n") as broker:
        publishers = {number: broker.connect(broker.id_on(number)) for number in (1, 2)}
        for mid in range(1, 11):
            for number, client in publishers.items():
                publish(client, "a", b"%d" % number, 1, mid)
        reader = broker.connect(broker.id_on(2, "reader"))
        for text, want in (("7", {64: 7, 128: 7}), ("3.9", {64: 3, 128: 9}), ("128:8.64:2", {64: 2, 128: 8}), ("128:9", {64: 0, 128: 9}),
                           ("2020-01-01", {64: 0, 128: 0})):
            topic = f"$stream/all/{text}/#"
            subscribe(reader, topic)
            found = received(reader, sum(10 - seq for seq in want.values()))
            assert {shard: min(seq for at, seq in map(place, found) if at == shard) for shard in want} == want
            reader.send(Unsubscribe(2, (topic,)))
            reader.read_packet()
        for text in ("1.2.3", "1.2.", ".1", "64:", ":1", "64:1.2", "64:1.", "192:1", "64:1:2", "64:99999999999999999999", "2020-01-01:1"):
            subscribe(reader, f"$stream/all/{text}/#", 0x8F)
        subscribe(reader, "$stream/all.0/first/#", 0x8F)


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_a_reader_goes_on_when_the_writer_of_a_part_is_killed(by: int) -> None:
    with Workers(2, STREAM) as broker:
        name = broker.id_on(2)
        reader = broker.connect(broker.id_on(1, "reader"))
        subscribe(reader, FIRST)
        found: list[Publish] = []
        sent = 0
        for _ in range(4):
            client = broker.connect(name)
            for _ in range(30):
                sent += 1
                publish(client, f"a/{sent % 5}", b"%d" % sent, 1, sent)
            pid = broker.kill(2, by)
            found += received(reader, sent - len(found))
            until(lambda: broker.pids().get(2, pid) not in (pid, None), broker.log)     # noqa: B023
        assert sorted(int(one.payload) for one in found) == list(range(1, sent + 1))
        assert in_order(found)
        assert "Warning: stream" not in broker.log()


def test_a_reader_and_kills_under_load() -> None:
    with Workers(3, STREAM) as broker:
        names = [broker.id_on(number) for number in (2, 3)]
        reader = broker.connect(broker.id_on(1, "reader"))
        subscribe(reader, FIRST)
        sent: dict[str, int] = dict.fromkeys(names, 0)
        over = threading.Event()

        def load(name: str) -> None:
            while not over.is_set():
                try:
                    client = Wire(broker.port, 5)
                    broker.opened.append(client)
                    client.send(Connect(name))
                    accepted(client)
                    while not over.is_set():
                        client.send(Publish(f"a/{name}", b"%d" % (sent[name] + 1), 1, 1))
                        assert isinstance(client.read_packet(), Puback)
                        sent[name] += 1
                    client.close()
                except (OSError, AssertionError, TypeError, ValueError):
                    continue                    # its worker was killed: it sends the message again

        threads = [threading.Thread(target=load, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        got: dict[str, list[int]] = {name: [] for name in names}
        found: list[Publish] = []

        def receive(least: dict[str, int]) -> None:
            while any(not got[name] or got[name][-1] < least[name] for name in names):
                one = received(reader, 1)[0]
                found.append(one)
                got[one.topic[2:]].append(int(one.payload))

        for number in (2, 3, 2):
            receive({name: sent[name] + 50 for name in names})
            pid = broker.kill(number)
            until(lambda: broker.pids().get(number, pid) not in (pid, None), broker.log)     # noqa: B023
        over.set()
        for thread in threads:
            thread.join(30)
        receive(dict(sent))
        assert in_order(found)
        for name in names:
            once = list(dict.fromkeys(got[name]))           # a message without PUBACK comes again
            assert once == list(range(1, once[-1] + 1)) and once[-1] >= sent[name]
            assert got[name] == sorted(got[name])
        assert "Warning: stream" not in broker.log()


def test_retention_removes_what_another_worker_reads() -> None:
    with Workers(2, STORE + "stream all a/# retain_bytes 64K\n") as broker:
        reader = broker.connect(broker.id_on(1, "reader"))
        subscribe(reader, FIRST)
        publisher = broker.connect(broker.id_on(2))
        for mid in range(1, 301):                               # the reader acknowledges nothing
            publish(publisher, "a", b"%4d" % mid + bytes(3000), 1, mid)
        until(lambda: sum(one.first_seq for one in Stream(folder(broker)).marks()) > 200, broker.log)
        found: list[Publish] = []
        while not found or not found[-1].payload.startswith(b" 300"):
            found += received(reader, 1)
        numbers = [int(one.payload[:4]) for one in found]
        assert numbers == sorted(set(numbers)) and numbers[0] == 1
        assert "of shard 128 are no longer kept. Client reader" in broker.log()


def test_a_slow_reader_of_another_part_delays_no_client() -> None:
    with Workers(2, STREAM) as broker:
        slow = broker.connect(broker.id_on(1, "slow"))
        subscribe(slow, FIRST)                  # and reads nothing
        reader = broker.connect(broker.id_on(1, "reader"))
        subscribe(reader, FIRST)
        publisher = broker.connect(broker.id_on(2))
        for mid in range(1, 200):
            publish(publisher, "a/1", b"%d" % mid + bytes(2000), 1, mid)
        assert len(received(reader, 199)) == 199
        assert sorted(records(broker, 199)) == [64, 65, 128, 129]
        assert len(received(slow, 199)) == 199
