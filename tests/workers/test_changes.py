"""Kill all workers while messages with QoS 1 and 2 are on their way, and start with another number: nothing is lost, and with QoS 2 nothing comes twice."""

from __future__ import annotations

import json
import random
import shutil
import signal
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from mosq._core import worker_place
from mosq.server import layout
from mosq.tools.db import kinds
from mosq.tools.db.read import state_of
from mosq.tools.db.store import StoreSource
from tests.harness.packets import Connack, Connect, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe, Will
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.workers import test_links_killed as links
from tests.workers.case import Workers, accepted, until
from tests.workers.test_divide import MESSAGE, Writer, records_of
from tests.workers.test_links_killed import SESSION, STORE, Publisher, Subscriber, without_repeats
from tests.workers.test_streams import records

ROOT = "mosquitto.db.store"
STREAM = "stream all t shards 1\n"


def start(broker: Workers, count: int) -> None:
    number_of(broker, count)
    broker.start()


def number_of(broker: Workers, count: int) -> None:
    lines = [line for line in broker.config.read_text().splitlines() if not line.startswith("cluster_local")]
    broker.config.write_text("\n".join([*lines, f"cluster_local {count}", ""]))


@pytest.mark.parametrize("rounds", [6, pytest.param(50, marks=pytest.mark.part("workers"))])
def test_nothing_is_lost_or_doubled_when_the_broker_is_killed_and_the_number_of_workers_changes(
        rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "MESSAGES", 150 * rounds)
    seed = int(time.time())
    dice = random.Random(seed)
    with Workers(2, STORE) as broker:
        publishers = [Publisher(broker.port, f"p{i}x", 1 + i % 2) for i in range(6)]
        subscribers = [Subscriber(broker.port, f"s{number}x") for number in range(4)]
        for one in subscribers:
            one.begin([publisher.name for publisher in publishers])
        for publisher in publishers:
            publisher.thread.start()
        for _ in range(rounds):
            time.sleep(dice.uniform(0.1, 0.5))
            broker.die()
            start(broker, dice.choice((1, 2, 3)))
        for publisher in publishers:
            publisher.thread.join(60 + 4 * rounds)
            assert not publisher.thread.is_alive(), (seed, publisher.done, publisher.stage, broker.log()[-3000:])
        wanted = list(range(links.MESSAGES))
        for one in subscribers:
            until(lambda one=one: all(sorted(set(one.got.get(p.name, []))) == wanted for p in publishers),
                  lambda one=one: repr((seed, {p.name: sorted(set(wanted).difference(one.got.get(p.name, [])))[:30] for p in publishers})))
        for one in subscribers:
            one.ends = True
            one.thread.join()
            for publisher in publishers:
                got = one.got[publisher.name]
                if publisher.qos == 2:
                    twice = [n for n in wanted if got.count(n) > 1]
                    assert got == wanted, (seed, one.name, publisher.name, "doubled" if twice else "the order is wrong", twice)
                else:
                    assert without_repeats(got) == wanted, (seed, "the order is wrong")


# ---------------------------------------------------------------- one message that a stopped worker lacks

def stored(broker: Workers, number: int, kind: int) -> list[dict[str, Any]]:
    """Return the records of a kind that a worker has committed."""
    return records_of([broker.dir / ROOT / f"worker.{number}"], kind)


def made_here(broker: Workers, number: int) -> set[int]:
    """Return the packet ids of released messages whose deliveries a worker has made for its own sessions."""
    return {one["pid"] for one in stored(broker, number, kinds.INBOX) if one.get("local_done")}


