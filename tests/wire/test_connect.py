"""Test CONNECT and CONNACK: versions, client ids, sessions, take-over, refusals, contents of CONNACK."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from tests.harness.packets import Connack, Connect, Pingreq, Publish, Received, Will
from tests.harness.properties import P
from tests.harness.scene import Actor, Step, v3, v5
from tests.wire.case import ALL, V5, V34, V45, Case, Play, Stage, plays

A, B, C = Actor("a"), Actor("b"), Actor("c")

Check = Callable[[Received], bool]
_UUID = r"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}"


def assigned(prefix: str) -> Check:
    def check(got: Received) -> bool:
        assert isinstance(got, Connack) and got.rc == 0 and not got.session
        assert [ident for ident, _ in got.props] == [
            P.TOPIC_ALIAS_MAXIMUM,
            P.ASSIGNED_ID,
            P.MAXIMUM_PACKET_SIZE,
            P.RECEIVE_MAXIMUM,
        ]
        return bool(re.fullmatch(prefix + _UUID, str(dict(got.props)[P.ASSIGNED_ID])))

    return check


def has_properties(*pairs: tuple[int, int]) -> Check:
    return lambda got: isinstance(got, Connack) and got.rc == 0 and set(pairs) <= set(got.props)


def lacks(*idents: int) -> Check:
    return lambda got: isinstance(got, Connack) and got.rc == 0 and not set(idents) & {i for i, _ in got.props}


def v3_level(byte: int, level: int) -> Step:
    return replace(A.sends(Connect("~a", level_byte=byte)), levels=(level,))


TAKEN = "2.0.11 just closes; 2.1 sends DISCONNECT 0x8E (drop-in notes)"
LATE = "2.0.11 looks at keep alives only every five seconds"
SIZE = "2.0.11 says no Maximum Packet Size of 2,000,000; 2.1 does (drop-in notes)"

CASES = [
    Case("accept-3x", "[v3.1.1 3.2.2-2]", V34, "plain",
         [A.opens(), A.sends(Connect("~a")), A.gets_raw(bytes.fromhex("20 02 00 00")), A.quiet()]),
    Case("accept-5", "[v5 3.2.2.3]", V5, "plain",
         [A.opens(), A.sends(Connect("~a")),
          A.gets_raw(bytes.fromhex("20 0e 00 00 0b 22 00 0a 27 00 1e 84 80 21 00 14")), A.quiet()], differs=SIZE),
    Case("bridge-bit", "[v3.1.1 3.1.2-2]", V34, "plain",  # Mosquitto's bridges set bit 7 of the level
         [A.opens(), v3_level(0x83, 3), v3_level(0x84, 4), A.gets_raw(bytes.fromhex("20 02 00 00")), A.quiet()]),
    Case("name-unknown", "[v5 3.1.2-1]", ALL, "plain",
         [A.opens(), A.sends(Connect("~a", protocol="MQTX")), A.turned_away(0x84, 0x01)]),
    Case("name-case", "[v5 3.1.2-1]", ALL, "plain",
         [A.opens(), A.sends(Connect("~a", protocol="mqtt")), A.turned_away(0x84, 0x01)]),
    Case("level-unknown", "[v3.1.1 3.1.2-2]", ALL, "plain",
         [A.opens(), A.sends(Connect("~a", level_byte=6)), A.turned_away(0x84, 0x01)]),
    Case("level-of-the-other-name", "[v3.1.1 3.1.2-2]", V34, "plain",
         [A.opens(), A.sends(Connect("~a", protocol="MQIsdp", level_byte=4)), A.turned_away(0x01)]),
    Case("only-5-refuses", "[v3.1.1 3.1.2-2]", V34, "only-5",
         [A.opens(), A.sends(Connect("~a")), A.refused(0x84, 0x01)], differs="accept_protocol_versions is new in 2.1"),
    Case("only-5-accepts", "[v5 3.1.2-2]", V5, "only-5", [A.connects(), A.quiet()], differs="accept_protocol_versions is new in 2.1"),
    Case("only-34-refuses", "[v5 3.1.2-2]", V5, "only-34",
         [A.opens(), A.sends(Connect("~a")), A.refused(0x84, 0x01)], differs="accept_protocol_versions is new in 2.1"),
    # -- client id
    Case("id-empty-3.1", "[v3.1 3.1]", (3,), "plain", [A.opens(), A.sends(Connect("")), A.refused(0x85, 0x02)]),
    Case("id-empty-clean", "[v3.1.1 3.1.3-6]", (4,), "plain", [A.connects(""), A.quiet()]),
    Case("id-empty-unclean", "[v3.1.1 3.1.3-8]", (4,), "plain",
         [A.opens(), A.sends(Connect("", clean=False)), A.refused(0x85, 0x02)]),
    Case("id-assigned", "[v5 3.1.3-6]", V5, "plain",
         [A.opens(), A.sends(Connect("")), A.checks(assigned("auto-")), A.quiet()], differs=SIZE),
    Case("id-assigned-unclean", "[v5 3.1.3-6]", V5, "plain",
         [A.opens(), A.sends(Connect("", clean=False)), A.checks(assigned("auto-")), A.quiet()], differs=SIZE),
    Case("id-prefix", "[v5 3.2.2-16]", V5, "id-prefix",
         [A.opens(), A.sends(Connect("")), A.checks(assigned("pre-")), A.quiet()], differs=SIZE),
    Case("id-empty-forbidden", "[v5 3.1.3-8]", V45, "no-empty-id", [A.opens(), A.sends(Connect("")), A.refused(0x80, 0x02)], differs="5.0: 2.0.11 says 0x02, no code of 5.0; 2.1 says 0x80"),
    Case("id-long", "[v3.1.1 3.1.3-5]", ALL, "plain", [A.connects("~" + "i" * 1000), A.quiet()]),
    Case("id-utf8", "[v5 3.1.3-4]", ALL, "plain", [A.connects("~grüße-日本-𝄞"), A.quiet()]),
    Case("id-nul", "[v5 1.5.4-2]", ALL, "plain", [A.opens(), A.sends(Connect("~a\0b")), A.rejected(0x81, 0x82, 0x85)],
         differs="sends DISCONNECT instead of CONNACK to 5.0, or accepts"),
    # -- sessions
    Case("session-present", "[v5 3.2.2-3]", ALL, "plain",
         [A.connects(persistent=True), A.leaves(), A.connects(persistent=True, session=True), A.quiet()]),
    Case("session-cleaned", "[v5 3.1.2-4]", ALL, "plain",
         [A.connects(persistent=True), A.subscribes("~t", qos=1), A.leaves(), A.connects(), B.connects(),
          B.publishes("~t", b"1", 1), A.quiet()]),
    Case("session-not-kept", "[v5 3.1.2-23]", ALL, "plain",
         [A.connects(), A.leaves(), A.connects(persistent=True), A.quiet()]),
    Case("clean-ends-the-next", "[v3.1.1 3.1.2-6]", V34, "plain",
         [A.connects(persistent=True), A.leaves(), A.connects(), A.leaves(), A.connects(persistent=True)]),
    # -- take-over
    Case("takeover", "[v5 3.1.4-3]", ALL, "plain", [A.connects("~x"), B.connects("~x"), A.ends(0x8E), B.quiet()], differs=TAKEN),
    Case("takeover-session", "[v5 3.1.4-3]", ALL, "plain",
         [A.connects("~x", persistent=True), A.subscribes("~t", qos=1), B.connects("~x", persistent=True, session=True),
          A.ends(0x8E), C.connects(), C.publishes("~t", b"1", 1, rc=0), B.receives("~t", b"1", 1), B.quiet()], differs=TAKEN),
    Case("takeover-will", "[v5 3.1.2-8]", ALL, "plain",
         [C.connects(), C.subscribes("~w"), A.connects("~x", will=Will("~w", b"gone")), B.connects("~x"), A.ends(0x8E),
          C.receives("~w", b"gone"), C.quiet()], differs=TAKEN),
    Case("takeover-by-3.1.1", "[v5 3.1.4-3]", V5, "plain", [A.connects("~x"), B.connects("~x", level=4), A.ends(0x8E), B.quiet()], differs=TAKEN),
    Case("takeover-of-3.1.1", "[v3.1.1 3.1.4-2]", (4,), "plain",
         [A.connects("~x"), B.connects("~x", level=5), A.closed(), B.quiet()]),
    # -- keep alive
    Case("keepalive", "[v5 3.1.2-22]", ALL, "plain",
         [A.connects(keepalive=1), A.silent(1.3), A.ends_within(4, 0x8D)], timed=True, differs=LATE),
    Case("keepalive-ping", "[v5 3.1.2-22]", ALL, "plain",
         [A.connects(keepalive=1), *[step for _ in range(4) for step in (A.silent(0.8), A.quiet())]], timed=True),
    Case("keepalive-publish-counts", "[v5 3.1.2-22]", V45, "plain",
         [A.connects(keepalive=1), *[s for _ in range(4) for s in (A.silent(0.8), A.sends(Publish("~t", b"x")))], A.quiet()],
         timed=True),
    Case("keepalive-none", "[v5 3.1.2.10]", V45, "plain", [A.connects(keepalive=0), A.silent(3.5), A.quiet()], timed=True),
    Case("keepalive-will", "[v5 3.1.2-8]", V45, "plain",
         [B.connects(), B.subscribes("~w"), A.connects(keepalive=1, will=Will("~w", b"late")), B.gets(Publish("~w", b"late")),
          A.ends(0x8D)], timed=True, differs=LATE),
    Case("max-keepalive-5", "[v5 3.2.2-21]", V5, "max-keepalive",
         [A.opens(), A.sends(Connect("~a", keepalive=60)), A.checks(has_properties((P.SERVER_KEEPALIVE, 30))), A.quiet(),
          B.opens(), B.sends(Connect("~b", keepalive=0)), B.checks(has_properties((P.SERVER_KEEPALIVE, 30))),
          C.opens(), C.sends(Connect("~c", keepalive=20)), C.checks(lacks(P.SERVER_KEEPALIVE))]),
    Case("max-keepalive-3x", "[v3.1.1 3.1.2.10]", V34, "max-keepalive",
         [A.opens(), A.sends(Connect("~a", keepalive=60)), A.refused(0, 0x02),
          B.opens(), B.sends(Connect("~b", keepalive=0)), B.refused(0, 0x02), C.connects(keepalive=30), C.quiet()], differs="2.1 refuses, 2.0.11 accepts (drop-in notes)"),
    # -- properties of CONNACK
    Case("no-retain-said", "[v5 3.2.2-13]", V5, "no-retain",
         [A.opens(), A.sends(Connect("~a")), A.checks(has_properties((P.RETAIN_AVAILABLE, 0)))]),
    Case("max-qos-said", "[v5 3.2.2-9]", V5, "max-qos-1", [A.opens(), A.sends(Connect("~a")), A.checks(has_properties((P.MAXIMUM_QOS, 1)))]),
    Case("max-qos-0-said", "[v5 3.2.2-9]", V5, "max-qos-0", [A.opens(), A.sends(Connect("~a")), A.checks(has_properties((P.MAXIMUM_QOS, 0)))]),
    Case("full-service-is-unsaid", "[v5 3.2.2.3.4]", V5, "plain",
         [A.opens(), A.sends(Connect("~a")), A.checks(lacks(P.RETAIN_AVAILABLE, P.MAXIMUM_QOS, P.ASSIGNED_ID, P.SERVER_KEEPALIVE))]),
    Case("packet-size-said", "[v5 3.2.2-15]", V5, "packet-100",
         [A.opens(), A.sends(Connect("~a")), A.checks(has_properties((P.MAXIMUM_PACKET_SIZE, 100)))]),
    Case("receive-maximum-said", "[v5 3.2.2.3.3]", V5, "inflight-2",
         [A.opens(), A.sends(Connect("~a")), A.checks(has_properties((P.RECEIVE_MAXIMUM, 2)))]),
    Case("alias-maximum-said", "[v5 3.2.2-17]", V5, "alias-3",
         [A.opens(), A.sends(Connect("~a")), A.checks(has_properties((P.TOPIC_ALIAS_MAXIMUM, 3)))]),
    Case("alias-none-unsaid", "[v5 3.2.2-18]", V5, "alias-0",
         [A.opens(), A.sends(Connect("~a")), A.checks(lacks(P.TOPIC_ALIAS_MAXIMUM))]),
    # -- refusals
    Case("not-anonymous", "[v5 3.1.4-2]", ALL, "closed-shop", [A.opens(), A.sends(Connect("~a")), A.refused(0x87, 0x05)]),
    Case("auth-method", "[v5 4.12.0-1]", V5, "plain",
         [A.opens(), A.sends(Connect("~a", props=((P.AUTH_METHOD, "SCRAM-SHA-1"),))), A.refused(0x8C, 0)]),
    Case("auth-data-alone", "[v5 3.1.2.11.10]", V5, "plain",
         [A.opens(), A.sends(Connect("~a", props=((P.AUTH_DATA, b"x"),))), A.rejected(0x82)],
         differs="sends DISCONNECT instead of CONNACK"),
    Case("will-retain-unavailable", "[v5 3.2.2-13]", V5, "no-retain",
         [A.opens(), A.sends(Connect("~a", will=Will("~w", retain=True))), A.refused(0x9A, 0)]),
    Case("will-qos-unavailable", "[v5 3.2.2-12]", V5, "max-qos-1",
         [A.opens(), A.sends(Connect("~a", will=Will("~w", qos=2))), A.refused(0x9B, 0)]),
    Case("password-alone-3.1.1", "[v3.1.1 3.1.2-22]", (4,), "plain",
         [A.opens(), A.sends(Connect("~a", password=b"p")), A.closed()]),
    Case("password-alone-5", "[v5 3.1.2.9]", V5, "plain", [A.connects(password=b"p"), A.quiet()]),
    Case("username", "[v5 3.1.3-11]", ALL, "plain", [A.connects(username="u", password=b"\0\xff"), A.quiet()]),
    Case("username-empty", "[v5 3.1.3.5]", ALL, "plain", [A.connects(username="", password=b""), A.quiet()]),
    # -- order of packets
    Case("second-connect", "[v5 3.1.0-2]", ALL, "plain", [A.connects(), A.sends(Connect("~a")), A.ends(0x82)], differs="2.0.11 sends no DISCONNECT; the standard names 0x82"),
    Case("ping-first", "[v5 3.1.0-1]", ALL, "plain", [A.opens(), A.sends(Pingreq()), A.closed()]),
    Case("publish-first", "[v5 3.1.0-1]", ALL, "plain",
         [B.connects(), B.subscribes("~t"), A.opens(), A.sends(Publish("~t", b"x")), A.closed(), B.quiet()]),
    Case("publish-with-connect", "[v5 3.1.4-6]", ALL, "plain",  # a client need not wait for the CONNACK
         [B.connects(), B.subscribes("~t"), A.opens(), A.sends(Connect("~a"), Publish("~t", b"x")),
          A.checks(lambda got: isinstance(got, Connack) and got.rc == 0), B.receives("~t", b"x")]),
    Case("reset", "[v5 3.1.2-8]", ALL, "plain",
         [B.connects(), B.subscribes("~w"), A.connects(will=Will("~w", b"rst")), A.resets(), B.receives("~w", b"rst")]),
    Case("problem-information-off", "[v5 3.1.2-29]", V5, "plain",
         [A.connects(props=((P.REQUEST_PROBLEM, 0),)), A.subscribes("~t"),
          A.sends(Publish("~u", b"", 1, 5)), A.checks(lambda got: getattr(got, "props", None) == ())]),
    Case("all-properties", "[v5 3.1.2.11]", V5, "plain",
         [A.connects(props=((P.SESSION_EXPIRY, 1), (P.RECEIVE_MAXIMUM, 5), (P.MAXIMUM_PACKET_SIZE, 1000), (P.TOPIC_ALIAS_MAXIMUM, 1),
                            (P.REQUEST_RESPONSE, 1), (P.REQUEST_PROBLEM, 1), (P.USER, ("a", "1")), (P.USER, ("a", "1")))),
          A.quiet(), v5(A.leaves()), v3(A.leaves())]),
]  # fmt: skip


@plays(CASES)
def test_connect(play: Play, stage: Stage) -> None:
    stage(play)
