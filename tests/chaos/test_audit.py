"""Test that the audit finds every kind of fault; each test makes one."""

import time
from unittest.mock import Mock

import pytest

from tests.chaos.audit import Audit
from tests.chaos.client import BRIEF_STAMP, HEAD, Chaos, Outage, Subscriber
from tests.chaos.guests import Willing


def audit_of(qos_in: int = 1, qos_out: int = 1, n: int = 4, acked: int = 4) -> Audit:
    """Return an audit of a publisher that sent n messages, the first `acked` acknowledged, and a session subscribed before."""
    audit = Audit()
    sent = audit.publisher(7, "p", qos_in, 0)
    audit.asked("s", 0)
    audit.subscribed("s", qos_out, 0)
    for seq in range(1, n + 1):
        sent.sent(seq)
        sent.acked[seq - 1] = seq <= acked
    return audit


def found(audit: Audit) -> dict[str, int]:
    audit.reckon()
    return {kind: n for kind, n in audit.faults.items() if n}


def test_a_complete_run_has_no_fault() -> None:
    audit = audit_of()
    for seq in (1, 2, 3, 4):
        assert not audit.complete("s")
        audit.delivered("s", 7, seq, dup=False)
    assert audit.complete("s") and found(audit) == {} and audit.ok


def test_only_acknowledged_messages_count_as_lost() -> None:
    audit = audit_of(acked=3)
    audit.delivered("s", 7, 1, dup=False)
    audit.delivered("s", 7, 3, dup=False)
    assert found(audit) == {"lost": 1}                      # message 2; 4 was not acknowledged
    assert "never got p:2" in audit.report() and "1 lost" in audit.report()


def test_messages_before_the_subscription_are_not_required() -> None:
    audit = audit_of()
    audit.asked("late", 0)
    audit.delivered("late", 7, 4, dup=False)                # between SUBSCRIBE and SUBACK: allowed, not required
    audit.subscribed("late", 1, 0)
    audit.delivered("s", 7, 1, dup=False)
    assert audit.missing("late") == [] and len(audit.missing("s")) == 3


def test_duplicates_at_qos_2() -> None:
    audit = audit_of(2, 2)
    audit.publishers[7].sent(1)                             # a repetition by the publisher does not allow a copy
    for _ in range(2):
        audit.delivered("s", 7, 1, dup=True)
    assert audit.faults["doubled"] == 1


def test_copies_without_the_dup_flag() -> None:
    audit = audit_of()
    audit.delivered("s", 7, 1, dup=False)
    audit.delivered("s", 7, 1, dup=True)
    assert audit.ok and audit.redeliveries == 1
    audit.delivered("s", 7, 1, dup=False)
    assert audit.faults["no dup"] == 1
    # a message that the publisher repeats is a new one at QoS 1
    audit.publishers[7].sent(2)
    for _ in range(2):
        audit.delivered("s", 7, 2, dup=False)
    assert audit.faults["no dup"] == 1
    audit.held_again("s", 7, 2, dup=False)
    assert audit.faults["no dup"] == 2


def test_order_of_first_copies() -> None:
    audit = audit_of()
    for seq, dup in ((1, False), (2, False), (1, True), (4, False), (3, False)):
        audit.delivered("s", 7, seq, dup)
    assert audit.faults["order"] == 1


def test_foreign_messages() -> None:
    audit = audit_of()
    audit.delivered("s", 7, 99, dup=False)
    audit.delivered("s", 8, 1, dup=False)
    audit.delivered("nobody", 7, 1, dup=False)
    assert audit.faults["foreign"] == 3


def test_a_group_gets_each_message_once_in_any_order() -> None:
    audit = audit_of(2, 2)
    audit.groups.add("g")
    audit.asked("g", 0)
    audit.subscribed("g", 2, 0)
    audit.publishers[7].last = 0
    audit.publishers[7].acked.clear()
    audit.publishers[7].sends.clear()
    audit.sessions["g"][7].wanted_from = 1
    for seq in (1, 2, 3):
        audit.publishers[7].sent(seq)
        audit.publishers[7].acked[seq - 1] = 1
    audit.delivered("g", 7, 3, dup=False)
    audit.delivered("g", 7, 1, dup=False)
    assert audit.ok and not audit.complete("g")
    audit.delivered("g", 7, 3, dup=True)
    assert audit.faults["doubled"] == 1
    audit.delivered("g", 7, 2, dup=False)
    assert audit.complete("g")


def test_wills() -> None:
    chaos = Chaos(0)
    client = Willing(chaos, 0, 5, 0)
    client.will_came(1)
    assert chaos.audit.ok
    client.will_came(1)
    assert chaos.audit.faults["will"] == 1
    client.left[2] = (5.0, 5.1)
    for outage in (Outage(5.5, 5.5), Outage(4.0, 5.05), Outage(4.9), Outage(5.05, 9.0)):       # the kill was too soon after that to decide, or at that time
        chaos.outages = [outage]
        client.will_came(2)
        client.came.clear()
        assert chaos.audit.faults["will"] == 1
    chaos.outages = [Outage(4.0, 4.9), Outage(7.0)]
    client.left[3] = (5.0, 5.1)
    client.will_came(3)
    assert chaos.audit.faults["will"] == 2


@pytest.mark.parametrize("later", ["answered", "not answered"])
def test_a_connect_that_arrives_late_sends_its_will_in_place_of_the_later_one(later: str) -> None:
    client = Willing(Chaos(0), 0, 4, 0)
    client.connection_made(Mock())
    client.connection_lost(None)                # there was no CONNACK
    client.connection_made(Mock())
    if later == "answered":
        client.up.set()
    client.will_came(1)
    assert client.is_over(2) == (later == "answered")


def test_a_later_will_is_missing_if_only_that_of_an_answered_connection_came() -> None:
    client = Willing(Chaos(0), 0, 4, 0)
    for _ in range(2):
        client.connection_made(Mock())
        client.up.set()
        client.connection_lost(None)
    client.will_came(1)
    assert not client.is_over(2)


def test_messages_delivered_after_their_expiry() -> None:
    chaos = Chaos(0)
    s = Subscriber(chaos, 0, 0, 1, 5)
    for age, faults in ((1.0, 0), (10.0, 1)):
        s.came((0, 0), b"brief/0", HEAD.pack(0, 0) + BRIEF_STAMP.pack(time.monotonic() - age), dup=False)
        assert chaos.audit.faults["stale"] == faults
    s.came((0, 0), b"brief/0", HEAD.pack(0, 0) + BRIEF_STAMP.pack(time.monotonic() - 10.0), dup=True)
    assert chaos.audit.faults["stale"] == 1
