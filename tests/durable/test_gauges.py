"""Test the gauges of a store: in $SYS, in stats(), over HTTP."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from contextlib import closing
from pathlib import Path

import mosq

from tests.durable.test_restart import KEEP, Kept, offline_subscriber, publish, read_publishes, subscribe
from tests.harness.broker import free_port
from tests.harness.faults import Faults, until
from tests.harness.packets import Connect, Puback, Publish, Subscribe
from tests.harness.effort import TIMEOUT_S
from tests.harness.wire import Wire

DOCS = (Path(__file__).parents[2] / "docs/storage.md").read_text().partition("\n## Gauges\n")[2].partition("\n## ")[0]
TOPICS = set(re.findall(r"`([a-z_/]+)`", "".join(re.findall(r"^\| (`.*?) \|", DOCS, re.MULTILINE))))


def gauges_until(wire: Wire, seen: dict[str, str], **want: str) -> None:
    """Collect $SYS into `seen`, where only changes are published, until the values are as wanted; __ stands for a slash."""
    deadline = time.monotonic() + TIMEOUT_S
    wanted = {name.replace("__", "/"): value for name, value in want.items()}.items()
    while not wanted <= seen.items():
        assert time.monotonic() < deadline, seen
        got = wire.read_packet()
        assert isinstance(got, Publish)
        seen[got.topic.removeprefix("$SYS/broker/").removeprefix("store/")] = got.payload.decode()


def watch(broker: Kept) -> Wire:
    wire = broker.client("watch", clean=True, level=4)
    subscribe(wire, ("$SYS/broker/store/#", 0), ("$SYS/broker/dropped/#", 0))
    return wire


def test_all_documented_gauges_exist(faults: Faults) -> None:
    web = free_port()
    api = f"listener {web} 127.0.0.1\nprotocol http_api\n"
    head = "listener {port} 127.0.0.1\nallow_anonymous true\nsys_interval 1\nmax_queued_messages 3\ndurability_interval 50\n"
    with Kept(head + api + KEEP, faults.env) as broker:
        seen: dict[str, str] = {}
        wire = watch(broker)
        gauges_until(wire, seen, state="ok")
        offline_subscriber(broker, ("a", 1))
        pub = broker.client("pub", clean=True)
        for _ in range(3):
            publish(pub, "a", b"x")
        online = broker.client("online")
        subscribe(online, ("b", 1))
        pub.send(Publish("b", b"x", 1, 9))
        online.send(Puback(read_publishes(online, 1)[0].mid))
        assert pub.read_packet() == Puback(9)
        publish(pub, "a", b"one too many")
        gauges_until(wire, seen, messages__written="3", messages__elided="1", messages__elided_percent="25.00", dropped__queue_messages="1")
        assert set(seen) - {"dropped/queue_messages"} == TOPICS
        assert int(seen["disk/bytes"]) > 16 << 20 and int(seen["commits/count"]) > 5 and int(seen["disk/segments"]) == 1
        faults.set(full=1)
        while True:
            pub.send(Publish("b", b"x", 1, 10, retain=True))
            ack = pub.read_packet()
            assert isinstance(ack, Puback)
            if ack.rc == 0x97:
                break
        gauges_until(wire, seen, state="full")
        with urllib.request.urlopen(f"http://127.0.0.1:{web}/api/v1/health", timeout=TIMEOUT_S) as answer:
            assert json.load(answer)["store"] == "full"
        with urllib.request.urlopen(f"http://127.0.0.1:{web}/api/v1/systree", timeout=TIMEOUT_S) as answer:
            tree = json.load(answer)
        assert tree["$SYS/broker/store/messages/written"] > 3 and tree["$SYS/broker/store/errors"] > 0
        faults.heal()
        gauges_until(wire, seen, state="ok")
        assert seen["dropped/disk"] == "1"


def test_stats_of_an_engine_with_a_store(tmp_path: Path) -> None:
    with mosq.Broker(persistence=True, persistence_location=str(tmp_path)) as broker, closing(Wire(broker.port)) as wire:
        wire.send(Connect("sub", clean=False), Subscribe(1, (("a", 1),)))
        wire.read_packet()
        wire.read_packet()
        until(lambda: broker.stats()["disk_commits"] > 0)
        stats = broker.stats()
        assert stats["disk_trouble"] == 0 and stats["disk_live_bytes"] > 0 and stats["disk_segments"] == 1


def test_without_a_store_there_are_no_gauges() -> None:
    with mosq.Broker(sys_interval=1) as broker, closing(Wire(broker.port)) as wire:
        assert not any(value for name, value in broker.stats().items() if name.startswith("disk_"))
        wire.send(Connect("watch"), Subscribe(1, (("$SYS/broker/store/#", 0), ("$SYS/broker/uptime", 0))))
        seen = []
        while seen.count("$SYS/broker/uptime") < 3:      # twice since everything was published
            got = wire.read_packet()
            if isinstance(got, Publish):
                seen.append(got.topic)
        assert set(seen) == {f"$SYS/broker/{topic}" for topic in ("store/messages/count", "store/messages/bytes", "uptime")}