class Scene:
    """A broker with workers; worker 2 stops, a message comes, all are killed."""

    def __init__(self, broker: Workers) -> None:
        self.broker = broker
        self.names: list[str] = []
        self.publisher = broker.id_on(1, "pub")
        self.wire = broker.connect(self.publisher, clean=False, props=SESSION)

    def subscriber(self, number: int, *filters: str, options: int = 2) -> str:
        name = self.broker.id_on(number, "sub")
        client = self.broker.connect(name, clean=False, props=SESSION)
        client.send(Subscribe(1, tuple((filter, options) for filter in ("end", *filters))))
        assert isinstance(client.read_packet(), Suback)
        client.close()
        self.names.append(name)
        return name

    def release(self, *topics: str, retain: bool = False) -> None:
        """Publish a message to each topic while worker 2 lacks them, then kill all."""
        for mid, topic in enumerate(topics, 1):
            self.wire.send(Publish(topic, b"%d" % mid, 2, mid, retain=retain))
            self.wire.expect_packet(Pubrec(mid))
        self.broker.kill(2, signal.SIGSTOP)
        self.wire.send(*(Pubrel(mid) for mid in range(1, len(topics) + 1)))
        # worker 1 has delivered them and committed that; PUBCOMP waits for worker 2, unless no other worker gets the message
        ended = {*range(1, len(topics) + 1)}
        until(lambda: ended <= made_here(self.broker, 1) | {one["pid"] for one in stored(self.broker, 1, kinds.INBOX_DONE)}, self.broker.log)
        self.broker.die()

    def released(self, *mids: int) -> None:
        wire = connect(self.broker, self.publisher)
        for mid in mids:
            wire.send(Pubrel(mid))
            wire.expect_packet(Pubcomp(mid))

    def counts(self) -> dict[str, list[bytes]]:
        """Return what each subscriber has got."""
        wire = connect(self.broker, "ends")
        wire.send(Publish("end", b"end", 2, 1))
        wire.expect_packet(Pubrec(1))
        wire.send(Pubrel(1))
        wire.expect_packet(Pubcomp(1))
        return {name: payloads(connect(self.broker, name)) for name in self.names}


def payloads(client: Wire) -> list[bytes]:
    """Return the payloads of what comes before `end`."""
    found: list[bytes] = []
    while b"end" not in found:
        got = client.read_packet()
        if isinstance(got, Publish):
            found.append(got.payload)
            client.send(Pubrec(got.mid) if got.qos == 2 else Puback(got.mid))
        else:
            assert isinstance(got, Pubrel)
            client.send(Pubcomp(got.mid))
    return found[:-1]


def connect(broker: Workers, name: str) -> Wire:
    """Connect to a broker that may still be starting."""
    client = Wire(broker.port, 5)
    broker.opened.append(client)
    client.send(Connect(name, clean=False, props=SESSION))
    accepted(client)
    return client


def workers(n: int = 2, more: str = "") -> Workers:
    return Workers(n, STORE + "cluster_watchdog 60\nallow_duplicate_messages false\n" + more)


def topic_of(broker: Workers, number: int) -> str:
    """Return a topic whose retained message this worker keeps."""
    found = json.loads((broker.dir / ROOT / "workers").read_text())
    key, n = bytes.fromhex(found["key"]), found["workers"]
    return next(f"kept/{i}" for i in range(1000) if worker_place(key, b"kept/%d" % i, n) == number - 1)


@pytest.mark.parametrize("count", [1, 3, 4])
def test_only_the_sessions_of_the_worker_that_lacks_it_get_the_message(count: int) -> None:
    with workers() as broker:
        scene = Scene(broker)
        for number in (1, 1, 2, 2):
            scene.subscriber(number, "t", "+")
        scene.release("t", "t", "t")
        start(broker, count)
        scene.released(1, 2, 3)
        assert scene.counts() == {name: [b"1", b"2", b"3"] for name in scene.names}


def test_a_third_worker_has_it_already() -> None:
    with workers(3) as broker:
        scene = Scene(broker)
        for number in (2, 3):       # none at the worker of the publisher
            scene.subscriber(number, "t")
        scene.release("t", "t")
        start(broker, 2)
        scene.released(1, 2)
        assert scene.counts() == {name: [b"1", b"2"] for name in scene.names}


def test_its_publisher_does_not_come_back() -> None:
    with workers() as broker:
        scene = Scene(broker)
        for number in (1, 2):
            scene.subscriber(number, "t")
        scene.release("t")
        start(broker, 3)
        assert scene.counts() == {name: [b"1"] for name in scene.names}


