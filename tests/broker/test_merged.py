"""Test that with `allow_duplicate_messages false`, overlapping subscriptions give one copy of a message [v5 3.3.4-2..4].

The tests check its contents, and that its cost is linear in the number of subscriptions. Each test runs at once and, under a
small turn_budget, in slices."""

from __future__ import annotations

import random
from contextlib import ExitStack
from itertools import product

import pytest

import mosq
from tests.broker.conftest import Join
from tests.broker.group import Member
from tests.harness.packets import Publish, Subscribe, Unsubscribe
from tests.harness.properties import P
from tests.model.model import matches

NO_LOCAL, AS_PUBLISHED = 4, 8
SUB_IDS_MAX = 64
AT_ONCE, SLICED = 1_000_000_000, 1000


def joins(client: Member, pattern: str, options: int, sub_id: int = 0) -> None:
    client.wire.send(Subscribe(1, ((pattern, options),), ((P.SUBSCRIPTION_ID, sub_id),) if sub_id else ()))
    client.wire.read_packet()


def identifiers(got: Publish) -> list[int]:
    return [int(value) for ident, value in got.props if ident == P.SUBSCRIPTION_ID]  # type: ignore[call-overload]


def overlapping(n: int) -> list[str]:
    """Return n filters that all match TOPIC."""
    return ["/".join(levels) for levels in list(product("+a", repeat=10))[:n]]


TOPIC = "/".join("a" * 10)


@pytest.mark.parametrize("budget", [AT_ONCE, SLICED])
def test_a_thousand_overlapping_filters_of_one_client(member: Join, budget: int) -> None:
    with mosq.Broker(sys_interval=0, allow_duplicate_messages=False, turn_budget=budget) as broker:
        client = member(broker, "c")
        for n, pattern in enumerate(overlapping(1000)):
            joins(client, pattern, 2 if n == 777 else n % 2, n + 1)
        publisher = member(broker, "p")
        publisher.sends(TOPIC, b"x", 2)
        (got,) = client.gets()
        ids = identifiers(got)
        assert got.qos == 2
        assert len(ids) == len(set(ids)) == SUB_IDS_MAX
        joins(client, overlapping(1000)[777], 1, 778)
        publisher.sends(TOPIC, b"x", 2)
        assert [one.qos for one in client.gets()] == [1]


def work_of_one(broker: mosq.Broker, publisher: Member, topic: str = TOPIC) -> int:
    before = broker.stats()["work"]
    publisher.sends(topic, b"x", 1)
    return broker.stats()["work"] - before


@pytest.mark.parametrize("budget", [AT_ONCE, SLICED])
def test_the_cost_is_linear_in_the_filters(member: Join, budget: int) -> None:
    work = {}
    for n in (256, 512, 1024):
        with mosq.Broker(sys_interval=0, allow_duplicate_messages=False, turn_budget=budget) as broker:
            client = member(broker, "c")
            for pattern in overlapping(n):
                joins(client, pattern, 0)
            work[n] = work_of_one(broker, member(broker, "p"))
            assert len(client.gets()) == 1
    assert work[1024] > 1024 / 8  # the work is counted
    assert work[1024] - work[512] < 2.2 * (work[512] - work[256])
    assert work[1024] < 6 * 1024  # the nodes of the match, and one entry for each subscription: it is not compared with all others


