"""Run a data plane whose store and streams are in Redis."""

from __future__ import annotations

from typing import Any

import pytest

from mosq._redis import LogFiles
from tests.harness.packets import Connack, Connect, Puback, Publish, Suback, Subscribe
from tests.harness.plane import Plane
from tests.redis.server import Server

pytestmark = pytest.mark.part("redis")


def plane_on(log: LogFiles, **more: Any) -> Plane:
    return Plane(store="/store", files=log, segment_bytes=64 * 1024, allow_anonymous=True, **more)


def subscribed(plane: Plane) -> None:
    sub = plane.connect(Connect("sub", clean=False))
    assert isinstance(sub.read_packet(), Connack)
    sub.send(Subscribe(1, (("a/#", 1),)))
    assert isinstance(sub.read_packet(), Suback)
    sub.close()
    plane.until(lambda: plane.stats()["clients_connected"] == 0)


def test_a_session_its_queue_and_a_stream_move_to_another_process() -> None:
    streams = [{"name": "s", "filters": ["a/#"]}]
    with Server() as server:
        log = server.files()
        with plane_on(log, streams=streams) as plane:
            subscribed(plane)
            pub = plane.connect(Connect("pub"))
            assert isinstance(pub.read_packet(), Connack)
            for n in range(200):            # several segments
                if n % 50 == 49:
                    server.cut()
                pub.send(Publish("a/b", b"%03d" % n * 400, 1, 1 + n, retain=n == 7))
                assert isinstance(pub.read_packet(), Puback)
            server.cut()
        log.close()
        names = server.call("HKEYS", "mosq:{log}:names")
        assert isinstance(names, list)
        assert {b"/store/lock", b"/store/segment.000001"} <= set(names)     # type: ignore[arg-type]
        assert [one for one in names if isinstance(one, bytes) and b"/s/" in one and one.endswith(b".seg")]
        log = server.files()
        with plane_on(log, streams=streams) as plane:
            sub = plane.connect(Connect("sub", clean=False))
            assert isinstance(sub.read_packet(), Connack)
            for n in range(200):
                got = sub.read_packet()
                assert isinstance(got, Publish)
                assert got.payload == b"%03d" % n * 400
                sub.send(Puback(got.mid))
            replay = plane.connect(Connect("new"))
            assert isinstance(replay.read_packet(), Connack)
            replay.send(Subscribe(1, (("a/#", 0),)))
            assert {type(replay.read_packet()) for _ in range(2)} == {Suback, Publish}     # the retained message
        log.close()


def test_an_acknowledgement_waits_while_redis_is_away() -> None:
    with Server() as server:
        log = server.files()
        with plane_on(log, streams=[{"name": "s", "filters": ["a/#"]}]) as plane:
            subscribed(plane)
            pub = plane.connect(Connect("pub"))
            assert isinstance(pub.read_packet(), Connack)
            pub.send(Publish("a/b", b"0", 1, 1))
            assert isinstance(pub.read_packet(), Puback)
            server.kill()
            pub.send(Publish("a/b", b"1", 1, 1))
            plane.until(lambda: any("Redis at" in line for line in plane.lines))
            pub.expect_nothing()
            server.start()
            assert isinstance(pub.read_packet(), Puback)
        log.close()
        names = server.call("HKEYS", "mosq:{log}:names")
        assert isinstance(names, list)
        assert len([one for one in names if isinstance(one, bytes) and one.endswith(b".seg")]) == 1     # none was given up
