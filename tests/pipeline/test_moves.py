"""Test the pipeline over the moves of workers: a node is killed under load and another one leaves, while the streams are copied from Redis. The
tables have each acknowledged message once with the node that received it, the audit adds up, and the histories of sessions are consistent."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mosq.cli.commands import main
from mosq.journal import Stream
from mosq.journal.kinds import MESSAGE, START
from mosq.journal.parts import STRIDE
from mosq.pipeline import frames
from mosq.pipeline.duck import Duck
from mosq.pipeline.runs import jobs, verify
from mosq.pipeline.subscriptions import subscribed
from mosq.tools.tied import tied
from tests.cluster.test_serving import WORKERS, Node
from tests.cluster.test_two_nodes import Linked, shared_out
from tests.cluster.test_two_nodes import linked as linked
from tests.harness.broker import ROOT
from tests.harness.effort import TIMEOUT_S
from tests.harness.packets import Disconnect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe, decode
from tests.harness.wire import Wire
from tests.pipeline.test_sources import load
from tests.streams.test_kill import Sender
from tests.workers.case import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from mosq.pipeline.settings import Settings

pytestmark = pytest.mark.part("spark")

SHARDS = 2
CONFIG = f"""stream all # shards {SHARDS} retain_age 1h
stream_events true retain_age 1h
max_inflight_messages 0
max_queued_messages 0
"""
PACE_S = 0.01           # of the load: this is not about speed
END_S = 4 * TIMEOUT_S
MORE = 30               # messages of each publisher that one step of the test waits for
PRESENCE = "SELECT client_id, online, state FROM presence"
BALANCE = ("acknowledged", "expired", "dropped", "gone", "queued")


class Fleet:
    """The clients of a cluster, and the nodes that they may connect to."""

    def __init__(self, linked: Linked, nodes: list[Node]) -> None:
        self.nodes = nodes
        self.over = threading.Event()
        dice = random.Random(1)
        self.publishers = [Publisher(self, name, dice) for name in linked.ids("pub")]
        self.subscribers = [Subscriber(self, name, qos) for qos in (1, 2) for name in linked.ids(f"sub{qos}")]
        self.away = linked.ids("away")

    def log(self) -> str:
        return "\n".join(node.log() for node in self.nodes)

    def connect(self, client_id: str) -> Wire:
        """Connect a client to the first node that accepts it."""
        def accepted() -> Wire | None:
            return next((wire for node in self.nodes if (wire := node.attempt(client_id)) is not None), None)

        wire: Wire = until(accepted, self.log)      # type: ignore[arg-type]
        wire.may_tear = True
        return wire

    def work(self) -> None:
        """Wait until each publisher has more acknowledgements, and each subscriber more messages."""
        counts = {one: one.count() + MORE for one in self.clients}
        until(lambda: all(one.count() >= least for one, least in counts.items()), self.log)

    @property
    def clients(self) -> list[Client]:
        return [*self.publishers, *self.subscribers]

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        for one in self.clients:
            one.start()
        try:
            yield
        finally:
            self.over.set()
            for one in self.clients:
                one.join(END_S)
        assert not [one.client_id for one in self.clients if one.is_alive()], self.log()
        assert [one.error for one in self.clients] == [None] * len(self.clients)


class Client(threading.Thread):
    """A client with a session that connects again when its connection ends."""

    def __init__(self, fleet: Fleet, client_id: str) -> None:
        super().__init__(daemon=True)
        self.fleet, self.client_id = fleet, client_id
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.done():
                try:
                    self.serve(self.fleet.connect(self.client_id))
                except OSError:
                    continue
        except BaseException as error:
            self.error = error
            raise

    def done(self) -> bool:
        raise NotImplementedError

    def serve(self, wire: Wire) -> None:
        """Use a connection until it ends."""
        raise NotImplementedError

    def count(self) -> int:
        raise NotImplementedError


class Publisher(Client):
    """Publish at QoS 1 and 2, and stop when all is acknowledged."""

    def __init__(self, fleet: Fleet, client_id: str, dice: random.Random) -> None:
        super().__init__(fleet, client_id)
        self.sender = Sender(None, client_id, dice)         # type: ignore[arg-type]

    def done(self) -> bool:
        return self.fleet.over.is_set() and not self.sender.open

    def count(self) -> int:
        return len(self.sender.done)

    def serve(self, wire: Wire) -> None:
        self.sender.go_on(wire)
        while not self.done():
            if not self.fleet.over.is_set():
                self.sender.fill()
            if not self.sender.take():
                return
            self.fleet.over.wait(PACE_S)


class Subscriber(Client):
    """Receive messages, and stop when all that was acknowledged to a publisher is here. `got`: payload: how often it came as a new message."""

    def __init__(self, fleet: Fleet, client_id: str, qos: int) -> None:
        super().__init__(fleet, client_id)
        self.qos = qos
        self.got: Counter[bytes] = Counter()
        self.open: dict[int, bytes] = {}        # QoS 2: packet ids that are not released

    def done(self) -> bool:
        return self.fleet.over.is_set() and all(one.done() and one.sender.done <= self.got.keys() for one in self.fleet.publishers) and not self.open

    def count(self) -> int:
        return len(self.got)

    def serve(self, wire: Wire) -> None:
        while not self.done():
            try:
                raw = wire.read_frame(1)
            except TimeoutError:
                continue
            if raw is None:
                return
            self.take(wire, decode(4, raw))

    def take(self, wire: Wire, packet: object) -> None:
        if isinstance(packet, Pubrel):
            self.open.pop(packet.mid, None)
            wire.send(Pubcomp(packet.mid))
        elif isinstance(packet, Publish) and packet.qos == 2:
            if self.open.get(packet.mid) != packet.payload:     # not the same message again
                self.got[packet.payload] += 1
                self.open[packet.mid] = packet.payload
            wire.send(Pubrec(packet.mid))
        elif isinstance(packet, Publish):
            self.got[packet.payload] += 1
            if packet.qos:
                wire.send(Puback(packet.mid))
        else:
            raise AssertionError(packet)


@contextlib.contextmanager
def copying(linked: Linked, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Copy the streams all the time."""
    command = ["cluster", "streams", linked.address, str(folder), "--secret-file", str(linked.nodes[0].dir / "secret"), "--every", "0.2"]
    process = subprocess.Popen(tied([sys.executable, "-m", "mosq", *command]), env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
                               stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        yield process
        assert process.poll() is None, process.communicate()
    finally:
        process.kill()
        process.communicate()


def copied(folder: Path) -> dict[tuple[str, int], list[Any]]:
    """Return the records of each shard; each number exists."""
    found = {}
    for name in ("all", "events"):
        stream = Stream(folder / name)
        for shard in stream.shards():
            found[name, shard] = list(stream.read(0, None, shard))
    return found


def messages(folder: Path) -> set[bytes]:
    with contextlib.suppress(FileNotFoundError):        # the first copy is being made
        return {record.payload for one in copied(folder).values() for record in one if record.kind == MESSAGE}
    return set()


def serves_all(node: Node) -> bool:
    return len(node.pids()) == WORKERS


def ask(settings: Settings, query: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(Duck(settings)) as duck:
        found: list[tuple[Any, ...]] = duck.base.execute(query).fetchall()
        return found


def test_the_audit_holds_when_workers_move(spark: SparkSession, linked: Linked, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = shared_out(linked, CONFIG)
    fleet = Fleet(linked, [first, second])
    for name, qos in ((*((one.client_id, one.qos) for one in fleet.subscribers), *((name, 2) for name in fleet.away))):
        wire = fleet.connect(name)
        wire.send(Subscribe(1, (("#", qos),)))
        assert isinstance(wire.read_packet(), Suback)
        wire.send(Disconnect())
        wire.expect_closed()
    folder = tmp_path / "streams"
    with copying(linked, folder):
        with fleet.running():
            fleet.work()
            second.die()
            until(lambda: serves_all(first), first.log)
            fleet.work()
            seen = {payload for one in fleet.publishers for payload in set(one.sender.done)}
            until(lambda: seen <= messages(folder), first.log)
            settings = load(tmp_path, site=folder)
            until(lambda: shows_presence(spark, settings, fleet), lambda: str(ask(settings, PRESENCE)))
            third = linked.node("c", CONFIG)
            third.spawn()
            until(lambda: len(first.pids()) == len(third.pids()) == 1, lambda: first.log() + third.log())
            fleet.nodes[:] = [first, third]
            fleet.work()
            capsys.readouterr()
            assert main(["cluster", "leave", linked.address, "a", "--secret-file", str(first.dir / "secret")]) == 0, capsys.readouterr()
            until(lambda: serves_all(third), third.log)
            fleet.nodes[:] = [third]
            fleet.work()
        for node in (first, third):         # so that the last accounts are written
            node.send_signal(signal.SIGTERM)
            assert node.process is not None and node.process.wait(TIMEOUT_S) == 0
    copy_rest(linked, folder)
    jobs.run(spark, settings, once=True, log=lambda line: None)
    there = copied(folder)
    check_messages(settings, fleet, there)
    check_nodes(settings, there)
    check_audit(settings, fleet, capsys)
    check_sessions(spark, settings, fleet)
    assert verify.verify(settings).adds_up


def copy_rest(linked: Linked, folder: Path) -> None:
    """Copy what came since the last round of the command that was killed."""
    assert main(["cluster", "streams", linked.address, str(folder), "--secret-file", str(linked.nodes[0].dir / "secret"), "--once"]) == 0


def shows_presence(spark: SparkSession, settings: Settings, fleet: Fleet) -> bool:
    """Bring the tables up to date. Return whether they show each client as it is: those of the worker that has not moved, and of the other."""
    jobs.run(spark, settings, once=True, log=lambda line: None)
    wanted = [(one.client_id, True, "online") for one in fleet.clients] + [(name, False, "offline") for name in fleet.away]
    return sorted(ask(settings, PRESENCE)) == sorted(wanted)


def check_messages(settings: Settings, fleet: Fleet, there: dict[tuple[str, int], list[Any]]) -> None:
    """Check that each acknowledged message is in bronze once, and that bronze has all records of the copy."""
    rows = ask(settings, "SELECT stream, shard, seq, kind, payload, cluster_node FROM bronze")
    assert sorted((stream, shard, seq, node) for stream, shard, seq, _, _, node in rows) == sorted(
        (*place, record.seq, record.cluster_node) for place, one in there.items() for record in one)
    count = Counter(bytes(payload) for _, _, _, kind, payload, _ in rows if kind == MESSAGE)
    done = {payload for one in fleet.publishers for payload in one.sender.done}
    assert len(done) > 4 * MORE and {payload for payload in done if count[payload] != 1} == set()
    assert set(count) <= {payload for one in fleet.publishers for payload in one.sender.sent}
    for one in fleet.subscribers:
        assert done <= one.got.keys() <= set(count)
        if one.qos == 2:
            both = {payload for payload, n in one.got.items() if n > 1}
            assert not both & exactly_once(fleet), both


def exactly_once(fleet: Fleet) -> set[bytes]:
    """Return the messages that were published at QoS 2."""
    return {payload for one in fleet.publishers for payload in one.sender.twos}


def check_nodes(settings: Settings, there: dict[tuple[str, int], list[Any]]) -> None:
    """Check the node of each record against the starts of its worker: the events name the node, too."""
    moves = []
    for worker in range(1, WORKERS + 1):
        events = there["events", worker * STRIDE]
        starts = [(record.time_us, json.loads(record.payload)["node"]) for record in events if record.kind == START]
        moves.append([node for node, _ in groupby(node for _, node in starts)])
        node = None
        for record in events:
            node = json.loads(record.payload)["node"] if record.kind == START else node
            assert record.cluster_node == node
        for shard in range(SHARDS):
            records = there["all", worker * STRIDE + shard]
            assert len({record.cluster_node for record in records}) > 1
            for record in records:
                assert record.cluster_node == max(start for start in starts if start[0] <= record.time_us)[1]
    assert any("b" in nodes for nodes in moves) and [nodes[-1] for nodes in moves] == ["c"] * WORKERS, moves


def check_audit(settings: Settings, fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that the messages of each session have an outcome, and that a session goes on with what it had."""
    capsys.readouterr()
    status = main(["pipeline", "status", "--audit", "--json", "-s", str(settings.file)])
    found = json.loads(capsys.readouterr().out)["audit"]
    assert (status, found["wrong"], found["sessions_wrong"], found["lost_events"]) == (0, 0, 0, 0), found
    for difference, *counters in ask(settings, f"SELECT difference, restored + published, {' + '.join(BALANCE)} FROM backlog"):
        assert difference == 0 and counters[0] == counters[1]
    of_client: dict[str, list[tuple[int, ...]]] = {}
    for client, *counters in ask(settings, "SELECT client_id, restored, queued, acknowledged, dropped, expired, gone FROM audit ORDER BY time"):
        of_client.setdefault(client, []).append(tuple(counters))
    n = ask(settings, f"SELECT count(*) FROM bronze WHERE kind = {MESSAGE}")[0][0]
    done = sum(len(one.sender.done) for one in fleet.publishers)
    for name in fleet.away:
        assert done <= of_client[name][-1][1] <= n                      # all of them wait
        assert {counters[2:] for counters in of_client[name]} == {(0, 0, 0, 0)}
        assert all(later[0] >= earlier[1] for earlier, later in pairwise(of_client[name])), of_client[name]
        # after a move in good order, a queue is as long as before
        assert any(later[0] == earlier[1] > 0 for earlier, later in pairwise(of_client[name])), of_client[name]
    for one in fleet.subscribers:
        assert of_client[one.client_id][-1][1] == 0, of_client[one.client_id]


def check_sessions(spark: SparkSession, settings: Settings, fleet: Fleet) -> None:
    """Check the history of each client: one connection after the other, and all of them over; its subscription is there."""
    names = {*(one.client_id for one in fleet.clients), *fleet.away}
    rows = ask(settings, "SELECT client_id, connected_at, disconnected_at, reason FROM sessions ORDER BY connected_at")
    assert {row[0] for row in rows} == names
    for name in names:
        mine = [row for row in rows if row[0] == name]
        assert all(end is None or end <= later[1] for (_, _, end, _), later in pairwise(mine)), mine
        assert all(reason is not None for *_, reason in mine), mine
    assert sorted(ask(settings, "SELECT client_id, online FROM presence")) == [(name, False) for name in sorted(names)]
    found = subscribed(frames.frame(spark, settings, "bronze")).collect()
    assert {(row["client_id"], row["filter"], row["qos"]) for row in found} == {
        *((one.client_id, "#", one.qos) for one in fleet.subscribers), *((name, "#", 2) for name in fleet.away)}
