"""Test SUBSCRIBE and UNSUBSCRIBE: filters, options, shared groups, identifiers, retained messages."""

from __future__ import annotations

from tests.harness.packets import (
    Puback,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from tests.harness.properties import P, Props
from tests.harness.scene import Actor, Step, v3, v5
from tests.wire.case import ALL, V5, V34, V45, Case, Play, Stage, plays

A, B, C, D = Actor("a"), Actor("b"), Actor("c"), Actor("d")
NL, RAP, RH1, RH2 = 0x04, 0x08, 0x10, 0x20  # bits of the options byte [v5 3.8.3.1]


def sub_id(number: int) -> Props:
    return ((P.SUBSCRIPTION_ID, number),)


# filter, matching topics, other topics; all below the prefix of the run
MATCHES: list[tuple[str, list[str], list[str]]] = [
    ("~/a", ["~/a"], ["~/A", "~/a/", "/~/a", "~/a/b", "~"]),
    ("~/+", ["~/a", "~/", "~/ "], ["~", "~/a/b", "~/a/"]),
    ("~/#", ["~", "~/", "~/a", "~/a/b/c", "~//"], ["x~/a"]),
    ("~/+/#", ["~/a", "~/a/b", "~/"], ["~"]),
    ("~/+/c", ["~/b/c", "~//c"], ["~/b/c/d", "~/c"]),
    ("~/a/+/+/d", ["~/a/b/c/d", "~/a///d"], ["~/a/b/d"]),
    ("+/+/~", ["a/b/~", "//~"], ["a/~", "$x/b/~"]),
    ("+/~/#", ["a/~", "a/~/b", "/~"], ["$a/~", "~"]),
    ("$~/+", ["$~/a"], ["~/a", "$~"]),
    ("$~/#", ["$~/a", "$~"], ["~/a"]),
    ("~/a b/ü", ["~/a b/ü"], ["~/a b/u"]),
    ("/~", ["/~"], ["~", "/~/"]),
    ("~/+/+", ["~//", "~/a/"], ["~/"]),
    ("~" + "/l" * 150, ["~" + "/l" * 150], ["~" + "/l" * 149]),
]


def matches() -> list[Case]:
    rows = []
    for n, (pattern, inside, outside) in enumerate(MATCHES):
        steps: list[Step] = [A.connects(), B.connects(), B.subscribes(pattern)]
        steps += [A.publishes(topic, b"out") for topic in outside]
        for topic in inside:
            steps += [A.publishes(topic, b"in"), B.receives(topic, b"in")]
        rows.append(Case(f"match-{n}", "[v5 4.7.1][v5 4.7.2-1][v5 4.7.3-4]", V45, "plain", [*steps, B.quiet()]))
    return rows


def bad_filter(name: str, pattern: str) -> Case:
    return Case(f"bad-{name}", "[v5 4.7.1-1][v5 4.7.1-2]", ALL, "plain",
                [A.connects(), B.connects(), A.sends(Subscribe(5, ((pattern, 0),))), A.ends_or_suback(5, 0x8F, 0x81, 0x82), B.quiet()])  # fmt: skip


CASES = [
    *matches(),
    *[bad_filter(*row) for row in (("hash-not-last", "~/#/a"), ("hash-in-level", "~/a#"), ("plus-in-level", "~/a+/b"),
                                   ("plus-after", "~/+a"), ("two-hashes", "~/##"), ("nul", "~/\0"), ("empty", ""))],
    Case("suback-codes", "[v5 3.8.4-6]", ALL, "plain",
         [A.connects(), A.sends(Subscribe(0x0102, (("~a", 0), ("~b", 1), ("~c", 2)))), v3(A.gets_raw(b"\x90\x05\x01\x02\x00\x01\x02")),
          v5(A.gets_raw(b"\x90\x06\x01\x02\x00\x00\x01\x02"))]),
    Case("max-qos-1-grants", "[v5 3.2.2-9]", ALL, "max-qos-1",
         [A.connects(), A.subscribes("~a", qos=2, codes=(1,)), A.subscribes("~b", qos=1), A.subscribes("~c")]),
    Case("max-qos-0-grants", "[v5 3.2.2-9]", ALL, "max-qos-0", [A.connects(), A.subscribes("~a", "~b", qos=2, codes=(0, 0))]),
    Case("qos-3", "[v5 3.8.3-5]", ALL, "plain", [A.connects(), A.sends(Subscribe(5, (("~a", 3),))), A.ends(0x81, 0x82)]),
    Case("reserved-bits", "[v5 3.8.3-5]", ALL, "plain", [A.connects(), A.sends(Subscribe(5, (("~a", 0xC0),))), A.ends(0x81, 0x82)]),
    Case("options-in-3.1.1", "[v3.1.1 3.8.3-4]", (4,), "plain", [A.connects(), A.sends(Subscribe(5, (("~a", 0x04),))), A.closed()]),
    Case("no-filter", "[v5 3.8.3-2]", V45, "plain", [A.connects(), A.sends(Subscribe(5, ())), A.ends(0x81, 0x82)]),
    Case("id-zero", "[v5 2.2.1-3]", ALL, "plain", [A.connects(), A.sends(Subscribe(0, (("~a", 0),))), A.ends(0x81, 0x82)]),
    Case("replaced", "[v5 3.8.4-3]", ALL, "plain",
         [B.connects(), B.subscribes("~t", qos=2), B.subscribes("~t", qos=0), A.connects(), A.publishes("~t", b"x", 2),
          B.gets(Publish("~t", b"x")), B.quiet()]),
    Case("upgrade-outgoing", "[upgrade_outgoing_qos]", V45, "upgrade-qos",
         [B.connects(), B.subscribes("~t", qos=2), A.connects(), A.publishes("~t", b"x"), B.receives("~t", b"x", 2)]),
    # -- options of 5.0
    Case("no-local", "[v5 3.8.3-3]", V5, "plain",
         [A.connects(), A.subscribes(("~t", 1 | NL)), B.connects(), A.publishes("~t", b"own", 1), B.publishes("~t", b"other", 1, rc=0),
          A.receives("~t", b"other", 1), A.quiet()]),
    Case("no-local-is-per-subscription", "[v5 3.8.3-3]", V5, "plain",
         [A.connects(), A.subscribes(("~/a", NL), "~/+"), A.sends(Publish("~/a", b"own", 1, 3)), A.gets_any(Puback(3), Publish("~/a", b"own")), A.quiet()]),
    Case("no-local-shared", "[v5 3.8.3-4]", V5, "plain",
         [A.connects(), A.sends(Subscribe(5, (("$share/g/~t", NL),))), A.ends(0x82)], differs="2.0.11 lets it pass; 3.8.3-4 calls it a protocol error"),
    Case("retain-as-published", "[v5 3.3.1-13]", V5, "plain",
         [B.connects(), B.subscribes(("~t", RAP)), C.connects(), C.subscribes("~t"), A.connects(), A.publishes("~t", b"r", retain=True),
          A.publishes("~t", b"n"), B.receives("~t", b"r", retain=True), B.receives("~t", b"n"), C.receives("~t", b"r"), C.receives("~t", b"n"),
          A.publishes("~t", b"", retain=True)]),
    Case("retain-handling-0", "[v5 3.3.1-9]", V5, "plain",
         [A.connects(), A.publishes("~t", b"r", 1, retain=True), B.connects(), B.subscribes("~t"), B.receives("~t", b"r", retain=True),
          B.subscribes("~t"), B.receives("~t", b"r", retain=True), B.quiet(), A.publishes("~t", retain=True)]),
    Case("retain-handling-1", "[v5 3.3.1-10]", V5, "plain",
         [A.connects(), A.publishes("~t", b"r", 1, retain=True), B.connects(), B.subscribes(("~t", RH1)), B.receives("~t", b"r", retain=True),
          B.subscribes(("~t", RH1)), B.quiet(), B.subscribes(("~t", RH1 | 1), codes=(1,)), B.quiet(), B.unsubscribes("~t"), B.subscribes(("~t", RH1)),
          B.receives("~t", b"r", retain=True), B.quiet(), A.publishes("~t", retain=True)]),
    Case("retain-handling-2", "[v5 3.3.1-11]", V5, "plain",
         [A.connects(), A.publishes("~t", b"r", 1, retain=True), B.connects(), B.subscribes(("~t", RH2)), B.quiet(), A.publishes("~t", b"s", retain=True),
          B.receives("~t", b"s"), B.quiet(), A.publishes("~t", retain=True)]),
    Case("retain-handling-3", "[v5 3.8.3-4]", V5, "plain", [A.connects(), A.sends(Subscribe(5, (("~t", 0x30),))), A.ends(0x81, 0x82)]),
    # -- subscription identifiers
    Case("identifier", "[v5 3.3.4-3]", V5, "plain",
         [B.connects(), B.subscribes("~t", props=sub_id(1)), A.connects(), A.publishes("~t", b"x"), B.receives("~t", b"x", props=sub_id(1))]),
    Case("identifier-largest", "[v5 3.8.2.1.2]", V5, "plain",
         [B.connects(), B.subscribes("~t", props=sub_id(268_435_455)), A.connects(), A.publishes("~t", b"x"),
          B.receives("~t", b"x", props=sub_id(268_435_455))]),
    Case("identifier-with-properties", "[v5 3.3.4-3]", V5, "plain",
         [B.connects(), B.subscribes("~t", qos=1, props=sub_id(300)), A.connects(), A.publishes("~t", b"x", 1, props=((P.USER, ("k", "v")),)),
          B.receives("~t", b"x", 1, props=((P.USER, ("k", "v")), *sub_id(300)))]),
    Case("identifier-replaced", "[v5 3.8.4-3]", V5, "plain",
         [B.connects(), B.subscribes("~t", props=sub_id(1)), B.subscribes("~t", props=sub_id(2)), B.subscribes("~u", props=sub_id(3)), B.subscribes("~u"),
          A.connects(), A.publishes("~t", b"x"), B.receives("~t", b"x", props=sub_id(2)), A.publishes("~u", b"x"), B.receives("~u", b"x")]),
    Case("identifier-of-retained", "[v5 3.3.4-3]", V5, "plain",
         [A.connects(), A.publishes("~t", b"r", retain=True), B.connects(), B.subscribes("~t", props=sub_id(7)),
          B.receives("~t", b"r", retain=True, props=sub_id(7)), A.publishes("~t", retain=True)]),
    Case("identifier-kept-in-session", "[v5 4.1]", V5, "plain",
         [B.connects(persistent=True), B.subscribes("~t", qos=1, props=sub_id(9)), B.leaves(), A.connects(), A.publishes("~t", b"x", 1),
          B.connects(persistent=True, session=True), B.receives("~t", b"x", 1, props=sub_id(9))]),
    Case("identifier-0", "[v5 3.8.2.1.2]", V5, "plain", [A.connects(), A.sends(Subscribe(5, (("~t", 0),), sub_id(0))), A.ends(0x82)], differs="2.0.11 says 0x81; the standard calls it a protocol error"),
    Case("identifier-twice", "[v5 3.8.2.1.2]", V5, "plain",
         [A.connects(), A.sends(Subscribe(5, (("~t", 0),), sub_id(1) + sub_id(2))), A.ends(0x82)], differs="2.0.11 just closes; the standard calls it a protocol error"),
    # -- overlapping subscriptions
    Case("overlap-each", "[v5 3.3.4-2]", V5, "plain",  # allow_duplicate_messages true: one copy for each
         [B.connects(), B.subscribes("~/#", qos=1, props=sub_id(1)), B.subscribes("~/+", qos=0, props=sub_id(2)), A.connects(),
          A.publishes("~/a", b"x", 1), B.gets_any(Publish("~/a", b"x", 1, "m", props=sub_id(1)), Publish("~/a", b"x", props=sub_id(2))), B.quiet()]),
    Case("overlap-each-3x", "[v3.1.1 3.3.5]", V34, "plain",
         [B.connects(), B.subscribes("~/#", qos=1), B.subscribes("~/a", qos=0), A.connects(),
          A.publishes("~/a", b"x", 1), B.gets_any(Publish("~/a", b"x", 1, "m"), Publish("~/a", b"x")), B.quiet()], differs="allow_duplicate_messages is true by default only since 2.1"),
    Case("overlap-merged", "[v5 3.3.4-4]", V5, "no-duplicates",
         [B.connects(), B.subscribes("~/#", qos=0, props=sub_id(1)), B.subscribes("~/+", qos=2, props=sub_id(2)), B.subscribes("~/a", qos=1), A.connects(),
          A.publishes("~/a", b"x", 2), B.receives_merged("~/a", b"x", 2, {1, 2}), B.quiet()], differs="2.0.11 sends the first copy with one identifier; the issue wants the merged one"),
    Case("overlap-merged-3x", "[v3.1.1 3.3.5]", V34, "no-duplicates",
         [B.connects(), B.subscribes("~/a", qos=0), B.subscribes("~/#", qos=1), A.connects(), A.publishes("~/a", b"x", 2),
          B.receives("~/a", b"x", 1), B.quiet()], differs="2.0.11 sends the first copy, not the one of the highest QoS"),
    # -- shared
    Case("shared-one-of-two", "[v5 4.8.2]", ALL, "plain",
         [B.connects(), B.subscribes("$share/g/~t", qos=1), C.connects(), C.subscribes("$share/g/~t", qos=1), A.connects(),
          *[A.publishes("~t", b"%d" % n, 1, rc=0) for n in range(10)], B.shares(C, [b"%d" % n for n in range(10)], fair=True)]),
    Case("shared-and-plain", "[v5 4.8.2]", ALL, "plain",
         [B.connects(), B.subscribes("$share/g/~t"), C.connects(), C.subscribes("~t"), A.connects(), A.publishes("~t", b"x"),
          B.receives("~t", b"x"), C.receives("~t", b"x"), B.quiet(), C.quiet()]),
    Case("shared-two-groups", "[v5 4.8.2]", ALL, "plain",
         [B.connects(), B.subscribes("$share/g/~t"), C.connects(), C.subscribes("$share/h/~t"), A.connects(), A.publishes("~t", b"x"),
          B.receives("~t", b"x"), C.receives("~t", b"x"), B.quiet(), C.quiet()]),
    Case("shared-wildcards", "[v5 4.8.2-2]", ALL, "plain",
         [B.connects(), B.subscribes("$share/g/~/+/#"), C.connects(), C.subscribes("$share/g/~/+/#"), A.connects(),
          *[A.publishes("~/a/b", b"%d" % n) for n in range(4)], B.shares(C, [b"%d" % n for n in range(4)])]),
    Case("shared-left-by-one", "[v5 4.8.2]", ALL, "plain",
         [B.connects(), B.subscribes("$share/g/~t"), C.connects(), C.subscribes("$share/g/~t"), C.leaves(), A.connects(),
          A.publishes("~t", b"1"), A.publishes("~t", b"2"), B.receives("~t", b"1"), B.receives("~t", b"2"), B.quiet()]),
    Case("shared-unsubscribed", "[v5 3.10.4-1]", ALL, "plain",
         [B.connects(), B.subscribes("$share/g/~t"), C.connects(), C.subscribes("$share/g/~t"), C.unsubscribes("$share/g/~t"), A.connects(),
          A.publishes("~t", b"1"), A.publishes("~t", b"2"), B.receives("~t", b"1"), B.receives("~t", b"2"), C.quiet()]),
    Case("shared-no-retained", "[v5 4.8.2]", ALL, "plain",
         [A.connects(), A.publishes("~t", b"r", retain=True), B.connects(), B.subscribes("$share/g/~t"), B.quiet(), A.publishes("~t", retain=True)], differs="2.0.11 sends them; 4.8.2 says no retained messages at the first subscription"),
    Case("shared-qos", "[v5 4.8.2-3]", ALL, "plain",
         [B.connects(), B.subscribes("$share/g/~t", qos=1), A.connects(), A.publishes("~t", b"x", 2, rc=0), B.receives("~t", b"x", 1)]),
    Case("shared-of-a-session-away", "[v5 4.8.2]", ALL, "plain",  # the connected member gets them
         [B.connects(persistent=True), B.subscribes("$share/g/~t", qos=1), C.connects(), C.subscribes("$share/g/~t", qos=1), B.leaves(), A.connects(),
          *[s for n in range(4) for s in (A.publishes("~t", b"%d" % n, 1), C.receives("~t", b"%d" % n, 1))], C.quiet()],
         differs="2.0.11 queues half of them for the session that is away",
         one_process="the other workers learn a moment later that the member is away: tests/workers/test_links.py"),
    Case("shared-alone-and-away", "[v5 4.8.2]", ALL, "plain",
         [B.connects(persistent=True), B.subscribes("$share/g/~t", qos=1), B.leaves(), A.connects(), A.publishes("~t", b"x", 1, rc=0),
          B.connects(persistent=True, session=True), B.receives("~t", b"x", 1), B.quiet()]),
    Case("shared-identifier", "[v5 3.3.4-3]", V5, "plain",
         [B.connects(), B.subscribes("$share/g/~t", props=sub_id(5)), A.connects(), A.publishes("~t", b"x"), B.receives("~t", b"x", props=sub_id(5))]),
    *[Case(f"shared-bad-{name}", "[v5 4.8.2-1][v5 4.8.2-2]", V45, "plain",
           [A.connects(), A.sends(Subscribe(5, ((pattern, 0),))), A.ends_or_suback(5, 0x8F, 0x81, 0x82)], differs="2.0.11 takes some of them for plain filters")
      for name, pattern in (("no-filter", "$share/g"), ("empty-filter", "$share/g/"), ("empty-name", "$share//~t"), ("wild-name", "$share/+/~t"),
                            ("hash-name", "$share/#/~t"))],
    # -- unsubscribe
    Case("unsubscribe", "[v5 3.10.4-1]", ALL, "plain",
         [B.connects(), B.subscribes("~/a", "~/+"), B.unsubscribes("~/a", "~/+"), A.connects(), A.publishes("~/a", b"x"), B.quiet()]),
    Case("unsubscribe-only-the-same", "[v5 3.10.4-1]", ALL, "plain",
         [B.connects(), B.subscribes("~/+"), B.unsubscribes("~/a", "~/#", "~", codes=(0x11, 0x11, 0x11)), A.connects(), A.publishes("~/a", b"x"),
          B.receives("~/a", b"x")]),
    Case("unsubscribe-codes", "[v5 3.11.3]", V5, "plain",
         [A.connects(), A.subscribes("~a"), A.sends(Unsubscribe(9, ("~a", "~b", "~a"))), A.gets(Unsuback(9, (0, 0x11, 0x11)))]),
    Case("unsuback-exact", "[v3.1.1 3.11]", V34, "plain", [A.connects(), A.sends(Unsubscribe(0x0304, ("~x", "~y"))), A.gets_raw(b"\xb0\x02\x03\x04")]),
    Case("unsubscribe-nothing", "[v5 3.10.3-2]", V45, "plain", [A.connects(), A.sends(Unsubscribe(9, ())), A.ends(0x81, 0x82)]),
    Case("unsubscribe-bad-filter", "[v5 4.7.1-1]", ALL, "plain",
         [A.connects(), A.sends(Unsubscribe(9, ("~/#/a",))), A.ends_or_unsuback(9, 0x8F, 0x81, 0x82)]),
    Case("unsubscribe-id-zero", "[v5 2.2.1-3]", ALL, "plain", [A.connects(), A.sends(Unsubscribe(0, ("~a",))), A.ends(0x81, 0x82)]),
    Case("subscription-in-the-session", "[v5 4.1]", ALL, "plain",
         [B.connects(persistent=True), B.subscribes("~t", qos=1), B.leaves(), B.connects(persistent=True, session=True), A.connects(),
          A.publishes("~t", b"x", 1), B.receives("~t", b"x", 1)]),
    Case("several-in-one", "[v5 3.8.4-5]", ALL, "plain",
         [B.connects(), B.sends(Subscribe(7, tuple((f"~/{n}", n % 3) for n in range(500)))), B.gets(Suback(7, tuple(n % 3 for n in range(500)))),
          A.connects(), A.publishes("~/499", b"x", 2), B.receives("~/499", b"x", 1)]),
]  # fmt: skip


@plays(CASES)
def test_subscribe(play: Play, stage: Stage) -> None:
    stage(play)
