"""Test that no packet causes much more work in one turn of the loop than `turn_budget`, by the work that the broker counts.

Each test aims at one kind of work that a client can make large: a match with many branches, many groups on one filter, a packet
with many filters, many wide fan-outs at once. An honest client beside it is served, and nothing is lost or doubled."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import pytest

import mosq
from tests.broker.conftest import Join
from tests.broker.group import Member
from tests.durable.test_paged_records import plane_on
from tests.harness.packets import Connect, Disconnect, Packet, Puback, Publish, Suback, Subscribe, Unsuback, Unsubscribe, Will
from tests.harness.properties import P
from tests.harness.wire import Wire

BUDGET = 4000
# cext/broker/core/turn.pxd: a turn has two budgets, one for input and one for jobs, and exceeds them by at most one budget; the rest
# is for the few connections of a test.
WORST = 3 * BUDGET + 1000


def branches(levels: int) -> list[str]:
    """Return every combination of `a` and `+`: all their nodes agree with a topic of `a`."""
    return ["/".join(parts) for parts in product("a+", repeat=levels)]


def subscribe_all(client: Member, filters: list[str], qos: int = 0) -> None:
    for start in range(0, len(filters), 50):
        part = filters[start:start + 50]
        client.wire.send(Subscribe(1, tuple((f, qos) for f in part)))
        client.wire.expect_packet(Suback(1, (qos,) * len(part)))


def assert_turns_are_short(broker: mosq.Broker) -> None:
    longest = broker.stats()["turn_work_max"]
    assert BUDGET // 20 < longest <= WORST, f"the longest turn took {longest} units of work"


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_match_of_thousands_of_branches_is_divided(member: Join, qos: int) -> None:
    with mosq.Broker(sys_interval=0, turn_budget=BUDGET) as broker:
        attacker, honest, publisher = member(broker, "a"), member(broker, "h"), member(broker, "p", window=500)
        subscribe_all(attacker, [f + "/x" for f in branches(12)])
        honest.joins("a/#", 0)
        topic = "a/" * 12 + "y"
        for n in range(20):
            publisher.sends(topic, b"%d" % n, qos)
        assert [got.payload for got in honest.gets()] == [b"%d" % n for n in range(20)]
        assert attacker.gets() == []
        assert_turns_are_short(broker)


@pytest.mark.parametrize("merged", [False, True])
def test_thousands_of_matching_filters_deliver_each_subscription_once(member: Join, merged: bool) -> None:
    with mosq.Broker(sys_interval=0, turn_budget=BUDGET, allow_duplicate_messages=not merged, max_queued_messages=0) as broker:
        wide, publisher = member(broker, "w"), member(broker, "p")
        filters = branches(10)
        for n, f in enumerate(filters):
            wide.joins(f, 1, n + 1)
        publisher.sends("/".join("a" * 10), b"x", 1)
        seen = Counter(value for got in wide.gets() for ident, value in got.props if ident == P.SUBSCRIPTION_ID)
        if merged:
            assert len(seen) == 64, "a merged copy names at most SUB_IDS_MAX identifiers"
        else:
            assert seen == Counter(range(1, len(filters) + 1))
        assert_turns_are_short(broker)


def test_thousands_of_groups_on_one_filter_are_divided(member: Join) -> None:
    with mosq.Broker(sys_interval=0, turn_budget=BUDGET, max_queued_messages=0) as broker:
        groups, publisher = member(broker, "g"), member(broker, "p")
        subscribe_all(groups, [f"$share/g{n}/t" for n in range(2000)], 1)
        publisher.sends("t", b"x", 1)
        assert len(groups.gets()) == 2000
        assert_turns_are_short(broker)


def test_filters_that_leave_during_a_match_are_not_visited(member: Join) -> None:
    with mosq.Broker(sys_interval=0, turn_budget=1000) as broker:
        attacker, honest, publisher = member(broker, "a"), member(broker, "h"), member(broker, "p")
        subscribe_all(attacker, [f + "/x" for f in branches(11)])
        honest.joins("+/#", 0)
        publisher.wire.send(*(Publish("a/" * 11 + "y", b"%d" % n) for n in range(10)))
        attacker.wire.send(Disconnect())
        publisher.wire.expect_nothing()
        assert [got.payload for got in honest.gets()] == [b"%d" % n for n in range(10)]
        attacker.close()
        again = member(broker, "a")
        again.wire.expect_nothing()
        stats = broker.stats()
        assert (stats["subscriptions"], stats["index_nodes"]) == (1, 1)


def test_a_will_with_a_long_match_is_divided(member: Join) -> None:
    with mosq.Broker(sys_interval=0, turn_budget=BUDGET) as broker:
        attacker, honest = member(broker, "a"), member(broker, "h")
        subscribe_all(attacker, [f + "/x" for f in branches(12)])
        honest.joins("a/#", 0)
        for n in range(20):
            wire = Wire(broker.port, 5, 20)
            wire.send(Connect(f"w{n}", will=Will("a/" * 12 + "y", b"%d" % n)))
            wire.read_packet()
            wire.close()
        seen: list[bytes] = []
        while len(seen) < 20:
            got = honest.wire.read_packet()
            assert isinstance(got, Publish)
            seen.append(got.payload)
        assert sorted(seen) == sorted(b"%d" % n for n in range(20))
        assert_turns_are_short(broker)


@pytest.mark.parametrize("level", [4, 5])
def test_a_packet_of_thousands_of_filters_is_handled_in_slices(member: Join, level: int) -> None:
    with mosq.Broker(sys_interval=0, turn_budget=BUDGET) as broker:
        source = member(broker, "s")
        for n in range(10):
            source.wire.send(Publish(f"f/{n * 300}", b"%d" % n, retain=True))
        source.wire.expect_nothing()
        client, other = member(broker, "c", level=level), member(broker, "o")
        filters = [f"f/{n}" for n in range(3000)]
        client.wire.send(Subscribe(7, tuple((f, n % 2) for n, f in enumerate(filters))))
        other.wire.expect_nothing()
        client.wire.expect_packet(Suback(7, tuple(n % 2 for n in range(3000))))
        retained = [client.wire.read_packet() for _ in range(10)]
        assert [got.payload for got in retained if isinstance(got, Publish)] == [b"%d" % n for n in range(10)]
        assert broker.stats()["subscriptions"] == 3000
        client.wire.send(Unsubscribe(8, (*filters, "other")))
        answer = client.wire.read_packet()
        assert answer == (Unsuback(8, (0,) * 3000 + (17,)) if level == 5 else Unsuback(8, ()))
        assert broker.stats()["subscriptions"] == 0
        assert_turns_are_short(broker)


def test_a_wrong_filter_behind_thousands_ends_the_client(member: Join) -> None:
    with mosq.Broker(sys_interval=0, turn_budget=BUDGET) as broker:
        client = member(broker, "c")
        client.wire.send(Subscribe(7, tuple((f"f/{n}", 0) for n in range(1000)) + (("a#", 0),)))
        client.wire.expect_packet(Disconnect(0x81))
        again = member(broker, "c")
        again.wire.expect_nothing()


def test_a_client_that_leaves_during_its_packet_leaves_nothing_behind(member: Join) -> None:
    with mosq.Broker(sys_interval=0, turn_budget=1000) as broker:
        for _ in range(10):
            client = member(broker, "c")
            client.wire.send(Subscribe(7, tuple((f"f/{n}", 0) for n in range(2000))))
            client.close()
        other = member(broker, "o")
        while broker.stats()["subscriptions"]:
            other.wire.expect_nothing()
        assert broker.stats()["index_nodes"] == 0


def test_a_long_packet_is_acknowledged_after_its_records_are_stored(tmp_path: Path, member: Join) -> None:
    with plane_on(tmp_path / "s", sys_interval=0, turn_budget=BUDGET) as plane:
        client = member(plane, "c", expiry_s=1000, clean=False)
        client.wire.send(Subscribe(7, tuple((f"f/{n}", 1) for n in range(2000))))
        client.wire.expect_packet(Suback(7, (1,) * 2000))
    with plane_on(tmp_path / "s", sys_interval=0, turn_budget=BUDGET) as plane:
        assert plane.stats()["subscriptions"] == 2000


def test_many_wide_fan_outs_at_once_share_one_budget(member: Join) -> None:
    with mosq.Broker(sys_interval=0, turn_budget=BUDGET) as broker:
        receivers = [member(broker, f"r{n}").joins("t", 0) for n in range(60)]
        publishers = [member(broker, f"p{n}") for n in range(40)]
        for publisher in publishers:
            publisher.wire.send(*(Publish("t", b"%d" % n) for n in range(5)))
        for publisher in publishers:
            publisher.wire.expect_nothing()
        expected: Counter[bytes] = Counter({b"%d" % n: 40 for n in range(5)})
        for receiver in receivers:
            assert Counter(got.payload for got in receiver.gets()) == expected
        assert_turns_are_short(broker)


def test_a_light_client_is_served_while_others_have_much_input(member: Join) -> None:
    with mosq.Broker(sys_interval=0, turn_budget=BUDGET) as broker:
        receivers = [member(broker, f"r{n}").joins("t", 0) for n in range(30)]
        heavy = [member(broker, f"h{n}") for n in range(10)]
        packets: list[Packet] = [Publish("t", b"x") for _ in range(500)]
        for one in heavy:
            one.wire.send(*packets)
        light = member(broker, "l")
        before = broker.stats()["publish_in"]
        light.sends("none", b"x", 1)
        assert broker.stats()["publish_in"] - before < 5000, "the light client waited for all others"
        for one in heavy:
            one.wire.expect_nothing()
        assert [len(receiver.gets()) for receiver in receivers] == [5000] * 30
        assert_turns_are_short(broker)


def test_messages_of_one_publisher_stay_in_order_through_jobs(member: Join) -> None:
    with mosq.Broker(sys_interval=0, turn_budget=1000, max_queued_messages=0) as broker:
        receivers = [member(broker, f"r{n}").joins("o/+", 1) for n in range(30)]
        publisher = member(broker, "p", window=1000)
        publisher.wire.send(*(Publish(f"o/{n % 3}", b"%d" % n, 1, n + 1) for n in range(200)))
        for n in range(200):
            got = publisher.wire.read_packet()
            assert isinstance(got, Puback) and got.mid == n + 1
        for receiver in receivers:
            assert [got.payload for got in receiver.gets()] == [b"%d" % n for n in range(200)]
