"""Test what subscriptions, queued messages, retained messages and wills keep after SIGHUP has replaced the rules (docs/authentication.md)."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.broker.group import FOREVER, Member
from tests.harness.broker import Broker
from tests.harness.packets import Connect, Puback, Publish, Will
from tests.harness.wire import Wire

ALL = "topic readwrite #\nuser ann\ntopic readwrite #\n"
LESS = "topic readwrite #\nuser ann\ntopic readwrite open/#\n"
CONFIG = "acl_file {dir}/acl\ncheck_retain_source true\nsys_interval 0\n"


class Ruled(Broker):
    def __init__(self) -> None:
        super().__init__(CONFIG, {"acl": ALL})
        self.stack = ExitStack()
        self.reloads = 0

    def member(self, name: str, user: str | None = None, **more: bool | int) -> Member:
        one = Member(self, name, user=user, **more)  # type: ignore[arg-type]
        self.stack.callback(one.close)
        return one

    def replace(self, rules: str) -> None:
        """Replace the rules; return when they are in force: only they allow the client `mark` to write."""
        self.reloads += 1
        (self.dir / "acl").write_text(f"{rules}user mark\ntopic write mark/{self.reloads}/x\n")
        self.send_signal(signal.SIGHUP)
        mark = self.member("mark", "mark")
        answer = None
        while answer is None or answer.rc >= 0x80:
            mark.wire.send(Publish(f"mark/{self.reloads}/x", b"", 1, 1))
            answer = mark.wire.read_packet()
            assert isinstance(answer, Puback)
        mark.leaves()


@pytest.fixture
def broker() -> Iterator[Ruled]:
    with Ruled() as running, running.stack:
        yield running


def test_a_subscription_stays_and_the_new_rules_decide_about_each_message(broker: Ruled) -> None:
    ann, publisher = broker.member("a", "ann").joins("+/+"), broker.member("p")
    broker.replace(LESS)
    publisher.sends("closed/1", b"1", 1)
    publisher.sends("open/1", b"2", 1)
    assert ann.payloads() == [b"2"]
    broker.replace(ALL)
    publisher.sends("closed/1", b"3", 1)
    assert ann.payloads() == [b"3"]


def test_messages_of_an_offline_session_are_checked_when_it_is_resumed(broker: Ruled) -> None:
    broker.member("a", "ann", expiry_s=FOREVER).joins("+/+").leaves()
    publisher = broker.member("p")
    publisher.sends("closed/1", b"1", 1)
    publisher.sends("open/1", b"2", 1)
    broker.replace(LESS)
    assert broker.member("a", "ann", clean=False, expiry_s=FOREVER).payloads() == [b"2"]


def test_messages_that_wait_for_a_connected_client_are_still_sent(broker: Ruled) -> None:
    ann, publisher = broker.member("a", "ann", window=1).joins("+/+"), broker.member("p")
    for payload in (b"1", b"2"):
        publisher.sends("closed/1", payload, 1)
    broker.replace(LESS)
    assert ann.payloads() == [b"1", b"2"]


def test_a_retained_message_is_read_only_by_the_new_rules(broker: Ruled) -> None:
    publisher = broker.member("p")
    for topic in ("closed/1", "open/1"):
        publisher.wire.send(Publish(topic, topic.encode(), 1, 1, retain=True))
        publisher.wire.expect_packet(Puback(1, 0x10))
    broker.replace(LESS)
    assert broker.member("a", "ann").joins("+/+").payloads() == [b"open/1"]


def test_a_retained_message_whose_publisher_lost_the_right_is_not_sent(broker: Ruled) -> None:
    """Test `check_retain_source`; the message is kept, and sent again if the right comes back."""
    ann = broker.member("a", "ann")
    ann.wire.send(Publish("closed/1", b"kept", 1, 1, retain=True))
    ann.wire.expect_packet(Puback(1, 0x10))
    broker.replace(LESS)
    assert broker.member("r").joins("+/+").payloads() == []
    broker.replace(ALL)
    assert broker.member("r").joins("+/+").payloads() == [b"kept"]


@pytest.mark.parametrize(("topic", "sent"), [("closed/will", []), ("open/will", [b"will"])])
def test_a_will_is_decided_when_it_is_published(broker: Ruled, topic: str, sent: list[bytes]) -> None:
    watch, dying = broker.member("w").joins("+/+"), Wire(broker.port, 4)
    dying.send(Connect("a", username="ann", will=Will(topic, b"will")))
    dying.read_packet()
    broker.replace(LESS)
    watch.gets()
    dying.send(b"\x00\x00")         # no packet: the broker ends the connection
    dying.expect_closed()
    dying.close()
    assert watch.payloads() == sent
