"""Test sessions over time, wills and their delays, DISCONNECT, retained messages, message expiry."""

from __future__ import annotations

from tests.harness.packets import Disconnect, Publish, Received, Will
from tests.harness.properties import P, Props
from tests.harness.scene import Actor, Step, v3, v5, wait
from tests.wire.case import ALL, V5, V34, V45, Case, Play, Stage, plays

A, B, C = Actor("a"), Actor("b"), Actor("c")


def lasting(seconds: int) -> Props:
    return ((P.SESSION_EXPIRY, seconds),)


def delayed(seconds: int, qos: int = 0) -> Will:
    return Will("~w", b"will", qos, props=((P.WILL_DELAY, seconds),))


WATCH: list[Step] = [B.connects(), B.subscribes("~w", qos=2)]
WILL_PROPS: Props = ((P.PAYLOAD_FORMAT, 1), (P.CONTENT_TYPE, "c"), (P.RESPONSE_TOPIC, "r"), (P.CORRELATION, b"\0"), (P.USER, ("k", "2")),
                     (P.USER, ("k", "1")))  # fmt: skip


def counted_down(lo: int, hi: int) -> Step:
    def check(got: Received) -> bool:
        left = dict(got.props).get(P.EXPIRY) if isinstance(got, Publish) else None
        return isinstance(left, int) and lo <= left <= hi

    return B.checks(check, f"expiry within {lo}..{hi}")


SESSIONS = [
    Case("expires", "[v5 3.1.2-23]", V5, "plain",
         [A.connects(clean=False, props=lasting(1)), A.leaves(), wait(2.6), A.connects(clean=False, props=lasting(1)), A.quiet()], timed=True),
    Case("expires-after-drop", "[v5 3.1.2-23]", V5, "plain",
         [A.connects(clean=False, props=lasting(1)), A.drops(), wait(2.6), A.connects(clean=False), A.quiet()], timed=True),
    Case("lasts", "[v5 3.1.2-23]", V5, "plain",
         [A.connects(clean=False, props=lasting(4)), A.leaves(), wait(1.5), A.connects(clean=False, props=lasting(4), session=True)], timed=True),
    Case("lasts-while-connected", "[v5 3.1.2.11.2]", V5, "plain",
         [A.connects(clean=False, props=lasting(1)), wait(2.6), A.quiet(), A.leaves(), A.connects(clean=False, session=True)], timed=True),
    Case("never-expires", "[v5 3.1.2.11.2]", V5, "plain",
         [A.connects(clean=False, props=lasting(0xFFFFFFFF)), A.leaves(), wait(1.5), A.connects(clean=False, session=True)], timed=True),
    Case("ends-at-once", "[v5 3.1.2.11.2]", V5, "plain", [A.connects(clean=False), A.leaves(), A.connects(clean=False)]),
    Case("clean-start-then-lasting", "[v5 3.1.2-4]", V5, "plain",
         [A.connects(clean=True, props=lasting(60)), A.subscribes("~t", qos=1), A.leaves(), B.connects(), B.publishes("~t", b"x", 1),
          A.connects(clean=False, props=lasting(60), session=True), A.receives("~t", b"x", 1)]),
    Case("persistent-client-expiration", "[persistent_client_expiration]", V34, "client-expiry",
         [A.connects(persistent=True), A.leaves(), wait(3.2), A.connects(persistent=True)], timed=True, differs="seconds are new in 2.1"),
    Case("disconnect-shortens", "[v5 3.14.2.2.2]", V5, "plain",
         [A.connects(clean=False, props=lasting(60)), A.leaves(props=lasting(0)), A.connects(clean=False)]),
    Case("disconnect-shortens-to-1", "[v5 3.14.2.2.2]", V5, "plain",
         [A.connects(clean=False, props=lasting(60)), A.leaves(props=lasting(1)), wait(2.6), A.connects(clean=False)], timed=True),
    Case("disconnect-lengthens", "[v5 3.14.2.2.2]", V5, "plain",
         [A.connects(clean=False, props=lasting(1)), A.leaves(props=lasting(60)), wait(2.6), A.connects(clean=False, session=True)], timed=True),
    Case("disconnect-cannot-begin", "[v5 3.14.2-2]", V5, "plain",
         [A.connects(clean=False), A.sends(Disconnect(0, lasting(60))), A.ends(0x82)]),
    Case("messages-of-an-expired-session", "[v5 4.1]", V5, "plain",
         [A.connects(clean=False, props=lasting(1)), A.subscribes("~t", qos=1), A.leaves(), B.connects(), B.publishes("~t", b"x", 1, rc=0),
          wait(2.6), B.publishes("~t", b"y", 1, rc=0x10), A.connects(clean=False), A.quiet()], timed=True),
]  # fmt: skip

