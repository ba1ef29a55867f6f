"""Test the choice of a member of a shared group: each strategy, offline members, and the bound on the members that are looked at."""

from __future__ import annotations

import resource

import pytest

import mosq
from tests.broker.conftest import Join
from tests.broker.group import FOREVER, Member



def numbers(n: int, start: int = 0) -> list[bytes]:
    return [b"%d" % i for i in range(start, start + n)]


def publish(publisher: Member, n: int, start: int = 0, topic: str = "t") -> None:
    for payload in numbers(n, start):
        publisher.sends(topic, payload, 1)


def test_round_robin_is_the_default(member: Join) -> None:
    with mosq.Broker() as broker:
        members = [member(broker, f"m{n}", "$share/g/t") for n in range(3)]
        publish(member(broker, "p"), 9)
        assert [one.payloads() for one in members] == [[b"%d" % i for i in range(n, 9, 3)] for n in range(3)]


@pytest.mark.parametrize("strategy", ["round_robin", "random", "sticky", "least_inflight", "hash_topic", "hash_client"])
def test_offline_members_are_skipped(member: Join, strategy: str) -> None:
    with mosq.Broker(shared_strategy=strategy) as broker:
        away = [member(broker, f"away{n}", "$share/g/t/+", expiry_s=FOREVER) for n in range(5)]
        here = member(broker, "here", "$share/g/t/+", expiry_s=FOREVER)
        for one in away:
            one.leaves()
        publisher = member(broker, "p")
        for n in range(20):
            publisher.sends(f"t/{n}", b"%d" % n, 1)
        assert here.payloads() == numbers(20)
        here.leaves()
        for n in range(20, 30):  # no member is connected: no message is lost
            publisher.sends(f"t/{n}", b"%d" % n, 1)
        back = [member(broker, one.client_id, expiry_s=FOREVER, clean=False) for one in (*away, here)]
        assert sorted(payload for one in back for payload in one.payloads()) == numbers(10, 20)
        assert broker.stats()["publish_dropped"] == 0


def test_random_is_fair(member: Join) -> None:
    with mosq.Broker(shared_strategy="random") as broker:
        members = [member(broker, f"m{n}", "$share/g/t", 0) for n in range(4)]
        member(broker, "away", "$share/g/t", 0, expiry_s=FOREVER).leaves()
        publisher = member(broker, "p")
        publish(publisher, 400)
        got = [one.payloads() for one in members]
        assert sorted(int(payload) for part in got for payload in part) == list(range(400))
        assert all(50 < len(part) < 150 for part in got), [len(part) for part in got]  # 100 each, give or take 5.8 sigma


def test_sticky_keeps_its_member_at_any_list_position(member: Join) -> None:
    with mosq.Broker(shared_strategy="sticky") as broker:
        members = {f"m{n}": member(broker, f"m{n}", "$share/g/t", expiry_s=FOREVER) for n in range(4)}
        publisher = member(broker, "p")
        publish(publisher, 5)
        chosen = next(name for name, one in members.items() if one.payloads() == numbers(5))
        assert all(one.payloads() == [] for one in members.values())
        members[chosen].leaves()
        publish(publisher, 3)
        second = next(name for name, one in members.items() if name != chosen and one.payloads() == numbers(3))
        members[chosen] = member(broker, chosen, expiry_s=FOREVER, clean=False)
        publish(publisher, 2)
        assert members[second].payloads() == numbers(2)  # a member that returns does not take over
        for name in [name for name in members if name not in (chosen, second)]:
            member(broker, name).leaves()  # their sessions end: the other members move in the list
        publish(publisher, 4)
        assert members[second].payloads() == numbers(4)
        assert members[chosen].payloads() == []


def test_least_inflight_selects_the_least_busy_member(member: Join) -> None:
    with mosq.Broker(shared_strategy="least_inflight") as broker:
        slow, quick = member(broker, "slow", "$share/g/t"), member(broker, "quick", "$share/g/t")
        publisher = member(broker, "p")
        got = []
        for n in range(10):
            publisher.sends("t", b"%d" % n, 1)
            got += quick.payloads()
        held = slow.payloads(acknowledge=False)
        assert len(held) == 1  # `slow` has not acknowledged it
        assert sorted(got + held) == numbers(10)


def test_least_inflight_alternates_and_counts_unsent_output(member: Join) -> None:
    with mosq.Broker(shared_strategy="least_inflight") as broker:
        one, two = member(broker, "one", "$share/g/t", 0), member(broker, "two", "$share/g/t", 0)
        publisher = member(broker, "p")
        for n in range(8):
            publisher.sends("t", b"%d" % n)
        assert {tuple(one.payloads()), tuple(two.payloads())} == {(b"0", b"2", b"4", b"6"), (b"1", b"3", b"5", b"7")}
        got = 0
        for n in range(400):  # `one` does not read
            publisher.sends("t", bytes(64 * 1024))
            got += len(two.payloads())
        assert broker.stats()["publish_dropped"] == 0
        assert got > 200
        assert got + len(one.payloads()) == 400


