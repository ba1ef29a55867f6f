"""Test that each statistic of dev/statistics.toml reaches `Engine.stats()` and `$SYS` under its name."""

from __future__ import annotations

from pathlib import Path

from dev import stat_table
from mosq import stat_names
from tests.harness.packets import Connect, Publish, Subscribe
from tests.harness.plane import Plane

TABLE = stat_table.Table((Path(__file__).resolve().parents[2] / stat_table.DECLARATION).read_text())
ALWAYS = {topic for topic, one in TABLE.topics.items() if stat_table.when(one) == "SYS_ALWAYS"}
# below $SYS/broker/ in Mosquitto 2.0.11 and 2.1.2
MOSQUITTOS = {
    "bytes/received", "bytes/sent", "clients/active", "clients/connected", "clients/disconnected", "clients/expired", "clients/inactive",
    "clients/maximum", "clients/total", "connections/socket/count", "heap/current", "heap/maximum", "messages/received", "messages/sent",
    "messages/stored", "packet/out/bytes", "packet/out/count", "publish/bytes/received", "publish/bytes/sent", "publish/messages/dropped",
    "publish/messages/received", "publish/messages/sent", "retained messages/count", "shared_subscriptions/count", "store/messages/bytes",
    "store/messages/count", "subscriptions/count", "uptime", "version",
    *(f"load/{name}/{minutes}min" for minutes in (1, 5, 15)
      for name in ("bytes/received", "bytes/sent", "connections", "messages/received", "messages/sent", "publish/dropped", "publish/received",
                   "publish/sent", "sockets")),
}
LOADS = {f"load/{one.load}/{minutes}min" for one in TABLE.stats if one.load for minutes in (1, 5, 15)}


def test_stats_has_each_name() -> None:
    with Plane(allow_anonymous=True) as plane:
        stats = plane.stats()
        assert set(stats) == {name for name in stat_names.STATS if name is not None} | set(stat_names.ALIASES)
        assert all(stats[alias] == stats[name] for alias, name in stat_names.ALIASES.items())
        plane.connect(Connect("c")).read_packet()
        assert plane.stats()["clients_connected"] == plane.stats()["connections"] == 1


def test_sys_has_each_topic() -> None:
    with Plane(settings={"sys_interval": 1, "version": "v"}, allow_anonymous=True) as plane:
        wire = plane.connect(Connect("c"))
        wire.read_packet()
        wire.send(Subscribe(1, (("$SYS/broker/#", 0),)))
        wire.read_packet()
        seen: dict[str, str] = {}
        while not seen.keys() >= ALWAYS | LOADS:
            got = wire.read_packet()
            assert isinstance(got, Publish)
            seen[got.topic.removeprefix("$SYS/broker/")] = got.payload.decode()
        assert seen.keys() == ALWAYS | LOADS | {"uptime", "version"}
        assert seen.keys() >= MOSQUITTOS
        assert seen["subscriptions/count"] == seen["index/subscriptions"]
        assert seen["index/load"].partition(".")[2].isdigit()


def test_retained_messages_of_the_broker_are_counted_apart() -> None:
    with Plane(settings={"sys_interval": 1, "version": "v"}, allow_anonymous=True) as plane:
        wire = plane.connect(Connect("c"))
        wire.read_packet()
        for topic, payload, own in (("a", b"1", 1), ("b", b"2", 2), ("a", b"3", 2), ("b", b"", 1)):
            wire.send(Publish(topic, payload, 1, 1, retain=True))
            wire.read_packet()
            stats = plane.stats()
            assert stats["retained_system"] >= len(ALWAYS)
            assert stats["retained"] == stats["retained_system"] + own
