"""Test streams of nodes: their records survive the death of a node, and a copy of them in a folder is read as the streams of one broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mosq._redis import RedisConnection
from mosq.cli.commands import main
from mosq.cluster.scripts import store_name
from mosq.journal import Record, Stream
from mosq.journal.kinds import ACCOUNT, CONNECT, START
from mosq.journal.parts import STRIDE
from mosq.tools.cluster.streams import StreamCopy
from mosq.tools.tied import tied
from tests.cluster.test_serving import WORKERS, publish, receive
from tests.cluster.test_two_nodes import Linked, shared_out, subscribed
from tests.cluster.test_two_nodes import linked as linked
from tests.harness.broker import ROOT
from tests.harness.effort import TIMEOUT_S
from tests.harness.packets import Connect, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe
from tests.harness.wire import Wire
from tests.workers.case import accepted, until

pytestmark = pytest.mark.part("redis")

STREAMS = "stream all t/# shards 2 retain_age 1h\nstream_events true retain_age 1h\n"
BEFORE, AFTER = range(20), range(20, 30)
BALANCE = ("acknowledged", "expired", "dropped", "gone", "queued")


def records(stream: Stream) -> dict[int, list[Record]]:
    """Return the records of each worker, from the oldest on; each number exists."""
    shards = stream.shards()        # first: a part that a copy begins after this has a mark, but no number here
    marks, found = stream.marks(), {}
    for shard in shards:
        part = list(stream.read(marks[shard].first_seq, marks[shard].seq, shard))
        found[shard // STRIDE] = found.get(shard // STRIDE, []) + part
    return found


def payloads(folder: Path) -> list[int]:
    return sorted(int(record.payload) for part in records(Stream(folder / "all")).values() for record in part)


def copy_once(linked: Linked, folder: Path) -> None:
    connection = RedisConnection([("127.0.0.1", linked.redis.port)])
    copying = StreamCopy(connection.call, {worker: store_name("mosq", linked.facts.id, worker) for worker in range(1, WORKERS + 1)}, folder, "copy")
    copying.copy()
    copying.close()
    connection.close()


def test_no_record_is_lost_or_doubled_when_a_node_dies(linked: Linked, tmp_path: Path) -> None:
    first, second = shared_out(linked, STREAMS)
    subscribers = {name: subscribed(first, name, "t/#", 2) for name in linked.ids("s")}
    publishers = [second.pinned(name) for name in linked.ids("p")]
    for n in BEFORE:
        publish(publishers[n % 2], n, 1 + n // 2 % 2)
    for client in subscribers.values():
        receive(client, len(BEFORE))
    until(lambda: (copy_once(linked, tmp_path), len(payloads(tmp_path)))[1] == len(BEFORE))
    for client in publishers:
        client.send(Publish("t/99", b"99", 2, 99))
        assert isinstance(client.read_packet(), Pubrec)         # the broker has it, and the publisher does not finish it
    second.die()
    until(lambda: len(first.pids()) == WORKERS, first.log)
    for name in linked.ids("p"):
        client = first.pinned(name)
        assert first.present
        client.send(Publish("t/99", b"99", 2, 99, dup=True))
        assert isinstance(client.read_packet(), Pubrec)
        client.send(Pubrel(99))
        assert isinstance(client.read_packet(), Pubcomp)
    for n in AFTER:
        publish(first.pinned(linked.ids("q")[n % 2]), n, 1 + n // 2 % 2)
    for name in subscribers:
        client = first.pinned(name)
        receive(client, len(AFTER) + 2)
    first.send_signal(signal.SIGTERM)           # so that the last accounts are written
    assert first.process is not None and first.process.wait(TIMEOUT_S) == 0
    copy_once(linked, tmp_path)
    assert payloads(tmp_path) == sorted([*BEFORE, *AFTER, 99, 99])
    events = records(Stream(tmp_path / "events"))
    assert sorted(events) == [1, 2]
    assert [nodes_of(worker, part)[-2:] for worker, part in events.items()].count(["b", "a"]) == 1
    for part in events.values():
        check_accounts(part)


def nodes_of(worker: int, events: list[Record]) -> list[str]:
    """Check that each event names the process that has started last. Return the nodes on which the worker has started."""
    nodes: list[str] = []
    for event in events:
        if event.kind not in (START, CONNECT):
            assert event.cluster_node == nodes[-1]
            continue
        content = json.loads(event.payload)
        if event.kind == START:
            nodes.append(content["node"])
        assert (content["node"], content["worker"], event.cluster_node) == (nodes[-1], worker, nodes[-1])
    return nodes


def check_accounts(events: list[Record]) -> None:
    """Check that each message that was due to a session has an outcome."""
    accounts = [json.loads(event.payload) for event in events if event.kind == ACCOUNT]
    assert sum(account["acknowledged"] for account in accounts) > 0
    for account in accounts:
        assert account["restored"] + account["published"] == sum(account[name] for name in BALANCE), account


def test_the_command_copies_streams_and_forgets_the_copy(linked: Linked, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = linked.node("a", STREAMS)
    node.spawn()
    until(lambda: len(node.pids()) == WORKERS, node.log)
    publish(node.pinned(linked.ids("p")[0]), 1, 1)
    secret = str(node.dir / "secret")
    command = ("cluster", "streams", linked.address, str(tmp_path / "copy"), "--secret-file", secret)
    process = subprocess.Popen(tied([sys.executable, "-m", "mosq", *command, "--every", "0.1"]), env={**os.environ, "PYTHONPATH": str(ROOT)},
                               stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: (tmp_path / "copy/all/worker.2/mark.a").exists() and payloads(tmp_path / "copy") == [1], node.log)
        assert main([*command, "--once"]) == 1
        assert "another process copies streams into" in capsys.readouterr().err
    finally:
        process.kill()
        process.communicate()
    publish(node.pinned(linked.ids("p")[1]), 2, 1)

    def has_two() -> bool:
        assert main([*command, "--once"]) == 0
        return payloads(tmp_path / "copy") == [1, 2]

    until(has_two, node.log)
    capsys.readouterr()
    assert main([*command, "--forget"]) == 0
    assert capsys.readouterr().out == f"{2 * WORKERS} marks of the copy 'copy' are removed.\n"
    assert main([*command[:3], "-", "--secret-file", secret, "--as", ".no"]) == 3
    assert main(["cluster", "check", linked.address, "--secret-file", secret]) == 0, capsys.readouterr().out


def test_clients_cannot_subscribe_to_the_streams_of_a_node(linked: Linked) -> None:
    node = linked.node("a", STREAMS)
    node.spawn()
    until(lambda: len(node.pids()) == WORKERS, node.log)
    node.pinned("any").close()
    client = Wire(node.port, 5, host=node.host)
    node.opened.append(client)
    client.send(Connect("five"))
    accepted(client)
    client.send(Subscribe(1, (("$stream/all/#", 1),)))
    answer = client.read_packet()
    assert isinstance(answer, Suback) and answer.codes == (0x8F,), answer
