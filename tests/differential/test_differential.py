"""Play some random sessions on mosq and on Debian's Mosquitto; show that a difference is found, made shorter and reported."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import Any

import pytest

from tests.differential import rules, shadow
from tests.differential.__main__ import DEBIANS, main
from tests.differential.asked import read_asked
from tests.differential.heard import Item, Names, named, ordered
from tests.differential.pair import configs_of, steps_of
from tests.differential.rules import RULES, Difference, rule_of
from tests.differential.shadow import DELAYED_WILL, ODD_DISCONNECT, OTHER_USER, TAKEN_WILL, UNRELEASED_3, Heard, Limits, Shadow, filters_before_a_fault, is_filter
from tests.differential.side import Side, acknowledged
from tests.differential.steps import PREFIX, with_prefix
from tests.fuzz.sessions.maker import Step
from tests.harness.broker import ROOT, command
from tests.harness.packets import Connack, Connect, Disconnect, Puback, Publish, Pubrec, Pubrel, Subscribe, Unsuback, Unsubscribe, Will, frame
from tests.harness.properties import P

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("config", configs_of("2.0"))
def test_random_sessions_have_no_unexplained_difference(config: str, tmp_path) -> None:
    arguments = ["--seed", "1", "--sessions", "10", "--seconds", "1000", "--config", config, "--dir", str(tmp_path)]
    assert main(arguments) == 0, "\n".join(path.read_text() for path in tmp_path.glob("*.txt"))


def test_a_difference_is_found_made_shorter_and_kept(tmp_path, capsys) -> None:
    """mosq itself takes the place of Mosquitto; the other side does not allow retained messages."""
    one = f"{shutil.which('env')} {' '.join(command())}"
    liar = tmp_path / "mosquitto"
    liar.write_text(f"#!/bin/sh\n[ \"$1\" = -h ] && echo 'mosquitto version 2.1.0' && exit\necho 'max_qos 1' >> \"$2\"\nexec {one} \"$@\"\n")
    liar.chmod(0o755)
    assert main(["--seed", "1", "--sessions", "12", "--seconds", "1000", "--config", "plain", "--mosquitto", str(liar),
                 "--broker", one, "--dir", str(tmp_path / "found")]) == 1
    assert "Connack 0x00, other props" in capsys.readouterr().out
    [found, *_] = sorted((tmp_path / "found").glob("*.json"))
    assert [step[0] for step in json.loads(found.read_text())["steps"]] == ["open"]
    text = found.with_suffix(".txt").read_text()
    assert "<- mosq " in text and "<- Mosquitto " in text and "-> CONNECT" in text
    assert main(["--play", str(found), "--mosquitto", str(liar), "--broker", one]) == 1
    assert main(["--play", str(found), "--mosquitto", DEBIANS]) == 0


def test_each_rule_names_its_row_in_the_documentation() -> None:
    text = (ROOT / "docs/differences.md").read_text()
    for row in (rules.TAKE_OVER, shadow.RETAINED, *(rule.row for rule in RULES)):
        assert f"| {row} |" in text, row


def test_a_seed_gives_the_same_steps() -> None:
    assert steps_of(7, "plain") == steps_of(7, "plain") != steps_of(8, "plain")


def test_a_play_has_its_own_prefix() -> None:
    packet = Publish(PREFIX + "a").encode(4).hex()
    step = with_prefix(("open", 1, 4, PREFIX + "a", packet), 12)
    assert step == ("open", 1, 4, "s0000012/a", Publish("s0000012/a").encode(4).hex())


def test_what_a_broker_may_choose_is_not_compared() -> None:
    ours = [Publish("a", b"1", 1, 7), Publish("a", b"1", 0), Publish("b", b"2", 1, 8, props=((P.TOPIC_ALIAS, 1), (P.EXPIRY, 49)))]
    theirs = [Publish("a", b"1", 0), Publish("a", b"1", 1, 1), Publish("b", b"2", 1, 2, props=((P.EXPIRY, 50),))]
    sides = [[one.key for one in named(ordered([(packet, b"") for packet in side], Names()), Names())] for side in (ours, theirs)]
    assert sides[0] == sides[1]
    swapped = named(ordered([(packet, b"") for packet in (theirs[2], theirs[0], theirs[1])], Names()), Names())
    assert [one.key for one in swapped] != sides[1]


def test_only_a_client_with_an_id_continues_the_names_of_packet_ids() -> None:
    side = Side(command(), "listener {port} 127.0.0.1\nallow_anonymous true\n", {})
    side.start()
    for client_id, same in (("a", True), ("", False)):
        for _ in range(2):
            side.play(opens(1, 5, Connect(client_id)))
        former, now = side.clients[max(side.clients)], side.clients[1]
        assert former is not now and (former.names is now.names) == same
    side.close()


def test_a_message_is_acknowledged_as_the_step_asks() -> None:
    assert acknowledged(Publish("a", b"", 1, 3), "a", 5) == Puback(3).encode(5)
    assert acknowledged(Publish("a", b"", 2, 3), "e", 5) == Pubrec(3, 0x80).encode(5)
    assert acknowledged(Pubrec(3), "d", 4) == Pubrel(3).encode(4) * 2


def played(peer: str, *steps: Step, ours: Heard, theirs: Heard, limits: Limits | None = None) -> Difference:
    """Return the difference in the last of the steps; nothing differs in those before, whose CONNECTs are accepted."""
    state, rows = Shadow(peer, limits or Limits()), []
    for step in steps:
        last = step is steps[-1]
        answer = {n: named([(Connack(), b"")], Names()) for n in [step[1]] if step[0] == "open"}
        rows = state.begin(step)
        rows = state.end(step, ours if last else answer, theirs if last else answer, []) + rows
    return Difference(peer, "plain", list(steps), ours, theirs, steps[-1], state, tuple(rows))


def opens(n: int, level: int, packet: Connect) -> Step:
    return "open", n, level, packet.client_id, packet.encode(level).hex()


def sends(n: int, level: int, *packets: Any) -> Step:
    return "send", n, b"".join(packet.encode(level) for packet in packets).hex()


def heard(*packets: Any) -> list[Item]:
    return named([(packet, b"") for packet in packets], Names())


def test_a_rule_explains_only_its_own_difference() -> None:
    steps = opens(0, 4, Connect("a")), sends(0, 4, Subscribe(1, (("a/+/#", 0),)))
    extra, live = heard(Publish("a/b", b"x", retain=True)), heard(Publish("a/b", b"x"))
    rule = rule_of(played("2.1", *steps, ours={0: extra}, theirs={0: []}))
    assert rule is not None and rule.explains is rules.plus_before_hash
    assert rule_of(played("2.1", *steps, ours={0: []}, theirs={0: extra})) is None
    assert rule_of(played("2.1", *steps, ours={0: live}, theirs={0: []})) is None
    assert rule_of(played("2.1", *steps, ours={0: heard(Publish("a/b/c", b"x", retain=True))}, theirs={0: []})) is None


def test_a_difference_in_state_is_found_where_it_begins() -> None:
    will = Will("w", b"w")
    first = opens(0, 5, Connect("a", False, will=will, props=((P.SESSION_EXPIRY, 100),)))
    again = opens(1, 5, Connect("a", False))
    both: Heard = {1: heard(Connack(session=True))}
    assert played("2.1", first, again, ours=both, theirs=both).rows == (TAKEN_WILL,)
    assert played("2.1", first, again, ours=both, theirs=both, limits=Limits(compat=True)).rows == ()
    assert played("2.1", first, opens(1, 5, Connect("a", True)), ours=both, theirs=both).rows == ()
    assert played("2.1", opens(0, 5, Connect("a", False, will=will)), again, ours=both, theirs=both).rows == ()


def test_a_rule_about_a_state_needs_its_beginning() -> None:
    """A will that only mosq has sent is known after the take-over that sends it, and unexplained after any other step."""
    first = opens(0, 5, Connect("a", False, will=Will("w", b"w"), props=((P.SESSION_EXPIRY, 100),)))
    watch, sent = opens(2, 4, Connect("watch")), heard(Publish("w", b"w"))
    ours, theirs = {1: heard(Connack(session=True)), 2: sent}, {1: heard(Connack(session=True)), 2: []}
    rule = rule_of(played("2.1", watch, first, opens(1, 5, Connect("a", False)), ours=ours, theirs=theirs))
    assert rule is not None and rule.row == TAKEN_WILL
    assert rule_of(played("2.1", watch, first, opens(1, 5, Connect("b", False)), ours=ours, theirs=theirs)) is None


@pytest.mark.parametrize(("packet", "known"), [
    (Disconnect(4, ((P.SESSION_EXPIRY, 0),)), True), (Disconnect(4, ((P.SESSION_EXPIRY, 50),)), False), (Disconnect(4), False),
    (Disconnect(0, ((P.SESSION_EXPIRY, 0),)), False)])
def test_a_delayed_will_is_known_where_a_disconnect_ends_its_session(packet: Disconnect, known: bool) -> None:
    will = Will("w", b"w", props=((P.WILL_DELAY, 1000),))
    steps = (opens(1, 4, Connect("watch")), opens(0, 5, Connect("a", False, will=will, props=((P.SESSION_EXPIRY, 100),))), sends(0, 5, packet))
    for peer in ("2.0", "2.1"):
        rule = rule_of(played(peer, *steps, ours={0: heard("closed"), 1: heard(Publish("w", b"w"))}, theirs={0: heard("closed"), 1: []}))
        assert (rule is not None and rule.row == DELAYED_WILL) == known


def test_messages_beyond_the_window_of_unreleased_ones_are_known() -> None:
    limits, dropped = Limits(window=2), sends(0, 4, Publish("a", b"3", 1, 3))
    steps = opens(0, 4, Connect("a")), sends(0, 4, Publish("a", b"1", 2, 1), Publish("a", b"2", 2, 2))
    answer: Heard = {0: heard(Puback(3))}
    assert played("2.1", *steps, dropped, ours=answer, theirs=answer, limits=limits).rows == (UNRELEASED_3,)
    released = sends(0, 4, Pubrel(1))
    assert played("2.1", *steps, released, dropped, ours=answer, theirs=answer, limits=limits).rows == ()


def test_dropped_messages_may_leave_their_places_to_others() -> None:
    """In Mosquitto, message 3 was dropped, so message 4 has the only place in the window of client 1."""
    limits = Limits(window=2)
    steps = (opens(1, 5, Connect("b", props=((P.RECEIVE_MAXIMUM, 1),))), opens(0, 4, Connect("a")),
             sends(0, 4, Publish("a", b"1", 2, 1), Publish("a", b"2", 2, 2), Publish("a", b"3", 1, 3), Publish("a", b"4", 1, 4)))
    ours, theirs = heard(Publish("a", b"3", 1, 1)), heard(Publish("a", b"4", 1, 1))
    rule = rule_of(played("2.1", *steps, ours={1: ours}, theirs={1: theirs}, limits=limits))
    assert rule is not None and rule.row == UNRELEASED_3
    assert rule_of(played("2.1", *steps, ours={1: []}, theirs={1: theirs}, limits=limits)) is None
    assert rule_of(played("2.1", *steps, ours={1: heard(Publish("a", b"other", 1, 1))}, theirs={1: []}, limits=limits)) is None


def test_copies_beyond_the_window_may_have_other_places() -> None:
    first, second = Publish("a", b"x", 1, 1), Publish("a", b"x", 1, 2, retain=True)
    assert rules.more_copies([first, Pubrel(7), second], [second, Pubrel(7)]) == [replace(first, mid=0)]
    assert rules.more_copies([first, Pubrel(7)], [Pubrel(7), second]) == []
    assert rules.more_copies([first, Publish("b"), Publish("c"), second], [Publish("c"), Publish("b"), second]) == []


def test_packets_behind_the_one_that_ends_a_client_reach_others_from_one_broker_only() -> None:
    repeated = Publish("a", b"1", 2, 1, dup=True)
    steps = (opens(1, 4, Connect("b")), opens(0, 4, Connect("a")),
             sends(0, 4, replace(repeated, dup=False), repeated, repeated, Pubrel(1), Publish("a", b"2")))
    answers, ended = heard(Pubrec(1), Pubrec(1)), heard(Pubrec(1), Pubrec(1), "closed")
    rule = rule_of(played("2.1", *steps, ours={0: answers, 1: heard(Publish("a", b"1"), Publish("a", b"2"))}, theirs={0: ended, 1: []}))
    assert rule is not None and rule.explains is rules.third_copy
    for others in (heard(Publish("a", b"3")), heard(Pubrec(1))):
        assert rule_of(played("2.1", *steps, ours={0: answers, 1: others}, theirs={0: ended, 1: []})) is None
    assert rule_of(played("2.1", *steps, ours={0: answers, 1: []}, theirs={0: ended, 1: heard(Publish("a", b"2"))})) is None


@pytest.mark.parametrize(("prop", "known"), [
    ((P.PAYLOAD_FORMAT, 49), True), ((P.RESPONSE_TOPIC, "a/#"), True), ((P.SUBSCRIPTION_ID, 1), True), ((P.PAYLOAD_FORMAT, 1), False),
    ((P.RESPONSE_TOPIC, "a"), False)])
def test_properties_that_a_publish_must_not_have(prop: Any, known: bool) -> None:
    steps = opens(1, 4, Connect("b")), opens(0, 5, Connect("a")), sends(0, 5, Publish("a", b"1", props=(prop,)))
    ours: Heard = {0: heard(Disconnect(0x82), "closed"), 1: []}
    theirs: Heard = {0: [], 1: heard(Publish("a", b"1"))}
    assert (rule_of(played("2.0", *steps, ours=ours, theirs=theirs)) is not None) == known
    assert rule_of(played("2.1", *steps, ours=ours, theirs=theirs)) is None


def test_each_client_of_a_difference_needs_a_rule() -> None:
    steps = (opens(1, 4, Connect("b")), opens(0, 5, Connect("a")), sends(0, 5, Publish("a/b", b"x", retain=True)),
             sends(0, 5, Subscribe(1, (("a/+/#", 4),))))
    theirs: Heard = {0: heard(Publish("a/b", b"x", retain=True)), 1: []}
    assert rule_of(played("2.1", *steps, ours={0: [], 1: []}, theirs=theirs)) is not None
    assert rule_of(played("2.1", *steps, ours={0: [], 1: heard(Publish("c"))}, theirs=theirs)) is None


def test_the_packets_of_clients_are_read_and_faults_are_found() -> None:
    for packet in (Connect("a", False, 5, Will("w", b"x", 1, True, ((P.WILL_DELAY, 3),)), "u", b"p", ((P.RECEIVE_MAXIMUM, 2),)),
                   Subscribe(1, (("a/#", 0x2E),), ((P.SUBSCRIPTION_ID, 300),)), Pubrec(3, 0x80)):
        assert read_asked(5, packet.encode(5)) == packet
    assert read_asked(5, Pubrec(3, 0x81).encode(5)) is None
    assert read_asked(5, Publish("a\x01").encode(5)) is None
    assert read_asked(4, b"\x8a" + Subscribe(1, (("a", 0),)).encode(4)[1:]) is None
    assert filters_before_a_fault(4, Subscribe(1, (("a", 0), ("b#", 0), ("c", 0))).encode(4)) == ["a"]
    assert filters_before_a_fault(4, Subscribe(1, (("a", 0), ("b", 0))).encode(4)) == []
    assert [text for text in ("a/#", "#", "+/a", "$share/g/a", "$share", "$share//a", "a#", "#/a", "") if is_filter(text)] == ["a/#", "#", "+/a", "$share/g/a"]


def test_a_retained_message_next_to_its_live_copies_has_no_place_of_its_own() -> None:
    live, retained, other = Publish("b", b"1", 2, 1), Publish("b", b"1", 1, 2, retain=True), Publish("a", b"2", 1, 3, retain=True)
    sides = [named(ordered([(packet, b"") for packet in side], Names()), Names()) for side in ([live, retained, other], [live, other, retained])]
    assert [item.key for item in sides[0]] == [item.key for item in sides[1]]


def test_a_pubrel_that_is_sent_again_stands_anywhere_among_the_copies() -> None:
    """One broker has given id 1 to the copy of QoS 2, the other one to the copy of QoS 1; each sends them again in its order."""
    copies, other = {1: Publish("a", b"x", 1), 2: Publish("a", b"x", 2)}, Publish("b", b"y", 1, 9)
    found = []
    for ids in ((3, 4), (4, 3)):
        names = Names()
        first = [replace(copies[qos], mid=mid) for qos, mid in zip((1, 2), ids, strict=True)]
        named(ordered([(packet, b"") for packet in (*sorted(first, key=lambda one: int(one.mid)), other)], names), names)
        again = sorted([replace(first[0], dup=True), Pubrel(first[1].mid)], key=lambda one: int(one.mid))
        both = [*again, replace(other, dup=True)], [again[0], replace(other, dup=True), again[1]]
        found += [[one.key for one in named(ordered([(packet, b"") for packet in (Connack(session=True), *messages)], names), names)] for messages in both]
    assert found[0] == found[2]
    assert found[1] != found[3] != found[0] != found[1]


def test_only_own_retained_messages_are_sent_in_spite_of_no_local() -> None:
    steps = (opens(1, 5, Connect("b")), opens(0, 5, Connect("a")), sends(0, 5, Publish("a/1", b"own", retain=True)),
             sends(1, 5, Publish("a/2", b"other", retain=True)), sends(0, 5, Subscribe(1, (("a/+", 4),))))
    own, other = Publish("a/1", b"own", retain=True), Publish("a/2", b"other", retain=True)
    for theirs in (heard(own, other), heard(other, own)):
        rule = rule_of(played("2.1", *steps, ours={0: heard(other)}, theirs={0: theirs}))
        assert rule is not None and rule.explains is rules.retained_and_no_local
    assert rule_of(played("2.1", *steps, ours={0: []}, theirs={0: heard(other)})) is None
    assert rule_of(played("2.1", *steps, ours={0: heard(other)}, theirs={0: heard(own)})) is None
    # together with another known difference, or with one that is not known
    twice, third = heard(own, Publish("a/3", b"3", 1, 1)), heard(Publish("a/3", b"3", 0))
    overlapping = replace(played("2.1", *steps, ours={0: third}, theirs={0: twice}), config="single")
    assert (rule := rule_of(overlapping)) is not None and rule.explains is rules.one_copy and not rule.goes_on
    assert rule_of(replace(overlapping, config="plain")) is None
    own, other = replace(own, qos=1, mid=1), replace(other, payload=b"o", qos=1, mid=1)
    # payload bytes that may be in flight, or messages: `own` fills the window in Mosquitto
    for limits, known in ((Limits(window_bytes=3), True), (Limits(window_bytes=4), False), (Limits(window=1), True), (Limits(window=2), False)):
        found = rule_of(played("2.1", *steps, ours={0: heard(other)}, theirs={0: heard(own)}, limits=limits))
        assert (found is not None) == known


def test_more_messages_under_max_inflight_bytes_need_a_released_one() -> None:
    """QoS 2 message 1 leaves the count of mosq when client 0 has sent PUBREC, so message 2 follows."""
    state, first, second = Shadow("2.1", Limits(window_bytes=1)), Publish("a", b"1", 2, 1), Publish("a", b"2", 2, 2)
    for n, client_id in enumerate("ab"):
        state.begin(opens(n, 4, Connect(client_id)))
        state.end(opens(n, 4, Connect(client_id)), {n: heard(Connack())}, {n: heard(Connack())}, [])
    step: Step = ("answer", 0, "a")
    both: tuple[Heard, Heard] = {0: heard(Pubrel(1), second), 1: []}, {0: heard(Pubrel(1)), 1: []}
    some: list[tuple[list[tuple[Any, str]], bool]] = [([], False), ([(first, "a")], True)]
    for acted, known in some:
        state.begin(step)
        rows = state.end(step, *both, acted)
        assert (rule_of(Difference("2.1", "bytes", [step], *both, step, state, tuple(rows))) is not None) == known


def test_a_copy_with_retain_may_have_another_place_in_a_full_window() -> None:
    steps = opens(1, 5, Connect("b", props=((P.RECEIVE_MAXIMUM, 1),))), opens(0, 4, Connect("a")), sends(0, 4, Publish("a", b"1", 1, 1))
    first, second, other = Publish("a", b"1", 1, 1), Publish("a", b"1", 1, 1, retain=True), Publish("b", b"2")
    rule = rule_of(played("2.0", *steps, ours={1: heard(first, other)}, theirs={1: heard(other, second)}))
    assert rule is not None and rule.explains is rules.order_of_copies
    assert rule_of(played("2.0", *steps, ours={1: heard(first, other)}, theirs={1: heard(other, other, second)})) is None
    assert rule_of(played("2.0", *steps, ours={1: heard(first, other)}, theirs={1: heard(other, first)})) is None


@pytest.mark.parametrize(("window", "known"), [(4, True), (5, False)])
def test_copies_may_have_another_order_if_the_window_becomes_full_within_a_step(window: int, known: bool) -> None:
    """Client 1 has acknowledged one message at the end of the step, so its window was full only within the step."""
    state = Shadow("2.1", Limits())
    for n, packet in ((1, Connect("b", props=((P.RECEIVE_MAXIMUM, window),))), (0, Connect("a"))):
        state.begin(opens(n, 5, packet))
        state.end(opens(n, 5, packet), {n: heard(Connack())}, {n: heard(Connack())}, [])
    first = Publish("t", b"0", 1, 1)
    steps: list[Step] = [sends(0, 5, Publish("t", b"0", 1, 1)), sends(0, 5, Publish("a", b"1", 1, 2))]
    both = heard(Publish("a", b"1", 1, 2), Pubrel(9), Publish("a", b"1", 2, 3), Publish("b", b"2", 1, 4))
    other = heard(Publish("a", b"1", 2, 2), Pubrel(9), Publish("a", b"1", 1, 3), Publish("b", b"2", 1, 4))
    state.begin(steps[0])
    state.end(steps[0], {1: heard(first)}, {1: heard(first)}, [])
    state.begin(steps[1])
    rows = state.end(steps[1], {1: both}, {1: other}, [(first, "a")])
    rule = rule_of(Difference("2.1", "plain", steps, {1: both}, {1: other}, steps[1], state, tuple(rows)))
    assert (rule is not None and rule.explains is rules.order_of_copies) == known


def test_a_shared_filter_without_a_valid_group_may_stand_in_front_of_another_fault() -> None:
    wrong = frame(0xA2, Unsubscribe(1, ("$share/+/a",)).encode(5)[2:] + b"\0\1\xff")
    for data, known in ((wrong, True), (wrong.replace(b"+", b"g"), False)):
        steps = opens(0, 5, Connect("a")), ("send", 0, data.hex())
        rule = rule_of(played("2.1", *steps, ours={0: heard(Disconnect(0x81), rules.CLOSED)}, theirs={0: heard(Disconnect(0x82), rules.CLOSED)}))
        assert (rule is not None and rule.explains is rules.odd_share) == known


def test_an_unsubscribe_of_a_shared_filter_explains_no_messages_of_others() -> None:
    steps = opens(1, 4, Connect("b")), opens(0, 5, Connect("a")), sends(0, 5, Unsubscribe(1, ("$share/g/a",)), Publish("a", b"1"))
    assert rule_of(played("2.1", *steps, ours={1: heard(Publish("a", b"1"))}, theirs={1: []})) is None
    answers = [heard(Unsuback(1, (code,))) for code in (17, 0)]
    rule = rule_of(played("2.1", *steps, ours={0: answers[0]}, theirs={0: answers[1]}))
    assert rule is not None and rule.explains is rules.never_subscribed


@pytest.mark.parametrize(("expiry", "head", "rest", "rows"), [
    (0, 0xE0, b"x", (ODD_DISCONNECT,)), (50, 0xE0, b"x", ()), (0, 0xE1, b"x", ()), (0, 0xE0, b"", ())])
def test_a_session_may_end_with_a_disconnect_that_has_bytes_behind_its_end(expiry: int, head: int, rest: bytes, rows: tuple[str, ...]) -> None:
    data = frame(head, Disconnect(0, ((P.SESSION_EXPIRY, expiry),)).encode(5)[2:] + rest)
    for kept in (True, False):
        first = opens(0, 5, Connect("a", props=((P.SESSION_EXPIRY, 100),) if kept else ()))
        assert played("2.1", first, ("send", 0, data.hex()), ours={0: []}, theirs={0: []}).rows == (rows if kept else ())


def test_another_member_of_a_shared_group_may_get_a_message() -> None:
    group = Subscribe(1, (("$share/g/a/+", 0),))
    steps = (opens(0, 4, Connect("a")), opens(1, 4, Connect("b")), opens(2, 4, Connect("c")), sends(0, 4, group), sends(1, 4, group),
             sends(2, 4, Publish("a/1", b"x")))
    message, other = heard(Publish("a/1", b"x")), heard(Publish("b", b"x"))
    rule = rule_of(played("2.1", *steps, ours={0: message, 1: []}, theirs={0: [], 1: message}))
    assert rule is not None and rule.explains is rules.other_member
    assert rule_of(played("2.1", *steps, ours={0: message, 1: message}, theirs={0: [], 1: message})) is None
    assert rule_of(played("2.1", *steps, ours={0: other, 1: []}, theirs={0: [], 1: other})) is None
    assert rule_of(played("2.1", *steps, ours={0: message, 2: []}, theirs={0: [], 2: message})) is None
    left = (*steps[:-1], sends(1, 4, Unsubscribe(2, ("$share/g/a/+",))), steps[-1])
    assert rule_of(played("2.1", *left, ours={0: message, 1: []}, theirs={0: [], 1: message})) is None


def test_a_place_that_mosquitto_has_lost_may_leave_other_copies_waiting() -> None:
    one, two, other = Publish("a", b"1", 1, 1), Publish("a", b"1", 2, 2), Publish("b", b"2", 1, 1)
    some: list[tuple[int, list[Publish], bool]] = [(1, [one], True), (1, [two], True), (1, [other], False), (20, [one], False)]
    for most, sent, known in some:
        state = Shadow("2.1", Limits())
        for step in opens(0, 5, Connect("a", props=((P.RECEIVE_MAXIMUM, most),))), opens(1, 4, Connect("b")):
            state.begin(step)
            state.end(step, {step[1]: heard(Connack())}, {step[1]: heard(Connack())}, [])
        answer: Step = ("answer", 0, "e")
        state.begin(answer)
        state.end(answer, {0: []}, {0: []}, [(Publish("c", b"3", 2, 3), "e")])
        step = sends(1, 4, Publish("a", b"1", 2, 1))
        both: tuple[Heard, Heard] = {0: heard(two, replace(two, mid=4)), 1: []}, {0: heard(*sent), 1: []}
        state.begin(step)
        rows = state.end(step, *both, [])
        assert (rule_of(Difference("2.1", "odd", [step], *both, step, state, tuple(rows))) is not None) == known


def test_a_step_of_a_client_that_has_never_connected_makes_no_difference() -> None:
    """A session that is made shorter may begin with such a step."""
    assert rule_of(played("2.1", sends(0, 5, Subscribe(1, (("a", 4),))), ours={}, theirs={})) is None


def test_queued_qos_0_messages_come_behind_those_that_are_sent_again() -> None:
    props = ((P.RECEIVE_MAXIMUM, 1),)
    first, second, queued = Publish("a", b"1", 1, 1, dup=True), Publish("a", b"2", 1, 2, dup=True), Publish("a", b"3")
    for theirs, known in (([first, second, queued], True), ([first, second, replace(queued, qos=1, mid=3)], False), ([first, replace(queued, retain=True)], False)):
        both: tuple[Heard, Heard] = {0: heard(Connack(session=True), first)}, {0: heard(Connack(session=True), *theirs)}
        rule = rule_of(played("2.1", opens(0, 5, Connect("a", False, props=props)), ours=both[0], theirs=both[1]))
        assert (rule is not None and rule.explains is rules.resumed_with_less) == known


@pytest.mark.parametrize(("level", "username", "rows"), [(3, "ann", (OTHER_USER,)), (3, None, ()), (4, "ann", ())])
def test_a_session_is_resumed_without_the_user_name_that_a_connect_of_3_1_announces(level: int, username: str | None, rows: tuple[str, ...]) -> None:
    first = opens(0, level, Connect("a", False, username=username))
    whole = Connect("a", False, username="x").encode(level)
    cut = frame(0x10, whole[2:-3])
    both: Heard = {1: heard(Connack())}
    assert played("2.0", first, ("open", 1, level, "a", cut.hex()), ours=both, theirs=both).rows == rows


@pytest.mark.parametrize(("prop", "rc", "known"), [
    ((P.PAYLOAD_FORMAT, 127), 0x82, True), ((P.RESPONSE_TOPIC, "a/+"), 0x82, True), ((P.PAYLOAD_FORMAT, 1), 0x82, False), ((P.PAYLOAD_FORMAT, 127), 0x80, False),
])
def test_only_a_will_with_odd_properties_may_be_refused(prop: tuple[int, Any], rc: int, known: bool) -> None:
    step = opens(0, 5, Connect("a", will=Will("w", b"w", props=(prop,))))
    for peer in ("2.0", "2.1"):
        rule = rule_of(played(peer, step, ours={0: heard(Connack(rc=rc), rules.CLOSED)}, theirs={0: heard(Connack())}))
        assert (rule is not None and rule.explains is rules.odd_will) == (known and peer == "2.0")


@pytest.mark.parametrize("option", ["max_queued_messages 3\n", "queue_qos0_messages true\n"])
def test_mosquitto_may_send_more_where_a_reload_made_the_queue_shorter(option: str) -> None:
    steps = opens(0, 4, Connect("a", False)), ("close", 0, "disconnect"), ("reload", option), opens(0, 4, Connect("a", False))
    some = heard(Connack(True), *(Publish("t", b"%d" % i, 1, i) for i in range(1, 4)))
    more = heard(Connack(True), *(Publish("t", b"%d" % i, 1, i) for i in range(1, 6)))
    for peer in ("2.0", "2.1"):
        rule = rule_of(played(peer, *steps, ours={0: some}, theirs={0: more}))
        assert (rule is not None and rule.explains is rules.not_reloaded) == ("max_queued" in option)
        assert rule_of(played(peer, *steps, ours={0: more}, theirs={0: some})) is None


def test_a_will_at_a_take_over_may_have_copies_with_and_without_retain() -> None:
    live, will, kept = Publish("a", b"1", 2, 1, dup=True), Publish("w", b"2", 2, 2), Publish("b", b"3", 2, 3, retain=True, dup=True)
    steps = (opens(0, 5, Connect("a", False, will=Will("w", b"2", 1), props=((P.SESSION_EXPIRY, 100),))),
             opens(1, 5, Connect("a", False)))
    ours: Heard = {1: heard(Connack(session=True), live, will, kept, replace(will, retain=True))}
    rule = rule_of(played("2.1", *steps, ours=ours, theirs={1: heard(Connack(session=True), kept, live)}))
    assert rule is not None and rule.row == TAKEN_WILL
    for less in ([kept], [live], []):
        assert rule_of(played("2.1", *steps, ours=ours, theirs={1: heard(Connack(session=True), *less)})) is None


def test_the_client_id_of_the_packet_counts() -> None:
    """A changed byte has made the client id of the first client of that of the second one."""
    steps = opens(0, 4, Connect("a", False)), ("open", 1, 4, "b", Connect("a", False, username="ann").encode(4).hex())
    rule = rule_of(played("2.1", *steps, ours={1: heard(Connack())}, theirs={1: heard(Connack(session=True))}))
    assert rule is not None and rule.explains is rules.other_user