@pytest.mark.parametrize("budget", [AT_ONCE, SLICED])
def test_the_cost_is_linear_in_the_clients(member: Join, budget: int) -> None:
    filters = overlapping(30)
    with mosq.Broker(sys_interval=0, allow_duplicate_messages=False, turn_budget=budget) as broker:
        publisher = member(broker, "p")
        work, clients = {}, []
        for n in (25, 50, 100):
            while len(clients) < n:
                clients.append(member(broker, f"c{len(clients)}"))
                for pattern in filters:
                    joins(clients[-1], pattern, 0)
            work[n] = work_of_one(broker, publisher)
            assert [len(one.gets()) for one in clients] == [1] * n
    assert work[100] - work[50] < 2.2 * (work[50] - work[25])
    assert work[100] < 100 * (30 // 2 + 60)  # the entries and a write for each client


@pytest.mark.parametrize("budget", [AT_ONCE, SLICED])
def test_no_local_applies_to_each_subscription(member: Join, budget: int) -> None:
    with mosq.Broker(sys_interval=0, allow_duplicate_messages=False, turn_budget=budget) as broker:
        crowd = [member(broker, f"c{n}") for n in range(30)]  # enough clients for a job
        client, other = member(broker, "c"), member(broker, "o")
        for one in (*crowd, client, other):
            joins(one, "t/#", 2 | NO_LOCAL, 1)
            joins(one, "t/+", 1, 2)
        for one in (client, other):
            joins(one, "t/a", 0 | NO_LOCAL | AS_PUBLISHED, 3)
        client.wire.send(Publish("t/a", b"x", 2, 5, retain=True))
        client.wire.read_packet()
        client.wire.send(b"\x62\x02\x00\x05")
        (own,) = client.gets()
        assert (own.qos, own.retain, identifiers(own)) == (1, False, [2])
        (got,) = other.gets()
        assert (got.qos, got.retain, sorted(identifiers(got))) == (2, True, [1, 2, 3])
        joins(client, "t/+", 1 | NO_LOCAL)
        client.sends("t/a", b"y")
        assert client.gets() == []


@pytest.mark.parametrize("budget", [AT_ONCE, SLICED])
@pytest.mark.parametrize("seed", range(4))
def test_against_a_model(member: Join, budget: int, seed: int) -> None:
    """Test random subscriptions: each client gets every message once, with the options of all its matching subscriptions together."""
    r = random.Random(seed)
    filters = ["a/b", "a/+", "a/#", "#", "+/b", "+/+", "a/b/#", "+/#", "c", "c/#", "a/c"]
    with mosq.Broker(sys_interval=0, allow_duplicate_messages=False, turn_budget=budget) as broker:
        clients = [member(broker, f"c{n}") for n in range(25)]
        wanted: list[dict[str, tuple[int, int]]] = [{} for _ in clients]
        for n in range(300):
            who = r.randrange(len(clients))
            pattern = r.choice(filters)
            if r.random() < 0.75:
                options, sub_id = r.choice((0, 1, 2)) | r.choice((0, NO_LOCAL)) | r.choice((0, AS_PUBLISHED)), r.choice((0, n + 1))
                joins(clients[who], pattern, options, sub_id)
                wanted[who][pattern] = (options, sub_id)
            else:
                clients[who].wire.send(Unsubscribe(1, (pattern,)))
                clients[who].wire.read_packet()
                wanted[who].pop(pattern, None)
            if n % 10:
                continue
            topic, qos, source = r.choice(["a/b", "a/c", "c", "a", "a/b/c"]), r.choice((0, 1)), r.randrange(len(clients))
            clients[source].wire.send(Publish(topic, b"%d" % n, qos, 99 if qos else 0))
            seen = []
            for at in (source, *range(len(clients))):  # the source first: its reply shows that the message is routed
                found = clients[at].gets()
                if at == source and seen:
                    continue
                seen.append((at, found))
            for at, found in seen:
                mine = [entry for pattern, entry in wanted[at].items()
                        if matches(pattern, topic) and not (entry[0] & NO_LOCAL and at == source)]
                if not mine:
                    assert found == []
                    continue
                (got,) = found
                assert got.payload == b"%d" % n
                assert got.qos == max(min(qos, options & 3) for options, _ in mine)
                assert sorted(identifiers(got)) == sorted(sub_id for _, sub_id in mine if sub_id)


def test_clients_that_leave_during_a_fan_out(member: Join) -> None:
    """Test clients that leave and unsubscribe between the slices of a fan-out that gathers and delivers; others get one copy each."""
    with mosq.Broker(sys_interval=0, allow_duplicate_messages=False, turn_budget=1000) as broker:
        clients = [member(broker, f"c{n}") for n in range(400)]
        for one in clients:
            one.wire.send(Subscribe(1, tuple((pattern, 0) for pattern in overlapping(20))))
        for one in clients:
            one.wire.read_packet()
        publisher = member(broker, "p")
        publisher.wire.send(*(Publish(TOPIC, b"%d" % n) for n in range(5)), Publish("end", b"", 1, 1))
        for one in clients[::4]:
            one.close()
        for one in clients[1::4]:
            one.wire.send(Unsubscribe(2, tuple(overlapping(20)[::2])))
        for one in clients[2::4]:
            one.wire.send(Unsubscribe(2, tuple(overlapping(20))))
        publisher.wire.read_packet()  # the broker answers after the fan-outs
        whole = [b"%d" % n for n in range(5)]
        for n, one in enumerate(clients):
            if n % 4 in (1, 3):
                assert one.payloads() == whole
            elif n % 4 == 2:
                got = one.payloads()
                assert got == whole[:len(got)]


def test_merged_fan_outs_beyond_their_memory_limit_run_in_turn() -> None:
    """Test fan-outs of 250,000 entries, which take 8 MB (MERGE_BYTES_MAX): one of four proceeds at a time."""
    filters, n = overlapping(1000), 250
    with ExitStack() as stack, mosq.Broker(sys_interval=0, allow_duplicate_messages=False, turn_budget=20_000) as broker:
        clients = [Member(broker, f"c{i}") for i in range(n)]
        publishers = [Member(broker, f"p{i}") for i in range(4)]
        for one in (*clients, *publishers):
            stack.callback(one.close)
        packet = Subscribe(1, tuple((pattern, 0) for pattern in filters)).encode(5)
        for one in clients:
            one.wire.send(packet)
            one.wire.read_packet()
        assert broker.stats()["subscriptions"] == n * len(filters)
        for one in publishers:
            one.wire.send(Publish(TOPIC, one.client_id.encode(), 1, 1))
        for one in publishers:
            one.wire.read_packet()
            one.wire.expect_nothing()
        everybody = {one.client_id.encode() for one in publishers}
        for one in clients:
            got = one.payloads()
            assert len(got) == 4
            assert set(got) == everybody
        assert broker.stats()["store_messages"] == 0
