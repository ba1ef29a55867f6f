"""Test `mosq pipeline capacity`: the observations, the advice, and a broker with that advice, whose counters show the expected figures."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

from mosq._core import CONTEXT_BYTES
from mosq.config.options import BY_KEYWORD
from mosq.pipeline.capacity import Plan, plan, steps_of
from mosq.journal.kinds import START
from mosq.pipeline.observed import Connections, Observed, Queues, Subscribed, connections, observe
from tests.harness.broker import Broker
from tests.harness.packets import Connack, Connect, Disconnect, Pingreq, Publish, Suback, Subscribe
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.pipeline.streams import CONNECT, DISCONNECT, DROP, MESSAGE, SUBSCRIBE, TAKE_OVER, UNSUBSCRIBE, Bronze

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CROWD, LOW, END = 590, 150, 50
TOPICS, TIMES = 300, 10
OWED = 1500


def traffic() -> Bronze:
    """Return a crowd that leaves, comes back and leaves; repeated topics; a session with more messages than its queue holds."""
    bronze = Bronze()
    for first, last, kind in ((0, CROWD, CONNECT), (LOW, CROWD, DISCONNECT), (LOW, CROWD, CONNECT), (END, CROWD, DISCONNECT)):
        for i in range(first, last):
            bronze.add(kind, f"c{i}")
        bronze.wait(60)
    # comes back without a disconnect, and is taken over: never counted twice at once
    bronze.add(TAKE_OVER, "c1")
    bronze.add(CONNECT, "c1")
    bronze.add(CONNECT, "c2")
    bronze.add(SUBSCRIBE, "c0", "site/+/temp")
    bronze.add(SUBSCRIBE, "c1", "site/7/temp")
    bronze.add(SUBSCRIBE, "c1", "gone/#")
    bronze.add(UNSUBSCRIBE, "c1", "gone/#")
    for _ in range(TIMES):
        for i in range(TOPICS):
            bronze.add(MESSAGE, "c0", f"site/{i}/temp", b"x" * 20)
    bronze.rows += [row | {"stream": "overlapping"} for row in bronze.rows if row["kind"] == MESSAGE and row["topic"] != "site/1/temp"]
    bronze.account("away", 1, published=OWED, queued=1000, dropped=OWED - 1000)
    for _ in range(OWED - 1000):
        bronze.add(DROP, "away", "site/1/temp", reason=0)
    return bronze


@pytest.fixture(scope="module")
def seen(spark: SparkSession) -> Observed:
    return observe(traffic().frame(spark))


@pytest.fixture(scope="module")
def advised(seen: Observed) -> Plan:
    return plan(seen, CONTEXT_BYTES)


def of(told: Plan, option: str):
    return next(one for one in told.advice if one.option == option)


def test_observations(seen: Observed) -> None:
    assert (seen.messages, seen.topics, seen.short_topics, seen.payload_mean) == (TOPICS * TIMES, TOPICS, TOPICS, 20)
    assert seen.connections and (seen.connections.peak, seen.connections.wave) == (CROWD, CROWD - LOW)
    assert seen.connections.connects == CROWD + CROWD - LOW + 2 and [curve[-1] for curve in seen.connections.curves] == [END]
    assert seen.subscribed == Subscribed(2, 1, [1], 1, 0, 2, "site/7/temp")
    assert seen.queues == Queues(OWED, "away", OWED - 1000, 20_000, 1)


def test_without_events_nothing_is_advised(spark: SparkSession) -> None:
    bronze = Bronze()
    bronze.add(MESSAGE, "c", "a", b"")
    told = plan(observe(bronze.frame(spark)), CONTEXT_BYTES)
    assert told.flags() == told.lines() == [] and all("stream_events true" in one.formula for one in told.advice)


def test_a_plan_names_existing_options(advised: Plan) -> None:
    flags = advised.flags()
    assert flags == ["--pool-grow", "200", "--pool-idle-max", str(CROWD - LOW + 200), "--match-cache", "1024"]
    assert advised.lines() == ["max_queued_messages 1900"]
    for one in advised.advice:
        assert one.option in BY_KEYWORD and one.formula
        if isinstance(one.value, int):
            row = BY_KEYWORD[one.option]
            assert row.low <= one.value <= row.high


@pytest.mark.parametrize(("seen", "expected"), [
    (Subscribed(30_000, 0, [10_000, 9900, 10_100]), {"hash_buckets": 10_100, "match_cache": None}),
    (Subscribed(29_910, 0, [29_900, 5, 5]), {"hash_buckets": None}),
    (Subscribed(20_000, 0, [20_000]), {"hash_buckets": 20_000}),
    (Subscribed(9, 1, [8]), {"hash_buckets": None, "match_cache": "off", "child_hash_threshold": None}),
    (Subscribed(9000, 9000, [], 12, 8000), {"child_hash_threshold": 13}), (Subscribed(9000, 9000, [], 4000, 8000), {"child_hash_threshold": None}),
    (Subscribed(1, 1, [], 0, 0, 3900, "t"), {"turn_budget": None}), (Subscribed(1, 1, [], 0, 0, 10_000, "t"), {"turn_budget": 510_000}),
    (Subscribed(1, 1, [], 0, 0, 1_000_000, "t"), {"turn_budget": 1_000_000})])
def test_rules(seen: Subscribed, expected: dict[str, int | str | None]) -> None:
    told = plan(Observed(messages=100, topics=99, short_topics=99, subscribed=seen), CONTEXT_BYTES)
    assert {one.option: one.value for one in told.advice if one.option in expected} == expected


def test_little_leaves_little() -> None:
    told = plan(Observed(connections=Connections([np.array([3, 0])], 3), queues=Queues(5, "c", 0, 1 << 28, 1)), CONTEXT_BYTES)
    values = {one.option: one.value for one in told.advice}
    assert (values["pool_grow"], values["pool_idle_max"], values["max_queued_messages"], values["queue_memory"]) == (100, 100, 100, 1 << 29)


def test_steps_of_a_pool() -> None:
    curve = [np.array([250, 0, 250, 1000, 0])]
    assert steps_of(curve, 100, 10_000) == (10, 1000)
    assert steps_of(curve, 100, 0) == (1 + 9 + 2, 100)          # one empty block stays each time
    assert steps_of(curve, 1000, 10_000) == (1, 1000)
    assert steps_of(curve * 2, 1000, 10_000) == (2, 1000)       # two runs of a broker


def test_a_start_ends_connections_and_refused_ones_do_not_count(spark: SparkSession) -> None:
    bronze = Bronze()
    for life in range(2):
        for i in range(3):
            bronze.add(CONNECT, f"c{i}")
        bronze.add(DISCONNECT, "c0")
        for i in range(9):
            bronze.add(CONNECT, f"refused{i}", reason=0x87)
        # the take-over comes before the disconnect of the old connection
        bronze.add(TAKE_OVER, "c1", reason=0x8E)
        bronze.add(DISCONNECT, "c1", reason=0x8E)
        bronze.add(CONNECT, "c1")
        bronze.add(START, "", payload=b'{"sessions": 0, "subscriptions": 0}')
    found = connections(bronze.frame(spark))
    assert [curve[-1] for curve in found.curves] == [2, 2] and (found.peak, found.wave, found.connects) == (3, 1, 8)


# ---------------------------------------------------------------- a broker that is started so

class Watched:
    """Run a broker and read its log."""

    def __init__(self, port: int) -> None:
        self.port, self.said = port, {}
        self.wires: dict[int, Wire] = {}
        self.wire = self.client("watcher")
        self.wire.send(Subscribe(1, (("$SYS/broker/index/#", 0),)))
        assert isinstance(self.wire.read_packet(), Suback)

    def client(self, name: str, **more: object) -> Wire:
        wire = Wire(self.port, 5)
        wire.send(Connect(name, **more))
        assert isinstance(wire.read_packet(), Connack)
        return wire

    def until(self, clients: int) -> dict[str, int]:
        """Return the next gauges that show so many connected clients."""
        self.said.pop("pool/in_use", None)
        while self.said.get("pool/in_use") != clients + 1:
            self.read()
        self.wire.send(Pingreq())
        while self.read():
            pass
        return self.said

    def read(self) -> bool:
        got = self.wire.read_packet()
        if isinstance(got, Publish) and got.payload.isdigit():
            self.said[got.topic.removeprefix("$SYS/broker/index/")] = int(got.payload)
        return isinstance(got, Publish)

    def come(self, first: int, last: int) -> None:
        for i in range(first, last):
            self.wires[i] = wire = Wire(self.port)
            wire.send(Connect(f"c{i}"))
        for i in range(first, last):
            assert isinstance(self.wires[i].read_packet(), Connack)

    def leave(self, first: int, last: int) -> None:
        for i in range(first, last):
            self.wires[i].send(Disconnect())
            wire = self.wires.pop(i)
            wire.expect_closed()
            wire.close()

    def close(self) -> None:
        for wire in (*self.wires.values(), self.wire):
            wire.close()


def started(flags: list[str], lines: list[str]) -> Broker:
    return Broker("\n".join(("sys_interval 1", "enable_control_api true", "control_loopback true", *lines, "")), command=[sys.executable, "-m", "mosq", *flags])


def test_a_broker_with_the_planned_flags_meets_the_plan(advised: Plan) -> None:
    grow, idle, cache = (of(advised, name) for name in ("pool_grow", "pool_idle_max", "match_cache"))
    with started(advised.flags(), []) as broker:
        watched = Watched(broker.port)
        contexts = []
        for step, first, last, clients in (("come", 0, CROWD, CROWD), ("leave", LOW, CROWD, LOW), ("come", LOW, CROWD, CROWD),
                                           ("leave", END, CROWD, END)):
            getattr(watched, step)(first, last)
            said = watched.until(clients)
            contexts.append(said["pool/in_use"] + said["pool/idle"])
        # the memory for the first crowd sufficed for all later ones, as the advice expected
        assert contexts == [grow.expected["contexts_at_peak"]] * 4 == [grow.expected["allocations"] * grow.value] * 4
        assert contexts[-1] == idle.expected["contexts_at_end"] < idle.expected["contexts_at_end_by_default"]
        subscriber, publisher = watched.client("subscriber"), watched.client("publisher")
        subscriber.send(Subscribe(1, (("site/+/temp", 0),)), Subscribe(2, (("site/7/temp", 0),)))
        assert isinstance(subscriber.read_packet(), Suback) and isinstance(subscriber.read_packet(), Suback)
        before = dict(watched.until(END + 2))
        for _ in range(TIMES):
            publisher.send(*(Publish(f"site/{i}/temp", b"x") for i in range(TOPICS)))
            for _ in range(TOPICS + 1):
                assert isinstance(subscriber.read_packet(), Publish)
        publisher.send(Disconnect())
        after = watched.until(END + 1)
        hits, misses = (after[f"cache/{name}"] - before.get(f"cache/{name}", 0) for name in ("hits", "misses"))
        assert hits + misses == TOPICS * TIMES
        assert hits / (hits + misses) >= cache.expected["hit_share"] - 0.02 > 0.7
        for wire in (subscriber, publisher):
            wire.close()
        watched.close()


@pytest.mark.parametrize("planned", [True, False])
def test_a_queue_of_the_planned_size_drops_no_message(advised: Plan, planned: bool) -> None:
    assert of(advised, "max_queued_messages").expected["drops"] == 0
    with started([], advised.lines() if planned else []) as broker:
        watched = Watched(broker.port)
        away = watched.client("away", clean=False, props=((P.SESSION_EXPIRY, 100),))
        away.send(Subscribe(1, (("site/1/temp", 1),)))
        assert isinstance(away.read_packet(), Suback)
        away.send(Disconnect())
        away.expect_closed()
        for i in range(OWED):
            watched.wire.send(Publish("site/1/temp", b"x" * 20, 1, i + 1))
        watched.wire.send(Publish("$CONTROL/mosq/broker/v1", b'{"commands": [{"command": "getStats"}]}', 1, OWED + 1))
        answer = None
        while answer is None:
            got = watched.wire.read_packet()
            if isinstance(got, Publish) and got.topic.startswith("$CONTROL"):
                answer = json.loads(got.payload)["responses"][0]["data"]
        default = BY_KEYWORD["max_queued_messages"].default
        assert answer["drops"]["queue_messages"] == (0 if planned else OWED - default)
        away.close()
        watched.close()
