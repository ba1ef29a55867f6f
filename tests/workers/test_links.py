"""Test that messages reach subscribers at other workers."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest

from mosq.embed.explain import report
from tests.harness.packets import (
    Disconnect, Pingreq, Pingresp, Puback, Pubcomp, Publish, Pubrec, Pubrel, Suback, Subscribe, Unsuback, Unsubscribe,
)
from tests.harness.wire import Wire
from tests.workers.case import Workers, pinged, until


NO_LOCAL = 0x04             # options of SUBSCRIBE
NO_RETAINED = 0x20          # Retain Handling of SUBSCRIBE: the retained messages of the worker would be missing


@pytest.fixture(scope="module")
def broker() -> Iterator[Workers]:
    with Workers(3, "max_keepalive 0\nallow_duplicate_messages false\ncontrol_loopback true\n") as running:
        yield running


def subscribe(client: Wire, *filters: str, qos: int = 0) -> None:
    client.send(Subscribe(1, tuple((one, qos) for one in filters)))
    assert isinstance(client.read_packet(), Suback)


def pair(broker: Workers, publisher: int = 1, subscriber: int = 2) -> tuple[Wire, Wire]:
    """Return two clients at these workers."""
    return broker.connect(broker.id_on(publisher)), broker.connect(broker.id_on(subscriber))


@pytest.mark.parametrize("topic", ["one/topic", "one/+", "one/#", "#"])
def test_a_message_reaches_a_subscriber_at_another_worker(broker: Workers, topic: str) -> None:
    sender, receiver = pair(broker)
    subscribe(receiver, topic)
    for i in range(50):
        sender.send(Publish("one/topic", b"%d" % i))
    for i in range(50):
        receiver.expect_packet(Publish("one/topic", b"%d" % i))
    sender.close()
    receiver.close()


def test_a_message_goes_once_to_a_worker_with_several_matching_filters(broker: Workers) -> None:
    sender, receiver = pair(broker)
    other = broker.connect(broker.id_on(2))
    subscribe(receiver, "many/x", "many/+")
    subscribe(other, "many/#", "+/x")
    sender.send(Publish("many/x", b"1"))
    sender.send(Publish("many/end", b"2"))
    receiver.expect_packet(Publish("many/x", b"1"))
    receiver.expect_packet(Publish("many/end", b"2"))
    other.expect_packet(Publish("many/x", b"1"))
    other.expect_packet(Publish("many/end", b"2"))
    for client in (sender, receiver, other):
        client.close()


@pytest.mark.parametrize("size", [0, 5000, 40_000, 1_900_000])
def test_payloads_of_all_sizes(broker: Workers, size: int) -> None:
    sender, receiver = pair(broker)
    subscribe(receiver, "size")
    payload = bytes(range(256)) * (size // 256) + b"end"
    for i in range(3):
        sender.send(Publish("size", payload + b"%d" % i))
        receiver.expect_packet(Publish("size", payload + b"%d" % i))
    sender.close()
    receiver.close()


def test_a_route_ends_with_the_last_subscription(broker: Workers) -> None:
    sender, receiver = pair(broker, 3, 1)
    subscribe(receiver, "ends/#", "stays")
    sender.send(Publish("ends/x", b"1"))
    receiver.expect_packet(Publish("ends/x", b"1"))
    receiver.send(Unsubscribe(2, ("ends/#",)))
    assert isinstance(receiver.read_packet(), Unsuback)
    sender.send(Publish("ends/x", b"2"))
    sender.send(Publish("stays", b"3"))
    receiver.expect_packet(Publish("stays", b"3"))
    sender.close()
    receiver.close()


def test_a_worker_that_starts_again_knows_the_routes(broker: Workers) -> None:
    sender, receiver = pair(broker, 1, 2)
    subscribe(receiver, "again")
    name = broker.id_on(1)
    before = broker.kill(1)
    until(lambda: broker.pids().get(1, before) != before)
    sender = broker.connect(name)
    sender.send(Publish("again", b"1"))
    receiver.expect_packet(Publish("again", b"1"))
    receiver.close()


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_qos_across_workers(broker: Workers, qos: int, granted: int) -> None:
    sender, receiver = pair(broker)
    subscribe(receiver, "qos", qos=granted)
    for mid in range(1, 20):
        publish(sender, "qos", b"%d" % mid, qos, mid)
    assert received(receiver, 19) == [(b"%d" % mid, min(qos, granted)) for mid in range(1, 20)]
    sender.close()
    receiver.close()


def publish(client: Wire, topic: str, payload: bytes, qos: int, mid: int) -> None:
    """Publish, and wait until the broker has all of it."""
    client.send(Publish(topic, payload, qos, mid))
    if qos == 1:
        client.expect_packet(Puback(mid))
    elif qos == 2:
        client.expect_packet(Pubrec(mid))
        client.send(Pubrel(mid))
        client.expect_packet(Pubcomp(mid))


def received(client: Wire, n: int) -> list[tuple[bytes, int]]:
    """Return payload and QoS of the next messages, and acknowledge them."""
    found: list[tuple[bytes, int]] = []
    left = n
    while left:
        got = client.read_packet()
        if isinstance(got, Pubrel):
            client.send(Pubcomp(got.mid))
            left -= 1
            continue
        assert isinstance(got, Publish)
        found.append((got.payload, got.qos))
        if got.qos == 2:
            client.send(Pubrec(got.mid))
            continue
        if got.qos == 1:
            client.send(Puback(got.mid))
        left -= 1
    return found


@pytest.mark.parametrize("copies", [1, 2])
def test_a_repeated_pubrel_is_answered_too(broker: Workers, copies: int) -> None:
    """The first PUBREL waits for the other worker when the second one comes; neither blocks what comes behind."""
    sender, receiver = pair(broker, 1, 2)
    subscribe(receiver, "twice", qos=2)
    sender.send(*[Publish("twice", b"x", 2, 9, dup=i > 0) for i in range(copies)], Pubrel(9), Pubrel(9), Publish("other", b"", 1, 10))
    assert [sender.read_packet() for _ in range(copies + 2)] == [Pubrec(9)] * copies + [Pubcomp(9)] * 2
    assert isinstance(sender.read_packet(), Puback)
    got = receiver.read_packet()
    assert isinstance(got, Publish) and got.payload == b"x"
    receiver.send(Pubrec(got.mid), Pingreq())
    receiver.expect_packet(Pubrel(got.mid))
    receiver.expect_packet(Pingresp())          # and not the message again
    for client in (sender, receiver):
        client.close()


def test_explain_shows_the_workers_with_subscribers(broker: Workers) -> None:
    sender, receiver = pair(broker, 1, 2)
    third = broker.connect(broker.id_on(3))
    subscribe(receiver, "shown/+", qos=1)
    subscribe(third, "shown/+", qos=0)
    subscribe(sender, "shown/x")
    sender.send(Publish("$CONTROL/mosq/index/v1", b"shown/x"))
    got = sender.read_packet()
    assert isinstance(got, Publish)
    answer = json.loads(got.payload)
    assert answer["worker"] == 1 and report(answer).splitlines()[-1].startswith("Worker 1 has answered: ")
    found = {one["filter"]: one for one in answer["filters"]}
    assert found["shown/x"]["subscribers"] == 1 and "routes" not in found["shown/x"]
    assert found["shown/+"]["subscribers"] == 0
    assert found["shown/+"]["routes"] == [{"worker": 2, "qos": 1}, {"worker": 3, "qos": 0}]
    lines = [line.split("  ") for line in report(answer).splitlines()]
    assert [[cell.strip() for cell in line if cell] for line in lines[:3]] == [
        ["FILTER", "PATH", "SUBSCRIBERS", "ROUTES", "GROUPS"],
        ["shown/x", "exact, letter s, 1 link", "1", "-", "-"],
        ["shown/+", "tree shown / + (2 nodes, 1 scanned)", "0", "worker 2, worker 3", "-"]]
    assert lines[4] == ["2 filters: 1 subscriber and 2 routes in 2 lists, 0 shared groups"]
    assert "1 subscriber or route and 2 routes in 2 lists" in report({**answer, "truncated": True})
    for client in (sender, receiver, third):
        client.close()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_for_a_group_over_workers_goes_to_one_member(broker: Workers, qos: int) -> None:
    sender = broker.connect(broker.id_on(1))
    members = [broker.connect(broker.id_on(number)) for number in (1, 2, 3)]
    for member in members:
        subscribe(member, f"$share/g/group{qos}", qos=qos)
        subscribe(member, f"ends{qos}", qos=qos)
    count = 60
    for mid in range(1, count + 1):
        publish(sender, f"group{qos}", b"%d" % mid, qos, mid)
    publish(sender, f"ends{qos}", b"end", qos, count + 1)
    found: list[bytes] = []
    shares = []
    for member in members:
        own: list[bytes] = []
        while b"end" not in own:
            own += [payload for payload, _ in received(member, 1)]
        shares.append(len(own) - 1)
        found += [one for one in own if one != b"end"]
    assert sorted(map(int, found)) == list(range(1, count + 1))
    assert all(shares), shares
    for client in (sender, *members):
        client.close()


def test_a_group_whose_only_members_are_elsewhere(broker: Workers) -> None:
    sender, receiver = pair(broker, 3, 1)
    subscribe(receiver, "$share/far/far", qos=1)
    publish(sender, "far", b"1", 1, 1)
    assert received(receiver, 1) == [(b"1", 1)]
    sender.close()
    receiver.close()


def test_a_member_that_is_away_gets_no_messages_of_a_group(broker: Workers) -> None:
    """Until the worker of the publisher knows that the member is away, messages may wait for its session; none is lost."""
    away = broker.id_on(1)
    member = broker.connect(away, level=4, clean=False)
    other, sender = broker.connect(broker.id_on(2)), broker.connect(broker.id_on(3))
    for client in (member, other):
        subscribe(client, "$share/away/away", qos=1)
    subscribe(other, "away/end")
    member.send(Disconnect())
    member.expect_closed()
    got: list[bytes] = []
    count = 0

    def all_go_to_the_other() -> bool:
        nonlocal count
        sent = [b"%d" % n for n in range(count + 1, count + 21)]
        count += 20
        for payload in sent:
            publish(sender, "away", payload, 1, int(payload))
        sender.send(Publish("away/end", b"end"))
        own: list[bytes] = []
        while b"end" not in own:
            own += [payload for payload, _ in received(other, 1)]
        got.extend(own[:-1])
        return own[:-1] == sent

    until(all_go_to_the_other)
    member = broker.connect(away, level=4, clean=False)
    got += [payload for payload, _ in received(member, count - len(got))]
    assert sorted(map(int, got)) == list(range(1, count + 1))
    for client in (member, other, sender):
        client.close()


def test_retained_messages_are_the_same_at_all_workers(broker: Workers) -> None:
    senders = [broker.connect(broker.id_on(number)) for number in (1, 2, 3)]
    for mid in range(1, 31):
        sender = senders[mid % 3]
        sender.send(Publish(f"kept/{mid}", b"%d" % mid, 1, mid, retain=True))
        assert isinstance(sender.read_packet(), Puback)
    for mid in range(1, 6):
        senders[0].send(Publish(f"kept/{mid}", b"", 1, mid, retain=True))
        assert isinstance(senders[0].read_packet(), Puback)
    for number in (1, 2, 3):
        receiver = broker.connect(broker.id_on(number))
        subscribe(receiver, "kept/+", qos=1)
        found = [receiver.read_packet() for _ in range(20)]
        for one in found:
            assert isinstance(one, Publish) and one.retain and one.qos == 1
            receiver.send(Puback(one.mid))
        found += [receiver.read_packet() for _ in range(5)]
        assert sorted(int(one.payload) for one in found if isinstance(one, Publish)) == list(range(6, 31))
        receiver.close()
    for sender in senders:
        sender.close()


@pytest.mark.parametrize("publisher", [1, 2])
def test_the_rights_of_the_publisher_of_a_retained_message_are_known_at_all_workers(publisher: int) -> None:
    with Workers(2, "max_keepalive 0\ncheck_retain_source true\nacl_file {dir}/acl\n", {"acl": "topic read #\ntopic write kept/#\n"}) as broker:
        sender = broker.connect(broker.id_on(publisher))
        for mid in range(1, 9):
            sender.send(Publish(f"kept/{mid}", b"1", 1, mid, retain=True))
            sender.expect_packet(Puback(mid, 0x10))
        (broker.dir / "acl").write_text("topic read #\ntopic write none\n")
        broker.config.write_text(broker.config.read_text() + "retry_interval 1\n")
        broker.send_signal(signal.SIGHUP)
        broker.wait_log("'retry_interval' option")
        until(lambda: [broker.connect(broker.id_on(number)) for number in (1, 2)])      # they are held until the reload is over
        for number in (1, 2):
            receiver = broker.connect(broker.id_on(number))
            subscribe(receiver, "kept/+")
            receiver.send(Pingreq())
            receiver.expect_packet(Pingresp())
            receiver.close()


def test_no_local_holds_for_retained_messages_of_all_owners(broker: Workers) -> None:
    sender = broker.connect(broker.id_on(1))
    for mid in range(1, 9):
        sender.send(Publish(f"own/{mid}", b"1", 1, mid, retain=True))
        sender.expect_packet(Puback(mid, 0x10))
    subscribe(sender, "own/+", qos=NO_LOCAL)
    sender.send(Pingreq())
    sender.expect_packet(Pingresp())
    sender.close()


def group_of(broker: Workers, topics: str, workers: tuple[int, ...]) -> list[Wire]:
    members = [broker.connect(broker.id_on(number)) for number in workers]
    for member in members:
        subscribe(member, f"$share/g/{topics}", "ends")
    return members


def shares_of(members: list[Wire], sender: Wire) -> list[list[bytes]]:
    """Return the payloads that each member has got."""
    sender.send(Publish("ends", b"end"))
    shares = []
    for member in members:
        own: list[bytes] = []
        while b"end" not in own:
            own += [payload for payload, _ in received(member, 1)]
        shares.append([payload for payload in own if payload != b"end"])
    return shares


def test_a_group_that_selects_by_publisher_does_so_at_other_workers() -> None:
    with Workers(2, "max_keepalive 0\nshared_strategy hash_client\n") as broker:
        senders = [broker.connect(broker.id_on(1)) for _ in range(12)]
        members = group_of(broker, "by/client", (1, 2, 2))
        for i, sender in enumerate(senders * 3):
            sender.send(Publish("by/client", b"%d" % (i % 12), 1, 1))
            assert isinstance(sender.read_packet(), Puback)
        shares = shares_of(members, senders[0])
        assert shares[0] and shares[1] + shares[2]
        assert sum(len(set(share)) for share in shares) == 12, shares       # all messages of a client go to one member


@pytest.mark.parametrize(("strategy", "chosen"), [("hash_topic", 3), ("sticky", 1)])
def test_a_group_that_selects_by_a_hash_selects_the_same_member_at_all_workers(strategy: str, chosen: int) -> None:
    with Workers(2, f"max_keepalive 0\nshared_strategy {strategy}\n") as broker:
        senders = [broker.connect(broker.id_on(number)) for number in (1, 2)]
        members = group_of(broker, "by/+", (1, 2, 2))
        for i in range(60):
            for sender in senders:
                sender.send(Publish(f"by/{i}", b"%d" % i, 1, 1))
                assert isinstance(sender.read_packet(), Puback)
        pinged(senders[1])
        shares = shares_of(members, senders[0])
        assert sum(len(share) for share in shares) == 120
        assert sum(len(set(share)) for share in shares) == 60, shares       # both messages of a topic go to one member
        assert sum(share != [] for share in shares) == chosen       # each of 3 members has one of 60 topics, at least


def test_a_group_with_as_many_members_at_each_worker_is_shared_equally() -> None:
    with Workers(2, "max_keepalive 0\n") as broker:
        sender = broker.connect(broker.id_on(1))
        members = group_of(broker, "equal", (1, 1, 2, 2))
        for i in range(400):
            sender.send(Publish("equal", b"%d" % i, 1, 1))
            assert isinstance(sender.read_packet(), Puback)
        shares = [len(share) for share in shares_of(members, sender)]
        at_1, at_2 = sum(shares[:2]), sum(shares[2:])
        assert at_1 + at_2 == 400
        assert 140 < at_1 < 260         # a coin that is thrown 400 times: outside 1 time in 500 million


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_subscribers_at_the_owner_get_a_retained_message_once(broker: Workers, qos: int) -> None:
    sender, receiver = pair(broker, 1, 2)
    subscribe(receiver, f"both{qos}/+", qos=qos)
    for mid in range(1, 13):            # each third topic belongs to the worker of the receiver
        sender.send(Publish(f"both{qos}/{mid}", b"%d" % mid, qos, mid, retain=True))
        if qos == 1:
            sender.expect_packet(Puback(mid))
        elif qos == 2:
            sender.expect_packet(Pubrec(mid))
            sender.send(Pubrel(mid))
            sender.expect_packet(Pubcomp(mid))
    assert received(receiver, 12) == [(b"%d" % mid, qos) for mid in range(1, 13)]
    sender.close()
    receiver.close()


def test_a_subscribe_does_not_wait_for_a_worker_that_has_ended() -> None:
    with Workers(2, "max_keepalive 0\n") as broker:
        subscriber = broker.connect(broker.id_on(1))
        for _ in range(6):              # each end doubles the pause before the next start
            before = broker.kill(2)
            until(lambda before=before: broker.pids().get(2, before) != before)
        broker.kill(2)
        until(lambda: 2 not in broker.pids())
        subscribe(subscriber, "alone", qos=NO_RETAINED)
        assert 2 not in broker.pids()
