"""Test the counts of pending messages, without locust and without a broker."""

from __future__ import annotations

import random

from perf.load.ledger import HEADER, Ledger


def numbers(ledger: Ledger, payloads: list[bytes]) -> list[int]:
    found = [ledger.read(payload) for payload in payloads]
    assert None not in found
    return [one[1] for one in found if one]


def test_arrivals_in_order_are_removed() -> None:
    ledger = Ledger(7)
    stream = ledger.stream()
    here, there = ledger.open(stream), ledger.open(stream)
    payloads = [ledger.write(stream, 5, 64) for _ in range(3)]
    assert ledger.pending == 6 and {len(payload) for payload in payloads} == {64}
    assert ledger.read(payloads[1]) == (stream.number, 2, 5)
    for number in numbers(ledger, payloads):
        assert ledger.arrived(here, number) == "" and ledger.arrived(there, number) == ""
    assert ledger.pending == here.pending == there.pending == 0 and ledger.delivered == 6


def test_missing_messages_arrive_late_or_are_lost() -> None:
    ledger = Ledger(7)
    stream = ledger.stream()
    inbox = ledger.open(stream)
    for _ in range(6):
        ledger.write(stream, 0, 32)
    assert [ledger.arrived(inbox, number) for number in (1, 4, 3)] == ["", "", "out of order"]
    assert inbox.pending == ledger.pending == 3            # 2, 5, 6
    assert ledger.arrived(inbox, 3) == ledger.arrived(inbox, 4) == "duplicate"
    assert ledger.write_off(inbox) == ledger.lost == 3 and ledger.pending == 0
    assert ledger.arrived(inbox, 2) == ""            # counted as lost before
    assert (ledger.delivered, ledger.duplicates, ledger.disordered) == (3, 2, 1)


def test_messages_before_the_first_receiver_are_not_pending() -> None:
    ledger = Ledger(7)
    stream = ledger.stream()
    ledger.write(stream, 0, 32)
    inbox = ledger.open(stream)
    ledger.write(stream, 0, 32)
    assert ledger.pending == 1 and ledger.arrived(inbox, 1) == "" and ledger.pending == 1
    ledger.close(inbox)
    ledger.close(inbox)
    assert ledger.pending == 0


def test_a_broken_connection_strands_pending_messages() -> None:
    ledger = Ledger(7)
    stream = ledger.stream()
    inbox, other = ledger.open(stream), ledger.open(stream)
    for _ in range(5):
        ledger.write(stream, 0, 32)
    assert [ledger.arrived(inbox, number) for number in (1, 3)] == ["", ""]
    ledger.cut(inbox)
    ledger.cut(inbox)
    assert (inbox.pending, ledger.pending, ledger.stranded) == (0, 5, 3)      # 2, 4, 5
    ledger.write(stream, 0, 32)
    assert (inbox.pending, ledger.pending) == (0, 6)
    assert ledger.arrived(inbox, 6) == ledger.arrived(inbox, 2) == ""   # before SUBACK
    ledger.reopen(inbox)
    assert ledger.write_off(inbox) == 0
    for number in numbers(ledger, [ledger.write(stream, 0, 32)]):
        assert ledger.arrived(inbox, number) == ""
    assert ledger.arrived(inbox, 5) == "" and ledger.arrived(inbox, 7) == "duplicate"       # 5 was sent again
    assert (ledger.stranded, ledger.delivered, ledger.write_off_stranded(inbox)) == (1, 5, 1)
    assert (ledger.stranded, ledger.lost, ledger.pending) == (0, 1, other.pending) and other.pending == 7
    ledger.write(stream, 0, 32)
    ledger.cut(inbox)
    ledger.close(inbox)
    assert (ledger.stranded, ledger.lost, ledger.pending) == (0, 1, 8)


def test_unsent_messages_are_not_pending() -> None:
    ledger = Ledger(7)
    stream = ledger.stream()
    inbox = ledger.open(stream)
    ledger.write(stream, 0, 32)
    ledger.take_back(stream)
    assert ledger.pending == inbox.pending == ledger.sent == 0
    assert ledger.read(ledger.write(stream, 0, 32)) == (stream.number, 1, 0)


def test_a_forgotten_stream_has_no_pending_messages() -> None:
    ledger = Ledger(7)
    stream = ledger.stream()
    ledger.open(stream)
    ledger.write(stream, 0, 32)
    ledger.forget(stream)
    assert ledger.pending == 0 and not ledger.streams


def test_messages_of_other_processes_are_foreign() -> None:
    ledger, other = Ledger(7), Ledger(8)
    stream = ledger.stream()
    inbox = ledger.open(stream)
    assert ledger.read(other.write(other.stream(), 0, 32)) is ledger.read(b"x" * (HEADER.size - 1)) is ledger.read(b"") is None
    words = "a message for another client"
    # a number that was never used would be a gap of any size
    assert [ledger.arrived(inbox, number) for number in (0, 1, 0xFFFFFFFF)] == [words] * 3
    assert ledger.arrived(None, 1) == words and ledger.foreign == 4 and ledger.pending == 0


def test_the_sum_is_that_of_the_inboxes() -> None:
    """Test any events in any order."""
    chance = random.Random(1)
    ledger = Ledger(7)
    streams = [ledger.stream() for _ in range(3)]
    inboxes = [ledger.open(stream) for stream in streams for _ in range(2)]
    for _ in range(3000):
        inbox = chance.choice(inboxes)
        match chance.randrange(14):
            case 0:
                ledger.reopen(inbox)
            case 1:
                ledger.write_off(inbox)
            case 12:
                ledger.cut(inbox)
            case 13:
                ledger.write_off_stranded(inbox)
            case 2 | 3 | 4 | 5 | 6:
                ledger.write(inbox.stream, 0, 32)
            case _:
                ledger.arrived(inbox, chance.randrange(inbox.stream.sent + 2))
        assert ledger.pending == sum(one.pending for one in inboxes)
        assert ledger.stranded == sum(len(one.stranded) for one in inboxes)
    assert ledger.lost and ledger.duplicates and ledger.disordered
