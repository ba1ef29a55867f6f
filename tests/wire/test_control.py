"""Test requests about the index to `$CONTROL/mosq/index/v1`, and its gauges in `$SYS`, as docs/index.md describes them."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mosq
from cext.testing.broker_api import is_local
from mosq.config.options import TUNING
from tests.harness.broker import ROOT
from tests.harness.packets import Connack, Connect, Puback, Publish, Pubcomp, Pubrec, Pubrel, Received, Subscribe
from tests.harness.properties import P, Props
from tests.harness.scene import Actor, Step, v3, v5
from tests.harness.effort import TIMEOUT_S
from tests.harness.wire import Wire
from tests.wire.case import ALL, V5, V34, Case, Play, Stage, plays

NOBODY = b'{"error": "endpoint not available"}'
A, B, C = Actor("a"), Actor("b"), Actor("c")
ASK, ANSWER = "$CONTROL/mosq/index/v1", "$CONTROL/mosq/index/v1/response"
DOCS = (ROOT / "docs" / "index.md").read_text()


def answered(*filters: str, truncated: bool = False, props: Props = (), most: int = 70_000) -> Step:
    """Expect the response at A, with these filters; ~ is the prefix as everywhere."""

    def act(s: Any) -> None:
        got = s.wire("a").read_packet()
        assert isinstance(got, Publish) and (got.topic, got.qos, got.retain, got.props) == (ANSWER, 0, False, props), got
        explained = json.loads(got.payload)
        assert sorted(f["filter"] for f in explained["filters"]) == sorted(map(s.fill, filters)) or truncated, explained
        assert explained["truncated"] == truncated and len(got.encode(s.level)) <= most

    return Step(f"answered {filters}", act)


def asks(topic: str, qos: int = 0, mid: int = 7, *, retain: bool = False, props: Props = ()) -> Step:
    def act(s: Any) -> None:
        s.wire("a").send(Publish(ASK, s.fill(topic).encode(), qos, mid if qos else 0, retain, props=props))

    return Step(f"a.asks {topic} at {qos}", act)


def refused(rc: int) -> list[Step]:
    """Expect a refusal: at QoS 1 PUBACK has the reason in 5.0 and is normal in 3.x; at QoS 0 there is no answer."""
    return [asks("~t", 1), *v5(A.gets(Puback(7, rc))), *v3(A.gets(Puback(7))), asks("~t"), A.quiet()]


CONTROL = [
    Case("qos-0", "[docs/index.md]", ALL, "control", [A.connects(), A.subscribes("~t"), asks("~t"), answered("~t"), A.quiet()]),
    Case("qos-1", "[v5 4.3.2]", ALL, "control", [A.connects(), A.subscribes("~/#"), asks("~/t", 1), answered("~/#"), A.gets(Puback(7)), A.quiet()]),
    Case("no-match", "[docs/index.md]", ALL, "control", [A.connects(), asks("~nobody", 1), answered(), A.gets(Puback(7)), A.quiet()]),
    Case("not-routed", "[docs/index.md]", ALL, "control",
         [B.connects(), B.subscribes("$CONTROL/#", "$CONTROL/mosq/index/v1", ANSWER, "$share/~/#"), A.connects(), A.subscribes(ANSWER), asks("~t", 1, retain=True),
          answered("#"), A.gets(Puback(7)), A.quiet(), B.quiet(), C.connects(), C.subscribes("$CONTROL/#"), C.quiet()]),
    Case("shared-and-dollar", "[docs/index.md]", ALL, "control",
         [A.connects(), A.subscribes("$share/g/$~/+", "$~/x"), asks("$~/x"), answered("$~/x", "$~/+"), A.quiet()]),
    Case("correlation", "[v5 3.3.2.3.6]", V5, "control",
         [A.connects(), *[s for data in (b"", b"x", bytes(range(256)), b"c" * 65_535)
                          for s in (asks("~t", 1, props=((P.CORRELATION, data),)), answered(props=((P.CORRELATION, data),), most=140_000), A.gets(Puback(7)))]]),
    Case("other-properties-are-dropped", "[docs/index.md]", V5, "control",
         [B.connects(), B.subscribes("~elsewhere"), A.connects(),
          asks("~t", props=((P.RESPONSE_TOPIC, "~elsewhere"), (P.USER, ("a", "b")), (P.CORRELATION, b"7"), (P.EXPIRY, 3), (P.CONTENT_TYPE, "t"))),
          answered(props=((P.CORRELATION, b"7"),)), A.quiet(), B.quiet()]),
    Case("by-alias", "[v5 3.3.2.3.4]", V5, "control",
         [A.connects(), asks("~t", props=((P.TOPIC_ALIAS, 1),)), answered(), A.sends(Publish("", b"x", props=((P.TOPIC_ALIAS, 1),))), answered(), A.quiet()]),
    *[Case(f"not-a-topic-{n}", "[docs/index.md]", ALL, "control",
           [A.connects(), A.sends(Publish(ASK, what, 1, 7)), *v5(A.gets(Puback(7, 0x99))), *v3(A.gets(Puback(7))), A.sends(Publish(ASK, what)), A.quiet()])
      for n, what in enumerate((b"", b"+", b"a/#", b"a\0b", b"\xff", b"\xed\xa0\x80", b"\x01", b"/" * 201, b"x" * 65_536))],
    Case("longest-topic", "[docs/index.md]", ALL, "control", [A.connects(), asks("x" * 65_535, 1), answered(), A.gets(Puback(7))]),
    Case("qos-2-once", "[v5 4.3.3]", ALL, "control",
         [A.connects(), asks("~t", 2), answered(), A.gets(Pubrec(7)), A.sends(Publish(ASK, b"t", 2, 7, dup=True)), A.gets(Pubrec(7)), A.quiet(),
          A.sends(Pubrel(7)), A.gets(Pubcomp(7)), asks("~t", 2), answered(), A.gets(Pubrec(7)), A.quiet()]),
    Case("qos-2-not-a-topic", "[docs/index.md]", ALL, "control",
         [A.connects(), A.sends(Publish(ASK, b"+", 2, 7)), *v5(A.gets(Pubrec(7, 0x99))), *v3(A.gets(Pubrec(7)), A.sends(Pubrel(7)), A.gets(Pubcomp(7))), A.quiet()]),
    Case("pipelined", "[docs/index.md]", ALL, "control",
         [A.connects(), A.subscribes("~t"), A.sends(*[Publish(ASK, b"t", 1, n) for n in range(1, 101)]),
          *[s for n in range(1, 101) for s in (answered(), A.gets(Puback(n)))], A.quiet()]),
    Case("small-packets", "[v5 3.1.2-24]", V5, "control",
         [A.connects(props=((P.MAXIMUM_PACKET_SIZE, 1200),)), B.connects(), B.subscribes(*[f"~{'x' * n}/#" for n in range(1, 3)]), asks("~x/t"), answered("~x/#", most=1200),
          B.subscribes("~l/#", "~l/+", f"~l/{'t' * 600}"), asks("~l/" + "t" * 600), answered(truncated=True, most=1200), A.quiet()]),
    Case("too-small-packets", "[v5 3.1.2-24]", V5, "control",
         [A.connects(props=((P.MAXIMUM_PACKET_SIZE, 1000),)), asks("~t", 1), A.gets(Puback(7, 0x95)), asks("~t"), A.quiet()]),
    Case("other-control-topics", "[$CONTROL]", ALL, "control",
         [B.connects(), B.subscribes("$CONTROL/#"), A.connects(),
          *[s for topic in ("$CONTROL/mosq/index/v2", "$CONTROL/mosq/index", ANSWER, "$CONTROL/dynamic-security/v1", "$CONTROL/MOSQ/index/v1", "$CONTROL/~")
            for s in (A.sends(Publish(topic, b"t", 1, 8)), A.gets_any(Puback(8), Publish(f"{topic}/response", NOBODY)),
                      A.sends(Publish(topic, b"t")), A.gets(Publish(f"{topic}/response", NOBODY)))],
          A.quiet(), B.quiet()]),
    Case("more-levels-than-topics-may-have", "[max_topic_levels]", ALL, "control-levels-3", [A.connects(), asks("~/2/3/4", 1), answered(), A.gets(Puback(7))]),
    # -- which clients may ask
    Case("loopback-is-not-local-by-default", "[docs/control.md]", ALL, "plain", [A.connects(), *refused(0x87)]),
    Case("acl-without-a-rule", "[acl_file]", ALL, "control-acl", [A.connects(), *refused(0x87)]),
    Case("acl-with-a-rule", "[acl_file]", ALL, "control-acl",
         [A.connects(username="ann", password=b""), asks("~t", 1), answered(), A.gets(Puback(7)), A.quiet()]),
    Case("acl-denies", "[acl_file]", ALL, "control-acl", [A.connects(username="bob", password=b""), *refused(0x87)]),
    Case("below-a-mount-point-it-is-a-topic", "[mount_point]", V34, "control-mount",
         [A.connects(), A.subscribes("$CONTROL/#"), asks("t", 1), A.gets_any(Puback(7), Publish(ASK, b"t")), A.quiet()]),
]  # fmt: skip


@plays([replace(case, differs="ours: docs/index.md") for case in CONTROL])
def test_control(play: Play, stage: Stage) -> None:
    stage(play)


@pytest.mark.parametrize(("family", "ip", "local"), [
    (socket.AF_UNIX, b"", True), (socket.AF_INET, b"\x7f\0\0\1", True), (socket.AF_INET, b"\x7f\1\2\3", True), (0, b"\x7f\0\0\1", False),
    (socket.AF_INET, b"\x0a\0\0\1", False), (socket.AF_INET, b"\x80\0\0\1", False), (socket.AF_INET, b"\0\0\0\0", False),
    (socket.AF_INET6, b"\0" * 15 + b"\1", True), (socket.AF_INET6, b"\0" * 16, False), (socket.AF_INET6, b"\0" * 14 + b"\1\1", False),
    (socket.AF_INET6, b"\0" * 10 + b"\xff\xff\x7f\0\0\1", True), (socket.AF_INET6, b"\0" * 10 + b"\xff\xff\x0a\0\0\1", False),
    (socket.AF_INET6, b"\0" * 12 + b"\x7f\0\0\1", False), (socket.AF_INET6, b"\1" + b"\0" * 9 + b"\xff\xff\x7f\0\0\1", False),
    (socket.AF_INET6, b"\xfe\x80" + b"\0" * 13 + b"\1", False),
])
def test_peers_that_count_as_local(family: int, ip: bytes, local: bool) -> None:
    assert is_local(family, ip) == local
    assert is_local(family, ip, loopback=False) == (local and family == socket.AF_UNIX)


def test_over_a_unix_socket(tmp_path: Path) -> None:
    with mosq.Broker(f"listener 0 {tmp_path}/s\nallow_anonymous true\n"), socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(TIMEOUT_S)
        sock.connect(str(tmp_path / "s"))
        sock.sendall(Connect("u").encode(4) + Publish(ASK, b"t").encode(4))
        got = b""
        while b'"filters":[]' not in got:
            part = sock.recv(4096)
            assert part
            got += part


def test_an_in_process_request_is_not_routed() -> None:
    with mosq.Broker() as broker, broker.subscribe("$CONTROL/#") as messages:
        for qos in range(3):
            broker.publish(ASK, "t", qos=qos)
        with pytest.raises(TimeoutError):
            messages.get(0.1)


def test_responses_to_a_client_that_does_not_read_are_bounded() -> None:
    """Test a client that does not read responses of 60 KB: the broker stores HIGH_WATER_BYTES of them and counts dropped ones."""
    with mosq.Broker() as broker:
        reader = Wire(broker.port, 4)
        reader.send(Connect("reader"), Subscribe(1, tuple((f"t/{'+/' * n}#", 0) for n in range(100))))
        quiet = Wire(broker.port, 4)
        quiet.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        quiet.send(Connect("quiet"))
        assert isinstance(quiet.read_packet(), Connack)
        for _ in range(40):
            quiet.send(*[Publish(ASK, b"t/" + b"x/" * 99) for _ in range(50)])
        deadline = time.monotonic() + TIMEOUT_S
        while broker.stats()["publish_in"] < 2000:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        [unsent] = [c["unsent_bytes"] for c in broker.clients() if c["id"] == "quiet"]
        assert 256 * 1024 < unsent < 400 * 1024
        assert broker.stats()["drops_qos0_blocked"] > 1000
        reader.close()
        quiet.close()


STRATEGIES = ["round_robin", "random", "sticky", "least_inflight", "hash_topic", "hash_client"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_explain_shows_the_strategy_of_a_group(strategy: str) -> None:
    """Test that the strategy is there before the first message, also for a group with its own strategy."""
    with mosq.Broker(shared_strategy=[strategy, "sticky own"]) as broker, broker.subscribe("$share/g/a/#", "$share/own/a/#"):
        for _ in range(2):
            [found] = broker.explain("a/b")["filters"]
            assert {g["name"]: g["strategy"] for g in found["groups"]} == {"g": strategy, "own": "sticky"}
            broker.publish("a/b", qos=1)


def awaits(wire: Wire, seen: dict[str, str], want: dict[str, str], also: Callable[[dict[str, str]], bool] = bool) -> None:
    """Read gauges into `seen` until they have the wanted values; only changes are published."""
    deadline = time.monotonic() + TIMEOUT_S
    while not (want.items() <= seen.items() and also(seen)):
        assert time.monotonic() < deadline, seen
        got: Received = wire.read_packet()
        if isinstance(got, Publish):
            seen[got.topic.removeprefix("$SYS/broker/index/")] = got.payload.decode()


def test_the_gauges() -> None:
    seen: dict[str, str] = {}
    with mosq.Broker(sys_interval=1) as broker, closing(Wire(broker.port, 4)) as wire:
        wire.send(Connect("watch"), Subscribe(1, (("$SYS/broker/index/#", 0),)))
        alone = {"filters": "1", "exact": "0", "nodes": "3", "subscriptions": "1", "shared": "0", "pool/in_use": "1", "load": "0.00"}
        awaits(wire, seen, {**alone, "depth": "3"}, lambda now: now["pool/idle"] != "0")
        idle = int(seen["pool/idle"])
        with closing(Wire(broker.port, 4)) as other:
            filters = [f"{c}/{n}" for c in "abcd" for n in range(40)] + ["$share/g/x/+/y/z", "x/+/y/z"]
            other.send(Connect("other"), Subscribe(1, tuple((filter_, 0) for filter_ in filters)))
            want = {"filters": "162", "exact": "160", "nodes": "7", "depth": "4", "subscriptions": "162", "shared": "1", "pool/in_use": "2"}
            awaits(wire, seen, want, lambda now: now["load"] != "0.00" and int(now["bytes"]) > 160 * 100 and int(now["pool/idle"]) == idle - 1)
            assert float(seen["load"]) == (160 + 1) * 100 // int(seen["buckets"]) / 100      # the filters and one for the group
        awaits(wire, seen, alone, lambda now: int(now["pool/idle"]) == idle)
        with closing(Wire(broker.port, 4)) as many:
            many.send(Connect("many"), Subscribe(1, (("t/+", 0),)), *[Publish("t/1", b"x")] * 50)
            awaits(wire, seen, {"cache/hits": "49", "cache/misses": "1"})
    assert set(seen) == set(re.findall(r"`([a-z_/]+)`", DOCS.partition("## Gauges")[2].partition("\n## ")[0].partition("|---|")[2]))


def test_every_switch_is_explained() -> None:
    flags = {f"--{name.replace('_', '-')}" for name in TUNING}
    assert flags == set(re.findall(r"^\| `(--[a-z-]+)", DOCS, re.MULTILINE))
