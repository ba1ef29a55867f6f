"""Fill a Redis with a small `maxmemory`: new durable messages are refused below it, and accepted again when the queues are read."""

from __future__ import annotations

import itertools
import select

import pytest

from mosq._redis import little_memory_left
from tests.harness.packets import Connack, Connect, Pingreq, Pingresp, Puback, Publish, Suback, Subscribe
from tests.harness.plane import Plane
from tests.harness.wire import Wire
from tests.redis.server import Server
from tests.redis.test_engine import plane_on, subscribed

pytestmark = pytest.mark.part("redisfaults")

QUOTA_EXCEEDED = 0x97
MEMORY = 48 << 20
PAYLOAD = 4000


def info(used: int, maximum: int, machine: int = 100 << 30, rss: int = 0, uncounted: int = 0) -> bytes:
    return (f"# Memory\r\nused_memory:{used}\r\nused_memory_human:1G\r\nused_memory_rss:{rss}\r\ntotal_system_memory:{machine}\r\n"
            f"maxmemory:{maximum}\r\nmaxmemory_human:1G\r\nmem_not_counted_for_evict:{uncounted}\r\n").encode()


@pytest.mark.parametrize(("reply", "begins", "stays"), [
    (info(79, 100), False, True),
    (info(80, 100), True, True),
    (info(75, 100), False, True),
    (info(74, 100), False, False),
    (info(90, 100, uncounted=20), False, False),            # the output for replicas does not count
    (info(1, 0), False, False),
    (info(1, 0, machine=1000, rss=790), False, True),       # without a maxmemory, the machine is the limit
    (info(1, 0, machine=1000, rss=800), True, True),
    (info(10, 10_000, machine=1000, rss=800), True, True),  # as with one that is too large
    (info(80, 0, machine=0), False, False),
    (b"", False, False),
])
def test_little_memory_begins_at_80_percent_and_ends_below_75(reply: bytes, begins: bool, stays: bool) -> None:
    assert (little_memory_left(reply, False), little_memory_left(reply, True)) == (begins, stays)


def used(server: Server) -> int:
    reply = server.call("INFO", "memory")
    assert isinstance(reply, bytes)
    return int(reply.partition(b"\nused_memory:")[2].split(b"\r")[0])


def publish(pub: Wire, n: int) -> int:
    """Publish a message of QoS 1, and return the reason code of the acknowledgement."""
    pub.send(Publish("a/b", b"%06d" % n + bytes(PAYLOAD), 1, 1 + n % 60_000))
    answer = pub.read_packet()
    assert isinstance(answer, Puback), answer
    return answer.rc


def fill(pub: Wire, numbers: itertools.count[int]) -> list[int]:
    """Publish until a message is refused. Return the numbers of those that were accepted."""
    accepted = []
    for n in numbers:
        if (code := publish(pub, n)) >= 0x80:
            assert code == QUOTA_EXCEEDED
            return accepted
        accepted.append(n)
    raise AssertionError


def connected(plane: Plane, client_id: str, level: int = 5, clean: bool = True) -> Wire:
    client = plane.connect(Connect(client_id, clean=clean), level)
    answer = client.read_packet()
    assert isinstance(answer, Connack) and answer.rc == 0, answer
    return client


def read_all(plane: Plane, count: int) -> list[int]:
    """Read the queue of the subscriber, and acknowledge each message."""
    sub, found = connected(plane, "sub", 4, clean=False), []
    for _ in range(count):
        got = sub.read_packet()
        assert isinstance(got, Publish), got
        found.append(int(got.payload[:6]))
        sub.send(Puback(got.mid))
    sub.close()
    return found


def test_durable_messages_are_refused_below_maxmemory_and_nothing_accepted_is_lost() -> None:
    settings = {"max_queued_messages": 0}
    with Server(f"maxmemory {MEMORY}") as server:
        log, numbers = server.files(), itertools.count()
        with plane_on(log, settings=settings) as plane:
            subscribed(plane)
            pub = connected(plane, "pub")
            accepted = fill(pub, numbers)
            assert len(accepted) > 3000
            assert MEMORY * 3 // 4 < used(server) < MEMORY * 19 // 20       # the rest is for acknowledgements and cleaning
            plane.until(lambda: any("Error: Redis is nearly full: QoS 1 and 2 are refused" in line for line in plane.lines))
            assert plane.stats()["disk_trouble"] == 1 | 8
            refused = plane.connect(Connect("new", clean=False), 4)
            answer = refused.read_packet()
            assert isinstance(answer, Connack) and answer.rc == 3
            live = connected(plane, "live")                                 # clean sessions and QoS 0 go on
            live.send(Subscribe(1, (("z", 0),)))
            assert isinstance(live.read_packet(), Suback)
            pub.send(Publish("z", b"0"))
            assert isinstance(live.read_packet(), Publish)
        log.close()
        log = server.files()
        with plane_on(log, settings=settings) as plane:      # another process refuses from its start on
            plane.until(lambda: plane.stats()["disk_trouble"] == 1 | 8)
            pub = connected(plane, "pub")
            assert publish(pub, next(numbers)) == QUOTA_EXCEEDED
            assert read_all(plane, len(accepted)) == accepted
            plane.until(lambda: plane.stats()["disk_trouble"] == 0)
            plane.until(lambda: any("Redis has room again: QoS 1 and 2 are accepted." in line for line in plane.lines))
            plane.until(lambda: used(server) < MEMORY // 2)     # cleaning goes on
            again = fill(pub, numbers)
            assert len(again) > 1000
            assert read_all(plane, len(again)) == again
            plane.until(lambda: plane.stats()["disk_trouble"] == 0)
            assert not [line for line in plane.lines if "is full" in line]
        log.close()


def test_a_publisher_of_mqtt_3_waits_until_there_is_room() -> None:
    with Server(f"maxmemory {MEMORY}") as server:
        log = server.files()
        with plane_on(log, settings={"max_queued_messages": 0}) as plane:
            subscribed(plane)
            accepted = fill(connected(plane, "pub"), itertools.count())
            old, n = connected(plane, "old", 4), len(accepted)
            assert publish(old, n) == 0                     # it is recorded, and the last one that is read
            old.send(Publish("a/b", b"%06d" % (n + 1), 1, 1))
            live = connected(plane, "live")
            live.send(Pingreq())                            # the broker reads others, and not this one
            assert isinstance(live.read_packet(), Pingresp)
            assert select.select([old.sock], [], [], 0)[0] == []
            assert read_all(plane, n + 1) == [*accepted, n]
            assert isinstance(old.read_packet(), Puback)
            assert read_all(plane, 1) == [n + 1]
        log.close()


def test_records_that_no_client_waits_for_are_lost_before_redis_is_full() -> None:
    with Server(f"maxmemory {MEMORY}") as server:
        log = server.files()
        with plane_on(log, streams=[{"name": "s", "filters": ["a/#"], "retain_bytes": 1 << 40}]) as plane:
            pub = connected(plane, "pub")
            assert len(fill(pub, itertools.count())) > 3000
            assert plane.stats()["disk_trouble"] == 1 | 8
            before = used(server)
            for _ in range(5000):                   # more than there is room for
                pub.send(Publish("a/b", bytes(PAYLOAD)))
            pub.send(Pingreq())
            assert isinstance(pub.read_packet(), Pingresp)
            plane.until(lambda: any("Warning: stream s: Redis is nearly full; messages for which no client waits" in line for line in plane.lines))
            assert used(server) < before + (MEMORY // 20)
            assert not [line for line in plane.lines if "is full" in line]
        log.close()