WILLS = [
    *[Case(f"will-qos{q}{'-retained' * r}", "[v5 3.1.2-8][v5 3.1.2-14][v5 3.1.2-15]", ALL, "plain",
           [WATCH, A.connects(will=Will("~w", b"gone", q, bool(r))), A.drops(), B.receives("~w", b"gone", q), C.connects(), C.subscribes("~w", qos=2),
            *([C.receives("~w", b"gone", q, retain=True)] if r else []), C.quiet(), *([A.connects(), A.publishes("~w", retain=True)] if r else [])])
      for q in range(3) for r in range(2)],
    Case("will-empty", "[v5 3.1.3.4]", ALL, "plain", [WATCH, A.connects(will=Will("~w", b"")), A.drops(), B.receives("~w", b"")]),
    Case("will-dropped-by-disconnect", "[v5 3.14.4-3]", ALL, "plain", [WATCH, A.connects(will=Will("~w", b"x")), A.leaves(), B.quiet()]),
    Case("will-kept-by-0x04", "[v5 3.14.2.1]", V5, "plain",
         [WATCH, A.connects(will=Will("~w", b"x", 1)), A.sends(Disconnect(0x04)), B.receives("~w", b"x", 1), A.closed(), B.quiet()]),
    Case("will-kept-by-error", "[v5 3.14.2.1]", V5, "plain",
         [WATCH, A.connects(will=Will("~w", b"x", 1)), A.sends(Disconnect(0x80)), B.receives("~w", b"x", 1), A.closed(), B.quiet()], differs="2.0.11 drops the will at any DISCONNECT but 0x04; 3.14.4-3 says only at 0x00"),
    Case("will-on-protocol-error", "[v5 3.1.2-8]", ALL, "plain",
         [WATCH, A.connects(will=Will("~w", b"x")), A.sends_raw(b"\x00\x00"), A.ends(0x81, 0x82), B.receives("~w", b"x")]),
    Case("will-replaced-by-reconnect", "[v5 3.1.2-10]", ALL, "plain",
         [WATCH, A.connects(will=Will("~w", b"1")), A.leaves(), A.connects(will=Will("~w", b"2")), A.drops(), B.receives("~w", b"2"), B.quiet()]),
    Case("will-once", "[v5 3.1.2-10]", ALL, "plain",
         [WATCH, A.connects(persistent=True, will=Will("~w", b"1")), A.drops(), B.receives("~w", b"1"), A.connects(persistent=True, session=True), A.drops(),
          B.quiet(), B.silent(0.3)]),
    Case("will-properties", "[v5 3.1.3.2]", V5, "plain",
         [WATCH, A.connects(will=Will("~w", b"x", 1, props=WILL_PROPS)), A.drops(), B.receives("~w", b"x", 1, props=WILL_PROPS)]),
    Case("will-expiry", "[v5 3.1.3.2.4]", V5, "plain",
         [WATCH, A.connects(will=Will("~w", b"x", props=((P.EXPIRY, 100),))), A.drops(), B.receives("~w", b"x", props=((P.EXPIRY, 100),))]),
    Case("will-qos-3", "[v5 3.1.2-12]", ALL, "plain", [A.opens(), A.sends_connect(will=Will("~w", qos=3)), A.closed()]),
    Case("will-bits-without-will", "[v5 3.1.2-11]", V45, "plain", [A.opens(), A.sends_connect(flags=0x22), A.closed()]),
    Case("will-topic-wildcard", "[v5 3.3.2-2]", ALL, "plain", [A.opens(), A.sends_connect(will=Will("~/#")), A.rejected(0x90, 0x81, 0x82)],
         differs="5.0: 2.0.11 sends no CONNACK"),
    Case("will-topic-empty", "[v5 4.7.3-1]", V45, "plain", [A.opens(), A.sends_connect(will=Will("")), A.rejected(0x90, 0x81, 0x82)],
         differs="5.0: 2.0.11 sends no CONNACK"),
    # -- delays
    Case("delay", "[v5 3.1.3-9]", V5, "plain",
         [WATCH, A.connects(clean=False, props=lasting(60), will=delayed(2)), A.drops(), B.silent(1.5), B.receives("~w", b"will")], timed=True),
    Case("delay-cancelled", "[v5 3.1.3-9]", V5, "plain",
         [WATCH, A.connects(clean=False, props=lasting(60), will=delayed(1)), A.drops(), A.connects(clean=False, props=lasting(60), session=True), B.silent(2.6),
          B.quiet()], timed=True),
    Case("delay-until-the-session-ends", "[v5 3.1.3.2.2]", V5, "plain",
         [WATCH, A.connects(clean=False, props=lasting(1), will=delayed(60)), A.drops(), B.silent(0.7), B.receives("~w", b"will")], timed=True),
    Case("delay-without-session", "[v5 3.1.3.2.2]", V5, "plain", [WATCH, A.connects(will=delayed(60)), A.drops(), B.receives("~w", b"will")], differs="2.0.11 waits for the delay though the session has ended"),
    Case("delay-ended-by-clean-start", "[v5 3.1.3.2.2]", V5, "plain",  # the clean start ends the session, so the will is due
         [WATCH, A.connects(clean=False, props=lasting(60), will=delayed(60)), A.drops(), A.connects(), B.receives("~w", b"will")], differs="2.0.11 forgets the will of the session that a clean start ends"),
    Case("delay-ended-by-clean-start-and-expiry", "[v5 3.1.3.2.4]", V5, "plain",  # the expiry begins when the will is published
         [WATCH, A.connects(clean=False, props=lasting(60), will=Will("~w", b"will", props=((P.WILL_DELAY, 50), (P.EXPIRY, 100)))), A.drops(), A.connects(),
          B.receives("~w", b"will", props=((P.EXPIRY, 100),))], differs="2.0.11 forgets the will of the session that a clean start ends"),
    Case("delay-of-0x04", "[v5 3.14.2.1]", V5, "plain",
         [WATCH, A.connects(clean=False, props=lasting(60), will=delayed(2)), A.sends(Disconnect(0x04)), B.silent(1.5), B.receives("~w", b"will")], timed=True),
    Case("delay-and-takeover", "[v5 3.1.3-9]", V5, "plain",
         [WATCH, A.connects("~s", clean=False, props=lasting(60), will=delayed(1)), C.connects("~s", clean=False, props=lasting(60), session=True),
          B.silent(2.6), B.quiet()], timed=True),
    Case("delay-session-ended-at-disconnect", "[v5 3.1.3.2.2]", V5, "plain",
         [WATCH, A.connects(clean=False, props=lasting(60), will=delayed(60)), A.sends(Disconnect(0x04, lasting(0))), B.receives("~w", b"will")], differs="2.0.11 waits for the delay though the session has ended"),
]  # fmt: skip