@pytest.mark.parametrize("seed", range(3))
def test_further_kills_during_the_start(seed: int) -> None:
    dice = random.Random(seed)
    with workers() as broker:
        scene = Scene(broker)
        for number in (1, 2):
            scene.subscriber(number, "t")
        scene.release("t", "t")
        for count in (3, 1, 2, 4):
            number_of(broker, count)
            begun = threading.Thread(target=begin, args=(broker,))
            begun.start()
            time.sleep(dice.uniform(0.2, 0.9))      # a start takes about half a second
            broker.die()
            begun.join()
        start(broker, 2)
        scene.released(1, 2)
        assert scene.counts() == {name: [b"1", b"2"] for name in scene.names}


def begin(broker: Workers) -> None:
    """Start, although the start may be killed."""
    try:
        broker.start()
    except (RuntimeError, AssertionError):
        assert not broker.alive()


@pytest.mark.parametrize("counts", [(3,), (4, 3), (3, 5, 4)])
def test_the_stores_are_divided_again_before_a_start(counts: tuple[int, ...]) -> None:
    with workers() as broker:
        scene = Scene(broker)
        for number in (1, 2, 2):
            scene.subscriber(number, "t")
        scene.subscriber(2, "$share/g/t")
        scene.release("t", "t")
        for count in counts:
            layout.arrange(SimpleNamespace(persistence=False, cluster_local=count), str(broker.dir / ROOT), lambda *_: None)      # type: ignore[arg-type]
            found = records_of([broker.dir / ROOT / f"worker.{i + 1}" for i in range(count)], kinds.UNDELIVERED)
            assert sorted(one["payload"] for one in found for _ in (*one["sessions"], *filter(None, [one["group"]]))) == sorted([b"1", b"2"] * 3)
        start(broker, 2)
        scene.released(1, 2)
        assert scene.counts() == {name: [b"1", b"2"] for name in scene.names}


def test_one_member_of_a_group_gets_it() -> None:
    """Each message goes to one group, and to a subscriber at worker 1, which has it. Some of the groups have chosen worker 1."""
    topics = [f"g/{i}" for i in range(8)]
    with workers() as broker:
        scene = Scene(broker)
        plain = scene.subscriber(1, "g/+")
        for number in (1, 2):
            scene.subscriber(number, *(f"$share/{topic[2:]}/{topic}" for topic in topics))
        scene.release(*topics)
        start(broker, 3)
        scene.released(*range(1, 9))
        got = scene.counts()
        all_of = [b"%d" % mid for mid in range(1, 9)]
        assert got.pop(plain) == all_of
        assert sorted(payload for one in got.values() for payload in one) == all_of


@pytest.mark.parametrize("payload", [b"", b"1"])
def test_the_topic_gets_its_retained_message(payload: bytes) -> None:
    with workers() as broker:
        scene = Scene(broker)
        topic = topic_of(broker, 2)
        scene.subscriber(1, topic)
        before = broker.connect("before")
        before.send(Publish(topic, b"before", 1, 1, retain=True))
        before.expect_packet(Puback(1))
        scene.names.clear()         # it has got that one
        name = scene.subscriber(1, topic, options=2 | 2 << 4)
        scene.wire.send(Publish(topic, payload, 2, 1, retain=True))
        scene.wire.expect_packet(Pubrec(1))
        broker.kill(2, signal.SIGSTOP)
        scene.wire.send(Pubrel(1))
        until(lambda: made_here(broker, 1), broker.log)
        broker.die()
        start(broker, 3)
        scene.released(1)
        assert scene.counts() == {name: [payload]}
        late = connect(broker, "late")
        late.send(Subscribe(1, ((topic, 0),)))
        assert isinstance(late.read_packet(), Suback)
        if payload:
            got = late.read_packet()
            assert isinstance(got, Publish) and got.payload == payload and got.retain
        late.expect_nothing()


@pytest.mark.parametrize("qos", [1, 2])
def test_a_will_goes_to_the_sessions_of_other_workers_only(qos: int) -> None:
    with workers() as broker:
        scene = Scene(broker)
        for number in (1, 2):
            scene.subscriber(number, "will")
        dying = Wire(broker.port, 5)
        dying.send(Connect(broker.id_on(1, "dying"), will=Will("will", b"gone", qos)))
        assert isinstance(dying.read_packet(), Connack)
        until(lambda: stored(broker, 1, kinds.CLIENT_WILL), broker.log)
        broker.kill(2, signal.SIGSTOP)
        dying.close()
        until(lambda: stored(broker, 1, kinds.LINK_WILL), broker.log)        # in the batch of the deliveries of worker 1
        broker.die()
        start(broker, 3)
        assert scene.counts() == {name: [b"gone"] for name in scene.names}


