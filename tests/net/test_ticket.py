"""Write, read and judge the tickets of relayed connections, byte by byte."""

from __future__ import annotations

import random
import struct

import pytest

from cext.testing import net_api
from cext.testing.base_api import proof_of
from tests.net.test_relay_head import FIELDS, HEADS, NAME_MAX, ROWS, made

KEY = bytes(range(16))
OTHER, BAD, MORE, DONE = -2, -1, 0, 1
TAKEN, FORGED, AGAIN, LATE = 0, 1, 2, 3
BEGIN, PROOF = 16, 16
WINDOW = 1 << 16


def ticket(number: int = 1, key: bytes = KEY, slot: int = 2, fields: dict[str, object] = FIELDS) -> bytes:
    found = net_api.ticket_made(key, number, slot, fields)
    assert found is not None
    return found


def taken(side: net_api.Tickets, *numbers: int) -> list[int | None]:
    """Return what the side makes of tickets with these numbers."""
    return [side.take(ticket(number))[3] for number in numbers]


TICKETS = [ticket(number, fields=fields) for number, fields in enumerate(ROWS, 1)]


@pytest.mark.parametrize(("n", "proof"), [          # of the reference implementation of SipHash (vectors.h, vectors_sip128)
    (0, "a3817f04ba25a8e66df67214c7550293"), (1, "da87c1d86b99af44347659119b22fc45"), (8, "3b62a9ba6258f5610f83e264f31497b4"),
    (15, "5493e99933b0a8117e08ec0f97cfc3d9"), (63, "5150d1772f50834a503e069a973fbd7c")])
def test_the_proof_is_that_of_the_reference(n: int, proof: str) -> None:
    assert proof_of(KEY, bytes(range(n))).hex() == proof


def test_the_layout_is_that_of_the_first_version() -> None:
    head = made(FIELDS)
    signed = b"tkt\x01" + struct.pack("<HHQ", 2, 0, 0x0102030405060708) + head
    assert ticket(0x0102030405060708) == signed + proof_of(KEY, signed)


@pytest.mark.parametrize("one", TICKETS)
def test_a_ticket_is_taken_once(one: bytes) -> None:
    side = net_api.Tickets(KEY)
    assert side.take(one + b"bytes of the client") == (DONE, len(one), 2, TAKEN)
    assert side.take(one) == (DONE, len(one), 2, AGAIN)


@pytest.mark.parametrize("one", TICKETS)
def test_a_part_of_a_ticket_asks_for_the_rest(one: bytes) -> None:
    side = net_api.Tickets(KEY)
    for n in range(len(one)):
        assert side.take(one[:n])[:2] == (MORE, len(one) if n >= BEGIN + 48 else 0)


def test_each_bit_that_changes_makes_a_ticket_wrong() -> None:
    one = ticket()
    for bit in range(8 * len(one)):
        changed = bytearray(one)
        changed[bit // 8] ^= 1 << bit % 8
        side = net_api.Tickets(KEY)
        assert side.take(bytes(changed))[3] in (None, FORGED), bit
        assert side.take(one)[3] == TAKEN           # nothing was noted


def test_a_ticket_of_another_key_is_wrong() -> None:
    assert net_api.Tickets(KEY).take(ticket(key=bytes(16)))[3] == FORGED


def test_a_side_that_has_no_key_any_more_takes_nothing() -> None:
    side = net_api.Tickets(KEY)
    side.forget()
    assert side.take(ticket())[3] == side.take(ticket(key=bytes(16)))[3] == FORGED


@pytest.mark.parametrize("other", [b"m", b"mqwl", b"GET / HTTP/1.1\r\n", b"tkt\x02", b"tkt\x00" + bytes(100)])
def test_other_bytes_are_no_ticket(other: bytes) -> None:
    assert net_api.Tickets(KEY).take(other)[0] == OTHER


@pytest.mark.parametrize("at", [6, 7, BEGIN + 4, BEGIN + 47])
def test_a_wrong_field_or_head_is_refused(at: int) -> None:
    one = bytearray(ticket())
    one[at] ^= 2
    assert net_api.Tickets(KEY).take(bytes(one))[0] == BAD


def test_a_later_head_is_taken() -> None:
    signed = ticket()[:BEGIN] + HEADS[-1]
    one = signed + proof_of(KEY, signed)
    assert net_api.Tickets(KEY).take(one) == (DONE, len(one), 2, TAKEN)


def test_a_name_that_is_too_long_gets_no_ticket() -> None:
    assert net_api.ticket_made(KEY, 1, 2, FIELDS | {"name": b"n" * (NAME_MAX + 1)}) is None


# ---------------------------------------------------------------- numbers

def test_tickets_may_overtake_each_other_within_the_window() -> None:
    side = net_api.Tickets(KEY)
    assert taken(side, WINDOW + 1, 2, WINDOW, 3, 2, WINDOW + 1, 1) == [TAKEN, TAKEN, TAKEN, TAKEN, AGAIN, AGAIN, LATE]


def test_a_jump_forgets_no_number_within_the_window() -> None:
    side = net_api.Tickets(KEY)
    assert taken(side, 1, WINDOW, 1, 2) == [TAKEN, TAKEN, AGAIN, TAKEN]
    assert taken(side, WINDOW + 1, 1, WINDOW + 1) == [TAKEN, LATE, AGAIN]
    assert taken(side, 3 * WINDOW + 2, 2 * WINDOW + 2, 2 * WINDOW + 3, 2 * WINDOW + 3) == [TAKEN, LATE, TAKEN, AGAIN]


def test_the_number_0_is_not_taken() -> None:
    assert taken(net_api.Tickets(KEY), 0) == [LATE]


def test_the_highest_number_is_taken() -> None:
    """The fuzzer has found that the sum with the window must not overflow."""
    assert taken(net_api.Tickets(KEY), 2**64 - 7, 2**64 - 1, 2**64 - 7) == [TAKEN, TAKEN, AGAIN]


@pytest.mark.parametrize("seed", range(4))
def test_the_window_does_what_a_set_of_numbers_does(seed: int) -> None:
    r = random.Random(seed)
    side, seen, highest = net_api.Tickets(KEY), set[int](), 0
    for _ in range(3000):
        number = max(1, highest + r.choice((1, 1, 2, -r.randrange(200), -r.randrange(2 * WINDOW), r.randrange(2 * WINDOW) if r.random() < 0.1 else 3)))
        [found] = taken(side, number)
        assert found == (LATE if number + WINDOW <= highest else AGAIN if number in seen else TAKEN)
        if found == TAKEN:
            seen.add(number)
            highest = max(highest, number)
