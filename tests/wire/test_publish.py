"""Test PUBLISH in and out: the three QoS, forwarded fields, topic aliases, sizes, reason codes."""

from __future__ import annotations

from tests.harness.packets import (
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Received,
    Subscribe,
)
from tests.harness.properties import P, Props
from tests.harness.scene import NO_MATCH, Actor
from tests.wire.case import ALL, V5, V34, V45, Case, Play, Stage, plays

A, B, C = Actor("a"), Actor("b"), Actor("c")

FORWARDED: Props = (
    (P.PAYLOAD_FORMAT, 1),
    (P.CONTENT_TYPE, "text/plain"),
    (P.RESPONSE_TOPIC, "answers/here"),
    (P.CORRELATION, b"\x00\x01\xff"),
    (P.USER, ("b", "2")),
    (P.USER, ("a", "1")),
    (P.USER, ("b", "2")),
    (P.USER, ("", "")),
)


def aliased(got: Received) -> bool:
    return isinstance(got, Publish) and got.topic == "" and P.TOPIC_ALIAS in dict(got.props)


def qos_grid() -> list[Case]:
    """Publish at every QoS to subscriptions of every QoS: the lower one applies [v5 3.8.4-8]."""
    return [
        Case(f"qos-{sent}-to-{asked}", "[v5 3.8.4-8]", ALL, "plain",
             [B.connects(), B.subscribes("~t", qos=asked), A.connects(), A.publishes("~t", b"m1", sent, rc=0),
              B.receives("~t", b"m1", min(sent, asked)), A.publishes("~t", b"", sent, rc=0),
              B.receives("~t", b"", min(sent, asked)), B.quiet(), A.quiet()])
        for sent in range(3) for asked in range(3)
    ]  # fmt: skip


