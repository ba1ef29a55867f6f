"""Play a day of traffic faster than real time into a store in Redis: what Redis holds returns to the same bound, hour after hour."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.harness.effort import tries
from tests.harness.packets import Connack, Connect, Puback, Publish, Suback, Subscribe
from tests.harness.plane import Plane, exchange
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.redis.server import Server
from tests.redis.test_engine import plane_on

pytestmark = pytest.mark.part("redisfaults")

HOURS = tries(24)
SUBSCRIBERS = 20                # durable sessions: each reads its queue every second hour
VISITORS = 10                   # sessions of each hour that end with a full queue
SENSORS = 100                   # topics with a retained message
MESSAGES = 600                  # of each hour
TOGETHER = 50                   # messages that are sent without a wait
SEGMENT = 64 << 10              # of plane_on
MOST_BYTES = 3 << 20           # of contents; 24 hours write 6 MB
SETTINGS = {"max_queued_messages": 0}


class Held(NamedTuple):
    """Count what Redis holds: keys, bytes of contents, and the memory that it uses."""

    keys: int
    content_bytes: int
    used_bytes: int


def held(server: Server) -> Held:
    names = server.call("KEYS", "*")
    assert isinstance(names, list)
    contents = [name for name in names if isinstance(name, bytes) and b":f:" in name]
    info = server.call("INFO", "memory")
    assert isinstance(info, bytes)
    return Held(len(names), sum(int(str(server.call("STRLEN", name))) for name in contents), int(info.partition(b"\nused_memory:")[2].split(b"\r")[0]))


def connected(plane: Plane, client_id: str, expiry_s: int, clean: bool = False) -> Wire:
    client = plane.connect(Connect(client_id, clean=clean, props=((P.SESSION_EXPIRY, expiry_s),)), 5)
    answer = client.read_packet()
    assert isinstance(answer, Connack) and answer.rc == 0, answer
    return client


def subscribed(client: Wire, topic: str) -> None:
    client.send(Subscribe(1, ((topic, 1),)))
    answer = client.read_packet()
    while not isinstance(answer, Suback):       # behind retained messages
        assert isinstance(answer, Publish)
        answer = client.read_packet()


def play_hour(plane: Plane, hour: int) -> None:
    """Publish to all sessions, some of which are away; then half of the subscribers read their queues."""
    for n in range(VISITORS):
        visitor = connected(plane, f"visitor{hour}.{n}", expiry_s=1)
        subscribed(visitor, "news/#")
        visitor.close()
    publisher = connected(plane, "publisher", 0, clean=True)
    for first in range(0, MESSAGES, TOGETHER):
        for n in range(first, first + TOGETHER):
            kind = n % 3
            if kind == 0:
                publisher.send(Publish(f"sensor/{n % SENSORS}", b"%d" % hour * 150, 1, 1 + n, retain=True))
            elif kind == 1:
                publisher.send(Publish(f"news/{n}", b"n" * 300, 1, 1 + n))
            else:
                publisher.send(Publish(f"news/{n}", b"e" * 300, 1, 1 + n, props=((P.EXPIRY, 1),)))
        for _ in range(TOGETHER):
            assert isinstance(publisher.read_packet(), Puback)
    for n in range(0, SENSORS, 10):
        publisher.send(Publish(f"sensor/{n}", b"", 1, 1 + n, retain=True))
        assert isinstance(publisher.read_packet(), Puback)
    publisher.close()
    for n in range(hour % 2, SUBSCRIBERS, 2):
        read_queue(plane, n)


def read_queue(plane: Plane, n: int) -> None:
    """Read the whole queue of a subscriber: up to the message that it sends to itself."""
    client = connected(plane, f"subscriber{n}", 0xFFFFFFFF)
    client.send(Publish(f"end/{n}", b"", 1, 1))
    while True:
        got = client.read_packet()
        if isinstance(got, Publish):
            client.send(Puback(got.mid))
            if got.topic == f"end/{n}":
                break
    client.close()


def test_redis_holds_no_more_after_a_day_than_after_some_hours() -> None:
    with Server() as server:
        log = server.files()
        with plane_on(log, settings=SETTINGS) as plane:
            for n in range(SUBSCRIBERS):
                client = connected(plane, f"subscriber{n}", 0xFFFFFFFF)
                for topic in ("news/#", "sensor/#", f"end/{n}"):
                    subscribed(client, topic)
                client.close()
            found = []
            for hour in range(HOURS):
                play_hour(plane, hour)
                found.append(held(server))
            assert plane.stats()["disk_segments_cleaned"] > HOURS
            written = MESSAGES * HOURS * 450        # bytes, with their deliveries and acknowledgements
            assert max(one.content_bytes for one in found) < min(written // 2, MOST_BYTES), found
            assert max(one.used_bytes for one in found) < 2 * MOST_BYTES + (2 << 20), found
            # the queues are read and the last visitors are forgotten: a store has twice what is live, and some segments
            for n in range(SUBSCRIBERS):
                read_queue(plane, n)
            plane.until(lambda: plane.stats()["clients_total"] == SUBSCRIBERS)
            publisher = connected(plane, "publisher", 0, clean=True)

            batches = []

            def is_bounded() -> bool:
                batches.append(exchange(publisher, Publish("sensor/1", b"now", 1, 1, retain=True)))     # the store looks at its size then
                assert len(batches) < 1000
                return held(server).content_bytes <= 2 * plane.stats()["disk_live_bytes"] + 3 * SEGMENT

            plane.until(is_bounded)
        log.close()
        assert held(server).keys <= 3 + held(server).content_bytes // SEGMENT + 3
