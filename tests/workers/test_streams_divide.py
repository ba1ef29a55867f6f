"""Test streams while the number of workers changes: readers, consumers, positions of Spark, retention, and records that were never committed."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from mosq._core import record_decode, record_encode
from mosq.tools.db import kinds
from mosq.tools.db.divide import Division
from mosq.tools.db.partly import Spread
from mosq.tools.db.store import NewStore, StoreSource

from mosq.journal import Stream
from mosq.pipeline.source.options import Options
from mosq.pipeline.source.rows import SCHEMA
from mosq.pipeline.source.stream import JournalStreamReader
from tests.harness.broker import Broker
from tests.harness.packets import Connect
from tests.harness.wire import Wire
from tests.workers.case import Workers, accepted, until
from tests.workers.test_stream_subscriptions import FIRST, place, received, subscribe
from tests.workers.test_streams import STREAM, folder, publish, records

COUNTS = (1, 2, 3, 1, 2)
CLIENTS = 4


class Changing(Workers):
    """A broker whose number of workers changes."""

    def change(self, count: int) -> None:
        self.stop()
        text = self.config.read_text()
        first = text.index("cluster_local ")
        end = text.index("\n", first)
        self.config.write_text(text[:first] + f"cluster_local {count}" + text[end:])
        self.start()

    def client(self, name: str) -> Wire:
        """Connect a client to a broker that may be one process."""
        client = Wire(self.port, 5)
        self.opened.append(client)
        client.send(Connect(name))
        accepted(client)
        return client


class Reader:
    """Read a stream as Spark's source does, without Spark: offsets, parts, rows."""

    def __init__(self, path: Path) -> None:
        options = {"path": str(path), "consumer": "spark"}
        self.reader = JournalStreamReader(Options(options, batch=False), SCHEMA.names)
        self.offset: Any = self.reader.initialOffset()

    def read(self) -> list[dict[str, Any]]:
        """Return the rows since the last call."""
        end = self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())
        rows: list[dict[str, Any]] = []
        for part in self.reader.partitions(self.offset, end):
            for batch in self.reader.read(part):
                rows += batch.to_pylist()
        self.offset = end
        return rows


def in_order(found: list[tuple[str, bytes]]) -> bool:
    """Return whether the numbers of each topic and publisher rise."""
    last: dict[tuple[str, bytes], int] = defaultdict(int)
    for topic, payload in found:
        who, number = payload.split(b" ")
        if int(number) <= last[topic, who]:
            return False
        last[topic, who] = int(number)
    return True


def test_all_readers_go_on_when_the_number_of_workers_changes() -> None:
    with Changing(COUNTS[0], STREAM + "mosquitto_db false\n") as broker:
        sent: list[bytes] = []
        spark: list[tuple[str, bytes]] = []
        reader: Reader | None = None
        ends: dict[int, int] = {}                       # what a client of MQTT knows: a position for each shard
        mqtt: list[tuple[str, bytes]] = []
        for stage, count in enumerate(COUNTS):
            if stage:
                broker.change(count)
            clients = [broker.client(f"c{n}") for n in range(CLIENTS)]
            for i in range(24):
                n = i % CLIENTS
                sent.append(b"c%d %d" % (n, len(sent) + 1))
                publish(clients[n], f"a/{i % 5}", sent[-1], i % 3, i + 1)
            found = records(broker, len(sent))
            stored = sorted((one for shard in found.values() for one in shard), key=lambda one: one.time_us)
            assert sorted(one.payload for one in stored) == sorted(sent)
            assert in_order([(one.topic, one.payload) for one in stored])
            # Spark, with the offsets of before
            reader = reader or Reader(folder(broker).parent)
            spark += [(row["topic"], row["payload"]) for row in reader.read()]
            assert sorted(payload for _, payload in spark) == sorted(sent) and in_order(spark)
            # a client that goes on behind what it has, and one that begins
            later = ".".join(f"{shard}:{seq}" for shard, seq in ends.items()) or "first"
            again = broker.client("again")
            subscribe(again, f"$stream/all/{later}/#")
            for one in received(again, 24):
                at, seq = place(one)
                ends[at] = seq + 1
                mqtt.append((one.topic, one.payload))
            assert sorted(payload for _, payload in mqtt) == sorted(sent) and in_order(mqtt)
            new = broker.client("new")
            subscribe(new, FIRST)
            assert sorted(one.payload for one in received(new, len(sent))) == sorted(sent)
            for client in (*clients, again, new):
                client.close()
        stream = Stream(folder(broker))
        assert reader is not None
        reader.read()                                   # which puts the marks of the consumer
        mark = stream.consumer("spark")
        assert mark is not None and sum(mark) == len(sent)
        assert stream.shards() == [0, 1, 64, 65, 128, 129, 192, 193]


