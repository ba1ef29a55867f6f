"""Test that when the session of a member of a shared group ends, its messages go to another member [v5 4.8.2], except for
QoS 2 messages that were sent."""

from __future__ import annotations

import time

import pytest

import mosq
from tests.broker.conftest import Join
from tests.broker.group import FOREVER, Member
from tests.harness.packets import Connect, Puback, Publish, Pubrec, Pubrel, Subscribe, Unsuback, Unsubscribe, Will
from tests.harness.properties import P
from tests.harness.wire import Wire



def publish(publisher: Member, payloads: str, qos: int = 1, topic: str = "t") -> None:
    for letter in payloads:
        publisher.sends(topic, letter.encode(), qos)


def text(got: list[Publish]) -> str:
    return b"".join(one.payload for one in got).decode()


@pytest.mark.parametrize("level", [4, 5])
def test_unacknowledged_qos_1_goes_to_another_member_in_order(member: Join, level: int) -> None:
    with mosq.Broker(sys_interval=0) as broker:
        dying, other = member(broker, "dying", "$share/g/t", level=level), member(broker, "other", "$share/g/t", level=level)
        publish(member(broker, "p"), "abcdefgh")
        held = dying.gets(acknowledge=False)
        assert text(held) == "aceg"
        dying.wire.send(Puback(held[1].mid))  # c is acknowledged
        dying.wire.expect_nothing()
        assert text(other.gets()) == "bdfh"
        dying.leaves()
        got = other.gets()
        assert text(got) == "aeg"
        assert not any(one.dup for one in got)  # the first attempt to this client [v5 3.3.1-1]
        assert broker.stats()["publish_dropped"] == 0
        assert broker.stats()["store_messages"] == 0


def test_a_lost_connection_with_a_clean_session_counts_too(member: Join) -> None:
    with mosq.Broker() as broker:
        dying, other = member(broker, "dying", "$share/g/t"), member(broker, "other", "$share/g/t")
        publish(member(broker, "p"), "ab")
        dying.wire.reset()
        while "a" not in (got := text(other.gets())):
            pass
        assert got in ("a", "ba")


def test_sent_qos_2_messages_go_to_no_other_member(member: Join) -> None:
    """Test [v5 4.8.2-5]; messages that were never sent do. In the window are a (not answered) and c (PUBREC sent)."""
    with mosq.Broker(sys_interval=0) as broker:
        dying, other = member(broker, "dying", "$share/g/t", 2, window=2), member(broker, "other", "$share/g/t", 2)
        publish(member(broker, "p"), "abcdefgh", 2)
        held = dying.gets(acknowledge=False)
        assert text(held) == "ac"
        dying.wire.send(Pubrec(held[1].mid))
        dying.wire.expect_packet(Pubrel(held[1].mid))
        assert text(other.gets()) == "bdfh"
        dying.leaves()
        got = other.gets()
        assert (text(got), {one.qos for one in got}) == ("eg", {2})
        assert broker.stats()["store_messages"] == 0


def test_qos_2_sent_on_an_earlier_connection_counts_as_sent(member: Join) -> None:
    with mosq.Broker() as broker:
        dying = member(broker, "dying", "$share/g/t", 2, expiry_s=FOREVER, window=1)
        publisher = member(broker, "p")
        publish(publisher, "abc", 2)
        assert text(dying.gets(acknowledge=False)) == "a"
        dying.leaves()
        other = member(broker, "other", "$share/g/t", 2)
        assert other.gets() == []  # the session may still come back [v5 4.8.2-4]
        member(broker, "dying")  # a clean start: the session has ended
        assert text(other.gets()) == "bc"


@pytest.mark.parametrize("end", ["expiry", "clean start", "clean start 3.1.1", "kick", "taken over", "disconnect with expiry 0"])
def test_every_end_of_a_session(member: Join, end: str) -> None:
    with mosq.Broker(sys_interval=0) as broker:
        connected = end in ("kick", "taken over", "disconnect with expiry 0")
        dying = member(broker, "dying", "$share/g/+", expiry_s={"expiry": 1, "kick": 0}.get(end, FOREVER))
        publisher = member(broker, "p")
        publish(publisher, "ab")
        if not connected:
            dying.leaves()
        publish(publisher, "cd")
        other = member(broker, "other", "$share/g/+")
        if end.startswith("clean start"):
            member(broker, "dying", level=4 if "3" in end else 5)
        elif end == "kick":
            assert broker.kick("dying")
        elif end == "taken over":
            member(broker, "dying")
        elif end == "disconnect with expiry 0":
            dying.wire.send(b"\xe0\x07\x00\x05\x11\x00\x00\x00\x00")
        got = ""
        deadline = time.monotonic() + 10
        while len(got) < 4 and time.monotonic() < deadline:
            got += text(other.gets())
        assert got == "abcd"
        assert broker.stats()["store_messages"] == 0


