"""Test limits of size and number, access control, and the $SYS tree."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import ExitStack, closing

import pytest

from tests.harness.broker import Broker, has_workers
from tests.harness.packets import Connack, Connect, Puback, Publish, Received, Suback, Subscribe
from tests.harness.properties import P
from tests.harness.wire import Wire
from tests.harness.scene import Actor, Step, Steps, v3, v5
from tests.wire.case import ALL, V5, V45, Case, Play, Stage, plays

A, B, C, D = Actor("a"), Actor("b"), Actor("c"), Actor("d")

LIMITS = [
    Case("topic-levels", "[max_topic_levels]", ALL, "levels-3",
         [B.connects(), B.subscribes("#", qos=1), A.connects(), A.publishes("~t/b/c", b"x", 1), B.receives("~t/b/c", b"x", 1),
          A.sends(Publish("~t/b/c/d", b"y")), A.ends(0x90), B.quiet()], differs="an option of ours"),
    Case("filter-levels", "[max_topic_levels]", ALL, "levels-3",
         [A.connects(), v5(A.sends(Subscribe(5, (("a/+/c/#", 0), ("a/+/c", 0)))), A.gets(Suback(5, (0x8F, 0)))),
          v3(A.sends(Subscribe(5, (("a/+/c/#", 0), ("a/+/c", 0)))), A.gets(Suback(5, (0x80, 0)))), A.quiet()], differs="an option of ours"),
    Case("packet-at-the-limit", "[v5 3.2.2-15]", V45, "packet-100",
         [B.connects(), B.subscribes("lim"), A.connects(), v3(A.sends(Publish("lim", b"x" * 93)), B.gets(Publish("lim", b"x" * 93))),
          v5(A.sends(Publish("lim", b"x" * 92)), B.gets(Publish("lim", b"x" * 92)))]),
    Case("packet-over-the-limit", "[v5 3.2.2-15]", V45, "packet-100",
         [B.connects(), B.subscribes("over"), A.connects(), A.sends(Publish("over", b"x" * 93)), A.ends(0x95), B.quiet()], differs="2.0.11 holds only 5.0 clients to it"),
    Case("packet-over-the-limit-by-its-header", "[v5 4.13.1]", V45, "plain",  # refused by its length alone
         [A.connects(), A.sends_raw(b"\x30\x81\x89\x7a"), A.ends(0x95)], differs="the default of 2,000,000 is new in 2.1"),
    Case("connect-over-the-limit", "[v5 3.1.2-24]", V45, "packet-100", [A.opens(), A.sends_connect(username="u" * 100), A.rejected_or_closed(0x95)]),
    Case("payload-over-the-limit", "[message_size_limit]", ALL, "payload-20",
         [B.connects(), B.subscribes("~t", qos=1), A.connects(), A.publishes("~t", b"x" * 20, 1), B.receives("~t", b"x" * 20, 1),
          A.sends(Publish("~t", b"x" * 21, 1, 5)), A.gets(Puback(5, 0x95)), B.quiet(), A.publishes("~t", b"y", 1), B.receives("~t", b"y", 1)]),
    Case("payload-over-the-limit-qos0", "[message_size_limit]", ALL, "payload-20",
         [B.connects(), B.subscribes("~t"), A.connects(), A.publishes("~t", b"x" * 21), B.quiet(), A.quiet()]),
]  # fmt: skip

# These count every client of their broker, so each is the only case of its flavour.
ALONE = [
    Case("max-connections", "[max_connections]", V45, "connections-2",
         [A.until_connected(), B.until_connected(), C.opens(), C.sends_connect(), C.rejected_or_closed(0x88, 0x89, 0x97), B.leaves(), C.until_connected(), A.quiet()], differs="2.0.11 miscounts after a connection that ended before its CONNECT"),
    Case("global-max-connections", "[global_max_connections]", V45, "global-connections-2",
         [A.until_connected(), B.until_connected(), C.opens(), C.sends_connect(), C.rejected_or_closed(0x88, 0x89, 0x97), B.leaves(), C.until_connected(), A.quiet()],
         differs="new in 2.1"),
    Case("global-max-clients", "[global_max_clients]", V5, "global-clients-2",
         [A.until_connected(), B.connects(persistent=True), B.leaves(), C.opens(), C.sends_connect(), C.rejected_or_closed(0x88, 0x89, 0x97),
          B.connects(clean=True, session=False), B.leaves(), C.until_connected(), A.quiet()], differs="new in 2.1"),
]  # fmt: skip



def acl(refuse: bool) -> list[Case]:
    flavour, name, differs = ("acl-refuse", "refusing", "an option of ours") if refuse else ("acl", "plain", "")

    def asks(actor: Actor, *filters: str, denied: bool = True, qos: int = 0) -> list[Step]:
        if not (refuse and denied):
            return [actor.subscribes(*filters, qos=qos)]
        pairs = tuple((f, qos) for f in filters)
        return [actor.sends(Subscribe(9, pairs)), *v5(actor.gets(Suback(9, (0x87,) * len(pairs)))), *v3(actor.gets(Suback(9, (0x80,) * len(pairs))))]

    rows: list[tuple[str, Steps]] = [
        ("subscribe-denied", [A.connects(), asks(A, "secret", "inbox/~", qos=1), A.quiet()]),
        ("subscribe-allowed", [A.connects(), asks(A, "news/~", "news/#", "both/+/x", "#", "+/~", "own/~a/#", denied=False)]),
        ("subscribe-wider-than-allowed",  # the broker delivers the topics that the client may read
         [A.connects(), asks(A, "#", denied=False), B.connects(username="ann", password=b""), B.publishes("ann/~", b"no", 1),
          B.publishes("own/~b/t", b"no", 1), C.connects(), C.publishes("both/~/x", b"yes", 1), A.receives("both/~/x", b"yes"), A.quiet()]),
        ("read-filtered", [A.connects(), A.subscribes("both/#"), B.connects(), B.publishes("both/~/x", b"1", 1), A.receives("both/~/x", b"1"), A.quiet()]),
        ("write-denied", [A.connects(), v5(A.sends(Publish("news/~", b"x", 1, 5)), A.gets(Puback(5, 0x87))),
                          v3(A.sends(Publish("news/~", b"x", 1, 5)), A.gets(Puback(5))), A.publishes("news/~", b"x"), A.quiet()]),
        ("deny-beats-allow", [A.connects(), A.subscribes("both/+/x"), B.connects(), B.publishes("both/no/x", b"x"), B.publishes("both/~/x", b"y"),
                              A.receives("both/~/x", b"y"), A.quiet()]),
        ("user-topics", [A.connects(username="ann", password=b""), A.subscribes("ann/~"), B.connects(username="ann", password=b""),
                         B.publishes("ann/~", b"x"), A.receives("ann/~", b"x"), C.connects(), C.publishes("ann/~", b"y"), A.quiet()]),
        ("user-is-not-anonymous", [A.connects(username="ann", password=b""), A.publishes("inbox/~", b"x"),
                                   v5(A.sends(Publish("inbox/~", b"x", 1, 5)), A.gets(Puback(5, 0x87)))]),
        ("pattern-clientid", [A.connects(), A.subscribes("own/~a/x"), B.connects(), B.publishes("own/~a/x", b"no"), A.quiet(),
                              A.sends(Publish("own/~a/x", b"yes", 1, 3)), A.gets_any(Puback(3), Publish("own/~a/x", b"yes"))]),
        ("pattern-username", [A.connects(username="ann", password=b""), v5(A.publishes("from/ann", b"x", 1, rc=0x10),
                              A.sends(Publish("from/bob", b"x", 1, 5)), A.gets(Puback(5, 0x87)))]),
        ("sys-topic", [A.connects(), asks(A, "$SYS/broker/version", denied=False), A.checks(lambda got: isinstance(got, Publish))]),
    ]  # fmt: skip
    return [Case(f"acl-{name}-{ident}", "[acl_file]", ALL, flavour, steps, differs=differs) for ident, steps in rows]


def sys_value(pattern: bytes, retain: bool = True) -> Step:
    def check(got: Received) -> bool:
        return isinstance(got, Publish) and got.retain == retain and re.fullmatch(pattern, got.payload) is not None

    return A.checks(check, repr(pattern))


NUMBER = [
    "uptime", "clients/total", "clients/connected", "clients/active", "clients/disconnected", "clients/inactive", "clients/maximum", "clients/expired",
    "messages/received", "messages/sent", "messages/stored", "store/messages/count", "store/messages/bytes", "publish/messages/received",
    "publish/messages/sent", "publish/messages/dropped", "publish/bytes/received", "publish/bytes/sent", "bytes/received", "bytes/sent",
    "subscriptions/count", "shared_subscriptions/count", "retained messages/count",
]  # fmt: skip
OURS = [f"index/{what}" for what in ("filters", "exact", "nodes", "depth", "subscriptions", "shared", "buckets", "bytes", "pool/in_use", "pool/idle", "cache/hits",
                                     "cache/misses")]
SINCE_2_1 = ["packet/out/count", "packet/out/bytes", "connections/socket/count"]
LOADS = [f"load/{what}/{n}min" for what in ("messages/received", "messages/sent", "publish/received", "publish/sent", "publish/dropped",
                                            "bytes/received", "bytes/sent", "sockets", "connections") for n in (1, 5, 15)]  # fmt: skip

SYS = [
    Case("version", "[$SYS]", ALL, "sys", [A.connects(), A.subscribes("$SYS/broker/version"), sys_value(rb"mosquitto version \d+\.\d+.*")]),
    Case("uptime", "[$SYS]", ALL, "sys", [A.connects(), A.subscribes("$SYS/broker/uptime"), sys_value(rb"\d+ seconds")]),
    *[Case(topic.replace("/", "-").replace(" ", "-") + "-is-there", "[$SYS]", (4,), "sys",
           [A.connects(), A.subscribes(f"$SYS/broker/{topic}"), A.awaits_retained(f"$SYS/broker/{topic}", rb"\d+( seconds)?")], timed=True)
      for topic in NUMBER],
    *[Case(topic.replace("/", "-") + "-is-there", "[$SYS]", (4,), "sys",
           [A.connects(), A.subscribes(f"$SYS/broker/{topic}"), A.awaits_retained(f"$SYS/broker/{topic}", rb"\d+")], timed=True, differs="new in 2.1")
      for topic in SINCE_2_1],
    *[Case(topic.replace("/", "-") + "-is-there", "[$SYS]", (4,), "sys",
           [A.connects(), A.subscribes(f"$SYS/broker/{topic}"), A.awaits_retained(f"$SYS/broker/{topic}", rb"\d+\.\d\d" if topic == "index/load" else rb"\d+")],
           timed=True, differs="ours: docs/index.md") for topic in (*OURS, "index/load")],
    *[Case(topic.replace("/", "-") + "-is-there", "[$SYS]", (4,), "sys",
           [A.connects(), A.subscribes(f"$SYS/broker/{topic}"), A.awaits_retained(f"$SYS/broker/{topic}", rb"\d+\.\d\d")], timed=True)
      for topic in LOADS],
    Case("counts-a-client", "[$SYS]", V45, "sys",
         [A.connects(), A.subscribes("$SYS/broker/clients/connected"), A.awaits_change("$SYS/broker/clients/connected", B)], timed=True),
    Case("not-in-wildcards", "[v5 4.7.2-1]", ALL, "sys", [A.connects(), A.subscribes("#", "+/broker/#"), A.silent(1.6), A.quiet()], timed=True),
    Case("by-wildcard", "[v5 4.7.2]", ALL, "sys",
         [A.connects(), A.subscribes("$SYS/#"), A.checks(lambda got: isinstance(got, Publish) and got.topic.startswith("$SYS/broker/") and got.retain)]),
    Case("by-plus", "[v5 4.7.2]", V45, "sys",
         [A.connects(), A.subscribes("$SYS/+/version"), A.checks(lambda got: isinstance(got, Publish) and got.topic == "$SYS/broker/version")]),
    Case("qos-2", "[$SYS]", V45, "sys",
         [A.connects(), A.subscribes("$SYS/broker/version", qos=2), A.checks(lambda got: isinstance(got, Publish) and got.qos == 2)]),
    Case("not-expired", "[$SYS]", V5, "sys",
         [A.connects(), A.subscribes("$SYS/broker/version"), A.checks(lambda got: isinstance(got, Publish) and P.EXPIRY not in dict(got.props))]),
]  # fmt: skip


@plays(LIMITS)
def test_limits(play: Play, stage: Stage) -> None:
    stage(play)


@plays(ALONE)
def test_limits_of_number(play: Play, stage: Stage) -> None:
    stage(play)


@plays([*acl(False), *acl(True)])
def test_acl(play: Play, stage: Stage) -> None:
    stage(play)


@plays(SYS)
def test_sys(play: Play, stage: Stage) -> None:
    stage(play)




@pytest.mark.parametrize("option", ["max_connections", "global_max_connections"])
def test_connections_that_have_ended_leave_their_places_at_once(option: str) -> None:
    """Test that a client gets in whose connection comes right after others have ended: the broker finds both in the same turn of its loop."""
    with Broker(f"listener {{port}} 127.0.0.1\nallow_anonymous true\n{option} 3\n") as broker:
        assert broker.process is not None
        come_in = entered_at_last if has_workers() else entered
        for turn in range(3):
            wires = [come_in(broker.port, f"c{n}") for n in range(3)]
            broker.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, broker.process.pid, os.WSTOPPED | os.WNOWAIT)
            for wire in wires:
                wire.close()
            last = Wire(broker.port, 4)
            last.send(Connect("last"))
            broker.send_signal(signal.SIGCONT)
            if has_workers():           # the worker that accepts may not know yet what the others have closed
                last.close()
                last = entered_at_last(broker.port, "last")
            else:
                assert isinstance(last.read_packet(), Connack), turn
            last.close()


@pytest.mark.parametrize("option", ["max_connections", "global_max_connections"])
def test_a_client_gets_in_that_connects_right_after_a_refused_one(option: str) -> None:
    """Test that the broker sees the ends of connections in time that happen between a refusal and the next connection."""
    enter = entered_at_last if has_workers() else entered
    with Broker(f"listener {{port}} 127.0.0.1\nallow_anonymous true\n{option} 3\n") as broker, ExitStack() as opened:
        wires = [opened.enter_context(closing(enter(broker.port, f"c{n}"))) for n in range(3)]         # the harness has connected, too
        for _ in range(200):
            refused = opened.enter_context(closing(Wire(broker.port, 4)))
            refused.expect_closed()
            for wire in wires:
                wire.close()
            wires = [opened.enter_context(closing(enter(broker.port, f"c{n}"))) for n in range(3)]


def entered_at_last(port: int, client_id: str) -> Wire:
    """Connect to a broker with workers, whose count of connections that end is exact a moment later (docs/workers.md)."""
    until_s = time.monotonic() + 5
    while True:
        wire = Wire(port, 4)
        wire.send(Connect(client_id))
        try:
            assert isinstance(wire.read_packet(), Connack)
        except (AssertionError, OSError):
            wire.close()
            assert time.monotonic() < until_s
            time.sleep(0.001)
        else:
            return wire


def entered(port: int, client_id: str) -> Wire:
    wire = Wire(port, 4)
    wire.send(Connect(client_id))
    assert isinstance(wire.read_packet(), Connack)
    return wire