RETAINED = [
    Case("set", "[v5 3.3.1-5]", ALL, "plain",
         [A.connects(), A.publishes("~t", b"r", 1, retain=True), A.leaves(), B.connects(), B.subscribes("~t", qos=2), B.receives("~t", b"r", 1, retain=True),
          B.quiet(), A.connects(), A.publishes("~t", retain=True)]),
    Case("replaced", "[v5 3.3.1-5]", ALL, "plain",
         [A.connects(), A.publishes("~t", b"1", 2, retain=True), A.publishes("~t", b"2", retain=True), B.connects(), B.subscribes("~t", qos=2),
          B.receives("~t", b"2", retain=True), B.quiet(), A.publishes("~t", retain=True)]),
    Case("cleared", "[v5 3.3.1-6]", ALL, "plain",
         [A.connects(), A.publishes("~t", b"1", 1, retain=True), A.publishes("~t", b"", retain=True), B.connects(), B.subscribes("~t"), B.quiet()]),
    Case("clearing-is-a-message", "[v5 3.3.1-6]", ALL, "plain",
         [B.connects(), B.subscribes("~t"), A.connects(), A.publishes("~t", b"1", 1, retain=True), A.publishes("~t", b"", 1, retain=True),
          B.receives("~t", b"1"), B.receives("~t", b""), B.quiet()]),
    Case("plain-leaves-it", "[v5 3.3.1-8]", ALL, "plain",
         [A.connects(), A.publishes("~t", b"1", 1, retain=True), A.publishes("~t", b"2", 1), A.publishes("~t", b"", 1), B.connects(), B.subscribes("~t"),
          B.receives("~t", b"1", retain=True), B.quiet(), A.publishes("~t", retain=True)]),
    Case("wildcard", "[v5 3.3.1-9]", ALL, "plain",
         [A.connects(), *[A.publishes(f"~/{n}/x", b"r", 1, retain=True) for n in range(5)], A.publishes("~", b"r", retain=True), B.connects(), B.subscribes("~/+/x"),
          B.gets_any(*[Publish(f"~/{n}/x", b"r", retain=True) for n in range(5)]), B.subscribes("~/#"),
          B.gets_any(*[Publish(f"~/{n}/x", b"r", retain=True) for n in range(5)], Publish("~", b"r", retain=True)), B.quiet(),
          *[A.publishes(f"~/{n}/x", retain=True) for n in range(5)], A.publishes("~", retain=True)]),
    Case("wildcard-not-dollar", "[v5 4.7.2-1]", V45, "plain",
         [A.connects(), A.publishes("$~/x", b"r", 1, retain=True), A.publishes("$~/x", b"r2", 1, retain=True), B.connects(), B.subscribes("+/x"), B.quiet(),
          B.subscribes("$~/+"), B.receives("$~/x", b"r2", retain=True), A.publishes("$~/x", retain=True)]),
    Case("of-each-subscription", "[v5 3.3.1-9]", V34, "plain",
         [A.connects(), A.publishes("~t", b"r", 1, retain=True), B.connects(), B.subscribes("~t"), B.receives("~t", b"r", retain=True), B.subscribes("~t"),
          B.receives("~t", b"r", retain=True), A.publishes("~t", retain=True)]),
    Case("suback-first", "[v5 3.8.4-1]", ALL, "plain",
         [A.connects(), A.publishes("~t", b"r", 1, retain=True), B.connects(), B.subscribes("~t", "~/none"), B.receives("~t", b"r", retain=True),
          A.publishes("~t", retain=True)]),
    Case("properties", "[v5 3.3.2]", V5, "plain",
         [A.connects(), A.publishes("~t", b"r", 1, retain=True, props=WILL_PROPS), B.connects(), B.subscribes("~t", qos=1),
          B.receives("~t", b"r", 1, retain=True, props=WILL_PROPS), A.publishes("~t", retain=True)]),
    Case("expires", "[v5 3.3.2-5]", V5, "plain",
         [A.connects(), A.publishes("~t", b"r", 1, retain=True, props=((P.EXPIRY, 1),)), wait(2.6), B.connects(), B.subscribes("~t"), B.quiet()], timed=True),
    Case("counted-down", "[v5 3.3.2-6]", V5, "plain",
         [A.connects(), A.publishes("~t", b"r", 1, retain=True, props=((P.EXPIRY, 100),)), wait(2.2), B.connects(), B.subscribes("~t"), counted_down(96, 99),
          A.publishes("~t", retain=True)], timed=True),
    Case("unavailable-5", "[v5 3.2.2-14]", V5, "no-retain", [A.connects(), A.sends(Publish("~t", b"x", 1, 5, retain=True)), A.ends(0x9A)]),
    Case("unavailable-3x", "[retain_available]", V34, "no-retain", [A.connects(), A.sends(Publish("~t", b"x", 1, 5, retain=True)), A.closed()]),
]  # fmt: skip

