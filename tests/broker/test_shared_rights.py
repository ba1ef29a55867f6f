"""Test that a message to a shared group goes to a member that may read its topic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import mosq
from tests.broker.group import FOREVER, Member

STRATEGIES = ["round_robin", "random", "sticky", "least_inflight", "hash_topic", "hash_client"]
RULES = "topic write #\nuser reader\ntopic read #\nuser other\ntopic read other/#\n"


class Group:
    def __init__(self, stack: ExitStack, folder: Path, strategy: str) -> None:
        (folder / "acl").write_text(RULES)
        self.broker = stack.enter_context(mosq.Broker(acl_file=str(folder / "acl"), allow_anonymous=True, shared_strategy=strategy))
        self.stack = stack

    def member(self, client_id: str, user: str | None, qos: int = 1, joins: bool = True, **more: Any) -> Member:
        one = Member(self.broker, client_id, user=user, **more)
        self.stack.callback(one.close)
        return one.joins("$share/g/+/t", qos) if joins else one

    def drops(self) -> int:
        return self.broker.stats()["drops_acl_read"]    # type: ignore[no-any-return]


@pytest.fixture(params=STRATEGIES)
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Group]:
    with ExitStack() as stack:
        yield Group(stack, tmp_path, request.param)


@pytest.mark.parametrize("qos", [0, 1])
def test_members_without_the_right_get_and_lose_nothing(group: Group, qos: int) -> None:
    others = [group.member(f"other{n}", "other", qos) for n in range(3)]
    readers = [group.member(f"reader{n}", "reader", qos) for n in range(2)]
    publisher = group.member("p", None, joins=False)
    for n in range(40):
        publisher.sends(f"a{n}/t", b"%d" % n, qos)
    got = [int(payload) for one in readers for payload in one.payloads()]
    assert sorted(got) == list(range(40))
    assert [one.payloads() for one in others] == [[], [], []]
    assert group.drops() == 0
    publisher.sends("other/t", b"all may", qos)
    assert sum(len(one.payloads()) for one in (*readers, *others)) == 1


def test_an_offline_member_with_the_right_comes_before_an_online_one_without(group: Group) -> None:
    group.member("other", "other")
    group.member("reader", "reader", expiry_s=FOREVER).leaves()
    publisher = group.member("p", None, joins=False)
    for n in range(5):
        publisher.sends("a/t", b"%d" % n, 1)
    back = group.member("reader", "reader", joins=False, clean=False, expiry_s=FOREVER)
    assert back.payloads() == [b"%d" % n for n in range(5)]
    assert group.drops() == 0


def test_a_message_that_no_member_may_read_is_counted(group: Group) -> None:
    members = [group.member(f"other{n}", "other") for n in range(3)]
    publisher = group.member("p", None, joins=False)
    for _ in range(4):
        publisher.sends("a/t", b"", 1)
    assert [one.payloads() for one in members] == [[], [], []]
    assert group.drops() == 4


def test_messages_of_an_ended_member_go_to_one_with_the_right(group: Group) -> None:
    ends = group.member("ends", "reader", expiry_s=FOREVER)
    ends.leaves()
    group.member("other", "other", expiry_s=FOREVER).leaves()
    publisher = group.member("p", None, joins=False)
    for n in range(4):
        publisher.sends("a/t", b"%d" % n, 1)
    reader = group.member("reader", "reader")
    group.member("ends", "reader", joins=False)         # a clean start ends the session
    group.broker.stats()
    assert reader.payloads() == [b"%d" % n for n in range(4)]