def test_retention_removes_parts_that_no_worker_writes() -> None:
    with Changing(3, STREAM.replace("shards 2", "shards 1 retain_bytes 320K") + "mosquitto_db false\n") as broker:
        for number in (1, 2, 3):
            client = broker.connect(broker.id_on(number))
            for mid in range(1, 150):
                publish(client, "a/x", bytes(1000), 1, mid)
        records(broker, 3 * 149)
        broker.config.write_text(broker.config.read_text().replace("retain_bytes 320K", "retain_bytes 64K"))
        for count in (2, 1):
            broker.change(count)
            reader = broker.client("reader")
            subscribe(reader, FIRST)
            left = [64 * number for number in range(1, 4) if number > count or count == 1]
            for shard in left:
                until(lambda: sum(size for _, size in Stream(folder(broker)).sizes(shard)) <= 80 << 10, broker.log)     # noqa: B023
                assert Stream(folder(broker)).marks()[shard].first_seq > 0
            client = broker.client("c")
            publish(client, "a/x", b"last", 1, 1)
            while True:
                if received(reader, 1)[0].payload == b"last":
                    break
            client.close()
            reader.close()


@pytest.mark.parametrize("counts", [(2, 3), (3, 1), (1, 2), (2, 1)])
def test_nothing_is_twice_after_a_kill_of_all_and_another_number(counts: tuple[int, int]) -> None:
    with Changing(counts[0], STREAM + "mosquitto_db false\n") as broker:
        names = [f"c{n}" for n in range(CLIENTS)]
        clients = [broker.client(name) for name in names]
        sent = 0
        for _ in range(10):
            for client in clients:
                sent += 1
                publish(client, f"a/{sent % 3}", b"%d" % sent, 2, sent)
        assert broker.process is not None
        pids = [broker.process.pid, *broker.children()]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        broker.process.wait()
        text = broker.config.read_text()
        broker.config.write_text(text.replace(f"cluster_local {counts[0]}", f"cluster_local {counts[1]}"))
        Broker.start(broker)
        found = records(broker, sent)
        assert sorted(int(one.payload) for shard in found.values() for one in shard) == list(range(1, sent + 1))


def positions(path: str) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}

    def given(several: list[tuple[int, int, int, bytes]]) -> None:
        for _lsn, kind, _flags, body in several:
            if kind == kinds.STREAMS:
                found.update({one["name"]: one["seqs"] for one in record_decode(kind, body)["streams"]})

    StoreSource(path).scan(given)
    return found


KEY = bytes(range(16))


@pytest.mark.parametrize(("new", "want"), [
    (1, [{b"all": [7], b"all.1": [1, 2], b"all.2": [3, 4], b"all.9": [8]}]),
    (2, [{b"all": [1, 2], b"all.0": [7], b"all.9": [8]}, {b"all": [3, 4]}]),
    (9, [{b"all": [1, 2], b"all.0": [7]}, {b"all": [3, 4]}, *[{}] * 6, {b"all": [8]}]),
])  # fmt: skip
def test_positions_follow_the_parts_of_a_stream(tmp_path: Path, new: int, want: list[dict[bytes, list[int]]]) -> None:
    olds = []
    for number, streams in enumerate(({b"all": [1, 2], b"all.0": [7], b"all.9": [8]}, {b"all": [3, 4]})):
        olds.append(str(tmp_path / f"old{number}"))
        store = NewStore(olds[-1], "a test")
        for seqs in (streams, streams):                 # the last record counts
            store.add(kinds.STREAMS, record_encode(kinds.STREAMS, {"streams": [{"name": name, "seqs": at} for name, at in seqs.items()]}))
        store.finish()
        store.close()
    targets = [str(tmp_path / f"new{number}") for number in range(new)]
    Division(olds, Spread(2, KEY), targets, Spread(new, KEY if new > 1 else b"")).write("a test")
    assert [positions(path) for path in targets] == want
