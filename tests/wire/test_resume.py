"""Test QoS 1 and 2 over a broken connection: resumed at each stage, in both directions, with the same packet ids and
order."""

from __future__ import annotations

from tests.harness.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from tests.harness.properties import P
from tests.harness.scene import Actor, Step, v3, v5
from tests.wire.case import ALL, V5, Case, Play, Stage, plays

A, B, C = Actor("a"), Actor("b"), Actor("c")


def again(actor: Actor) -> Step:
    return actor.connects(persistent=True, session=True)


def unacknowledged(qos: int) -> list[Step]:
    """Give B a session and a subscription; A publishes one message of this QoS, which B reads and does not acknowledge."""
    return [B.connects(persistent=True), B.subscribes("~t", qos=qos), A.connects(), A.publishes("~t", b"x", qos),
            B.gets(Publish("~t", b"x", qos, "m"))]  # fmt: skip


X1 = Publish("~t", b"x", 1, "m", dup=True)
X2 = Publish("~t", b"x", 2, "m", dup=True)

CASES = [
    # -- the broker as sender
    Case("out-qos1-unanswered", "[v5 4.4.0-1]", ALL, "plain",
         [unacknowledged(1), B.drops(), again(B), B.gets(X1), B.drops(), again(B), B.gets(X1), B.sends(Puback("m")), B.quiet(),
          B.leaves(), again(B), B.quiet()]),
    Case("out-qos1-answered", "[v5 4.4.0-2]", ALL, "plain",
         [unacknowledged(1), B.sends(Puback("m")), B.quiet(), B.drops(), again(B), B.quiet()]),
    Case("out-qos1-answered-and-gone", "[v5 4.4.0-2]", ALL, "plain",
         [unacknowledged(1), B.sends(Puback("m")), B.leaves(), again(B), B.quiet()]),
    Case("out-qos1-not-before-reconnect", "[v5 4.4.0-1]", ALL, "plain", [unacknowledged(1), B.quiet(), B.silent(1.2), B.quiet()], timed=True),
    Case("out-qos2-unanswered", "[v5 4.4.0-1]", ALL, "plain",
         [unacknowledged(2), B.drops(), again(B), B.gets(X2), B.sends(Pubrec("m")), B.gets(Pubrel("m")), B.sends(Pubcomp("m")), B.quiet(),
          B.leaves(), again(B), B.quiet()]),
    Case("out-qos2-received", "[v5 4.4.0-1]", ALL, "plain",
         [unacknowledged(2), B.sends(Pubrec("m")), B.gets(Pubrel("m")), B.drops(), again(B), B.gets(Pubrel("m")), B.sends(Pubcomp("m")),
          B.quiet(), B.leaves(), again(B), B.quiet()]),
    Case("out-qos2-received-and-gone", "[v5 4.4.0-1]", ALL, "plain",
         [unacknowledged(2), B.sends(Pubrec("m")), B.leaves_unread(), again(B), B.gets(Pubrel("m")), B.sends(Pubcomp("m")), B.quiet()]),
    Case("out-qos2-pubrec-twice", "[v5 4.3.3]", ALL, "plain",
         [unacknowledged(2), B.sends(Pubrec("m")), B.gets(Pubrel("m")), B.sends(Pubrec("m")), B.gets(Pubrel("m")), B.sends(Pubcomp("m")), B.quiet()]),
    Case("out-qos2-complete", "[v5 4.4.0-2]", ALL, "plain",
         [unacknowledged(2), B.sends(Pubrec("m")), B.gets(Pubrel("m")), B.sends(Pubcomp("m")), B.quiet(), B.drops(), again(B), B.quiet()]),
    Case("out-order", "[v5 4.6.0-1]", ALL, "inflight-2",
         [B.connects(persistent=True), B.subscribes("~t", qos=2), A.connects(), A.publishes("~t", b"1", 2), A.publishes("~t", b"2", 1),
          A.publishes("~t", b"3", 1), A.publishes("~t", b"4", 2), B.gets(Publish("~t", b"1", 2, "m1"), Publish("~t", b"2", 1, "m2")),
          B.quiet(), B.sends(Pubrec("m1")), B.gets(Pubrel("m1")), B.drops(), A.publishes("~t", b"5", 1), again(B),
          B.gets(Pubrel("m1"), Publish("~t", b"2", 1, "m2", dup=True)), B.quiet(), B.sends(Pubcomp("m1")),
          B.gets(Publish("~t", b"3", 1, "m3")), B.sends(Puback("m2")), B.gets(Publish("~t", b"4", 2, "m4")), B.sends(Puback("m3")),
          B.gets(Publish("~t", b"5", 1, "m5")), B.quiet()]),
    Case("out-offline-order", "[v5 4.6.0-6]", ALL, "plain",
         [B.connects(persistent=True), B.subscribes("~t", qos=2), B.leaves(), A.connects(),
          *[A.publishes("~t", b"%d" % n, 1 + n % 2) for n in range(16)], again(B),
          B.gets(*(Publish("~t", b"%d" % n, 1 + n % 2, f"m{n}") for n in range(16))), B.quiet()]),
    Case("out-offline-not-dup", "[v5 3.3.1-1]", ALL, "plain",
         [B.connects(persistent=True), B.subscribes("~t", qos=1), B.leaves(), A.connects(), A.publishes("~t", b"x", 1), again(B),
          B.gets(Publish("~t", b"x", 1, "m"))]),
    Case("out-offline-qos0-lost", "[v5 4.1]", ALL, "plain",
         [B.connects(persistent=True), B.subscribes("~t", qos=1), B.leaves(), A.connects(), A.publishes("~t", b"x"), again(B), B.quiet()]),
    Case("out-offline-qos0-kept", "[v5 4.1]", ALL, "queue-qos0",
         [B.connects(persistent=True), B.subscribes("~t", qos=1), B.leaves(), A.connects(), A.publishes("~t", b"x"), again(B),
          B.receives("~t", b"x"), B.quiet()]),
    Case("out-subscription-unanswered-after-unsubscribe", "[v5 3.10.4-4]", ALL, "plain",
         [unacknowledged(2), B.unsubscribes("~t"), A.publishes("~t", b"y", 2), B.drops(), again(B), B.gets(X2), B.sends(Pubrec("m")),
          B.gets(Pubrel("m")), B.sends(Pubcomp("m")), B.quiet()]),
    Case("out-qos2-refused", "[v5 4.3.3]", V5, "plain",
         [unacknowledged(2), B.sends(Pubrec("m", 0x80)), B.quiet(), B.drops(), again(B), B.quiet()]),
    Case("out-qos1-refused", "[v5 4.3.2]", V5, "plain",
         [unacknowledged(1), B.sends(Puback("m", 0x80)), B.quiet(), B.drops(), again(B), B.quiet()]),
    Case("out-clean-start-forgets", "[v5 3.1.2-4]", ALL, "plain", [unacknowledged(2), B.drops(), B.connects(), B.quiet()]),
    Case("out-takeover-resumes", "[v5 4.4.0-1]", ALL, "plain",
         [B.connects("~s", persistent=True), B.subscribes("~t", qos=1), A.connects(), A.publishes("~t", b"x", 1),
          B.gets(Publish("~t", b"x", 1, "m")), C.connects("~s", persistent=True, session=True), C.gets(X1), C.sends(Puback("m")), C.quiet()]),
    Case("out-by-another-version", "[v5 4.1]", V5, "plain",  # a 5.0 session resumed by a 3.1.1 client
         [B.connects(persistent=True), B.subscribes("~t", qos=1), B.leaves(), A.connects(),
          A.publishes("~t", b"x", 1, props=((P.USER, ("a", "1")),)), B.connects(clean=False, level=4, session=True), B.receives("~t", b"x", 1)]),
    # -- the broker as receiver
    Case("in-qos1-sent-again", "[v5 4.4.0-1]", ALL, "plain",
         [B.connects(), B.subscribes("~t", qos=1), A.connects(persistent=True), A.sends(Publish("~t", b"x", 1, 7)), A.gets(Puback(7)),
          A.drops(), again(A), A.sends(Publish("~t", b"x", 1, 7, dup=True)), A.gets(Puback(7)), B.receives("~t", b"x", 1),
          B.receives("~t", b"x", 1), B.quiet()]),
    Case("in-qos2-publish-sent-again", "[v5 4.3.3-10]", ALL, "plain",
         [B.connects(), B.subscribes("~t", qos=2), A.connects(persistent=True), A.sends(Publish("~t", b"x", 2, 7)), A.gets(Pubrec(7)),
          A.drops(), again(A), A.sends(Publish("~t", b"x", 2, 7, dup=True)), A.gets(Pubrec(7)), A.sends(Pubrel(7)), A.gets(Pubcomp(7)),
          B.receives("~t", b"x", 2), B.quiet()]),
    Case("in-qos2-pubrel-after", "[v5 4.3.3-11]", ALL, "plain",
         [B.connects(), B.subscribes("~t", qos=2), A.connects(persistent=True), A.sends(Publish("~t", b"x", 2, 7)), A.gets(Pubrec(7)),
          A.drops(), again(A), A.sends(Pubrel(7)), A.gets(Pubcomp(7)), B.receives("~t", b"x", 2), B.quiet()]),
    Case("in-qos2-pubrel-again", "[v5 4.3.3-11]", ALL, "plain",
         [B.connects(), B.subscribes("~t", qos=2), A.connects(persistent=True), A.sends(Publish("~t", b"x", 2, 7)), A.gets(Pubrec(7)),
          A.sends(Pubrel(7)), A.gets(Pubcomp(7)), A.drops(), again(A), A.sends(Pubrel(7)),
          v3(A.gets(Pubcomp(7))), v5(A.checks(lambda got: isinstance(got, Pubcomp) and got.mid == 7 and got.rc in (0, 0x92))),
          B.receives("~t", b"x", 2), B.quiet()]),
    Case("in-qos2-session-lost", "[v5 4.3.3]", ALL, "plain",  # the new session does not know the id: the message is new
         [B.connects(), B.subscribes("~t", qos=0), A.connects(), A.publishes("~t", b"1", 2), A.sends(Publish("~t", b"2", 2, 7)),
          A.gets(Pubrec(7)), A.drops(), A.connects(), A.sends(Publish("~t", b"3", 2, 7)), A.gets(Pubrec(7)), A.sends(Pubrel(7)),
          A.gets(Pubcomp(7)), B.gets(Publish("~t", b"1")), B.gets_until(Publish("~t", b"3"), (Publish("~t", b"2"),)), B.quiet()]),
    Case("in-qos2-ids-of-both-sides", "[v5 2.2.1-5]", ALL, "plain",  # the same number in both directions is no clash
         [A.connects(), A.subscribes("~t", qos=2), A.sends(Publish("~t", b"x", 2, 1), Pubrel(1)),
          A.gets_any(Pubrec(1), Pubcomp(1), Publish("~t", b"x", 2, 1)), A.sends(Pubrec(1)), A.gets(Pubrel(1)), A.sends(Pubcomp(1)), A.quiet()]),
]  # fmt: skip


@plays(CASES)
def test_resume(play: Play, stage: Stage) -> None:
    stage(play)