EXPIRY = [
    Case("dropped-when-due", "[v5 3.3.2-5]", V5, "plain",
         [B.connects(persistent=True), B.subscribes("~t", qos=1), B.leaves(), A.connects(), A.publishes("~t", b"1", 1, props=((P.EXPIRY, 1),)),
          A.publishes("~t", b"2", 1, props=((P.EXPIRY, 100),)), A.publishes("~t", b"3", 1), wait(2.6), B.connects(persistent=True, session=True),
          counted_down(95, 98), B.receives("~t", b"3", 1), B.quiet()], timed=True),
    Case("dropped-behind-a-window", "[v5 3.3.2-5]", V5, "plain",
         [B.connects(props=((P.RECEIVE_MAXIMUM, 1),)), B.subscribes("~t", qos=1), A.connects(), A.publishes("~t", b"1", 1),
          A.publishes("~t", b"2", 1, props=((P.EXPIRY, 1),)), A.publishes("~t", b"3", 1), wait(2.6), B.receives("~t", b"1", 1), B.receives("~t", b"3", 1),
          B.quiet()], timed=True, differs="2.0.11 stalls behind the expired message"),
    Case("resent-once-begun", "[v5 4.4.0-1]", V5, "plain",  # delivery had begun: sent again or dropped, but not with an old interval
         [B.connects(persistent=True), B.subscribes("~t", qos=1), A.connects(), A.publishes("~t", b"1", 1, props=((P.EXPIRY, 60),)),
          B.gets(Publish("~t", b"1", 1, "m", props=((P.EXPIRY, 60),))), B.drops(), wait(1.6), B.connects(persistent=True, session=True),
          counted_down(55, 59)], timed=True),
]  # fmt: skip

