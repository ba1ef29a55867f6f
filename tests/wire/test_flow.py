"""Test flow control both ways, inflight and queue limits."""

from __future__ import annotations

from tests.harness.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from tests.harness.properties import P, Props
from tests.harness.scene import Actor, Step
from tests.wire.case import ALL, V5, V34, V45, Case, Play, Stage, plays

A, B, C = Actor("a"), Actor("b"), Actor("c")
ONE: Props = ((P.RECEIVE_MAXIMUM, 1),)
TWO: Props = ((P.RECEIVE_MAXIMUM, 2),)


def t(n: int, qos: int = 1, mid: str | None = None) -> Publish:
    return Publish("~t", b"%d" % n, qos, mid or f"m{n}")


def burst(*numbers: int, qos: int = 1) -> list[Step]:
    return [A.publishes("~t", b"%d" % n, qos) for n in numbers]


CASES = [
    Case("receive-maximum-1", "[v5 3.3.4-9]", V5, "plain",
         [B.connects(props=ONE), B.subscribes("~t", qos=1), A.connects(), burst(1, 2, 3), B.gets(t(1)), B.quiet(), B.sends(Puback("m1")),
          B.gets(t(2)), B.quiet(), B.sends(Puback("m2")), B.gets(t(3)), B.sends(Puback("m3")), B.quiet()]),
    Case("receive-maximum-2-qos2", "[v5 4.9.0-1]", V5, "plain",
         [B.connects(props=TWO), B.subscribes("~t", qos=2), A.connects(), burst(1, 2, 3, qos=2), B.gets(t(1, 2), t(2, 2)), B.quiet(),
          B.sends(Pubrec("m1")), B.gets(Pubrel("m1")), B.quiet(), B.sends(Pubcomp("m1")), B.gets(t(3, 2)), B.quiet()]),
    Case("receive-maximum-refused-counts", "[v5 4.9]", V5, "plain",
         [B.connects(props=ONE), B.subscribes("~t", qos=2), A.connects(), burst(1, 2, qos=2), B.gets(t(1, 2)), B.quiet(),
          B.sends(Pubrec("m1", 0x97)), B.gets(t(2, 2)), B.quiet()]),
    Case("receive-maximum-not-for-qos0", "[v5 3.3.4-9]", V5, "plain",
         [B.connects(props=ONE), B.subscribes("~t", qos=1), A.connects(), burst(1, 2), A.publishes("~t", b"0"), B.gets(t(1), Publish("~t", b"0")),
          B.quiet(), B.sends(Puback("m1")), B.gets(t(2))]),
    Case("receive-maximum-on-resume", "[v5 4.9]", V5, "plain",
         [B.connects(persistent=True), B.subscribes("~t", qos=1), B.leaves(), A.connects(), burst(1, 2, 3),
          B.connects(persistent=True, session=True, props=TWO), B.gets(t(1), t(2)), B.quiet(), B.sends(Puback("m2")), B.gets(t(3)), B.quiet()]),
    Case("receive-maximum-shrinks-on-resume", "[v5 4.9]", V5, "plain",
         [B.connects(persistent=True), B.subscribes("~t", qos=1), A.connects(), burst(1, 2, 3), B.gets(t(1), t(2), t(3)), B.drops(),
          B.connects(persistent=True, session=True, props=ONE), B.gets(Publish("~t", b"1", 1, "m1", dup=True)), B.quiet(), B.sends(Puback("m1")),
          B.gets(Publish("~t", b"2", 1, "m2", dup=True)), B.quiet()], differs="2.0.11 resends all at once; 4.9 knows no exception for resending"),
    Case("receive-maximum-0", "[v5 3.1.2.11.3]", V5, "plain",
         [A.opens(), A.sends_connect(props=((P.RECEIVE_MAXIMUM, 0),)), A.rejected(0x82, 0x81)], differs="2.0.11 just closes; 5.0 is told 0x82"),
    Case("inflight-2", "[v3.1.1 4.6]", V34, "inflight-2",
         [B.connects(), B.subscribes("~t", qos=1), A.connects(), burst(1, 2, 3, 4), B.gets(t(1), t(2)), B.quiet(), B.sends(Puback("m2")),
          B.gets(t(3)), B.quiet(), B.sends(Puback("m1")), B.gets(t(4)), B.sends(Puback("m3"), Puback("m4")), B.quiet()]),
    Case("inflight-2-is-the-lower", "[v5 4.9]", V5, "inflight-2",
         [B.connects(props=((P.RECEIVE_MAXIMUM, 100),)), B.subscribes("~t", qos=1), A.connects(), burst(1, 2, 3), B.gets(t(1), t(2)), B.quiet(),
          B.sends(Puback("m1")), B.gets(t(3))], differs="2.0.11 lets a client's Receive Maximum override max_inflight_messages; the manual promises the limit"),
    Case("inbound-at-maximum", "[v5 4.9]", ALL, "inflight-2",
         [B.connects(), B.subscribes("~t"), A.connects(), A.sends(Publish("~t", b"", 2, 1), Publish("~t", b"", 2, 2)), A.gets(Pubrec(1), Pubrec(2)), A.quiet(),
          A.sends(Pubrel(1)), A.gets(Pubcomp(1)), A.sends(Publish("~t", b"", 2, 3)), A.gets(Pubrec(3)), A.quiet()]),
    Case("inbound-over-maximum-is-logged", "[v5 3.3.4-8]", V5, "receive-maximum-log",
         [B.connects(), B.subscribes("~t"), A.connects(), A.sends(*(Publish("~t", b"%d" % n, 2, n) for n in (1, 2, 3))),
          A.gets(Pubrec(1), Pubrec(2), Pubrec(3)), A.sends(Pubrel(1), Pubrel(2), Pubrel(3)), A.gets(Pubcomp(1), Pubcomp(2), Pubcomp(3)),
          B.gets(*(Publish("~t", b"%d" % n) for n in (1, 2, 3)))], differs="2.0.11 answers 0x97; since 2.1.1 it is only logged (drop-in notes)"),
    Case("inbound-over-maximum-ends", "[v5 3.3.4-8]", V5, "inflight-2",
         [B.connects(), B.subscribes("~t"), A.connects(), A.sends(*(Publish("~t", b"%d" % n, 2, n) for n in (1, 2, 3))), A.gets(Pubrec(1), Pubrec(2)), A.ends(0x93)], differs="2.1 only logs it (drop-in notes)"),
    Case("inbound-over-maximum-3.1.1", "[v3.1.1 4.6]", V34, "inflight-2",  # 3.x has no such limit: no message is lost
         [B.connects(), B.subscribes("~t"), A.connects(), A.sends(*(Publish("~t", b"%d" % n, 2, n) for n in (1, 2, 3, 4))),
          A.gets(Pubrec(1), Pubrec(2)), A.sends(Pubrel(1), Pubrel(2)), A.gets_any(Pubrec(3), Pubrec(4), Pubcomp(1), Pubcomp(2)),
          A.sends(Pubrel(3), Pubrel(4)), A.gets(Pubcomp(3), Pubcomp(4)), B.gets(*(Publish("~t", b"%d" % n) for n in (1, 2, 3, 4)))], differs="2.0.11 acknowledges and drops them"),
    Case("queue-limit-offline", "[max_queued_messages]", ALL, "queue-3",
         [B.connects(persistent=True), B.subscribes("~t", qos=1), B.leaves(), A.connects(), burst(*range(10)),
          B.connects(persistent=True, session=True), *[B.receives("~t", b"%d" % n, 1) for n in range(3)], B.quiet(),
          burst(10), B.receives("~t", b"10", 1), B.quiet()]),
    Case("queue-limit-online", "[max_queued_messages]", V45, "queue-3",
         [B.connects(), B.subscribes("~t", qos=1), A.connects(), burst(*range(10)), B.gets(t(0), t(1)), B.quiet(), B.sends(Puback("m0"), Puback("m1")),
          B.receives("~t", b"2", 1), B.receives("~t", b"3", 1), B.receives("~t", b"4", 1), B.quiet()]),
    Case("queue-limit-is-per-client", "[max_queued_messages]", V45, "queue-3",
         [B.connects(persistent=True), B.subscribes("~t", qos=1), B.leaves(), C.connects(), C.subscribes("~t", qos=1), A.connects(),
          *[s for n in range(10) for s in (A.publishes("~t", b"%d" % n, 1), C.receives("~t", b"%d" % n, 1))], C.quiet()]),
    Case("queue-bytes", "[max_queued_bytes]", V45, "queue-bytes",
         [B.connects(persistent=True), B.subscribes("~t", qos=1), B.leaves(), A.connects(), *[A.publishes("~t", b"%d" % n * 30, 1) for n in range(9)],
          B.connects(persistent=True, session=True), *[B.receives("~t", b"%d" % n * 30, 1) for n in range(3)]]),
    Case("dropped-says-quota", "[max_queued_messages]", V34, "queue-3",  # a dropped delivery is no error of the publisher
         [B.connects(persistent=True), B.subscribes("~t", qos=1), B.leaves(), A.connects(), burst(*range(6)), A.quiet()]),
]  # fmt: skip


@plays(CASES)
def test_flow(play: Play, stage: Stage) -> None:
    stage(play)