def test_without_another_member_the_messages_are_dropped(member: Join) -> None:
    with mosq.Broker(sys_interval=0) as broker:
        dying = member(broker, "dying", "$share/g/t", window=1)
        plain = member(broker, "plain", "t", 0)
        member(broker, "stranger", "$share/h/t", 0)
        publish(member(broker, "p"), "abc")
        dying.leaves()
        assert text(plain.gets()) == "abc"  # each message once
        assert broker.stats()["drops_session_ended"] == 2  # the broker had sent a
        assert broker.stats()["store_messages"] == 0


def test_messages_of_plain_subscriptions_are_not_handed_over(member: Join) -> None:
    with mosq.Broker(sys_interval=0) as broker:
        dying = member(broker, "dying", "t").joins("$share/g/t").joins("+")
        publish(member(broker, "p"), "ab")
        other = member(broker, "other", "$share/g/t")
        assert text(dying.gets(acknowledge=False)) == "aaabbb"
        dying.leaves()
        assert text(other.gets()) == "ab"


def test_each_group_gets_its_own_messages(member: Join) -> None:
    """Test a client in many groups of two filters: each delivery goes to a member of the group that it came through."""
    groups = [f"$share/g{n}/{pattern}" for n in range(40) for pattern in ("t", "+")]
    with mosq.Broker(sys_interval=0, max_queued_messages=0) as broker:
        dying = member(broker, "dying")
        for pattern in groups:
            dying.joins(pattern)
        publisher = member(broker, "p")
        publish(publisher, "abc")
        others = [member(broker, f"o{n}", pattern, 1, n + 1) for n, pattern in enumerate(groups)]
        work = broker.stats()["work"]
        dying.leaves()
        for n, other in enumerate(others):
            got = other.gets()
            while len(got) < 3:  # the hand-over proceeds in slices
                got += other.gets()
            assert text(got) == "abc"
            assert {one.props for one in got} == {((P.SUBSCRIPTION_ID, n + 1),)}  # not the identifier of the ended session
        # a walk over the queue, with a look-up and a write for each message; no search among all groups
        assert broker.stats()["work"] - work < 80 * 3 * 70


def test_options_of_the_new_member_apply(member: Join) -> None:
    with mosq.Broker(sys_interval=0) as broker:
        dying = member(broker, "dying", "$share/g/t", 2, 7)
        publish(member(broker, "p"), "a", 1)
        other = member(broker, "other", "$share/g/t", 0, 9)
        dying.leaves()
        (got,) = other.gets()
        assert (got.qos, got.props) == (0, ((P.SUBSCRIPTION_ID, 9),))


def test_expired_messages_are_not_sent_on(member: Join) -> None:
    with mosq.Broker(sys_interval=0) as broker:
        dying, publisher = member(broker, "dying", "$share/g/t", expiry_s=FOREVER), member(broker, "p")
        dying.leaves()
        publisher.sends("t", b"short", 1, ((P.EXPIRY, 1),))
        publisher.sends("t", b"long", 1, ((P.EXPIRY, 100),))
        other = member(broker, "other", "$share/g/t")
        time.sleep(1.01)  # only the clock makes a message expire
        member(broker, "dying")
        (got,) = other.gets()
        assert got.payload == b"long"
        assert broker.stats()["drops_expired"] == 1


@pytest.mark.parametrize("qos", [1, 2])
def test_messages_acknowledged_with_an_error_are_done(member: Join, qos: int) -> None:
    """Test [v5 4.8.2-6]."""
    with mosq.Broker(sys_interval=0) as broker:
        dying, other = member(broker, "dying", "$share/g/t", qos), member(broker, "other", "$share/g/t", qos)
        publish(member(broker, "p"), "ab", qos)
        (got,) = dying.gets(acknowledge=False)
        dying.wire.send(Puback(got.mid, 0x80) if qos == 1 else Pubrec(got.mid, 0x80))
        dying.wire.expect_nothing()
        dying.leaves()
        assert text(other.gets()) == "b"


def test_after_unsubscribing_from_the_group(member: Join) -> None:
    with mosq.Broker(sys_interval=0) as broker:
        dying, other = member(broker, "dying", "$share/g/t"), member(broker, "other", "$share/g/t")
        publish(member(broker, "p"), "abc")
        assert text(other.gets()) == "b"
        dying.gets(acknowledge=False)
        dying.wire.send(Unsubscribe(9, ("$share/g/t",)))
        dying.wire.expect_packet(Unsuback(9, (0,)))
        dying.leaves()
        assert text(other.gets()) == "ac"


def test_a_group_that_was_created_again_is_a_new_group(member: Join) -> None:
    with mosq.Broker(sys_interval=0) as broker:
        dying = member(broker, "dying", "$share/g/t")
        publish(member(broker, "p"), "a")
        dying.gets(acknowledge=False)
        dying.wire.send(Unsubscribe(9, ("$share/g/t",)))
        dying.wire.expect_packet(Unsuback(9, (0,)))
        other = member(broker, "other", "$share/g/t")
        dying.leaves()
        assert other.gets() == []