DISCONNECT = [
    Case("plain", "[v5 3.14.4-1]", ALL, "plain", [A.connects(), A.leaves()]),
    Case("nothing-after-it", "[v5 3.14.4-1]", ALL, "plain",
         [B.connects(), B.subscribes("~t"), A.connects(), A.sends(Disconnect(), Publish("~t", b"late")), A.closed(), B.quiet()]),
    Case("publish-before-it", "[v5 4.6]", ALL, "plain",
         [B.connects(), B.subscribes("~t", qos=1), A.connects(), A.sends(Publish("~t", b"x", 1, 3), Disconnect()), B.receives("~t", b"x", 1)]),
    Case("properties", "[v5 3.14.2.2]", V5, "plain",
         [A.connects(), A.leaves(0, ((P.REASON_STRING, "bye"), (P.USER, ("a", "b")), (P.USER, ("a", "b"))))]),
    Case("auth-unasked", "[v5 4.12.0-6]", V5, "plain", [A.connects(), A.sends_raw(b"\xf0\x00"), A.ends(0x82)], differs="2.0.11 just closes; 5.0 is told 0x82"),
    Case("flags", "[v5 3.14.1-1]", V45, "plain",
         [WATCH, A.connects(will=Will("~w", b"x")), A.sends_raw(b"\xe1\x00"), A.ends(0x81, 0x82), B.receives("~w", b"x")], differs="2.0.11 just closes; 5.0 is told 0x81"),
    Case("ping", "[v5 3.12.4-1]", ALL, "plain", [A.connects(), v3(A.sends_raw(b"\xc0\x00")), v5(A.sends_raw(b"\xc0", b"\x00")), A.gets_raw(b"\xd0\x00")]),
]  # fmt: skip


@plays(SESSIONS)
def test_session(play: Play, stage: Stage) -> None:
    stage(play)


@plays(WILLS)
def test_will(play: Play, stage: Stage) -> None:
    stage(play)


@plays(RETAINED)
def test_retained(play: Play, stage: Stage) -> None:
    stage(play)


@plays(EXPIRY)
def test_message_expiry(play: Play, stage: Stage) -> None:
    stage(play)


@plays(DISCONNECT)
def test_disconnect(play: Play, stage: Stage) -> None:
    stage(play)
