"""Test streams of a broker with several workers: each worker writes a part, and readers see one stream."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mosq.journal import Record, Stream
from mosq.journal.arrow import batches
from mosq.journal.parts import STRIDE, marks_of
from tests.harness.packets import Connect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe
from tests.harness.wire import Wire
from tests.workers.case import Workers, until

STORE = "max_keepalive 0\npersistence true\npersistence_location {dir}/\n"
STREAM = STORE + "stream all a/# shards 2\n"


def folder(broker: Workers, name: str = "all") -> Path:
    return broker.dir / "mosquitto.db.store/streams" / name


def publish(client: Wire, topic: str, payload: bytes, qos: int, mid: int, **more: object) -> None:
    client.send(Publish(topic, payload, qos, mid if qos else 0, **more))       # type: ignore[arg-type]
    if qos == 1:
        assert isinstance(client.read_packet(), Puback)
    elif qos == 2:
        assert isinstance(client.read_packet(), Pubrec)
        client.send(Pubrel(mid))
        client.expect_packet(Pubcomp(mid))


def records(broker: Workers, n: int, name: str = "all") -> dict[int, list[Record]]:
    """Return the records of each shard, when there are n in all."""
    stream = Stream(folder(broker, name))
    until(lambda: sum(mark.seq for mark in stream.marks()) >= n, broker.log)
    return {shard: list(stream.read(0, 1 << 40, shard)) for shard in stream.shards()}


def payloads(found: dict[int, list[Record]]) -> list[bytes]:
    return sorted(record.payload for one in found.values() for record in one)


def test_each_message_is_in_one_shard_of_the_worker_that_received_it() -> None:
    with Workers(3, STREAM) as broker:
        clients = {number: broker.connect(broker.id_on(number)) for number in (1, 2, 3)}
        watch = broker.connect(broker.id_on(2))
        watch.send(Subscribe(1, (("a/#", 0),)))         # so that messages pass links
        assert isinstance(watch.read_packet(), Suback)
        want: dict[int, list[bytes]] = {1: [], 2: [], 3: []}
        mid = 0
        for number, client in clients.items():
            for qos in (0, 1, 2):
                for i in range(6):
                    mid += 1
                    publish(client, f"a/{i}", b"%d" % mid, qos, mid, retain=i == 5)
                    want[number].append(b"%d" % mid)
        found = records(broker, mid)
        assert sorted(found) == [64, 65, 128, 129, 192, 193]
        for number, sent in want.items():
            own = {shard: one for shard, one in found.items() if shard // STRIDE == number}
            assert payloads(own) == sorted(sent)
            topics = [{record.topic for record in one} for one in own.values()]
            assert not topics[0] & topics[1]
        for one in found.values():
            assert [record.seq for record in one] == list(range(len(one)))
        assert len({marks_of(folder(broker) / f"worker.{number}")["stream_id"] for number in (1, 2, 3)}) == 1


def test_commands_and_arrow_see_one_stream() -> None:
    with Workers(2, STREAM) as broker:
        for number in (1, 2):
            client = broker.connect(broker.id_on(number))
            for mid in range(1, 21):
                publish(client, f"a/{mid}", b"%d" % (100 * number + mid), 1, mid)
        records(broker, 40)
        stream = Stream(folder(broker))
        rows = [row for shard in stream.shards() for batch in batches(stream.path, shard) for row in batch.to_pylist()]
        assert sorted(row["payload"] for row in rows) == sorted(b"%d" % (100 * number + mid) for number in (1, 2) for mid in range(1, 21))
        assert {row["shard"] for row in rows} == {64, 65, 128, 129}

        def run(*arguments: str) -> str:
            done = subprocess.run([sys.executable, "-m", "mosq", "journal", *arguments], capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout

        figures = json.loads(run("stats", "--json", str(broker.dir)))
        assert figures["stream"] == "all" and figures["records"] == 40
        assert [shard["shard"] for shard in figures["shards"]] == [64, 65, 128, 129]
        assert "40 records: no damage found" in run("check", "--quiet", str(broker.dir))
        lines = [json.loads(line) for line in run("dump", str(stream.path)).splitlines()]
        assert sorted(line["payload"] for line in lines) == sorted(row["payload"].decode() for row in rows)
        assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
        assert {json.loads(line)["shard"] for line in run("dump", "--shard", "129", str(stream.path)).splitlines()} == {129}


def test_consumers_hold_back_the_parts_of_all_workers() -> None:
    with Workers(2, STREAM) as broker:
        stream = Stream(folder(broker))
        records(broker, 0)
        assert stream.consumer("spark") is None
        ends = [shard if shard >= STRIDE and shard in stream.shards() else 0 for shard in range(130)]
        stream.put_consumer("spark", ends)
        assert stream.consumer("spark") == ends
        for number in (1, 2):
            assert Stream(stream.path / f"worker.{number}").consumer("spark") == [STRIDE * number, STRIDE * number + 1]


@pytest.mark.parametrize("qos", [1, 2])
def test_readers_go_on_when_a_worker_is_killed(qos: int) -> None:
    with Workers(2, STREAM) as broker:
        names = {number: broker.id_on(number) for number in (1, 2)}
        sent = 0
        before: dict[int, list[tuple[int, bytes]]] = {}
        for rounds in range(3):
            clients = {number: broker.connect(name) for number, name in names.items()}
            for client in clients.values():
                for _ in range(20):
                    sent += 1
                    publish(client, f"a/{sent % 7}", b"%d" % sent, qos, sent)
            found = {shard: [(one.seq, one.payload) for one in got] for shard, got in records(broker, sent).items()}
            for shard, had in before.items():
                assert found[shard][:len(had)] == had           # numbers keep their records
            before = found
            pid = broker.kill(rounds % 2 + 1)
            until(lambda: broker.pids().get(rounds % 2 + 1, pid) not in (pid, None), broker.log)    # noqa: B023
        assert payloads(records(broker, sent)) == sorted(b"%d" % i for i in range(1, sent + 1))


def forget_stores(broker: Workers) -> None:
    """Remove the stores of the workers, and leave the streams: a store belongs to its number of workers."""
    for path in (broker.dir / "mosquitto.db.store").iterdir():
        if path.name != "streams":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_shards_stay_readable_when_the_number_of_workers_changes() -> None:
    with Workers(1, STREAM + "mosquitto_db false\n") as broker:
        text = broker.config.read_text()
        sent = 0
        seen: dict[int, list[Record]] = {}
        ids = set()
        for count in (1, 3, 2, 1, 3):
            client = Wire(broker.port, 5)
            client.send(Connect(f"c{count}"))
            client.read_packet()
            for _ in range(10):
                sent += 1
                publish(client, f"a/{sent % 5}", b"%d" % sent, 1, sent)
            client.close()
            found = records(broker, sent)
            for shard, had in seen.items():
                assert found[shard][:len(had)] == had
            seen = found
            ids.add(marks_of(folder(broker))["stream_id"])
            broker.stop()
            forget_stores(broker)
            following = {1: 3, 3: 2, 2: 1}[count]
            broker.config.write_text(text.replace("cluster_local 1", f"cluster_local {following}"))
            broker.start()
        assert payloads(records(broker, sent)) == sorted(b"%d" % i for i in range(1, sent + 1))
        assert len(ids) == 1


def test_retention_removes_segments_of_parts_without_a_worker() -> None:
    limits = " retain_bytes 320K\n"
    with Workers(2, STORE + "mosquitto_db false\nstream all a/#" + limits) as broker:
        client = broker.connect(broker.id_on(2))
        for mid in range(1, 200):
            publish(client, "a/x", bytes(1000), 1, mid)
        records(broker, 199)
        broker.stop()
        forget_stores(broker)
        broker.config.write_text(broker.config.read_text().replace("cluster_local 2", "cluster_local 1").replace(limits, " retain_bytes 64K\n"))
        broker.start()
        assert "Stream all.2: 1 shard in" in broker.log()
        publish(broker.connect("c"), "a/x", b"1", 1, 1)         # retention begins with the first record
        until(lambda: sum(size for _, size in Stream(folder(broker)).sizes(128)) <= 80 << 10, broker.log)
        assert Stream(folder(broker)).marks()[128].first_seq > 0


def test_events_have_a_shard_for_each_worker() -> None:
    with Workers(2, STORE + "stream_events true\n") as broker:
        names = {number: broker.id_on(number) for number in (1, 2)}
        clients = [broker.connect(name) for name in names.values()]
        found = records(broker, 4, "events")
        assert sorted(found) == [64, 128]
        stream = Stream(folder(broker, "events"))

        def connected(shard: int) -> set[str]:
            return {record.client_id for record in stream.read(0, 1 << 40, shard) if record.kind == 2}

        until(lambda: all(names[number] in connected(STRIDE * number) for number in (1, 2)))
        for client in clients:
            client.close()