def test_the_new_member_may_end_too(member: Join) -> None:
    with mosq.Broker(sys_interval=0) as broker:
        members = [member(broker, "m0", "$share/g/t")]
        publish(member(broker, "p"), "abcde")
        for n in range(1, 6):
            members.append(member(broker, f"m{n}", "$share/g/t"))
            assert text(members[n - 1].gets(acknowledge=False)) == "abcde"
            members[n - 1].leaves()
        assert text(members[5].gets()) == "abcde"
        assert broker.stats()["store_messages"] == 0


def test_hash_client_keeps_publishers_together_after_a_hand_over(member: Join) -> None:
    with mosq.Broker(sys_interval=0, shared_strategy="hash_client", max_queued_messages=0) as broker:
        dying = member(broker, "dying", "$share/g/t")
        publishers = [member(broker, f"p{n}") for n in range(20)]
        for round_ in range(3):
            for n, publisher in enumerate(publishers):
                publisher.sends("t", b"%d %d" % (n, round_), 1)
        others = [member(broker, f"o{n}", "$share/g/t") for n in range(3)]
        dying.leaves()
        got = [other.payloads() for other in others]
        assert all(got)
        for part in got:
            for n in {payload.split()[0] for payload in part}:
                assert [payload for payload in part if payload.split()[0] == n] == [b"%s %d" % (n, round_) for round_ in range(3)]
        for publisher in publishers:
            publisher.sends("t", b"%s new" % publisher.client_id[1:].encode(), 1)
        for part, other in zip(got, others, strict=True):
            assert {payload.split()[0] for payload in other.payloads()} == {payload.split()[0] for payload in part}


def test_the_will_of_a_member_reaches_its_group(member: Join) -> None:
    with mosq.Broker(sys_interval=0) as broker:
        dying = Wire(broker.port, 5, 20)
        dying.send(Connect("dying", True, 60, Will("t", b"w", 1)))
        dying.read_packet()
        dying.send(Subscribe(1, (("$share/g/t", 1),)))
        dying.read_packet()
        publish(member(broker, "p"), "a")
        other = member(broker, "other", "$share/g/t")
        dying.reset()
        got = ""
        while len(got) < 2:
            got += text(other.gets())
        assert sorted(got) == ["a", "w"]


MANY = 3000


@pytest.mark.parametrize("topics", [1, MANY])
def test_long_queues_are_handed_over_in_slices(member: Join, topics: int) -> None:
    with mosq.Broker(sys_interval=0, turn_budget=1000, max_queued_messages=0) as broker:
        dying, publisher = member(broker, "dying", "$share/g/t/+", expiry_s=FOREVER), member(broker, "p")
        dying.leaves()
        for start in range(0, MANY, 500):
            publisher.wire.send(*(Publish(f"t/{n % topics}", b"%d" % n, 1, n + 1) for n in range(start, start + 500)))
            for _ in range(500):
                publisher.wire.read_packet()
        others = [member(broker, f"o{n}", "$share/g/t/+") for n in range(3)]
        before = broker.stats()["work"]
        again = member(broker, "dying")  # the client id is free at once
        again.wire.expect_nothing()
        got: list[list[int]] = [[], [], []]
        while sum(map(len, got)) < MANY:
            for part, other in zip(got, others, strict=True):
                part += [int(payload) for payload in other.payloads()]
        assert [part == sorted(part) for part in got] == [True] * 3
        assert sorted(n for part in got for n in part) == list(range(MANY))
        assert broker.stats()["work"] - before < MANY * 200
        assert broker.stats()["publish_dropped"] == broker.stats()["store_messages"] == 0


def test_the_broker_stops_during_a_hand_over(member: Join) -> None:
    with mosq.Broker(sys_interval=0, turn_budget=1000, max_queued_messages=0) as broker:
        dying, publisher = member(broker, "dying", "$share/g/t", expiry_s=FOREVER), member(broker, "p")
        dying.leaves()
        publisher.wire.send(*(Publish("t", bytes(100), 1, n + 1) for n in range(MANY)))
        for _ in range(MANY):
            publisher.wire.read_packet()
        member(broker, "other", "$share/g/t")
        member(broker, "dying")


def test_no_message_is_lost_when_members_come_and_go(member: Join) -> None:
    """Test that exactly one member acknowledges each message of QoS 1, also if members end while they hold it."""
    with mosq.Broker(sys_interval=0, shared_strategy="random", max_queued_messages=0) as broker:
        publisher = member(broker, "p")
        members = {n: member(broker, f"m{n}", "$share/g/#", window=5) for n in range(5)}
        done: list[bytes] = []
        for n in range(600):
            publisher.sends(f"t/{n % 7}", b"%d" % n, 1)
            who = n * 7919 % 5
            if n % 5 == 3:
                done += members[who].payloads()
            elif n % 10 == 4:
                members[who].gets(acknowledge=False)
                members[who].leaves()
                members[who] = member(broker, f"m{who}", "$share/g/#", window=5)
        rest = [payload for one in members.values() for payload in one.payloads()]
        assert sorted(int(payload) for payload in done + rest) == list(range(600))
        assert broker.stats()["publish_dropped"] == broker.stats()["store_messages"] == 0