def owners(publisher: Member, members: list[Member], topics: int) -> dict[bytes, str]:
    """Publish to that many topics; return the client id that received each payload."""
    for n in range(topics):
        publisher.sends(f"h/{n}", b"%d" % n)
    return {payload: one.client_id for one in members for payload in one.payloads()}


def test_hash_topic_moves_only_topics_of_changed_members(member: Join) -> None:
    with mosq.Broker(shared_strategy="hash_topic") as broker:
        publisher = member(broker, "p")
        members = [member(broker, f"m{n}", "$share/g/h/+", 0) for n in range(5)]
        before = owners(publisher, members, 200)
        assert len(before) == 200
        assert owners(publisher, members, 200) == before
        assert {list(before.values()).count(one.client_id) > 10 for one in members} == {True}
        gone = members.pop(1)
        gone.leaves()
        after = owners(publisher, members, 200)
        assert {topic: who for topic, who in before.items() if who != gone.client_id}.items() <= after.items()
        assert {who for topic, who in after.items() if before[topic] == gone.client_id} == {one.client_id for one in members}
        members.append(member(broker, "new", "$share/g/h/+", 0))
        moved = {who for topic, who in owners(publisher, members, 200).items() if after[topic] != who}
        assert moved == {"new"}


def test_hash_client_keeps_a_publisher_with_one_member(member: Join) -> None:
    with mosq.Broker(shared_strategy="hash_client") as broker:
        members = [member(broker, f"m{n}", "$share/g/h/+", 0) for n in range(4)]
        whose = {}
        for n in range(40):
            publisher = member(broker, f"p{n}")
            found = set(owners(publisher, members, 5).values())
            assert len(found) == 1
            whose[n] = found.pop()
            publisher.close()
        assert len(set(whose.values())) == 4
        assert set(owners(member(broker, "p7"), members, 5).values()) == {whose[7]}


def test_hash_client_hashes_the_topic_of_broker_messages(member: Join) -> None:
    with mosq.Broker(shared_strategy="hash_client", sys_interval=1) as broker:
        members = [member(broker, f"m{n}", "$share/g/$SYS/broker/uptime", 0) for n in range(4)]
        seen: list[str] = []
        while len(seen) < 2:
            seen += [one.client_id for one in members for _ in one.gets()]
        assert len(set(seen)) == 1


def test_a_strategy_applies_to_all_filters_of_a_group(member: Join) -> None:
    with mosq.Broker(shared_strategy=["sticky", "round_robin turns", "random turnz", "sticky turns", "round_robin turns"]) as broker:
        sticky = [member(broker, f"s{n}", "$share/others/t") for n in range(2)]
        turns = [member(broker, f"t{n}", "$share/turns/+") for n in range(2)]
        publish(member(broker, "p"), 6)
        assert sorted(len(one.payloads()) for one in sticky) == [0, 6]
        assert [len(one.payloads()) for one in turns] == [3, 3]


def test_a_bad_strategy_is_refused_by_the_engine_too() -> None:
    from mosq.engine import new_engine

    with pytest.raises(ValueError, match="shared_strategy is 'best'; it must be one of round_robin, random"):
        new_engine({"shared_strategy": "random\nbest g"}, [], None)


MANY = 1100  # members; more than the broker looks at for one message


@pytest.mark.parametrize("strategy", ["round_robin", "sticky", "least_inflight", "random", "hash_topic"])
def test_members_beyond_the_bound_are_not_examined(member: Join, strategy: str) -> None:
    """Test that work for each message is bounded, and no message is lost, however many members are offline."""
    with mosq.Broker(shared_strategy=strategy, sys_interval=0) as broker:
        for n in range(MANY):
            Member(broker, f"away{n}", expiry_s=FOREVER).joins("$share/g/t").leaves()
        here = member(broker, "here", "$share/g/t")
        publisher = member(broker, "p")
        before = broker.stats()["work"]
        publish(publisher, 20)
        assert broker.stats()["work"] - before < 20 * (1024 // 8 + 8 + 200)  # looks, then writes and acknowledgements
        got = here.payloads()
        if strategy in ("round_robin", "sticky", "least_inflight"):
            assert got == numbers(19, 1)  # an offline session queued 0; then the broker looked further
        assert broker.stats()["store_messages"] == 20 - len(got)
        assert broker.stats()["publish_dropped"] == 0


def test_hash_topic_moves_few_topics_in_a_large_group(member: Join) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with mosq.Broker(shared_strategy="hash_topic") as broker:
            members = [member(broker, f"m{n}", "$share/g/h/+", 0) for n in range(1300)]
            publisher = member(broker, "p")
            before = owners(publisher, members, 300)
            members.append(member(broker, "new", "$share/g/h/+", 0))
            after = owners(publisher, members, 300)
            assert len(before) == len(after) == 300
            assert len(set(before.values())) > 200
            assert sum(before[topic] != who for topic, who in after.items()) < 10
            for one in members:
                one.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