CASES = [
    *qos_grid(),
    Case("exact-qos0", "[v3.1.1 3.3]", V34, "plain",
         [B.connects(), B.subscribes("exact/0"), A.connects(), A.sends_raw(b"\x30\x0b\x00\x07exact/0hi"),
          B.gets_raw(b"\x30\x0b\x00\x07exact/0hi")]),
    Case("exact-qos0-5", "[v5 3.3]", V5, "plain",
         [B.connects(), B.subscribes("exact/5"), A.connects(), A.sends_raw(b"\x30\x0c\x00\x07exact/5\x00hi"),
          B.gets_raw(b"\x30\x0c\x00\x07exact/5\x00hi")]),
    Case("exact-qos1", "[v5 3.4]", V45, "plain",
         [B.connects(), B.subscribes("~t", qos=1), A.connects(), A.sends(Publish("~t", b"x", 1, 0x1234)),
          A.gets_raw(b"\x40\x02\x12\x34"), B.receives("~t", b"x", 1)]),
    Case("exact-qos2", "[v5 3.5]", V45, "plain",
         [B.connects(), B.subscribes("~t", qos=2), A.connects(), A.sends(Publish("~t", b"x", 2, 0x1234)),
          A.gets_raw(b"\x50\x02\x12\x34"), A.sends_raw(b"\x62\x02\x12\x34"), A.gets_raw(b"\x70\x02\x12\x34"),
          B.receives("~t", b"x", 2)]),
    Case("exact-no-match", "[v5 3.4.2.1]", V5, "plain",
         [A.connects(), A.sends(Publish("~t", b"x", 1, 7)), A.gets_raw(b"\x40\x03\x00\x07\x10"),
          A.sends(Publish("~t", b"x", 2, 8)),
          A.checks(lambda got: isinstance(got, Pubrec) and got.rc in (0, NO_MATCH)), A.sends(Pubrel(8)),
          A.gets_raw(b"\x70\x02\x00\x08")]),
    Case("to-self", "[v5 3.8.3-3]", ALL, "plain",
         [A.connects(), A.subscribes("~t"), A.sends(Publish("~t", b"me", 1, 9)), A.gets_any(Puback(9), Publish("~t", b"me"))]),
    Case("large", "[v5 3.3.3]", ALL, "plain",
         [B.connects(), B.subscribes("~t", qos=1), A.connects(), A.publishes("~t", b"z" * 1_500_000, 1),
          B.receives("~t", b"z" * 1_500_000, 1)]),
    Case("order", "[v5 4.6.0-6]", ALL, "plain",
         [B.connects(), B.subscribes("~t"), A.connects(), A.sends(*(Publish("~t", b"%d" % n) for n in range(200))),
          B.gets(*(Publish("~t", b"%d" % n) for n in range(200))), B.quiet()]),
    Case("retain-bit-off", "[v5 3.3.1-12]", ALL, "plain",
         [B.connects(), B.subscribes("~t", qos=1), A.connects(), A.publishes("~t", b"x", 1, retain=True), B.receives("~t", b"x", 1)]),
    Case("dup-not-forwarded", "[v5 3.3.1-3]", ALL, "plain",
         [B.connects(), B.subscribes("~t", qos=1), A.connects(), A.sends(Publish("~t", b"x", 1, 5, dup=True)),
          A.gets(Puback(5)), B.receives("~t", b"x", 1)]),
    Case("topic-case-and-slashes", "[v5 4.7.3-4]", ALL, "plain",
         [B.connects(), B.subscribes("~/T//x/"), A.connects(), A.publishes("~/t//x/", b"0"), A.publishes("~/T/x/", b"1"),
          A.publishes("~/T//x", b"2"), A.publishes("~/T//x/", b"3"), B.receives("~/T//x/", b"3"), B.quiet()]),
    # -- QoS 1 and 2 on the sender's side
    Case("qos1-dup-again", "[v5 4.3.2-5]", ALL, "plain",
         [B.connects(), B.subscribes("~t", qos=1), A.connects(), A.sends(Publish("~t", b"x", 1, 5)), A.gets(Puback(5)),
          A.sends(Publish("~t", b"x", 1, 5, dup=True)), A.gets(Puback(5)), B.receives("~t", b"x", 1), B.receives("~t", b"x", 1)]),
    Case("qos2-dup-once", "[v5 4.3.3-10]", ALL, "plain",
         [B.connects(), B.subscribes("~t", qos=2), A.connects(), A.sends(Publish("~t", b"x", 2, 5)), A.gets(Pubrec(5)),
          A.sends(Publish("~t", b"x", 2, 5, dup=True)), A.gets(Pubrec(5)), A.sends(Pubrel(5)), A.gets(Pubcomp(5)),
          B.receives("~t", b"x", 2), B.quiet()]),
    Case("qos2-id-free-again", "[v5 4.3.3-4]", ALL, "plain",
         [B.connects(), B.subscribes("~t", qos=2), A.connects(),
          *[s for n in range(3) for s in (A.sends(Publish("~t", b"%d" % n, 2, 5)), A.gets(Pubrec(5)), A.sends(Pubrel(5)),
                                          A.gets(Pubcomp(5)), B.receives("~t", b"%d" % n, 2))], B.quiet()]),
    Case("qos2-interleaved", "[v5 4.3.3]", ALL, "plain",
         [B.connects(), B.subscribes("~t", qos=0), A.connects(), A.sends(Publish("~t", b"x", 2, 5), Publish("~t", b"y", 2, 6)),
          A.gets(Pubrec(5), Pubrec(6)), A.sends(Pubrel(5)), A.gets(Pubcomp(5)), A.sends(Pubrel(6)), A.gets(Pubcomp(6)),
          B.gets(Publish("~t", b"x"), Publish("~t", b"y")), B.quiet()]),
    Case("pubrel-unknown", "[v5 3.7.2.1]", ALL, "plain",
         [A.connects(), A.sends(Pubrel(77)), A.gets_raw(b"\x70\x02\x00\x4d")]),  # 0x92 would be allowed; Mosquitto sends 0x00
    Case("puback-unknown", "[v5 4.3.2]", V34, "plain", [A.connects(), A.sends(Puback(77)), A.quiet()]),
    # -- properties
    Case("properties-forwarded", "[v5 3.3.2-4][v5 3.3.2-15][v5 3.3.2-16][v5 3.3.2-17][v5 3.3.2-18][v5 3.3.2-20]", V5, "plain",
         [B.connects(), B.subscribes("~t", qos=1), A.connects(),
          *[s for q in range(2) for s in (A.publishes("~t", b"x", q, props=FORWARDED), B.receives("~t", b"x", q, props=FORWARDED))]]),
    Case("properties-dropped-for-3.1.1", "[v3.1.1 3.3]", V5, "plain",
         [B.connects(level=4), B.subscribes("~t", qos=1), A.connects(), A.publishes("~t", b"x", 1, props=FORWARDED),
          B.receives("~t", b"x", 1)]),
    Case("expiry-forwarded", "[v5 3.3.2-6]", V5, "plain",
         [B.connects(), B.subscribes("~t"), A.connects(), A.publishes("~t", b"x", props=((P.EXPIRY, 1000),)),
          B.receives("~t", b"x", props=((P.EXPIRY, 1000),))]),
    Case("publisher-subscription-id", "[v5 3.3.4-6]", V5, "plain",
         [A.connects(), A.sends(Publish("~t", props=((P.SUBSCRIPTION_ID, 1),))), A.ends(0x82)], differs="2.0.11 lets it pass; the standard calls it a protocol error"),
    Case("response-topic-wildcard", "[v5 3.3.2-14]", V5, "plain",
         [A.connects(), A.sends(Publish("~t", props=((P.RESPONSE_TOPIC, "a/#"),))), A.ends(0x82, 0x90)], differs="2.0.11 lets it pass; the standard forbids it"),
    Case("format-indicator-2", "[v5 3.3.2.3.2]", V5, "plain",
         [A.connects(), A.sends(Publish("~t", props=((P.PAYLOAD_FORMAT, 2),))), A.ends(0x82)], differs="2.0.11 lets it pass; the standard knows 0 and 1"),
    # -- topic aliases
    Case("alias-in", "[v5 3.3.2-12]", V5, "plain",
         [B.connects(), B.subscribes("~/#"), A.connects(), A.publishes("~/1", b"1", props=((P.TOPIC_ALIAS, 1),)),
          A.publishes("", b"2", 1, props=((P.TOPIC_ALIAS, 1),)), A.publishes("~/other", b"3", props=((P.TOPIC_ALIAS, 10),)),
          A.publishes("", b"4", 2, props=((P.TOPIC_ALIAS, 1),)), A.publishes("", b"5", props=((P.TOPIC_ALIAS, 10),)),
          B.gets(Publish("~/1", b"1"), Publish("~/1", b"2"), Publish("~/other", b"3"), Publish("~/1", b"4"),
                 Publish("~/other", b"5")), B.quiet()]),
    Case("alias-moved", "[v5 3.3.2.3.4]", V5, "plain",
         [B.connects(), B.subscribes("~/#"), A.connects(), A.publishes("~/1", b"1", props=((P.TOPIC_ALIAS, 1),)),
          A.publishes("~/2", b"2", props=((P.TOPIC_ALIAS, 1),)), A.publishes("", b"3", props=((P.TOPIC_ALIAS, 1),)),
          B.gets(Publish("~/1", b"1"), Publish("~/2", b"2"), Publish("~/2", b"3"))]),
    Case("alias-of-this-connection", "[v5 3.3.2-7]", V5, "plain",
         [A.connects(persistent=True), A.publishes("~/1", b"1", props=((P.TOPIC_ALIAS, 1),)), A.leaves(),
          A.connects(persistent=True, session=True), A.sends(Publish("", b"2", props=((P.TOPIC_ALIAS, 1),))), A.ends(0x82)]),
    Case("alias-not-of-others", "[v5 3.3.2.3.4]", V5, "plain",
         [A.connects(), A.publishes("~/1", b"1", props=((P.TOPIC_ALIAS, 1),)), B.connects(),
          B.sends(Publish("", b"2", props=((P.TOPIC_ALIAS, 1),))), B.ends(0x82), A.quiet()]),
    Case("alias-zero", "[v5 3.3.2-8]", V5, "plain", [A.connects(), A.sends(Publish("~t", props=((P.TOPIC_ALIAS, 0),))), A.ends(0x94)], differs="2.0.11 says 0x81; Paho's suite and the code's name want 0x94"),
    Case("alias-over", "[v5 3.3.2-9]", V5, "plain", [A.connects(), A.sends(Publish("~t", props=((P.TOPIC_ALIAS, 11),))), A.ends(0x94)]),
    Case("alias-over-3", "[v5 3.3.2-9]", V5, "alias-3",
         [A.connects(), A.publishes("~t", props=((P.TOPIC_ALIAS, 3),)), A.sends(Publish("~t", props=((P.TOPIC_ALIAS, 4),))), A.ends(0x94)]),
    Case("alias-none-allowed", "[v5 3.1.2-26]", V5, "alias-0",
         [A.connects(), A.sends(Publish("~t", props=((P.TOPIC_ALIAS, 1),))), A.ends(0x94)]),
    Case("alias-unknown", "[v5 3.3.2.3.4]", V5, "plain", [A.connects(), A.sends(Publish("", props=((P.TOPIC_ALIAS, 1),))), A.ends(0x82)]),
    Case("alias-out-allowed", "[v5 3.1.2-26]", V5, "plain",
         [B.connects(props=((P.TOPIC_ALIAS_MAXIMUM, 2),)), B.subscribes("~/#", qos=1), A.connects(),
          *[A.publishes(f"~/{n % 4}", b"%d" % n, 1) for n in range(12)], *[B.receives(f"~/{n % 4}", b"%d" % n, 1) for n in range(12)]]),
    Case("alias-out-used", "[v5 3.3.2.3.4]", V5, "plain",
         [B.connects(props=((P.TOPIC_ALIAS_MAXIMUM, 2),)), B.subscribes("~/#"), A.connects(), A.publishes("~/1", b"1"),
          B.receives("~/1", b"1"), A.publishes("~/1", b"2"), B.checks(aliased)], differs="2.0.11 uses no aliases towards clients"),
    Case("alias-out-forbidden", "[v5 3.1.2-27]", V5, "plain",
         [B.connects(), B.subscribes("~/#"), A.connects(), A.publishes("~/1", b"1"), A.publishes("~/1", b"2"),
          B.gets(Publish("~/1", b"1"), Publish("~/1", b"2"))]),
    Case("alias-not-forwarded", "[v5 3.3.2-7]", V5, "plain",
         [B.connects(), B.subscribes("~/#"), A.connects(), A.publishes("~/1", b"1", props=((P.TOPIC_ALIAS, 3),)), B.gets(Publish("~/1", b"1"))]),
    # -- sizes
    Case("over-the-peers-maximum", "[v5 3.1.2-24]", V5, "plain",
         [B.connects(props=((P.MAXIMUM_PACKET_SIZE, 60),)), B.subscribes("~t", qos=2), C.connects(), C.subscribes("~t"), A.connects(),
          *[s for q in range(3) for s in (A.publishes("~t", b"L" * 60, q), C.receives("~t", b"L" * 60), A.publishes("~t", b"ok", q),
                                          B.receives("~t", b"ok", q), C.receives("~t", b"ok"))], B.quiet()]),
    Case("at-the-peers-maximum", "[v5 3.1.2-24]", V5, "plain",  # 2 + 2 + 10 + 1 + payload: the limit is 40 bytes in all
         [B.connects(props=((P.MAXIMUM_PACKET_SIZE, 40),)), B.subscribes("exact-size"), A.connects(),
          A.publishes("exact-size", b"x" * 26), A.publishes("exact-size", b"y" * 25), B.gets(Publish("exact-size", b"y" * 25)), B.quiet()], differs="2.0.11 forgets the fixed header's first byte when it compares"),
    Case("over-the-peers-maximum-offline", "[v5 3.1.2-25]", V5, "plain",
         [B.connects(persistent=True), B.subscribes("~t", qos=1), B.leaves(), A.connects(), A.publishes("~t", b"L" * 60, 1),
          A.publishes("~t", b"ok", 1), B.connects(persistent=True, session=True, props=((P.MAXIMUM_PACKET_SIZE, 40),)),
          B.receives("~t", b"ok", 1), B.quiet()]),
    # -- refusals
    Case("topic-wildcard", "[v5 3.3.2-2]", ALL, "plain",
         [B.connects(), A.connects(), A.sends(Publish("~/#", b"x")), A.ends(0x90, 0x81, 0x82), B.quiet()]),
    Case("topic-plus", "[v5 3.3.2-2]", ALL, "plain", [A.connects(), A.sends(Publish("~/+/x", b"x", 1, 1)), A.ends(0x90, 0x81, 0x82)]),
    Case("topic-empty", "[v5 4.7.3-1]", ALL, "plain", [A.connects(), A.sends(Publish("", b"x")), A.ends(0x82, 0x81, 0x90)]),
    Case("topic-nul", "[v5 1.5.4-2]", ALL, "plain", [A.connects(), A.sends(Publish("~\0", b"x")), A.ends(0x81)]),
    Case("qos-3", "[v5 3.3.1-4]", ALL, "plain", [A.connects(), A.sends(Publish("~t", b"x", 3, 1)), A.ends(0x81, 0x82)]),
    Case("dup-qos-0", "[v5 3.3.1-2]", ALL, "plain", [A.connects(), A.sends(Publish("~t", b"x", 0, dup=True)), A.ends(0x81, 0x82)], differs="2.0.11 lets it pass; 3.3.1-2 says MUST"),
    Case("id-zero", "[v5 2.2.1-3]", ALL, "plain", [A.connects(), A.sends(Publish("~t", b"x", 1, 0)), A.ends(0x81, 0x82)]),
    Case("max-qos-1", "[v5 3.2.2-11]", ALL, "max-qos-1", [A.connects(), A.publishes("~t", b"x", 1), A.sends(Publish("~t", b"", 2, 9)), A.ends(0x9B)]),
    Case("max-qos-0", "[v5 3.2.2-11]", ALL, "max-qos-0", [A.connects(), A.publishes("~t", b"x"), A.sends(Publish("~t", b"", 1, 9)), A.ends(0x9B)]),
    Case("sys-is-not-yours", "[v5 4.7.2-1]", ALL, "plain",
         [B.connects(), B.subscribes("$SYS/~/#"), A.connects(), A.sends(Publish("$SYS/~/x", b"forged")), A.quiet(), B.quiet()]),
    Case("dollar-topics-are", "[v5 4.7.2-1]", ALL, "plain",
         [B.connects(), B.subscribes("$~/#"), A.connects(), A.publishes("$~/x", b"mine"), B.receives("$~/x", b"mine")]),
    Case("subscribe-and-publish-in-one-write", "[v5 4.6]", ALL, "plain",
         [A.connects(), A.sends(Subscribe(3, (("~t", 0),)), Publish("~t", b"x")), A.checks(lambda got: getattr(got, "mid", 0) == 3),
          A.gets(Publish("~t", b"x"))]),
]  # fmt: skip


@plays(CASES)
def test_publish(play: Play, stage: Stage) -> None:
    stage(play)