def test_the_session_that_expires_before_the_start_ends() -> None:
    with workers() as broker:
        scene = Scene(broker)
        scene.subscriber(1, "t")
        short = broker.connect(broker.id_on(2, "short"), clean=False, props=((P.SESSION_EXPIRY, 1),))
        short.send(Subscribe(1, (("t", 2),)))
        assert isinstance(short.read_packet(), Suback)
        short.close()
        scene.subscriber(2, "t")
        scene.release("t")
        time.sleep(1.2)
        start(broker, 3)
        scene.released(1)
        assert scene.counts() == {name: [b"1"] for name in scene.names}


def test_no_local_options_and_identifiers_count() -> None:
    with workers() as broker:
        publisher = broker.id_on(2, "pub")
        own = broker.connect(publisher, clean=False, props=SESSION)
        own.send(Subscribe(1, (("t", 2 | 4),)))         # No Local
        assert isinstance(own.read_packet(), Suback)
        name = broker.id_on(1, "sub")
        client = broker.connect(name, clean=False, props=SESSION)
        client.send(Subscribe(1, (("t", 1),), props=((P.SUBSCRIPTION_ID, 7),)), Subscribe(2, (("+", 2 | 8),), props=((P.SUBSCRIPTION_ID, 9),)))
        assert all(isinstance(client.read_packet(), Suback) for _ in range(2))
        client.close()
        other = broker.connect(broker.id_on(2, "sub"), clean=False, props=SESSION)
        other.send(Subscribe(1, (("t", 2),)))           # at the worker of the publisher, which delivers
        assert isinstance(other.read_packet(), Suback)
        own.send(Publish("t", b"1", 2, 1, retain=True))
        own.expect_packet(Pubrec(1))
        broker.kill(1, signal.SIGSTOP)
        own.send(Pubrel(1))
        until(lambda: made_here(broker, 2), broker.log)
        broker.die()
        start(broker, 3)
        got = connect(broker, name).read_packet()
        assert isinstance(got, Publish) and got.qos == 2 and got.retain and not got.dup
        assert sorted(value for key, value in got.props if key == P.SUBSCRIPTION_ID) == [7, 9]
        own = connect(broker, publisher)
        own.send(Pubrel(1))
        own.expect_packet(Pubcomp(1))
        own.expect_nothing()


def test_streams_have_it_once() -> None:
    with workers(more=STREAM) as broker:
        scene = Scene(broker)
        for number in (1, 2):
            scene.subscriber(number, "t")
        scene.release("t", "t")
        start(broker, 3)
        scene.released(1, 2)
        assert scene.counts() == {name: [b"1", b"2"] for name in scene.names}
        assert [record.payload for one in records(broker, 2).values() for record in one] == [b"1", b"2"]


def test_streams_get_what_their_worker_had_not_committed() -> None:
    with workers(1, STREAM) as broker:
        broker.stop()
        shutil.rmtree(broker.dir / ROOT)
        writer = Writer(broker.dir / ROOT, 1)
        writer.ids, writer.tails = {1: b"sub"}, {1: 0}
        writer.session(1, False)
        for filter in (b"t", b"end"):
            writer.add(kinds.SUB, sno=1, options=2, sub_id=0, filter=filter)
        writer.add(kinds.UNDELIVERED, number=1, sessions=[1], group=b"", unjournalled=True, id=b"pub", user=None, security=0, mount=b"",
                   expiry_s=None, **{**MESSAGE, "qos": 2}, topic=b"t", payload=b"late")
        writer.finish()
        for _ in range(2):
            broker.start()
            assert [(record.payload, record.client_id) for one in records(broker, 1).values() for record in one] == [(b"late", "pub")]
            broker.die()
        broker.start()
        scene = SimpleNamespace(broker=broker, names=["sub"])
        assert Scene.counts(scene) == {"sub": [b"late"]}        # type: ignore[arg-type]
        broker.stop()
        assert not state_of(StoreSource(str(broker.dir / ROOT)))[0].undelivered
